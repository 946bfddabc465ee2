// A bit-exact engine against the float64 engine: the bound on the value before its last rounding decides.
#include <algorithm>
#include <cmath>

#include "compare/element.hpp"
#include "compare/judge.hpp"
#include "compare/judge_parts.hpp"

namespace dsv4::compare {
namespace {

class BoundJudge : public ElementJudge {
 public:
  BoundJudge(Quantised narrow, const Tensor& wide, WideFigures figures, bool is_scale, bool wide_is_reference)
      : narrow_(narrow),
        wide_(wide),
        figures_(figures),
        is_scale_(is_scale),
        wide_is_reference_(wide_is_reference),
        blocks_(*narrow.codes, narrow.scales) {}

  Judgement judge(std::int64_t i) const override {
    const DType dtype = narrow_.codes->dtype();
    const std::uint64_t bits = load_bits(*narrow_.codes, i);
    // Codes: the float64 value is in units of the wide engine's scale; bring the interval there.
    const double factor = scale(narrow_.scales, i) / scale(figures_.scales, i);
    const RoundingInterval interval = rounding_interval(dtype, bits, is_scale_);
    const double exact = figures_.unrounded->as<double>()[static_cast<std::size_t>(i)];
    const double bound = figures_.bounds->as<double>()[static_cast<std::size_t>(i)];
    const double value = decode(dtype, bits) * factor;
    Judgement result;
    double excess = 0;
    if (!(std::isnan(value) && std::isnan(exact)) && value != exact) {
      excess = std::max({interval.low * factor - exact, exact - interval.high * factor, 0.0});
      if (std::isnan(value) || std::isnan(exact)) excess = kInfinity;
    }
    result.ratio = excess == 0 ? 0 : excess / bound;
    if (std::isnan(*result.ratio)) result.ratio = kInfinity;
    result.within = *result.ratio <= 1;
    result.absolute = distance(value, exact);
    result.relative = result.absolute == 0 ? 0 : result.absolute / std::abs(exact);
    if (wide_.dtype() == dtype) {
      const std::uint64_t other = load_bits(wide_, i);
      result.ulp = ulp_distance(dtype, bits, other);
      if (factor != 1 && std::isfinite(factor)) {
        const double step =
            std::max(step_at(dtype, decode(dtype, other)), step_at(dtype, decode(dtype, bits)) * factor);
        const double steps = distance(value, decode(dtype, other)) / step;
        result.ulp = steps < 1e18 ? static_cast<std::int64_t>(std::ceil(steps)) : kFar;
      }
      result.value_equal = same_number(value, decode(dtype, other));
      // However wide the bound: a code may only move to its neighbour.
      if (narrow_.scales != nullptr && result.ulp > 1) result.within = false;
    }
    return result;
  }
  ElementValue reference(std::int64_t i) const override { return wide_is_reference_ ? exact(i) : narrow(i); }
  ElementValue subject(std::int64_t i) const override { return wide_is_reference_ ? narrow(i) : exact(i); }

 private:
  double scale(const Tensor* scales, std::int64_t i) const {
    if (scales == nullptr || narrow_.scales == nullptr) return 1;
    return decode(scales->dtype(), load_bits(*scales, blocks_.scale_of(i)));
  }
  ElementValue narrow(std::int64_t i) const {
    const std::uint64_t bits = load_bits(*narrow_.codes, i);
    ElementValue result{.hex = hex(narrow_.codes->dtype(), bits),
                        .value = decode(narrow_.codes->dtype(), bits),
                        .decoded = {},
                        .score = {}};
    if (narrow_.scales != nullptr) result.decoded = result.value * scale(narrow_.scales, i);
    return result;
  }
  ElementValue exact(std::int64_t i) const {
    const std::uint64_t bits = load_bits(*figures_.unrounded, i);
    ElementValue result{
        .hex = hex(DType::float64, bits), .value = decode(DType::float64, bits), .decoded = {}, .score = {}};
    if (narrow_.scales != nullptr) result.decoded = result.value * scale(figures_.scales, i);
    return result;
  }

  Quantised narrow_;
  const Tensor& wide_;
  WideFigures figures_;
  bool is_scale_;
  bool wide_is_reference_;
  Blocks blocks_;
};

}  // namespace

std::unique_ptr<ElementJudge> bound_judge(Quantised narrow, const Tensor& wide, WideFigures figures,
                                          bool is_scale, bool wide_is_reference) {
  return std::make_unique<BoundJudge>(narrow, wide, figures, is_scale, wide_is_reference);
}

}  // namespace dsv4::compare
