/// What this machine can do at best, measured: the yardsticks beside which benchmarks print their figures.
///
/// Measure before and after a stage and reject the run if the two differ by more than 5%: a neighbour on the
/// same core halves every figure.
#pragma once

#include "reference/simd/isa.hpp"

namespace dsv4::reference {

/// Floating point operations a second (a fused multiply-add counts two) of `threads` OpenMP threads that run
/// independent chains in registers the compiler cannot see through. Takes about `seconds`; the best of five
/// runs.
double fma_peak(Isa isa, int threads, double seconds = 0.2);

/// Bytes a second, read and written together, of `threads` threads that copy memory larger than the caches.
double copy_peak(int threads);

}  // namespace dsv4::reference
