#include "compare/order_bound.hpp"

#include <algorithm>
#include <cmath>

#include "compare/rule.hpp"

namespace dsv4::compare {

std::int64_t summed_terms(TensorId id, const Geometry& geometry) {
  switch (tensor_class(id)) {
    case TensorClass::input:
    case TensorClass::index:
    case TensorClass::selection:
    case TensorClass::state:
      return 0;
    default:
      break;
  }
  switch (info(id).stage) {
    case Stage::q_down:
    case Stage::kv_window:
    case Stage::compress_project:
    case Stage::indexer_project:
      return geometry.dim;
    case Stage::q_up:
      return geometry.q_lora;
    case Stage::indexer_query:
      return std::max(geometry.q_lora, geometry.dim);
    case Stage::compress_pool:
    case Stage::indexer_pool:
      return 128;
    case Stage::compress_finish:
      return kHeadDim;
    case Stage::indexer_finish:
      return kIndexDim;
    case Stage::indexer_score:
      return std::int64_t{geometry.index_heads} * kIndexDim;
    case Stage::attention_core:
      return kHeadDim + kWindow + geometry.index_topk;
    case Stage::output_project:
      return std::max<std::int64_t>(std::int64_t{geometry.heads} / geometry.o_groups * kHeadDim,
                                    std::int64_t{geometry.o_groups} * geometry.o_lora);
    default:
      return 0;
  }
}

double ordering_limit_in_rms(std::int64_t terms) {
  return 16 * 0x1p-24 * std::sqrt(static_cast<double>(terms));
}

}  // namespace dsv4::compare
