#include "reference/stage_context.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "model/error.hpp"
#include "reference/block_quantizer.hpp"

namespace dsv4::reference {
namespace {

constexpr int kActivationBlock = 128;

template <class Value>
QuantizedRows quantized_rows(QuantFloor floor, const Value* rows, std::int64_t count, std::int64_t columns) {
  const std::int64_t blocks = (columns + kActivationBlock - 1) / kActivationBlock;
  QuantizedRows out{ZeroedArray<std::uint8_t>(static_cast<std::size_t>(count * columns)),
                    ZeroedArray<std::uint8_t>(static_cast<std::size_t>(count * blocks))};
#pragma omp parallel for schedule(static) if (count > 1)
  for (std::int64_t row = 0; row < count; ++row) {
    quantize_e4m3(rows + row * columns, columns, kActivationBlock, floor, out.codes.data() + row * columns,
                  out.scales.data() + row * blocks);
  }
  return out;
}

}  // namespace

LayerState::LayerState(const RunConfig& config, int layer)
    : kind(config.layers.at(static_cast<std::size_t>(layer))),
      caches(config, layer),
      rope(config.geometry, kind, config.profile.get<RopeTable>()) {}

const Tensor& StageContext::input(int of_layer, TensorId id) const {
  const auto& tensor = steps[static_cast<std::size_t>(of_layer)].tensors[static_cast<std::size_t>(id)];
  if (!tensor) {
    throw InternalError(
        fmt::format("step {} layer {}: {} is read before it was published", plan.index, of_layer, path(id)));
  }
  return *tensor;
}

void StageContext::publish(TensorId id, Tensor tensor) {
  if (!wanted(id)) return;
  if (info(id).dims.starts_with("token")) {
    const std::int64_t row = tensor.row_elements() * static_cast<std::int64_t>(size_bytes(tensor.dtype()));
    const auto fill = static_cast<std::byte>(tensor.dtype() == DType::int32 ? 0xFF : 0);
    for (std::int64_t token = 0; token < tokens(); ++token) {
      if (padding(token)) std::ranges::fill(tensor.bytes().subspan(token * row, row), fill);
    }
  }
  steps[static_cast<std::size_t>(layer)].tensors[static_cast<std::size_t>(id)] = std::move(tensor);
}

void StageContext::write(Stage stage, Cache cache, std::int64_t slot, std::int32_t request,
                         std::int32_t index, std::span<const std::byte> row) {
  state.caches.at(cache).write(slot, row);
  steps[static_cast<std::size_t>(layer)].writes.push_back(
      {stage, cache, slot, request, index, {row.begin(), row.end()}});
}

QuantizedRows quantize_rows(const Profile& profile, const std::uint16_t* rows, std::int64_t count,
                            std::int64_t columns) {
  return quantized_rows(activation_floor(profile), rows, count, columns);
}

QuantizedRows quantize_rows(const Profile& profile, const float* rows, std::int64_t count,
                            std::int64_t columns) {
  return quantized_rows(activation_floor(profile), rows, count, columns);
}

LinearInput::LinearInput(const Profile& profile, const std::uint16_t* rows, std::int64_t count,
                         std::int64_t columns) {
  if (profile.get<Linear>() == Linear::bf16) {
    activations_.bf16 = rows;
    return;
  }
  quantized_ = quantize_rows(profile, rows, count, columns);
  activations_.codes = quantized_.codes.data();
  activations_.scales = quantized_.scales.data();
}

}  // namespace dsv4::reference
