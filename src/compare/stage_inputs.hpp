/// What each stage reads, as data: tensors of the same step and layer, and caches as they were before the step.
/// Rows written earlier in the same step are covered by the tensors that carry them (`page_bytes`). Weights are
/// taken as equal; a chained layer also reads its predecessor's `hidden` and `hidden_out`.
#pragma once

#include <span>

#include "model/stage.hpp"

namespace dsv4::compare {

struct StageInputs {
  Stage stage;
  std::span<const TensorId> tensors;
  std::span<const Cache> caches;
};

const StageInputs& stage_inputs(Stage stage);

}  // namespace dsv4::compare
