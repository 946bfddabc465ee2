/// Cache rows of the CUDA engine as the host sees them. Rows that lie apart are gathered and spread out on the device,
/// so that many of them cost one copy.
#include <algorithm>

#include "gpu/check.cuh"
#include "gpu/cuda_engine.cuh"
#include "model/layout.hpp"

namespace dsv4::gpu {
namespace {

constexpr std::int64_t kMovedAtOnce = std::int64_t{64} << 20;  // bytes
constexpr std::int64_t kReadAhead = std::int64_t{8} << 20;     // bytes

/// Rows between their slots and `packed`, one after another; a row is its values, then its scales. One thread a byte.
template <bool kToSlots>
__global__ void move_rows_kernel(CacheMemory cache, const std::int64_t* slots, std::int64_t rows, std::byte* packed) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int row_bytes = cache.value_bytes + cache.scale_bytes;
  if (i >= rows * row_bytes) return;
  const std::int64_t slot = slots[i / row_bytes];
  const std::int64_t offset = slot % cache.page_rows;
  const int b = static_cast<int>(i % row_bytes);
  std::byte* const page = cache.data + slot / cache.page_rows * cache.pitch;
  std::byte& at = b < cache.value_bytes ? page[offset * cache.value_bytes + b]
                                        : page[std::int64_t{cache.page_rows} * cache.value_bytes +
                                               offset * cache.scale_bytes + (b - cache.value_bytes)];
  if constexpr (kToSlots) {
    at = packed[i];
  } else {
    packed[i] = at;
  }
}

}  // namespace

void CudaEngine::apply_writes(int layer, std::span<const Write> rows) {
  if (in_graph()) refuse_in_graph("cache rows were replaced");
  read_ahead_.bytes.clear();
  std::map<Cache, std::map<std::int64_t, const Write*>> by_slot;  // of several writes to a slot the last one stays
  for (const Write& row : rows) {
    const CacheMemory& memory = cache(layer, row.cache);
    if (row.slot < 0 || row.slot / memory.page_rows >= memory.rows ||
        row.bytes.size() != static_cast<std::size_t>(memory.value_bytes + memory.scale_bytes)) {
      throw InternalError("cuda engine: write of " + std::to_string(row.bytes.size()) + " bytes to slot " +
                          std::to_string(row.slot) + " of " + std::string(name(row.cache)) + ", layer " +
                          std::to_string(layer));
    }
    by_slot[row.cache][row.slot] = &row;
  }
  for (const auto& [which, writes] : by_slot) {
    std::vector<std::int64_t> slots;
    std::vector<std::byte> packed;
    for (const auto& [slot, row] : writes) {
      slots.push_back(slot);
      packed.insert(packed.end(), row->bytes.begin(), row->bytes.end());
    }
    move_rows<true>(cache(layer, which), slots, packed.data());
  }
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
  std::vector<std::byte> bytes(slots.size() * static_cast<std::size_t>(memory.value_bytes + memory.scale_bytes));
  move_rows<false>(memory, slots, bytes.data());
  return bytes;
}

template <bool kToSlots>
void CudaEngine::move_rows(const CacheMemory& memory, std::span<const std::int64_t> slots, std::byte* host) const {
  const std::int64_t row_bytes = memory.value_bytes + memory.scale_bytes;
  const auto count = static_cast<std::int64_t>(slots.size());
  const std::int64_t chunk = std::min(count, std::max<std::int64_t>(kMovedAtOnce / row_bytes, 1));
  for (std::int64_t first = 0; first < count; first += chunk) {
    const std::int64_t rows = std::min(chunk, count - first);
    auto* places = memory_.get<std::int64_t>("host/slots", static_cast<std::size_t>(chunk));
    auto* packed = memory_.get<std::byte>("host/rows", static_cast<std::size_t>(chunk * row_bytes));
    const auto bytes = static_cast<std::size_t>(rows * row_bytes);
    std::byte* const from = host + first * row_bytes;
    DSV4_CUDA(cudaMemcpyAsync(places, slots.data() + first, static_cast<std::size_t>(rows) * sizeof(std::int64_t),
                              cudaMemcpyHostToDevice, stream_));
    if (kToSlots) DSV4_CUDA(cudaMemcpyAsync(packed, from, bytes, cudaMemcpyHostToDevice, stream_));
    move_rows_kernel<kToSlots><<<static_cast<unsigned>((rows * row_bytes + 255) / 256), 256, 0, stream_>>>(
        memory, places, rows, packed);
    DSV4_LAUNCHED("move_rows_kernel");
    if (!kToSlots) DSV4_CUDA(cudaMemcpyAsync(from, packed, bytes, cudaMemcpyDeviceToHost, stream_));
    DSV4_CUDA(cudaStreamSynchronize(stream_));
  }
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
