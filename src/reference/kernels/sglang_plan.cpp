#include "reference/kernels/sglang_plan.hpp"

#include <algorithm>

namespace dsv4::kernels {

float SglangState::read(std::int64_t row, std::int64_t column) const {
  const auto at = static_cast<std::size_t>(row * width + column);
  if (const auto* f32 = std::get_if<std::span<float>>(&rows)) return (*f32)[at];
  return arith::bf16_to_f32(std::get<std::span<std::uint16_t>>(rows)[at]);
}

void SglangState::write(std::int64_t row, const float* values) const {
  const auto first = static_cast<std::size_t>(row * width);
  const auto count = static_cast<std::size_t>(width);
  if (const auto* f32 = std::get_if<std::span<float>>(&rows)) {
    std::copy_n(values, width, f32->subspan(first, count).begin());
  } else {
    std::transform(values, values + width,
                   std::get<std::span<std::uint16_t>>(rows).subspan(first, count).begin(), stored_bf16);
  }
}

float SglangState::passed(float value) const {
  return std::holds_alternative<std::span<float>>(rows) ? value : through_bf16(value);
}

void sglang_write_state(std::span<const SglangWritePlan> plans, const float* input,
                        const SglangState& state) {
  for (const SglangWritePlan& plan : plans) {
    if (plan.ragged_id == kSglangInvalid) continue;
    state.write(plan.write_row, input + std::int64_t{plan.ragged_id} * state.width);
  }
}

}  // namespace dsv4::kernels
