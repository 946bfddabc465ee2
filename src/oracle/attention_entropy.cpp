#include "oracle/attention_entropy.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "arith/bf16.hpp"
#include "io/decode.hpp"
#include "oracle/slots.hpp"

namespace dsv4::oracle {
namespace {

/// Decoded key rows of one layer, each page read once.
class Keys {
 public:
  Keys(const Engine& engine, int layer) : engine_(engine), layer_(layer) {}

  const std::array<float, kHeadDim>& at(Cache cache, std::int32_t slot) {
    const auto found = rows_.find({cache, slot});
    if (found != rows_.end()) return found->second;
    const int rows = cache_shape(engine_.config(), layer_, cache).page_rows;
    const std::vector<std::byte> page = engine_.read_row(layer_, cache, slot / rows);
    const io::KvRow row = io::decode_kv_row(io::kv_page_row(page, rows, slot % rows));
    return rows_.emplace(std::pair{cache, slot}, row.values).first->second;
  }

 private:
  const Engine& engine_;
  int layer_;
  std::map<std::pair<Cache, std::int32_t>, std::array<float, kHeadDim>> rows_;
};

const Tensor* find(const LayerObservation& layer, TensorId id) {
  const auto found = layer.tensors.find(id);
  return found == layer.tensors.end() ? nullptr : &found->second;
}

void append_keys(Keys& keys, Cache cache, const Tensor* slots, const Tensor* lengths, std::int64_t token,
                 std::vector<const std::array<float, kHeadDim>*>& out) {
  if (slots == nullptr || lengths == nullptr || slots->shape().size() != 2) return;
  const std::int64_t length =
      std::min<std::int64_t>(lengths->as<std::int32_t>()[static_cast<std::size_t>(token)], slots->dim(1));
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int32_t slot = slots->as<std::int32_t>()[static_cast<std::size_t>(token * slots->dim(1) + i)];
    if (slot >= 0) out.push_back(&keys.at(cache, slot));
  }
}

/// Nats; NaN when a key or the query is no number.
double entropy_of(std::span<const std::uint16_t> query,
                  const std::vector<const std::array<float, kHeadDim>*>& keys) {
  std::vector<double> z;
  z.reserve(keys.size());
  for (const auto* key : keys) {
    double dot = 0;
    for (std::size_t i = 0; i < query.size(); ++i) {
      dot += static_cast<double>(arith::bf16_to_f32(query[i])) * static_cast<double>((*key)[i]);
    }
    z.push_back(dot / std::sqrt(static_cast<double>(kHeadDim)));
  }
  const double largest = *std::ranges::max_element(z);
  double sum = 0;
  double weighted = 0;
  for (const double one : z) {
    sum += std::exp(one - largest);
    weighted += std::exp(one - largest) * (one - largest);
  }
  return std::log(sum) - weighted / sum;
}

}  // namespace

void add_attention_entropy(const Engine& engine, const StepObservation& step,
                           std::vector<compare::TensorStatistics>& rows) {
  if (!engine.info().byte_state || layout::plain(engine.config().profile.get<KvCache>())) return;
  const auto requests = step.batch.request.as<std::int32_t>();
  const auto tokens = static_cast<std::int64_t>(requests.size());
  const std::int64_t stride = std::max<std::int64_t>(1, (tokens + kSampledTokens - 1) / kSampledTokens);
  for (compare::TensorStatistics& row : rows) {
    if (row.id != TensorId::attention_out) continue;
    const LayerObservation& layer = step.layers.at(static_cast<std::size_t>(row.layer));
    const Tensor* const q = find(layer, TensorId::q);
    if (q == nullptr || q->shape().size() != 3 || q->dim(0) != tokens) continue;
    Keys keys(engine, row.layer);
    compare::Entropy entropy;
    for (std::int64_t token = tokens - 1; token >= 0; token -= stride) {
      if (requests[static_cast<std::size_t>(token)] < 0) continue;
      std::vector<const std::array<float, kHeadDim>*> list;
      append_keys(keys, Cache::window, find(layer, TensorId::window_slots),
                  find(layer, TensorId::window_length), token, list);
      append_keys(keys, Cache::entries, find(layer, TensorId::compressed_slots),
                  find(layer, TensorId::compressed_length), token, list);
      if (list.empty()) continue;
      for (std::int64_t head = 0; head < q->dim(1); ++head) {
        const auto first = static_cast<std::size_t>((token * q->dim(1) + head) * kHeadDim);
        const double nats = entropy_of(q->as<std::uint16_t>().subspan(first, kHeadDim), list);
        if (std::isfinite(nats)) entropy.add(nats, std::log(static_cast<double>(list.size())));
      }
    }
    if (entropy.count > 0) row.entropy = entropy;
  }
}

}  // namespace dsv4::oracle
