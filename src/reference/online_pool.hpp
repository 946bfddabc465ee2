/// The online form of the ratio-128 pool: one running (max, sum, weighted kv) a channel. Implements
/// section 12.5.
#pragma once

#include <cstdint>

namespace dsv4::reference {

/// Takes one token into the state of d channels, in place. `index` is position mod 128; 0 starts a new
/// window. `score` includes the APE.
void online_pool_update(int index, const float* kv, const float* score, std::int64_t d, float* max,
                        float* sum, float* weighted);

/// pooled = weighted / sum, after index 127.
void online_pool_finish(const float* sum, const float* weighted, std::int64_t d, float* pooled);

}  // namespace dsv4::reference
