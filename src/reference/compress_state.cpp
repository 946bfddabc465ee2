#include <algorithm>
#include <cstring>

#include "reference/compressor.hpp"
#include "reference/stages.hpp"

namespace dsv4::reference {
namespace {

struct StateRow {
  std::int64_t batch_row;
  std::int64_t slot;
  std::int32_t request;
  std::int32_t position;
};

void publish_addresses(StageContext& context, const Compressor& form, std::span<const StateRow> rows) {
  Tensor slot(DType::int32, {std::ssize(rows)});
  Tensor token(DType::int32, {std::ssize(rows)});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    slot.as<std::int32_t>()[i] = static_cast<std::int32_t>(rows[i].slot);
    token.as<std::int32_t>()[i] = static_cast<std::int32_t>(rows[i].batch_row);
  }
  context.publish(form.indexer ? TensorId::indexer_state_slot : TensorId::compress_state_slot,
                  std::move(slot));
  context.publish(form.indexer ? TensorId::indexer_state_token : TensorId::compress_state_token,
                  std::move(token));
}

/// Row of position p: kv, then score with the APE, verbatim f32 (12.2).
void write_windows(StageContext& context, const Compressor& form, Stage stage) {
  std::vector<StateRow> rows;
  for (const RequestStep& request : context.plan.requests) {
    const Slots slots = context.slots(request);
    for (std::int32_t p = first_written_state(context, form, request); p < request.end; ++p) {
      rows.push_back(
          {request.first_row + (p - request.begin), slots.at(form.state_cache, p), request.request, p});
    }
  }
  const StepRows step_rows(context, form);
  const std::int64_t channels = form.channels;
  Tensor kv(DType::float32, {std::ssize(rows), channels});
  Tensor score(DType::float32, {std::ssize(rows), channels});
  std::vector<float> bytes(static_cast<std::size_t>(2 * channels));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(step_rows.kv(rows[i].batch_row), channels, bytes.begin());
    step_rows.score(rows[i].batch_row, rows[i].position, bytes.data() + channels);
    const auto at = static_cast<std::ptrdiff_t>(i) * channels;
    std::copy_n(bytes.begin(), channels, kv.as<float>().begin() + at);
    std::copy_n(bytes.begin() + channels, channels, score.as<float>().begin() + at);
    context.write(stage, form.state_cache, rows[i].slot, rows[i].request, rows[i].position,
                  std::as_bytes(std::span(bytes)));
  }
  publish_addresses(context, form, rows);
  context.publish(form.indexer ? TensorId::indexer_state_kv : TensorId::compress_state_kv, std::move(kv));
  context.publish(form.indexer ? TensorId::indexer_state_score : TensorId::compress_state_score,
                  std::move(score));
}

/// Online (12.5): max, sum and kv of the running row, into the committed bank; a verify step keeps the state
/// after each of its rows in a bank of its own, of which end_step commits one.
void write_online(StageContext& context, const Compressor& form, Stage stage) {
  std::vector<StateRow> rows;
  std::vector<float> values;  // rows x (max, sum, kv)
  for (const RequestStep& request : context.plan.requests) {
    const Slots slots = context.slots(request);
    run_online(context, form, request, [&](std::int32_t p, const OnlineState& state) {
      if (!request.verify && p != request.end - 1) return;
      const int bank = request.verify ? 1 + (p - request.begin) : 0;
      rows.push_back({request.first_row + (p - request.begin), slots.bank(bank), request.request, p});
      for (const auto* part : {&state.max, &state.sum, &state.kv}) {
        values.insert(values.end(), part->begin(), part->end());
      }
    });
  }
  const std::int64_t d = form.d;
  std::array<Tensor, 3> parts;
  for (Tensor& part : parts) part = Tensor(DType::float32, {std::ssize(rows), d});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::span<const float> row = std::span(values).subspan(i * static_cast<std::size_t>(3 * d), 3 * d);
    for (std::size_t part = 0; part < 3; ++part) {
      std::copy_n(row.begin() + static_cast<std::ptrdiff_t>(part) * d, d,
                  parts[part].as<float>().begin() + static_cast<std::ptrdiff_t>(i) * d);
    }
    context.write(stage, form.state_cache, rows[i].slot, rows[i].request, rows[i].position,
                  std::as_bytes(row));
  }
  publish_addresses(context, form, rows);
  context.publish(TensorId::compress_state_max, std::move(parts[0]));
  context.publish(TensorId::compress_state_sum, std::move(parts[1]));
  context.publish(TensorId::compress_state_kv, std::move(parts[2]));
}

}  // namespace

void compress_state(StageContext& context, Stage stage) {
  const Compressor form = compressor(context, stage);
  if (form.online) {
    write_online(context, form, stage);
  } else {
    write_windows(context, form, stage);
  }
}

}  // namespace dsv4::reference
