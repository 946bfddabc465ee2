/// Comparison rules as data: one rule for each class of tensors, two rule sets, overrides from the command
/// line.
///
/// `bits` is for engines that promise the same bits: only equal passes. `values` is for foreign
/// implementations: everything but `diverged` passes. `hopper-exact` is `values`, but for tensors that a
/// model of a production kernel computed on one side: from the same inputs only equal passes, unless the
/// other side states float64 values and bounds. A rule is written
///   bits | rank | a sum of ulp:N, abs:X, rms:X and rel:X        for example "ulp:2" or "rms:1e-3+rel:0.01"
/// `ulp:N` counts steps of the tensor's own format (codes: steps of the code at the block's scale). A
/// tolerance accepts |a - b| <= abs + rms * RMS of the reference + rel * |reference|, where the RMS is that
/// of the tensor (codes, scales and packed bytes: of the block, dequantised). A sum with both accepts what
/// either accepts: near zero a step is far smaller than the error that any input carries. `rank` is for
/// selections: sets of indices, judged with the scores. Errors: UsageError naming the text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/stage.hpp"

namespace dsv4::compare {

enum class RuleSet : std::uint8_t { bits, values, hopper_exact };
std::string_view name(RuleSet set);
/// Throws UsageError that lists the names.
RuleSet rule_set_named(std::string_view name);

struct Rule {
  enum class Kind : std::uint8_t { bits, ulp, tolerance, rank };
  Kind kind = Kind::bits;
  int ulp = 0;  ///< a tolerance may have it as well
  double absolute = 0;
  double rms = 0;
  double relative = 0;

  bool operator==(const Rule&) const = default;
};
Rule parse_rule(std::string_view text);
std::string to_string(const Rule& rule);

/// Classes of tensors; each has one rule in each set.
enum class TensorClass : std::uint8_t {
  input,       ///< what both sides were given
  activation,  ///< bf16 results
  value,       ///< f32 results of products and pools
  state,       ///< f32 rows of compressor state
  score,       ///< f32 index scores and head weights
  lse,         ///< natural logarithms
  codes,       ///< narrow floats with block scales
  scales,      ///< the block scales
  bytes,       ///< packed rows and pages
  index,       ///< requests, positions, slots, lengths
  selection,   ///< index sets
};
inline constexpr std::size_t kTensorClassCount = 11;
std::string_view name(TensorClass tensor_class);
TensorClass tensor_class(TensorId id);

/// The rules of one comparison.
class Rules {
 public:
  /// `modelled`: what kernel models computed; counts for hopper_exact alone.
  explicit Rules(RuleSet set, std::span<const TensorId> modelled = {});

  /// "REGEX=RULE": the expression must match the whole path ("q.up/q", "state/swa_pages"). The last override
  /// that matches holds. Throws UsageError if the text is no rule or matches no tensor.
  void add_override(std::string_view text);

  RuleSet set() const { return set_; }
  const Rule& rule(TensorId id) const { return stage_rules_[static_cast<std::size_t>(id)].rule; }
  /// Of a tensor that no stage publishes: "batch/NAME" or "state/NAME".
  const Rule& rule(std::string_view path) const;
  /// True where only the verdict `equal` passes: rule set `bits` without an override, or an override to bits.
  bool only_equal_passes(TensorId id) const { return stage_rules_[static_cast<std::size_t>(id)].only_equal; }
  bool only_equal_passes(std::string_view path) const;
  /// True where only `equal` passes if the inputs are identical: modelled tensors without an override.
  bool only_equal_on_same_inputs(TensorId id) const {
    return stage_rules_[static_cast<std::size_t>(id)].modelled;
  }
  /// The kernel behind `modelled` reads `given`, a tensor of the same stage: it must be compared and identical
  /// too.
  void require_given(TensorId modelled, TensorId given) {
    stage_rules_[static_cast<std::size_t>(modelled)].given = given;
  }
  /// One side's kernel adds in other units or rounds at other points than the profile: the wide engine's bound
  /// says nothing about it, the rule judges.
  void judge_without_bound(TensorId id) { stage_rules_[static_cast<std::size_t>(id)].bounded = false; }
  bool bounded(TensorId id) const { return stage_rules_[static_cast<std::size_t>(id)].bounded; }
  std::optional<TensorId> given(TensorId id) const { return stage_rules_[static_cast<std::size_t>(id)].given; }

  /// The overrides as given, for reports.
  const std::vector<std::string>& overrides() const { return overrides_; }

 private:
  struct Entry {
    std::string path;
    Rule rule;
    bool only_equal = false;
    bool modelled = false;
    std::optional<TensorId> given = std::nullopt;
    bool bounded = true;
  };
  const Entry& other(std::string_view path) const;

  RuleSet set_;
  std::vector<Entry> stage_rules_;  ///< by TensorId
  std::vector<Entry> other_rules_;
  std::vector<std::string> overrides_;
};

}  // namespace dsv4::compare
