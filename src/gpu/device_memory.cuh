/// Device buffers by name, with canary zones at both ends, and page-locked host memory for copies.
///
/// A buffer grows when a step needs more and is otherwise kept from step to step. Fresh memory is filled with
/// 0xFF (NaN in every format), so that a read of what was never written shows.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dsv4::gpu {

class DeviceMemory {
 public:
  DeviceMemory() = default;
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// At least `bytes` bytes under `name`, 256-byte aligned. Growing loses the content and moves the buffer.
  /// Throws SubjectError when the device has no room, InternalError while buffers are frozen.
  void* get(const std::string& name, std::size_t bytes);

  template <class T>
  T* get(const std::string& name, std::size_t count) {
    return static_cast<T*>(get(name, count * sizeof(T)));
  }

  /// What a captured graph uses must not move. `free`: nothing is noted; `noted`: buffers asked for from now on
  /// belong to a graph; `frozen`: likewise, and none may be made or grow (a graph is being captured).
  enum class Use : std::uint8_t { free, noted, frozen };
  void set_use(Use use) { use_ = use; }
  /// Changes when a buffer that belongs to a graph moves: graphs captured before are stale.
  std::uint64_t generation() const { return generation_; }

  /// Throws SubjectError naming the buffer and the first byte that changed in a canary zone.
  void verify_canaries(cudaStream_t stream);

 private:
  struct Buffer {
    std::byte* base = nullptr;    // canary zone, content, canary zone
    std::size_t capacity = 0;     // of the content
    bool in_graph = false;
  };
  void upload_zones(cudaStream_t stream);

  std::map<std::string, Buffer> buffers_;
  std::size_t total_bytes_ = 0;
  Use use_ = Use::free;
  std::uint64_t generation_ = 0;
  bool zones_current_ = false;
  std::byte** zones_ = nullptr;      // device: front and back zone of every buffer, by name
  std::uint64_t* broken_ = nullptr;  // device: buffer << 32 | byte of its zones, the lowest that is broken
};

/// Page-locked host memory, handed out piece by piece and taken back all at once. Copies to and from it do not
/// stop the host. Grows by chunks, which the next reset joins.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  std::byte* take(std::size_t bytes);
  std::size_t taken() const { return taken_; }
  /// All pieces are free again; no copy may be under way.
  void reset();

 private:
  struct Chunk {
    std::byte* base;
    std::size_t size;
  };
  void add_chunk(std::size_t bytes);

  std::vector<Chunk> chunks_;  // pieces come from the last one
  std::size_t used_ = 0;       // of it
  std::size_t taken_ = 0;
};

}  // namespace dsv4::gpu
