#include "reference/compressor.hpp"

#include <algorithm>
#include <cstring>

#include "model/error.hpp"
#include "reference/online_pool.hpp"

namespace dsv4::reference {
namespace {

std::int32_t kept_state(const Compressor& form, const KeepFrom& from) {
  if (form.indexer) return from.state_index;
  return form.overlap ? from.state_c4 : from.state_c128;
}

OnlineState committed_state(const StageContext& context, const Compressor& form, const RequestStep& request) {
  const RowStore& store = context.state.caches.at(form.state_cache);
  const float* row = reinterpret_cast<const float*>(store.values(context.slots(request).bank(0)));
  const auto d = static_cast<std::size_t>(form.d);
  return {{row, row + d}, {row + d, row + 2 * d}, {row + 2 * d, row + 3 * d}};
}

}  // namespace

Compressor compressor(const StageContext& context, Stage stage) {
  const LayerKind kind = context.kind();
  Compressor form;
  form.indexer = stage >= Stage::indexer_project && stage <= Stage::indexer_finish;
  form.d = form.indexer ? kIndexDim : kHeadDim;
  form.ratio = ratio(kind);
  form.overlap = kind == LayerKind::csa;
  form.online = online_state(context.config.cache, kind);
  form.channels = compressor_channels(kind, form.d);
  form.state_cache = form.indexer ? Cache::index_state : Cache::state;
  form.entry_cache = form.indexer ? Cache::index_entries : Cache::entries;
  form.kv = form.indexer ? TensorId::indexer_kv : TensorId::compress_kv;
  form.score = form.indexer ? TensorId::indexer_score_raw : TensorId::compress_score;
  form.weights = form.indexer ? &context.weights().indexer_compressor : &context.weights().compressor;
  return form;
}

std::vector<ClosedEntry> closed_entries(const StageContext& context, const Compressor& form) {
  std::vector<ClosedEntry> closed;
  for (const RequestStep& request : context.plan.requests) {
    const std::int32_t keep = form.overlap ? request.from.entries_c4 : request.from.entries_c128;
    for (std::int32_t j = request.begin / form.ratio; j < request.end / form.ratio; ++j) {
      if (j >= keep) closed.push_back({&request, j});
    }
  }
  return closed;
}

std::int32_t first_written_state(const StageContext& context, const Compressor& form,
                                 const RequestStep& request) {
  const std::int32_t live = first_live_state(context.kind(), request.committed);
  const std::int32_t first = request.verify ? request.begin : std::max(request.begin, live);
  return std::max(first, kept_state(form, request.from));
}

StepRows::StepRows(const StageContext& context, const Compressor& form)
    : kv_(context.input(form.kv).as<float>().data()),
      score_(context.input(form.score).as<float>().data()),
      ape_(form.weights->ape.data()),
      ratio_(form.ratio),
      channels_(form.channels) {}

void StepRows::score(std::int64_t row, std::int32_t position, float* out) const {
  const float* raw = score_ + row * channels_;
  const float* ape = ape_ + std::int64_t{position % ratio_} * channels_;
  for (int channel = 0; channel < channels_; ++channel) out[channel] = raw[channel] + ape[channel];
}

void run_online(const StageContext& context, const Compressor& form, const RequestStep& request,
                const std::function<void(std::int32_t position, const OnlineState& state)>& visit) {
  OnlineState state = committed_state(context, form, request);
  const StepRows rows(context, form);
  std::vector<float> score(static_cast<std::size_t>(form.d));
  for (std::int32_t p = std::max(request.begin, kept_state(form, request.from)); p < request.end; ++p) {
    const std::int64_t row = request.first_row + (p - request.begin);
    rows.score(row, p, score.data());
    online_pool_update(p % form.ratio, rows.kv(row), score.data(), form.d, state.max.data(), state.sum.data(),
                       state.kv.data());
    visit(p, state);
  }
}

}  // namespace dsv4::reference
