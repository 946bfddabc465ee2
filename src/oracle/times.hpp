/// Where the seconds of a run go.
#pragma once

#include <chrono>

namespace dsv4::oracle {

/// Seconds of one engine, summed over the steps of a run.
struct EngineTimes {
  double stages = 0;   ///< walking the stage table; an engine on a device only starts its work there
  double tensors = 0;  ///< gathering published tensors and writes: waiting for a device, copies to the host
  double states = 0;   ///< live rows, their digests, snapshots
  double checks = 0;   ///< write sets and lifetimes
};

/// Adds the seconds of its own life to a total.
class Timed {
 public:
  explicit Timed(double& total) : total_(total) {}
  ~Timed() { total_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double& total_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace dsv4::oracle
