/// What each stage reads, as data: tensors of the same step and layer, and caches as they were before the
/// step. Rows written earlier in the same step are covered by the tensors that carry them (`page_bytes`).
/// Weights are taken as equal; a chained layer also reads its predecessor's `hidden` and `hidden_out`.
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

/// Tensors of the same stage from which this one is made: a difference here follows from a difference there.
std::span<const TensorId> made_from(TensorId id);

/// Rows written into a cache during a step: the tensors that carry them.
std::span<const TensorId> rows_written(Cache cache);

}  // namespace dsv4::compare
