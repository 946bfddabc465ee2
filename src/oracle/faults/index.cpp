#include "oracle/faults/index.hpp"

#include <algorithm>
#include <cstring>

#include "arith/bf16.hpp"
#include "arith/e2m1.hpp"
#include "arith/e4m3.hpp"
#include "arith/ue8m0.hpp"
#include "model/layout.hpp"
#include "oracle/faults/math.hpp"

namespace dsv4::oracle::faults {
namespace {

using enum TensorId;

struct Key {
  std::vector<float> values;
  float scale = 1;  ///< FP8: applied to the sum
};

Key key_of(std::span<const std::byte> row, bool fp4) {
  Key key{std::vector<float>(kIndexDim)};
  for (std::size_t i = 0; i < key.values.size(); ++i) {
    if (!fp4) {
      key.values[i] = arith::e4m3_to_f32(static_cast<std::uint8_t>(row[i]));
      continue;
    }
    const auto pair = static_cast<unsigned>(row[i / 2]);
    const auto scale =
        static_cast<std::uint8_t>(row[layout::kIndexFp4ValueBytes + i / layout::kIndexFp4Block]);
    const auto code = static_cast<std::uint8_t>(i % 2 == 0 ? pair & 15U : pair >> 4);
    key.values[i] = arith::e2m1_to_f32(code) * arith::ue8m0_to_f32(scale);
  }
  if (!fp4) std::memcpy(&key.scale, row.data() + layout::kIndexFp8ValueBytes, sizeof(float));
  return key;
}

/// The query heads of a token as numbers.
std::vector<std::vector<float>> query_of(const Tensor& codes, const Tensor& scales, std::int64_t token,
                                         bool fp4) {
  const auto heads = static_cast<std::size_t>(codes.dim(1));
  const auto row = tensor_row<std::uint8_t>(codes, token);
  std::vector<std::vector<float>> query(heads, std::vector<float>(kIndexDim));
  for (std::size_t head = 0; head < heads; ++head) {
    for (std::size_t i = 0; i < kIndexDim; ++i) {
      const std::uint8_t code = row[head * kIndexDim + i];
      if (!fp4) {
        query[head][i] = arith::e4m3_to_f32(code);
        continue;
      }
      const auto scale_row = tensor_row<std::uint8_t>(scales, token);
      const std::size_t blocks = scale_row.size() / heads;
      query[head][i] = arith::e2m1_to_f32(code) *
                       arith::ue8m0_to_f32(scale_row[head * blocks + i / layout::kIndexFp4Block]);
    }
  }
  return query;
}

/// Head weights with the query's scale but without the constant.
std::vector<float> unscaled_weights(FaultyEngine& subject, const StageCall& call, std::int64_t token,
                                    bool fp4) {
  const std::int64_t heads = subject.config().geometry.index_heads;
  const auto projected = linear(subject.weights(call.layer).indexer_weights_proj, 0, heads,
                                tensor_row<std::uint16_t>(subject.input(call.layer, hidden), token));
  std::vector<float> weights = widened(projected);
  if (fp4) return weights;
  const auto scales = tensor_row<float>(subject.input(call.layer, query_scales), token);
  for (std::size_t head = 0; head < weights.size(); ++head) weights[head] = weights[head] * scales[head];
  return weights;
}

std::int32_t visible_count(const FaultyEngine& subject, const StageCall& call, const RequestStep& request,
                           std::int32_t position, const ScoreChange& change) {
  std::int32_t count = (position + 1) / 4;
  if (change.visible == ScoreChange::Visible::last_of_verify && request.verify) count = request.end / 4;
  if (change.visible == ScoreChange::Visible::one_more) count = position / 4 + 1;
  // An entry whose page is not held has no address to read.
  while (count > 0 && slot_in(subject.config(), call.layer, Cache::entries, request, count - 1) < 0) --count;
  return count;
}

void install(FaultyEngine& subject, const ScoreChange& change) {
  subject.after(Stage::indexer_score,
                [&subject, change](const StageCall& call) { rescore(subject, call, change); });
}

}  // namespace

void rescore(FaultyEngine& subject, const StageCall& call, const ScoreChange& change) {
  const bool fp4 = subject.config().profile.get<IndexCache>() == IndexCache::fp4;
  const Tensor& published = subject.input(call.layer, scores);
  const Tensor& codes = subject.input(call.layer, query_codes);
  const Tensor& scales = subject.input(call.layer, query_scales);
  const Tensor& folded = subject.input(call.layer, query_weights);
  Tensor counts = subject.input(call.layer, visible);
  std::int64_t width = published.dim(1);
  for (const RequestStep& request : call.plan.requests) {
    for (std::int32_t i = 0; i < request.row_count; ++i) {
      const std::int32_t count = visible_count(subject, call, request, request.begin + i, change);
      counts.as<std::int32_t>()[static_cast<std::size_t>(request.first_row + i)] = count;
      width = std::max<std::int64_t>(width, count);
    }
  }
  Tensor result(DType::float32, {published.dim(0), width});
  for (std::int64_t token = 0; token < published.dim(0); ++token)
    std::ranges::copy(tensor_row<float>(published, token), tensor_row<float>(result, token).begin());
  for (const RequestStep& request : call.plan.requests) {
    std::vector<Key> keys;
    for (std::int32_t i = 0; i < request.row_count; ++i) {
      const std::int64_t token = request.first_row + i;
      const std::int32_t count = counts.as<std::int32_t>()[static_cast<std::size_t>(token)];
      while (std::ssize(keys) < count) {
        const auto entry = static_cast<std::int32_t>(keys.size());
        const std::int64_t slot = slot_in(subject.config(), call.layer, Cache::index_entries, request, entry);
        require(slot >= 0, "a score of a fault reads an entry whose page is not held");
        keys.push_back(key_of(subject.row(call.layer, Cache::index_entries, slot), fp4));
      }
      const auto query = query_of(codes, scales, token, fp4);
      const auto own = tensor_row<float>(folded, token);
      const std::vector<float> weights = change.unscaled_weights ? unscaled_weights(subject, call, token, fp4)
                                                                 : std::vector<float>(own.begin(), own.end());
      for (std::int32_t entry = 0; entry < count; ++entry) {
        const Key& key = keys[static_cast<std::size_t>(entry)];
        std::vector<float> heads;
        for (const std::vector<float>& head : query) {
          const float t = dot32(head, key.values);
          heads.push_back(change.relu_after_sum || t > 0 ? t : 0.0F);
        }
        float sum = dot32(heads, weights);
        if (change.relu_after_sum) sum = sum > 0 ? sum : 0.0F;
        tensor_row<float>(result, token)[static_cast<std::size_t>(entry)] = fp4 ? sum : sum * key.scale;
      }
    }
  }
  subject.change(call.layer, scores, std::move(result));
  subject.change(call.layer, visible, std::move(counts));
}

void score_relu_after_sum(FaultyEngine& subject, const Parameters&) {
  install(subject, {.relu_after_sum = true});
}
void score_without_weight_factor(FaultyEngine& subject, const Parameters&) {
  install(subject, {.unscaled_weights = true});
}
void visible_of_last_verify_row(FaultyEngine& subject, const Parameters&) {
  install(subject, {.visible = ScoreChange::Visible::last_of_verify});
}
void visible_one_too_many(FaultyEngine& subject, const Parameters&) {
  install(subject, {.visible = ScoreChange::Visible::one_more});
}

}  // namespace dsv4::oracle::faults
