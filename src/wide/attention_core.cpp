/// attention.core: sparse attention with a sink over the listed keys (docs/numerics.md 15, 18).
///
/// Bounds of the two-pass form. With c the key's place, u a float32 rounding:
///   logits    z = rn(dot32 * scale): the dot by Cauchy-Schwarz over its lane steps, one rounding more.
///   weights   e = exp(rn(z - m)) relative to exp(z - m) with the same m: exp(dz + u |z - m|) (1 + u) - 1.
///   Another
///             engine's m may differ, but it is the same factor in every weight and in the sink term, so it
///             leaves out; only the rounding of z - m sees it.
///   output    the fold rounds the term of key i once for each key from i on; the denominator is a sum32, the
///   sink
///             term and one addition; then one division.
/// The online form rounds weights to bf16 relative to the running maximum, so there nothing cancels: the
/// balls of z, m, e, the rescaling factors, L and O are carried through the blocks.
#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "wide/formats.hpp"
#include "wide/stages.hpp"

namespace dsv4::wide {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kScaleF32 = 0x1.6a09e6p-5;  // float32 of 1 / sqrt(512)
constexpr int kLaneStep = 32;
constexpr std::size_t kOnlineBlock = 64;

/// Rows of the caches that the step reads, each decoded once.
struct KeyStore {
  Values rows;
  std::unordered_map<std::int64_t, Eigen::Index> window;
  std::unordered_map<std::int64_t, Eigen::Index> entries;
};

/// The valid keys of one token: place in the list (window padded to 128, then compressed), row in the store.
struct Key {
  std::size_t place;
  Eigen::Index row;
};

/// Results of one token: [heads, 512] and [heads].
struct TokenResult {
  Balls out;
  std::vector<Ball> lse;
};

struct Logits {
  Balls z;     ///< [heads, keys]
  Values key;  ///< [keys, 512]
};

void collect(const Layer& layer, Cache cache, std::span<const std::int32_t> slots,
             std::unordered_map<std::int64_t, Eigen::Index>& rows, std::vector<double>& values) {
  for (const std::int32_t slot : slots) {
    if (slot < 0 || !rows.try_emplace(slot, static_cast<Eigen::Index>(values.size() / kHeadDim)).second)
      continue;
    values.resize(values.size() + kHeadDim);
    layer.caches.read_kv(cache, slot, values.data() + values.size() - kHeadDim);
  }
}

KeyStore read_keys(const Layer& layer) {
  KeyStore store;
  std::vector<double> values;
  collect(layer, Cache::window, layer.integers(TensorId::window_slots), store.window, values);
  if (has_compressor(layer.kind)) {
    collect(layer, Cache::entries, layer.integers(TensorId::compressed_slots), store.entries, values);
  }
  store.rows = Eigen::Map<const Values>(values.data(), std::ssize(values) / kHeadDim, kHeadDim);
  return store;
}

void list_keys(const Layer& layer, TensorId id, int token, std::size_t first_place,
               const std::unordered_map<std::int64_t, Eigen::Index>& rows, std::vector<Key>& keys) {
  const auto width = static_cast<std::size_t>(layer.tensor(id)->dim(1));
  const auto slots = layer.integers(id).subspan(static_cast<std::size_t>(token) * width, width);
  for (std::size_t i = 0; i < width; ++i) {
    if (slots[i] >= 0) keys.push_back({first_place + i, rows.at(slots[i])});
  }
}

Logits logits(const Values& q, const KeyStore& store, std::span<const Key> keys, double scale) {
  Logits out;
  out.key.resize(std::ssize(keys), kHeadDim);
  for (std::size_t i = 0; i < keys.size(); ++i)
    out.key.row(static_cast<Eigen::Index>(i)) = store.rows.row(keys[i].row);
  static const std::vector<double> counts = lane_counts(kHeadDim);
  out.z.value = (q * out.key.transpose()) * scale;
  out.z.radius = block_norms(q, kLaneStep, counts) * block_norms(out.key, kLaneStep, counts).transpose();
  out.z.radius = (out.z.radius * (kUnit * 1.001 * scale) + out.z.value.cwiseAbs() * kUnit).array() + kTiny;
  return out;
}

/// Largest logit of a head; NaN never wins.
double largest(const Values& z, Eigen::Index head) {
  double m = -kInf;
  for (Eigen::Index i = 0; i < z.cols(); ++i) m = z(head, i) > m ? z(head, i) : m;
  return m;
}

Ball logarithm(Ball a) {
  const double value = std::log(a.value);
  return {value, a.radius == 0 ? 0 : -std::log1p(-std::min(a.radius / a.value, 1.0))};
}

void two_pass(const Logits& logits, std::span<const double> sinks, std::int64_t list_width, bool sink_in_max,
              TokenResult& result) {
  const Eigen::Index heads = logits.z.rows();
  const Eigen::Index keys = logits.z.columns();
  Values weights(heads, keys);
  Values spread(heads, keys);  // largest error of each weight's term in the fold
  std::vector<Ball> sums(static_cast<std::size_t>(heads));
  std::vector<Ball> denominators(static_cast<std::size_t>(heads));
  std::vector<Ball> maxima(static_cast<std::size_t>(heads));
  for (Eigen::Index head = 0; head < heads; ++head) {
    double m = largest(logits.z.value, head);
    if (sink_in_max) m = std::max(m, sinks[static_cast<std::size_t>(head)]);
    const double m_radius = logits.z.radius.row(head).maxCoeff();
    Ball sum;
    for (Eigen::Index i = 0; i < keys; ++i) {
      const Ball z = logits.z.at(head, i);
      const double rounding = kUnit * (std::fabs(z.value - m) + z.radius + m_radius);
      const Ball e = stepped(exponential({z.value - m, z.radius + rounding}));
      weights(head, i) = e.value;
      spread(head, i) = e.radius + (e.value + e.radius) * roundings(static_cast<double>(keys - i));
      sum = sum + e;
    }
    sum.radius += roundings(lane_roundings(list_width)) * (sum.value + sum.radius);
    const double sink_gap = sinks[static_cast<std::size_t>(head)] - m;
    const Ball sink = stepped(exponential({sink_gap, kUnit * (std::fabs(sink_gap) + m_radius)}));
    const auto h = static_cast<std::size_t>(head);
    sums[h] = sum;
    denominators[h] = stepped(sum + sink);
    maxima[h] = {m, m_radius};
  }
  result.out.value = weights * logits.key;
  result.out.radius = spread * logits.key.cwiseAbs();
  for (Eigen::Index head = 0; head < heads; ++head) {
    const auto h = static_cast<std::size_t>(head);
    for (Eigen::Index c = 0; c < kHeadDim; ++c) {
      result.out.set(head, c, stepped(result.out.at(head, c) / denominators[h]));
    }
    // m + log(L) with another m is the same number; its roundings are of log(L), which m's radius may shift,
    // and of the sum.
    const Ball log_sum = logarithm(sums[h]);
    const double log_rounding = kUnit * (std::fabs(log_sum.value) + log_sum.radius + maxima[h].radius);
    result.lse[h] = stepped({maxima[h].value + log_sum.value, log_sum.radius + log_rounding});
  }
}

/// Section 17.4: logits, their distance to the maximum and probabilities are bf16 rounding points.
void bf16_softmax(const Logits& logits, std::span<const double> sinks, bool sink_in_max,
                  TokenResult& result) {
  const Eigen::Index heads = logits.z.rows();
  const Eigen::Index keys = logits.z.columns();
  Values p(heads, keys);
  Values spread(heads, keys);
  for (Eigen::Index head = 0; head < heads; ++head) {
    const auto h = static_cast<std::size_t>(head);
    const double sink = round_bf16(sinks[h]);
    std::vector<Ball> z;
    Ball m{sink_in_max ? sink : -kInf, 0};
    for (Eigen::Index i = 0; i < keys; ++i) {
      // The logits carry the scale and its rounding; the dot is rounded to bf16 before it.
      const Ball dot{logits.z.value(head, i) / kScaleF32, logits.z.radius(head, i) / kScaleF32};
      z.push_back(bf16_point(stepped(bf16_point(dot) * kScaleF32)));
      m.value = z.back().value > m.value ? z.back().value : m.value;
      m.radius = std::max(m.radius, z.back().radius);
    }
    std::vector<Ball> e;
    Ball sum;
    for (const Ball& logit : z) {
      e.push_back(stepped(exponential(bf16_point(stepped(logit - m)))));
      sum = sum + e.back();
    }
    sum.radius += roundings(lane_roundings(keys)) * (sum.value + sum.radius);
    const Ball denominator = stepped(sum + stepped(exponential(bf16_point(stepped(Ball{sink, 0} - m)))));
    for (Eigen::Index i = 0; i < keys; ++i) {
      const Ball weight = bf16_point(stepped(e[static_cast<std::size_t>(i)] / denominator));
      p(head, i) = weight.value;
      spread(head, i) =
          weight.radius + (weight.value + weight.radius) * roundings(static_cast<double>(keys - i));
    }
    result.lse[h] = stepped(m + stepped(logarithm(sum)));
  }
  result.out.value = p * logits.key;
  result.out.radius = spread * logits.key.cwiseAbs();
}

/// One head of the online form: running maximum, sum of weights.
struct OnlineHead {
  Ball m{-kInf, 0};
  Ball sum;
  bool seen = false;  ///< a finite maximum has been seen
};

void online(const Logits& logits, std::span<const Key> keys, std::span<const double> sinks,
            TokenResult& result) {
  const Eigen::Index heads = logits.z.rows();
  std::vector<OnlineHead> state(static_cast<std::size_t>(heads));
  result.out.value.setZero(heads, kHeadDim);
  result.out.radius.setZero(heads, kHeadDim);
  for (std::size_t begin = 0; begin < keys.size();) {
    std::size_t end = begin;
    while (end < keys.size() && keys[end].place / kOnlineBlock == keys[begin].place / kOnlineBlock) ++end;
    const auto first = static_cast<Eigen::Index>(begin);
    const auto count = static_cast<Eigen::Index>(end - begin);
    Balls p(heads, count);
    for (Eigen::Index head = 0; head < heads; ++head) {
      OnlineHead& s = state[static_cast<std::size_t>(head)];
      const auto block = logits.z.value.middleCols(first, count);
      const double block_max = largest(block, head);
      const double block_radius = logits.z.radius.row(head).segment(first, count).maxCoeff();
      const Ball m{block_max > s.m.value ? block_max : s.m.value, std::max(s.m.radius, block_radius)};
      Ball factor;  // +0 until a finite logit has been seen
      if (s.seen) factor = stepped(exponential(stepped(s.m - m)));
      Ball sum;
      for (Eigen::Index i = 0; i < count; ++i) {
        const Ball e = stepped(exponential(stepped(logits.z.at(head, first + i) - m)));
        sum = sum + e;
        p.set(head, i, bf16_point(e));
      }
      sum.radius += roundings(lane_roundings(kOnlineBlock)) * (sum.value + sum.radius);
      s.sum = stepped(s.sum * factor + sum);
      s.m = m;
      s.seen = s.seen || m.value > -kInf;
      const double rescale =
          roundings(static_cast<double>(count) + 1);  // rn(O f), then every step of the fold
      for (Eigen::Index c = 0; c < kHeadDim; ++c) {
        Ball o = result.out.at(head, c) * factor;
        o.radius += rescale * (std::fabs(o.value) + o.radius) + kTiny;
        result.out.set(head, c, o);
      }
      for (Eigen::Index i = 0; i < count; ++i) {
        p.radius(head, i) +=
            (p.value(head, i) + p.radius(head, i)) * roundings(static_cast<double>(count - i));
      }
    }
    result.out.value += p.value * logits.key.middleRows(first, count);
    result.out.radius += p.radius * logits.key.middleRows(first, count).cwiseAbs();
    begin = end;
  }
  for (Eigen::Index head = 0; head < heads; ++head) {
    const OnlineHead& s = state[static_cast<std::size_t>(head)];
    const Ball sink = stepped(exponential(stepped(Ball{sinks[static_cast<std::size_t>(head)], 0} - s.m)));
    const Ball denominator = stepped(s.sum + sink);
    for (Eigen::Index c = 0; c < kHeadDim; ++c) {
      result.out.set(head, c, stepped(result.out.at(head, c) / denominator));
    }
    result.lse[static_cast<std::size_t>(head)] = stepped(s.m + stepped(logarithm(s.sum)));
  }
}

}  // namespace

void attention_core(Layer& layer) {
  const std::int64_t heads = layer.geometry().heads;
  const Values q = layer.input(TensorId::q);
  const KeyStore store = read_keys(layer);
  const std::vector<double> sinks(layer.weights->attn_sink.begin(), layer.weights->attn_sink.end());
  const bool compressed = has_compressor(layer.kind);
  const std::int64_t list_width =
      kWindow + (compressed ? layer.tensor(TensorId::compressed_slots)->dim(1) : 0);
  const double scale = layer.exact() ? 1 / std::sqrt(static_cast<double>(kHeadDim)) : kScaleF32;
  const bool online_form = layer.axis<Softmax>() == Softmax::online64_bf16_p && !layer.exact();
  const bool sink_in_max = layer.rounding<SinkInMax>() == SinkInMax::yes;
  const double empty_lse = layer.axis<EmptyLse>() == EmptyLse::plus_inf ? kInf : -kInf;

  Balls out(q.rows(), heads * kHeadDim);
  Balls lse(q.rows(), heads);
#pragma omp parallel for schedule(dynamic)
  for (Eigen::Index i = 0; i < q.rows(); ++i) {
    const int token = layer.rows()[static_cast<std::size_t>(i)];
    std::vector<Key> keys;
    list_keys(layer, TensorId::window_slots, token, 0, store.window, keys);
    if (compressed) list_keys(layer, TensorId::compressed_slots, token, kWindow, store.entries, keys);
    TokenResult result{Balls(heads, kHeadDim), std::vector<Ball>(static_cast<std::size_t>(heads))};
    if (keys.empty()) {
      result.out = Balls(Values::Zero(heads, kHeadDim));
      std::fill(result.lse.begin(), result.lse.end(), Ball{empty_lse, 0});
    } else {
      const Logits z =
          logits(Eigen::Map<const Values>(q.data() + i * q.cols(), heads, kHeadDim), store, keys, scale);
      if (online_form) {
        online(z, keys, sinks, result);
      } else if (layer.rounding<Softmax>() == Softmax::bf16) {
        bf16_softmax(z, sinks, sink_in_max, result);
      } else {
        two_pass(z, sinks, list_width, sink_in_max, result);
      }
    }
    result.out.reshape(1, heads * kHeadDim);
    out.value.row(i) = result.out.value.row(0);
    out.radius.row(i) = result.out.radius.row(0);
    for (Eigen::Index head = 0; head < heads; ++head)
      lse.set(i, head, result.lse[static_cast<std::size_t>(head)]);
  }
  layer.publish_bf16(TensorId::attention_out, {heads, kHeadDim}, std::move(out));
  layer.publish_f32(TensorId::attention_lse, {heads}, lse);
}

}  // namespace dsv4::wide
