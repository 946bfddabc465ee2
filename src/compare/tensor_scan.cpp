#include "compare/tensor_scan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "compare/element.hpp"
#include "compare/meaning.hpp"

namespace dsv4::compare {
namespace {

std::int64_t row_count(const Tensor& tensor) {
  return tensor.shape().empty() ? 1 : tensor.dim(0);
}

// Calls visit(element) for every judged element whose bytes differ; NaN payloads are left to the visitor.
template <class Element, class Visit>
void for_each_difference(const Tensor& reference, const Tensor& subject, const Visit& visit) {
  const Element* a = reference.as<Element>().data();
  const Element* b = subject.as<Element>().data();
  const std::int64_t rows = row_count(reference);
  const std::int64_t width = reference.row_elements();
  for (std::int64_t row = 0; row < rows; ++row) {
    const Element* x = a + row * width;
    const Element* y = b + row * width;
    if (std::memcmp(x, y, static_cast<std::size_t>(width) * sizeof(Element)) == 0) continue;
    for (std::int64_t i = 0; i < width; ++i) {
      if (x[i] != y[i]) visit(row, i);
    }
  }
}

template <class Visit>
void for_each_difference(const Tensor& reference, const Tensor& subject, const Visit& visit) {
  if (reference.dtype() != subject.dtype()) {
    // Another format: every element is looked at.
    const std::int64_t width = reference.row_elements();
    for (std::int64_t row = 0; row < row_count(reference); ++row) {
      for (std::int64_t i = 0; i < width; ++i) visit(row, i);
    }
    return;
  }
  switch (size_bytes(reference.dtype())) {
    case 1:
      return for_each_difference<std::uint8_t>(reference, subject, visit);
    case 2:
      return for_each_difference<std::uint16_t>(reference, subject, visit);
    case 4:
      return for_each_difference<std::uint32_t>(reference, subject, visit);
    default:
      return for_each_difference<std::uint64_t>(reference, subject, visit);
  }
}

// Remembers, axis by axis, whether all mismatches so far share one index.
class SharedAxes {
 public:
  void add(const std::vector<std::int64_t>& where) {
    if (common_.empty()) {
      common_ = where;
      return;
    }
    for (std::size_t axis = 0; axis < common_.size(); ++axis) {
      if (common_[axis] != where[axis]) common_[axis] = -1;
    }
  }
  void report(const std::vector<std::string>& names, const std::vector<std::int64_t>& shape,
              std::vector<std::pair<std::string, std::int64_t>>& out) const {
    for (std::size_t axis = 0; axis < common_.size(); ++axis) {
      if (common_[axis] < 0 || shape[axis] < 2) continue;
      out.emplace_back(axis < names.size() ? names[axis] : fmt::format("axis {}", axis), common_[axis]);
    }
  }
  bool all_varied() const {
    return !common_.empty() && std::ranges::all_of(common_, [](std::int64_t index) { return index < 0; });
  }

 private:
  std::vector<std::int64_t> common_;
};

bool is_bit_pattern_finite(const Tensor& tensor) {
  const auto all = [&tensor]<class T>(T mask, T infinity) {
    const std::span<const T> elements = tensor.as<T>();
    // A sum of booleans vectorises, an early exit does not.
    std::int64_t bad = 0;
    for (const T bits : elements) bad += (bits & mask) >= infinity;
    return bad == 0;
  };
  switch (tensor.dtype()) {
    case DType::float8_e4m3fn:
      return all.template operator()<std::uint8_t>(0x7F, 0x7F);
    case DType::float8_e8m0fnu:
      return all.template operator()<std::uint8_t>(0xFF, 0xFF);
    case DType::bfloat16:
      return all.template operator()<std::uint16_t>(0x7FFF, 0x7F80);
    case DType::float32:
      return all.template operator()<std::uint32_t>(0x7FFFFFFF, 0x7F800000);
    case DType::float64:
      return all.template operator()<std::uint64_t>(0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000);
    default:
      return true;
  }
}

}  // namespace

std::int64_t DontCare::judged_in(std::int64_t row, std::int64_t row_elements) const {
  if (judged.empty()) return row_elements;
  return std::clamp<std::int64_t>(judged[static_cast<std::size_t>(row)], 0, row_elements);
}

bool DontCare::judges(std::int64_t row, std::int64_t element_of_row) const {
  if (!judged.empty() && element_of_row >= judged[static_cast<std::size_t>(row)]) return false;
  return !also || !also(element_of_row);
}

std::int64_t DontCare::count(const Tensor& tensor) const {
  if (nothing()) return 0;
  const std::int64_t width = tensor.row_elements();
  std::int64_t total = 0;
  for (std::int64_t row = 0; row < row_count(tensor); ++row) {
    const std::int64_t kept = judged_in(row, width);
    total += width - kept;
    if (kept == width) total += also_in_row;
  }
  return total;
}

std::vector<std::int64_t> scan_pair(const Tensor& reference, const Tensor& subject, const DontCare& dont_care,
                                    const ScanRules& rules,
                                    const std::function<std::unique_ptr<ElementJudge>()>& judge,
                                    Comparison& result) {
  if (reference.shape() != subject.shape()) {
    result.verdict = Verdict::diverged;
    result.elements = std::max(reference.elements(), subject.elements());
    result.mismatches = result.outside = result.elements;
    result.note = fmt::format("other shape: reference [{}], subject [{}]", fmt::join(reference.shape(), ", "),
                              fmt::join(subject.shape(), ", "));
    return {};
  }
  const bool same_type = reference.dtype() == subject.dtype();
  result.dont_care = dont_care.count(reference);
  result.elements = reference.elements() - result.dont_care;
  if (result.dont_care > 0) result.dont_care_reason = dont_care.reason;
  if (!same_type && (rules.only_equal || !is_float(reference.dtype()) || !is_float(subject.dtype()))) {
    result.verdict = Verdict::diverged;
    result.mismatches = result.outside = result.elements;
    result.note =
        fmt::format("other dtype: reference {}, subject {}", name(reference.dtype()), name(subject.dtype()));
    return {};
  }
  const std::span<const std::byte> a = reference.bytes();
  const std::span<const std::byte> b = subject.bytes();
  if (same_type && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0)) {
    result.verdict = Verdict::equal;
    return {};
  }

  std::unique_ptr<ElementJudge> judging;
  const std::int64_t width = reference.row_elements();
  std::vector<std::int64_t> rows;
  SharedAxes shared;
  std::int64_t first = -1;
  std::int64_t first_outside = -1;
  bool all_equal_value = true;
  bool all_ordering = true;
  std::int64_t worst_ulp = 0;
  for_each_difference(reference, subject, [&](std::int64_t row, std::int64_t element_of_row) {
    const std::int64_t element = row * width + element_of_row;
    if (same_type &&
        same_bits(reference.dtype(), load_bits(reference, element), load_bits(subject, element))) {
      return;
    }
    if (!dont_care.judges(row, element_of_row)) {
      ++result.dont_care_mismatches;
      return;
    }
    if (!judging) judging = judge();
    const Judgement judgement = judging->judge(element);
    if (!same_type && judgement.absolute == 0) return;
    ++result.mismatches;
    if (rows.empty() || rows.back() != row) rows.push_back(row);
    all_equal_value = all_equal_value && judgement.value_equal;
    all_ordering = all_ordering && judgement.ordering;
    worst_ulp = std::max(worst_ulp, judgement.ulp);
    result.worst_absolute = std::max(result.worst_absolute, judgement.absolute);
    result.worst_relative = std::max(result.worst_relative, judgement.relative);
    if (judgement.ratio) result.worst_ratio = std::max(result.worst_ratio.value_or(0), *judgement.ratio);
    if (first < 0) first = element;
    if (rules.only_equal || !judgement.within) {
      ++result.outside;
      if (first_outside < 0) first_outside = element;
    }
    if (!shared.all_varied()) shared.add(coordinate(reference.shape(), element));
  });
  if (result.mismatches == 0) {
    result.verdict = Verdict::equal;
    return {};
  }
  result.worst_ulp = worst_ulp;
  if (all_equal_value) {
    result.verdict = Verdict::value_equal;
  } else if (all_ordering && rules.inputs == Inputs::identical) {
    result.verdict = Verdict::ordering_only;
  } else {
    result.verdict = result.outside == 0 ? Verdict::within_rule : Verdict::diverged;
  }
  const std::int64_t shown = first_outside >= 0 ? first_outside : first;
  result.first = coordinate(reference.shape(), shown);
  result.reference = judging->reference(shown);
  result.subject = judging->subject(shown);
  shared.report(rules.axes, reference.shape(), result.shared);
  return rows;
}

NonFinite scan_nonfinite(const Tensor& tensor, const DontCare& dont_care) {
  NonFinite result;
  if (is_bit_pattern_finite(tensor)) return result;
  const std::int64_t width = tensor.row_elements();
  for (std::int64_t row = 0; row < row_count(tensor); ++row) {
    for (std::int64_t i = 0; i < width; ++i) {
      if (!dont_care.judges(row, i) || is_finite(tensor.dtype(), load_bits(tensor, row * width + i)))
        continue;
      if (result.count++ == 0) result.first = coordinate(tensor.shape(), row * width + i);
    }
  }
  return result;
}

}  // namespace dsv4::compare
