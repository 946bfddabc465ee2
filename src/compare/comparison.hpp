/// What a comparison says: one Comparison for each tensor, cache digest and write set of a step, skips with
/// their reasons, findings, and totals. Data only; src/report words it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/stage.hpp"

namespace dsv4::compare {

enum class Verdict : std::uint8_t {
  equal,          ///< same bits (NaN canonicalised), don't-care elements left out
  value_equal,    ///< other bytes, same dequantised values, or the same set in another order
  ordering_only,  ///< same inputs, within the bound of another summation order (order_bound.hpp)
  tie_swap,       ///< another legal choice inside an exact tie at the cut
  within_rule,    ///< differs within the tensor's rule, or within the stated bound of the wide engine
  diverged,
};
inline constexpr std::size_t kVerdictCount = 6;
std::string_view name(Verdict verdict);

/// What an element is about. Absent fields do not apply.
struct Meaning {
  bool padding = false;
  std::string request;                   ///< name
  std::optional<std::int64_t> position;  ///< token position within the request
  std::optional<std::int64_t> position_mod_4;
  std::optional<std::int64_t> position_mod_128;
  std::optional<std::int64_t> position_mod_page;  ///< window page
  std::optional<std::int64_t> entry;              ///< compressed entry index within the request
  std::optional<std::int64_t> entry_first;  ///< first covered position (its own group, without the overlap)
  std::optional<std::int64_t> entry_last;
  std::optional<std::int64_t> head;
  std::optional<std::int64_t> dim;
  std::optional<std::int64_t> block;  ///< quantisation block
  std::optional<std::int64_t> rank;   ///< place in a selection or list
  std::optional<std::int64_t> slot;
  std::optional<std::int64_t> page;
  std::optional<std::int64_t> offset;  ///< row within the page
  std::string part;                    ///< of a packed row: "codes", "rope", "scales", "spare byte"
};

/// One element on one side.
struct ElementValue {
  std::string hex;                ///< raw bits
  double value = 0;               ///< as the format reads it; may be inf or NaN
  std::optional<double> decoded;  ///< dequantised with its block scale
  std::optional<double> score;    ///< of a selected entry
};

/// First element that is inf or NaN.
struct NonFinite {
  std::int64_t count = 0;
  std::vector<std::int64_t> first;  ///< coordinate; empty when count is 0
  Meaning meaning;
};

/// Whether what a stage read was the same on both sides.
enum class Inputs : std::uint8_t {
  identical,    ///< every tensor and cache that the stage reads is equal
  within_rule,  ///< some differ, all pass their rule
  different,    ///< some diverged: the difference is inherited
  unknown,      ///< some were not compared
};
std::string_view name(Inputs inputs);

struct Comparison {
  std::int64_t step = 0;
  int layer = -1;     ///< -1: the batch
  std::string stage;  ///< "q.up", "batch" or "state"
  std::string tensor;
  std::optional<TensorId> id;  ///< of a published tensor
  std::string rule;            ///< as applied; "bound" against the wide engine
  Verdict verdict = Verdict::equal;
  bool failed = false;      ///< under the rule set
  bool downstream = false;  ///< differs, but what it depends on differed before

  std::int64_t elements = 0;    ///< judged ones, without the don't-care ones
  std::int64_t mismatches = 0;  ///< elements of other bits
  std::int64_t outside = 0;     ///< mismatches beyond the rule
  std::int64_t dont_care = 0;   ///< elements that no rule judges
  std::int64_t dont_care_mismatches = 0;
  std::string dont_care_reason;

  std::optional<std::int64_t> worst_ulp;  ///< steps of the format; codes: of the code
  double worst_absolute = 0;
  double worst_relative = 0;
  std::optional<double> worst_ratio;             ///< against the wide engine: share of the allowed distance
  std::optional<std::int64_t> worst_code_steps;  ///< codes against the wide engine

  std::vector<std::int64_t> first;  ///< coordinate of the first mismatch (beyond the rule if there is one)
  Meaning meaning;
  ElementValue reference;
  ElementValue subject;
  std::string note;  ///< other shape, the score at the cut, which rule a tie follows ...
  /// Axes along which all mismatches share one index: ("head", 3).
  std::vector<std::pair<std::string, std::int64_t>> shared;
  std::int64_t requests_touched = 0;  ///< requests with a mismatch; 0 where rows have no request
  std::int64_t requests_total = 0;

  Inputs inputs = Inputs::unknown;
  std::vector<std::string> inputs_compared;  ///< paths of what the stage reads, differing ones marked by '*'

  NonFinite reference_nonfinite;
  NonFinite subject_nonfinite;
  std::string reference_digest;  ///< digests only
  std::string subject_digest;
};

/// Something that was not compared.
struct Skip {
  enum class Kind : std::uint8_t { skipped, not_produced };
  Kind kind = Kind::skipped;
  std::int64_t step = 0;
  int layer = -1;
  std::string stage;
  std::string tensor;
  std::string reason;
};

/// A broken rule that is no difference between two tensors.
struct Finding {
  std::int64_t step = 0;
  int layer = -1;
  std::string kind;  ///< "write_outside_plan", "changed_without_write", "null_page" ...
  std::optional<Cache> cache;
  std::optional<std::int64_t> page;
  std::optional<std::int64_t> offset;  ///< row within the page
  std::optional<std::int64_t> byte;    ///< first changed byte within the page or state row
  std::string owner;                   ///< request and position or entry, or "nobody"
  std::string message;                 ///< complete sentence
  // Findings about rows also name:
  std::string event;                      ///< the step's, as JSON
  std::optional<Stage> stage;             ///< that read or wrote
  std::string request;                    ///< on whose behalf
  std::optional<std::int64_t> position;   ///< token position, or
  std::optional<std::int64_t> entry;      ///< entry index
  std::optional<std::int64_t> slot;
  std::string last_writer;                ///< request, position or entry, stage and step; or "nobody"
};

struct StepComparison {
  std::int64_t step = 0;
  std::string event;
  std::vector<Comparison> comparisons;  ///< execution order
  std::vector<Skip> skips;
  std::vector<Finding> findings;

  bool failed() const;
};

/// Sums over a whole run. `compared` counts comparisons, that is, tensors.
struct Totals {
  std::int64_t steps = 0;
  std::int64_t compared = 0;
  std::array<std::int64_t, kVerdictCount> verdicts{};
  std::int64_t failed = 0;      ///< introduced here
  std::int64_t downstream = 0;  ///< failed, but dependent on an earlier difference
  std::int64_t skipped = 0;
  std::int64_t not_produced = 0;
  std::int64_t findings = 0;
  std::int64_t elements = 0;
  std::int64_t dont_care = 0;
  std::optional<double> worst_ratio;
  std::optional<Comparison> first_divergence;

  void add(const StepComparison& step);
  /// True when nothing was compared: the caller's exit code is 2.
  bool nothing_compared() const { return elements == 0; }
  bool passed() const { return failed == 0 && downstream == 0 && findings == 0; }
};

}  // namespace dsv4::compare
