#include <algorithm>
#include <array>

#include "reference/block_quantizer.hpp"
#include "reference/rms_norm.hpp"
#include "reference/stages.hpp"

namespace dsv4::reference {
namespace {

/// One head: norm without weight, bf16, RoPE, bf16. With rope_input f32 the norm's f32 result is rotated;
/// only head_norm f32 has one.
void norm_and_rotate(const Profile& profile, float eps, const RopeAngles& angles, const std::uint16_t* raw,
                     std::uint16_t* normed, std::uint16_t* out) {
  const HeadNorm mode = profile.get<HeadNorm>();
  head_norm(raw, kHeadDim, eps, mode, normed);
  std::copy_n(normed, kHeadDim, out);
  if (profile.get<RopeInput>() == RopeInput::bf16 || mode != HeadNorm::f32) {
    rope_rotate(out + kNopeDim, angles, RopeDirection::forward);
    return;
  }
  std::array<float, kHeadDim> wide;
  widen_bf16(raw, kHeadDim, wide.data());
  rms_norm(wide.data(), kHeadDim, nullptr, eps, NormWeight::then_round, wide.data());
  rope_rotate(wide.data() + kNopeDim, angles, RopeDirection::forward);
  round_bf16(wide.data() + kNopeDim, kRopeDim, out + kNopeDim);
}

}  // namespace

void q_up(StageContext& context) {
  const Geometry& geometry = context.geometry();
  const Matrix& weight = context.weights().wq_b;
  const auto latent = context.input(TensorId::q_latent).as<std::uint16_t>();
  const std::vector<std::int64_t> shape{context.tokens(), geometry.heads, kHeadDim};
  const std::int64_t width = std::int64_t{geometry.heads} * kHeadDim;
  Tensor raw(DType::bfloat16, shape);
  Tensor normed(DType::bfloat16, shape);
  Tensor q(DType::bfloat16, shape);
  const auto raw_rows = raw.as<std::uint16_t>();
  const auto normed_rows = normed.as<std::uint16_t>();
  const auto q_rows = q.as<std::uint16_t>();
  const LinearInput input(context.profile(), latent.data(), context.tokens(), geometry.q_lora);
  linear(weight, all_outputs(weight), input.activations(), context.tokens(), raw_rows.data(), width);
#pragma omp parallel for schedule(static) if (context.tokens() > 1)
  for (std::int64_t token = 0; token < context.tokens(); ++token) {
    if (context.padding(token)) continue;
    const RopeAngles angles = context.state.rope.at(context.position(token));
    for (std::int64_t head = 0; head < geometry.heads; ++head) {
      const std::int64_t at = token * width + head * kHeadDim;
      norm_and_rotate(context.profile(), geometry.eps, angles, &raw_rows[at], &normed_rows[at], &q_rows[at]);
    }
  }
  context.publish(TensorId::q_raw, std::move(raw));
  context.publish(TensorId::q_normed, std::move(normed));
  context.publish(TensorId::q, std::move(q));
}

}  // namespace dsv4::reference
