/// The compressors of a layer as data (docs/numerics.md 12): the main one, 512 wide, and the indexer's, 128
/// wide. The four compress stages exist once and are parametrised by this.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "reference/stage_context.hpp"

namespace dsv4::reference {

struct Compressor {
  bool indexer = false;
  int d = kHeadDim;      ///< width of an entry
  int ratio = 0;         ///< r, tokens an entry
  bool overlap = false;  ///< ratio 4: a window is the last 2r positions, columns [0, d) then [d, 2d)
  bool online = false;   ///< 12.5 instead of 12.4
  int channels = 0;      ///< of a row: coff * d
  Cache state_cache = Cache::state;
  Cache entry_cache = Cache::entries;
  TensorId kv{}, score{};  ///< what project publishes
  const CompressorWeights* weights = nullptr;
};

/// The compressor that a stage belongs to ("compress.*" or "indexer.*").
Compressor compressor(const StageContext& context, Stage stage);

/// An entry that closes within this step.
struct ClosedEntry {
  const RequestStep* request;
  std::int32_t index;  ///< j, over positions j * r .. j * r + r - 1
};

/// In batch-row order; entries that a restore step keeps are left out.
std::vector<ClosedEntry> closed_entries(const StageContext& context, const Compressor& form);

/// First position of a request whose row this step writes into the state (12.3): rows live after the step,
/// all rows of a verify step, and only those that a restore step does not keep.
std::int32_t first_written_state(const StageContext& context, const Compressor& form,
                                 const RequestStep& request);

/// Rows of this step from the project stage, with score' = score + ape[position mod r] (12.1), rounded once.
class StepRows {
 public:
  StepRows(const StageContext& context, const Compressor& form);
  /// [channels] of a batch row.
  const float* kv(std::int64_t row) const { return kv_ + row * channels_; }
  void score(std::int64_t row, std::int32_t position, float* out) const;

 private:
  const float* kv_;
  const float* score_;
  const float* ape_;
  int ratio_;
  int channels_;
};

/// Running state of online C128 of one request (12.5): m, t and a, [d] each.
struct OnlineState {
  std::vector<float> max, sum, kv;
};

/// Takes the request's rows into the committed state one by one and calls `visit` after each. A restore step
/// begins with the first row that it does not keep.
void run_online(const StageContext& context, const Compressor& form, const RequestStep& request,
                const std::function<void(std::int32_t position, const OnlineState& state)>& visit);

}  // namespace dsv4::reference
