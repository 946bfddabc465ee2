#include <algorithm>

#include "cli/kernels/stage_models.hpp"
#include "model/error.hpp"
#include "reference/kernels/sglang_c128_online.hpp"

namespace dsv4::cli::kernel_stages {
namespace {

constexpr std::int64_t kChunk = ratio(LayerKind::hca);
constexpr std::int64_t kDim = kHeadDim;

/// The state as the cache holds it, and [kv | score] rows of the step.
struct OnlineInput {
  std::vector<float> state;  ///< [3d]
  std::vector<float> rows;   ///< [positions from `first` on, 2d]
  std::int32_t first;
};

OnlineInput input_of(const KernelCall& call, const RequestStep& request) {
  const auto kv = call.input(TensorId::compress_kv).as<float>();
  const auto score = call.input(TensorId::compress_score).as<float>();
  CacheRows cache(call, Cache::state);
  // A restore step begins with the first row that it does not keep.
  OnlineInput in{cache.floats(cache.slot(request, 0), 0, 3 * kDim),
                 {},
                 std::max(request.begin, request.from.state_c128)};
  for (std::int32_t p = in.first; p < request.end; ++p) {
    const std::int64_t at = (request.first_row + p - request.begin) * kDim;
    in.rows.insert(in.rows.end(), kv.begin() + at, kv.begin() + at + kDim);
    in.rows.insert(in.rows.end(), score.begin() + at, score.begin() + at + kDim);
  }
  return in;
}

/// Token by token: one row of a request, and rows that are verified.
OnlineRun decode(const KernelCall& call, const RequestStep& request) {
  OnlineRun run;
  OnlineInput in = input_of(call, request);
  const float* const bias = call.weights().compressor.ape.data();
  std::vector<float> pooled(kDim);
  for (std::int32_t p = in.first; p < request.end; ++p) {
    const kernels::SglangDecodePlan plan{static_cast<std::uint32_t>(p + 1), 0, 0, 0};
    kernels::sglang_c128_online_decode({&plan, 1}, in.rows.data() + std::int64_t{p - in.first} * 2 * kDim,
                                       bias, kDim, in.state, pooled.data());
    // The last token of a window leaves the state alone: nobody reads it again.
    run.states[p] = in.state;
    if (p % kChunk == kChunk - 1) run.pooled[static_cast<std::int32_t>(p / kChunk)] = pooled;
  }
  return run;
}

/// By the segments of each 128-token chunk that the step has rows of.
OnlineRun prefill(const KernelCall& call, const RequestStep& request) {
  OnlineRun run;
  OnlineInput in = input_of(call, request);
  const float* const bias = call.weights().compressor.ape.data();
  for (std::int32_t begin = in.first; begin < request.end;) {
    const auto end = std::min(request.end, static_cast<std::int32_t>((begin / kChunk + 1) * kChunk));
    const auto count = static_cast<std::uint16_t>(end - begin);
    const float* const rows = in.rows.data() + std::int64_t{begin - in.first} * 2 * kDim;
    const kernels::SglangCompressPlan plan{static_cast<std::uint32_t>(end),
                                           static_cast<std::uint16_t>(count - 1), count, 0, 0};
    std::vector<float> pooled(kDim);
    if (end % kChunk == 0) {
      kernels::sglang_c128_online_prefill({&plan, 1}, {}, rows, bias, kDim, in.state, pooled.data());
      run.pooled[static_cast<std::int32_t>(begin / kChunk)] = pooled;
    } else {
      kernels::sglang_c128_online_prefill({}, {&plan, 1}, rows, bias, kDim, in.state, pooled.data());
    }
    run.states[end - 1] = in.state;
    begin = end;
  }
  return run;
}

}  // namespace

void sglang_online_pool(const KernelCall& call) {
  const Tensor& published = call.input(TensorId::compress_pooled);
  Tensor pooled(DType::float32, published.shape());
  float* out = pooled.as<float>().data();
  for (const RequestStep& request : call.plan().requests) {
    OnlineRun& run = call.memory.online[{call.layer(), request.request}];
    run = request.row_count == 1 || request.verify ? decode(call, request) : prefill(call, request);
    for (const auto& [entry, row] : run.pooled) {
      if (entry < request.from.entries_c128) continue;
      require(out < pooled.as<float>().data() + pooled.elements(),
              "kernel models pooled other entries than the stage");
      out = std::ranges::copy(row, out).out;
    }
  }
  require(out == pooled.as<float>().data() + pooled.elements(),
          "kernel models pooled other entries than the stage");
  call.publish(TensorId::compress_pooled, std::move(pooled));
}

/// The cache holds the kernel's rows, whose third part is the mean. What is published keeps its meaning: the
/// weighted sum, that is the mean times the sum, rounded. The last token of a window has no state in the
/// kernel; its published maximum and sum are the stage's own.
void sglang_online_state(const KernelCall& call) {
  using enum TensorId;
  Tensor max = call.input(compress_state_max);
  Tensor sum = call.input(compress_state_sum);
  Tensor kv = call.input(compress_state_kv);
  const auto tokens = call.input(compress_state_token).as<std::int32_t>();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Row& token = call.plan().rows.at(static_cast<std::size_t>(tokens[i]));
    const OnlineRun& run = call.memory.online.at({call.layer(), token.request});
    const auto at = static_cast<std::ptrdiff_t>(i) * kDim;
    float* const sums = sum.as<float>().data() + at;
    const float* mean = nullptr;
    if (const auto closed = run.pooled.find(static_cast<std::int32_t>(token.position / kChunk));
        token.position % kChunk == kChunk - 1 && closed != run.pooled.end()) {
      mean = closed->second.data();
    } else {
      const std::vector<float>& state = run.states.at(token.position);
      std::copy_n(state.begin(), kDim, max.as<float>().begin() + at);
      std::copy_n(state.begin() + kDim, kDim, sums);
      mean = state.data() + 2 * kDim;
    }
    float* const out = kv.as<float>().data() + at;
    for (std::int64_t c = 0; c < kDim; ++c) out[c] = mean[c] * sums[c];
  }
  call.rewrite(Cache::state, [&](const Write& write) {
    const std::vector<float>& state =
        call.memory.online.at({call.layer(), write.request}).states.at(write.index);
    const auto bytes = std::as_bytes(std::span(state));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  });
  call.publish(compress_state_max, std::move(max));
  call.publish(compress_state_sum, std::move(sum));
  call.publish(compress_state_kv, std::move(kv));
}

}  // namespace dsv4::cli::kernel_stages
