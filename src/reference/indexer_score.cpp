#include <algorithm>
#include <array>

#include "reference/indexer_scores.hpp"
#include "reference/kv_row.hpp"
#include "reference/plain_index.hpp"
#include "reference/simd/kernels.hpp"
#include "reference/stages.hpp"

namespace dsv4::reference {
namespace {

/// Decoded keys are kept for as many requests at a time as fit here, so that a batch of decoding requests
/// shares the threads and a long context does not grow the scratch memory.
constexpr std::int64_t kScratchKeys = 1 << 17;

struct Group {
  std::size_t first = 0, last = 0;  ///< requests [first, last)
  std::int64_t keys = 0;
  std::vector<std::vector<std::int64_t>> slots;  ///< of each request's keys
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
    if (group.last > first && group.keys + count > kScratchKeys) break;
    group.keys += count;
    std::vector<std::int64_t>& rows = group.slots.emplace_back();
    const Slots slots = context.slots(request);
    for (std::int32_t j = 0; j < count; ++j) rows.push_back(slots.at(Cache::index_entries, j));
  }
  return group;
}

/// Keys of a group, packed request after request.
struct Keys {
  std::vector<std::int64_t> first;        ///< float at which each request's begin
  std::vector<std::int64_t> first_scale;  ///< and its scales
  ZeroedArray<float> values;
  std::vector<float> scales;  ///< FP8 only
};

/// Up to a panel of one request's keys.
struct Piece {
  const std::int64_t* slots;
  std::int64_t count;
  std::int64_t to;
  std::int64_t to_scale;
};

void decode_piece(const RowStore& store, IndexCache format, const Piece& piece, Keys& keys) {
  std::array<float, simd::kKeyPanelFloats> rows;
  for (std::int64_t j = 0; j < piece.count; ++j) {
    decode_index_row(store, piece.slots[j], format, rows.data() + j * kIndexDim,
                     keys.scales.data() + piece.to_scale + j);
  }
  pack_index_keys(rows.data(), piece.count, keys.values.data() + piece.to);
}

Keys decode_keys(const StageContext& context, const Group& group, IndexCache format) {
  Keys keys;
  std::vector<Piece> pieces;
  std::int64_t floats = 0;
  std::int64_t scales = 0;
  for (const std::vector<std::int64_t>& slots : group.slots) {
    const std::int64_t count = std::ssize(slots);
    for (std::int64_t j = 0; j < count; j += simd::kKeyPanel) {
      pieces.push_back({slots.data() + j, std::min<std::int64_t>(simd::kKeyPanel, count - j),
                        floats + j * kIndexDim, scales + j});
    }
    keys.first.push_back(floats);
    keys.first_scale.push_back(scales);
    floats += packed_index_keys(count);
    scales += count;
  }
  keys.values = ZeroedArray<float>(static_cast<std::size_t>(floats));
  keys.scales.resize(static_cast<std::size_t>(scales));
  const RowStore& store = context.state.caches.at(Cache::index_entries);
  const std::int64_t count = std::ssize(pieces);
#pragma omp parallel for schedule(static) if (count > 1)
  for (std::int64_t i = 0; i < count; ++i)
    decode_piece(store, format, pieces[static_cast<std::size_t>(i)], keys);
  return keys;
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
  const std::uint8_t* const codes = context.input(TensorId::query_codes).as<std::uint8_t>().data();
  const std::uint8_t* const scale_bytes =
      fp4 ? context.input(TensorId::query_scales).as<std::uint8_t>().data() : nullptr;
  const auto weights = context.input(TensorId::query_weights).as<float>();
  for (std::size_t first = 0; first < context.plan.requests.size();) {
    const Group group = next_group(context, first);
    const Keys keys = decode_keys(context, group, format);
    std::vector<IndexScoreCall> calls;
    for (std::size_t at = group.first; at < group.last; ++at) {
      const RequestStep& request = context.plan.requests[at];
      const std::size_t of = at - group.first;
      const float* const values = keys.values.data() + keys.first[of];
      const float* const scales = fp4 ? nullptr : keys.scales.data() + keys.first_scale[of];
      for (std::int64_t row = request.first_row; row < request.first_row + request.row_count; ++row) {
        calls.push_back({codes + row * heads * kIndexDim,
                         fp4 ? scale_bytes + row * heads * index_scales(format) : nullptr,
                         weights.data() + row * heads, values, scales,
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
