/// Byte constants of the caches. Constants only: each engine has its own code that reads and writes pages.
/// Sources: contracts/vllm.md and contracts/flashmla-deepgemm.md (page layouts), tested on recorded pages.
#pragma once

#include <cstdint>

#include "model/geometry.hpp"
#include "model/profile.hpp"

namespace dsv4::layout {

/// A KV row (window and compressed pages): 448 e4m3 codes, 64 bf16, then, at the page's end, 7 ue8m0 scale
/// bytes and a spare byte that is 0.
inline constexpr int kKvBlock = 64;
inline constexpr int kKvScales = kNopeDim / kKvBlock;                  // 7
inline constexpr int kKvValueBytes = kNopeDim + 2 * kRopeDim;          // 576
inline constexpr int kKvScaleBytes = 8;
inline constexpr int kKvRowBytes = kKvValueBytes + kKvScaleBytes;      // 584
inline constexpr int kKvPageAlign = 576;                               // page pitch is a multiple of this

/// An FP8 index row: 128 e4m3 codes; scales, one f32 each, planar behind all codes of the page.
inline constexpr int kIndexFp8ValueBytes = 128;
inline constexpr int kIndexFp8ScaleBytes = 4;
inline constexpr int kIndexFp8RowBytes = 132;

/// An FP4 index row: 64 bytes of packed e2m1 (even element in the low nibble), 4 ue8m0 scales planar.
inline constexpr int kIndexFp4ValueBytes = 64;
inline constexpr int kIndexFp4ScaleBytes = 4;
inline constexpr int kIndexFp4RowBytes = 68;
inline constexpr int kIndexFp4Block = 32;

/// Rows of caches without a quantiser (axes kv_cache and index_cache): every dim as two bytes, bf16 or f16, no
/// scales.
inline constexpr int kKvPlainRowBytes = 2 * kHeadDim;
inline constexpr int kIndexPlainRowBytes = 2 * kIndexDim;

inline bool plain(KvCache cache) {
  return cache != KvCache::e4m3_amax_floor && cache != KvCache::e4m3_scale_floor;
}
inline bool plain(IndexCache cache) { return cache == IndexCache::none || cache == IndexCache::f16; }

/// Bytes of a row: value bytes of all rows of a page come first, scale bytes behind.
struct RowForm {
  int value_bytes;
  int scale_bytes;
  int row_bytes() const { return value_bytes + scale_bytes; }
};
inline RowForm row_form(KvCache cache) {
  return plain(cache) ? RowForm{kKvPlainRowBytes, 0} : RowForm{kKvValueBytes, kKvScaleBytes};
}
inline RowForm row_form(IndexCache cache) {
  if (plain(cache)) return {kIndexPlainRowBytes, 0};
  return cache == IndexCache::fp4 ? RowForm{kIndexFp4ValueBytes, kIndexFp4ScaleBytes}
                                  : RowForm{kIndexFp8ValueBytes, kIndexFp8ScaleBytes};
}

/// Natural pitch of a KV page of `rows` entries: rows * 584 rounded up to a multiple of 576.
constexpr std::int64_t kv_page_bytes(int rows) {
  const std::int64_t used = std::int64_t{rows} * kKvRowBytes;
  return (used + kKvPageAlign - 1) / kKvPageAlign * kKvPageAlign;
}

/// Natural pitch of an index page: not padded (64 rows: 8448 or 4352).
constexpr std::int64_t index_page_bytes(int rows, bool fp4) {
  return std::int64_t{rows} * (fp4 ? kIndexFp4RowBytes : kIndexFp8RowBytes);
}

inline std::int64_t page_bytes(KvCache cache, int rows) {
  return plain(cache) ? std::int64_t{rows} * kKvPlainRowBytes : kv_page_bytes(rows);
}
inline std::int64_t page_bytes(IndexCache cache, int rows) {
  return std::int64_t{rows} * row_form(cache).row_bytes();
}

/// Rows of a page of compressor state when it is paged.
inline constexpr int kStatePageRowsC4 = 4;
inline constexpr int kStatePageRowsC128 = 8;

/// Fill of fresh and freed memory, of the null page, and its number.
inline constexpr std::uint8_t kPoison = 0xFF;
inline constexpr std::int32_t kNullPage = 0;

}  // namespace dsv4::layout
