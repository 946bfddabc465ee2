#include "reference/kernels/vllm_k_cache.hpp"

#include <array>
#include <cstddef>
#include <cstring>

#include "arith/hopper/divide.hpp"
#include "arith/hopper/mufu.hpp"
#include "reference/kernels/block_scale.hpp"

namespace dsv4::kernels {
namespace {

constexpr int kCodes = 448;
constexpr int kBlock = 64;
constexpr int kSpareScale = 7;
constexpr int kTailBytes = 2 * (kVllmKeyDim - kCodes);

}  // namespace

void vllm_quantize_and_insert_k(std::span<const std::uint16_t> k, std::span<const std::int64_t> slot_mapping,
                                const PageLayout& pages, std::span<std::uint8_t> cache) {
  for (std::size_t t = 0; t < slot_mapping.size(); ++t) {
    if (slot_mapping[t] == -1) continue;
    const std::uint16_t* row = k.data() + t * kVllmKeyDim;
    std::uint8_t* values = cache.data() + pages.values_at(slot_mapping[t]);
    std::uint8_t* scales = cache.data() + pages.scales_at(slot_mapping[t]);
    std::array<float, kCodes> x;
    for (std::size_t i = 0; i < kCodes; ++i) x[i] = arith::bf16_to_f32(row[i]);
    for (int start = 0; start < kCodes; start += kBlock) {
      const std::span<const float> block{x.data() + start, static_cast<std::size_t>(kBlock)};
      const float e = scale_exponent(arith::hopper::div_full(floored_amax(block, kFloorFp8), kE4m3Max));
      const float scale = arith::hopper::ex2_ftz(e);
      for (std::size_t i = 0; i < block.size(); ++i) {
        values[static_cast<std::size_t>(start) + i] = clamped_e4m3(arith::hopper::div_full(block[i], scale));
      }
      scales[start / kBlock] = scale_byte(e);
    }
    scales[kSpareScale] = 0;
    std::memcpy(values + kCodes, row + kCodes, kTailBytes);
  }
}

void vllm_dequantize_and_gather_k(const VllmGather& gather, const PageLayout& pages,
                                  std::span<const std::uint8_t> cache, std::span<std::uint16_t> out) {
  for (std::size_t request = 0; request < gather.seq_lens.size(); ++request) {
    const std::int64_t length = gather.seq_lens[request];
    const std::int64_t count = gather.gather_lens.empty() ? length : gather.gather_lens[request];
    const std::int32_t* table =
        gather.block_table.data() + static_cast<std::int64_t>(request) * gather.table_width;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t position = length - count + i;
      const std::int64_t slot =
          table[position / pages.page_rows] * pages.page_rows + position % pages.page_rows;
      const std::uint8_t* values = cache.data() + pages.values_at(slot);
      const std::uint8_t* scales = cache.data() + pages.scales_at(slot);
      const std::int64_t row = static_cast<std::int64_t>(request) * gather.out_rows + gather.offset + i;
      std::uint16_t* y = out.data() + row * kVllmKeyDim;
      for (int c = 0; c < kCodes; ++c) {
        const float scale = arith::hopper::ex2_ftz(static_cast<float>(scales[c / kBlock]) - 127.0F);
        y[c] = stored_bf16(arith::e4m3_to_f32(values[c]) * scale);
      }
      std::memcpy(y + kCodes, values + kCodes, kTailBytes);
    }
  }
}

}  // namespace dsv4::kernels
