/// Matrix products with weights kept in their stored form (docs/numerics.md 6): tiles of outputs are decoded
/// to float64 and multiplied by Eigen.
#pragma once

#include "model/inputs.hpp"
#include "wide/row_math.hpp"

namespace dsv4::wide {

/// Rows first .. first + count - 1 of a weight matrix as float64. `to_bf16`: each value rounded to bf16
/// first, as wo_a is used.
Values decoded_rows(const Matrix& weights, std::int64_t first, std::int64_t count, bool to_bf16);

/// x [rows, K] times outputs first .. first + count - 1 of `weights` [N, K], transposed: [rows, count].
///
/// Radius. Every step of a float32 fold errs by at most u times the partial sum that it rounds. The partial
/// sums are known here at every 16th term; between two of them |partial sum| is at most the last known one
/// plus the magnitudes added since, which Cauchy-Schwarz bounds (block_norms). A fold of 128 and the fold of
/// the folds both count:
///   radius = u (sum over steps of |last known partial sum| + norms within the chunks + sum over folds of
///   |out|),
/// several times tighter than counting roundings of every term. Where x itself is known to a radius only,
/// |radius of x| |w| is added in full, because a few coarse steps dominate there.
Balls product(const Balls& x, const Matrix& weights, std::int64_t first, std::int64_t count,
              bool to_bf16 = false);
inline Balls product(const Balls& x, const Matrix& weights) {
  return product(x, weights, 0, weights.rows);
}

}  // namespace dsv4::wide
