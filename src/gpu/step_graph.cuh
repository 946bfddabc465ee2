/// A step as a captured graph.
///
/// A graph's launch parameters are frozen: between replays only device memory changes. It is captured for a row
/// count and a capacity (visible entries a row) by walking the stage table over padding rows, once to make every
/// buffer, once more for the capture; a replay puts the padded layout and the hidden states of the step into the
/// graph's buffers and launches it when the step begins. What stages publish then has the capacity's shape and is
/// trimmed to the step's when it is read. A graph is captured anew when a step needs more capacity or when one
/// of its buffers has moved.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "gpu/device_tensor.cuh"
#include "gpu/step_layout.cuh"

namespace dsv4::gpu {

struct DestroyGraph {
  void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
};

struct StepGraph {
  /// What one stage of one layer published, and the rows that it wrote.
  struct Recorded {
    std::vector<std::pair<TensorId, DeviceTensor>> tensors;
    std::vector<NotedWrites> writes;
  };

  std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyGraph> graph;
  Capacity capacity;
  std::uint64_t generation = 0;  ///< of the device buffers at capture
  std::vector<std::array<Recorded, kStageCount>> stages;  ///< by layer
};

}  // namespace dsv4::gpu
