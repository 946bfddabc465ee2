/// Digests, timing and reporting of the probe.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "arith/bf16.hpp"
#include "arith/e2m1.hpp"
#include "arith/e4m3.hpp"
#include "arith/exp.hpp"
#include "arith/fma.hpp"
#include "arith/log.hpp"
#include "arith/philox.hpp"
#include "arith/sin_cos.hpp"
#include "arith/ue8m0.hpp"

namespace arith = dsv4::arith;
using u64 = unsigned long long;

namespace probe {

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(77);
}

DSV4_HD inline u64 mix(u64 item, std::uint32_t result) {
  u64 z = item * 0x9E3779B97F4A7C15ULL + result;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}
DSV4_HD inline std::uint32_t canonical(float value) {
  const std::uint32_t bits = arith::to_bits(value);
  return arith::is_nan_bits(bits) ? arith::kNanBits : bits;
}

__device__ inline void add_to(u64* digest, u64 part) {
  for (int offset = 16; offset > 0; offset /= 2) part += __shfl_down_sync(0xFFFFFFFFU, part, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(digest, part);
}

struct Timer {
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
};

inline u64* device_digest = nullptr;
inline bool all_equal = true;

inline void begin() {
  check(cudaMemset(device_digest, 0, sizeof(u64)), "clear digest");
}

template <class Launch>
double timed(const Launch& launch) {
  check(cudaDeviceSynchronize(), "synchronise");
  const Timer timer;
  launch();
  check(cudaGetLastError(), "launch");
  check(cudaDeviceSynchronize(), "kernel");
  return timer.seconds();
}

inline u64 fetch() {
  u64 digest = 0;
  check(cudaMemcpy(&digest, device_digest, sizeof digest, cudaMemcpyDeviceToHost), "read digest");
  return digest;
}

inline void report(const char* name, double items, const char* unit, u64 host, double host_s, u64 device,
                   double device_s) {
  const bool equal = host == device;
  all_equal = all_equal && equal;
  std::printf("%-28s %14.0f %-7s host %016llx %9.3f s %9.3f G/s  device %016llx %9.5f s %10.2f G/s  %s\n",
              name, items, unit, host, host_s, items / host_s * 1e-9, device, device_s,
              items / device_s * 1e-9, equal ? "equal" : "DIFFERENT");
  std::fflush(stdout);
}

}  // namespace probe
