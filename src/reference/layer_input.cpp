#include <fmt/format.h>

#include <algorithm>

#include "arith/bf16.hpp"
#include "model/error.hpp"
#include "reference/rms_norm.hpp"
#include "reference/stages.hpp"

namespace dsv4::reference {
namespace {

/// Chained layers (section 16): the predecessor's input plus its output, one rounding to f32, one to bf16,
/// then the norm with weight 1.
void chained_rows(const StageContext& context, std::span<std::uint16_t> out) {
  const auto in = context.input(context.layer - 1, TensorId::hidden).as<std::uint16_t>();
  const auto added = context.input(context.layer - 1, TensorId::hidden_out).as<std::uint16_t>();
  const std::int64_t dim = context.geometry().dim;
  const float eps = context.geometry().eps;
  const NormWeight order = context.profile().get<NormWeight>();
#pragma omp parallel for schedule(static) if (context.tokens() > 1)
  for (std::int64_t token = 0; token < context.tokens(); ++token) {
    const auto first = static_cast<std::size_t>(token * dim);
    for (std::size_t i = first; i < first + static_cast<std::size_t>(dim); ++i) {
      out[i] = arith::f32_to_bf16(arith::bf16_to_f32(in[i]) + arith::bf16_to_f32(added[i]));
    }
    rms_norm(out.data() + first, dim, nullptr, eps, order, out.data() + first);
  }
}

void stored_rows(const StageContext& context, std::span<std::uint16_t> out) {
  const auto dim = static_cast<std::size_t>(context.geometry().dim);
  for (std::size_t token = 0; token < context.plan.rows.size(); ++token) {
    const Row& row = context.plan.rows[token];
    if (row.request < 0) continue;
    const auto stored = context.inputs.find(context.layer, row.content);
    if (stored.size() != dim) {
      throw InternalError(fmt::format("step {} layer {}: no stored input for request {} position {}",
                                      context.plan.index, context.layer, row.request, row.position));
    }
    std::ranges::copy(stored, out.begin() + static_cast<std::ptrdiff_t>(token * dim));
  }
}

void source_rows(const StageContext& context, std::span<std::uint16_t> out) {
  const auto dim = static_cast<std::size_t>(context.geometry().dim);
  for (std::size_t token = 0; token < context.plan.rows.size(); ++token) {
    const Row& row = context.plan.rows[token];
    if (row.request >= 0) context.hidden_source.hidden(context.layer, row, out.subspan(token * dim, dim));
  }
}

}  // namespace

void layer_input(StageContext& context) {
  const std::int64_t dim = context.geometry().dim;
  Tensor hidden(DType::bfloat16, {context.tokens(), dim});
  const auto rows = hidden.as<std::uint16_t>();
  if (!context.config.chain || context.layer == 0) {
    source_rows(context, rows);
  } else if (context.plan.kind == StepKind::restore) {
    stored_rows(context, rows);
  } else {
    chained_rows(context, rows);
  }
  if (context.wanted(TensorId::hidden_codes) || context.wanted(TensorId::hidden_scales)) {
    const QuantizedRows quantized = quantize_rows(context.profile(), rows.data(), context.tokens(), dim);
    Tensor codes(DType::float8_e4m3fn, {context.tokens(), dim});
    Tensor scales(DType::float8_e8m0fnu, {context.tokens(), (dim + 127) / 128});
    std::ranges::copy(quantized.codes, codes.as<std::uint8_t>().begin());
    std::ranges::copy(quantized.scales, scales.as<std::uint8_t>().begin());
    context.publish(TensorId::hidden_codes, std::move(codes));
    context.publish(TensorId::hidden_scales, std::move(scales));
  }
  context.publish(TensorId::hidden, std::move(hidden));
}

}  // namespace dsv4::reference
