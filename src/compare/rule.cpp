#include "compare/rule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <regex>

#include "model/error.hpp"

namespace dsv4::compare {
namespace {

constexpr std::array<std::string_view, 3> kSetNames{"bits", "values", "hopper-exact"};

struct ClassInfo {
  TensorClass tensor_class;
  std::string_view name;
  std::string_view values_rule;
};

// Defaults of the sets `values` and `hopper-exact`. Activations are bf16 (a step is 2^-8 of the value) and
// pass through several roundings in any implementation; f32 values come from bf16 operands, so only their
// sums differ, unless an engine rounds them to bf16; codes may fall to the other side of a rounding boundary,
// hence one step, and carry on the error of the activation that they quantise.
constexpr std::array<ClassInfo, kTensorClassCount> kClasses{{
    {TensorClass::input, "input", "bits"},
    {TensorClass::activation, "activation", "rms:0.03+rel:0.03"},
    {TensorClass::value, "value", "rms:0.01+rel:0.01"},
    {TensorClass::state, "state", "rms:0.01+rel:0.01"},
    {TensorClass::score, "score", "rms:0.03+rel:0.03"},
    {TensorClass::lse, "lse", "abs:0.02+rel:0.01"},
    {TensorClass::codes, "codes", "ulp:1+rms:0.03"},
    {TensorClass::scales, "scales", "ulp:1+rms:0.03"},
    {TensorClass::bytes, "bytes", "ulp:1+rms:0.03"},
    {TensorClass::index, "index", "bits"},
    {TensorClass::selection, "selection", "rank"},
}};

struct OtherTensor {
  std::string_view path;
  TensorClass tensor_class;
};

constexpr OtherTensor kOtherTensors[]{
    {"batch/request", TensorClass::index},
    {"batch/position", TensorClass::index},
    {"batch/slot", TensorClass::index},
    {"batch/page", TensorClass::index},
    {"batch/prefix", TensorClass::index},
    {"state/swa_pages", TensorClass::bytes},
    {"state/compressed_pages", TensorClass::bytes},
    {"state/indexer_pages", TensorClass::bytes},
    {"state/compress_state_kv", TensorClass::state},
    {"state/compress_state_score", TensorClass::state},
    {"state/compress_state_max", TensorClass::state},
    {"state/compress_state_sum", TensorClass::state},
    {"state/indexer_state_kv", TensorClass::state},
    {"state/indexer_state_score", TensorClass::state},
    {"state/window", TensorClass::bytes},
    {"state/entries", TensorClass::bytes},
    {"state/index_entries", TensorClass::bytes},
    {"state/state", TensorClass::bytes},
    {"state/index_state", TensorClass::bytes},
    {"state/writes", TensorClass::index},
};

Rule default_rule(RuleSet set, TensorClass tensor_class) {
  if (set == RuleSet::bits) return {};
  return parse_rule(kClasses[static_cast<std::size_t>(tensor_class)].values_rule);
}

double parse_number(std::string_view text, std::string_view whole) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0) || !std::isfinite(value)) {
    throw UsageError(fmt::format("rule '{}': '{}' is not a number of at least 0", whole, text));
  }
  return value;
}

int parse_steps(std::string_view text, std::string_view whole) {
  int steps = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), steps);
  if (error != std::errc() || end != text.data() + text.size() || steps < 0) {
    throw UsageError(fmt::format("rule '{}': '{}' is not a whole number of at least 0", whole, text));
  }
  return steps;
}

}  // namespace

std::string_view name(RuleSet set) {
  return kSetNames[static_cast<std::size_t>(set)];
}

RuleSet rule_set_named(std::string_view name) {
  const auto found = std::ranges::find(kSetNames, name);
  if (found == kSetNames.end()) {
    throw UsageError(fmt::format("unknown rule set '{}'; known: bits, values, hopper-exact", name));
  }
  return static_cast<RuleSet>(found - kSetNames.begin());
}

Rule parse_rule(std::string_view text) {
  if (text == "bits") return {};
  if (text == "rank") return {.kind = Rule::Kind::rank};
  Rule rule;
  bool tolerance = false;
  std::string_view rest = text;
  do {
    const std::size_t plus = rest.find('+');
    const std::string_view term = rest.substr(0, plus);
    rest = plus == std::string_view::npos ? std::string_view() : rest.substr(plus + 1);
    if (term.starts_with("ulp:")) {
      rule.ulp = parse_steps(term.substr(4), text);
      continue;
    }
    tolerance = true;
    double* target = term.starts_with("abs:")   ? &rule.absolute
                     : term.starts_with("rms:") ? &rule.rms
                     : term.starts_with("rel:") ? &rule.relative
                                                : nullptr;
    if (target == nullptr) {
      throw UsageError(
          fmt::format("rule '{}': expected bits, rank, or a sum of ulp:N, abs:X, rms:X and rel:X", text));
    }
    *target = parse_number(term.substr(4), text);
  } while (!rest.empty());
  rule.kind = tolerance ? Rule::Kind::tolerance : Rule::Kind::ulp;
  return rule;
}

std::string to_string(const Rule& rule) {
  switch (rule.kind) {
    case Rule::Kind::bits:
      return "bits";
    case Rule::Kind::ulp:
      return fmt::format("ulp:{}", rule.ulp);
    case Rule::Kind::rank:
      return "rank";
    case Rule::Kind::tolerance:
      break;
  }
  std::string text;
  if (rule.ulp > 0) text = fmt::format("ulp:{}", rule.ulp);
  const auto add = [&text](std::string_view key, double value) {
    if (value > 0) text += fmt::format("{}{}:{}", text.empty() ? "" : "+", key, value);
  };
  add("abs", rule.absolute);
  add("rms", rule.rms);
  add("rel", rule.relative);
  return text.empty() ? "abs:0" : text;
}

std::string_view name(TensorClass tensor_class) {
  return kClasses[static_cast<std::size_t>(tensor_class)].name;
}

TensorClass tensor_class(TensorId id) {
  switch (id) {
    case TensorId::hidden:
      return TensorClass::input;
    case TensorId::q_latent:
    case TensorId::q_raw:
    case TensorId::q_normed:
    case TensorId::q:
    case TensorId::window_normed:
    case TensorId::window_kv:
    case TensorId::window_rope:
    case TensorId::compress_entry:
    case TensorId::compress_rope:
    case TensorId::indexer_entry:
    case TensorId::query_entry:
    case TensorId::attention_out:
    case TensorId::o_rot:
    case TensorId::o_latent:
    case TensorId::hidden_out:
      return TensorClass::activation;
    case TensorId::compress_kv:
    case TensorId::compress_score:
    case TensorId::compress_pooled:
    case TensorId::indexer_kv:
    case TensorId::indexer_score_raw:
    case TensorId::indexer_pooled:
      return TensorClass::value;
    case TensorId::compress_state_kv:
    case TensorId::compress_state_score:
    case TensorId::compress_state_max:
    case TensorId::compress_state_sum:
    case TensorId::indexer_state_kv:
    case TensorId::indexer_state_score:
      return TensorClass::state;
    case TensorId::query_weights:
    case TensorId::scores:
      return TensorClass::score;
    case TensorId::attention_lse:
      return TensorClass::lse;
    case TensorId::hidden_codes:
    case TensorId::window_codes:
    case TensorId::compress_codes:
    case TensorId::indexer_codes:
    case TensorId::query_codes:
    case TensorId::o_latent_codes:
      return TensorClass::codes;
    case TensorId::hidden_scales:
    case TensorId::window_scales:
    case TensorId::compress_scales:
    case TensorId::indexer_scales:
    case TensorId::query_scales:
    case TensorId::o_latent_scales:
      return TensorClass::scales;
    case TensorId::window_page_bytes:
    case TensorId::compress_page_bytes:
    case TensorId::indexer_page_bytes:
      return TensorClass::bytes;
    case TensorId::compress_state_slot:
    case TensorId::compress_state_token:
    case TensorId::compress_pool_request:
    case TensorId::compress_pool_index:
    case TensorId::compress_request:
    case TensorId::compress_index:
    case TensorId::compress_slot:
    case TensorId::indexer_state_slot:
    case TensorId::indexer_state_token:
    case TensorId::indexer_pool_request:
    case TensorId::indexer_pool_index:
    case TensorId::indexer_request:
    case TensorId::indexer_index:
    case TensorId::indexer_slot:
    case TensorId::visible:
    case TensorId::selected_count:
    case TensorId::window_slots:
    case TensorId::window_length:
    case TensorId::compressed_length:
    case TensorId::window_logical:
      return TensorClass::index;
    case TensorId::selected:
    case TensorId::compressed_slots:
    case TensorId::compressed_logical:
      return TensorClass::selection;
  }
  throw InternalError("tensor without a class: no rule can judge it");
}

Rules::Rules(RuleSet set, std::span<const TensorId> modelled) : set_(set) {
  const bool only_equal = set == RuleSet::bits;
  for (const TensorInfo& tensor : tensor_catalogue()) {
    stage_rules_.push_back({path(tensor.id), default_rule(set, tensor_class(tensor.id)), only_equal});
  }
  for (const OtherTensor& tensor : kOtherTensors) {
    other_rules_.push_back({std::string(tensor.path), default_rule(set, tensor.tensor_class), only_equal});
  }
  if (set != RuleSet::hopper_exact) return;
  for (const TensorId id : modelled) stage_rules_[static_cast<std::size_t>(id)].modelled = true;
}

void Rules::add_override(std::string_view text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0) {
    throw UsageError(fmt::format("rule '{}': expected PATTERN=RULE, for example 'q.up/.*=ulp:2'", text));
  }
  const Rule rule = parse_rule(text.substr(equals + 1));
  std::regex pattern;
  try {
    pattern = std::regex(std::string(text.substr(0, equals)));
  } catch (const std::regex_error& error) {
    throw UsageError(fmt::format("rule '{}': the pattern is no regular expression: {}", text, error.what()));
  }
  bool matched = false;
  for (std::vector<Entry>* entries : {&stage_rules_, &other_rules_}) {
    for (Entry& entry : *entries) {
      if (!std::regex_match(entry.path, pattern)) continue;
      entry.rule = rule;
      entry.only_equal = rule.kind == Rule::Kind::bits;
      entry.modelled = false;
      matched = true;
    }
  }
  if (!matched) throw UsageError(fmt::format("rule '{}': no tensor matches the pattern", text));
  overrides_.emplace_back(text);
}

const Rules::Entry& Rules::other(std::string_view path) const {
  const auto found = std::ranges::find(other_rules_, path, &Entry::path);
  if (found == other_rules_.end()) throw InternalError(fmt::format("no rule for tensor '{}'", path));
  return *found;
}

const Rule& Rules::rule(std::string_view path) const {
  return other(path).rule;
}

bool Rules::only_equal_passes(std::string_view path) const {
  return other(path).only_equal;
}

}  // namespace dsv4::compare
