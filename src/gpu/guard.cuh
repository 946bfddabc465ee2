/// The guard of indices that kernels follow: an index outside its range is left out and reported, not followed.
///
/// Block tables and the slots that a step writes are checked on the host (step_layout.cuh). The lists that stages
/// publish for later stages may be replaced by anyone (Engine::set_tensor), so a stage that follows one takes a
/// checked copy. The report is one number, the lowest wins: layer, stage, tensor, element.
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

/// out[i] = values[i], or -1 where it is not in -1 .. limit - 1; the first such i lowers *report.
void check_indices(const std::int32_t* values, std::int32_t* out, std::int64_t count, std::int64_t limit,
                   const IndexSite& site, std::uint64_t* report, cudaStream_t stream);

}  // namespace dsv4::gpu
