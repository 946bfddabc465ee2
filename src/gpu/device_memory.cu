#include "gpu/device_memory.cuh"

#include <algorithm>

#include "gpu/check.cuh"
#include "model/error.hpp"

namespace dsv4::gpu {
namespace {

constexpr std::size_t kZone = 512;
constexpr unsigned char kCanary = 0xC5;
constexpr std::size_t kChunk = std::size_t{4} << 20;  // of page-locked memory

/// A block a buffer, a thread a byte of each of its zones.
__global__ void find_broken_canary(std::byte* const* zones, unsigned long long* broken) {
  const unsigned long long buffer = blockIdx.x;
  const unsigned i = threadIdx.x;
  if (zones[2 * buffer][i] != std::byte{kCanary}) atomicMin(broken, buffer << 32 | i);
  if (zones[2 * buffer + 1][i] != std::byte{kCanary}) atomicMin(broken, buffer << 32 | (kZone + i));
}

}  // namespace

DeviceMemory::~DeviceMemory() {
  for (auto& [name, buffer] : buffers_) cudaFree(buffer.base);
  cudaFree(zones_);
  cudaFree(broken_);
}

void* DeviceMemory::get(const std::string& name, std::size_t bytes) {
  Buffer& buffer = buffers_[name];
  bytes = (std::max<std::size_t>(bytes, 1) + 255) / 256 * 256;
  if (buffer.base != nullptr && buffer.capacity >= bytes) {
    buffer.in_graph |= use_ != Use::free;
    return buffer.base + kZone;
  }
  if (use_ == Use::frozen) {
    throw InternalError("device buffer '" + name + "' of " + std::to_string(bytes) +
                        " bytes is needed while a graph is captured; the run before did not need it");
  }
  const bool moved = buffer.base != nullptr;
  if (moved) {
    DSV4_CUDA(cudaFree(buffer.base));
    total_bytes_ -= buffer.capacity;
    if (buffer.in_graph) ++generation_;
    buffer = {};
  }
  zones_current_ = false;
  std::byte* base = nullptr;
  const cudaError_t status = cudaMalloc(&base, bytes + 2 * kZone);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    buffers_.erase(name);
    throw SubjectError("device memory exhausted: buffer '" + name + "' needs " + std::to_string(bytes) +
                       " bytes, " + std::to_string(total_bytes_) + " are in use by this engine");
  }
  DSV4_CUDA(status);
  DSV4_CUDA(cudaMemset(base, kCanary, kZone));
  DSV4_CUDA(cudaMemset(base + kZone, 0xFF, bytes));
  DSV4_CUDA(cudaMemset(base + kZone + bytes, kCanary, kZone));
  buffer = {base, bytes, use_ != Use::free};
  total_bytes_ += bytes;
  return base + kZone;
}

void DeviceMemory::upload_zones(cudaStream_t stream) {
  std::vector<std::byte*> zones;
  for (const auto& [name, buffer] : buffers_) {
    zones.push_back(buffer.base);
    zones.push_back(buffer.base + kZone + buffer.capacity);
  }
  if (broken_ == nullptr) DSV4_CUDA(cudaMalloc(&broken_, sizeof *broken_));
  DSV4_CUDA(cudaFree(zones_));
  zones_ = nullptr;
  DSV4_CUDA(cudaMalloc(&zones_, zones.size() * sizeof zones.front()));
  DSV4_CUDA(cudaMemcpyAsync(zones_, zones.data(), zones.size() * sizeof zones.front(), cudaMemcpyHostToDevice, stream));
  DSV4_CUDA(cudaStreamSynchronize(stream));
  zones_current_ = true;
}

void DeviceMemory::verify_canaries(cudaStream_t stream) {
  if (buffers_.empty()) return;
  if (!zones_current_) upload_zones(stream);
  DSV4_CUDA(cudaMemsetAsync(broken_, 0xFF, sizeof *broken_, stream));
  find_broken_canary<<<static_cast<unsigned>(buffers_.size()), kZone, 0, stream>>>(
      zones_, reinterpret_cast<unsigned long long*>(broken_));
  DSV4_LAUNCHED("find_broken_canary");
  std::uint64_t broken = 0;
  DSV4_CUDA(cudaMemcpyAsync(&broken, broken_, sizeof broken, cudaMemcpyDeviceToHost, stream));
  DSV4_CUDA(cudaStreamSynchronize(stream));
  if (broken == ~std::uint64_t{0}) return;
  const auto& [name, buffer] = *std::next(buffers_.begin(), static_cast<std::ptrdiff_t>(broken >> 32));
  const std::size_t byte = broken & 0xFFFFFFFFU;
  throw SubjectError("device buffer '" + name + "' of " + std::to_string(buffer.capacity) +
                     " bytes: a kernel wrote " + (byte < kZone ? "before its start" : "behind its end") +
                     " (canary byte " + std::to_string(byte % kZone) + ")");
}

PinnedMemory::~PinnedMemory() {
  for (const Chunk& chunk : chunks_) cudaFreeHost(chunk.base);
}

void PinnedMemory::add_chunk(std::size_t bytes) {
  std::byte* base = nullptr;
  DSV4_CUDA(cudaMallocHost(&base, bytes));
  chunks_.push_back({base, bytes});
  used_ = 0;
}

std::byte* PinnedMemory::take(std::size_t bytes) {
  bytes = (bytes + 255) / 256 * 256;
  if (chunks_.empty() || used_ + bytes > chunks_.back().size) add_chunk(std::max(bytes, kChunk));
  std::byte* const piece = chunks_.back().base + used_;
  used_ += bytes;
  taken_ += bytes;
  return piece;
}

void PinnedMemory::reset() {
  if (chunks_.size() > 1) {
    std::size_t total = 0;
    for (const Chunk& chunk : chunks_) {
      total += chunk.size;
      DSV4_CUDA(cudaFreeHost(chunk.base));
    }
    chunks_.clear();
    add_chunk(total);
  }
  used_ = 0;
  taken_ = 0;
}

}  // namespace dsv4::gpu
