/// Cache rows of the CUDA engine as the host sees them. Rows that lie apart are gathered on the device, so that
/// many of them cost one copy.
#include <algorithm>

#include "gpu/check.cuh"
#include "gpu/cuda_engine.cuh"
#include "model/layout.hpp"

namespace dsv4::gpu {
namespace {

constexpr std::int64_t kGathered = std::int64_t{64} << 20;   // bytes at a time
constexpr std::int64_t kReadAhead = std::int64_t{8} << 20;  // bytes

/// One thread a byte; a row is its values, then its scales.
__global__ void gather_rows_kernel(CacheMemory cache, const std::int64_t* slots, std::int64_t rows, std::byte* out) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int row_bytes = cache.value_bytes + cache.scale_bytes;
  if (i >= rows * row_bytes) return;
  const std::int64_t slot = slots[i / row_bytes];
  const std::int64_t offset = slot % cache.page_rows;
  const int b = static_cast<int>(i % row_bytes);
  const std::byte* page = cache.data + slot / cache.page_rows * cache.pitch;
  out[i] = b < cache.value_bytes ? page[offset * cache.value_bytes + b]
                                 : page[std::int64_t{cache.page_rows} * cache.value_bytes + offset * cache.scale_bytes +
                                        (b - cache.value_bytes)];
}

}  // namespace

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
  if (in_graph()) refuse_in_graph("cache rows were replaced");
  read_ahead_.bytes.clear();
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

/// As they lie on the device: what kernels follow.
std::vector<HeldTable> CudaEngine::held_tables() const {
  std::vector<std::int32_t> values(layout_->tables.host.size());
  if (!values.empty()) {
    DSV4_CUDA(cudaMemcpyAsync(values.data(), layout_->tables.device, values.size() * sizeof(std::int32_t),
                              cudaMemcpyDeviceToHost, stream_));
    DSV4_CUDA(cudaStreamSynchronize(stream_));
  }
  return layout_->held_tables(config_, *plan_, values);
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
  for (const std::int64_t slot : slots) {
    if (slot >= 0 && slot < memory.rows * memory.page_rows) continue;
    throw InternalError("cuda engine: a live row of " + std::string(name(which)) + " has no memory");
  }
  return gather_rows(memory, slots);
}

std::vector<std::byte> CudaEngine::gather_rows(const CacheMemory& memory, std::span<const std::int64_t> slots) const {
  const std::int64_t row_bytes = memory.value_bytes + memory.scale_bytes;
  const auto count = static_cast<std::int64_t>(slots.size());
  std::vector<std::byte> bytes(slots.size() * static_cast<std::size_t>(row_bytes));
  const std::int64_t chunk = std::min(count, std::max<std::int64_t>(kGathered / row_bytes, 1));
  for (std::int64_t first = 0; first < count; first += chunk) {
    const std::int64_t rows = std::min(chunk, count - first);
    auto* places = memory_.get<std::int64_t>("host/slots", static_cast<std::size_t>(chunk));
    auto* gathered = memory_.get<std::byte>("host/rows", static_cast<std::size_t>(chunk * row_bytes));
    DSV4_CUDA(cudaMemcpyAsync(places, slots.data() + first, static_cast<std::size_t>(rows) * sizeof(std::int64_t),
                              cudaMemcpyHostToDevice, stream_));
    gather_rows_kernel<<<static_cast<unsigned>((rows * row_bytes + 255) / 256), 256, 0, stream_>>>(memory, places, rows,
                                                                                                   gathered);
    DSV4_LAUNCHED("gather_rows_kernel");
    DSV4_CUDA(cudaMemcpyAsync(bytes.data() + first * row_bytes, gathered, static_cast<std::size_t>(rows * row_bytes),
                              cudaMemcpyDeviceToHost, stream_));
    DSV4_CUDA(cudaStreamSynchronize(stream_));
  }
  return bytes;
}

std::vector<std::byte> CudaEngine::read_row(int layer, Cache which, std::int64_t row) const {
  const CacheMemory& memory = cache(layer, which);
  if (row < 0 || row >= memory.rows) {
    throw InternalError("cuda engine: row " + std::to_string(row) + " of " + std::string(name(which)) + " with " +
                        std::to_string(memory.rows));
  }
  const auto pitch = static_cast<std::size_t>(memory.pitch);
  ReadAhead& ahead = read_ahead_;
  const bool same_cache = ahead.layer == layer && ahead.cache == which;
  const bool in_order = same_cache && row == ahead.next;
  const auto held = static_cast<std::int64_t>(ahead.bytes.size() / pitch);
  if (!same_cache || row < ahead.first || row >= ahead.first + held) {
    const std::int64_t rows =
        in_order ? std::min(memory.rows - row, std::max<std::int64_t>(kReadAhead / memory.pitch, 1)) : 1;
    ahead.layer = layer;
    ahead.cache = which;
    ahead.first = row;
    ahead.bytes.resize(static_cast<std::size_t>(rows) * pitch);
    DSV4_CUDA(cudaMemcpyAsync(ahead.bytes.data(), memory.data + row * memory.pitch, ahead.bytes.size(),
                              cudaMemcpyDeviceToHost, stream_));
    DSV4_CUDA(cudaStreamSynchronize(stream_));
  }
  ahead.next = row + 1;
  const auto first = ahead.bytes.begin() + (row - ahead.first) * memory.pitch;
  return {first, first + memory.pitch};
}

void CudaEngine::write_row(int layer, Cache which, std::int64_t row, std::span<const std::byte> bytes) {
  if (in_graph()) refuse_in_graph("cache memory was replaced");
  CacheMemory& memory = cache_of(layer, which);
  if (row < 0 || row >= memory.rows || bytes.size() != static_cast<std::size_t>(memory.pitch)) {
    throw InternalError("cuda engine: row " + std::to_string(row) + " of " + std::string(name(which)) + " cannot take " +
                        std::to_string(bytes.size()) + " bytes");
  }
  read_ahead_.bytes.clear();
  DSV4_CUDA(cudaMemcpyAsync(memory.data + row * memory.pitch, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream_));
  DSV4_CUDA(cudaStreamSynchronize(stream_));
}

}  // namespace dsv4::gpu
