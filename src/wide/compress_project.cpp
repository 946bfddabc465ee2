/// compress.project and indexer.project: wkv and wgate on the layer's input, float32 (docs/numerics.md 12.1).
#include "wide/compressor.hpp"
#include "wide/product.hpp"
#include "wide/stages.hpp"

namespace dsv4::wide {

void compress_project(Layer& layer, bool indexer) {
  const Compressor self = compressor(layer, indexer);
  const Balls hidden(layer.input(TensorId::hidden));
  layer.publish_f32(self.kv, {self.channels}, product(hidden, self.weights.wkv));
  layer.publish_f32(self.score, {self.channels}, product(hidden, self.weights.wgate));
}

}  // namespace dsv4::wide
