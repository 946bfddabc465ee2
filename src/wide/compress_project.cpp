/// compress.project and indexer.project: wkv and wgate on the layer's input, float32 (docs/numerics.md 12.1).
#include "wide/compressor.hpp"
#include "wide/product.hpp"
#include "wide/stages.hpp"

namespace dsv4::wide {

void compress_project(Layer& layer, bool indexer) {
  const Compressor self = compressor(layer, indexer);
  const Balls hidden(layer.input(TensorId::hidden));
  const bool rounded = layer.rounding<CompressProject>() == CompressProject::bf16;
  const auto project = [&](TensorId id, const Matrix& matrix) {
    Balls values = product(hidden, matrix);
    values.round_to_bf16(!rounded);
    layer.publish_f32(id, {self.channels}, values);
  };
  project(self.kv, self.weights.wkv);
  project(self.score, self.weights.wgate);
}

}  // namespace dsv4::wide
