#include "reference/kernels/deepgemm_paged_mqa_logits.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "model/error.hpp"
#include "reference/kernels/device_math.hpp"

namespace dsv4::kernels {
namespace {

void store(float value, float* out) {
  *out = stored(value);
}
void store(float value, std::uint16_t* out) {
  *out = stored_bf16(value);
}

static_assert(DeepgemmPagedMqaLogits::kPageRows <= DeepgemmTile::kKeys);

void check(const DeepgemmPagedMqaLogits& in) {
  require_deepgemm_shape(in.heads, in.dim);
  for (std::int64_t row = 0; row < in.requests * in.next_n; ++row) {
    const std::int64_t pages = (in.context_lens[row] + in.kPageRows - 1) / in.kPageRows;
    require(pages <= in.table_width, "DeepGEMM paged logits: context longer than the block table");
    for (std::int64_t p = 0; p < pages; ++p) {
      const std::int32_t page = in.block_table[row / in.next_n * in.table_width + p];
      require(page >= 0 && page < in.pages, "DeepGEMM paged logits: page outside the cache");
    }
  }
}

template <class T>
void run(const DeepgemmPagedMqaLogits& in, T* logits, std::int64_t stride) {
  check(in);
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t row = 0; row < in.requests * in.next_n; ++row) {
    std::array<float, DeepgemmTile::kKeys * 64> dots;
    for (std::int32_t from = 0; from < in.context_lens[row]; from += in.kPageRows) {
      const std::int64_t page = in.block_table[row / in.next_n * in.table_width + from / in.kPageRows];
      const std::uint8_t* bytes = in.cache + page * in.page_stride;
      const int count = std::min(in.kPageRows, in.context_lens[row] - from);
      deepgemm_dots({in.q + row * in.heads * in.dim, bytes, count}, in.heads, in.dim, dots.data());
      for (int j = 0; j < count; ++j) {
        float scale = 0;
        std::memcpy(&scale, bytes + in.kPageRows * in.dim + 4 * j, sizeof scale);
        store(deepgemm_logit(dots.data() + std::int64_t{j} * in.heads, in.weights + row * in.heads, scale,
                             in.heads, in.rules),
              logits + row * stride + from + j);
      }
    }
  }
}

}  // namespace

void deepgemm_paged_mqa_logits(const DeepgemmPagedMqaLogits& in, float* logits, std::int64_t stride) {
  run(in, logits, stride);
}

void deepgemm_paged_mqa_logits(const DeepgemmPagedMqaLogits& in, std::uint16_t* logits, std::int64_t stride) {
  run(in, logits, stride);
}

}  // namespace dsv4::kernels
