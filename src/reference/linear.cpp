#include "reference/linear.hpp"

#include <omp.h>

#include <algorithm>
#include <string>
#include <vector>

#include "arith/ue8m0.hpp"
#include "model/error.hpp"
#include "model/zeroed_memory.hpp"
#include "reference/simd/kernels.hpp"

namespace dsv4::reference {
namespace {

constexpr std::int64_t kBlock = simd::kSumBlock;

std::int64_t blocks(std::int64_t n) {
  return (n + kBlock - 1) / kBlock;
}

void check_call(const Matrix& w, OutputRange range, const Activations& x) {
  require(range.first >= 0 && range.count >= 0 && range.first + range.count <= w.rows,
          "linear: outputs outside the weight matrix");
  require((x.codes != nullptr) != (x.bf16 != nullptr), "linear: activations are either codes or bf16");
  require(x.codes == nullptr || x.scales != nullptr, "linear: FP8 activations without scales");
  if (x.codes != nullptr && w.format != Matrix::Format::fp8_block128) {
    throw UsageError("a weight matrix of " + std::to_string(w.rows) + " x " + std::to_string(w.columns) +
                     " is stored as bf16, but the profile multiplies FP8 codes (axes linear and wo_a)");
  }
}

/// Products below this many multiply-adds run on the calling thread: waking the others would take longer.
constexpr std::int64_t kParallelWork = 1 << 21;

/// Activations of a chunk of tokens in the order in which kernels read them: [block][token][128], and the
/// scale of each block [block][token].
struct DecodedInput {
  ZeroedArray<float> values;
  ZeroedArray<float> scales;
};

/// Tokens [first, first + count), spread over OpenMP threads.
void decode_input(const Activations& x, std::int64_t columns, std::int64_t first, std::int64_t count,
                  DecodedInput& input) {
  const std::int64_t block_count = blocks(columns);
  const std::int64_t stride = x.stride != 0 ? x.stride : columns;
  const std::int64_t scale_stride = x.scale_stride != 0 ? x.scale_stride : block_count;
  const simd::Kernels& kernels = simd::kernels();
#pragma omp parallel for schedule(static) if (count * columns > kParallelWork / 16)
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t b = 0; b < block_count; ++b) {
      const std::int64_t from = (first + t) * stride + b * kBlock;
      const std::int64_t width = std::min(kBlock, columns - b * kBlock);
      float* const to = input.values.data() + (b * count + t) * kBlock;
      float scale = 1.0F;
      if (x.codes != nullptr) {
        kernels.decode_e4m3(x.codes + from, width, 1.0F, to);
        scale = arith::ue8m0_to_f32(x.scales[(first + t) * scale_stride + b]);
      } else {
        kernels.widen_bf16(x.bf16 + from, width, to);
      }
      input.scales[static_cast<std::size_t>(b * count + t)] = scale;
    }
  }
}

/// Scales of outputs [first, first + count) for every block, [block][output].
void weight_scales(const Matrix& w, std::int64_t first, std::int64_t count, float* out) {
  const std::int64_t block_count = blocks(w.columns);
  for (std::int64_t b = 0; b < block_count; ++b) {
    for (std::int64_t n = 0; n < count; ++n) {
      const auto at = static_cast<std::size_t>((first + n) / kBlock * block_count + b);
      out[b * count + n] =
          w.format == Matrix::Format::fp8_block128 ? arith::ue8m0_to_f32(w.scales[at]) : 1.0F;
    }
  }
}

/// Where a product goes; one of the pointers is set.
struct Output {
  float* f32;
  std::uint16_t* bf16;
  std::int64_t stride;
};

/// What a thread needs beside the inputs.
struct Scratch {
  ZeroedArray<float> kernel;
  ZeroedArray<float> scales;
};

void grow(ZeroedArray<float>& memory, std::int64_t count) {
  if (std::ssize(memory) < count) memory = ZeroedArray<float>(static_cast<std::size_t>(count));
}

/// Memory of a product. The calling thread keeps it for its next one: to get as many fresh pages from the
/// system takes longer than to decode the inputs into them.
struct Workspace {
  DecodedInput input;
  std::vector<Scratch> threads;

  void prepare(std::int64_t columns, std::int64_t tokens, std::int64_t outputs, std::int64_t thread_count) {
    grow(input.values, blocks(columns) * tokens * kBlock);
    grow(input.scales, blocks(columns) * tokens);
    if (std::ssize(threads) < thread_count) threads.resize(static_cast<std::size_t>(thread_count));
    for (Scratch& own : threads) {
      grow(own.kernel, simd::kLinearScratch);
      grow(own.scales, blocks(columns) * outputs);
    }
  }
};

Workspace& workspace() {
  thread_local Workspace kept;
  return kept;
}

void product(const Matrix& w, OutputRange range, const Activations& x, std::int64_t tokens,
             const Output& out) {
  check_call(w, range, x);
  if (tokens == 0 || range.count == 0) return;
  const simd::Kernels& kernels = simd::kernels();
  // Chunks of equal size: a short last one would decode every weight for few tokens.
  const std::int64_t chunks = (tokens + simd::kTokenChunk - 1) / simd::kTokenChunk;
  const std::int64_t chunk = (tokens + chunks - 1) / chunks;
  const std::int64_t threads = omp_get_max_threads();
  // Groups of whole panels, small enough that every thread gets several.
  std::int64_t group = simd::kOutputGroup;
  while (group > simd::kHeadPad && range.count / group < 4 * threads) group /= 2;
  const std::int64_t groups = (range.count + group - 1) / group;
  const bool dequantize = w.format == Matrix::Format::fp8_block128 && x.codes == nullptr;

  const bool parallel = tokens * range.count * w.columns > kParallelWork;

  Workspace& memory = workspace();
  memory.prepare(w.columns, chunk, group, threads);
  for (std::int64_t first_token = 0; first_token < tokens; first_token += chunk) {
    const std::int64_t count = std::min(chunk, tokens - first_token);
    decode_input(x, w.columns, first_token, count, memory.input);
#pragma omp parallel for schedule(dynamic) if (parallel)
    for (std::int64_t g = 0; g < groups; ++g) {
      Scratch& own = memory.threads[static_cast<std::size_t>(omp_get_thread_num())];
      const std::int64_t first = g * group;
      const std::int64_t outputs = std::min(group, range.count - first);
      const std::int64_t row = range.first + first;
      weight_scales(w, row, outputs, own.scales.data());
      const std::int64_t to = first_token * out.stride + first;
      simd::LinearTask task{};
      task.x = memory.input.values.data();
      task.x_scales = memory.input.scales.data();
      task.tokens = count;
      task.columns = w.columns;
      task.codes = w.format == Matrix::Format::fp8_block128 ? w.codes.data() + row * w.columns : nullptr;
      task.bf16 = w.format == Matrix::Format::bf16 ? w.bf16.data() + row * w.columns : nullptr;
      task.w_scales = own.scales.data();
      task.dequantize = dequantize;
      task.outputs = outputs;
      task.out_f32 = out.f32 != nullptr ? out.f32 + to : nullptr;
      task.out_bf16 = out.bf16 != nullptr ? out.bf16 + to : nullptr;
      task.out_stride = out.stride;
      task.scratch = own.kernel.data();
      kernels.linear(task);
    }
  }
}

}  // namespace

OutputRange all_outputs(const Matrix& weights) {
  return {0, weights.rows};
}

void linear(const Matrix& weights, OutputRange range, const Activations& input, std::int64_t tokens,
            float* out, std::int64_t out_stride) {
  product(weights, range, input, tokens, {out, nullptr, out_stride});
}

void linear(const Matrix& weights, OutputRange range, const Activations& input, std::int64_t tokens,
            std::uint16_t* out, std::int64_t out_stride) {
  product(weights, range, input, tokens, {nullptr, out, out_stride});
}

}  // namespace dsv4::reference
