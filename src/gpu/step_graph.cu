#include "gpu/step_graph.cuh"

#include <algorithm>

#include "gpu/check.cuh"
#include "gpu/cuda_engine.cuh"

namespace dsv4::gpu {
namespace {

std::string layout_buffer(std::int64_t rows) { return "graph/" + std::to_string(rows) + "/layout"; }

/// Undoes what a capture changes in an engine, whatever happens.
template <class Undo>
struct AtExit {
  Undo undo;
  ~AtExit() { undo(); }
};
template <class Undo>
AtExit(Undo) -> AtExit<Undo>;

}  // namespace

bool CudaEngine::runs_as_graph(const StepPlan& plan) const {
  if (plan.rows.empty()) return false;
  if (plan.kind == StepKind::graph) return true;
  const auto one_row = [](const RequestStep& request) { return request.row_count == 1 && !request.verify; };
  return options_.graphs && plan.kind == StepKind::compute && !plan.requests.empty() &&
         std::ranges::all_of(plan.requests, one_row);
}

void CudaEngine::refuse_in_graph(const char* what) const {
  throw SubjectError("step " + std::to_string(plan_->index) + " (" + plan_->source +
                     ") runs through a captured graph: " + what + " between its stages; feed and replace stages in a run" +
                     " without graphs");
}

void CudaEngine::walk_stages(const StepPlan& plan) {
  for (int layer = 0; layer < static_cast<int>(config_.layers.size()); ++layer) {
    for (const Stage stage : execution_order(kind(layer), false)) run_stage(plan, layer, stage);
  }
}

void CudaEngine::capture(StepGraph& graph, std::int64_t rows, const Capacity& capacity) {
  StepPlan padding;
  padding.index = plan_->index;
  padding.kind = StepKind::graph;
  padding.source = plan_->source;
  padding.rows.resize(static_cast<std::size_t>(rows));
  const AtExit restore{[this, step = plan_] {
    memory_.set_use(DeviceMemory::Use::free);
    building_ = nullptr;
    capturing_ = false;
    plan_ = step;
    for (auto& map : tensors_) map.clear();
    for (auto& list : noted_) list.clear();
  }};
  graph.graph.reset();
  graph.capacity = capacity;
  graph.stages.assign(config_.layers.size(), {});
  plan_ = &padding;
  building_ = &graph;

  memory_.set_use(DeviceMemory::Use::noted);
  layout_ = std::make_unique<StepLayout>(config_, padding, capacity);
  place_layout(layout_buffer(rows));
  walk_stages(padding);
  DSV4_CUDA(cudaStreamSynchronize(stream_));
  for (auto& map : tensors_) map.clear();
  for (auto& list : noted_) list.clear();

  memory_.set_use(DeviceMemory::Use::frozen);
  capturing_ = true;
  DSV4_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
  cudaGraph_t captured = nullptr;
  try {
    walk_stages(padding);
  } catch (...) {
    cudaStreamEndCapture(stream_, &captured);
    if (captured != nullptr) cudaGraphDestroy(captured);
    cudaGetLastError();  // of the capture that ends early
    throw;
  }
  DSV4_CUDA(cudaStreamEndCapture(stream_, &captured));
  cudaGraphExec_t instance = nullptr;
  const cudaError_t status = cudaGraphInstantiateWithFlags(&instance, captured, 0);
  cudaGraphDestroy(captured);
  check(status, "cudaGraphInstantiateWithFlags", __FILE__, __LINE__);
  graph.graph.reset(instance);
  graph.generation = memory_.generation();
}

void CudaEngine::run_graph(const StepPlan& plan) {
  const auto rows = static_cast<std::int64_t>(plan.rows.size());
  StepGraph& graph = graphs_[rows];
  const Capacity need = needed_capacity(config_, plan);
  if (graph.graph == nullptr || graph.generation != memory_.generation() || !graph.capacity.holds(need)) {
    const Capacity largest{std::max(need.c4, graph.capacity.c4), std::max(need.c128, graph.capacity.c128)};
    capture(graph, rows, graph_capacity(config_, largest));
  }
  layout_ = std::make_unique<StepLayout>(config_, plan, graph.capacity);
  place_layout(layout_buffer(rows));
  for (int layer = 0; layer < static_cast<int>(config_.layers.size()); ++layer) {
    if (config_.chain && layer > 0) continue;  // made by the layer below
    const auto& published =
        graph.stages[static_cast<std::size_t>(layer)][static_cast<std::size_t>(Stage::layer_input)].tensors;
    const auto hidden = std::ranges::find(published, TensorId::hidden, [](const auto& tensor) { return tensor.first; });
    require(hidden != published.end(), "cuda engine: a captured layer has no hidden states");
    DSV4_CUDA(cudaMemcpyAsync(hidden->second.data, fetch_hidden(plan, layer), hidden->second.size_in_bytes(),
                              cudaMemcpyHostToDevice, stream_));
  }
  DSV4_CUDA(cudaGraphLaunch(graph.graph.get(), stream_));
  replaying_ = &graph;
}

void CudaEngine::record_stage(const StageCall& call) {
  StepGraph::Recorded& recorded =
      building_->stages[static_cast<std::size_t>(call.layer)][static_cast<std::size_t>(call.stage)];
  for (const TensorId id : published_now_) recorded.tensors.emplace_back(id, input(call.layer, id));
  for (const NotedWrites& noted : noted_[static_cast<std::size_t>(call.layer)]) {
    if (noted.stage == call.stage) recorded.writes.push_back(noted);
  }
}

void CudaEngine::publish_recorded(const StageCall& call) {
  const auto layer = static_cast<std::size_t>(call.layer);
  const StepGraph::Recorded& recorded = replaying_->stages[layer][static_cast<std::size_t>(call.stage)];
  for (const auto& [id, tensor] : recorded.tensors) {
    Published published;
    published.device = tensor;
    tensors_[layer][static_cast<int>(id)] = std::move(published);
    published_now_.push_back(id);
  }
  noted_[layer].insert(noted_[layer].end(), recorded.writes.begin(), recorded.writes.end());
}

}  // namespace dsv4::gpu
