#include "cli/model_kernels.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "arith/hopper/mufu.hpp"
#include "model/error.hpp"
#include "oracle/slots.hpp"
#include "reference/kernels/deepgemm_mqa_logits.hpp"
#include "reference/kernels/sglang_softmax.hpp"
#include "reference/kernels/vllm_compress_pool.hpp"

namespace dsv4::cli {
namespace {

/// Rows of a cache as the engine holds them, each page fetched once.
class CacheRows {
 public:
  CacheRows(const Engine& engine, int layer, Cache cache)
      : engine_(engine),
        layer_(layer),
        cache_(cache),
        shape_(oracle::cache_shape(engine.config(), layer, cache)) {}

  std::int64_t slot(const RequestStep& request, std::int32_t index) const {
    const std::int64_t slot = oracle::slot_of(shape_, *request.tables, request.state_base, index);
    require(slot >= 0, "a row that a kernel model reads has no page");
    return slot;
  }
  /// Value bytes of a row; of a state row everything.
  const std::byte* values(std::int64_t slot) { return page(slot) + slot % shape_.page_rows * value_bytes(); }
  const std::byte* scales(std::int64_t slot) {
    return page(slot) + shape_.page_rows * value_bytes() + slot % shape_.page_rows * shape_.scale_bytes;
  }
  /// n floats of a state row, from channel `first` on.
  std::vector<float> floats(std::int64_t slot, std::int64_t first, std::int64_t n) {
    std::vector<float> out(static_cast<std::size_t>(n));
    std::memcpy(out.data(), values(slot) + 4 * first, out.size() * 4);
    return out;
  }

 private:
  std::int64_t value_bytes() const { return shape_.channels > 0 ? shape_.row_bytes() : shape_.value_bytes; }
  const std::byte* page(std::int64_t slot) {
    const std::int64_t number = slot / shape_.page_rows;
    const auto [found, added] = pages_.try_emplace(number);
    if (added) found->second = engine_.read_row(layer_, cache_, number);
    return found->second.data();
  }

  const Engine& engine_;
  int layer_;
  Cache cache_;
  oracle::CacheShape shape_;
  std::map<std::int64_t, std::vector<std::byte>> pages_;
};

const Tensor& needed(const Engine& engine, int layer, TensorId id) {
  const Tensor* tensor = engine.tensor(layer, id);
  if (tensor == nullptr) throw InternalError("kernel models: " + path(id) + " was not published");
  return *tensor;
}

/// One row of a window: d values each.
struct WindowRow {
  std::vector<float> kv, score;
};

float sglang_pool(std::span<const float> scores, std::span<const float> kv) {
  using namespace kernels;
  if (scores.size() == 8) {
    const SglangPartial partial = sglang_softmax8(scores.data(), kv.data());
    return stored(ftz_mul(partial.product, arith::hopper::rcp_ftz(partial.sum)));
  }
  std::array<SglangPartial, kSglangWarps> parts;
  for (std::size_t w = 0; w < parts.size(); ++w)
    parts[w] = sglang_softmax8(scores.data() + 8 * w, kv.data() + 8 * w);
  return stored(sglang_merge(parts).mean);
}

/// What a kernel takes for rows before the first position.
struct Pooling {
  kernels::PoolColumn column;
  float masked_score;
};

Pooling pooling_of(const Profile& profile) {
  if (profile.name.starts_with("vllm-"))
    return {kernels::vllm_pool_one_stage, -std::numeric_limits<float>::infinity()};
  if (profile.name.starts_with("sglang-")) return {sglang_pool, -std::numeric_limits<float>::max()};
  throw UsageError("--model-kernels: profile '" + profile.name +
                   "' has no kernel models (known: vllm-fp8, vllm-mxfp4, sglang-fp8, sglang-fp4)");
}

void pool(const StageCall& call, const Pooling& pooling, const WeightSource& weights) {
  const Engine& engine = call.engine;
  const bool indexer = call.stage == Stage::indexer_pool;
  const LayerKind kind = engine.config().layers[static_cast<std::size_t>(call.layer)];
  const int d = indexer ? kIndexDim : kHeadDim;
  const int r = ratio(kind);
  const bool overlap = kind == LayerKind::csa;
  const std::int64_t channels = compressor_channels(kind, d);
  const TensorId pooled_id = indexer ? TensorId::indexer_pooled : TensorId::compress_pooled;
  const auto kv =
      needed(engine, call.layer, indexer ? TensorId::indexer_kv : TensorId::compress_kv).as<float>();
  const auto score =
      needed(engine, call.layer, indexer ? TensorId::indexer_score_raw : TensorId::compress_score)
          .as<float>();
  const auto layer_weights = weights.layer(call.layer);
  const std::vector<float>& ape =
      (indexer ? layer_weights->indexer_compressor : layer_weights->compressor).ape;
  CacheRows state(engine, call.layer, indexer ? Cache::index_state : Cache::state);
  Tensor pooled = needed(engine, call.layer, pooled_id);
  float* out = pooled.as<float>().data();

  for (const RequestStep& request : call.plan.requests) {
    const std::int32_t keep = overlap ? request.from.entries_c4 : request.from.entries_c128;
    for (std::int32_t j = std::max(keep, request.begin / r); j < request.end / r; ++j) {
      std::vector<WindowRow> rows;
      for (std::int32_t p = overlap ? (j - 1) * r : j * r; p < (j + 1) * r; ++p) {
        const std::int64_t column = overlap && p >= j * r ? d : 0;
        if (p < 0) {
          rows.push_back({std::vector<float>(d, 0.0F), std::vector<float>(d, pooling.masked_score)});
        } else if (p < request.begin) {
          const std::int64_t slot = state.slot(request, p);
          rows.push_back({state.floats(slot, column, d), state.floats(slot, channels + column, d)});
        } else {
          const std::int64_t at = (request.first_row + p - request.begin) * channels + column;
          WindowRow row{{kv.begin() + at, kv.begin() + at + d}, {score.begin() + at, score.begin() + at + d}};
          for (int c = 0; c < d; ++c) row.score[c] = row.score[c] + ape[p % r * channels + column + c];
          rows.push_back(std::move(row));
        }
      }
      std::vector<float> scores(rows.size());
      std::vector<float> values(rows.size());
      for (int c = 0; c < d; ++c) {
        for (std::size_t i = 0; i < rows.size(); ++i) {
          scores[i] = rows[i].score[c];
          values[i] = rows[i].kv[c];
        }
        *out++ = pooling.column(scores, values);
      }
    }
  }
  require(out == pooled.as<float>().data() + pooled.elements(),
          "kernel models pooled other entries than the stage");
  call.engine.set_tensor(call.layer, pooled_id, std::move(pooled));
}

/// Scores beyond `visible` stay as the stage made them.
void score(const StageCall& call) {
  const Engine& engine = call.engine;
  CacheRows rows(engine, call.layer, Cache::index_entries);
  const Tensor& codes = needed(engine, call.layer, TensorId::query_codes);
  const auto visible = needed(engine, call.layer, TensorId::visible).as<std::int32_t>();
  const float* const weights = needed(engine, call.layer, TensorId::query_weights).as<float>().data();
  Tensor scores = needed(engine, call.layer, TensorId::scores);
  const std::int64_t width = scores.dim(1);
  const int heads = engine.config().geometry.index_heads;
  for (const RequestStep& request : call.plan.requests) {
    const std::int32_t count = request.end / ratio(LayerKind::csa);
    std::vector<std::uint8_t> keys(static_cast<std::size_t>(count) * kIndexDim);
    std::vector<float> scales(static_cast<std::size_t>(count));
    for (std::int32_t j = 0; j < count; ++j) {
      const std::int64_t slot = rows.slot(request, j);
      std::memcpy(keys.data() + std::int64_t{j} * kIndexDim, rows.values(slot), kIndexDim);
      std::memcpy(&scales[static_cast<std::size_t>(j)], rows.scales(slot), sizeof(float));
    }
    const std::vector<std::int32_t> starts(static_cast<std::size_t>(request.row_count), 0);
    kernels::DeepgemmMqaLogits in;
    in.tokens = request.row_count;
    in.keys = count;
    in.heads = heads;
    in.dim = kIndexDim;
    in.q = codes.as<std::uint8_t>().data() + std::int64_t{request.first_row} * heads * kIndexDim;
    in.kv = keys.data();
    in.kv_scales = scales.data();
    in.weights = weights + std::int64_t{request.first_row} * heads;
    in.key_start = starts.data();
    in.key_end = visible.data() + request.first_row;
    kernels::deepgemm_mqa_logits(in, scores.as<float>().data() + request.first_row * width, width);
  }
  call.engine.set_tensor(call.layer, TensorId::scores, std::move(scores));
}

bool scores_modelled(const RunConfig& config) {
  const int heads = config.geometry.index_heads;
  return config.profile.get<IndexCache>() == IndexCache::fp8 && (heads == 32 || heads == 64);
}

}  // namespace

void use_model_kernels(Engine& engine, std::shared_ptr<const WeightSource> weights) {
  const RunConfig& config = engine.config();
  const Pooling pooling = pooling_of(config.profile);
  if (!engine.info().byte_state) {
    throw UsageError("--model-kernels: engine '" + engine.info().name + "' has no byte-exact caches");
  }
  if (config.cache.c128_state == C128State::online && std::ranges::count(config.layers, LayerKind::hca) > 0) {
    throw UsageError("--model-kernels: online C128 state is not pooled from rows");
  }
  const auto after = [&engine](Stage stage, StageFunction replace) {
    StageFunction& entry = engine.stages()[static_cast<std::size_t>(stage)];
    entry = [inner = std::move(entry), then = std::move(replace)](const StageCall& call) {
      inner(call);
      then(call);
    };
  };
  for (const Stage stage : {Stage::compress_pool, Stage::indexer_pool}) {
    after(stage, [pooling, weights](const StageCall& call) { pool(call, pooling, *weights); });
  }
  if (scores_modelled(config)) after(Stage::indexer_score, score);
}

compare::Rules make_rules(const std::string& name, bool bits, const SourceInfo& reference,
                          const SourceInfo& subject) {
  const compare::RuleSet set = !name.empty() ? compare::rule_set_named(name)
                               : bits        ? compare::RuleSet::bits
                                             : compare::RuleSet::values;
  if (set != compare::RuleSet::hopper_exact) return compare::Rules(set);
  if (!has_model_kernels(reference) && !has_model_kernels(subject))
    throw UsageError("--rules hopper-exact: neither side is a run with --model-kernels");
  std::vector<TensorId> modelled{TensorId::compress_pooled, TensorId::indexer_pooled};
  if (scores_modelled((has_model_kernels(reference) ? reference : subject).config))
    modelled.push_back(TensorId::scores);
  return compare::Rules(set, modelled);
}

}  // namespace dsv4::cli
