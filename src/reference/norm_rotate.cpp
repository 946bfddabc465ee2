#include "reference/norm_rotate.hpp"

#include <algorithm>
#include <array>

#include "model/geometry.hpp"
#include "reference/block_quantizer.hpp"
#include "reference/rms_norm.hpp"

namespace dsv4::reference {

void norm_rotate(const NormRotate& how, const float* x, std::int64_t n, const RopeAngles& angles,
                 std::uint16_t* normed, std::uint16_t* out) {
  std::array<float, kHeadDim> y;  // n is at most the head width
  rms_norm(x, n, how.weight, how.eps, how.order, y.data());
  round_bf16(y.data(), n, out);
  if (normed != nullptr) std::copy_n(out, n, normed);
  const std::int64_t head = n - kRopeDim;
  if (how.rope_input == RopeInput::bf16) {
    rope_rotate(out + head, angles, RopeDirection::forward);
  } else {
    rope_rotate(y.data() + head, angles, RopeDirection::forward);
    round_bf16(y.data() + head, kRopeDim, out + head);
  }
}

void norm_rotate(const NormRotate& how, const float* x, std::int64_t n, const RopeAngles& angles,
                 float* normed, float* out) {
  rms_norm(x, n, how.weight, how.eps, how.order, out);
  if (normed != nullptr) std::copy_n(out, n, normed);
  rope_rotate(out + n - kRopeDim, angles, RopeDirection::forward);
}

}  // namespace dsv4::reference
