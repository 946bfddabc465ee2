#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "oracle/recorded/plan_digest.hpp"
#include "oracle/recorded/record_file.hpp"
#include "oracle/support.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::oracle;

namespace {

constexpr const char* kScript = R"(name: small
model: {preset: tiny, layers: [swa, csa]}
seed: 9
steps:
  - prefill: {request: a, tokens: 6}
  - batch: [{decode: {requests: [a]}}, {prefill: {request: b, tokens: 3}}]
  - free: a
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  require(at != std::string::npos, "the text to replace is not there");
  return text.replace(at, from.size(), to);
}

std::string digest_of_plan(const std::string& script) {
  return recorded::plan_digest(scenario::plan(scenario::parse_scenario(script, "small.yaml")));
}

recorded::Run first_run(const std::string& script = kScript) {
  return recorded::runs_of(scenario::parse_scenario(script, "small.yaml")).front();
}

struct TemporaryFile {
  std::string path = "/tmp/dsv4_recorded_test_" + std::to_string(getpid()) + ".digests";
  ~TemporaryFile() { std::filesystem::remove(path); }
};

EngineFactory broken_factory(Stage stage, TensorId id) {
  return [=](const std::string& name, const RunConfig& config, std::shared_ptr<const WeightSource> weights,
             std::shared_ptr<const HiddenSource> hidden) {
    auto engine = test::reference_factory()(name, config, std::move(weights), std::move(hidden));
    test::break_stage(*engine, stage, id);
    return engine;
  };
}

}  // namespace

TEST_CASE("a scenario without a profile is recorded under both, one with a profile under its own") {
  const auto open = recorded::runs_of(scenario::parse_scenario(kScript, "small.yaml"));
  REQUIRE(open.size() == 2);
  CHECK(open[0].profile() == "canonical");
  CHECK(open[1].profile() == "official");
  const std::string own = std::string(kScript) + "profile: {base: canonical, index_cache: fp4}\n";
  CHECK(recorded::runs_of(scenario::parse_scenario(own, "small.yaml")).size() == 1);

  const std::string swept = replaced(kScript, "steps:\n", "sweep: {n: [5, 6]}\nsteps:\n");
  const auto runs =
      recorded::runs_of(scenario::parse_scenario(replaced(swept, "tokens: 6", "tokens: ${n}"), "small.yaml"));
  REQUIRE(runs.size() == 4);
  CHECK(runs[0].name == "small[n=5]");
  CHECK(runs[3].name == "small[n=6]");
  CHECK(runs[3].profile() == "official");

  const std::string from_file = std::string(kScript) + "hidden: inputs.h5\n";
  CHECK_THROWS_AS(recorded::runs_of(scenario::parse_scenario(from_file, "small.yaml")), UsageError);
}

TEST_CASE("the digest of a plan follows what an engine sees and nothing else") {
  const std::string own = digest_of_plan(kScript);
  CHECK(digest_of_plan(std::string("# a comment\n\n") + kScript) == own);
  CHECK(digest_of_plan(replaced(kScript, "seed: 9", "seed: 9\ndescription: words")) == own);
  CHECK(digest_of_plan(std::string(kScript) + "expect: {same_as: sequential}\n") == own);

  const std::vector<std::pair<std::string, std::string>> changes{
      {"seed: 9", "seed: 10"},
      {"tokens: 6", "tokens: 7"},
      {"swa, csa", "swa, hca"},
      {"csa]}", "csa], heads: 8}"},
      {"csa]}", "csa], eps: 0.5}"},
      {"csa]}", "csa], chain: true}"},
      {"seed: 9", "seed: 9\nprofile: official"},
      {"seed: 9", "seed: 9\nprofile: {base: canonical, index_cache: fp4}"},
      {"seed: 9", "seed: 9\ncache: {c4_state: paged}"},
      {"seed: 9", "seed: 9\ncache: {allocate: shuffled}"},
      {"seed: 9", "seed: 9\ncache: {poison_freed: true}"},
      {"seed: 9", "seed: 9\ncache: {swa_page: 4}"},
      {"request: b", "request: c"},
      {"  - free: a\n", ""},
      {"free: a", "preempt: a"},
      {"free: a", "rewind: {request: a, to: 2}"},
      {"free: a", "poison: {what: unused, value: nan}"},
      {"free: a", "poison: {what: unused, value: large}"},
  };
  std::set<std::string> seen{own};
  for (const auto& [from, to] : changes) {
    INFO(from << " -> " << to);
    CHECK(seen.insert(digest_of_plan(replaced(kScript, from, to))).second);
  }
}

TEST_CASE("a record survives its file, with the lines of its steps or without") {
  const TemporaryFile file;
  const recorded::Run run = first_run();
  EngineInfo info;
  const recorded::RunRecord record = recorded::computed(run, "reference", test::reference_factory(), &info);
  CHECK(info.name == "reference");
  REQUIRE(record.steps.size() == 3);
  CHECK(record.plan == recorded::planned(run).plan);
  const bool has_writes = std::ranges::any_of(record.steps[0].lines, [](const std::string& line) {
    return line.starts_with("000000 layer_00/writes 6 ");  // six window rows
  });
  CHECK(has_writes);

  for (const bool lines : {false, true}) {
    const std::int64_t bytes = recorded::write_record(
        file.path, {{{"engine", "reference"}, {"device", "two words"}}, {record}}, lines);
    CHECK(bytes == static_cast<std::int64_t>(std::filesystem::file_size(file.path)));
    const recorded::RecordFile stored = recorded::read_record(file.path);
    CHECK(stored.said("device") == "two words");
    const recorded::RunRecord* const found = stored.find("small", "canonical");
    REQUIRE(found != nullptr);
    CHECK(stored.find("small", "official") == nullptr);
    CHECK(found->plan == record.plan);
    REQUIRE(found->steps.size() == 3);
    CHECK(found->steps[1].digest == record.steps[1].digest);
    CHECK(found->steps[1].lines == (lines ? record.steps[1].lines : std::vector<std::string>{}));
    CHECK(recorded::compare(*found, record).empty());
  }
}

TEST_CASE("a fault shows from its step on, and where if the record kept lines") {
  const recorded::Run run = first_run();
  recorded::RunRecord record = recorded::computed(run, "reference", test::reference_factory());
  const recorded::RunRecord found =
      recorded::computed(run, "reference", broken_factory(Stage::output_project, TensorId::hidden_out));
  auto mismatches = recorded::compare(record, found);
  REQUIRE(mismatches.size() == 2);  // the third step computes nothing
  CHECK(mismatches[0].step == 0);
  REQUIRE(mismatches[0].lines.size() == 2);  // one in each layer
  CHECK(mismatches[0].lines[0].place.starts_with("layer_00/output.project/hidden_out bfloat16 6,"));
  CHECK(mismatches[0].lines[1].place.starts_with("layer_01/output.project/hidden_out"));

  for (recorded::StepRecord& step : record.steps) step.lines.clear();
  mismatches = recorded::compare(record, found);
  REQUIRE(mismatches.size() == 2);
  CHECK(mismatches[0].lines.empty());

  record.steps.pop_back();
  CHECK(recorded::compare(record, found).size() == 3);  // a step too many is a mismatch
}

TEST_CASE("files that are no record are refused with the line") {
  const TemporaryFile file;
  const std::string digest(32, 'a');
  const std::string start = "dsv4-recorded/1\n";
  const std::string run = "run small canonical " + digest + "\n";
  for (const std::string& text :
       {std::string(), std::string("dsv4-golden/1\n"), start, start + "about engine\n", start + "run small\n",
        start + run + run, start + run + "step 1 " + digest + "\n", start + "step 0 " + digest + "\n",
        start + run + "step 0 aa\n", start + run + "000000 batch/slot " + digest + "\n",
        start + run + "step 0 " + digest + "\n000000 batch/slot aa\n"}) {
    INFO(text);
    std::ofstream(file.path, std::ios::binary) << text;
    CHECK_THROWS_AS(recorded::read_record(file.path), FileError);
  }
  std::ofstream(file.path, std::ios::binary) << start + run + "step 0 " + digest + "\n";
  CHECK(recorded::read_record(file.path).runs.size() == 1);
  CHECK_THROWS_AS(recorded::read_record("/tmp/dsv4-no-such-record"), FileError);
}
