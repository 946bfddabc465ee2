// What a step reads, stage by stage.
#include <algorithm>

#include "model/profile.hpp"
#include "oracle/lifetime/checker.hpp"

namespace dsv4::oracle {
namespace {

std::int32_t kept_state(const KeepFrom& from, LayerKind kind, Cache state) {
  if (state == Cache::index_state) return from.state_index;
  return kind == LayerKind::csa ? from.state_c4 : from.state_c128;
}

}  // namespace

void LifetimeChecker::pool_reads(const StepPlan& plan, int layer) {
  if (has_compressor(kind(layer))) pool_reads_of(plan, layer, Stage::compress_pool, Cache::state);
  if (has_indexer(kind(layer))) pool_reads_of(plan, layer, Stage::indexer_pool, Cache::index_state);
}

/// Rows of a window that lie before the step come from the state: position follows from entry and ratio
/// (12.4). The online form goes on from the committed bank, unless a group begins (12.5).
void LifetimeChecker::pool_reads_of(const StepPlan& plan, int layer, Stage stage, Cache state) {
  const LayerKind of = kind(layer);
  const CacheShape& shape = shadow_.at(layer, state).shape();
  const std::int32_t r = ratio(of);
  const std::int32_t span = of == LayerKind::csa ? 2 * r : r;
  const Access access{layer, stage, state, "reads", "read"};
  for (const RequestStep& step : plan.requests) {
    if (shape.online) {
      const std::int32_t first = std::max(step.begin, kept_state(step.from, of, state));
      if (first >= step.end || first % r == 0) continue;
      check(access, rows_.wanted(of, state, step.request, first - 1),
            rows_.slot(shape, step.request, first - 1));
      continue;
    }
    const std::int32_t kept = of == LayerKind::csa ? step.from.entries_c4 : step.from.entries_c128;
    for (std::int32_t j = std::max(step.begin / r, kept); j < step.end / r; ++j) {
      const std::int32_t end = (j + 1) * r;
      for (std::int32_t p = std::max(0, end - span); p < std::min(end, step.begin); ++p) {
        check(access, rows_.wanted(of, state, step.request, p), rows_.slot(shape, step.request, p));
      }
    }
  }
}

/// Index entries 0 .. visible - 1 of the row that sees most (13).
void LifetimeChecker::score_reads(const Engine& engine, const StepPlan& plan, int layer) {
  const Tensor* const visible = engine.tensor(layer, TensorId::visible);
  if (visible == nullptr) return;
  const auto counts = visible->as<std::int32_t>();
  const CacheShape& shape = shadow_.at(layer, Cache::index_entries).shape();
  const Access access{layer, Stage::indexer_score, Cache::index_entries, "reads", "read"};
  for (const RequestStep& step : plan.requests) {
    std::int32_t most = 0;
    for (std::int32_t i = 0; i < step.row_count; ++i) {
      const auto row = static_cast<std::size_t>(step.first_row + i);
      if (row < counts.size()) most = std::max(most, counts[row]);
    }
    for (std::int32_t j = 0; j < most; ++j) {
      const std::int64_t slot = rows_.slot(shape, step.request, j);
      check(access, rows_.wanted(LayerKind::csa, Cache::index_entries, step.request, j), slot);
      if (slot < 0) break;  // beyond the table
    }
  }
}

void LifetimeChecker::list_reads(const Engine& engine, const StepPlan& plan, int layer) {
  if (const Tensor* slots = engine.tensor(layer, TensorId::window_slots)) window_list(plan, layer, *slots);
  const Tensor* const slots = engine.tensor(layer, TensorId::compressed_slots);
  if (slots == nullptr) return;
  const Tensor* const selected =
      has_indexer(kind(layer)) ? engine.tensor(layer, TensorId::selected) : nullptr;
  if (has_indexer(kind(layer)) && selected == nullptr) return;
  compressed_list(plan, layer, *slots, selected);
}

/// Item i is position max(0, p - W + 1) + i, or p - i where the newest comes first (14).
void LifetimeChecker::window_list(const StepPlan& plan, int layer, const Tensor& slots) {
  const Access access{layer, Stage::attention_lists, Cache::window, "names", "read"};
  const bool newest_first = config_.profile.get<ListOrder>() == ListOrder::newest_first;
  const auto values = slots.as<std::int32_t>();
  const auto width = static_cast<std::size_t>(slots.dim(1));
  for (const RequestStep& step : plan.requests) {
    for (std::int32_t p = step.begin; p < step.end; ++p) {
      const std::size_t row = static_cast<std::size_t>(step.first_row + p - step.begin) * width;
      if (row + width > values.size()) return;
      const std::int32_t oldest = std::max(0, p - kWindow + 1);
      for (std::size_t i = 0; i < width; ++i) {
        const std::int32_t slot = values[row + i];
        if (slot < 0) continue;  // no key
        const auto item = static_cast<std::int32_t>(i);
        const std::int32_t position = newest_first ? p - item : oldest + item;
        check(access, rows_.wanted(kind(layer), Cache::window, step.request, position), slot);
      }
    }
  }
}

/// The selected entries in their order, or every visible one (14).
void LifetimeChecker::compressed_list(const StepPlan& plan, int layer, const Tensor& slots,
                                      const Tensor* selected) {
  const Access access{layer, Stage::attention_lists, Cache::entries, "names", "read"};
  const auto values = slots.as<std::int32_t>();
  const auto width = static_cast<std::size_t>(slots.dim(1));
  const auto ranked = selected == nullptr ? 0 : static_cast<std::size_t>(selected->dim(1));
  for (const RequestStep& step : plan.requests) {
    for (std::int32_t i = 0; i < step.row_count; ++i) {
      const auto row = static_cast<std::size_t>(step.first_row + i);
      if ((row + 1) * width > values.size()) return;
      for (std::size_t item = 0; item < width; ++item) {
        const std::int32_t slot = values[row * width + item];
        if (slot < 0) continue;
        std::int32_t entry = static_cast<std::int32_t>(item);
        if (selected != nullptr) {
          entry = item < ranked ? selected->as<std::int32_t>()[row * ranked + item] : -1;
        }
        check(access, rows_.wanted(kind(layer), Cache::entries, step.request, entry), slot);
      }
    }
  }
}

}  // namespace dsv4::oracle
