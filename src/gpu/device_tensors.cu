/// Tensors and writes of the CUDA engine as the host sees them.
#include <algorithm>
#include <cstring>

#include "gpu/check.cuh"
#include "gpu/cuda_engine.cuh"

namespace dsv4::gpu {
namespace {

/// Page-locked memory for copies that nobody may come to ask for.
constexpr std::size_t kMostPrefetched = std::size_t{256} << 20;

__global__ void blank_rows(std::byte* data, std::int64_t row_bytes, const std::int32_t* position,
                           std::int64_t tokens, int value) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= tokens * row_bytes || position[i / row_bytes] >= 0) return;
  data[i] = static_cast<std::byte>(value);
}

std::string buffer_name(int layer, TensorId id) {
  return "tensor/" + std::to_string(layer) + "/" + path(id);
}

}  // namespace

const DeviceTensor& CudaEngine::input(int layer, TensorId id) const {
  const auto& map = tensors_.at(static_cast<std::size_t>(layer));
  const auto found = map.find(static_cast<int>(id));
  if (found == map.end()) {
    throw InternalError("cuda engine: " + path(id) + " of layer " + std::to_string(layer) + " is not there yet");
  }
  return found->second.device;
}

DeviceTensor& CudaEngine::publish(int layer, TensorId id, DType dtype, std::vector<std::int64_t> shape) {
  const auto bytes = static_cast<std::size_t>(Tensor::count(shape)) * size_bytes(dtype);
  return publish_at(layer, id, {dtype, std::move(shape), memory_.get<std::byte>(buffer_name(layer, id), bytes)});
}

DeviceTensor& CudaEngine::publish_at(int layer, TensorId id, DeviceTensor tensor) {
  Published& entry = tensors_.at(static_cast<std::size_t>(layer))[static_cast<int>(id)];
  entry.device = std::move(tensor);
  entry.on_host = false;
  entry.pinned = nullptr;
  published_now_.push_back(id);
  return entry.device;
}

void CudaEngine::publish_ints(int layer, TensorId id, const Ints& values) {
  require(!dsv4::info(id).dims.starts_with("token"), "cuda engine: rows of padding would be blanked in the layout");
  publish_at(layer, id, {DType::int32, {values.size()}, reinterpret_cast<std::byte*>(values.device)});
}

void CudaEngine::blank_padding(int layer) {
  const auto& position = layout_->rows.position;
  if (building_ == nullptr && std::ranges::find(position.host, -1) == position.host.end()) return;
  for (const TensorId id : published_now_) {
    if (!dsv4::info(id).dims.starts_with("token")) continue;
    const DeviceTensor& tensor = input(layer, id);
    const std::int64_t bytes = static_cast<std::int64_t>(tensor.size_in_bytes());
    if (bytes == 0) continue;
    blank_rows<<<static_cast<unsigned>((bytes + 255) / 256), 256, 0, stream_>>>(
        tensor.data, bytes / layout_->tokens, position.device, layout_->tokens, tensor.dtype == DType::int32 ? -1 : 0);
    DSV4_LAUNCHED("blank_rows");
  }
}

/// In a graph's step, tensors have the graph's capacity: this is what the step fills of them.
std::vector<std::int64_t> CudaEngine::true_shape(int layer, TensorId id, const DeviceTensor& tensor) const {
  std::vector<std::int64_t> shape = tensor.shape;
  if (replaying_ == nullptr) return shape;
  const TensorInfo& about = dsv4::info(id);
  const bool csa = kind(layer) == LayerKind::csa;
  const Capacity& widest = layout_->true_widest;
  const bool indexer = about.stage == Stage::indexer_state || about.stage == Stage::indexer_pool ||
                       about.stage == Stage::indexer_finish;
  if (about.dims.starts_with("entry")) shape[0] = layout_->compressor(kind(layer), indexer).true_entries;
  if (about.dims.starts_with("row")) shape[0] = layout_->compressor(kind(layer), indexer).true_state_rows;
  if (id == TensorId::scores) shape[1] = widest.c4;
  if (id == TensorId::compressed_slots || id == TensorId::compressed_logical) {
    shape[1] = csa ? std::min(geometry().index_topk, widest.c4) : widest.c128;
  }
  return shape;
}

void CudaEngine::copy_out(int layer, TensorId id, const DeviceTensor& tensor, std::byte* host, cudaStream_t stream) const {
  const std::vector<std::int64_t> shape = true_shape(layer, id, tensor);
  const std::size_t element = size_bytes(tensor.dtype);
  const auto bytes = static_cast<std::size_t>(Tensor::count(shape)) * element;
  if (bytes == 0) return;
  if (shape.size() < 2 || shape[1] == tensor.shape[1]) {  // the front of the buffer
    DSV4_CUDA(cudaMemcpyAsync(host, tensor.data, bytes, cudaMemcpyDeviceToHost, stream));
    return;
  }
  require(shape.size() == 2, "cuda engine: only matrices are trimmed to fewer columns");
  DSV4_CUDA(cudaMemcpy2DAsync(host, static_cast<std::size_t>(shape[1]) * element, tensor.data,
                              static_cast<std::size_t>(tensor.shape[1]) * element,
                              static_cast<std::size_t>(shape[1]) * element, static_cast<std::size_t>(shape[0]),
                              cudaMemcpyDeviceToHost, stream));
}

cudaEvent_t CudaEngine::next_event() {
  if (events_used_ == events_.size()) {
    cudaEvent_t event = nullptr;
    DSV4_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    events_.push_back(event);
  }
  return events_[events_used_++];
}

/// Copies what the stage published, and is wanted, to the host while later stages compute. Nothing writes a
/// tensor again in its step but set_tensor, which waits.
void CudaEngine::start_copies(int layer) {
  if (!prefetch_) return;
  auto& map = tensors_.at(static_cast<std::size_t>(layer));
  cudaEvent_t done = nullptr;
  for (const TensorId id : published_now_) {
    if (!wanted_.test(static_cast<std::size_t>(id))) continue;
    Published& entry = map.at(static_cast<int>(id));
    const auto bytes = static_cast<std::size_t>(Tensor::count(true_shape(layer, id, entry.device))) *
                       size_bytes(entry.device.dtype);
    if (bytes == 0 || received_.taken() + bytes > kMostPrefetched) continue;
    if (done == nullptr) {
      const cudaEvent_t ready = next_event();
      done = next_event();
      DSV4_CUDA(cudaEventRecord(ready, stream_));
      DSV4_CUDA(cudaStreamWaitEvent(copy_stream_, ready, 0));
    }
    entry.pinned = received_.take(bytes);
    entry.copied = done;
    copy_out(layer, id, entry.device, entry.pinned, copy_stream_);
  }
  if (done != nullptr) DSV4_CUDA(cudaEventRecord(done, copy_stream_));
}

const Tensor& CudaEngine::host_tensor(int layer, TensorId id, const Published& entry) const {
  if (entry.on_host) return entry.host;
  entry.host = Tensor(entry.device.dtype, true_shape(layer, id, entry.device));
  const std::span<std::byte> bytes = entry.host.bytes();
  if (entry.pinned != nullptr) {
    DSV4_CUDA(cudaEventSynchronize(entry.copied));
    std::memcpy(bytes.data(), entry.pinned, bytes.size());
  } else {
    copy_out(layer, id, entry.device, bytes.data(), stream_);
    DSV4_CUDA(cudaStreamSynchronize(stream_));
  }
  entry.on_host = true;
  return entry.host;
}

const Tensor* CudaEngine::tensor(int layer, TensorId id) const {
  if (building_ != nullptr) refuse_in_graph("a tensor was read");
  const auto& map = tensors_.at(static_cast<std::size_t>(layer));
  const auto found = map.find(static_cast<int>(id));
  return found == map.end() || !wanted(id) ? nullptr : &host_tensor(layer, id, found->second);
}

void CudaEngine::set_tensor(int layer, TensorId id, Tensor value) {
  if (in_graph()) refuse_in_graph("a tensor was replaced");
  Published& entry = tensors_.at(static_cast<std::size_t>(layer))[static_cast<int>(id)];
  if (entry.pinned != nullptr) DSV4_CUDA(cudaEventSynchronize(entry.copied));
  entry.pinned = nullptr;
  entry.device.dtype = value.dtype();
  entry.device.shape = value.shape();
  entry.device.data = memory_.get<std::byte>("given/" + buffer_name(layer, id), value.bytes().size());
  DSV4_CUDA(cudaMemcpyAsync(entry.device.data, value.bytes().data(), value.bytes().size(), cudaMemcpyHostToDevice,
                            stream_));
  DSV4_CUDA(cudaStreamSynchronize(stream_));
  entry.host = std::move(value);
  entry.on_host = true;
}

/// The rows that a stage of this step writes, in order; `row` is the batch row, entry or state row.
std::vector<NotedRow> CudaEngine::noted_rows(int layer, Stage stage) const {
  std::vector<NotedRow> rows;
  if (stage == Stage::kv_window) {
    const auto& slots = layout_->rows.window_slot.host;
    for (std::size_t t = 0; t < slots.size(); ++t) {
      if (slots[t] < 0) continue;
      const Row& row = plan_->rows[t];
      rows.push_back({static_cast<std::int32_t>(t), slots[t], row.request, row.position});
    }
    return rows;
  }
  const bool indexer = stage == Stage::indexer_finish || stage == Stage::indexer_state;
  const CompressorStep& step = layout_->compressor(kind(layer), indexer);
  if (stage == Stage::compress_finish || stage == Stage::indexer_finish) {
    for (std::size_t k = 0; k < static_cast<std::size_t>(step.true_entries); ++k) {
      rows.push_back({static_cast<std::int32_t>(k), step.entry_slot.host[k], step.entry_request.host[k],
                      step.entry_index.host[k]});
    }
  } else {
    for (std::size_t k = 0; k < static_cast<std::size_t>(step.true_state_rows); ++k) {
      rows.push_back(
          {static_cast<std::int32_t>(k), step.state_slot.host[k], step.state_request[k], step.state_position[k]});
    }
  }
  return rows;
}

void CudaEngine::note_writes(int layer, Stage stage, Cache cache, const std::vector<TensorId>& parts) {
  NotedWrites noted{stage, cache, {}};
  for (const TensorId id : parts) noted.parts.push_back(input(layer, id));
  noted_.at(static_cast<std::size_t>(layer)).push_back(std::move(noted));
}

std::span<const Write> CudaEngine::writes(int layer) const {
  std::vector<Write>& list = writes_.at(static_cast<std::size_t>(layer));
  list.clear();
  for (const NotedWrites& noted : noted_.at(static_cast<std::size_t>(layer))) {
    const std::vector<NotedRow> rows = noted_rows(layer, noted.stage);
    if (rows.empty()) continue;
    const std::size_t first = list.size();
    for (const NotedRow& row : rows) list.push_back({noted.stage, noted.cache, row.slot, row.request, row.index, {}});
    for (const DeviceTensor& part : noted.parts) {
      std::vector<std::byte> bytes(part.size_in_bytes());
      DSV4_CUDA(cudaMemcpyAsync(bytes.data(), part.data, bytes.size(), cudaMemcpyDeviceToHost, stream_));
      DSV4_CUDA(cudaStreamSynchronize(stream_));
      const auto row_bytes = static_cast<std::int64_t>(bytes.size()) / part.shape.at(0);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto from = bytes.begin() + rows[i].row * row_bytes;
        std::vector<std::byte>& to = list[first + i].bytes;
        to.insert(to.end(), from, from + row_bytes);
      }
    }
  }
  return list;
}

}  // namespace dsv4::gpu
