/// attention.lists: window and compressed keys of each token, logical index and physical slot (docs/numerics.md
/// 14).
#include <algorithm>

#include "gpu/check.cuh"
#include "gpu/cuda_engine.cuh"

namespace dsv4::gpu {
namespace {

constexpr int kWarps = 4;  // a block of window_kernel

struct ListProblem {
  const std::int32_t* position;
  const std::int32_t* table_offset;
  const std::int32_t* tables;
  int page_rows;
  std::int64_t tokens;
};

__device__ std::int32_t physical(const ListProblem& p, const std::int32_t* table, std::int32_t row) {
  const std::int32_t page = table[row / p.page_rows];
  return page < 0 ? -1 : page * p.page_rows + row % p.page_rows;
}

/// kItems neighbouring items, one store.
template <int kItems>
__device__ __forceinline__ void store(std::int32_t* to, const std::int32_t (&items)[kItems]) {
  if constexpr (kItems == 4) {
    *reinterpret_cast<int4*>(to) = make_int4(items[0], items[1], items[2], items[3]);
  } else {
    *to = items[0];
  }
}

/// Item i of a token is position max(0, p - W + 1) + i, up to p. One warp a token, one thread four items.
__global__ void window_kernel(ListProblem p, std::int32_t* slots, std::int32_t* logical, std::int32_t* length) {
  static_assert(kWindow == 4 * 32);
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (token >= p.tokens) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int32_t position = p.position[token];
  const std::int32_t* const table = p.tables + p.table_offset[token];
  const std::int32_t first = max(0, position - kWindow + 1) + 4 * lane;
  std::int32_t slot[4], row[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    row[k] = first + k <= position ? first + k : -1;
    slot[k] = row[k] < 0 ? -1 : physical(p, table, row[k]);
  }
  store(slots + token * kWindow + 4 * lane, slot);
  store(logical + token * kWindow + 4 * lane, row);
  if (lane == 0) length[token] = min(position + 1, kWindow);
}

/// Item i is the selected entry i (CSA) or entry i itself (HCA, no `selected`). An entry that the token does not
/// see has no place in its block table, so it gets no slot. A thread takes kItems neighbouring items at a time.
template <int kItems>
__global__ void compressed_kernel(ListProblem p, CheckedIndices selected, int topk, const std::int32_t* count,
                                  int ratio, std::int64_t width, std::int32_t* slots, std::int32_t* logical,
                                  std::int32_t* length) {
  const bool csa = selected.values != nullptr;
  const std::int64_t token = blockIdx.x;
  const std::int32_t visible = (p.position[token] + 1) / ratio;
  const std::int32_t items = csa ? count[token] : visible;
  const std::int32_t* const table = p.tables + p.table_offset[token];
  for (int i = kItems * static_cast<int>(threadIdx.x); i < width; i += kItems * static_cast<int>(blockDim.x)) {
    std::int32_t slot[kItems], entry[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      entry[k] = i + k >= items ? -1 : csa ? selected[token * topk + i + k] : i + k;
      slot[k] = entry[k] < 0 || entry[k] >= visible ? -1 : physical(p, table, entry[k]);
    }
    store(slots + token * width + i, slot);
    store(logical + token * width + i, entry);
  }
  if (threadIdx.x == 0) length[token] = items;
}

}  // namespace

void attention_lists(const StageCall& call) {
  CudaEngine& engine = engine_of(call);
  const StepLayout& layout = engine.layout();
  const std::int64_t tokens = layout.tokens;
  const LayerKind kind = engine.kind(call.layer);
  const DeviceTensor window = engine.publish(call.layer, TensorId::window_slots, DType::int32, {tokens, kWindow});
  const DeviceTensor window_logical = engine.publish(call.layer, TensorId::window_logical, DType::int32, {tokens, kWindow});
  const DeviceTensor window_length = engine.publish(call.layer, TensorId::window_length, DType::int32, {tokens});
  ListProblem p{layout.rows.position.device, layout.rows.window_table.device, layout.tables.device,
                engine.config().cache.swa_page, tokens};
  if (tokens > 0) {
    window_kernel<<<static_cast<unsigned>((tokens + kWarps - 1) / kWarps), 32 * kWarps, 0, engine.stream()>>>(
        p, window.as<std::int32_t>(), window_logical.as<std::int32_t>(), window_length.as<std::int32_t>());
    DSV4_LAUNCHED("window_kernel");
  }
  if (!has_compressor(kind)) return;

  const bool csa = kind == LayerKind::csa;
  const int topk = engine.geometry().index_topk;
  const std::int64_t width = csa ? std::min(topk, layout.widest_c4) : layout.widest_c128;
  const DeviceTensor slots = engine.publish(call.layer, TensorId::compressed_slots, DType::int32, {tokens, width});
  const DeviceTensor logical = engine.publish(call.layer, TensorId::compressed_logical, DType::int32, {tokens, width});
  const DeviceTensor length = engine.publish(call.layer, TensorId::compressed_length, DType::int32, {tokens});
  if (tokens == 0) return;
  p.table_offset = csa ? layout.rows.entries_c4_table.device : layout.rows.entries_c128_table.device;
  p.page_rows = csa ? engine.config().cache.c4_page : engine.config().cache.c128_page;
  const auto kernel = width % 4 == 0 ? compressed_kernel<4> : compressed_kernel<1>;
  kernel<<<static_cast<unsigned>(tokens), 128, 0, engine.stream()>>>(
      p, csa ? engine.checked(call.layer, TensorId::selected, layout.widest_c4) : CheckedIndices{}, topk,
      csa ? engine.input(call.layer, TensorId::selected_count).as<std::int32_t>() : nullptr, ratio(kind), width,
      slots.as<std::int32_t>(), logical.as<std::int32_t>(), length.as<std::int32_t>());
  DSV4_LAUNCHED("compressed_kernel");
}

}  // namespace dsv4::gpu
