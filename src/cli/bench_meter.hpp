/// How `bench` times one stage on an engine, and the peaks of that engine's machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/engine.hpp"

namespace dsv4::cli {

struct KernelSeconds {
  std::string name;
  double seconds;
};

struct StageSeconds {
  double seconds = 0;
  std::vector<KernelSeconds> kernels;  ///< of a GPU: each alone
};

class BenchMeter {
 public:
  virtual ~BenchMeter() = default;
  /// Flop a second of fused multiply-adds, or bytes read and written a second of copying.
  virtual double peak(bool arithmetic) const = 0;
  virtual StageSeconds run(const StageFunction& stage, const StageCall& call) const = 0;
  /// The machine in one line: threads and instruction set, or the device.
  virtual std::string machine() const = 0;
};

/// `engine` as named on the command line; UsageError for one that cannot be timed.
std::unique_ptr<BenchMeter> bench_meter(const std::string& engine);

}  // namespace dsv4::cli
