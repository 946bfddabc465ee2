/// Index scores of profiles whose index rows hold values instead of codes. Implements sections 13 and 17.8.
#pragma once

#include "reference/stage_context.hpp"

namespace dsv4::reference {

/// t_h = dot32 over the 128 values; S = dot32 over heads of (relu(t_h), w_h). Publishes the scores [tokens,
/// width] and `visible`.
void plain_index_scores(StageContext& context, Tensor visible, std::int64_t width);

}  // namespace dsv4::reference
