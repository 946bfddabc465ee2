#include "compare/readings.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "compare/element.hpp"
#include "compare/reading_scan.hpp"

namespace dsv4::compare {
namespace {

/// More differing elements say nothing more.
constexpr std::size_t kMostDiffering = std::size_t{1} << 18;

/// Readings that hold wherever a better one does, so that they are left out beside it.
constexpr std::array<std::string_view, 3> kWeak{"other_order", "rows_elsewhere", "one_step"};

}  // namespace

ReadingScan::ReadingScan(const ReadingInput& input) : input_(input) {
  const Tensor& a = *input.reference;
  const Tensor& b = *input.subject;
  if (a.shape() != b.shape() || a.dtype() != b.dtype() || a.shape().empty() || a.elements() == 0) return;
  dtype_ = a.dtype();
  elements_ = a.elements();
  width_ = a.shape().back();
  rows_ = a.dim(0);
  row_width_ = a.row_elements();
  for (std::int64_t unit = 0; unit < units() && differing_.size() < kMostDiffering; ++unit) {
    const std::size_t before = differing_.size();
    for (std::int64_t i = unit * width_; i < (unit + 1) * width_; ++i) {
      if (right(i) != seen(i) && judged(i)) differing_.push_back(i);
    }
    if (differing_.size() > before) touched_.push_back(unit);
  }
  comparable_ = !differing_.empty();
}

std::uint64_t ReadingScan::bits(const Tensor& tensor, std::int64_t element) const {
  const std::uint64_t raw = load_bits(tensor, element);
  constexpr std::uint64_t kNan = std::uint64_t{1} << 63;
  if (tensor.dtype() == DType::bfloat16) return (raw & 0x7FFF) > 0x7F80 ? kNan : raw;
  if (tensor.dtype() == DType::float32) return (raw & 0x7FFFFFFF) > 0x7F800000 ? kNan : raw;
  return raw;
}

double ReadingScan::right_value(std::int64_t element) const {
  return decode(dtype_, load_bits(*input_.reference, element));
}

double ReadingScan::seen_value(std::int64_t element) const {
  return decode(dtype_, load_bits(*input_.subject, element));
}

bool ReadingScan::judged(std::int64_t element) const {
  if (input_.packed) {
    const PackedPart part = input_.packed->locate(element % width_).part;
    if (part == PackedPart::spare || part == PackedPart::behind) return false;
  }
  return !input_.judged || input_.judged(element / row_width_, element % row_width_);
}

Reading ReadingScan::count(std::string name, std::string sentence, const Hypothesis& hypothesis,
                           bool moves) const {
  Reading reading{std::move(name), std::move(sentence), 0, 0, static_cast<std::int64_t>(differing_.size())};
  // Hopeless hypotheses end after a spread of elements.
  const std::size_t stride = std::max<std::size_t>(1, differing_.size() / 64);
  std::size_t probes = 0;
  std::size_t hits = 0;
  for (std::size_t i = 0; i < differing_.size(); i += stride) {
    ++probes;
    hits += hypothesis(differing_[i]) == Said::yes ? 1 : 0;
  }
  if (2 * hits < probes) return reading;
  std::set<std::uint64_t> values;
  for (const std::int64_t element : differing_) {
    if (hypothesis(element) != Said::yes) continue;
    ++reading.explained;
    if (values.size() < 2) values.insert(seen(element));
  }
  if (moves && (reading.explained < 4 || values.size() < 2)) {
    reading.explained = 0;
    return reading;
  }
  for (const std::int64_t unit : touched_) {
    for (std::int64_t i = unit * width_; i < (unit + 1) * width_; ++i) {
      if (right(i) == seen(i) && judged(i) && hypothesis(i) == Said::no) ++reading.against;
    }
  }
  return reading;
}

Hypothesis ReadingScan::taken_from(std::function<std::int64_t(std::int64_t element)> source) const {
  return [this, source = std::move(source)](std::int64_t element) {
    const std::int64_t from = source(element);
    if (from < 0) return Said::nothing;
    return right(from) == seen(element) ? Said::yes : Said::no;
  };
}

std::vector<Reading> readings(const ReadingInput& input, double least, std::size_t most) {
  const ReadingScan scan(input);
  if (!scan.comparable()) return {};
  std::vector<Reading> found;
  read_values(scan, found);
  read_places(scan, found);
  std::erase_if(found, [&](const Reading& one) { return one.explained == 0 || one.share() < least; });
  // In the order found, which is from special to general; of one name the best.
  std::ranges::stable_sort(found, [](const Reading& a, const Reading& b) { return a.share() > b.share(); });
  std::set<std::string> names;
  std::erase_if(found, [&](const Reading& one) { return !names.insert(one.name).second; });
  const auto weak = [](const Reading& one) { return std::ranges::find(kWeak, one.name) != kWeak.end(); };
  if (std::ranges::any_of(found, [&](const Reading& one) { return !weak(one); })) std::erase_if(found, weak);
  if (found.size() > most) found.resize(most);
  return found;
}

}  // namespace dsv4::compare
