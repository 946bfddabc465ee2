/// Device buffers by name, with canary zones at both ends.
///
/// A buffer grows when a step needs more and is otherwise kept from step to step. Fresh memory is filled with
/// 0xFF (NaN in every format), so that a read of what was never written shows.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace dsv4::gpu {

class DeviceMemory {
 public:
  DeviceMemory() = default;
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// At least `bytes` bytes under `name`, 256-byte aligned. Growing loses the content.
  /// Throws SubjectError when the device has no room.
  void* get(const std::string& name, std::size_t bytes);

  template <class T>
  T* get(const std::string& name, std::size_t count) {
    return static_cast<T*>(get(name, count * sizeof(T)));
  }

  /// Fills every buffer whose name begins with `prefix` with 0xFF.
  void poison(const std::string& prefix, cudaStream_t stream);

  /// Throws SubjectError naming the buffer and the first byte that changed in a canary zone.
  void verify_canaries(cudaStream_t stream);

  std::size_t total_bytes() const { return total_bytes_; }

 private:
  struct Buffer {
    std::byte* base = nullptr;    // canary zone, content, canary zone
    std::size_t capacity = 0;     // of the content
  };
  std::map<std::string, Buffer> buffers_;
  std::size_t total_bytes_ = 0;
  std::uint32_t* broken_ = nullptr;  // device: offset + 1 of the first broken canary byte, 0 if none
};

}  // namespace dsv4::gpu
