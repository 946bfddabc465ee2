/// What the four compressor stages share: names and sizes of the main compressor and of the indexer's, the
/// entries a step closes, and the scan of online state (docs/numerics.md 12).
#pragma once

#include <functional>
#include <vector>

#include "model/inputs.hpp"
#include "wide/layer.hpp"

namespace dsv4::wide {

/// One of a layer's two compressors.
struct Compressor {
  bool indexer;
  int width;     ///< d: 512 or 128
  int channels;  ///< coff * d
  Cache state;
  Cache entries;
  const CompressorWeights& weights;
  TensorId kv, score;  ///< project
  TensorId state_kv, state_score, state_slot, state_token;
  TensorId pooled, pool_request, pool_index;
};
Compressor compressor(const Layer& layer, bool indexer);

/// An entry that a step closes.
struct ClosedEntry {
  std::size_t step;       ///< index into StepPlan::requests
  std::int32_t index;     ///< within the request
  std::int32_t position;  ///< last token of its group
};
/// In batch-row order; entries that a restore step keeps are left out.
std::vector<ClosedEntry> closed_entries(const Layer& layer, const StepPlan& plan);

/// First position from which a restore step writes the compressor's state.
std::int32_t state_from(const Layer& layer, const RequestStep& step, bool indexer);

/// A step's projections, one row for each batch row that is not padding; scores with the APE of their
/// position.
struct Projections {
  Values kv;
  Balls score;  ///< before the float32 rounding
  Values rounded_score;
};
Projections projections(const Layer& layer, const Compressor& compressor);

/// Online C128 state of one request after a token (docs/numerics.md 12.5), [d] each.
struct OnlineState {
  std::vector<double> max;
  std::vector<Ball> sum;
  std::vector<Ball> weighted;
};

/// Runs the recurrence over the rows of every request and calls `after` for each token whose state is known:
/// a group starts at its first token; in the middle of a group it goes on from bank 0.
void scan_online(const Layer& layer, const StepPlan& plan, const Compressor& compressor,
                 const std::function<void(std::size_t step, std::size_t row, const OnlineState&)>& after);

}  // namespace dsv4::wide
