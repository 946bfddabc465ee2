/// Judges of single elements that differ in bits. A judge is made for one pair of tensors and knows how their
/// elements become numbers: plain, codes with block scales, scales with their codes, bytes of packed rows, or
/// against the float64 value and bound of the wide engine.
#pragma once

#include <memory>
#include <optional>

#include "compare/comparison.hpp"
#include "compare/packed_row.hpp"
#include "compare/rule.hpp"
#include "model/tensor.hpp"

namespace dsv4::compare {

struct Judgement {
  bool value_equal = false;  ///< same number (-0 equals +0), or the same dequantised numbers
  bool within = false;       ///< within the rule
  bool ordering = false;     ///< within the limit of another summation order
  std::int64_t ulp = 0;
  double absolute = 0;  ///< of the dequantised values
  double relative = 0;
  std::optional<double> ratio;  ///< against the wide engine
};

/// Which numbers are accepted.
struct Limits {
  Rule rule;
  double ordering_in_rms = 0;  ///< order_bound.hpp; 0: no ordering verdict
};

class ElementJudge {
 public:
  virtual ~ElementJudge() = default;
  virtual Judgement judge(std::int64_t element) const = 0;
  virtual ElementValue reference(std::int64_t element) const = 0;
  virtual ElementValue subject(std::int64_t element) const = 0;
};

/// Tensors of the same dtype and shape, or float tensors of two dtypes.
std::unique_ptr<ElementJudge> plain_judge(const Tensor& reference, const Tensor& subject,
                                          const Limits& limits);

/// A tensor of codes and its scales on both sides.
struct Quantised {
  const Tensor* codes = nullptr;
  const Tensor* scales = nullptr;
};
/// Null scales: codes are read as they are.
std::unique_ptr<ElementJudge> codes_judge(Quantised reference, Quantised subject, const Limits& limits);
/// Null codes: nothing but equal bits passes a rule of steps, since a scale alone says nothing.
std::unique_ptr<ElementJudge> scales_judge(Quantised reference, Quantised subject, const Limits& limits);

/// Rows of `page_bytes`, or pages of `layout.rows` rows, as uint8 [row, byte].
std::unique_ptr<ElementJudge> bytes_judge(const Tensor& reference, const Tensor& subject,
                                          const PackedRow& layout, const Limits& limits);

/// Rows or pages of two-byte values, bf16 or f16, as uint8 [row, byte].
std::unique_ptr<ElementJudge> half_rows_judge(const Tensor& reference, const Tensor& subject, bool f16,
                                              const Limits& limits);

/// The wide engine's figures of one tensor. Codes are judged in units of its own block scale.
struct WideFigures {
  const Tensor* unrounded = nullptr;  ///< float64
  const Tensor* bounds = nullptr;     ///< float64
  const Tensor* scales = nullptr;     ///< of a tensor of codes
};
/// `narrow` is the other side. ratio = distance of the float64 value from the interval that rounds to the
/// element, divided by the bound: 0 inside, at most 1 where the bound explains it.
std::unique_ptr<ElementJudge> bound_judge(Quantised narrow, const Tensor& wide, WideFigures figures,
                                          bool is_scale, bool wide_is_reference);

}  // namespace dsv4::compare
