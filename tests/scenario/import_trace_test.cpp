// A small trace, scheduled by hand; bad lines; the traces of the repository.
#include "scenario/import_trace.hpp"

#include "model/seeded.hpp"
#include "scenario/support.hpp"
#include "support/catch.hpp"

namespace dsv4::scenario {
namespace {

/// Two prompts that share their first block of 512, and one of its own; scaled by 128 to blocks of 4.
constexpr const char* kTrace =
    R"({"timestamp": 0, "input_length": 1025, "output_length": 256, "hash_ids": [5, 6, 7]}
{"timestamp": 3, "input_length": 600, "output_length": 1, "hash_ids": [8, 9]}

{"timestamp": 9, "input_length": 1024, "output_length": 0, "hash_ids": [5, 6]}
)";

TraceOptions small() {
  TraceOptions options;
  options.scale = 128;
  options.max_running = 2;
  options.max_batch_tokens = 6;
  options.layers = {"csa"};
  return options;
}

TEST_CASE("first come, first served") {
  const std::string yaml = import_trace_text(kTrace, "dir/t.jsonl", small());
  // r0: 9 prompt tokens, 2 decodes. r1: 5 and 1. r2: 8 and 0, of which 4 of the first block and 3 of the
  // second are common with r0 and computed in time; a multiple of 4 below 8 is 4.
  const std::string steps = R"(steps:
  - prefill: {request: r0, tokens: 6}
  - batch: [{prefill: {request: r0, tokens: 3}}, {prefill: {request: r1, tokens: 3}}]
  - batch: [{decode: {requests: [r0]}}, {prefill: {request: r1, tokens: 2}}]
  - decode: {requests: [r0, r1]}
  - free: {request: r0, keep: true}
  - free: r1
  - prefix_hit: {request: r2, from: r0, tokens: 4}
  - free: r0
  - prefill: {request: r2, tokens: 4}
  - free: r2
)";
  CHECK(yaml.substr(yaml.find("steps:"), steps.size()) == steps);
  const Scenario scenario = parse_scenario(yaml, "t.yaml");
  CHECK(scenario.name == "t");
  CHECK(scenario.trace.block == 4);
  CHECK(scenario.trace.requests.at("r0").tokens == 9);
  CHECK(scenario.trace.requests.at("r2").blocks == std::vector<std::int64_t>{5, 6});
  const RunPlan run = plan(scenario);
  CHECK(run.steps[0].rows[5].content == trace_content_id(6, 1));
  CHECK(run.steps[1].rows[2].content == trace_content_id(7, 0));
  CHECK(run.steps[2].rows[0].content == content_id("r0", 9, 0));
}

TEST_CASE("a limit takes the first lines") {
  TraceOptions options = small();
  options.limit = 1;
  const Scenario scenario = parse_scenario(import_trace_text(kTrace, "t.jsonl", options), "t.yaml");
  CHECK(scenario.trace.requests.size() == 1);
}

template <class Error>
std::string error(const std::string& text, const TraceOptions& options) {
  try {
    import_trace_text(text, "t.jsonl", options);
  } catch (const Error& caught) {
    return caught.what();
  }
  return "no error";
}

TEST_CASE("lines that cannot be used") {
  const auto second = [](const std::string& line) {
    const std::string first = R"({"timestamp": 0, "input_length": 10, "output_length": 1, "hash_ids": [1]})";
    return error<FileError>(first + "\n" + line + "\n", small());
  };
  CHECK(second("{") == "t.jsonl:2: the line is not a JSON object");
  CHECK(second("[1]") == "t.jsonl:2: the line is not a JSON object");
  CHECK(second(R"({"input_length": 1, "output_length": 1, "hash_ids": [1]})") ==
        "t.jsonl:2: the line has no timestamp");
  CHECK(second(R"({"timestamp": 0, "input_length": 0, "output_length": 1, "hash_ids": []})") ==
        "t.jsonl:2: the line has input_length 0, less than 1");
  CHECK(second(R"({"timestamp": 0, "input_length": 1.5, "output_length": 1, "hash_ids": [1]})") ==
        "t.jsonl:2: the line has input_length 1.5, which is no integer");
  CHECK(
      second(
          R"({"timestamp": 0, "input_length": 18446744073709551615, "output_length": 1, "hash_ids": [1]})") ==
      "t.jsonl:2: the line has input_length 18446744073709551615, which is too large");
  CHECK(second(R"({"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [1]})") ==
        "t.jsonl:2: the line lists 1 hash ids; 513 tokens are 2 blocks of 512");
  CHECK(second(R"({"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [-1]})") ==
        "t.jsonl:2: the line has a hash id that is no integer >= 0");
  CHECK(second(R"({"timestamp": 0, "input_length": 1, "output_length": 200000000, "hash_ids": [1]})") ==
        "t.jsonl:2: the line has 1562500 tokens, more than 1048576");
  CHECK(error<FileError>("\n\n", small()) == "t.jsonl: the trace has no requests");
  CHECK_THROWS_AS(import_trace("/no/such/trace.jsonl", small()), FileError);
}

TEST_CASE("options out of range") {
  const auto with = [](const auto& change) {
    TraceOptions options = small();
    change(options);
    return error<UsageError>(kTrace, options);
  };
  CHECK(with([](TraceOptions& o) { o.scale = 3; }) ==
        "scale must be a power of two, not 3: it divides blocks of 512 tokens");
  CHECK(with([](TraceOptions& o) { o.scale = 1024; }) == "scale must be 1 to 512, not 1024");
  CHECK(with([](TraceOptions& o) { o.max_running = 0; }) == "max-running must be 1 to 4096, not 0");
  CHECK(with([](TraceOptions& o) { o.max_batch_tokens = 0; }) ==
        "max-batch-tokens must be 1 to 1048576, not 0");
  CHECK(with([](TraceOptions& o) { o.layers = {"mla"}; }) ==
        "unknown layer kind 'mla' (known: swa, csa, hca)");
  CHECK(with([](TraceOptions& o) { o.profile = "fast"; }) ==
        "unknown profile 'fast' (known: canonical, official, exact, "
       "vllm-fp8, vllm-mxfp4, sglang-fp8, sglang-fp4, transformers, ggml)");
}

TEST_CASE("the traces of the repository become plans with legal hits") {
  TraceOptions options;
  options.scale = 4;
  options.limit = 60;
  for (const char* file :
       {"data/traces/mooncake-conversation-1000.jsonl", "data/traces/mooncake-synthetic-300.jsonl"}) {
    const RunPlan run = plan(parse_scenario(import_trace(file, options), "t.yaml"));
    CHECK(run.config.requests.size() == 60);
    // Everything was given back at the end.
    CHECK(step_table(run).back().pages == 0);
  }
}

}  // namespace
}  // namespace dsv4::scenario
