#include "compare/selection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>

#include "compare/element.hpp"

namespace dsv4::compare {
namespace {

using Indices = std::vector<std::int32_t>;

Indices valid_sorted(const Tensor& tensor, std::int64_t row) {
  const std::int64_t width = tensor.row_elements();
  const auto all = tensor.as<std::int32_t>().subspan(static_cast<std::size_t>(row * width),
                                                     static_cast<std::size_t>(width));
  Indices valid;
  std::ranges::copy_if(all, std::back_inserter(valid), [](std::int32_t index) { return index >= 0; });
  std::ranges::sort(valid);
  return valid;
}

// Unused places are -1; any other negative index is a fault.
bool has_bad_index(const Tensor& tensor, std::int64_t row) {
  const std::int64_t width = tensor.row_elements();
  const auto all = tensor.as<std::int32_t>().subspan(static_cast<std::size_t>(row * width),
                                                     static_cast<std::size_t>(width));
  return std::ranges::any_of(all, [](std::int32_t index) { return index < -1; });
}

Indices without(const Indices& from, const Indices& what) {
  Indices rest;
  std::ranges::set_difference(from, what, std::back_inserter(rest));
  return rest;
}

bool has_repeats(const Indices& sorted) {
  return std::ranges::adjacent_find(sorted) != sorted.end();
}

double score(const Tensor& tensor, std::int64_t row, std::int32_t entry) {
  return decode(tensor.dtype(), load_bits(tensor, row * tensor.dim(1) + entry));
}

// docs/numerics.md 2: numbers by value, then -inf, then NaN.
bool better(double a, double b) {
  if (std::isnan(a)) return false;
  if (std::isnan(b)) return true;
  return a > b;
}
bool ties(double a, double b) {
  return !better(a, b) && !better(b, a);
}

double worst_of(const Tensor& scores, std::int64_t row, const Indices& entries) {
  double worst = score(scores, row, entries.front());
  for (const std::int32_t entry : entries) {
    const double value = score(scores, row, entry);
    if (better(worst, value)) worst = value;
  }
  return worst;
}

// Nothing that was left out is better than the worst of what was taken.
bool is_best(const Tensor& scores, std::int64_t row, const Indices& taken, std::int32_t visible) {
  const double cut = worst_of(scores, row, taken);
  for (std::int32_t entry = 0; entry < visible; ++entry) {
    if (!std::ranges::binary_search(taken, entry) && better(score(scores, row, entry), cut)) return false;
  }
  return true;
}

struct Row {
  Indices reference;
  Indices subject;
  Indices lost;    ///< only the reference has them
  Indices gained;  ///< only the subject has them
};

struct Decision {
  Verdict verdict = Verdict::diverged;
  std::string note;
  std::optional<double> ratio;
};

Decision decide_by_bounds(const Row& row, std::int64_t index, const SelectionScores& scores) {
  // The cut lies between the worst kept and the best left out; each exchanged entry must be able to cross it.
  const auto value = [&](std::int32_t entry) { return score(*scores.unrounded, index, entry); };
  const auto bound = [&](std::int32_t entry) { return score(*scores.bounds, index, entry); };
  Decision decision{Verdict::within_rule, "within the bounds of the scores at the cut", 0.0};
  for (const std::int32_t out : row.lost) {
    for (const std::int32_t in : row.gained) {
      const double gap = std::abs(value(out) - value(in));
      const double room = bound(out) + bound(in) + step_at(DType::float32, value(out));
      double ratio = gap == 0 ? 0 : gap / room;
      if (std::isnan(ratio)) ratio = std::numeric_limits<double>::infinity();
      decision.ratio = std::max(*decision.ratio, ratio);
    }
  }
  if (*decision.ratio > 1)
    decision = {Verdict::diverged, "beyond the bounds of the scores at the cut", decision.ratio};
  return decision;
}

Decision decide_row(const Row& row, std::int64_t index, const SelectionScores& scores) {
  if (row.lost.empty() && row.gained.empty()) return {Verdict::value_equal, "same set in another order", {}};
  if (row.reference.size() != row.subject.size()) {
    return {Verdict::diverged,
            fmt::format("{} selected against {}", row.reference.size(), row.subject.size()),
            {}};
  }
  if (scores.visible == nullptr) return {Verdict::diverged, "the scores are not at hand", {}};
  const std::int32_t visible = scores.visible->as<std::int32_t>()[static_cast<std::size_t>(index)];
  if (row.subject.back() >= visible || row.reference.back() >= visible) {
    return {Verdict::diverged, fmt::format("an entry beyond the {} visible ones", visible), {}};
  }
  if (scores.unrounded != nullptr && scores.bounds != nullptr) return decide_by_bounds(row, index, scores);
  if (scores.reference == nullptr || scores.subject == nullptr) {
    return {Verdict::diverged, "the scores are not at hand", {}};
  }
  const double reference_cut = worst_of(*scores.reference, index, row.reference);
  const double subject_cut = worst_of(*scores.subject, index, row.subject);
  const auto at_cut = [&](std::int32_t entry) {
    return ties(score(*scores.reference, index, entry), reference_cut) &&
           ties(score(*scores.subject, index, entry), subject_cut);
  };
  if (std::ranges::all_of(row.lost, at_cut) && std::ranges::all_of(row.gained, at_cut)) {
    return {Verdict::tie_swap, "tie at the cut: every exchanged entry scores the cut value", {}};
  }
  if (scores.pass_rule && is_best(*scores.reference, index, row.reference, visible) &&
      is_best(*scores.subject, index, row.subject, visible)) {
    return {Verdict::within_rule, "each side follows its own scores, which pass their rule", {}};
  }
  return {Verdict::diverged, "not the best by its scores, or the scores differ", {}};
}

bool worse(Verdict a, Verdict b) {
  return static_cast<int>(a) > static_cast<int>(b);
}

using DecideRow = std::function<Decision(const Row&, std::int64_t)>;

RowVerdicts compare_rows(const Tensor& reference, const Tensor& subject, const std::vector<bool>& judged,
                         const DecideRow& decide, Comparison& result, std::int64_t& shown) {
  RowVerdicts verdicts;
  shown = -1;
  if (reference.shape() != subject.shape() || reference.dtype() != DType::int32 ||
      subject.dtype() != DType::int32 || reference.shape().size() != 2) {
    result.verdict = Verdict::diverged;
    result.elements = result.mismatches = result.outside = std::max(reference.elements(), subject.elements());
    result.note = "other shape or dtype";
    return verdicts;
  }
  const std::int64_t width = reference.row_elements();
  const std::int64_t padding = std::ranges::count(judged, false);
  result.dont_care = padding * width;
  if (padding > 0) result.dont_care_reason = "rows that are not judged (padding, or no counterpart)";
  result.elements = reference.elements() - result.dont_care;
  const auto a = reference.as<std::int32_t>();
  const auto b = subject.as<std::int32_t>();
  std::int64_t shown_outside = -1;
  for (std::int64_t row = 0; row < reference.dim(0); ++row) {
    const auto begin = static_cast<std::size_t>(row * width);
    std::int64_t first = -1;
    std::int64_t differing = 0;
    for (std::size_t i = begin; i < begin + static_cast<std::size_t>(width); ++i) {
      if (a[i] == b[i]) continue;
      ++differing;
      if (first < 0) first = static_cast<std::int64_t>(i);
    }
    if (differing == 0) continue;
    if (!judged[static_cast<std::size_t>(row)]) {
      result.dont_care_mismatches += differing;
      continue;
    }
    Row sets{valid_sorted(reference, row), valid_sorted(subject, row), {}, {}};
    sets.lost = without(sets.reference, sets.subject);
    sets.gained = without(sets.subject, sets.reference);
    Decision decision;
    if (has_repeats(sets.subject) != has_repeats(sets.reference)) {
      decision.note = "a repeated entry";
    } else if (has_bad_index(subject, row) != has_bad_index(reference, row)) {
      decision.note = "a negative index other than -1";
    } else {
      decision = decide(sets, row);
    }
    // Where the sets differ, show an exchanged entry rather than its neighbours that moved.
    for (std::size_t i = begin; i < begin + static_cast<std::size_t>(width) && !sets.lost.empty(); ++i) {
      if (std::ranges::binary_search(sets.lost, a[i])) {
        first = static_cast<std::int64_t>(i);
        break;
      }
    }
    verdicts[row] = decision.verdict;
    result.mismatches += differing;
    if (decision.ratio) result.worst_ratio = std::max(result.worst_ratio.value_or(0), *decision.ratio);
    if (shown < 0) {
      shown = first;
      result.note = decision.note;
    }
    if (decision.verdict == Verdict::diverged) {
      result.outside += static_cast<std::int64_t>(std::max<std::size_t>(sets.lost.size(), 1));
      if (shown_outside < 0) {
        shown_outside = first;
        result.note = decision.note;
      }
    }
    if (worse(decision.verdict, result.verdict)) result.verdict = decision.verdict;
  }
  if (shown_outside >= 0) shown = shown_outside;
  if (shown < 0) return verdicts;
  result.first = {shown / width, shown % width};
  for (const auto& [side, tensor] :
       {std::pair{&result.reference, &reference}, std::pair{&result.subject, &subject}}) {
    const std::uint64_t bits = load_bits(*tensor, shown);
    *side = {.hex = hex(DType::int32, bits), .value = decode(DType::int32, bits), .decoded = {}, .score = {}};
  }
  return verdicts;
}

}  // namespace

RowVerdicts compare_selection(const Tensor& reference, const Tensor& subject, const std::vector<bool>& judged,
                              const SelectionScores& scores, Comparison& result) {
  std::int64_t shown = -1;
  RowVerdicts verdicts = compare_rows(
      reference, subject, judged,
      [&scores](const Row& row, std::int64_t index) { return decide_row(row, index, scores); }, result,
      shown);
  if (shown < 0) return verdicts;
  const auto scored = [&](ElementValue& value, const Tensor* tensor) {
    if (tensor == nullptr || value.value < 0 || value.value >= static_cast<double>(tensor->dim(1))) return;
    value.score = score(*tensor, result.first[0], static_cast<std::int32_t>(value.value));
  };
  scored(result.reference, scores.reference);
  scored(result.subject, scores.subject);
  return verdicts;
}

RowVerdicts compare_lists(const Tensor& reference, const Tensor& subject, const std::vector<bool>& judged,
                          const RowVerdicts& selection, Comparison& result) {
  std::int64_t shown = -1;
  return compare_rows(
      reference, subject, judged,
      [&selection](const Row& row, std::int64_t index) -> Decision {
        if (row.lost.empty() && row.gained.empty())
          return {Verdict::value_equal, "same set in another order", {}};
        const auto found = selection.find(index);
        if (found == selection.end() || row.lost.size() != row.gained.size()) {
          return {Verdict::diverged, "another set of keys", {}};
        }
        return {found->second, "follows the selection", {}};
      },
      result, shown);
}

}  // namespace dsv4::compare
