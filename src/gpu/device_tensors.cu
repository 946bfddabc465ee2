/// Tensors, writes and cache rows of the CUDA engine as the host sees them.
#include <algorithm>
#include <cstring>

#include "gpu/check.cuh"
#include "gpu/cuda_engine.cuh"
#include "model/layout.hpp"

namespace dsv4::gpu {
namespace {

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
  Published& entry = tensors_.at(static_cast<std::size_t>(layer))[static_cast<int>(id)];
  entry.device.dtype = dtype;
  entry.device.shape = std::move(shape);
  entry.device.data = memory_.get<std::byte>(buffer_name(layer, id), entry.device.size_in_bytes());
  entry.on_host = false;
  published_now_.push_back(id);
  return entry.device;
}

void CudaEngine::publish_ints(int layer, TensorId id, const Ints& values) {
  DeviceTensor& tensor = publish(layer, id, DType::int32, {values.size()});
  DSV4_CUDA(cudaMemcpyAsync(tensor.data, values.device, tensor.size_in_bytes(), cudaMemcpyDeviceToDevice, stream_));
}

void CudaEngine::blank_padding(int layer) {
  const auto& position = layout_->rows.position;
  if (std::ranges::find(position.host, -1) == position.host.end()) return;
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

const Tensor* CudaEngine::tensor(int layer, TensorId id) const {
  const auto& map = tensors_.at(static_cast<std::size_t>(layer));
  const auto found = map.find(static_cast<int>(id));
  if (found == map.end() || !wanted(id)) return nullptr;
  const Published& entry = found->second;
  if (!entry.on_host) {
    entry.host = Tensor(entry.device.dtype, entry.device.shape);
    DSV4_CUDA(cudaMemcpyAsync(entry.host.bytes().data(), entry.device.data, entry.device.size_in_bytes(),
                              cudaMemcpyDeviceToHost, stream_));
    DSV4_CUDA(cudaStreamSynchronize(stream_));
    entry.on_host = true;
  }
  return &entry.host;
}

void CudaEngine::set_tensor(int layer, TensorId id, Tensor value) {
  Published& entry = tensors_.at(static_cast<std::size_t>(layer))[static_cast<int>(id)];
  entry.device.dtype = value.dtype();
  entry.device.shape = value.shape();
  entry.device.data = memory_.get<std::byte>(buffer_name(layer, id), value.bytes().size());
  DSV4_CUDA(cudaMemcpyAsync(entry.device.data, value.bytes().data(), value.bytes().size(), cudaMemcpyHostToDevice,
                            stream_));
  DSV4_CUDA(cudaStreamSynchronize(stream_));
  entry.host = std::move(value);
  entry.on_host = true;
}

void CudaEngine::note_writes(int layer, Stage stage, Cache cache, std::vector<NotedRow> rows, const std::byte* bytes,
                             std::int64_t count, std::int64_t row_bytes) {
  if (rows.empty()) return;
  auto& list = noted_.at(static_cast<std::size_t>(layer));
  const auto size = static_cast<std::size_t>(count * row_bytes);
  auto* copy = memory_.get<std::byte>("noted/" + std::to_string(layer) + "/" + std::string(name(stage)), size);
  DSV4_CUDA(cudaMemcpyAsync(copy, bytes, size, cudaMemcpyDeviceToDevice, stream_));
  list.push_back({stage, cache, std::move(rows), copy, count, row_bytes});
}

std::span<const Write> CudaEngine::writes(int layer) const {
  std::vector<Write>& list = writes_.at(static_cast<std::size_t>(layer));
  list.clear();
  for (const NotedWrites& noted : noted_.at(static_cast<std::size_t>(layer))) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(noted.count * noted.row_bytes));
    DSV4_CUDA(cudaMemcpyAsync(bytes.data(), noted.bytes, bytes.size(), cudaMemcpyDeviceToHost, stream_));
    DSV4_CUDA(cudaStreamSynchronize(stream_));
    for (const NotedRow& row : noted.rows) {
      const auto first = bytes.begin() + row.row * noted.row_bytes;
      list.push_back({noted.stage, noted.cache, row.slot, row.request, row.index, {first, first + noted.row_bytes}});
    }
  }
  return list;
}

void CudaEngine::read_slot(const CacheMemory& memory, std::int64_t slot, std::byte* host) const {
  const std::byte* page = memory.data + slot / memory.page_rows * memory.pitch;
  const std::int64_t offset = slot % memory.page_rows;
  DSV4_CUDA(cudaMemcpyAsync(host, page + offset * memory.value_bytes, static_cast<std::size_t>(memory.value_bytes),
                            cudaMemcpyDeviceToHost, stream_));
  if (memory.scale_bytes == 0) return;
  const std::byte* scales = page + std::int64_t{memory.page_rows} * memory.value_bytes + offset * memory.scale_bytes;
  DSV4_CUDA(cudaMemcpyAsync(host + memory.value_bytes, scales, static_cast<std::size_t>(memory.scale_bytes),
                            cudaMemcpyDeviceToHost, stream_));
}

void CudaEngine::write_slot(const CacheMemory& memory, std::int64_t slot, const std::byte* host) {
  std::byte* page = memory.data + slot / memory.page_rows * memory.pitch;
  const std::int64_t offset = slot % memory.page_rows;
  DSV4_CUDA(cudaMemcpyAsync(page + offset * memory.value_bytes, host, static_cast<std::size_t>(memory.value_bytes),
                            cudaMemcpyHostToDevice, stream_));
  if (memory.scale_bytes == 0) return;
  std::byte* scales = page + std::int64_t{memory.page_rows} * memory.value_bytes + offset * memory.scale_bytes;
  DSV4_CUDA(cudaMemcpyAsync(scales, host + memory.value_bytes, static_cast<std::size_t>(memory.scale_bytes),
                            cudaMemcpyHostToDevice, stream_));
}

void CudaEngine::apply_writes(int layer, std::span<const Write> rows) {
  for (const Write& row : rows) {
    const CacheMemory& memory = cache(layer, row.cache);
    if (row.slot < 0 || row.slot / memory.page_rows >= memory.rows ||
        row.bytes.size() != static_cast<std::size_t>(memory.value_bytes + memory.scale_bytes)) {
      throw InternalError("cuda engine: write of " + std::to_string(row.bytes.size()) + " bytes to slot " +
                          std::to_string(row.slot) + " of " + std::string(name(row.cache)) + ", layer " +
                          std::to_string(layer));
    }
    write_slot(memory, row.slot, row.bytes.data());
  }
  DSV4_CUDA(cudaStreamSynchronize(stream_));
}

std::vector<std::byte> CudaEngine::live_rows(int layer, Cache which, std::span<const LiveRequest> live) const {
  const LayerKind layer_kind = kind(layer);
  const CacheMemory& memory = cache(layer, which);
  std::vector<std::int64_t> slots;
  const bool indexer = which == Cache::index_state || which == Cache::index_entries;
  for (const LiveRequest& request : live) {
    const std::int32_t n = request.length;
    switch (which) {
      case Cache::window:
        for (std::int32_t p = first_live_window(n); p < n; ++p) {
          const std::int64_t slot = window_slot(config_, *request.tables, p);
          if (slot >= 0) slots.push_back(slot);  // an evicted window has no live rows until it is restored
        }
        break;
      case Cache::entries:
      case Cache::index_entries:
        for (std::int32_t j = 0; j < live_entries(layer_kind, n); ++j) {
          slots.push_back(entry_slot(config_, *request.tables, pool_of(layer_kind, which), j));
        }
        break;
      case Cache::state:
      case Cache::index_state:
        if (is_online(config_, layer_kind)) {
          if (n % 128 != 0) slots.push_back(std::int64_t{request.state_base} * online_banks(config_.cache));
          break;
        }
        for (std::int32_t p = first_live_state(layer_kind, n); p < n; ++p) {
          slots.push_back(state_slot(config_, *request.tables, layer_kind, indexer, request.state_base, p));
        }
        break;
    }
  }
  const std::size_t row_bytes = static_cast<std::size_t>(memory.value_bytes + memory.scale_bytes);
  std::vector<std::byte> bytes(slots.size() * row_bytes);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] < 0) {
      throw InternalError("cuda engine: a live row of " + std::string(name(which)) + " has no memory");
    }
    read_slot(memory, slots[i], bytes.data() + i * row_bytes);
  }
  DSV4_CUDA(cudaStreamSynchronize(stream_));
  return bytes;
}

std::vector<std::byte> CudaEngine::read_row(int layer, Cache which, std::int64_t row) const {
  const CacheMemory& memory = cache(layer, which);
  if (row < 0 || row >= memory.rows) {
    throw InternalError("cuda engine: row " + std::to_string(row) + " of " + std::string(name(which)) + " with " +
                        std::to_string(memory.rows));
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(memory.pitch));
  DSV4_CUDA(cudaMemcpyAsync(bytes.data(), memory.data + row * memory.pitch, bytes.size(), cudaMemcpyDeviceToHost, stream_));
  DSV4_CUDA(cudaStreamSynchronize(stream_));
  return bytes;
}

void CudaEngine::write_row(int layer, Cache which, std::int64_t row, std::span<const std::byte> bytes) {
  CacheMemory& memory = cache_of(layer, which);
  if (row < 0 || row >= memory.rows || bytes.size() != static_cast<std::size_t>(memory.pitch)) {
    throw InternalError("cuda engine: row " + std::to_string(row) + " of " + std::string(name(which)) + " cannot take " +
                        std::to_string(bytes.size()) + " bytes");
  }
  DSV4_CUDA(cudaMemcpyAsync(memory.data + row * memory.pitch, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream_));
  DSV4_CUDA(cudaStreamSynchronize(stream_));
}

}  // namespace dsv4::gpu
