#include "reference/simd/peak.hpp"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "model/error.hpp"
#include "reference/simd/kernels.hpp"

namespace dsv4::reference {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Rate of one run of `rounds` rounds on every thread.
double rate(const simd::Kernels& kernels, int threads, std::int64_t rounds) {
  double operations = 0;
  const double start = now();
#pragma omp parallel num_threads(threads) reduction(+ : operations)
  operations += kernels.fma_rounds(rounds);
  return operations / (now() - start);
}

}  // namespace

double fma_peak(Isa isa, int threads, double seconds) {
  const simd::Kernels* kernels = kernels_of(isa);
  if (kernels == nullptr) {
    throw UsageError("instruction set '" + std::string(name(isa)) + "' cannot run on this machine");
  }
  constexpr int kRuns = 5;
  std::int64_t rounds = 1000;
  while (true) {  // as many rounds as fill a fifth of the time
    const double start = now();
    rate(*kernels, threads, rounds);
    if (now() - start > seconds / (2 * kRuns)) break;
    rounds *= 2;
  }
  double best = 0;
  for (int run = 0; run < kRuns; ++run) best = std::max(best, rate(*kernels, threads, rounds));
  return best;
}

double copy_peak(int threads) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;  // a thread
  constexpr int kRuns = 5;
  std::vector<std::vector<std::byte>> from(static_cast<std::size_t>(threads));
  std::vector<std::vector<std::byte>> to(static_cast<std::size_t>(threads));
  for (auto& buffer : from) buffer.assign(kBytes, std::byte{1});
  for (auto& buffer : to) buffer.assign(kBytes, std::byte{2});
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    const double start = now();
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; ++t) {
      const auto i = static_cast<std::size_t>(t);
      std::memcpy(to[i].data(), from[i].data(), kBytes);
    }
    best = std::max(best, 2.0 * static_cast<double>(kBytes) * threads / (now() - start));
  }
  return best;
}

}  // namespace dsv4::reference
