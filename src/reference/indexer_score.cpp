#include <algorithm>

#include "reference/indexer_scores.hpp"
#include "reference/kv_row.hpp"
#include "reference/plain_index.hpp"
#include "reference/stages.hpp"

namespace dsv4::reference {
namespace {

/// Decoded keys are kept for as many requests at a time as fit here, so that a batch of decoding requests
/// shares the threads and a long context does not grow the scratch memory.
constexpr std::int64_t kScratchKeys = 1 << 17;

struct Group {
  std::size_t first = 0, last = 0;      ///< requests [first, last)
  std::vector<std::int64_t> slots;      ///< of every key, request after request
  std::vector<std::int64_t> first_key;  ///< of each request
};

/// Entries that a request's last row sees: (j + 1) * r <= p + 1.
std::int32_t widest(const StageContext& context, const RequestStep& request) {
  return request.end / ratio(context.kind());
}

Group next_group(const StageContext& context, std::size_t first) {
  Group group;
  group.first = first;
  const auto& requests = context.plan.requests;
  for (group.last = first; group.last < requests.size(); ++group.last) {
    const RequestStep& request = requests[group.last];
    const std::int32_t count = widest(context, request);
    if (group.last > first && std::ssize(group.slots) + count > kScratchKeys) break;
    group.first_key.push_back(std::ssize(group.slots));
    const Slots slots = context.slots(request);
    for (std::int32_t j = 0; j < count; ++j) group.slots.push_back(slots.at(Cache::index_entries, j));
  }
  return group;
}

struct Keys {
  std::vector<float> values;  ///< [keys, 128]
  std::vector<float> scales;  ///< [keys], FP8 only
};

Keys decode_keys(const StageContext& context, const Group& group, IndexCache format) {
  const RowStore& store = context.state.caches.at(Cache::index_entries);
  const std::int64_t count = std::ssize(group.slots);
  Keys keys;
  keys.values.resize(static_cast<std::size_t>(count * kIndexDim));
  keys.scales.resize(static_cast<std::size_t>(count));
#pragma omp parallel for schedule(static) if (count > 64)
  for (std::int64_t key = 0; key < count; ++key) {
    const auto at = static_cast<std::size_t>(key);
    decode_index_row(store, group.slots[at], format, keys.values.data() + key * kIndexDim, &keys.scales[at]);
  }
  return keys;
}

/// Query values [tokens, heads, 128]: of the codes (FP8), or dequantised (FP4).
std::vector<float> decode_queries(const StageContext& context, bool fp4) {
  const auto codes = context.input(TensorId::query_codes).as<std::uint8_t>();
  const Tensor& scales = context.input(TensorId::query_scales);
  const std::int64_t vectors = context.tokens() * context.geometry().index_heads;
  const std::uint8_t* const fp4_scales = fp4 ? scales.as<std::uint8_t>().data() : nullptr;
  std::vector<float> values(codes.size());
#pragma omp parallel for schedule(static) if (vectors > 64)
  for (std::int64_t at = 0; at < vectors; ++at) {
    const std::uint8_t* row = codes.data() + at * kIndexDim;
    float* out = values.data() + at * kIndexDim;
    if (fp4) {
      dequantize_e2m1(row, fp4_scales + at * 4, kIndexDim, out);
    } else {
      decode_e4m3(row, kIndexDim, out);
    }
  }
  return values;
}

}  // namespace

void indexer_score(StageContext& context) {
  const std::int64_t tokens = context.tokens();
  const int heads = context.geometry().index_heads;
  const IndexCache format = context.profile().get<IndexCache>();
  const bool fp4 = format == IndexCache::fp4;
  const int r = ratio(context.kind());
  Tensor visible(DType::int32, {tokens});
  std::int64_t width = 0;
  for (std::int64_t token = 0; token < tokens; ++token) {
    const std::int32_t count = context.padding(token) ? 0 : (context.position(token) + 1) / r;
    visible.as<std::int32_t>()[static_cast<std::size_t>(token)] = count;
    width = std::max<std::int64_t>(width, count);
  }
  if (layout::plain(format)) return plain_index_scores(context, std::move(visible), width);
  Tensor scores(DType::float32, {tokens, width});
  const std::vector<float> queries = decode_queries(context, fp4);
  const auto weights = context.input(TensorId::query_weights).as<float>();
  for (std::size_t first = 0; first < context.plan.requests.size();) {
    const Group group = next_group(context, first);
    const Keys keys = decode_keys(context, group, format);
    std::vector<IndexScoreCall> calls;
    for (std::size_t at = group.first; at < group.last; ++at) {
      const RequestStep& request = context.plan.requests[at];
      const std::int64_t key = group.first_key[at - group.first];
      for (std::int64_t row = request.first_row; row < request.first_row + request.row_count; ++row) {
        calls.push_back({queries.data() + row * heads * kIndexDim, weights.data() + row * heads,
                         keys.values.data() + key * kIndexDim, fp4 ? nullptr : keys.scales.data() + key,
                         visible.as<std::int32_t>()[static_cast<std::size_t>(row)],
                         scores.as<float>().data() + row * width});
      }
    }
    index_scores(calls, heads, context.profile().get<IndexRound>());
    first = group.last;
  }
  context.publish(TensorId::scores, std::move(scores));
  context.publish(TensorId::visible, std::move(visible));
}

}  // namespace dsv4::reference
