#include <array>

#include "arith/bf16.hpp"
#include "reference/compressor.hpp"
#include "reference/stages.hpp"

namespace dsv4::reference {

void compress_project(StageContext& context, Stage stage) {
  const Compressor form = compressor(context, stage);
  const auto hidden = context.input(TensorId::hidden).as<std::uint16_t>();
  Activations input;
  input.bf16 = hidden.data();
  Tensor kv(DType::float32, {context.tokens(), form.channels});
  Tensor score(DType::float32, {context.tokens(), form.channels});
  const std::array<WholeProduct, 2> products{
      {{&form.weights->wkv, kv.as<float>().data()}, {&form.weights->wgate, score.as<float>().data()}}};
  linear(products, input, context.tokens());
  if (context.profile().get<CompressProject>() == CompressProject::bf16) {
    for (Tensor* const out : {&kv, &score}) {
      for (float& value : out->as<float>()) value = arith::bf16_to_f32(arith::f32_to_bf16(value));
    }
  }
  context.publish(form.kv, std::move(kv));
  context.publish(form.score, std::move(score));
}

}  // namespace dsv4::reference
