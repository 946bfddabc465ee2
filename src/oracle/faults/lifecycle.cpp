#include "oracle/faults/lifecycle.hpp"

#include <algorithm>
#include <map>
#include <memory>

#include "model/layout.hpp"
#include "oracle/faults/compressor_form.hpp"
#include "oracle/slots.hpp"

namespace dsv4::oracle::faults {
namespace {

constexpr Cache kStateCaches[]{Cache::state, Cache::index_state};

int layers(const FaultyEngine& subject) {
  return static_cast<int>(subject.config().layers.size());
}

}  // namespace

void rollback_leaves_rows(FaultyEngine& subject, const Parameters&) {
  subject.on_end([&subject](const StepPlan& plan) {
    for (int layer = 0; layer < layers(subject); ++layer) {
      const LayerKind kind = subject.kind(layer);
      for (const Cache cache : kStateCaches) {
        if (!has_cache(kind, cache)) continue;
        const CacheShape shape = cache_shape(subject.config(), layer, cache);
        if (shape.paged || shape.online) continue;
        const std::int32_t ring = kind == LayerKind::csa ? 8 : 128;
        for (const RequestStep& request : plan.requests) {
          if (!request.verify) continue;
          for (std::int32_t rejected = request.committed; rejected < request.end; ++rejected) {
            const std::int32_t hidden_by = rejected - ring;
            if (hidden_by < first_live_state(kind, request.committed)) continue;
            const auto slot = [&](std::int32_t p) {
              return slot_of(shape, *request.tables, request.state_base, p);
            };
            subject.overwrite(layer, cache, slot(hidden_by), subject.row(layer, cache, slot(rejected)));
          }
        }
      }
    }
  });
}

void rollback_commits_last_bank(FaultyEngine& subject, const Parameters&) {
  const auto& kinds = subject.config().layers;
  const bool online = subject.config().cache.c128_state == C128State::online &&
                      std::ranges::find(kinds, LayerKind::hca) != kinds.end();
  subject.on_plan([online](StepPlan& plan) {
    bool changed = false;
    for (RequestStep& request : plan.requests) {
      if (!online || !request.verify || request.committed == request.end) continue;
      request.committed = request.end;
      changed = true;
    }
    return changed;
  });
}

void padding_writes_slot_zero(FaultyEngine& subject, const Parameters&) {
  subject.after(Stage::kv_window, [&subject](const StageCall& call) {
    const auto pads = std::ranges::count(call.plan.rows, -1, &Row::request);
    if (pads == 0) return;
    // A padding row is computed from nothing: all codes 0 with the scale of an empty block.
    std::vector<std::byte> page = subject.read_row(call.layer, Cache::window, layout::kNullPage);
    const std::vector<std::byte> before = page;
    const CacheShape shape = cache_shape(subject.config(), call.layer, Cache::window);
    std::fill_n(page.begin(), shape.value_bytes, std::byte{0});
    std::fill_n(page.begin() + shape.page_rows * shape.value_bytes, shape.scale_bytes, std::byte{105});
    if (page == before) return;
    subject.write_row(call.layer, Cache::window, layout::kNullPage, page);
    subject.fire();
  });
}

void page_freed_early(FaultyEngine& subject, const Parameters& parameters) {
  const std::int64_t step = parameters.number("step");
  subject.on_end([&subject, step](const StepPlan& plan) {
    if (plan.index != step || plan.live.empty()) return;
    const LiveRequest& request = plan.live.front();
    for (int layer = 0; layer < layers(subject); ++layer) {
      const CacheShape shape = cache_shape(subject.config(), layer, Cache::window);
      const std::int64_t slot =
          slot_of(shape, *request.tables, request.state_base, first_live_window(request.length));
      if (slot < 0 || request.length == 0) continue;
      std::vector<std::byte> page = subject.read_row(layer, Cache::window, slot / shape.page_rows);
      std::ranges::fill(page, std::byte{layout::kPoison});
      subject.write_row(layer, Cache::window, slot / shape.page_rows, page);
      subject.fire();
    }
  });
}

void stale_block_table(FaultyEngine& subject, const Parameters&) {
  auto seen = std::make_shared<std::map<std::int32_t, BlockTables>>();  // first table, by request
  subject.on_plan([seen](StepPlan& plan) {
    bool changed = false;
    for (RequestStep& request : plan.requests) {
      BlockTables& first = (*seen)[request.request];
      auto stale = std::make_shared<BlockTables>(*request.tables);
      for (std::size_t pool = 0; pool < kPoolCount; ++pool) {
        std::vector<std::int32_t>& table = (*stale)[pool];
        first[pool].resize(std::max(first[pool].size(), table.size()), -1);
        for (std::size_t item = 0; item < table.size(); ++item) {
          if (table[item] < 0) continue;
          std::int32_t& old = first[pool][item];
          if (old < 0) old = table[item];
          changed |= old != table[item];
          table[item] = old;
        }
      }
      request.tables = stale;
    }
    return changed;
  });
}

void restore_recomputes_window(FaultyEngine& subject, const Parameters&) {
  subject.on_plan([](StepPlan& plan) {
    if (plan.kind != StepKind::restore) return false;
    bool changed = false;
    for (RequestStep& request : plan.requests) {
      changed |= request.from.window > request.begin;
      request.from.window = std::min(request.from.window, request.begin);
    }
    return changed;
  });
}

}  // namespace dsv4::oracle::faults
