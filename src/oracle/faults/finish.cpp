#include "oracle/faults/finish.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "arith/bf16.hpp"
#include "arith/ue8m0.hpp"
#include "model/layout.hpp"

namespace dsv4::oracle::faults {
namespace {

using enum TensorId;

const ParameterInfo kMainOnly[]{{"compressor", "main", "main", 0, 0, ""}};
const ParameterInfo kIndexerOnly[]{{"compressor", "indexer", "indexer", 0, 0, ""}};
const CompressorStages& main_stages() {
  return compressor_stages(Parameters("", kMainOnly, ""));
}
const CompressorStages& indexer_stages() {
  return compressor_stages(Parameters("", kIndexerOnly, ""));
}

bool fp4(const FaultyEngine& subject) {
  return subject.config().profile.get<IndexCache>() == IndexCache::fp4;
}

std::span<std::byte> raw(Tensor& tensor, std::int64_t row) {
  const std::size_t size = static_cast<std::size_t>(tensor.row_elements()) * size_bytes(tensor.dtype());
  return tensor.bytes().subspan(static_cast<std::size_t>(row) * size, size);
}

/// Packs codes, the rotated part (KV rows) and scales as they lie in a page.
void pack_kv(std::span<const std::uint8_t> codes, std::span<const std::uint16_t> rope,
             std::span<const std::uint8_t> scales, std::span<std::byte> bytes) {
  std::memcpy(bytes.data(), codes.data(), codes.size());
  std::memcpy(bytes.data() + kNopeDim, rope.data(), rope.size_bytes());
  std::memcpy(bytes.data() + layout::kKvValueBytes, scales.data(), scales.size());
  bytes[layout::kKvRowBytes - 1] = std::byte{0};
}

/// An index row's codes and scales in the tensors' forms, and its bytes if there are any.
void store_index_row(std::span<const std::uint16_t> row, bool fp4, const Quantiser& how, Tensor& codes,
                     Tensor& scales, std::int64_t at, std::span<std::byte> bytes) {
  const auto code_row = tensor_row<std::uint8_t>(codes, at);
  if (fp4) {
    const auto scale_row = tensor_row<std::uint8_t>(scales, at);
    quantise_e2m1(row, how, code_row, scale_row);
    if (bytes.empty()) return;
    for (std::size_t pair = 0; pair < layout::kIndexFp4ValueBytes; ++pair) {
      bytes[pair] = static_cast<std::byte>(code_row[2 * pair] | code_row[2 * pair + 1] << 4);
    }
    std::memcpy(bytes.data() + layout::kIndexFp4ValueBytes, scale_row.data(), scale_row.size());
    return;
  }
  std::uint8_t scale = 0;
  quantise_e4m3(row, kIndexDim, how, code_row, {&scale, 1});
  const float value = arith::ue8m0_to_f32(scale);
  tensor_row<float>(scales, at)[0] = value;
  if (bytes.empty()) return;
  std::memcpy(bytes.data(), code_row.data(), code_row.size());
  std::memcpy(bytes.data() + layout::kIndexFp8ValueBytes, &value, sizeof(value));
}

std::int64_t rotated_to(const FinishChange& change, std::int32_t index, int ratio) {
  if (change.position == FinishChange::Position::index) return index;
  const std::int64_t first = std::int64_t{index} * ratio;
  return change.position == FinishChange::Position::last ? first + ratio - 1 : first;
}

/// The codes of an index tensor viewed as rows of 128: query tensors have a head axis.
Tensor as_rows(const Tensor& tensor, std::int64_t width) {
  Tensor rows(tensor.dtype(), {tensor.elements() / width, width});
  std::ranges::copy(tensor.bytes(), rows.bytes().begin());
  return rows;
}
Tensor shaped_as(const Tensor& rows, const Tensor& like) {
  Tensor result(like.dtype(), like.shape());
  std::ranges::copy(rows.bytes(), result.bytes().begin());
  return result;
}

void install_quantiser(FaultyEngine& subject, const Parameters& parameters, const Quantiser& how) {
  const std::string& rows = parameters.word("rows");
  if (rows == "window") {
    subject.after(Stage::kv_window,
                  [&subject, how](const StageCall& call) { requantise_window(subject, call, how); });
    return;
  }
  const CompressorStages& stages = rows == "index" ? indexer_stages() : main_stages();
  subject.after(stages.finish, [&subject, &stages, how](const StageCall& call) {
    refinish(subject, call, stages, {.quantiser = how});
  });
}

}  // namespace

void refinish(FaultyEngine& subject, const StageCall& call, const CompressorStages& stages,
              const FinishChange& change) {
  const CompressorForm form(subject, call.layer, stages);
  const Geometry& geometry = subject.config().geometry;
  const Tensor& pooled = subject.input(call.layer, stages.pooled);
  const std::int64_t count = pooled.dim(0);
  if (count == 0) return;
  const Tensor index = subject.input(call.layer, stages.index);
  const Tensor slot = subject.input(call.layer, stages.slot);
  const Tensor request = subject.input(call.layer, stages.request);
  Tensor entry = subject.input(call.layer, stages.entry);
  Tensor codes = subject.input(call.layer, stages.codes);
  Tensor scales = subject.input(call.layer, stages.scales);
  Tensor bytes = subject.input(call.layer, stages.page_bytes);
  Tensor rope = stages.indexer ? Tensor() : subject.input(call.layer, compress_rope);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    std::vector<std::uint16_t> row;
    for (const float value : tensor_row<float>(pooled, i)) row.push_back(arith::f32_to_bf16(value));
    row = rms_norm(row, form.weights.norm, geometry.eps);
    const std::span<std::uint16_t> rotated(row.data() + form.d - kRopeDim, kRopeDim);
    const std::int32_t j = index.as<std::int32_t>()[at];
    rotate(rotated, angles_at(geometry, true, rotated_to(change, j, form.ratio)));
    if (stages.indexer) {
      if (change.hadamard) hadamard(row);
      store_index_row(row, fp4(subject), change.quantiser, codes, scales, i, raw(bytes, i));
    } else {
      const auto code_row = tensor_row<std::uint8_t>(codes, i);
      const auto scale_row = tensor_row<std::uint8_t>(scales, i);
      quantise_e4m3(std::span(row).first(kNopeDim), layout::kKvBlock, change.quantiser, code_row, scale_row);
      std::ranges::copy(rotated, tensor_row<std::uint16_t>(rope, i).begin());
      pack_kv(code_row, rotated, scale_row, raw(bytes, i));
    }
    std::ranges::copy(row, tensor_row<std::uint16_t>(entry, i).begin());
    const auto packed = raw(bytes, i);
    subject.put(call.layer, {stages.finish,
                             stages.entry_cache,
                             slot.as<std::int32_t>()[at],
                             request.as<std::int32_t>()[at],
                             j,
                             {packed.begin(), packed.end()}});
  }
  subject.change(call.layer, stages.entry, std::move(entry));
  subject.change(call.layer, stages.codes, std::move(codes));
  subject.change(call.layer, stages.scales, std::move(scales));
  if (!stages.indexer) subject.change(call.layer, compress_rope, std::move(rope));
  subject.change(call.layer, stages.page_bytes, std::move(bytes));
}

void requantise_window(FaultyEngine& subject, const StageCall& call, const Quantiser& how) {
  const Tensor kv = subject.input(call.layer, window_kv);
  Tensor codes = subject.input(call.layer, window_codes);
  Tensor scales = subject.input(call.layer, window_scales);
  Tensor bytes = subject.input(call.layer, window_page_bytes);
  for (std::int64_t token = 0; token < kv.dim(0); ++token) {
    if (call.plan.rows[static_cast<std::size_t>(token)].request < 0) continue;
    const auto row = tensor_row<std::uint16_t>(kv, token);
    const auto code_row = tensor_row<std::uint8_t>(codes, token);
    const auto scale_row = tensor_row<std::uint8_t>(scales, token);
    quantise_e4m3(row.first(kNopeDim), layout::kKvBlock, how, code_row, scale_row);
    pack_kv(code_row, row.subspan(kNopeDim), scale_row, raw(bytes, token));
  }
  const auto told = subject.writes(call.layer);
  const std::vector<Write> writes(told.begin(), told.end());
  for (Write write : writes) {
    if (write.stage != Stage::kv_window) continue;
    const RequestStep* request = share_of(call.plan, write.request);
    require(request != nullptr, "a window row belongs to no request of the step");
    const auto row = raw(bytes, request->first_row + (write.index - request->begin));
    write.bytes.assign(row.begin(), row.end());
    subject.put(call.layer, write);
  }
  subject.change(call.layer, window_codes, std::move(codes));
  subject.change(call.layer, window_scales, std::move(scales));
  subject.change(call.layer, window_page_bytes, std::move(bytes));
}

void remake_query(FaultyEngine& subject, const StageCall& call, const QueryChange& change) {
  const Geometry& geometry = subject.config().geometry;
  const LayerWeights& weights = subject.weights(call.layer);
  const Tensor& latent = subject.input(call.layer, q_latent);
  const Tensor& hidden_rows = subject.input(call.layer, hidden);
  const Tensor entry = subject.input(call.layer, query_entry);
  const Tensor codes = subject.input(call.layer, query_codes);
  const Tensor scales = subject.input(call.layer, query_scales);
  Tensor head_weights = subject.input(call.layer, query_weights);
  Tensor entry_rows = as_rows(entry, kIndexDim);
  Tensor code_rows = as_rows(codes, kIndexDim);
  Tensor scale_rows = as_rows(scales, scales.dim(2));
  const auto constant =
      static_cast<float>(1.0 / std::sqrt(128.0 * static_cast<double>(geometry.index_heads)));
  const std::int64_t heads = geometry.index_heads;
  for (std::int64_t token = 0; token < latent.dim(0); ++token) {
    if (call.plan.rows[static_cast<std::size_t>(token)].request < 0) continue;
    const Angles angles = angles_at(geometry, true, call.plan.rows[static_cast<std::size_t>(token)].position);
    std::vector<std::uint16_t> row =
        linear(weights.indexer_wq_b, 0, heads * kIndexDim, tensor_row<std::uint16_t>(latent, token));
    const std::vector<std::uint16_t> projected =
        linear(weights.indexer_weights_proj, 0, heads, tensor_row<std::uint16_t>(hidden_rows, token));
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::span<std::uint16_t> one(row.data() + head * kIndexDim, kIndexDim);
      rotate(one.subspan(kIndexDim - kRopeDim), angles, false, change.pairing);
      if (change.hadamard) hadamard(one);
      const std::int64_t at = token * heads + head;
      std::ranges::copy(one, tensor_row<std::uint16_t>(entry_rows, at).begin());
      store_index_row(one, fp4(subject), {}, code_rows, scale_rows, at, {});
      float weight = arith::bf16_to_f32(projected[static_cast<std::size_t>(head)]) * constant;
      if (!fp4(subject)) weight = weight * scale_rows.as<float>()[static_cast<std::size_t>(at)];
      tensor_row<float>(head_weights, token)[static_cast<std::size_t>(head)] = weight;
    }
  }
  subject.change(call.layer, query_entry, shaped_as(entry_rows, entry));
  subject.change(call.layer, query_codes, shaped_as(code_rows, codes));
  subject.change(call.layer, query_scales, shaped_as(scale_rows, scales));
  subject.change(call.layer, query_weights, std::move(head_weights));
}

void entry_rotated_elsewhere(FaultyEngine& subject, const Parameters& parameters) {
  const CompressorStages& stages = compressor_stages(parameters);
  const FinishChange change{.position = parameters.word("position") == "last" ? FinishChange::Position::last
                                                                              : FinishChange::Position::index,
                            .quantiser = {}};
  subject.after(stages.finish, [&subject, &stages, change](const StageCall& call) {
    refinish(subject, call, stages, change);
  });
}

void query_half_split(FaultyEngine& subject, const Parameters&) {
  subject.needs(query_entry);
  subject.after(Stage::indexer_query, [&subject](const StageCall& call) {
    remake_query(subject, call, {.pairing = Pairing::halves});
  });
}

void hadamard_dropped_on_key(FaultyEngine& subject, const Parameters&) {
  subject.after(Stage::indexer_finish, [&subject](const StageCall& call) {
    refinish(subject, call, indexer_stages(), {.hadamard = false, .quantiser = {}});
  });
}

void hadamard_dropped_on_both(FaultyEngine& subject, const Parameters& parameters) {
  hadamard_dropped_on_key(subject, parameters);
  subject.needs(query_entry);
  subject.after(Stage::indexer_query,
                [&subject](const StageCall& call) { remake_query(subject, call, {.hadamard = false}); });
}

void quantise_unrounded_scale(FaultyEngine& subject, const Parameters& parameters) {
  install_quantiser(subject, parameters, {.unrounded = true});
}

void quantise_scale_rounded_down(FaultyEngine& subject, const Parameters& parameters) {
  install_quantiser(subject, parameters, {.round_down = true});
}

void quantise_without_clamp(FaultyEngine& subject, const Parameters& parameters) {
  install_quantiser(subject, parameters, {.round_down = true, .clamp = false});
}

}  // namespace dsv4::oracle::faults
