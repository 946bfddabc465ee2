#include <algorithm>
#include <optional>

#include "reference/attention.hpp"
#include "reference/kv_row.hpp"
#include "reference/stages.hpp"

namespace dsv4::reference {
namespace {

/// Tokens whose keys are decoded together: neighbours share most of their window and many entries, and the
/// scratch memory stays bounded.
constexpr std::int64_t kTokensAtOnce = 256;

/// One published list: slots [tokens, width] with the number of items that count.
struct List {
  const Tensor* slots;
  const Tensor* length;
  DecodedRows rows;
  std::vector<std::int32_t> indices;  ///< of the block's keys, -1 = invalid

  List(const StageContext& context, TensorId slots_id, TensorId length_id, Cache cache)
      : slots(&context.input(slots_id)),
        length(&context.input(length_id)),
        rows(context.state.caches.at(cache), context.profile().get<KvCache>()) {}

  std::int64_t width() const { return slots->dim(1); }
  std::int64_t items(std::int64_t token) const {
    return std::clamp<std::int64_t>(length->as<std::int32_t>()[static_cast<std::size_t>(token)], 0, width());
  }
  /// Appends the first `count` items of a token; items at or beyond the length are invalid.
  void collect(std::int64_t token, std::int64_t count) {
    const auto all = slots->as<std::int32_t>();
    for (std::int64_t item = 0; item < count; ++item) {
      const std::int32_t slot =
          item < items(token) ? all[static_cast<std::size_t>(token * width() + item)] : -1;
      indices.push_back(slot < 0 ? -1 : static_cast<std::int32_t>(rows.add(slot)));
    }
  }
  void append(std::size_t& next, std::int64_t count, std::vector<const float*>& keys) const {
    for (std::int64_t item = 0; item < count; ++item) {
      const std::int32_t index = indices[next++];
      keys.push_back(index < 0 ? nullptr : rows.row(static_cast<std::size_t>(index)));
    }
  }
};

struct Outputs {
  const std::uint16_t* query;
  std::uint16_t* out;
  float* lse;
};

void attend(const StageContext& context, std::int64_t first, std::int64_t last, const Outputs& outputs) {
  const std::int64_t heads = context.geometry().heads;
  List window(context, TensorId::window_slots, TensorId::window_length, Cache::window);
  std::optional<List> compressed;
  if (context.kind() != LayerKind::swa) {
    compressed.emplace(context, TensorId::compressed_slots, TensorId::compressed_length, Cache::entries);
  }
  std::vector<std::int64_t> tokens;
  for (std::int64_t token = first; token < last; ++token) {
    if (context.padding(token)) continue;
    tokens.push_back(token);
    window.collect(token, kWindow);
    if (compressed) compressed->collect(token, compressed->items(token));
  }
  window.rows.decode();
  if (compressed) compressed->rows.decode();

  // List index of a key: the window part is padded to W, the compressed part follows (section 14).
  std::vector<const float*> keys;
  std::vector<std::size_t> begins{0};
  std::size_t next_window = 0;
  std::size_t next_compressed = 0;
  for (const std::int64_t token : tokens) {
    window.append(next_window, kWindow, keys);
    if (compressed) compressed->append(next_compressed, compressed->items(token), keys);
    begins.push_back(keys.size());
  }
  std::vector<AttentionCall> calls;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::int64_t at = tokens[i] * heads;
    calls.push_back({outputs.query + at * kHeadDim,
                     std::span(keys).subspan(begins[i], begins[i + 1] - begins[i]),
                     outputs.out + at * kHeadDim, outputs.lse + at});
  }
  attention(calls, static_cast<int>(heads), context.weights().attn_sink.data(),
            attention_mode(context.profile()));
}

}  // namespace

void attention_core(StageContext& context) {
  const std::int64_t tokens = context.tokens();
  const std::int64_t heads = context.geometry().heads;
  Tensor out(DType::bfloat16, {tokens, heads, kHeadDim});
  Tensor lse(DType::float32, {tokens, heads});
  const Outputs outputs{context.input(TensorId::q).as<std::uint16_t>().data(), out.as<std::uint16_t>().data(),
                        lse.as<float>().data()};
  for (std::int64_t first = 0; first < tokens; first += kTokensAtOnce) {
    attend(context, first, std::min(tokens, first + kTokensAtOnce), outputs);
  }
  context.publish(TensorId::attention_out, std::move(out));
  context.publish(TensorId::attention_lse, std::move(lse));
}

}  // namespace dsv4::reference
