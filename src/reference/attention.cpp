#include "reference/attention.hpp"

#include <omp.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "model/geometry.hpp"
#include "reference/attention_bf16.hpp"
#include "reference/simd/kernels.hpp"

namespace dsv4::reference {
namespace {

/// Valid keys of a call in list order, and memory for the kernel. Sized once, reused by a thread.
class Workspace {
 public:
  Workspace(int heads, std::size_t longest)
      : keys_(longest),
        index_(longest),
        scratch_(
            static_cast<std::size_t>(simd::attention_scratch(heads, static_cast<std::int64_t>(longest)))) {}

  /// Heads [first, first + count) of one token.
  void run(const simd::Kernels& kernels, const AttentionCall& call, int first, int count, const float* sink,
           const AttentionMode& mode) {
    std::int64_t valid = 0;
    for (std::size_t i = 0; i < call.keys.size(); ++i) {
      if (call.keys[i] == nullptr) continue;
      keys_[static_cast<std::size_t>(valid)] = call.keys[i];
      index_[static_cast<std::size_t>(valid)] = static_cast<std::int32_t>(i);
      ++valid;
    }
    const std::int64_t offset = std::int64_t{first} * kHeadDim;
    if (valid == 0) {
      constexpr float kInfinity = std::numeric_limits<float>::infinity();
      std::fill_n(call.out + offset, std::int64_t{count} * kHeadDim, std::uint16_t{0});
      std::fill_n(call.lse + first, count, mode.empty_lse == EmptyLse::plus_inf ? kInfinity : -kInfinity);
      return;
    }
    if (mode.softmax == Softmax::bf16) {
      attention_bf16({call.query + offset, call.keys, call.out + offset, call.lse + first},
                     count, sink + first, mode.sink_in_max == SinkInMax::yes);
      return;
    }
    kernels.attention({call.query + offset, sink + first, count, keys_.data(), index_.data(), valid,
                       static_cast<std::int64_t>(call.keys.size()), mode.softmax == Softmax::online64_bf16_p,
                       mode.sink_in_max == SinkInMax::yes, call.out + offset, call.lse + first,
                       scratch_.data()});
  }

 private:
  std::vector<const float*> keys_;
  std::vector<std::int32_t> index_;
  std::vector<float> scratch_;
};

/// Heads that are worth a task of their own when there are too few tokens for the threads.
constexpr int kHeadGroup = 32;
/// Fewer multiply-adds run on the calling thread: waking the others would take longer.
constexpr std::int64_t kParallelWork = 1 << 20;

}  // namespace

AttentionMode attention_mode(const Profile& profile) {
  return {profile.get<Softmax>(), profile.get<SinkInMax>(), profile.get<EmptyLse>()};
}

void attention(const AttentionCall& call, int heads, const float* sink, const AttentionMode& mode) {
  Workspace workspace(heads, call.keys.size());
  workspace.run(simd::kernels(), call, 0, heads, sink, mode);
}

void attention(std::span<const AttentionCall> calls, int heads, const float* sink,
               const AttentionMode& mode) {
  std::size_t longest = 0;
  for (const AttentionCall& call : calls) longest = std::max(longest, call.keys.size());
  const auto tokens = static_cast<std::int64_t>(calls.size());
  const int threads = omp_get_max_threads();
  const bool parallel = tokens * static_cast<std::int64_t>(longest) * heads * kHeadDim > kParallelWork;
  const int group = parallel && tokens < 4 * std::int64_t{threads} ? std::min(heads, kHeadGroup) : heads;
  const std::int64_t groups = (heads + group - 1) / group;
  std::vector<Workspace> workspaces(static_cast<std::size_t>(threads), Workspace(group, longest));
  const simd::Kernels& kernels = simd::kernels();
#pragma omp parallel for schedule(dynamic) if (parallel)
  for (std::int64_t i = 0; i < tokens * groups; ++i) {
    const int first = static_cast<int>(i % groups) * group;
    workspaces[static_cast<std::size_t>(omp_get_thread_num())].run(
        kernels, calls[static_cast<std::size_t>(i / groups)], first, std::min(group, heads - first), sink,
        mode);
  }
}

}  // namespace dsv4::reference
