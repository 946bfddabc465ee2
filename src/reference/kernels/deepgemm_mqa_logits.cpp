#include "reference/kernels/deepgemm_mqa_logits.hpp"

#include <algorithm>
#include <array>
#include <limits>

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

template <class T>
void run(const DeepgemmMqaLogits& in, T* logits, std::int64_t stride) {
  require_deepgemm_shape(in.heads, in.dim);
  require(!(in.clean && in.compact), "DeepGEMM logits: a compact result is not cleaned");
  for (std::int64_t i = 0; i < in.tokens; ++i) {
    require(in.key_start[i] >= 0 && in.key_end[i] <= in.keys, "DeepGEMM logits: key range outside the keys");
  }
  const std::int64_t token_bytes = std::int64_t{in.heads} * in.dim;
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t i = 0; i < in.tokens; ++i) {
    T* row = logits + i * stride;
    const std::int64_t first = in.compact ? in.key_start[i] : 0;
    if (in.clean) {
      for (std::int64_t j = 0; j < in.keys; ++j) store(-std::numeric_limits<float>::infinity(), row + j);
    }
    std::array<float, DeepgemmTile::kKeys * 64> dots;
    for (std::int64_t from = in.key_start[i]; from < in.key_end[i]; from += DeepgemmTile::kKeys) {
      const int count = static_cast<int>(std::min<std::int64_t>(DeepgemmTile::kKeys, in.key_end[i] - from));
      const DeepgemmTile tile{in.q + i * token_bytes, in.kv + from * in.dim, count};
      deepgemm_dots(tile, in.heads, in.dim, dots.data());
      for (int j = 0; j < count; ++j) {
        store(deepgemm_logit(dots.data() + std::int64_t{j} * in.heads, in.weights + i * in.heads,
                             in.kv_scales[from + j], in.heads, in.rules),
              row + (from + j - first));
      }
    }
  }
}

}  // namespace

void deepgemm_mqa_logits(const DeepgemmMqaLogits& in, float* logits, std::int64_t stride) {
  run(in, logits, stride);
}

void deepgemm_mqa_logits(const DeepgemmMqaLogits& in, std::uint16_t* logits, std::int64_t stride) {
  run(in, logits, stride);
}

}  // namespace dsv4::kernels
