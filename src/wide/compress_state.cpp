/// compress.state and indexer.state: the rows of kv and score + APE that later steps pool
/// (docs/numerics.md 12.2, 12.3), or the running state of online C128 (12.5, 20).
#include "wide/compressor.hpp"
#include "wide/stages.hpp"

namespace dsv4::wide {
namespace {

void publish_places(Layer& layer, TensorId slot_id, TensorId token_id, const std::vector<std::int32_t>& slots,
                    const std::vector<std::int32_t>& tokens) {
  layer.publish_integers(slot_id, {std::ssize(slots)}, slots);
  layer.publish_integers(token_id, {std::ssize(tokens)}, tokens);
}

void write_rows(Layer& layer, const StepPlan& plan, const Compressor& self, Stage stage) {
  const Projections rows = projections(layer, self);
  std::vector<Eigen::Index> written;
  std::vector<std::int32_t> slots;
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < layer.rows().size(); ++i) {
    const RequestStep& step = layer.step_of(plan, i);
    const std::int32_t position = layer.position(i);
    const bool live = step.verify || position >= first_live_state(layer.kind, step.committed);
    if (!live || position < state_from(layer, step, self.indexer)) continue;
    const std::int64_t slot = layer.caches.slot(self.state, {*step.tables, step.state_base}, position);
    const auto row = static_cast<Eigen::Index>(i);
    std::vector<double> values(rows.kv.row(row).begin(), rows.kv.row(row).end());
    values.insert(values.end(), rows.rounded_score.row(row).begin(), rows.rounded_score.row(row).end());
    layer.write(stage, self.state, slot, step.request, position, layer.caches.state_bytes(values));
    written.push_back(row);
    slots.push_back(static_cast<std::int32_t>(slot));
    tokens.push_back(layer.rows()[i]);
  }
  Balls kv(std::ssize(written), self.channels);
  Balls score(std::ssize(written), self.channels);
  for (std::size_t i = 0; i < written.size(); ++i) {
    const auto row = static_cast<Eigen::Index>(i);
    kv.value.row(row) = rows.kv.row(written[i]);
    kv.radius.row(row).setZero();
    score.value.row(row) = rows.score.value.row(written[i]);
    score.radius.row(row) = rows.score.radius.row(written[i]);
  }
  layer.publish_f32(self.state_kv, {self.channels}, kv);
  layer.publish_f32(self.state_score, {self.channels}, score);
  publish_places(layer, self.state_slot, self.state_token, slots, tokens);
}

/// One row a request, the state after its last token in bank 0; a verify step keeps one bank for each of its
/// rows.
void write_online(Layer& layer, const StepPlan& plan, const Compressor& self, Stage stage) {
  struct Row {
    std::int32_t slot;
    std::int32_t token;
    OnlineState state;
  };
  std::vector<Row> rows;
  scan_online(layer, plan, self, [&](std::size_t s, std::size_t row, const OnlineState& state) {
    const RequestStep& step = plan.requests[s];
    const std::int32_t position = layer.position(row);
    if (position < state_from(layer, step, false) || (!step.verify && position != step.end - 1)) return;
    const std::int32_t bank = step.verify ? position - step.begin + 1 : 0;
    const std::int64_t slot = layer.caches.online_slot({*step.tables, step.state_base}, bank);
    std::vector<double> values(state.max);
    for (const Ball& sum : state.sum) values.push_back(sum.value);
    for (const Ball& weighted : state.weighted) values.push_back(weighted.value);
    layer.write(stage, self.state, slot, step.request, position, layer.caches.state_bytes(values));
    rows.push_back({static_cast<std::int32_t>(slot), layer.rows()[row], state});
  });
  Balls max(std::ssize(rows), self.width);
  Balls sum(std::ssize(rows), self.width);
  Balls weighted(std::ssize(rows), self.width);
  std::vector<std::int32_t> slots;
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (int c = 0; c < self.width; ++c) {
      const auto channel = static_cast<std::size_t>(c);
      const auto row = static_cast<Eigen::Index>(i);
      max.set(row, c, {rows[i].state.max[channel], 0});
      sum.set(row, c, rows[i].state.sum[channel]);
      weighted.set(row, c, rows[i].state.weighted[channel]);
    }
    slots.push_back(rows[i].slot);
    tokens.push_back(rows[i].token);
  }
  layer.publish_f32(TensorId::compress_state_max, {self.width}, max);
  layer.publish_f32(TensorId::compress_state_sum, {self.width}, sum);
  layer.publish_f32(self.state_kv, {self.width}, weighted);
  publish_places(layer, self.state_slot, self.state_token, slots, tokens);
}

}  // namespace

void compress_state(Layer& layer, const StepPlan& plan, bool indexer) {
  const Compressor self = compressor(layer, indexer);
  const Stage stage = indexer ? Stage::indexer_state : Stage::compress_state;
  if (layer.caches.online() && !indexer) {
    write_online(layer, plan, self, stage);
  } else {
    write_rows(layer, plan, self, stage);
  }
}

}  // namespace dsv4::wide
