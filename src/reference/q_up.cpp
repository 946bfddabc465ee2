#include <algorithm>
#include <array>

#include "reference/block_quantizer.hpp"
#include "reference/rms_norm.hpp"
#include "reference/stages.hpp"

namespace dsv4::reference {
namespace {

/// One head in place: norm without weight, bf16 (kept at `normed` if that is not null), RoPE, bf16. With
/// q_rope_input f32 the norm's f32 result is rotated; only head_norm f32 has one.
void norm_and_rotate(const Profile& profile, float eps, const RopeAngles& angles, std::uint16_t* head,
                     std::uint16_t* normed, float* normed_f32) {
  const HeadNorm mode = profile.get<HeadNorm>();
  const bool rotate_f32 = profile.get<QRopeInput>() == QRopeInput::f32 && mode == HeadNorm::f32;
  std::array<float, kHeadDim> wide;
  if (rotate_f32) {
    widen_bf16(head, kHeadDim, wide.data());
    rms_norm(wide.data(), kHeadDim, nullptr, eps, NormWeight::then_round, wide.data());
  }
  if (normed_f32 != nullptr) std::ranges::copy(wide, normed_f32);
  head_norm(head, kHeadDim, eps, mode, head);
  if (normed != nullptr) std::copy_n(head, kHeadDim, normed);
  if (!rotate_f32) {
    rope_rotate(head + kNopeDim, angles, RopeDirection::forward);
    return;
  }
  rope_rotate(wide.data() + kNopeDim, angles, RopeDirection::forward);
  round_bf16(wide.data() + kNopeDim, kRopeDim, head + kNopeDim);
}

}  // namespace

void q_up(StageContext& context) {
  const Geometry& geometry = context.geometry();
  const Matrix& weight = context.weights().wq_b;
  const auto latent = context.input(TensorId::q_latent).as<std::uint16_t>();
  const std::vector<std::int64_t> shape{context.tokens(), geometry.heads, kHeadDim};
  const std::int64_t width = std::int64_t{geometry.heads} * kHeadDim;
  // The product becomes q in place: these tensors are the largest of a layer, and the other two are
  // intermediates.
  const bool with_raw = context.wanted(TensorId::q_raw);
  const bool with_normed = context.wanted(TensorId::q_normed);
  Tensor q(DType::bfloat16, shape);
  Tensor raw = with_raw ? Tensor(DType::bfloat16, shape) : Tensor();
  const bool f32 = context.profile().get<QRopeInput>() == QRopeInput::f32;  // what is rotated is published
  Tensor normed = with_normed ? Tensor(f32 ? DType::float32 : DType::bfloat16, shape) : Tensor();
  std::uint16_t* const q_rows = q.as<std::uint16_t>().data();
  std::uint16_t* const raw_rows = with_raw ? raw.as<std::uint16_t>().data() : nullptr;
  const LinearInput input(context.profile(), latent.data(), context.tokens(), geometry.q_lora);
  linear(weight, all_outputs(weight), input.activations(), context.tokens(), q_rows, width);
#pragma omp parallel for schedule(static) if (context.tokens() > 1)
  for (std::int64_t token = 0; token < context.tokens(); ++token) {
    if (context.padding(token)) continue;
    if (with_raw) std::copy_n(q_rows + token * width, width, raw_rows + token * width);
    const RopeAngles angles = context.state.rope.at(context.position(token));
    for (std::int64_t at = token * width; at < (token + 1) * width; at += kHeadDim) {
      norm_and_rotate(context.profile(), geometry.eps, angles, q_rows + at,
                      with_normed && !f32 ? normed.as<std::uint16_t>().data() + at : nullptr,
                      with_normed && f32 ? normed.as<float>().data() + at : nullptr);
    }
  }
  if (with_raw) context.publish(TensorId::q_raw, std::move(raw));
  if (with_normed) context.publish(TensorId::q_normed, std::move(normed));
  context.publish(TensorId::q, std::move(q));
}

}  // namespace dsv4::reference
