/// Bytes of a paged cache as vLLM's kernels address them: in every page first the values of all rows, then
/// the scales of all rows, then padding. contracts/vllm.md section 7.
#pragma once

#include <cstdint>

namespace dsv4::kernels {

/// Slot s is row s mod page_rows of page s / page_rows. Callers see to it that slots lie within the cache.
struct PageLayout {
  std::int64_t page_bytes = 0;  // from page to page
  std::int64_t page_rows = 0;
  std::int64_t value_bytes = 0;  // of a row
  std::int64_t scale_bytes = 0;  // of a row

  std::int64_t values_at(std::int64_t slot) const {
    return slot / page_rows * page_bytes + slot % page_rows * value_bytes;
  }
  std::int64_t scales_at(std::int64_t slot) const {
    return slot / page_rows * page_bytes + page_rows * value_bytes + slot % page_rows * scale_bytes;
  }
};

/// 448 e4m3 codes and 64 bf16; seven scale bytes and a zero.
constexpr PageLayout main_pages(std::int64_t page_rows, std::int64_t page_bytes) {
  return {page_bytes, page_rows, 576, 8};
}
/// 128 e4m3 codes; one float32 scale.
constexpr PageLayout index_fp8_pages(std::int64_t page_rows, std::int64_t page_bytes) {
  return {page_bytes, page_rows, 128, 4};
}
/// 128 e2m1 codes in 64 bytes; four scale bytes.
constexpr PageLayout index_mxfp4_pages(std::int64_t page_rows, std::int64_t page_bytes) {
  return {page_bytes, page_rows, 64, 4};
}

}  // namespace dsv4::kernels
