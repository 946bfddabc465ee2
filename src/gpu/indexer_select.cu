/// indexer.select: the K best entries in the order of docs/numerics.md 2, ties by lower index (13, 18).
#include "gpu/check.cuh"
#include "gpu/cuda_engine.cuh"

namespace dsv4::gpu {
namespace {

constexpr int kThreads = 256;

/// Larger is better: numbers by value with -0 = +0, then -inf, then NaN (0).
__device__ std::uint32_t order_key(float score) {
  std::uint32_t bits = __float_as_uint(score);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return 0;
  if (bits == 0x80000000U) bits = 0;
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

/// One block a token. The key of the K-th entry is found digit by digit (counts are integers, so their order does
/// not matter), then entries above it, and the first ones equal to it, are written ascending by index.
__global__ void __launch_bounds__(kThreads) select_kernel(const float* scores, CheckedIndices visible_of,
                                                          std::int64_t width, int topk, std::int32_t* selected,
                                                          std::int32_t* count_of) {
  __shared__ int histogram[256];
  __shared__ std::uint32_t prefix;
  __shared__ int remaining;
  __shared__ int above[kThreads / 32], equal[kThreads / 32];
  const std::int64_t token = blockIdx.x;
  const int visible = max(visible_of[token], 0);
  const float* row = scores + token * width;
  std::int32_t* out = selected + token * topk;
  const int thread = static_cast<int>(threadIdx.x);
  const int count = min(topk, visible);
  if (thread == 0) {
    count_of[token] = count;
    prefix = 0;
    remaining = count;
  }
  __syncthreads();
  if (visible > topk) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      histogram[thread] = 0;
      __syncthreads();
      const std::uint32_t known = shift == 24 ? 0 : 0xFFFFFFFFU << (shift + 8);
      for (int i = thread; i < visible; i += kThreads) {
        const std::uint32_t key = order_key(row[i]);
        if ((key & known) == (prefix & known)) atomicAdd(&histogram[(key >> shift) & 255U], 1);
      }
      __syncthreads();
      if (thread == 0) {
        int digit = 255;
        while (histogram[digit] < remaining) remaining -= histogram[digit--];
        prefix |= static_cast<std::uint32_t>(digit) << shift;
      }
      __syncthreads();
    }
  }
  const bool all = visible <= topk;
  const std::uint32_t cut = prefix;
  const int ties = remaining;  // entries equal to the cut that are taken
  int taken_before = 0;
  int equal_before = 0;
  for (int base = 0; base < visible; base += kThreads) {
    const int i = base + thread;
    const std::uint32_t key = i < visible ? order_key(row[i]) : 0;
    const bool is_above = i < visible && (all || key > cut);
    const bool is_equal = i < visible && !all && key == cut;
    const unsigned above_mask = __ballot_sync(0xFFFFFFFFU, is_above);
    const unsigned equal_mask = __ballot_sync(0xFFFFFFFFU, is_equal);
    if (thread % 32 == 0) {
      above[thread / 32] = __popc(above_mask);
      equal[thread / 32] = __popc(equal_mask);
    }
    __syncthreads();
    int my_above = __popc(above_mask & ((1U << (thread % 32)) - 1));
    int my_equal = __popc(equal_mask & ((1U << (thread % 32)) - 1));
    int total_above = 0;
    int total_equal = 0;
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w < thread / 32) {
        my_above += above[w];
        my_equal += equal[w];
      }
      total_above += above[w];
      total_equal += equal[w];
    }
    const int equal_rank = equal_before + my_equal;
    if (is_above || (is_equal && equal_rank < ties)) {
      out[taken_before + my_above + (min(equal_rank, ties) - min(equal_before, ties))] = i;
    }
    taken_before += total_above + min(equal_before + total_equal, ties) - min(equal_before, ties);
    equal_before += total_equal;
    __syncthreads();
  }
  for (int i = count + thread; i < topk; i += kThreads) out[i] = -1;
}

/// Descending order (section 18): sorts a token's selection by score, then index. One block a token; bitonic.
__global__ void __launch_bounds__(kThreads) descending_kernel(const float* scores, const std::int32_t* count_of,
                                                              std::int64_t width, int topk, int padded,
                                                              std::int32_t* selected) {
  extern __shared__ std::uint64_t keys[];
  const std::int64_t token = blockIdx.x;
  const int count = max(count_of[token], 0);
  std::int32_t* out = selected + token * topk;
  for (int i = static_cast<int>(threadIdx.x); i < padded; i += kThreads) {
    keys[i] = ~std::uint64_t{0};
    if (i < count) {
      const std::uint32_t index = static_cast<std::uint32_t>(out[i]);
      keys[i] = std::uint64_t{~order_key(scores[token * width + index])} << 32 | index;
    }
  }
  for (int size = 2; size <= padded; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < padded; i += kThreads) {
        const int j = i ^ stride;
        if (j <= i) continue;
        const bool ascending = (i & size) == 0;
        if ((keys[i] > keys[j]) == ascending) {
          const std::uint64_t swap = keys[i];
          keys[i] = keys[j];
          keys[j] = swap;
        }
      }
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) out[i] = static_cast<std::int32_t>(keys[i] & 0xFFFFFFFFU);
}

}  // namespace

void indexer_select(const StageCall& call) {
  CudaEngine& engine = engine_of(call);
  const DeviceTensor scores = engine.input(call.layer, TensorId::scores);
  const CheckedIndices visible = engine.checked(call.layer, TensorId::visible, scores.shape[1] + 1);
  const std::int64_t tokens = engine.layout().tokens;
  const int topk = engine.geometry().index_topk;
  const DeviceTensor selected = engine.publish(call.layer, TensorId::selected, DType::int32, {tokens, topk});
  const DeviceTensor count = engine.publish(call.layer, TensorId::selected_count, DType::int32, {tokens});
  if (tokens == 0) return;
  const auto blocks = static_cast<unsigned>(tokens);
  select_kernel<<<blocks, kThreads, 0, engine.stream()>>>(scores.as<float>(), visible, scores.shape[1], topk,
                                                         selected.as<std::int32_t>(), count.as<std::int32_t>());
  DSV4_LAUNCHED("select_kernel");
  if (engine.profile().get<SelectOrder>() != SelectOrder::descending) return;
  int padded = 2;
  while (padded < topk) padded *= 2;
  const int bytes = padded * static_cast<int>(sizeof(std::uint64_t));
  DSV4_CUDA(cudaFuncSetAttribute(descending_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  descending_kernel<<<blocks, kThreads, static_cast<std::size_t>(bytes), engine.stream()>>>(
      scores.as<float>(), count.as<std::int32_t>(), scores.shape[1], topk, padded, selected.as<std::int32_t>());
  DSV4_LAUNCHED("descending_kernel");
}

}  // namespace dsv4::gpu
