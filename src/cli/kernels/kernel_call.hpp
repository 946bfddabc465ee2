/// What the models of one stage work on: the step, the published tensors, the caches row by row, the rotation
/// tables. Models replace what a stage published; where their kernel is fed by a product that no stage
/// publishes (a linear layer), the product is the engine's own (docs/numerics.md 6).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "oracle/edited_engine.hpp"
#include "oracle/slots.hpp"
#include "reference/rope.hpp"

namespace dsv4::cli {

/// What SGLang's online kernels make of one request's rows in a step: the state [max | sum | mean] after
/// every position that they store one of, and the means of the windows that close.
struct OnlineRun {
  std::map<std::int32_t, std::vector<float>> states;  ///< by position
  std::map<std::int32_t, std::vector<float>> pooled;  ///< by entry
};

/// What the models of one stage leave to those of a later stage of the same step.
struct KernelMemory {
  std::map<std::pair<int, std::int32_t>, OnlineRun> online;  ///< by layer and request
};

struct KernelCall {
  oracle::EditedEngine& engine;
  KernelMemory& memory;
  const StageCall& stage;

  const RunConfig& config() const { return engine.config(); }
  const Geometry& geometry() const { return config().geometry; }
  const Profile& profile() const { return config().profile; }
  const StepPlan& plan() const { return stage.plan; }
  int layer() const { return stage.layer; }
  LayerKind kind() const { return engine.kind(stage.layer); }
  const LayerWeights& weights() const { return engine.weights(stage.layer); }

  std::int64_t tokens() const { return std::ssize(plan().rows); }
  bool padding(std::int64_t token) const { return plan().rows[static_cast<std::size_t>(token)].request < 0; }
  /// Position 0 for padding.
  std::int64_t position(std::int64_t token) const {
    return padding(token) ? 0 : plan().rows[static_cast<std::size_t>(token)].position;
  }

  /// A tensor that the step has published; InternalError naming it if it has not.
  const Tensor& input(TensorId id) const { return engine.input(stage.layer, id); }
  /// Replaces a tensor that the stage published; one that it left out stays out. Rows of padding tokens
  /// become what they were (zero bytes, -1).
  void publish(TensorId id, Tensor value) const;
  /// Replaces the rows that this stage wrote into a cache: `row_of` gives the new bytes of each.
  template <class RowOf>
  void rewrite(Cache cache, RowOf row_of) const {
    std::vector<Write> rows;
    for (const Write& write : engine.writes(stage.layer)) {
      if (write.stage == stage.stage && write.cache == cache) rows.push_back(write);
    }
    for (Write& row : rows) {
      row.bytes = row_of(row);
      engine.put(stage.layer, row);
    }
  }
  /// Batch row of a request's position in this step.
  std::int64_t token_of(std::int32_t request, std::int32_t position) const;
};

/// Rows of a cache as the engine holds them, each page fetched once.
class CacheRows {
 public:
  CacheRows(const KernelCall& call, Cache cache);

  std::int64_t slot(const RequestStep& request, std::int32_t index, int bank = 0) const;
  /// Value bytes of a row; of a state row everything.
  const std::byte* values(std::int64_t slot) { return page(slot) + slot % shape_.page_rows * value_bytes(); }
  const std::byte* scales(std::int64_t slot) {
    return page(slot) + shape_.page_rows * value_bytes() + slot % shape_.page_rows * shape_.scale_bytes;
  }
  /// n floats of a state row, from channel `first` on.
  std::vector<float> floats(std::int64_t slot, std::int64_t first, std::int64_t n);
  std::vector<std::byte> whole_page(std::int64_t number) const;
  std::int64_t page_rows() const { return shape_.page_rows; }

 private:
  std::int64_t value_bytes() const { return shape_.channels > 0 ? shape_.row_bytes() : shape_.value_bytes; }
  const std::byte* page(std::int64_t slot);

  const Engine& engine_;
  int layer_;
  Cache cache_;
  oracle::CacheShape shape_;
  std::map<std::int64_t, std::vector<std::byte>> pages_;
};

/// Rows of a rotation table [n, 64] float32: 32 cosines, then 32 sines (the kernels' own tables hold the same
/// numbers, docs/numerics.md 9), for chosen positions in order.
std::vector<float> rotation_rows(const KernelCall& call, std::span<const std::int64_t> positions);

/// Positions of the batch rows, 0 for padding, and 0, 1, 2 ...: kernels look up row i of rotation_rows() for
/// token i.
std::vector<std::int64_t> row_positions(const KernelCall& call);
std::vector<std::int64_t> counting(std::int64_t n);

/// bf16 values widened.
std::vector<float> widened(std::span<const std::uint16_t> values);

/// Two e2m1 codes a byte, the even element low, to one code a byte.
void unpack_e2m1(const std::uint8_t* packed, std::int64_t bytes, std::uint8_t* codes);

/// The product of bf16 rows with a weight matrix as the profile's linears compute it, rounded to bf16;
/// `plain`: operands stay bf16.
std::vector<std::uint16_t> bf16_product(const KernelCall& call, const Matrix& weight, const Tensor& rows,
                                        bool plain = false);

}  // namespace dsv4::cli
