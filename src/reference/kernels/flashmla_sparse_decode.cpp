#include "reference/kernels/flashmla_sparse_decode.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "arith/e4m3.hpp"
#include "arith/hopper/mufu.hpp"
#include "model/error.hpp"

namespace dsv4::kernels {
namespace {

constexpr int kNope = 448;  ///< columns in e4m3
constexpr std::int64_t kRowBytes = 576;
constexpr std::int64_t kRowScales = 8;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A piece as far as one query token and 64 heads are concerned: the state of the online softmax.
struct Tile {
  std::array<float, kFlashBlock> max;
  std::array<FlashLanes, kFlashBlock> lanes{};
  std::array<float, kFlashBlock * kFlashDim> o{};
  FlashKeys keys;
  FlashScores scores;
  FlashProbabilities p;

  Tile() { max.fill(kFlashFirstMax); }
};

DecodeLengths lengths_of(const FlashmlaSparseDecode& in) {
  return {in.batch, in.window.topk, in.window.lengths, in.extra.topk, in.extra.lengths};
}

int length_of(const FlashmlaPagedKeys& keys, int request) {
  return keys.lengths == nullptr ? keys.topk : keys.lengths[request];
}

void check(const FlashmlaSparseDecode& in, const FlashmlaPagedKeys& keys) {
  for (std::int64_t row = 0; row < std::int64_t{in.batch} * in.queries; ++row) {
    const int length = length_of(keys, static_cast<int>(row / in.queries));
    require(length >= 0 && length <= keys.topk, "FlashMLA decode: length outside the list");
    for (int i = 0; i < length; ++i) {
      const std::int32_t index = keys.indices[row * keys.topk + i];
      require(index >= -1 && index < keys.pages * keys.page_rows, "FlashMLA decode: index outside the cache");
    }
  }
}

/// Keys of block `block` of the list of a request: the window's blocks first.
void gather(const FlashmlaSparseDecode& in, int request, int query, int block, FlashKeys& out) {
  const int main_blocks = decode_main_blocks(lengths_of(in), request);
  const bool extra = block >= main_blocks;
  const FlashmlaPagedKeys& keys = extra ? in.extra : in.window;
  const int first = (extra ? block - main_blocks : block) * kFlashBlock;
  const int length = length_of(keys, request);
  const std::int32_t* list = keys.indices + (std::int64_t{request} * in.queries + query) * keys.topk;
  for (int i = 0; i < kFlashBlock; ++i) {
    const bool valid = first + i < length && list[first + i] != -1;
    out.valid[static_cast<std::size_t>(i)] = valid;
    if (valid) {
      flashmla_dequantise(keys, list[first + i], out.row(i));
    } else {
      std::fill_n(out.row(i), kFlashDim, std::uint16_t{0});
    }
  }
  out.transpose();
}

void add_block(const FlashmlaSparseDecode& in, const std::uint16_t* q, int live, float scale, Tile& tile) {
  flash_scores(q, live, tile.keys, false, tile.scores);
  std::array<float, kFlashBlock> p;
  for (std::size_t head = 0; head < std::size_t(live); ++head) {
    const float* scores = tile.scores.data() + head * kFlashBlock;
    const float before = tile.max[head];
    const float after = flash_max(scores, scale, before);
    const float rescale = arith::hopper::ex2_ftz(ftz_sub(before, after));
    float* o = tile.o.data() + head * kFlashDim;
    for (int d = 0; d < kFlashDim; ++d) o[d] = ftz_mul(o[d], rescale);
    flash_exp(scores, scale, after, in.exponent, p.data());
    flash_add_row(p.data(), rescale, in.row_sum, tile.lanes[head]);
    flash_round(p.data(), tile.p.data() + head * kFlashBlock);
    tile.max[head] = after;
  }
  flash_values(tile.p, live, tile.keys, 0, kFlashDim, tile.o.data());
}

}  // namespace

void flashmla_dequantise(const FlashmlaPagedKeys& keys, std::int32_t index, std::uint16_t* row) {
  const std::uint8_t* page = keys.bytes + index / keys.page_rows * keys.page_stride;
  const std::int64_t slot = index % keys.page_rows;
  const std::uint8_t* codes = page + slot * kRowBytes;
  const std::uint8_t* scales = page + keys.page_rows * kRowBytes + slot * kRowScales;
  for (int d = 0; d < kNope; ++d) {
    const std::uint8_t exponent = scales[d / 64];
    // The exponent field of a bf16: byte 0 means 2^-127, a subnormal, byte 255 NaN.
    const auto scale = exponent == 0     ? std::uint16_t{0x0040}
                       : exponent == 255 ? std::uint16_t{0x7FFF}
                                         : static_cast<std::uint16_t>(exponent << 7);
    row[d] = mul_bf16(stored_bf16(arith::e4m3_to_f32(codes[d])), scale);
  }
  for (int d = kNope; d < kFlashDim; ++d) {
    const std::uint8_t* value = codes + kNope + 2 * (d - kNope);
    row[d] = static_cast<std::uint16_t>(value[0] | value[1] << 8);
  }
}

FlashmlaSparseDecodeResult flashmla_sparse_decode(const FlashmlaSparseDecode& in) {
  require(in.heads == 64 || in.heads == 128, "FlashMLA decode: heads must be 64 or 128");
  require(in.window.topk % kFlashBlock == 0, "FlashMLA decode: topk must be a multiple of 64");
  check(in, in.window);
  check(in, in.extra);
  FlashmlaSparseDecodeResult result;
  result.schedule = decode_schedule(lengths_of(in), in.num_sm_parts);
  const std::vector<DecodePiece>& pieces = result.schedule.pieces;
  const std::vector<std::int32_t>& splits = result.schedule.num_splits;
  const std::int64_t rows = std::int64_t{in.queries} * in.heads;  // of a request, and of a piece
  const std::int64_t count = static_cast<std::int64_t>(pieces.size());
  result.out.resize(static_cast<std::size_t>(in.batch * rows * kFlashDim));
  result.lse.resize(static_cast<std::size_t>(in.batch * rows));
  result.lse_accum.resize(static_cast<std::size_t>(count * rows));
  result.o_accum.resize(static_cast<std::size_t>(count * rows * kFlashDim));

  const float scale = in.softmax_scale * kLog2E;
  const int tiles = in.heads / kFlashBlock;
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t unit = 0; unit < count * in.queries * tiles; ++unit) {
    const std::int64_t piece_index = unit / tiles / in.queries;
    const DecodePiece& piece = pieces[static_cast<std::size_t>(piece_index)];
    const std::int64_t first = unit % (tiles * in.queries) * kFlashBlock;  // row within the request
    const std::int64_t request_row = piece.request * rows + first;
    const int live = flash_live_heads(static_cast<int>(first % in.heads), in.live_heads);
    Tile tile;
    for (int block = piece.begin_block; block < piece.end_block; ++block) {
      gather(in, piece.request, static_cast<int>(first / in.heads), block, tile.keys);
      add_block(in, in.q + request_row * kFlashDim, live, scale, tile);
    }
    const auto request = static_cast<std::size_t>(piece.request);
    const bool whole = splits[request + 1] - splits[request] == 1;
    for (std::size_t head = 0; head < std::size_t(live); ++head) {
      const float* o = tile.o.data() + head * kFlashDim;
      const float sum = flash_row_sum(tile.lanes[head]);
      const float m = tile.max[head];
      const float* sink = in.sink == nullptr ? nullptr : in.sink + first % in.heads + std::int64_t(head);
      const float output_scale = flash_output_scale(sum, whole ? flash_sink(sink) : -kInfinity, m);
      if (whole) {
        const std::int64_t row = request_row + std::int64_t(head);
        for (int d = 0; d < kFlashDim; ++d) {
          result.out[static_cast<std::size_t>(row * kFlashDim + d)] =
              stored_bf16(ftz_mul(o[d], output_scale));
        }
        result.lse[static_cast<std::size_t>(row)] =
            sum == 0.0F ? kInfinity : stored(ftz_fma(arith::hopper::lg2_ftz(sum), kLn2, ftz_mul(m, kLn2)));
      } else {
        const std::int64_t row = piece_index * rows + first + std::int64_t(head);
        for (int d = 0; d < kFlashDim; ++d) {
          result.o_accum[static_cast<std::size_t>(row * kFlashDim + d)] = stored(ftz_mul(o[d], output_scale));
        }
        result.lse_accum[static_cast<std::size_t>(row)] =
            sum == 0.0F ? -kInfinity : stored(ftz_add(arith::hopper::lg2_ftz(sum), m));
      }
    }
  }

#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < in.batch * rows; ++row) {
    const auto request = static_cast<std::size_t>(row / rows);
    const int parts = splits[request + 1] - splits[request];
    if (parts == 1 || (in.live_heads != 0 && row % in.heads >= in.live_heads)) continue;
    const std::int64_t from = splits[request] * rows + row % rows;
    const float* sink = in.sink == nullptr ? nullptr : in.sink + row % in.heads;
    flashmla_combine(result.lse_accum.data() + from, rows, result.o_accum.data() + from * kFlashDim,
                     rows * kFlashDim, parts, sink, result.out.data() + row * kFlashDim,
                     result.lse.data() + row);
  }
  return result;
}

}  // namespace dsv4::kernels
