#include "reference/kernels/flashmla_sparse_prefill.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#include "arith/hopper/mufu.hpp"
#include "model/error.hpp"

namespace dsv4::kernels {
namespace {

using arith::hopper::ex2_ftz;
constexpr int kHalf = kFlashDim / 2;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// One query token and 64 heads. Warpgroup A takes even blocks and columns 0..255 of the output, warpgroup B
/// odd blocks and columns 256..511. Each keeps the sum of its own blocks.
struct Tile {
  std::array<float, kFlashBlock> max;  ///< after the last pair, common to both
  std::array<FlashLanes, kFlashBlock> lanes_a{};
  std::array<FlashLanes, kFlashBlock> lanes_b{};
  std::array<float, kFlashBlock * kFlashDim> o{};
  std::array<FlashKeys, 2> keys;
  std::array<FlashScores, 2> scores;
  FlashProbabilities p_even;           ///< what columns 0..255 see of the even block
  FlashProbabilities p_even_rescaled;  ///< what columns 256..511 see of it
  FlashProbabilities p_odd;
  std::array<float, kFlashBlock> to_odd;  ///< factor from the even block's maximum to the pair's

  Tile() { max.fill(kFlashFirstMax); }
  float* half(std::size_t head, int from) { return o.data() + head * kFlashDim + from; }
};

void rescale(float* o, float factor) {
  for (int d = 0; d < kHalf; ++d) o[d] = ftz_mul(o[d], factor);
}

void gather(const FlashmlaSparsePrefill& in, std::int64_t token, int block, FlashKeys& out) {
  const int length = in.topk_lengths == nullptr ? in.topk : in.topk_lengths[token];
  for (int i = 0; i < kFlashBlock; ++i) {
    const int position = block * kFlashBlock + i;
    const std::int32_t index = position < length ? in.indices[token * in.topk + position] : -1;
    const bool valid = index >= 0 && index < in.keys;
    out.valid[static_cast<std::size_t>(i)] = valid;
    if (valid) {
      std::copy_n(in.kv + std::int64_t{index} * kFlashDim, kFlashDim, out.row(i));
    } else {
      std::fill_n(out.row(i), kFlashDim, std::uint16_t{0});
    }
  }
  out.transpose();
}

/// The softmax of both blocks of a pair for one head; the output is rescaled, values are added afterwards.
void softmax_pair(const FlashmlaPrefillRules& rules, float scale, std::size_t head, Tile& tile) {
  const float* even = tile.scores[0].data() + head * kFlashBlock;
  const float* odd = tile.scores[1].data() + head * kFlashBlock;
  const float before = tile.max[head];
  const float middle = flash_max(even, scale, before);
  const float after = flash_max(odd, scale, middle);
  std::array<float, kFlashBlock> p;

  const float a = ex2_ftz(ftz_sub(before, middle));
  rescale(tile.half(head, 0), a);
  flash_exp(even, scale, middle, rules.exponent, p.data());
  flash_add_row(p.data(), a, rules.row_sum, tile.lanes_a[head]);
  flash_round(p.data(), tile.p_even.data() + head * kFlashBlock);

  const float to_odd = ex2_ftz(ftz_sub(middle, after));
  for (float& value : p) value = ftz_mul(value, to_odd);
  flash_round(p.data(), tile.p_even_rescaled.data() + head * kFlashBlock);

  const float b = ex2_ftz(ftz_sub(before, after));
  rescale(tile.half(head, kHalf), b);
  flash_exp(odd, scale, after, rules.exponent, p.data());
  flash_add_row(p.data(), b, rules.row_sum, tile.lanes_b[head]);
  flash_round(p.data(), tile.p_odd.data() + head * kFlashBlock);
  for (float& lane : tile.lanes_a[head]) lane = ftz_mul(lane, to_odd);
  tile.to_odd[head] = to_odd;
  tile.max[head] = after;
}

void add_pair(const FlashmlaSparsePrefill& in, const std::uint16_t* q, int live, float scale, Tile& tile) {
  flash_scores(q, live, tile.keys[0], false, tile.scores[0]);
  flash_scores(q, live, tile.keys[1], in.rules.odd_upper_dims_first, tile.scores[1]);
  for (std::size_t head = 0; head < std::size_t(live); ++head) softmax_pair(in.rules, scale, head, tile);
  // A: the even block, then the rescaling to the pair's maximum, then the odd one.
  flash_values(tile.p_even, live, tile.keys[0], 0, kHalf, tile.o.data());
  for (std::size_t head = 0; head < std::size_t(live); ++head) rescale(tile.half(head, 0), tile.to_odd[head]);
  flash_values(tile.p_odd, live, tile.keys[1], 0, kHalf, tile.o.data());
  // B: the odd block first.
  flash_values(tile.p_odd, live, tile.keys[1], kHalf, kHalf, tile.o.data());
  flash_values(tile.p_even_rescaled, live, tile.keys[0], kHalf, kHalf, tile.o.data());
}

}  // namespace

void flashmla_sparse_prefill(const FlashmlaSparsePrefill& in, const FlashmlaSparsePrefillOutput& out) {
  require(in.heads == 64 || in.heads == 128, "FlashMLA prefill: heads must be 64 or 128");
  require(in.topk > 0 && in.topk % (2 * kFlashBlock) == 0,
          "FlashMLA prefill: topk must be a multiple of 128");
  for (std::int64_t token = 0; in.topk_lengths != nullptr && token < in.tokens; ++token) {
    const std::int32_t length = in.topk_lengths[token];
    require(length >= 0 && length <= in.topk, "FlashMLA prefill: length outside the list");
  }
  const float scale = in.softmax_scale * kLog2E;
  const int tiles = in.heads / kFlashBlock;
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t unit = 0; unit < in.tokens * tiles; ++unit) {
    const std::int64_t token = unit / tiles;
    const std::int64_t first = unit * kFlashBlock;
    const int length = in.topk_lengths == nullptr ? in.topk : in.topk_lengths[token];
    const int live = flash_live_heads(static_cast<int>(first % in.heads), in.live_heads);
    Tile tile;
    for (int block = 0; block * kFlashBlock < length; block += 2) {
      gather(in, token, block, tile.keys[0]);
      gather(in, token, block + 1, tile.keys[1]);
      add_pair(in, in.q + first * kFlashDim, live, scale, tile);
    }
    for (std::size_t head = 0; head < std::size_t(live); ++head) {
      const std::int64_t row = first + std::int64_t(head);
      const float sum = ftz_add(flash_row_sum(tile.lanes_a[head]), flash_row_sum(tile.lanes_b[head]));
      const float m = tile.max[head];
      const float* sink = in.sink == nullptr ? nullptr : in.sink + row % in.heads;
      const float output_scale = flash_output_scale(sum, flash_sink(sink), m);
      const float* o = tile.half(head, 0);
      for (int d = 0; d < kFlashDim; ++d)
        out.out[row * kFlashDim + d] = stored_bf16(ftz_mul(o[d], output_scale));
      const float largest = ftz_mul(m, kLn2);
      out.max_logits[row] = sum == 0.0F ? -kInfinity : stored(largest);
      out.lse[row] = sum == 0.0F ? kInfinity : stored(ftz_fma(arith::hopper::lg2_ftz(sum), kLn2, largest));
    }
  }
}

}  // namespace dsv4::kernels
