#include "oracle/faults/attention.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>

#include "arith/bf16.hpp"
#include "arith/exp.hpp"
#include "arith/fma.hpp"
#include "arith/log.hpp"
#include "model/layout.hpp"
#include "oracle/faults/compressor_form.hpp"
#include "oracle/faults/math.hpp"

namespace dsv4::oracle::faults {
namespace {

using enum TensorId;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Keys of a token in list order; null where there is none.
using Keys = std::vector<const std::vector<float>*>;

class KeyRows {
 public:
  KeyRows(const FaultyEngine& subject, int layer) : subject_(subject), layer_(layer) {}
  void append(Keys& keys, Cache cache, std::int32_t slot) {
    if (slot < 0) return keys.push_back(nullptr);
    auto [found, made] = rows_.try_emplace({cache, slot});
    if (made) found->second = decoded_kv_row(subject_.row(layer_, cache, slot));
    keys.push_back(&found->second);
  }

 private:
  const FaultyEngine& subject_;
  int layer_;
  std::map<std::pair<Cache, std::int32_t>, std::vector<float>> rows_;
};

Keys keys_of(const FaultyEngine& subject, int layer, std::int64_t token, KeyRows& rows) {
  Keys keys;
  const auto items = [&](TensorId length) {
    return subject.input(layer, length).as<std::int32_t>()[static_cast<std::size_t>(token)];
  };
  const auto window = tensor_row<std::int32_t>(subject.input(layer, window_slots), token);
  for (std::int32_t item = 0; item < kWindow; ++item) {
    rows.append(keys, Cache::window,
                item < items(window_length) ? window[static_cast<std::size_t>(item)] : -1);
  }
  if (subject.kind(layer) == LayerKind::swa) return keys;
  const auto entries = tensor_row<std::int32_t>(subject.input(layer, compressed_slots), token);
  for (std::int32_t item = 0; item < items(compressed_length); ++item)
    rows.append(keys, Cache::entries, entries[static_cast<std::size_t>(item)]);
  return keys;
}

/// Sums of one part of the list.
struct Part {
  float most = -kInfinity;
  float sum = 0;
  std::vector<float> total = std::vector<float>(kHeadDim);
};

Part part_of(const std::vector<float>& query, const Keys& keys, std::size_t first, std::size_t last) {
  Part part;
  std::vector<float> z(last - first, -kInfinity);
  for (std::size_t i = first; i < last; ++i) {
    if (keys[i] == nullptr) continue;
    z[i - first] = dot32(query, *keys[i]) * arith::from_bits(0x3D3504F3U);
    part.most = z[i - first] > part.most ? z[i - first] : part.most;
  }
  std::vector<float> placed(last - first);
  for (std::size_t i = first; i < last; ++i) {
    if (keys[i] == nullptr) continue;
    const float e = arith::exp(z[i - first] - part.most);
    placed[i - first] = e;
    for (std::size_t dim = 0; dim < part.total.size(); ++dim)
      part.total[dim] = arith::fma(e, (*keys[i])[dim], part.total[dim]);
  }
  part.sum = sum32(placed);
  return part;
}

struct Attended {
  std::vector<std::uint16_t> out = std::vector<std::uint16_t>(kHeadDim);
  float lse = kInfinity;
};

Attended attend(const std::vector<float>& query, const Keys& keys, float sink,
                const AttentionChange& change) {
  Attended result;
  if (std::ranges::all_of(keys, [](const auto* key) { return key == nullptr; })) return result;
  const auto splits = static_cast<std::size_t>(change.splits);
  // Parts of valid keys: a part without one would weigh nothing and has no maximum.
  std::vector<std::size_t> valid;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] != nullptr) valid.push_back(i);
  }
  std::vector<Part> parts;
  for (std::size_t split = 0; split < splits; ++split) {
    const std::size_t begin = valid.size() * split / splits;
    const std::size_t end = valid.size() * (split + 1) / splits;
    if (begin == end) continue;
    const std::size_t first = split == 0 ? 0 : valid[begin];
    const std::size_t last = end == valid.size() ? keys.size() : valid[end];
    parts.push_back(part_of(query, keys, first, last));
  }
  Part all = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const float most = parts[i].most > all.most ? parts[i].most : all.most;
    // 2^x of the difference of natural logarithms is e^(x ln 2).
    const float base = change.base_two_merge ? 0x1.62e43p-1F : 1.0F;
    const float before = arith::exp((all.most - most) * base);
    const float added = arith::exp((parts[i].most - most) * base);
    all.sum = all.sum * before + parts[i].sum * added;
    for (std::size_t dim = 0; dim < all.total.size(); ++dim)
      all.total[dim] = all.total[dim] * before + parts[i].total[dim] * added;
    all.most = most;
  }
  float denominator = all.sum + arith::exp(sink - all.most);
  if (change.sink_in_every_split) {
    for (std::size_t i = 1; i < parts.size(); ++i) denominator = denominator + arith::exp(sink - all.most);
  }
  for (std::size_t dim = 0; dim < all.total.size(); ++dim)
    result.out[dim] = arith::f32_to_bf16(all.total[dim] / denominator);
  result.lse = all.most + arith::log(all.sum);
  return result;
}

void install_attention(FaultyEngine& subject, const AttentionChange& change) {
  subject.after(Stage::attention_core,
                [&subject, change](const StageCall& call) { reattend(subject, call, change); });
}

void install_output(FaultyEngine& subject, const OutputChange& change) {
  subject.needs(o_latent_codes);
  subject.needs(o_latent_scales);
  subject.after(Stage::output_project,
                [&subject, change](const StageCall& call) { reproject(subject, call, change); });
}

}  // namespace

void reattend(FaultyEngine& subject, const StageCall& call, const AttentionChange& change) {
  const Tensor& queries = subject.input(call.layer, q);
  const std::vector<float>& sink = subject.weights(call.layer).attn_sink;
  Tensor out = subject.input(call.layer, attention_out);
  Tensor lse = subject.input(call.layer, attention_lse);
  KeyRows rows(subject, call.layer);
  for (std::int64_t token = 0; token < queries.dim(0); ++token) {
    if (call.plan.rows[static_cast<std::size_t>(token)].request < 0) continue;
    const Keys keys = keys_of(subject, call.layer, token, rows);
    const auto all = tensor_row<std::uint16_t>(queries, token);
    for (std::size_t head = 0; head < sink.size(); ++head) {
      const auto query = widened(all.subspan(head * kHeadDim, kHeadDim));
      const Attended made = attend(query, keys, sink[head], change);
      std::ranges::copy(made.out, tensor_row<std::uint16_t>(out, token).begin() +
                                      static_cast<std::ptrdiff_t>(head * kHeadDim));
      tensor_row<float>(lse, token)[head] = made.lse;
    }
  }
  subject.change(call.layer, attention_out, std::move(out));
  subject.change(call.layer, attention_lse, std::move(lse));
}

void reproject(FaultyEngine& subject, const StageCall& call, const OutputChange& change) {
  const Geometry& geometry = subject.config().geometry;
  const LayerWeights& weights = subject.weights(call.layer);
  const bool yarn = has_compressor(subject.kind(call.layer));
  Tensor rotated = subject.input(call.layer, attention_out);
  Tensor latent = subject.input(call.layer, o_latent);
  Tensor out = subject.input(call.layer, hidden_out);
  const std::int64_t group_columns = rotated.row_elements() / geometry.o_groups;
  for (std::int64_t token = 0; token < rotated.dim(0); ++token) {
    if (call.plan.rows[static_cast<std::size_t>(token)].request < 0) continue;
    const Angles angles = angles_at(geometry, yarn, call.plan.rows[static_cast<std::size_t>(token)].position);
    const auto row = tensor_row<std::uint16_t>(rotated, token);
    for (std::size_t head = 0; head < row.size(); head += kHeadDim)
      rotate(row.subspan(head + (change.first_lanes ? 0 : kNopeDim), kRopeDim), angles, change.inverse);
    const auto latent_row = tensor_row<std::uint16_t>(latent, token);
    for (int group = 0; group < geometry.o_groups; ++group) {
      const auto part = linear(weights.wo_a, std::int64_t{group} * geometry.o_lora, geometry.o_lora,
                               row.subspan(static_cast<std::size_t>(group * group_columns),
                                           static_cast<std::size_t>(group_columns)),
                               true);
      std::ranges::copy(part, latent_row.begin() + std::ptrdiff_t{group} * geometry.o_lora);
    }
    std::ranges::copy(linear(weights.wo_b, 0, geometry.dim, latent_row),
                      tensor_row<std::uint16_t>(out, token).begin());
  }
  if (subject.tensor(call.layer, o_latent_codes) != nullptr) {
    Tensor codes = subject.input(call.layer, o_latent_codes);
    Tensor scales = subject.input(call.layer, o_latent_scales);
    for (std::int64_t token = 0; token < latent.dim(0); ++token) {
      if (call.plan.rows[static_cast<std::size_t>(token)].request < 0) continue;
      quantise_e4m3(tensor_row<std::uint16_t>(std::as_const(latent), token), 128, {},
                    tensor_row<std::uint8_t>(codes, token), tensor_row<std::uint8_t>(scales, token));
    }
    subject.change(call.layer, o_latent_codes, std::move(codes));
    subject.change(call.layer, o_latent_scales, std::move(scales));
  }
  subject.change(call.layer, o_rot, std::move(rotated));
  subject.change(call.layer, o_latent, std::move(latent));
  subject.change(call.layer, hidden_out, std::move(out));
}

void sink_in_every_split(FaultyEngine& subject, const Parameters& parameters) {
  install_attention(subject,
                    {.splits = static_cast<int>(parameters.number("splits")), .sink_in_every_split = true});
}

void merge_in_base_two(FaultyEngine& subject, const Parameters& parameters) {
  install_attention(subject,
                    {.splits = static_cast<int>(parameters.number("splits")), .base_two_merge = true});
}

void attention_in_another_order(FaultyEngine& subject, const Parameters& parameters) {
  install_attention(subject, {.splits = static_cast<int>(parameters.number("splits"))});
}

void invalid_lane_read(FaultyEngine& subject, const Parameters& parameters) {
  const bool as_last = parameters.word("as") == "last";
  subject.disguise(
      Stage::attention_core, window_slots,
      [as_last](const StageCall& call, const Tensor& slots) -> std::optional<Tensor> {
        Tensor read = slots;
        for (std::size_t token = 0; token < call.plan.rows.size(); ++token) {
          if (call.plan.rows[token].request < 0) continue;
          std::int32_t last = 0;
          for (std::int32_t& slot : tensor_row<std::int32_t>(read, static_cast<std::int64_t>(token))) {
            if (slot >= 0)
              last = slot;
            else
              slot = as_last ? last : 0;
          }
        }
        return read;
      });
  subject.disguise(Stage::attention_core, window_length,
                   [](const StageCall& call, const Tensor& length) -> std::optional<Tensor> {
                     Tensor read = length;
                     for (std::size_t token = 0; token < call.plan.rows.size(); ++token) {
                       if (call.plan.rows[token].request >= 0) read.as<std::int32_t>()[token] = kWindow;
                     }
                     return read;
                   });
}

void output_rotated_forward(FaultyEngine& subject, const Parameters&) {
  install_output(subject, {.inverse = false});
}

void output_rotated_first_lanes(FaultyEngine& subject, const Parameters&) {
  install_output(subject, {.first_lanes = true});
}

void one_rotary_base(FaultyEngine& subject, const Parameters&) {
  subject.needs(q_normed);
  subject.needs(window_normed);
  const auto rotated = [&subject](const StageCall& call, TensorId from) {
    Tensor rows = subject.input(call.layer, from);
    for (std::int64_t token = 0; token < rows.dim(0); ++token) {
      if (call.plan.rows[static_cast<std::size_t>(token)].request < 0) continue;
      const Angles angles = angles_at(subject.config().geometry, true,
                                      call.plan.rows[static_cast<std::size_t>(token)].position);
      const auto row = tensor_row<std::uint16_t>(rows, token);
      for (std::size_t head = 0; head < row.size(); head += kHeadDim)
        rotate(row.subspan(head + kNopeDim, kRopeDim), angles);
    }
    return rows;
  };
  subject.after(Stage::q_up, [&subject, rotated](const StageCall& call) {
    if (subject.kind(call.layer) != LayerKind::swa) return;
    subject.change(call.layer, q, rotated(call, q_normed));
  });
  subject.after(Stage::kv_window, [&subject, rotated](const StageCall& call) {
    if (subject.kind(call.layer) != LayerKind::swa) return;
    Tensor kv = rotated(call, window_normed);
    Tensor rope = subject.input(call.layer, window_rope);
    Tensor bytes = subject.input(call.layer, window_page_bytes);
    for (std::int64_t token = 0; token < kv.dim(0); ++token) {
      const auto part = tensor_row<std::uint16_t>(kv, token).subspan(kNopeDim);
      std::ranges::copy(part, tensor_row<std::uint16_t>(rope, token).begin());
      std::ranges::copy(std::as_bytes(part), bytes.bytes().begin() + token * layout::kKvRowBytes + kNopeDim);
    }
    const auto told = subject.writes(call.layer);
    const std::vector<Write> writes(told.begin(), told.end());
    for (Write write : writes) {
      const RequestStep* request = share_of(call.plan, write.request);
      if (write.stage != Stage::kv_window || request == nullptr) continue;
      const std::int64_t row = request->first_row + (write.index - request->begin);
      const auto made =
          bytes.bytes().subspan(static_cast<std::size_t>(row) * layout::kKvRowBytes, layout::kKvRowBytes);
      write.bytes.assign(made.begin(), made.end());
      subject.put(call.layer, write);
    }
    subject.change(call.layer, window_kv, std::move(kv));
    subject.change(call.layer, window_rope, std::move(rope));
    subject.change(call.layer, window_page_bytes, std::move(bytes));
  });
}

void stale_input(FaultyEngine& subject, const Parameters& parameters) {
  struct Consumer {
    std::string_view name;
    Stage stage;
    TensorId id;
  };
  static constexpr Consumer kConsumers[]{{"attention.core", Stage::attention_core, q},
                                         {"output.project", Stage::output_project, attention_out},
                                         {"compress.finish", Stage::compress_finish, compress_pooled},
                                         {"indexer.select", Stage::indexer_select, scores}};
  const Consumer& consumer = *std::ranges::find(kConsumers, parameters.word("consumer"), &Consumer::name);
  auto last = std::make_shared<std::map<int, Tensor>>();  // by layer
  subject.disguise(consumer.stage, consumer.id,
                   [last](const StageCall& call, const Tensor& fresh) -> std::optional<Tensor> {
                     Tensor& kept = (*last)[call.layer];
                     Tensor before = std::exchange(kept, fresh);
                     if (before.dtype() != fresh.dtype() || before.shape() != fresh.shape())
                       return std::nullopt;
                     return before;
                   });
}

}  // namespace dsv4::oracle::faults
