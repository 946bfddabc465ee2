/// What comparison and dumping read: the tensors of one step, whether a live engine or a file supplies them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/engine.hpp"
#include "model/stage.hpp"
#include "model/tensor.hpp"

namespace dsv4 {

/// Tensors of `/steps/NNNNNN/batch`.
struct BatchTables {
  Tensor request;   ///< int32 [token], -1 = padding
  Tensor position;  ///< int32 [token]
  Tensor slot;      ///< int32 [token], of the window page
  Tensor page;      ///< int32 [token], of the window page
  Tensor prefix;    ///< int32 [copy, 3]: request, source, tokens
};

/// Tables of `/state/NNNNNN/tables`: what the allocator says after the step. int32, rows ascending by their columns;
/// pools by number (step_plan.hpp).
struct TableState {
  Tensor blocks;   ///< [item, 4]: pool, request, item, page; what admitted requests hold
  Tensor holders;  ///< [page, 3]: pool, page, how many requests hold it (freed ones that keep pages included)
  Tensor free;     ///< [page, 2]: pool, page; given back and not handed out again
  Tensor bases;    ///< [request, 2]: request, state base
};

struct LayerObservation {
  std::map<TensorId, Tensor> tensors;
  std::map<TensorId, Tensor> unrounded;            ///< float64 values of the wide engine
  std::map<TensorId, Tensor> bounds;               ///< their error bounds, float64, same shapes
  std::map<Cache, std::string> state_digests;      ///< 32 hex digits, live rows
  std::map<std::string, Tensor> state_tensors;     ///< snapshots by catalogue name, where asked for
  std::vector<Write> writes;                       ///< live engines only
};

struct StepObservation {
  std::int64_t step = 0;
  std::string event;
  BatchTables batch;
  std::vector<LayerObservation> layers;
  std::optional<TableState> tables;  ///< of all layers; empty: not published
};

/// Identity of a source, as a dump's root attributes and /config state it.
struct SourceInfo {
  std::string engine;
  std::string device;
  bool bit_exact = true;
  bool complete = true;     ///< false: a dump that ended early
  RunConfig config;         ///< pool sizes may be unknown (0) for files
  std::string scenario;     ///< the scenario's text
};

/// Steps in order.
class ObservationSource {
 public:
  virtual ~ObservationSource() = default;
  virtual const SourceInfo& info() const = 0;
  /// The next step, or nothing at the end.
  virtual std::optional<StepObservation> next() = 0;
};

}  // namespace dsv4
