#include <algorithm>

#include "gpu/check.cuh"
#include "gpu/device_memory.cuh"
#include "model/error.hpp"

namespace dsv4::gpu {
namespace {

constexpr std::size_t kZone = 512;
constexpr unsigned char kCanary = 0xC5;

__global__ void find_broken_canary(const std::byte* front, const std::byte* back, std::uint32_t* broken) {
  const unsigned i = threadIdx.x;
  if (front[i] != std::byte{kCanary}) atomicCAS(broken, 0U, i + 1);
  if (back[i] != std::byte{kCanary}) atomicCAS(broken, 0U, static_cast<std::uint32_t>(kZone) + i + 1);
}

}  // namespace

DeviceMemory::~DeviceMemory() {
  for (auto& [name, buffer] : buffers_) cudaFree(buffer.base);
  cudaFree(broken_);
}

void* DeviceMemory::get(const std::string& name, std::size_t bytes) {
  Buffer& buffer = buffers_[name];
  bytes = (std::max<std::size_t>(bytes, 1) + 255) / 256 * 256;
  if (buffer.base != nullptr && buffer.capacity >= bytes) return buffer.base + kZone;
  if (buffer.base != nullptr) {
    DSV4_CUDA(cudaFree(buffer.base));
    total_bytes_ -= buffer.capacity;
    buffer = {};
  }
  std::byte* base = nullptr;
  const cudaError_t status = cudaMalloc(&base, bytes + 2 * kZone);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw SubjectError("device memory exhausted: buffer '" + name + "' needs " + std::to_string(bytes) +
                       " bytes, " + std::to_string(total_bytes_) + " are in use by this engine");
  }
  DSV4_CUDA(status);
  DSV4_CUDA(cudaMemset(base, kCanary, kZone));
  DSV4_CUDA(cudaMemset(base + kZone, 0xFF, bytes));
  DSV4_CUDA(cudaMemset(base + kZone + bytes, kCanary, kZone));
  buffer = {base, bytes};
  total_bytes_ += bytes;
  return base + kZone;
}

void DeviceMemory::poison(const std::string& prefix, cudaStream_t stream) {
  for (auto it = buffers_.lower_bound(prefix); it != buffers_.end() && it->first.starts_with(prefix); ++it) {
    DSV4_CUDA(cudaMemsetAsync(it->second.base + kZone, 0xFF, it->second.capacity, stream));
  }
}

void DeviceMemory::verify_canaries(cudaStream_t stream) {
  if (broken_ == nullptr) {
    DSV4_CUDA(cudaMalloc(&broken_, sizeof(std::uint32_t)));
  }
  DSV4_CUDA(cudaMemsetAsync(broken_, 0, sizeof(std::uint32_t), stream));
  for (const auto& [name, buffer] : buffers_) {
    find_broken_canary<<<1, kZone, 0, stream>>>(buffer.base, buffer.base + kZone + buffer.capacity, broken_);
    DSV4_LAUNCHED("find_broken_canary");
  }
  std::uint32_t broken = 0;
  DSV4_CUDA(cudaMemcpyAsync(&broken, broken_, sizeof broken, cudaMemcpyDeviceToHost, stream));
  DSV4_CUDA(cudaStreamSynchronize(stream));
  if (broken == 0) return;
  for (const auto& [name, buffer] : buffers_) {  // once more, one by one, for the name
    DSV4_CUDA(cudaMemsetAsync(broken_, 0, sizeof(std::uint32_t), stream));
    find_broken_canary<<<1, kZone, 0, stream>>>(buffer.base, buffer.base + kZone + buffer.capacity, broken_);
    DSV4_LAUNCHED("find_broken_canary");
    DSV4_CUDA(cudaMemcpyAsync(&broken, broken_, sizeof broken, cudaMemcpyDeviceToHost, stream));
    DSV4_CUDA(cudaStreamSynchronize(stream));
    if (broken == 0) continue;
    const bool before = broken <= kZone;
    throw SubjectError("device buffer '" + name + "' of " + std::to_string(buffer.capacity) +
                       " bytes: a kernel wrote " + (before ? "before its start" : "behind its end") +
                       " (canary byte " + std::to_string((broken - 1) % kZone) + ")");
  }
}

}  // namespace dsv4::gpu
