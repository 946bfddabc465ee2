/// What a cache configuration may be, whether a scenario asks for it or a file states it. (Geometry has its
/// own check in geometry.hpp.)
#pragma once

#include <string>
#include <vector>

#include "model/step_plan.hpp"

namespace dsv4 {

inline constexpr std::int32_t kMaxTokens = 1 << 20;  ///< longest request: the model's largest position
inline constexpr std::int32_t kMaxLayers = 256;
inline constexpr std::int32_t kMaxPageRows = 1 << 16;
inline constexpr std::int32_t kMaxDraftRows = 1024;
inline constexpr std::int64_t kMaxPoolPages = std::int64_t{1} << 30;
inline constexpr std::int64_t kMaxPitch = std::int64_t{1} << 32;

/// Throws UsageError naming the field, its value and the rule it breaks: page sizes, drafted rows, pool pages
/// and pitch within their limits, the pitch large enough for every page.
void check(const CacheConfig& cache);

/// Why a pitch does not suit these page sizes; empty if it does.
std::string pitch_fault(const CacheConfig& cache, std::int64_t pitch);

/// Why the drafted rows do not fit the state rings of the layers (more than R - pool window + 1); empty if
/// they do.
std::string drafting_fault(const CacheConfig& cache, const std::vector<LayerKind>& layers);

}  // namespace dsv4
