#include "oracle/faults/state.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "arith/bf16.hpp"
#include "oracle/faults/compressor_form.hpp"
#include "oracle/slots.hpp"

namespace dsv4::oracle::faults {
namespace {

std::vector<Write> writes_of(const FaultyEngine& subject, int layer, Stage stage) {
  std::vector<Write> rows;
  for (const Write& write : subject.writes(layer)) {
    if (write.stage == stage) rows.push_back(write);
  }
  return rows;
}

/// The state rows that a stage wrote: tensors by row, and the writes in the same order.
struct StateRows {
  StateRows(FaultyEngine& engine, int of_layer, const CompressorStages& of_stages)
      : subject(engine),
        layer(of_layer),
        stages(of_stages),
        kv(engine.input(of_layer, of_stages.state_kv)),
        score(engine.input(of_layer, of_stages.state_score)),
        writes(writes_of(engine, of_layer, of_stages.state)) {}

  /// Publishes the rows as they are now and puts them where they were written.
  void store() {
    for (std::size_t row = 0; row < writes.size(); ++row) {
      const auto at = static_cast<std::int64_t>(row);
      const auto values = std::as_bytes(tensor_row<float>(std::as_const(kv), at));
      const auto scores = std::as_bytes(tensor_row<float>(std::as_const(score), at));
      writes[row].bytes.assign(values.begin(), values.end());
      writes[row].bytes.insert(writes[row].bytes.end(), scores.begin(), scores.end());
      subject.put(layer, writes[row]);
    }
    subject.change(layer, stages.state_kv, std::move(kv));
    subject.change(layer, stages.state_score, std::move(score));
  }

  FaultyEngine& subject;
  int layer;
  const CompressorStages& stages;
  Tensor kv, score;
  std::vector<Write> writes;
};

using SavedRows = std::map<std::int64_t, std::vector<std::byte>>;  ///< by slot

}  // namespace

void state_keeps_last_rows(FaultyEngine& subject, const Parameters& parameters) {
  const CompressorStages& stages = compressor_stages(parameters);
  const auto keep = static_cast<std::int32_t>(parameters.number("keep"));
  const auto lost = [keep](const StepPlan& plan, const Write& write) {
    const RequestStep* request = share_of(plan, write.request);
    return request != nullptr && request->verify && write.index < request->end - keep;
  };
  auto saved = std::make_shared<SavedRows>();
  subject.before(stages.state, [&subject, &stages, keep, saved](const StageCall& call) {
    saved->clear();
    const CompressorForm form(subject, call.layer, stages);
    for (const RequestStep& request : call.plan.requests) {
      if (!request.verify || form.online) continue;
      for (std::int32_t p = request.begin; p < request.end - keep; ++p) {
        const std::int64_t slot = slot_in(subject.config(), call.layer, stages.state_cache, request, p);
        if (slot >= 0) (*saved)[slot] = subject.row(call.layer, stages.state_cache, slot);
      }
    }
  });
  subject.after(stages.state, [&subject, &stages, lost, saved](const StageCall& call) {
    const std::vector<Write> writes = writes_of(subject, call.layer, stages.state);
    std::vector<bool> dropped;
    for (const Write& write : writes)
      dropped.push_back(lost(call.plan, write) && saved->contains(write.slot));
    if (std::ranges::find(dropped, true) == dropped.end()) return;
    for (std::size_t i = 0; i < writes.size(); ++i) {
      if (dropped[i]) subject.unwrite(call.layer, writes[i], saved->at(writes[i].slot));
    }
    for (const TensorId id : {stages.state_kv, stages.state_score, stages.state_slot, stages.state_token})
      subject.change(call.layer, id, without_rows(subject.input(call.layer, id), dropped));
  });
}

void state_bias_from_chunk(FaultyEngine& subject, const Parameters& parameters) {
  const CompressorStages& stages = compressor_stages(parameters);
  subject.after(stages.state, [&subject, &stages](const StageCall& call) {
    const CompressorForm form(subject, call.layer, stages);
    if (form.online) return;
    StateRows rows(subject, call.layer, stages);
    const auto token = subject.input(call.layer, stages.state_token).as<std::int32_t>();
    const Tensor& raw = subject.input(call.layer, stages.score);
    for (std::size_t row = 0; row < rows.writes.size(); ++row) {
      const RequestStep* request = share_of(call.plan, rows.writes[row].request);
      if (request == nullptr) continue;
      const std::int32_t residue = (rows.writes[row].index - request->begin) % form.ratio;
      const std::vector<float> biased = biased_score(form, raw, token[row], residue);
      std::ranges::copy(biased, tensor_row<float>(rows.score, static_cast<std::int64_t>(row)).begin());
    }
    rows.store();
  });
}

void state_in_bf16(FaultyEngine& subject, const Parameters& parameters) {
  const CompressorStages& stages = compressor_stages(parameters);
  subject.after(stages.state, [&subject, &stages](const StageCall& call) {
    if (CompressorForm(subject, call.layer, stages).online) return;
    StateRows rows(subject, call.layer, stages);
    for (Tensor* part : {&rows.kv, &rows.score}) {
      for (float& value : part->as<float>()) value = arith::bf16_to_f32(arith::f32_to_bf16(value));
    }
    rows.store();
  });
}

void state_next_slot(FaultyEngine& subject, const Parameters& parameters) {
  const CompressorStages& stages = compressor_stages(parameters);
  auto saved = std::make_shared<SavedRows>();
  subject.before(stages.state, [&subject, &stages, saved](const StageCall& call) {
    saved->clear();
    const CacheShape shape = cache_shape(subject.config(), call.layer, stages.state_cache);
    if (shape.paged || shape.online) return;
    for (const RequestStep& request : call.plan.requests) {
      for (std::int64_t row = 0; row < shape.base_rows; ++row) {
        const std::int64_t slot = request.state_base * shape.base_rows + row;
        (*saved)[slot] = subject.row(call.layer, stages.state_cache, slot);
      }
    }
  });
  subject.after(stages.state, [&subject, &stages, saved](const StageCall& call) {
    const CacheShape shape = cache_shape(subject.config(), call.layer, stages.state_cache);
    const std::vector<Write> writes = writes_of(subject, call.layer, stages.state);
    if (saved->empty() || writes.empty()) return;
    Tensor slots = subject.input(call.layer, stages.state_slot);
    for (const Write& write : writes) subject.unwrite(call.layer, write, saved->at(write.slot));
    for (std::size_t i = 0; i < writes.size(); ++i) {
      Write moved = writes[i];
      const std::int64_t base = moved.slot / shape.base_rows * shape.base_rows;
      moved.slot = base + (moved.slot - base + 1) % shape.base_rows;
      slots.as<std::int32_t>()[i] = static_cast<std::int32_t>(moved.slot);
      subject.put(call.layer, moved);
    }
    subject.change(call.layer, stages.state_slot, std::move(slots));
  });
}

}  // namespace dsv4::oracle::faults
