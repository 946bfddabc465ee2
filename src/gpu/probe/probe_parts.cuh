/// What the parts of the probe share: a counter of mismatches on the device.
#pragma once

#include <string>
#include <vector>

#include "arith/hopper/dot.hpp"
#include "gpu/check.cuh"
#include "gpu/probe/probe.hpp"

namespace dsv4::gpu::probe {

/// Where a kernel counts; `first` is the lowest index that differs.
struct Counter {
  unsigned long long mismatches;
  unsigned long long first;
  unsigned long long digest;
};

__device__ inline void count(Counter* counter, bool differs, unsigned long long index) {
  if (!differs) return;
  atomicAdd(&counter->mismatches, 1ULL);
  atomicMin(&counter->first, index);
}

/// Owns device memory.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t count) : count_(count) {
    void* memory = nullptr;
    DSV4_CUDA(cudaMalloc(&memory, count * sizeof(T)));
    data_ = static_cast<T*>(memory);
  }
  ~Buffer() { (void)cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  T* get() const { return data_; }
  std::vector<T> read(std::size_t count) const {
    std::vector<T> host(count);
    DSV4_CUDA(cudaMemcpy(host.data(), data_, count * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }
  void write(const T* host, std::size_t count) {
    DSV4_CUDA(cudaMemcpy(data_, host, count * sizeof(T), cudaMemcpyHostToDevice));
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

inline void reset(Buffer<Counter>& counter) {
  const Counter zero{0, ~0ULL, 0};
  counter.write(&zero, 1);
}

/// Each adds its lines (and fits, and what is recorded) to the report.
void measure_functions(Report& report, bool record);
void measure_divisions(Report& report, bool record);
void measure_matrices(Report& report, bool record);

}  // namespace dsv4::gpu::probe
