// Bad input is refused with its place. Lines and columns were counted by hand.
#include <vector>

#include "scenario/support.hpp"
#include "support/catch.hpp"

namespace dsv4::scenario {
namespace {

struct BadInput {
  std::string text;
  std::string message;
};

void check_all(const std::vector<BadInput>& inputs) {
  for (const BadInput& bad : inputs) {
    INFO(bad.text);
    CHECK(test::usage_error([&] { test::parse(bad.text); }) == bad.message);
  }
}

/// A scenario of one step whose line is the first.
std::string step(const std::string& text) {
  return "steps: [" + text + "]";
}

TEST_CASE("what yaml-cpp accepts silently is refused") {
  check_all({
      {"", "s.yaml:1:1: the file is empty"},
      {"# only a comment\n", "s.yaml:1:1: the file is empty"},
      {"name: a\nseed: 1\nname: b\n", "s.yaml:3:1: duplicate key 'name' (first on line 1)"},
      {"steps:\n  - prefill: {request: a, tokens: 3, tokens: 4}\n",
       "s.yaml:2:38: duplicate key 'tokens' (first on line 2)"},
      {"name: &x a\n", "s.yaml:1:7: anchors are not allowed"},
      {"model: &m {preset: tiny}\n", "s.yaml:1:8: anchors are not allowed"},
      {"name: a\nprofile: *x\n", "s.yaml:2:10: the referenced anchor is not defined"},
      {"name: !!str a\n", "s.yaml:1:7: tags are not allowed ('tag:yaml.org,2002:str')"},
      {"model: !geometry {preset: tiny}\n", "s.yaml:1:8: tags are not allowed ('!geometry')"},
      {"model:\n  <<: {preset: tiny}\n", "s.yaml:2:3: merge keys are not allowed ('<<')"},
      {"name: a\n---\nname: b\n", "s.yaml:3:1: a second document is not allowed"},
      {std::string(5000, '['), "s.yaml:1:1: nested too deeply"},
      {"[1, 2]: a\n", "s.yaml:1:1: a key must be a word, not a list"},
      {"- a\n", "s.yaml:1:1: a scenario must be a mapping, not a list"},
      {"just words\n", "s.yaml:1:1: a scenario must be a mapping, not 'just words'"},
      {std::string("name: a\nseed: 1\0\n", 17), "s.yaml:2:1: a zero byte: this is not a text file"},
  });
}

TEST_CASE("text that is not UTF-8 is refused with its line") {
  const std::string rest = "\nsteps: [{prefill: {request: a, tokens: 1}}]\n";
  check_all({
      {"name: a\ndescription: \xFF" + rest, "s.yaml:2:1: byte 0xff is not part of UTF-8 text"},
      {"description: caf\xE9" + rest, "s.yaml:1:1: byte 0xe9 is not part of UTF-8 text"},
      {"description: \xC0\xAF" + rest, "s.yaml:1:1: byte 0xc0 is not part of UTF-8 text"},      // overlong
      {"description: \xED\xA0\x80" + rest, "s.yaml:1:1: byte 0xed is not part of UTF-8 text"},  // surrogate
      {"description: \xF4\x90\x80\x80" + rest, "s.yaml:1:1: byte 0xf4 is not part of UTF-8 text"},
      {"description: \xE2\x82", "s.yaml:1:1: byte 0xe2 is not part of UTF-8 text"},  // cut off
  });
  CHECK(test::usage_error([&] {
          test::parse("description: \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80" + rest);
        }) == "no error");
}

TEST_CASE("a name is short, without slashes and control characters; messages are clipped") {
  const std::string steps = "\nsteps: [{prefill: {request: a, tokens: 1}}]\n";
  const std::string rule = " must have at most 128 bytes, without slashes and control characters";
  check_all({
      {"name: ../../tmp/x" + steps, "s.yaml:1:7: name '../../tmp/x'" + rule},
      {"name: \"a\\e[2J\"" + steps, "s.yaml:1:7: name 'a?[2J'" + rule},
      {"name: " + std::string(200, 'n') + steps, "s.yaml:1:7: name '" + std::string(60, 'n') + "...'" + rule},
  });
  const std::string message =
      test::usage_error([&] { test::parse("seed: " + std::string(3000, 'k') + steps); });
  CHECK(message.size() < 600);
  CHECK(message.ends_with("..."));
}

TEST_CASE("integers are decimal, plain and in range") {
  const auto tokens = [](const std::string& value) {
    return step("{prefill: {request: a, tokens: " + value + "}}");
  };
  check_all({
      {tokens("037"),
       "s.yaml:1:40: tokens must be a decimal integer without leading zeros, not '037' (YAML 1.1 reads it as "
       "octal)"},
      {tokens("0x1f"), "s.yaml:1:40: tokens must be a decimal integer, not '0x1f'"},
      {tokens("0o17"), "s.yaml:1:40: tokens must be a decimal integer, not '0o17'"},
      {tokens("1e3"), "s.yaml:1:40: tokens must be a decimal integer, not '1e3'"},
      {tokens("1_000"), "s.yaml:1:40: tokens must be a decimal integer, not '1_000'"},
      {tokens("3.0"), "s.yaml:1:40: tokens must be a decimal integer, not '3.0'"},
      {tokens("+3"), "s.yaml:1:40: tokens must be a decimal integer, not '+3'"},
      {tokens("\"3\""), "s.yaml:1:40: tokens must be an integer, not the text \"3\""},
      {tokens("[3]"), "s.yaml:1:40: tokens must be an integer, not a list"},
      {tokens("~"), "s.yaml:1:40: tokens must be an integer, not nothing"},
      {tokens("0"), "s.yaml:1:40: tokens must be 1 to 1048576, not 0"},
      {tokens("-1"), "s.yaml:1:40: tokens must be 1 to 1048576, not -1"},
      {tokens("1048577"), "s.yaml:1:40: tokens must be 1 to 1048576, not 1048577"},
      {tokens("99999999999999999999999"),
       "s.yaml:1:40: tokens must be 1 to 1048576, not 99999999999999999999999"},
      {"seed: 18446744073709551616\n",
       "s.yaml:1:7: seed must be 0 to 18446744073709551615, not 18446744073709551616"},
      {"seed: -1\n", "s.yaml:1:7: seed must be 0 to 18446744073709551615, not -1"},
  });
  CHECK(test::parse("seed: 18446744073709551615\n" + step("{batch: [{pad: 1}]}")).seed ==
        18446744073709551615ULL);
}

TEST_CASE("unknown keys, missing keys and wrong types") {
  check_all({
      {"name: a\nstep: []\n",
       "s.yaml:2:1: a scenario has no key 'step' (known: name, description, class, model, profile, "
       "seed, seeded, cache, steps, sweep, expect, hidden, weights, trace)"},
      {"name: a\n", "s.yaml:1:1: a scenario needs the key 'steps'"},
      {"steps: {}\n", "s.yaml:1:8: steps must be a list, not a mapping"},
      {"steps: []\n", "s.yaml:1:8: steps is empty"},
      {step("a"), "s.yaml:1:9: a step must be a mapping, not 'a'"},
      {step("{free: a, preempt: a}"), "s.yaml:1:9: a step holds exactly one event, not 2"},
      {step("{forward: a}"),
       "s.yaml:1:10: unknown event 'forward' (known: prefill, decode, verify, batch, free, preempt, resume, "
       "rewind, "
       "prefix_hit, save, load, evict, poison, fill, capture, replay_graph)"},
      {step("{prefill: {request: a, token: 3}}"),
       "s.yaml:1:32: prefill has no key 'token' (known: request, tokens)"},
      {step("{prefill: {request: a}}"), "s.yaml:1:19: prefill needs the key 'tokens'"},
      {step("{prefill: a}"), "s.yaml:1:19: prefill must be a mapping, not 'a'"},
      {step("{free: {request: a, keep: yes}}"), "s.yaml:1:35: keep must be true or false, not 'yes'"},
      {step("{free: {request: a, keep: \"true\"}}"), "s.yaml:1:35: keep must be true or false, not \"true\""},
      {step("{poison: {what: all}}"), "s.yaml:1:25: what must be one of freed, unused, not 'all'"},
      {step("{batch: []}"), "s.yaml:1:17: batch is empty"},
      {step("{batch: [{free: a}]}"),
       "s.yaml:1:19: a batch holds prefill, decode, verify and pad, not 'free'"},
      {step("{batch: [{decode: {requests: [a], repeat: 2}}]}"),
       "s.yaml:1:51: repeat is not allowed in a batch, which is one step"},
      {step("{decode: {requests: []}}"), "s.yaml:1:29: requests is empty"},
      {step("{decode: {requests: [a, b, a]}}"), "s.yaml:1:36: request a is listed twice"},
      {"profile: fast\n",
       "s.yaml:1:10: unknown profile 'fast' (known: canonical, official, exact, "
       "vllm-fp8, vllm-mxfp4, sglang-fp8, sglang-fp4, transformers, ggml)"},
      {"profile: {softmax: three_pass}\n",
       "s.yaml:1:20: axis softmax has no value 'three_pass' (known: two_pass, online64_bf16_p, bf16)"},
  });
}

TEST_CASE("names of requests") {
  const auto named = [](const std::string& name) { return step("{free: " + name + "}"); };
  const auto refusal = [](const std::string& name) {
    return "s.yaml:1:16: request '" + name + "' is not a name: [a-z][a-z0-9_]*, at most 64 characters";
  };
  for (const char* name : {"A", "1a", "_a", "a-b", "a.b", "a b"}) {
    CHECK(test::usage_error([&] { test::parse(named(name)); }) == refusal(name));
  }
  const std::string longest(64, 'a');
  CHECK(test::usage_error([&] { test::parse(named(longest)); }) == "no error");
  CHECK(test::usage_error([&] { test::parse(named(longest + "a")); }) == refusal(longest + "a"));
}

TEST_CASE("model, cache and expectations") {
  check_all({
      {"model: {preset: huge}\n", "s.yaml:1:17: unknown preset 'huge' (known: tiny, v4-flash, v4-pro)"},
      {"model: {layers: [mla]}\n", "s.yaml:1:18: layer kind must be one of swa, csa, hca, not 'mla'"},
      {"model: {layers: []}\n", "s.yaml:1:17: layers must list 1 to 256 layers, not 0"},
      {"model: {head_dim: 256}\n", "s.yaml:1:19: head_dim is fixed by the page layouts: 512, not 256"},
      {"model: {dim: 200}\n", "s.yaml:1:8: model field dim: 200 (must be a multiple of 128)"},
      {"model: {preset: tiny, heads: 3}\n",
       "s.yaml:1:8: model field heads: 3 (must be a multiple of o_groups, 2)"},
      {"model: {eps: tiny}\n", "s.yaml:1:14: eps must be a finite decimal number, not 'tiny'"},
      {"model: {eps: .inf}\n", "s.yaml:1:14: eps must be a finite decimal number, not '.inf'"},
      {"model: {layers: [csa], layer: [1, 2]}\n",
       "s.yaml:1:31: layer must name one checkpoint layer for each of the 1 layers, not 2"},
      {"steps: [{free: a}]\ncache: {swa_page: 0}\n", "s.yaml:2:19: swa_page must be 1 to 65536, not 0"},
      {"steps: [{free: a}]\ncache: {c4_state: online}\n",
       "s.yaml:2:19: c4_state must be one of ring, paged, page4align, not 'online'"},
      {"steps: [{free: a}]\ncache: {pages: many}\n", "s.yaml:2:16: pages must be one of auto, not 'many'"},
      {"steps: [{free: a}]\ncache: {pages: {pool: 0}}\n", "s.yaml:2:23: pool must be 1 to 1073741824, not 0"},
      {"steps: [{free: a}]\ncache: {pitch: 576}\n",
       "s.yaml:2:16: pitch must be at least 37440, the largest page, not 576"},
      {"steps: [{free: a}]\ncache: {pitch: 38000}\n",
       "s.yaml:2:16: pitch must be a multiple of 576, not 38000"},
      {"steps: [{free: a}]\nexpect: {covers: [page.lost]}\n",
       "s.yaml:2:19: unknown coverage fact 'page.lost' ('list coverage' shows all)"},
      {"steps: [{free: a}]\nexpect: {same_as: parallel}\n",
       "s.yaml:2:19: same_as must be one of sequential, not 'parallel'"},
      {"steps: [{free: a}]\ntrace: {block: 8, requests: {a: {tokens: 17, blocks: [1, 2]}}}\n",
       "s.yaml:2:54: blocks must list 3 hash ids for 17 tokens in blocks of 8, not 2"},
  });
}

TEST_CASE("drafted rows must fit the state rings") {
  const auto verify = [](const std::string& cache, int rows) {
    return "cache: {" + cache + "}\nsteps: [{verify: {request: a, rows: " + std::to_string(rows) +
           ", accept: 1}}]\n";
  };
  // R - pool window + 1: 16 - 8 + 1 and 256 - 128 + 1.
  check_all({
      {verify("swa_page: 64", 10),
       "s.yaml:2:37: 10 rows to verify do not fit the C4 ring of 16 rows: at most 9 (R - pool window + 1)"},
      {verify("c4_state: paged", 130),
       "s.yaml:2:37: 130 rows to verify do not fit the C128 ring of 256 rows: at most 129 (R - pool window + "
       "1)"},
      {verify("draft: 10", 2),
       "s.yaml:1:16: 10 rows to verify do not fit the C4 ring of 16 rows: at most 9 (R - pool window + 1)"},
      {verify("draft: 2", 3), "s.yaml:2:37: rows 3 is more than cache.draft, 2"},
      {step("{verify: {request: a, rows: 2, accept: 3}}"),
       "s.yaml:1:48: accept must be at most rows, 2, not 3"},
  });
  CHECK(test::parse(verify("swa_page: 64", 9)).cache.draft_rows == 9);
  CHECK(test::parse(verify("c4_state: page4align", 129)).cache.draft_rows == 129);
  CHECK(test::parse(verify("draft: 5", 2)).cache.draft_rows == 5);
}

}  // namespace
}  // namespace dsv4::scenario
