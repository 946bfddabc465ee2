#include "arith/bf16.hpp"
#include "reference/compressor.hpp"
#include "reference/stages.hpp"

namespace dsv4::reference {

void compress_project(StageContext& context, Stage stage) {
  const Compressor form = compressor(context, stage);
  const auto hidden = context.input(TensorId::hidden).as<std::uint16_t>();
  Activations input;
  input.bf16 = hidden.data();
  const auto project = [&](TensorId id, const Matrix& weight) {
    Tensor out(DType::float32, {context.tokens(), form.channels});
    linear(weight, all_outputs(weight), input, context.tokens(), out.as<float>().data(), form.channels);
    if (context.profile().get<CompressProject>() == CompressProject::bf16) {
      for (float& value : out.as<float>()) value = arith::bf16_to_f32(arith::f32_to_bf16(value));
    }
    context.publish(id, std::move(out));
  };
  project(form.kv, form.weights->wkv);
  project(form.score, form.weights->wgate);
}

}  // namespace dsv4::reference
