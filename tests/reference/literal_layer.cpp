#include "reference/literal_layer.hpp"

#include <algorithm>
#include <cstring>

#include "arith/log.hpp"
#include "reference/literal_math.hpp"

namespace dsv4::reference::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Values of one token's compressor rows and of the entries.
struct CompressorRows {
  std::vector<Floats> kv, score;   ///< by position, score with APE
  std::vector<Floats> entries;     ///< what attention or the indexer reads, by entry
  std::vector<float> entry_scale;  ///< FP8 index keys
};

class Layer {
 public:
  Layer(LayerKind kind, const Geometry& geometry, const LayerWeights& weights, const Profile& profile)
      : kind_(kind),
        g_(geometry),
        w_(weights),
        axes_(profile),
        fp4_(profile.get<IndexCache>() == IndexCache::fp4),
        rope_(geometry, kind, profile.get<RopeTable>() == RopeTable::bf16) {}

  LiteralTensors run(const std::vector<std::vector<std::uint16_t>>& hidden) {
    for (const auto& bits : hidden) {
      Floats row;
      for (const std::uint16_t bit : bits) row.push_back(arith::bf16_to_f32(bit));
      hidden_.push_back(row);
    }
    for (std::size_t p = 0; p < hidden_.size(); ++p) query(static_cast<int>(p));
    for (std::size_t p = 0; p < hidden_.size(); ++p) window(static_cast<int>(p));
    if (kind_ != LayerKind::swa) main_ = compress(false);
    if (kind_ == LayerKind::csa) {
      index_ = compress(true);
      for (std::size_t p = 0; p < hidden_.size(); ++p) select(static_cast<int>(p));
    }
    for (std::size_t p = 0; p < hidden_.size(); ++p) attend(static_cast<int>(p));
    return std::move(out_);
  }

 private:
  void put(const std::string& path, std::uint8_t byte) { out_[path].push_back(byte); }
  void put_bf16(const std::string& path, float value) {
    const std::uint16_t bits = arith::f32_to_bf16(value);
    put(path, static_cast<std::uint8_t>(bits));
    put(path, static_cast<std::uint8_t>(bits >> 8));
  }
  void put_32(const std::string& path, std::uint32_t bits) {
    for (int shift = 0; shift < 32; shift += 8) put(path, static_cast<std::uint8_t>(bits >> shift));
  }
  void put_f32(const std::string& path, float value) { put_32(path, arith::to_bits(value)); }
  /// A row that the profile rounds to bf16, or not.
  void put_row(const std::string& path, const Floats& row, bool f32) {
    for (const float value : row) f32 ? put_f32(path, value) : put_bf16(path, value);
  }
  void put_half(const std::string& path, float value, bool f16_row) {
    if (!f16_row) return put_bf16(path, value);
    put(path, static_cast<std::uint8_t>(f16_bits(value)));
    put(path, static_cast<std::uint8_t>(f16_bits(value) >> 8));
  }
  /// Section 4 on the input of an FP8 linear (axis activation_floor).
  Quantized activations(const Floats& x) {
    return quantize(x, 128, false, false,
                    axes_.get<ActivationFloor>() == ActivationFloor::f1e10 ? 1e-10F : 0);
  }
  void put_i32(const std::string& path, int value) { put_32(path, static_cast<std::uint32_t>(value)); }

  /// One output of an FP8 linear, from the codes or from the bf16 values that they stand for (axis linear).
  float fp8_linear(const Matrix& w, int n, const Quantized& codes, const Floats& values) {
    return axes_.get<Linear>() == Linear::bf16 ? product_bf16(w, n, values) : product_fp8(w, n, codes);
  }

  Floats norm(const Floats& x, const std::vector<std::uint16_t>* weight) {
    return rms(x, weight, g_.eps, axes_.get<NormWeight>() == NormWeight::round_then);
  }

  /// RoPE of what a norm made, in f32, rounded to bf16 before and after as asked.
  Floats rotated(const Floats& x, int position, bool before, bool after) {
    Floats y = before ? bf16(x) : x;
    rope_.rotate(y, position, 1, after);
    return after ? bf16(y) : y;
  }

  // 11, and head_norm of 18
  void query(int p) {
    const Quantized x = activations(hidden_[p]);
    for (std::size_t i = 0; i < x.codes.size(); ++i) put("layer.input/codes", x.codes[i]);
    for (const int e : x.e) put("layer.input/scales", static_cast<std::uint8_t>(e + 127));
    Floats latent;
    for (int n = 0; n < g_.q_lora; ++n) latent.push_back(bf16(fp8_linear(w_.wq_a, n, x, hidden_[p])));
    latent = bf16(norm(latent, &w_.q_norm));
    for (const float value : latent) put_bf16("q.down/q_latent", value);
    latent_.push_back(activations(latent));
    latent_values_.push_back(latent);
    std::vector<Floats> heads;
    for (int h = 0; h < g_.heads; ++h) {
      Floats q;
      for (int i = 0; i < 512; ++i)
        q.push_back(bf16(fp8_linear(w_.wq_b, h * 512 + i, latent_.back(), latent)));
      for (const float value : q) put_bf16("q.up/raw", value);
      if (axes_.get<HeadNorm>() == HeadNorm::bf16) {
        Floats squares;
        for (const float value : q) squares.push_back(bf16(value * value));
        const float mean = bf16(sum32(squares) / 512.0F);
        const float factor = bf16(1.0F / std::sqrt(bf16(mean + g_.eps)));
        for (float& value : q) value = bf16(value * factor);
      } else if (axes_.get<HeadNorm>() == HeadNorm::factor_bf16) {
        const float factor = bf16(1.0F / std::sqrt(dot32(q, q) / 512.0F + g_.eps));
        for (float& value : q) value = bf16(value * factor);
      } else {
        q = rms(q, nullptr, g_.eps, false);
      }
      const bool f32 = axes_.get<QRopeInput>() == QRopeInput::f32;
      put_row("q.up/normed", q, f32);
      q = rotated(q, p, !f32, true);
      for (const float value : q) put_bf16("q.up/q", value);
      heads.push_back(q);
    }
    q_.push_back(heads);
  }

  /// 4 on dims 0..447, the row's bytes, and the row as attention reads it.
  Floats store_kv(const std::string& stage, const Floats& row) {
    const KvCache cache = axes_.get<KvCache>();
    if (cache == KvCache::f16 || cache == KvCache::bf16 || cache == KvCache::release_identity) {
      Floats plain;
      for (const float value : row) {
        put_half(stage + "/page_bytes", value, cache == KvCache::f16);
        plain.push_back(cache == KvCache::f16 ? f16(value) : bf16(value));
      }
      return plain;
    }
    const Quantized x = quantize(Floats(row.begin(), row.begin() + 448), 64, false,
                                 axes_.get<KvCache>() == KvCache::e4m3_scale_floor);
    Floats read;
    for (int i = 0; i < 448; ++i) {
      put(stage + "/codes", x.codes[i]);
      put(stage + "/page_bytes", x.codes[i]);
      read.push_back(static_cast<float>(std::ldexp(static_cast<double>(x.values[i]), x.e[i / 64])));
    }
    for (int i = 448; i < 512; ++i) {
      put_bf16(stage + "/rope", row[i]);
      put_bf16(stage + "/page_bytes", row[i]);
      read.push_back(bf16(row[i]));
    }
    for (const int e : x.e) {
      put(stage + "/scales", static_cast<std::uint8_t>(e + 127));
      put(stage + "/page_bytes", static_cast<std::uint8_t>(e + 127));
    }
    put(stage + "/page_bytes", 0);
    return read;
  }

  void window(int p) {
    const Quantized x = activations(hidden_[p]);
    const bool f32 = axes_.get<KvRow>() != KvRow::bf16;
    Floats kv;
    for (int n = 0; n < 512; ++n) kv.push_back(bf16(fp8_linear(w_.wkv, n, x, hidden_[p])));
    kv = norm(kv, &w_.kv_norm);
    put_row("kv.window/normed", kv, f32);
    kv = rotated(kv, p, !f32, !f32);
    put_row("kv.window/kv", kv, f32);
    window_.push_back(store_kv("kv.window", kv));
  }

  // 12
  CompressorRows compress(bool indexer) {
    const std::string name = indexer ? "indexer" : "compress";
    const CompressorWeights& w = indexer ? w_.indexer_compressor : w_.compressor;
    const int d = indexer ? 128 : 512;
    const int r = static_cast<int>(kind_);
    const int channels = r == 4 ? 2 * d : d;
    const int n = static_cast<int>(hidden_.size());
    CompressorRows rows;
    for (int p = 0; p < n; ++p) {
      Floats kv;
      Floats score;
      for (int c = 0; c < channels; ++c) {
        kv.push_back(product_bf16(w.wkv, c, hidden_[p]));
        score.push_back(product_bf16(w.wgate, c, hidden_[p]));
        if (axes_.get<CompressProject>() == CompressProject::bf16) {
          kv.back() = bf16(kv.back());
          score.back() = bf16(score.back());
        }
        put_f32(name + ".project/kv", kv.back());
        put_f32(name + ".project/score", score.back());
      }
      for (int c = 0; c < channels; ++c) score[c] = score[c] + w.ape[p % r * channels + c];
      rows.kv.push_back(kv);
      rows.score.push_back(score);
    }
    const int first_live = r == 4 ? std::max(0, n / 4 * 4 - 4) : n / 128 * 128;
    for (int p = first_live; p < n; ++p) {
      for (const float value : rows.kv[p]) put_f32(name + ".state/kv", value);
      for (const float value : rows.score[p]) put_f32(name + ".state/score", value);
      put_i32(name + ".state/token", p);
    }
    for (int p = r - 1; p < n; p += r) {
      Floats pooled;
      for (int c = 0; c < d; ++c) {
        Floats kv;
        Floats score;
        for (int row = r == 4 ? p - 7 : p - 127; row <= p; ++row) {
          if (row < 0) continue;
          const int column = r == 4 && row > p - 4 ? d + c : c;
          kv.push_back(rows.kv[row][column]);
          score.push_back(rows.score[row][column]);
        }
        pooled.push_back(axes_.get<PoolMode>() == PoolMode::f32 ? pool_channel(score, kv)
                                                                : pool_channel_bf16(score, kv));
        put_f32(name + ".pool/pooled", pooled.back());
      }
      if (axes_.get<PooledRounding>() == PooledRounding::bf16) pooled = bf16(pooled);
      const bool f32 = indexer ? axes_.get<IndexRow>() != IndexRow::bf16 : axes_.get<KvRow>() == KvRow::f32;
      Floats entry =
          rotated(norm(pooled, &w.norm), p + 1 - r, !f32 && axes_.get<RopeInput>() == RopeInput::bf16, !f32);
      put_i32(name + ".finish/index", p / r);
      if (indexer) {
        store_index(entry, rows);
      } else {
        put_row("compress.finish/entry", entry, f32);
        rows.entries.push_back(store_kv("compress.finish", entry));
      }
    }
    return rows;
  }

  void store_index(Floats& entry, CompressorRows& rows) {
    const bool f32 = axes_.get<IndexRow>() != IndexRow::bf16;
    if (axes_.get<IndexRotation>() == IndexRotation::both) hadamard(entry, !f32);
    put_row("indexer.finish/entry", entry, f32);
    if (plain_index()) {
      const bool f16_row = axes_.get<IndexCache>() == IndexCache::f16;
      for (float& value : entry) {
        put_half("indexer.finish/page_bytes", value, f16_row);
        value = f16_row ? f16(value) : bf16(value);
      }
      rows.entries.push_back(entry);
      rows.entry_scale.push_back(1);
      return;
    }
    if (!fp4_ && axes_.get<IndexScale>() == IndexScale::f32) {
      const ScaledCodes y = quantize_f32_scale(entry);
      for (const std::uint8_t code : y.codes) put("indexer.finish/codes", code);
      for (const std::uint8_t code : y.codes) put("indexer.finish/page_bytes", code);
      put_f32("indexer.finish/scales", y.scale);
      put_f32("indexer.finish/page_bytes", y.scale);
      rows.entries.push_back(y.values);
      rows.entry_scale.push_back(y.scale);
      return;
    }
    const Quantized x = index_codes(entry);
    for (const std::uint8_t code : x.codes) put("indexer.finish/codes", code);
    Floats read = x.values;
    if (fp4_) {
      for (int i = 0; i < 128; i += 2) {
        put("indexer.finish/page_bytes", static_cast<std::uint8_t>(x.codes[i] + 16 * x.codes[i + 1]));
      }
      for (const int e : x.e) {
        put("indexer.finish/scales", static_cast<std::uint8_t>(e + 127));
        put("indexer.finish/page_bytes", static_cast<std::uint8_t>(e + 127));
      }
      for (int i = 0; i < 128; ++i) read[i] = read[i] * power(x.e[i / 32]);
      rows.entry_scale.push_back(1);
    } else {
      for (const std::uint8_t code : x.codes) put("indexer.finish/page_bytes", code);
      put_f32("indexer.finish/scales", power(x.e[0]));
      put_f32("indexer.finish/page_bytes", power(x.e[0]));
      rows.entry_scale.push_back(power(x.e[0]));
    }
    rows.entries.push_back(read);
  }

  bool plain_index() const {
    return axes_.get<IndexCache>() == IndexCache::none || axes_.get<IndexCache>() == IndexCache::f16;
  }
  Quantized index_codes(const Floats& row) const {
    if (fp4_ && axes_.get<Fp4Rule>() == Fp4Rule::ties_down) return quantize_ties_down(row);
    return quantize(row, fp4_ ? 32 : 128, fp4_);
  }

  // 13
  void select(int p) {
    std::vector<Floats> queries;
    Floats weights;
    const bool round = axes_.get<IndexRound>() == IndexRound::bf16;
    const double root = 1.0 / std::sqrt(128.0 * g_.index_heads);
    for (int h = 0; h < g_.index_heads; ++h) {
      Floats q;
      const bool f32 = axes_.get<IndexRow>() == IndexRow::f32;
      for (int i = 0; i < 128; ++i) {
        q.push_back(fp8_linear(w_.indexer_wq_b, h * 128 + i, latent_[p], latent_values_[p]));
      }
      q = rotated(q, p, true, !f32);
      if (axes_.get<IndexRotation>() == IndexRotation::both) hadamard(q, !f32);
      put_row("indexer.query/entry", q, f32);
      if (plain_index() || (!fp4_ && axes_.get<IndexScale>() == IndexScale::f32)) {
        float weight = bf16(product_bf16(w_.indexer_weights_proj, h, hidden_[p])) * static_cast<float>(root);
        if (plain_index()) {
          put_row("indexer.query/codes", q, f32);
          queries.push_back(q);
        } else {
          const ScaledCodes y = quantize_f32_scale(q);
          for (const std::uint8_t code : y.codes) put("indexer.query/codes", code);
          put_f32("indexer.query/scales", y.scale);
          weight = weight * y.scale;
          queries.push_back(y.values);
        }
        put_f32("indexer.query/weights", weight);
        weights.push_back(weight);
        continue;
      }
      const Quantized x = index_codes(q);
      for (const std::uint8_t code : x.codes) put("indexer.query/codes", code);
      Floats values = x.values;
      const float w = bf16(product_bf16(w_.indexer_weights_proj, h, hidden_[p]));
      weights.push_back(w * static_cast<float>(root));
      if (round) weights.back() = bf16(weights.back());
      if (fp4_) {
        for (const int e : x.e) put("indexer.query/scales", static_cast<std::uint8_t>(e + 127));
        for (int i = 0; i < 128; ++i) values[i] = values[i] * power(x.e[i / 32]);
      } else {
        put_f32("indexer.query/scales", power(x.e[0]));
        weights.back() = weights.back() * power(x.e[0]);
      }
      queries.push_back(values);
      put_f32("indexer.query/weights", weights.back());
    }
    const int visible = (p + 1) / 4;
    put_i32("indexer.score/visible", visible);
    Floats scores;
    for (int j = 0; j < visible; ++j) {
      Floats t;
      for (int h = 0; h < g_.index_heads; ++h) {
        float dot = dot32(queries[h], index_.entries[j]);
        if (round) dot = bf16(dot);
        t.push_back(dot > 0 ? dot : 0.0F);
      }
      if (round) {
        for (int h = 0; h < g_.index_heads; ++h) t[h] = bf16(t[h] * weights[h]);
        scores.push_back(bf16(sum32(t)) * index_.entry_scale[j]);
      } else {
        scores.push_back(dot32(t, weights) * index_.entry_scale[j]);
      }
    }
    const int widest = static_cast<int>(hidden_.size()) / 4;
    for (int j = 0; j < widest; ++j) put_f32("indexer.score/scores", j < visible ? scores[j] : 0.0F);
    // The best one again and again; the lower index wins a tie.
    std::vector<int> chosen;
    std::vector<bool> taken(visible, false);
    for (int k = 0; k < g_.index_topk && k < visible; ++k) {
      int best = -1;
      for (int j = 0; j < visible; ++j) {
        if (!taken[j] && (best < 0 || scores[j] > scores[best])) best = j;
      }
      taken[best] = true;
      chosen.push_back(best);
    }
    if (axes_.get<SelectOrder>() == SelectOrder::ascending) std::sort(chosen.begin(), chosen.end());
    put_i32("indexer.select/count", static_cast<int>(chosen.size()));
    for (int k = 0; k < g_.index_topk; ++k) {
      put_i32("indexer.select/selected", k < static_cast<int>(chosen.size()) ? chosen[k] : -1);
    }
    selected_.push_back(chosen);
  }

  // 14 to 16
  void attend(int p) {
    std::vector<const Floats*> keys(128, nullptr);
    const int first = p < 127 ? 0 : p - 127;
    for (int i = 0; i < 128; ++i) {
      const int key = axes_.get<ListOrder>() == ListOrder::newest_first ? p - i : first + i;
      if (first + i <= p) keys[i] = &window_[key];
      put_i32("attention.lists/window_logical", first + i <= p ? key : -1);
    }
    put_i32("attention.lists/window_length", p - first + 1);
    if (kind_ == LayerKind::csa) {
      for (const int j : selected_[p]) keys.push_back(&main_.entries[j]);
    } else if (kind_ == LayerKind::hca) {
      for (int j = 0; (j + 1) * 128 <= p + 1; ++j) keys.push_back(&main_.entries[j]);
    }
    std::vector<Floats> heads;
    for (int h = 0; h < g_.heads; ++h) {
      const Softmax softmax = axes_.get<Softmax>();
      heads.push_back(softmax == Softmax::two_pass ? head_two_pass(q_[p][h], keys, w_.attn_sink[h])
                      : softmax == Softmax::bf16   ? head_bf16(q_[p][h], keys, w_.attn_sink[h])
                                                   : head_online(q_[p][h], keys, w_.attn_sink[h]));
      for (const float value : heads.back()) put_bf16("attention.core/out", value);
    }
    for (Floats& head : heads) {
      const bool f32 = axes_.get<OutRotation>() == OutRotation::f32;
      rope_.rotate(head, p, -1, !f32);
      put_row("output.project/o_rot", head, f32);
    }
    Floats latent;
    const int in_group = g_.heads / g_.o_groups;
    for (int n = 0; n < g_.o_groups * g_.o_lora; ++n) {
      Floats x;
      for (int h = 0; h < in_group; ++h) {
        const Floats& head = heads[n / g_.o_lora * in_group + h];
        x.insert(x.end(), head.begin(), head.end());
      }
      latent.push_back(bf16(axes_.get<WoA>() == WoA::bf16 ? product_bf16(w_.wo_a, n, x)
                                                          : product_fp8(w_.wo_a, n, activations(x))));
      put_bf16("output.project/o_latent", latent.back());
    }
    const Quantized x = activations(latent);
    for (const std::uint8_t code : x.codes) put("output.project/latent_codes", code);
    for (const int e : x.e) put("output.project/latent_scales", static_cast<std::uint8_t>(e + 127));
    for (int n = 0; n < g_.dim; ++n) put_bf16("output.project/hidden_out", fp8_linear(w_.wo_b, n, x, latent));
  }

  Floats head_two_pass(const Floats& q, const std::vector<const Floats*>& keys, float sink) {
    Floats z(keys.size(), 0.0F);
    float m = -kInfinity;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] == nullptr) continue;
      z[i] = dot32(q, *keys[i]) * arith::from_bits(0x3D3504F3);
      m = z[i] > m ? z[i] : m;
    }
    if (axes_.get<SinkInMax>() == SinkInMax::yes) m = sink > m ? sink : m;
    Floats e(keys.size(), 0.0F);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] != nullptr) e[i] = arith::exp(z[i] - m);
    }
    const float total = sum32(e);
    const float den = total + arith::exp(sink - m);
    Floats out;
    for (int c = 0; c < 512; ++c) {
      float acc = 0;
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (keys[i] != nullptr) acc = arith::fma(e[i], (*keys[i])[c], acc);
      }
      out.push_back(bf16(acc / den));
    }
    put_f32("attention.core/lse", m + arith::log(total));
    return out;
  }

  // 17.4
  Floats head_bf16(const Floats& q, const std::vector<const Floats*>& keys, float sink) {
    const float s = bf16(sink);
    Floats z(keys.size(), 0.0F);
    float m = axes_.get<SinkInMax>() == SinkInMax::yes ? s : -kInfinity;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] == nullptr) continue;
      z[i] = bf16(bf16(dot32(q, *keys[i])) * arith::from_bits(0x3D3504F3));
      m = z[i] > m ? z[i] : m;
    }
    Floats e(keys.size(), 0.0F);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] != nullptr) e[i] = arith::exp(bf16(z[i] - m));
    }
    const float total = sum32(e);
    const float den = total + arith::exp(bf16(s - m));
    Floats out(512, 0.0F);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] == nullptr) continue;
      for (int c = 0; c < 512; ++c) out[c] = arith::fma(bf16(e[i] / den), (*keys[i])[c], out[c]);
    }
    for (float& value : out) value = bf16(value);
    put_f32("attention.core/lse", m + arith::log(total));
    return out;
  }

  // 18: blocks of 64 list indices
  Floats head_online(const Floats& q, const std::vector<const Floats*>& keys, float sink) {
    float m = -kInfinity;
    float total = 0;
    Floats acc(512, 0.0F);
    for (std::size_t first = 0; first < keys.size(); first += 64) {
      const std::size_t last = std::min(keys.size(), first + 64);
      Floats z(last - first, 0.0F);
      float next = m;
      for (std::size_t i = first; i < last; ++i) {
        if (keys[i] == nullptr) continue;
        z[i - first] = dot32(q, *keys[i]) * arith::from_bits(0x3D3504F3);
        next = z[i - first] > next ? z[i - first] : next;
      }
      if (next == -kInfinity) continue;
      const float f = m == -kInfinity ? 0.0F : arith::exp(m - next);
      Floats e(last - first, 0.0F);
      for (std::size_t i = first; i < last; ++i) {
        if (keys[i] != nullptr) e[i - first] = arith::exp(z[i - first] - next);
      }
      total = arith::fma(total, f, sum32(e));
      for (int c = 0; c < 512; ++c) {
        acc[c] = acc[c] * f;
        for (std::size_t i = first; i < last; ++i) {
          if (keys[i] != nullptr) acc[c] = arith::fma(bf16(e[i - first]), (*keys[i])[c], acc[c]);
        }
      }
      m = next;
    }
    const float den = total + arith::exp(sink - m);
    Floats out;
    for (const float value : acc) out.push_back(bf16(value / den));
    put_f32("attention.core/lse", m + arith::log(total));
    return out;
  }

  LayerKind kind_;
  const Geometry& g_;
  const LayerWeights& w_;
  const Profile& axes_;
  bool fp4_;
  Rope rope_;
  std::vector<Floats> hidden_;
  std::vector<Quantized> latent_;
  std::vector<Floats> latent_values_;
  std::vector<std::vector<Floats>> q_;
  std::vector<Floats> window_;
  CompressorRows main_, index_;
  std::vector<std::vector<int>> selected_;
  LiteralTensors out_;
};

}  // namespace

LiteralTensors literal_layer(LayerKind kind, const Geometry& geometry, const LayerWeights& weights,
                             const std::vector<std::vector<std::uint16_t>>& hidden, const Profile& profile) {
  return Layer(kind, geometry, weights, profile).run(hidden);
}

}  // namespace dsv4::reference::test
