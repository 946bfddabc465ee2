#include "reference/kernels/sglang_norm_rope_store.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "arith/e4m3.hpp"
#include "arith/hopper/mufu.hpp"

namespace dsv4::kernels {
namespace {

constexpr int kRope = 64;
constexpr float kAmaxFloor = 1e-4F;

/// Where a row goes and its position; nothing for rows that are skipped.
struct Target {
  std::int64_t position;
  std::int64_t slot;
};

std::optional<Target> target(const SglangStoreTask& task, std::int64_t row) {
  const auto i = static_cast<std::size_t>(row);
  if (!task.decode.empty()) {
    const std::int64_t length = task.decode[i].seq_len;
    if (task.decode[i].seq_len == kSglangInvalid || length % task.ratio != 0) return std::nullopt;
    return Target{length - task.ratio, task.out_loc[row]};
  }
  const SglangCompressPlan& plan = task.extend[i];
  if (plan.seq_len == kSglangInvalid) return std::nullopt;
  return Target{std::int64_t{plan.seq_len} - task.ratio, task.out_loc[plan.ragged_id]};
}

/// The bytes of a row: its values, and its scales behind the values of the whole page.
struct RowBytes {
  std::byte* values;
  std::byte* scales;
};

RowBytes row_bytes(const SglangStoreTask& task, std::int64_t slot, std::int64_t value_bytes,
                   std::int64_t scale_bytes) {
  const std::int64_t at = slot % task.page_rows;
  std::byte* page = task.cache
                        .subspan(static_cast<std::size_t>(slot / task.page_rows * task.page_bytes),
                                 static_cast<std::size_t>(task.page_bytes))
                        .data();
  return {page + at * value_bytes, page + task.page_rows * value_bytes + at * scale_bytes};
}

void normalise(const float* x, const float* weight, std::int64_t d, float squares, float eps, float* y) {
  const float factor = arith::hopper::rsqrt(arith::fma(squares, 1.0F / static_cast<float>(d), eps));
  for (std::int64_t i = 0; i < d; ++i) y[i] = (x[i] * factor) * weight[i];
}

void rotate(float* x, const float* freqs) {
  for (int i = 0; i < kRope; i += 2) {
    const float even = x[i];
    const float odd = x[i + 1];
    const float cos = freqs[i];
    const float sin = freqs[i + 1];
    x[i] = arith::fma(even, cos, -(odd * sin));
    x[i + 1] = arith::fma(even, sin, odd * cos);
  }
}

float absmax(const float* x, int n) {
  float m = std::abs(x[0]);
  for (int i = 1; i < n; ++i) m = device_max(m, std::abs(x[i]));
  return m;
}

/// A power of two not below `scale`, from its bits; `inverse` is 2^(127 - exponent).
struct PowerScale {
  std::uint8_t exponent;
  float inverse;
};

PowerScale power_scale(float scale) {
  const std::uint32_t bits = arith::to_bits(scale);
  const std::uint32_t exponent = ((bits >> 23) & 0xFFU) + ((bits & 0x7FFFFFU) != 0 ? 1U : 0U);
  return {static_cast<std::uint8_t>(exponent), arith::from_bits((254U - exponent) << 23)};
}

float squares_512(const float* x) {
  std::array<float, 8> warps;
  for (std::size_t w = 0; w < warps.size(); ++w) {
    std::array<float, 32> lanes;
    for (std::size_t l = 0; l < lanes.size(); ++l) {
      const float* own = x + 2 * (32 * w + l);
      lanes[l] = arith::fma(own[1], own[1], own[0] * own[0]);
    }
    warps[w] = butterfly_sum(lanes, kWarpOffsets);
  }
  return butterfly_sum(warps, {4, 2, 1});
}

constexpr int kIndexDim = 128;

float squares_128(const float* x) {
  std::array<float, 32> lanes;
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    const float* own = x + 4 * l;
    lanes[l] = own[0] * own[0];
    for (int i = 1; i < 4; ++i) lanes[l] = arith::fma(own[i], own[i], lanes[l]);
  }
  return butterfly_sum(lanes, kWarpOffsets);
}

void hadamard(float* x) {
  for (int h = 1; h < kIndexDim; h *= 2) {
    for (int i = 0; i < kIndexDim; ++i) {
      if ((i & h) != 0) continue;
      const float a = x[i];
      const float b = x[i + h];
      x[i] = a + b;
      x[i + h] = a - b;
    }
  }
  constexpr float kScale = 0x1.6A09E6p-4F;  // 1 / sqrt(128), 0x3DB504F3
  for (int i = 0; i < kIndexDim; ++i) x[i] *= kScale;
}

/// The index key of a row before it is quantised.
void index_key(const SglangStoreTask& task, std::int64_t row, std::int64_t position, float* y) {
  const float* x = task.input + row * kIndexDim;
  normalise(x, task.weight, kIndexDim, squares_128(x), task.eps, y);
  rotate(y + kIndexDim - kRope, task.freqs + position * kRope);
  hadamard(y);
  if (task.prepared != nullptr) std::copy_n(y, kIndexDim, task.prepared + row * kIndexDim);
}

std::uint32_t e2m1_by_thresholds(float x) {
  constexpr float kThresholds[]{0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};
  std::uint32_t code = 0;
  for (const float threshold : kThresholds) code += std::abs(x) > threshold ? 1U : 0U;
  return code != 0 && x < 0 ? code | 8U : code;
}

}  // namespace

void sglang_norm_rope_store_flashmla(const SglangStoreTask& task) {
  constexpr int kDim = 512;
  constexpr int kNope = kDim - kRope;
  constexpr int kBlock = 64;
  for (std::int64_t row = 0; row < task.rows; ++row) {
    const auto to = target(task, row);
    if (!to) continue;
    const RowBytes bytes = row_bytes(task, to->slot, kNope + 2 * kRope, 8);
    const float* x = task.input + row * kDim;
    float y[kDim];
    normalise(x, task.weight, kDim, squares_512(x), task.eps, y);
    rotate(y + kNope, task.freqs + to->position * kRope);
    if (task.prepared != nullptr) std::copy_n(y, kDim, task.prepared + row * kDim);
    for (int i = 0; i < kRope; ++i) {
      const std::uint16_t bits = stored_bf16(y[kNope + i]);
      std::memcpy(bytes.values + kNope + 2 * i, &bits, 2);
    }
    for (int block = 0; block < kNope / kBlock; ++block) {
      float* values = y + block * kBlock;
      for (int i = 0; i < kBlock; ++i) values[i] = through_bf16(values[i]);
      const PowerScale scale = power_scale(device_max(kAmaxFloor, absmax(values, kBlock)) / 448.0F);
      bytes.scales[block] = std::byte{scale.exponent};
      for (int i = 0; i < kBlock; ++i) {
        bytes.values[block * kBlock + i] = std::byte{arith::f32_to_e4m3(values[i] * scale.inverse)};
      }
    }
  }
}

void sglang_norm_rope_store_indexer_fp8(const SglangStoreTask& task) {
  for (std::int64_t row = 0; row < task.rows; ++row) {
    const auto to = target(task, row);
    if (!to) continue;
    const RowBytes bytes = row_bytes(task, to->slot, kIndexDim, 4);
    float y[kIndexDim];
    index_key(task, row, to->position, y);
    const float scale = device_max(kAmaxFloor, absmax(y, kIndexDim)) / 448.0F;
    const float inverse = 1.0F / scale;
    std::memcpy(bytes.scales, &scale, 4);
    for (int i = 0; i < kIndexDim; ++i) bytes.values[i] = std::byte{arith::f32_to_e4m3(y[i] * inverse)};
  }
}

void sglang_norm_rope_store_indexer_fp4(const SglangStoreTask& task) {
  constexpr int kBlock = 32;
  for (std::int64_t row = 0; row < task.rows; ++row) {
    const auto to = target(task, row);
    if (!to) continue;
    const RowBytes bytes = row_bytes(task, to->slot, kIndexDim / 2, kIndexDim / kBlock);
    float y[kIndexDim];
    index_key(task, row, to->position, y);
    for (int block = 0; block < kIndexDim / kBlock; ++block) {
      float* values = y + block * kBlock;
      const PowerScale scale = power_scale(device_max(kAmaxFloor, absmax(values, kBlock)) / 6.0F);
      bytes.scales[block] = std::byte{scale.exponent};
      for (int i = 0; i < kBlock; ++i) values[i] *= scale.inverse;
    }
    for (int i = 0; i < kIndexDim / 2; ++i) {
      const std::uint32_t low = e2m1_by_thresholds(y[2 * i]);
      const std::uint32_t high = e2m1_by_thresholds(y[2 * i + 1]);
      bytes.values[i] = static_cast<std::byte>(low | high << 4);
    }
  }
}

}  // namespace dsv4::kernels
