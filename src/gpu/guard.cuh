/// The guard of indices that kernels follow: an index outside its range is left out and reported, not followed.
///
/// Block tables and the slots that a step writes are checked on the host (step_layout.cuh). The lists that stages
/// publish for later stages may be replaced by anyone (Engine::set_tensor), so a stage that follows one reads what it
/// needs of it through a check. The report is one number, the lowest wins: layer, stage, tensor, element.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "model/stage.hpp"

namespace dsv4::gpu {

/// No index was out of range; also what fresh memory holds.
inline constexpr std::uint64_t kNothingReported = ~std::uint64_t{0};

struct IndexSite {
  int layer;
  Stage stage;  ///< that follows the index
  TensorId tensor;
};

/// The site and an element as a report, and back.
std::uint64_t report_of(const IndexSite& site, std::uint64_t element);
IndexSite site_of(std::uint64_t report);
std::uint64_t element_of(std::uint64_t report);

/// An int32 tensor as a kernel reads it: a value that is not in -1 .. limit - 1 comes as -1 and lowers *report.
struct CheckedIndices {
  const std::int32_t* values = nullptr;
  std::int64_t limit = 0;
  unsigned long long site = 0;  ///< report_of(site, 0)
  unsigned long long* report = nullptr;

#ifdef __CUDACC__
  __device__ std::int32_t operator[](std::int64_t i) const {
    const std::int32_t value = values[i];
    if (value >= -1 && value < limit) return value;
    atomicMin(report, site | static_cast<unsigned long long>(i));
    return -1;
  }
#endif
};

}  // namespace dsv4::gpu
