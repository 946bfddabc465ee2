/// What one golden case produces: a digest of everything, and the kept rows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/engine.hpp"
#include "oracle/golden/cases.hpp"

namespace dsv4::oracle::golden {

/// Some rows of a tensor of one step, in batch order.
struct KeptTensor {
  std::int64_t step = 0;
  std::string stage;  ///< "batch" or a stage
  std::string tensor;
  std::string dims;
  std::string role;
  std::vector<std::int64_t> rows;  ///< their places in the step's tensor
  Tensor content;

  std::string path() const;  ///< "000001/q.up/q"
};

struct Record {
  Case golden_case;
  RunConfig config;
  /// One line for each fact, in a fixed order (docs/dump-format.md, golden data):
  ///   weights layer_00/wq_a.codes <digest>
  ///   step 0 <digest of all digests below> <event>
  ///   000000 layer_00/q.up/q bfloat16 130,4,512 <digest>
  ///   000000 layer_00/state/window <digest>
  std::vector<std::string> lines;
  std::vector<KeptTensor> kept;  ///< empty for cases that keep no rows
  std::shared_ptr<const WeightSource> weights;
  std::string kernel_models;  ///< stages and the kernel models that computed them; empty: the engine alone
};

/// Runs a case. Seeds are those of its scenario.
Record record(const Case& golden_case, const std::string& engine, const EngineFactory& factory);

}  // namespace dsv4::oracle::golden
