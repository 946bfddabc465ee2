#include "oracle/faults/pool.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>

#include "oracle/faults/math.hpp"

namespace dsv4::oracle::faults {
namespace {

struct Window {
  std::deque<std::vector<float>> made;  ///< values that lie in no tensor
  std::vector<PoolRow> rows;
};

bool decoding(const RequestStep& request) {
  return request.begin > 0 && request.row_count == 1 && !request.verify;
}

/// Rows of one entry, ascending, from this step's project or from the state before the step.
Window window_of(FaultyEngine& subject, const StageCall& call, const CompressorStages& stages,
                 const CompressorForm& form, const RequestStep& request, std::int32_t entry,
                 const PoolChange& change) {
  Window window;
  const std::int32_t own = entry * form.ratio;
  const bool both = form.overlap && !(change.no_previous_group && decoding(request));
  if (change.empty_group_counts && form.overlap && entry == 0) {
    const std::vector<float>& zero = window.made.emplace_back(static_cast<std::size_t>(form.channels));
    window.rows.assign(static_cast<std::size_t>(form.ratio), {zero.data(), zero.data()});
  }
  const Tensor& kv = subject.input(call.layer, stages.kv);
  const Tensor& score = subject.input(call.layer, stages.score);
  for (std::int32_t p = std::max(0, both ? own - form.ratio : own); p < own + form.ratio; ++p) {
    const bool second = form.overlap && ((p >= own) != change.halves_swapped);
    const int column = second ? form.d : 0;
    if (p >= request.begin) {
      const std::int64_t row = request.first_row + (p - request.begin);
      window.made.push_back(biased_score(form, score, row, p % form.ratio));
      window.rows.push_back({tensor_row<float>(kv, row).data() + column, window.made.back().data() + column});
      continue;
    }
    const std::int64_t slot = slot_in(subject.config(), call.layer, stages.state_cache, request, p);
    require(slot >= 0, "a window of a fault reads a row whose page is not held");
    const std::vector<std::byte> bytes = subject.row(call.layer, stages.state_cache, slot);
    std::vector<float>& held = window.made.emplace_back(bytes.size() / sizeof(float));
    std::memcpy(held.data(), bytes.data(), bytes.size());
    window.rows.push_back({held.data() + column, held.data() + form.channels + column});
  }
  return window;
}

void install(FaultyEngine& subject, const Parameters& parameters, const PoolChange& change) {
  const CompressorStages& stages = compressor_stages(parameters);
  subject.needs(stages.pool_request);
  subject.needs(stages.pool_index);
  subject.after(stages.pool, [&subject, &stages, change](const StageCall& call) {
    repool(subject, call, stages, change);
  });
}

}  // namespace

void repool(FaultyEngine& subject, const StageCall& call, const CompressorStages& stages,
            const PoolChange& change) {
  const CompressorForm form(subject, call.layer, stages);
  if (form.online) return;
  Tensor pooled = subject.input(call.layer, stages.pooled);
  const auto requests = subject.input(call.layer, stages.pool_request).as<std::int32_t>();
  const auto indices = subject.input(call.layer, stages.pool_index).as<std::int32_t>();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const RequestStep* request = share_of(call.plan, requests[i]);
    require(request != nullptr, "a pooled entry belongs to no request of the step");
    const Window window = window_of(subject, call, stages, form, *request, indices[i], change);
    pool(window.rows, tensor_row<float>(pooled, static_cast<std::int64_t>(i)));
  }
  subject.change(call.layer, stages.pooled, std::move(pooled));
}

void pool_halves_swapped(FaultyEngine& subject, const Parameters& parameters) {
  install(subject, parameters, {.halves_swapped = true});
}

void pool_decode_ignores_previous(FaultyEngine& subject, const Parameters& parameters) {
  install(subject, parameters, {.no_previous_group = true});
}

void pool_absent_group_scores_zero(FaultyEngine& subject, const Parameters& parameters) {
  install(subject, parameters, {.empty_group_counts = true});
}

void pool_closes_late(FaultyEngine& subject, const Parameters&) {
  using enum TensorId;
  static constexpr TensorId kPool[]{compress_pooled, compress_pool_request, compress_pool_index};
  static constexpr TensorId kFinish[]{compress_request, compress_index, compress_slot,   compress_entry,
                                      compress_codes,   compress_rope,  compress_scales, compress_page_bytes};
  static constexpr TensorId kLists[]{compressed_slots, compressed_logical};
  for (const TensorId id : kPool) subject.needs(id);
  subject.needs(compressed_logical);
  struct Kept {
    std::map<TensorId, Tensor> pooled;                      ///< as the engine's finish needs them
    std::vector<bool> late;                                 ///< by pooled row
    std::map<std::int64_t, std::vector<std::byte>> before;  ///< memory of the rows that are held back
    std::vector<Write> due;                                 ///< finished in the next step
  };
  auto layers = std::make_shared<std::vector<Kept>>(subject.config().layers.size());
  const auto hca = [&subject](const StageCall& call) { return subject.kind(call.layer) == LayerKind::hca; };
  const auto closes_last = [](const StepPlan& plan, std::int32_t request, std::int32_t entry) {
    const RequestStep* share = share_of(plan, request);
    return share != nullptr && share->end == (entry + 1) * 128;
  };

  subject.before(Stage::compress_pool, [&subject, layers, hca](const StageCall& call) {
    if (!hca(call)) return;
    Kept& kept = (*layers)[static_cast<std::size_t>(call.layer)];
    for (const Write& write : kept.due) subject.put(call.layer, write);
    kept.due.clear();
  });
  subject.after(Stage::compress_pool, [&subject, layers, hca, closes_last](const StageCall& call) {
    if (!hca(call)) return;
    Kept& kept = (*layers)[static_cast<std::size_t>(call.layer)];
    kept.pooled.clear();
    kept.late.clear();
    kept.before.clear();
    const auto requests = subject.input(call.layer, compress_pool_request).as<std::int32_t>();
    const auto indices = subject.input(call.layer, compress_pool_index).as<std::int32_t>();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const bool late = closes_last(call.plan, requests[i], indices[i]);
      kept.late.push_back(late);
      if (!late) continue;
      const std::int64_t slot = slot_in(subject.config(), call.layer, Cache::entries,
                                        *share_of(call.plan, requests[i]), indices[i]);
      kept.before[slot] = subject.row(call.layer, Cache::entries, slot);
    }
    for (const TensorId id : kPool) kept.pooled[id] = subject.input(call.layer, id);
    for (const TensorId id : kPool) subject.change(call.layer, id, without_rows(kept.pooled[id], kept.late));
  });
  subject.before(Stage::compress_finish, [&subject, layers, hca](const StageCall& call) {
    if (!hca(call)) return;
    for (const auto& [id, tensor] : (*layers)[static_cast<std::size_t>(call.layer)].pooled)
      subject.set_tensor(call.layer, id, tensor);
  });
  subject.after(Stage::compress_finish, [&subject, layers, hca](const StageCall& call) {
    if (!hca(call)) return;
    Kept& kept = (*layers)[static_cast<std::size_t>(call.layer)];
    for (const TensorId id : kPool)
      subject.set_tensor(call.layer, id, without_rows(kept.pooled[id], kept.late));
    const auto told = subject.writes(call.layer);
    const std::vector<Write> writes(told.begin(), told.end());
    for (const Write& write : writes) {
      if (write.stage != Stage::compress_finish || !kept.before.contains(write.slot)) continue;
      kept.due.push_back(write);
      subject.unwrite(call.layer, write, kept.before[write.slot]);
    }
    for (const TensorId id : kFinish)
      subject.change(call.layer, id, without_rows(subject.input(call.layer, id), kept.late));
  });
  subject.after(Stage::attention_lists, [&subject, hca](const StageCall& call) {
    if (!hca(call)) return;
    Tensor length = subject.input(call.layer, compressed_length);
    for (std::size_t row = 0; row < call.plan.rows.size(); ++row) {
      const RequestStep* request = share_of(call.plan, call.plan.rows[row].request);
      if (request == nullptr || call.plan.rows[row].position != request->end - 1) continue;
      if (request->end % 128 != 0) continue;
      std::int32_t& items = length.as<std::int32_t>()[row];
      items -= 1;
      for (const TensorId id : kLists) {
        Tensor list = subject.input(call.layer, id);
        tensor_row<std::int32_t>(list, static_cast<std::int64_t>(row))[static_cast<std::size_t>(items)] = -1;
        subject.change(call.layer, id, std::move(list));
      }
    }
    subject.change(call.layer, compressed_length, std::move(length));
  });
}

}  // namespace dsv4::oracle::faults
