/// Device time of stages and kernels, and the peaks to hold them against.
#pragma once

#include <string>
#include <vector>

#include "model/engine.hpp"

namespace dsv4::gpu {

struct KernelTime {
  std::string name;
  double seconds;  ///< of one launch
};

struct DeviceTime {
  double seconds = 0;               ///< of the stage: all its device work, without the host's gaps
  std::vector<KernelTime> kernels;  ///< each alone, in launch order; copies and fills are in `seconds` only
};

/// What the current device can do.
class DevicePeaks {
 public:
  DevicePeaks();
  ~DevicePeaks();
  DevicePeaks(const DevicePeaks&) = delete;
  DevicePeaks& operator=(const DevicePeaks&) = delete;

  /// FP32 multiply-adds, a fused one counts 2: flop a second.
  double fma() const;
  /// Copying 1 GiB inside the device's memory: bytes read and written a second.
  double copy() const;

 private:
  void* from_ = nullptr;
  void* to_ = nullptr;
};

/// Runs `stage` of a CUDA engine once, then replays its device work from a graph and times it. The stage must give
/// the same results when it runs again (all do but online C128 state).
DeviceTime device_time(const StageFunction& stage, const StageCall& call);

}  // namespace dsv4::gpu
