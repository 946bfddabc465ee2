#include "reference/kernels/vllm_compress_norm_rope_insert.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>

#include "arith/hopper/mufu.hpp"
#include "reference/kernels/block_scale.hpp"
#include "reference/kernels/block_sum.hpp"
#include "reference/kernels/device_math.hpp"

namespace dsv4::kernels {
namespace {

constexpr int kMaxHead = 512;
constexpr int kMaxRows = 128;
constexpr int kMainCodes = 448;
constexpr int kMainBlock = 64;
constexpr int kMxfp4Block = 32;

/// The window of a token: for every column the scores and kv values of its rows, [head_dim, rows].
struct Window {
  std::array<float, kMaxHead * kMaxRows> scores;
  std::array<float, kMaxHead * kMaxRows> kv;
};

void gather_window(const VllmCompressKernel& kernel, const VllmCompressInputs& in, std::size_t token,
                   Window& window) {
  const int rows = kernel.rows();
  const std::int64_t width = kernel.state_width();
  const std::int32_t* table = in.block_table.data() + std::int64_t{in.token_to_req[token]} * in.table_width;
  for (int r = 0; r < rows; ++r) {
    const std::int64_t position = in.positions[token] - rows + 1 + r;
    if (position < 0) {
      for (int c = 0; c < kernel.head_dim; ++c) {
        window.scores[static_cast<std::size_t>(c * rows + r)] = -std::numeric_limits<float>::infinity();
        window.kv[static_cast<std::size_t>(c * rows + r)] = 0.0F;
      }
      continue;
    }
    const std::int64_t slot = table[position / in.block_rows] * in.block_rows + position % in.block_rows;
    // Overlapping windows: older rows lie in the first half of kv and of scores, newer ones in the second.
    const int half = kernel.overlap() && r >= kernel.ratio ? kernel.head_dim : 0;
    const float* kv = in.state.data() + slot * 2 * width + half;
    const float* score = kv + width;
    for (int c = 0; c < kernel.head_dim; ++c) {
      window.scores[static_cast<std::size_t>(c * rows + r)] = score[c];
      window.kv[static_cast<std::size_t>(c * rows + r)] = kv[c];
    }
  }
}

void quantise_e4m3(const float* row, int count, float inverse_scale, std::uint8_t* codes) {
  for (int i = 0; i < count; ++i) codes[i] = clamped_e4m3(row[i] * inverse_scale);
}

/// exp2(-e): exact, zero where 2^-e is below 2^-126.
float inverse_scale(float exponent) {
  return arith::hopper::ex2_ftz(0.0F - exponent);
}

void store_main(const float* rotated, std::uint8_t* values, std::uint8_t* scales) {
  std::array<float, kMainCodes> rounded;
  for (int i = 0; i < kMainCodes; ++i) rounded[static_cast<std::size_t>(i)] = through_bf16(rotated[i]);
  for (int block = 0; block * kMainBlock < kMainCodes; ++block) {
    const float* x = rounded.data() + block * kMainBlock;
    const float e = scale_exponent(floored_amax({x, kMainBlock}, kFloorFp8) * kInverse448);
    quantise_e4m3(x, kMainBlock, inverse_scale(e), values + block * kMainBlock);
    scales[block] = scale_byte(e);
  }
  scales[kMainCodes / kMainBlock] = 0;
  for (int i = kMainCodes; i < kMaxHead; ++i) {
    const std::uint16_t bits = stored_bf16(rotated[i]);
    std::memcpy(values + kMainCodes + 2 * (i - kMainCodes), &bits, sizeof bits);
  }
}

void store_index_fp8(const float* rotated, int width, std::uint8_t* values, std::uint8_t* scales) {
  std::array<float, kMaxHead> rounded;
  for (int i = 0; i < width; ++i) rounded[static_cast<std::size_t>(i)] = through_bf16(rotated[i]);
  const auto size = static_cast<std::size_t>(width);
  const float e = scale_exponent(floored_amax({rounded.data(), size}, kFloorFp8) * kInverse448);
  quantise_e4m3(rounded.data(), width, inverse_scale(e), values);
  const float scale = arith::hopper::ex2_ftz(e);
  std::memcpy(scales, &scale, sizeof scale);
}

void store_index_mxfp4(const float* rotated, int width, std::uint8_t* values, std::uint8_t* scales) {
  std::array<float, kMaxHead> rounded;
  for (int i = 0; i < width; ++i) rounded[static_cast<std::size_t>(i)] = through_bf16(rotated[i]);
  for (int block = 0; block * kMxfp4Block < width; ++block) {
    const float* x = rounded.data() + block * kMxfp4Block;
    const float unclamped = scale_exponent(floored_amax({x, kMxfp4Block}, kFloorMxfp4) * kInverse6);
    const float e = device_max(device_min(unclamped, 127.0F), -127.0F);
    const float inverse = inverse_scale(e);
    for (int i = 0; i < kMxfp4Block; i += 2) {
      values[(block * kMxfp4Block + i) / 2] = packed_e2m1(x[i] * inverse, x[i + 1] * inverse);
    }
    scales[block] = scale_byte(e);
  }
}

}  // namespace

void vllm_compress_norm(std::span<const float> row, const float* weight, float eps, float* normed) {
  const float sum = triton_square_sum(row, {row.size() == kMaxHead ? 4 : 1, 4});
  const float inverse_width = 1.0F / static_cast<float>(row.size());  // a power of two
  const float r = arith::hopper::rsqrt_ftz(arith::fma(sum, inverse_width, eps));
  for (std::size_t i = 0; i < row.size(); ++i) normed[i] = row[i] * r * weight[i];
}

void vllm_compress_rotate(const VllmCompressKernel& kernel, const float* table_row, float* row) {
  if (kernel.store != CompressStore::main_fp8) {
    // Every pair runs through the rotation: -0 becomes +0 where the other element is positive.
    for (int i = 0; i < kernel.head_dim - kRopeTableWidth; i += 2) {
      const RopePair y = kernel.rotate({row[i], row[i + 1]}, 1.0F, 0.0F);
      row[i] = y.even;
      row[i + 1] = y.odd;
    }
  }
  rotate_tail(kernel.rotate, row, kernel.head_dim, table_row);
}

void vllm_compress_store(const VllmCompressKernel& kernel, const float* rotated, std::uint8_t* values,
                         std::uint8_t* scales) {
  switch (kernel.store) {
    case CompressStore::main_fp8:
      return store_main(rotated, values, scales);
    case CompressStore::index_fp8:
      return store_index_fp8(rotated, kernel.head_dim, values, scales);
    case CompressStore::index_mxfp4:
      return store_index_mxfp4(rotated, kernel.head_dim, values, scales);
  }
}

VllmCompressStages vllm_compress_norm_rope_insert(const VllmCompressKernel& kernel,
                                                  const VllmCompressInputs& in, const PageLayout& pages,
                                                  std::span<std::uint8_t> cache) {
  const auto width = static_cast<std::size_t>(kernel.head_dim);
  const auto rows = static_cast<std::size_t>(kernel.rows());
  const std::size_t tokens = in.positions.size();
  VllmCompressStages out;
  for (std::vector<float>* stage : {&out.pooled, &out.normed, &out.rotated}) stage->resize(tokens * width);
  std::vector<Window> window(1);  // too large for a stack
  for (std::size_t t = 0; t < tokens; ++t) {
    if (in.slot_mapping[t] < 0 || (in.positions[t] + 1) % kernel.ratio != 0) continue;
    gather_window(kernel, in, t, window[0]);
    float* pooled = out.pooled.data() + t * width;
    for (std::size_t c = 0; c < width; ++c) {
      pooled[c] = stored(
          kernel.pool({window[0].scores.data() + c * rows, rows}, {window[0].kv.data() + c * rows, rows}));
    }
    float* normed = out.normed.data() + t * width;
    kernel.norm({pooled, width}, in.norm_weight.data(), in.eps, normed);
    float* rotated = out.rotated.data() + t * width;
    std::copy_n(normed, width, rotated);
    // The angle is that of the first position of the new group.
    const std::int64_t angle = in.positions[t] / kernel.ratio * kernel.ratio;
    vllm_compress_rotate(kernel, in.cos_sin.data() + angle * kRopeTableWidth, rotated);
    const std::int64_t slot = in.kv_slot_mapping[t];
    if (slot < 0) continue;
    vllm_compress_store(kernel, rotated, cache.data() + pages.values_at(slot),
                        cache.data() + pages.scales_at(slot));
  }
  return out;
}

}  // namespace dsv4::kernels
