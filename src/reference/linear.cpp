#include "reference/linear.hpp"

#include <omp.h>

#include <algorithm>
#include <span>
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

struct Product {
  const Matrix* weights;
  OutputRange range;
  Output out;
};

/// Outputs [first, first + count) of a product's range: what a thread takes at a time.
struct Group {
  const Product* product;
  std::int64_t first;
  std::int64_t count;
};

/// Whole panels, as many as share a block of inputs well, but few enough that every thread gets two groups.
std::vector<Group> groups_of(std::span<const Product> products, std::int64_t threads) {
  std::int64_t outputs = 0;
  for (const Product& product : products) outputs += product.range.count;
  std::int64_t most = simd::kOutputGroup;
  while (most > simd::kHeadPad && outputs / most < 2 * threads) most /= 2;
  std::vector<Group> groups;
  for (const Product& product : products) {
    for (std::int64_t first = 0; first < product.range.count; first += most) {
      groups.push_back({&product, first, std::min(most, product.range.count - first)});
    }
  }
  return groups;
}

/// A group for the decoded tokens [first_token, first_token + count).
void run(const simd::Kernels& kernels, const Group& group, bool codes, std::int64_t first_token,
         std::int64_t count, const DecodedInput& input, Scratch& own) {
  const Matrix& w = *group.product->weights;
  const Output& out = group.product->out;
  const bool fp8 = w.format == Matrix::Format::fp8_block128;
  const std::int64_t row = group.product->range.first + group.first;
  const std::int64_t to = first_token * out.stride + group.first;
  weight_scales(w, row, group.count, own.scales.data());
  simd::LinearTask task{};
  task.x = input.values.data();
  task.x_scales = input.scales.data();
  task.tokens = count;
  task.columns = w.columns;
  task.codes = fp8 ? w.codes.data() + row * w.columns : nullptr;
  task.bf16 = fp8 ? nullptr : w.bf16.data() + row * w.columns;
  task.w_scales = own.scales.data();
  task.dequantize = fp8 && !codes;
  task.outputs = group.count;
  task.out_f32 = out.f32 != nullptr ? out.f32 + to : nullptr;
  task.out_bf16 = out.bf16 != nullptr ? out.bf16 + to : nullptr;
  task.out_stride = out.stride;
  task.scratch = own.kernel.data();
  kernels.linear(task);
}

/// Products of one input, which is decoded once for all of them.
void run(std::span<const Product> products, const Activations& x, std::int64_t tokens) {
  for (const Product& product : products) check_call(*product.weights, product.range, x);
  const std::int64_t threads = omp_get_max_threads();
  const std::vector<Group> groups = groups_of(products, threads);
  if (tokens == 0 || groups.empty()) return;
  const std::int64_t columns = products.front().weights->columns;
  std::int64_t outputs = 0;
  std::int64_t most = 0;
  for (const Group& group : groups) {
    require(group.product->weights->columns == columns, "linear: products of one input differ in width");
    outputs += group.count;
    most = std::max(most, group.count);
  }
  // Chunks of equal size: a short last one would decode every weight for few tokens.
  const std::int64_t chunks = (tokens + simd::kTokenChunk - 1) / simd::kTokenChunk;
  const std::int64_t chunk = (tokens + chunks - 1) / chunks;
  const bool parallel = tokens * outputs * columns > kParallelWork;
  const auto group_count = static_cast<std::int64_t>(groups.size());
  const simd::Kernels& kernels = simd::kernels();
  Workspace& memory = workspace();
  memory.prepare(columns, chunk, most, threads);
  for (std::int64_t first_token = 0; first_token < tokens; first_token += chunk) {
    const std::int64_t count = std::min(chunk, tokens - first_token);
    decode_input(x, columns, first_token, count, memory.input);
#pragma omp parallel for schedule(dynamic) if (parallel)
    for (std::int64_t g = 0; g < group_count; ++g) {
      run(kernels, groups[static_cast<std::size_t>(g)], x.codes != nullptr, first_token, count, memory.input,
          memory.threads[static_cast<std::size_t>(omp_get_thread_num())]);
    }
  }
}

void run(const Product& product, const Activations& x, std::int64_t tokens) {
  run(std::span(&product, 1), x, tokens);
}

}  // namespace

OutputRange all_outputs(const Matrix& weights) {
  return {0, weights.rows};
}

void linear(const Matrix& weights, OutputRange range, const Activations& input, std::int64_t tokens,
            float* out, std::int64_t out_stride) {
  run(Product{&weights, range, {out, nullptr, out_stride}}, input, tokens);
}

void linear(const Matrix& weights, OutputRange range, const Activations& input, std::int64_t tokens,
            std::uint16_t* out, std::int64_t out_stride) {
  run(Product{&weights, range, {nullptr, out, out_stride}}, input, tokens);
}

void linear(std::span<const WholeProduct> products, const Activations& input, std::int64_t tokens) {
  std::vector<Product> all;
  for (const WholeProduct& product : products) {
    const Matrix& weights = *product.weights;
    all.push_back({&weights, all_outputs(weights), {product.out, nullptr, weights.rows}});
  }
  run(all, input, tokens);
}

}  // namespace dsv4::reference
