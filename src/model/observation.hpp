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
