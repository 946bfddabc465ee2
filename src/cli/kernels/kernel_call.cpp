#include "cli/kernels/kernel_call.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "arith/bf16.hpp"
#include "model/error.hpp"
#include "reference/linear.hpp"
#include "reference/stage_context.hpp"

namespace dsv4::cli {

void KernelCall::publish(TensorId id, Tensor value) const {
  if (engine.tensor(stage.layer, id) == nullptr) return;
  if (info(id).dims.starts_with("token")) {
    const auto row = static_cast<std::size_t>(value.row_elements()) * size_bytes(value.dtype());
    const auto fill = static_cast<std::byte>(value.dtype() == DType::int32 ? 0xFF : 0);
    for (std::int64_t token = 0; token < tokens(); ++token) {
      if (padding(token))
        std::ranges::fill(value.bytes().subspan(static_cast<std::size_t>(token) * row, row), fill);
    }
  }
  engine.change(stage.layer, id, std::move(value));
}

std::int64_t KernelCall::token_of(std::int32_t request, std::int32_t position) const {
  for (const RequestStep& step : plan().requests) {
    if (step.request == request && position >= step.begin && position < step.end)
      return step.first_row + (position - step.begin);
  }
  throw InternalError("kernel models: a written row belongs to no token of the step");
}

CacheRows::CacheRows(const KernelCall& call, Cache cache)
    : engine_(call.engine),
      layer_(call.layer()),
      cache_(cache),
      shape_(oracle::cache_shape(call.config(), call.layer(), cache)) {}

std::int64_t CacheRows::slot(const RequestStep& request, std::int32_t index, int bank) const {
  const std::int64_t slot = oracle::slot_of(shape_, *request.tables, request.state_base, index, bank);
  require(slot >= 0, "a row that a kernel model reads has no page");
  return slot;
}

std::vector<float> CacheRows::floats(std::int64_t slot, std::int64_t first, std::int64_t n) {
  std::vector<float> out(static_cast<std::size_t>(n));
  std::memcpy(out.data(), values(slot) + 4 * first, out.size() * 4);
  return out;
}

std::vector<std::byte> CacheRows::whole_page(std::int64_t number) const {
  return engine_.read_row(layer_, cache_, number);
}

const std::byte* CacheRows::page(std::int64_t slot) {
  const std::int64_t number = slot / shape_.page_rows;
  const auto [found, added] = pages_.try_emplace(number);
  if (added) found->second = engine_.read_row(layer_, cache_, number);
  return found->second.data();
}

std::vector<float> rotation_rows(const KernelCall& call, std::span<const std::int64_t> positions) {
  const reference::RopeAngleTable table(call.geometry(), call.kind(), call.profile().get<RopeTable>());
  constexpr std::size_t kPairs = reference::kRopePairs;
  std::vector<float> rows(positions.size() * 2 * kPairs);
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const reference::RopeAngles angles = table.at(positions[i]);
    std::ranges::copy(angles.cos, rows.begin() + static_cast<std::ptrdiff_t>(i * 2 * kPairs));
    std::ranges::copy(angles.sin, rows.begin() + static_cast<std::ptrdiff_t>((2 * i + 1) * kPairs));
  }
  return rows;
}

std::vector<std::int64_t> row_positions(const KernelCall& call) {
  std::vector<std::int64_t> positions;
  for (std::int64_t token = 0; token < call.tokens(); ++token) positions.push_back(call.position(token));
  return positions;
}

std::vector<std::int64_t> counting(std::int64_t n) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

std::vector<float> widened(std::span<const std::uint16_t> values) {
  std::vector<float> out(values.size());
  std::ranges::transform(values, out.begin(), arith::bf16_to_f32);
  return out;
}

void unpack_e2m1(const std::uint8_t* packed, std::int64_t bytes, std::uint8_t* codes) {
  for (std::int64_t i = 0; i < bytes; ++i) {
    codes[2 * i] = packed[i] & 0xFU;
    codes[2 * i + 1] = static_cast<std::uint8_t>(packed[i] >> 4);
  }
}

std::vector<std::uint16_t> bf16_product(const KernelCall& call, const Matrix& weight, const Tensor& rows,
                                        bool plain) {
  const std::int64_t tokens = rows.dim(0);
  const std::uint16_t* const values = rows.as<std::uint16_t>().data();
  std::vector<std::uint16_t> out(static_cast<std::size_t>(tokens * weight.rows));
  if (plain) {
    reference::Activations input;
    input.bf16 = values;
    reference::linear(weight, reference::all_outputs(weight), input, tokens, out.data(), weight.rows);
  } else {
    const reference::LinearInput input(call.profile(), values, tokens, weight.columns);
    reference::linear(weight, reference::all_outputs(weight), input.activations(), tokens, out.data(),
                      weight.rows);
  }
  return out;
}

}  // namespace dsv4::cli
