#include <algorithm>

#include "reference/compressor.hpp"
#include "reference/online_pool.hpp"
#include "reference/pool.hpp"
#include "reference/stages.hpp"

namespace dsv4::reference {
namespace {

/// One row of a window before it is pooled: where its kv and score' lie. A row of this step needs its score'
/// made.
struct Source {
  std::int64_t batch_row = -1;  ///< row of this step, or
  std::int64_t slot = -1;       ///< row of the state as it was before the step
  std::int32_t position = 0;
};

/// Positions of a window in ascending order; those below 0 do not exist (12.4). Slots are found here, outside
/// of any parallel loop, because a missing page is an error.
std::vector<Source> window_sources(const StageContext& context, const Compressor& form,
                                   const ClosedEntry& entry) {
  const RequestStep& request = *entry.request;
  const Slots slots = context.slots(request);
  const std::int32_t end = (entry.index + 1) * form.ratio;
  const std::int32_t span = form.overlap ? 2 * form.ratio : form.ratio;
  std::vector<Source> sources;
  for (std::int32_t p = std::max(0, end - span); p < end; ++p) {
    if (p >= request.begin) {
      sources.push_back({request.first_row + (p - request.begin), -1, p});
    } else {
      sources.push_back({-1, slots.at(form.state_cache, p), p});
    }
  }
  return sources;
}

/// With overlap the older half of a window uses columns [0, d), the newer half [d, 2d).
int first_column(const Compressor& form, const ClosedEntry& entry, std::int32_t position) {
  return form.overlap && position / form.ratio == entry.index ? form.d : 0;
}

void pool_entry(const StageContext& context, const Compressor& form, const ClosedEntry& entry,
                const std::vector<Source>& sources, const StepRows& step_rows, std::vector<float>& scores,
                float* pooled) {
  const RowStore& state = context.state.caches.at(form.state_cache);
  std::vector<PoolRow> rows;
  rows.reserve(sources.size());
  scores.resize(sources.size() * static_cast<std::size_t>(form.channels));
  float* made = scores.data();
  for (const Source& source : sources) {
    const int column = first_column(form, entry, source.position);
    if (source.batch_row >= 0) {
      step_rows.score(source.batch_row, source.position, made);
      rows.push_back({step_rows.kv(source.batch_row) + column, made + column});
      made += form.channels;
    } else {
      const auto* stored = reinterpret_cast<const float*>(state.values(source.slot));
      rows.push_back({stored + column, stored + form.channels + column});
    }
  }
  if (context.profile().get<PoolMode>() == PoolMode::f32_softmax_bf16_sum) {
    pool_window_bf16(rows, form.d, pooled);
  } else {
    pool_window(rows, form.d, pooled);
  }
}

void pool_windows(const StageContext& context, const Compressor& form, std::span<const ClosedEntry> closed,
                  float* pooled) {
  std::vector<std::vector<Source>> sources;
  sources.reserve(closed.size());
  for (const ClosedEntry& entry : closed) sources.push_back(window_sources(context, form, entry));
  const StepRows step_rows(context, form);
  const std::int64_t count = std::ssize(closed);
#pragma omp parallel if (count > 1)
  {
    std::vector<float> scores;
#pragma omp for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      pool_entry(context, form, closed[at], sources[at], step_rows, scores, pooled + i * form.d);
    }
  }
}

/// Online C128: the running state after the window's last token, divided (12.5).
void pool_online(const StageContext& context, const Compressor& form, std::span<const ClosedEntry> closed,
                 float* pooled) {
  auto next = closed.begin();
  for (const RequestStep& request : context.plan.requests) {
    if (next == closed.end() || next->request != &request) continue;
    run_online(context, form, request, [&](std::int32_t p, const OnlineState& state) {
      if (next == closed.end() || next->request != &request || p != (next->index + 1) * form.ratio - 1)
        return;
      online_pool_finish(state.sum.data(), state.kv.data(), form.d,
                         pooled + (next - closed.begin()) * form.d);
      ++next;
    });
  }
  require(next == closed.end(), "an online window closed before its state began");
}

}  // namespace

void compress_pool(StageContext& context, Stage stage) {
  const Compressor form = compressor(context, stage);
  const std::vector<ClosedEntry> closed = closed_entries(context, form);
  const std::int64_t count = std::ssize(closed);
  Tensor pooled(DType::float32, {count, form.d});
  Tensor request(DType::int32, {count});
  Tensor index(DType::int32, {count});
  for (std::size_t i = 0; i < closed.size(); ++i) {
    request.as<std::int32_t>()[i] = closed[i].request->request;
    index.as<std::int32_t>()[i] = closed[i].index;
  }
  if (form.online) {
    pool_online(context, form, closed, pooled.as<float>().data());
  } else {
    pool_windows(context, form, closed, pooled.as<float>().data());
  }
  context.publish(form.indexer ? TensorId::indexer_pooled : TensorId::compress_pooled, std::move(pooled));
  context.publish(form.indexer ? TensorId::indexer_pool_request : TensorId::compress_pool_request,
                  std::move(request));
  context.publish(form.indexer ? TensorId::indexer_pool_index : TensorId::compress_pool_index,
                  std::move(index));
}

}  // namespace dsv4::reference
