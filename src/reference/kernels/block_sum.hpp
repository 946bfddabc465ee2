/// Sum of squares of a row by the threads of a block. contracts/vllm.md section 1.6; docs/kernel-models.md.
#pragma once

#include <cstdint>
#include <span>

namespace dsv4::kernels {

/// How a row is laid over threads: thread t owns columns [t * columns, (t + 1) * columns) of every stretch of
/// 32 * warps * columns columns. Columns past the row's end are zeros.
struct RowOwnership {
  int warps;
  int columns;
};

/// A thread's chain starts with its second column: fma(x0, x0, rn(x1 * x1)), then fma(x, x, chain) for its
/// other columns in order. Lanes add by butterfly 16, 8, 4, 2, 1; four warps as (w0 + w2) + (w1 + w3).
float triton_square_sum(std::span<const float> row, RowOwnership ownership);

}  // namespace dsv4::kernels
