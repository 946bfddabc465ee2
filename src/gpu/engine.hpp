/// The CUDA engine's door for plain C++: a factory and the list of devices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/engine.hpp"

namespace dsv4::gpu {

struct CudaOptions {
  int device = 0;
  /// Compute steps in which every request has one row run through captured graphs, too, one graph for each row
  /// count, captured at first use. Without it only graph steps do.
  bool graphs = false;
};

/// Bit-exact engine on one NVIDIA GPU, profiles `canonical` and `official`. Throws SubjectError when there is no
/// such device, UsageError for an axis value that it does not compute.
std::unique_ptr<Engine> make_cuda_engine(const RunConfig& config, std::shared_ptr<const WeightSource> weights,
                                         std::shared_ptr<const HiddenSource> hidden, const CudaOptions& options = {});

/// Names of the devices that this process sees; empty without a driver.
std::vector<std::string> cuda_devices();

}  // namespace dsv4::gpu
