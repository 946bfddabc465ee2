#include "compare/rule.hpp"

#include <regex>

#include "model/error.hpp"
#include "support/catch.hpp"

namespace dsv4::compare {

TEST_CASE("every tensor of the catalogue has a rule in every set") {
  for (const RuleSet set : {RuleSet::bits, RuleSet::values, RuleSet::hopper_exact}) {
    const Rules rules(set);
    for (const TensorInfo& tensor : tensor_catalogue()) {
      INFO(path(tensor.id));
      REQUIRE_NOTHROW(tensor_class(tensor.id));
      const Rule& rule = rules.rule(tensor.id);
      if (set == RuleSet::bits) REQUIRE(rule == Rule{});
      REQUIRE(rules.only_equal_passes(tensor.id) == (set == RuleSet::bits));
    }
    for (const char* other :
         {"batch/request", "batch/position", "batch/slot", "batch/page", "batch/prefix", "state/swa_pages",
          "state/compressed_pages", "state/indexer_pages", "state/compress_state_kv",
          "state/compress_state_score", "state/indexer_state_kv", "state/indexer_state_score", "state/window",
          "state/entries", "state/index_entries", "state/state", "state/index_state", "state/writes"}) {
      REQUIRE_NOTHROW(rules.rule(other));
    }
  }
}

TEST_CASE("a class follows from dtype and role where these leave no choice") {
  for (const TensorInfo& tensor : tensor_catalogue()) {
    INFO(path(tensor.id));
    const TensorClass kind = tensor_class(tensor.id);
    if (tensor.dtype == DType::int32) {
      REQUIRE((kind == TensorClass::index || kind == TensorClass::selection));
    } else if (tensor.dtype == DType::uint8) {
      REQUIRE(kind == TensorClass::bytes);
    } else if (tensor.dtype == DType::float8_e4m3fn) {
      REQUIRE(kind == TensorClass::codes);
    } else if (tensor.dtype == DType::float8_e8m0fnu) {
      REQUIRE(kind == TensorClass::scales);
    } else {
      REQUIRE((kind != TensorClass::index && kind != TensorClass::selection && kind != TensorClass::bytes));
    }
  }
}

TEST_CASE("rules are spelled and read back") {
  for (const char* text : {"bits", "rank", "ulp:0", "ulp:3", "abs:0.5", "rms:0.25+rel:0.125",
                           "abs:1+rms:2+rel:3", "ulp:1+rms:0.03"}) {
    REQUIRE(to_string(parse_rule(text)) == text);
  }
  const Rule rule = parse_rule("rel:0.01+abs:1e-6");
  REQUIRE(rule.kind == Rule::Kind::tolerance);
  REQUIRE(rule.absolute == 1e-6);
  REQUIRE(rule.relative == 0.01);
  for (const char* text :
       {"", "ulp:", "ulp:-1", "ulp:1.5", "abs", "abs:x", "rel:-1", "rel:inf", "near", "abs:1,rel:2"}) {
    INFO(text);
    REQUIRE_THROWS_AS(parse_rule(text), UsageError);
  }
}

TEST_CASE("overrides are data: a pattern over paths and a rule") {
  Rules rules(RuleSet::bits);
  rules.add_override("q.up/.*=ulp:2");
  REQUIRE(rules.rule(TensorId::q) == parse_rule("ulp:2"));
  REQUIRE(rules.rule(TensorId::q_raw) == parse_rule("ulp:2"));
  REQUIRE(rules.rule(TensorId::q_latent) == Rule{});
  REQUIRE_FALSE(rules.only_equal_passes(TensorId::q));
  REQUIRE(rules.only_equal_passes(TensorId::q_latent));
  rules.add_override("q.up/q=bits");
  REQUIRE(rules.rule(TensorId::q) == Rule{});
  REQUIRE(rules.only_equal_passes(TensorId::q));
  rules.add_override("state/swa_pages=ulp:1");
  REQUIRE(rules.rule("state/swa_pages") == parse_rule("ulp:1"));
  REQUIRE(rules.overrides().size() == 3);
  // Part of a path is no match, an unknown one neither.
  REQUIRE_THROWS_AS(rules.add_override("q.up=ulp:2"), UsageError);
  REQUIRE_THROWS_AS(rules.add_override("nothing/.*=bits"), UsageError);
  REQUIRE_THROWS_AS(rules.add_override("q.up/(=bits"), UsageError);
  REQUIRE_THROWS_AS(rules.add_override("ulp:2"), UsageError);
}

TEST_CASE("kernel models count for hopper-exact alone") {
  const std::vector<TensorId> modelled{TensorId::scores};
  for (const RuleSet set : {RuleSet::bits, RuleSet::values, RuleSet::hopper_exact}) {
    Rules rules(set, modelled);
    REQUIRE(rules.only_equal_on_same_inputs(TensorId::scores) == (set == RuleSet::hopper_exact));
    REQUIRE_FALSE(rules.only_equal_on_same_inputs(TensorId::compress_pooled));
    if (set != RuleSet::bits)
      REQUIRE(rules.rule(TensorId::scores) == Rules(RuleSet::values).rule(TensorId::scores));
    rules.add_override("indexer.score/.*=ulp:2");
    REQUIRE_FALSE(rules.only_equal_on_same_inputs(TensorId::scores));
  }
}

TEST_CASE("rule sets are named") {
  REQUIRE(rule_set_named("hopper-exact") == RuleSet::hopper_exact);
  REQUIRE(rule_set_named("values") == RuleSet::values);
  REQUIRE_THROWS_AS(rule_set_named("value"), UsageError);
}

}  // namespace dsv4::compare
