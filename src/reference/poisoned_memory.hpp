/// Memory of the caches: a reservation whose every byte reads 0xFF until it is written (docs/numerics.md 12).
///
/// Only operating-system pages that were written use memory of their own, so a pool may be declared at its
/// full size, with a pitch of megabytes and offsets beyond 2^32, and costs what is in use.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dsv4::reference {

class PoisonedMemory {
 public:
  PoisonedMemory() = default;
  /// Reserves `bytes` (may be 0). Throws SubjectError with the size when the system refuses.
  explicit PoisonedMemory(std::uint64_t bytes);
  ~PoisonedMemory();
  PoisonedMemory(PoisonedMemory&& other) noexcept;
  PoisonedMemory& operator=(PoisonedMemory&& other) noexcept;
  PoisonedMemory(const PoisonedMemory&) = delete;
  PoisonedMemory& operator=(const PoisonedMemory&) = delete;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }

  /// Makes a range read 0xFF again and gives whole operating-system pages back.
  void reset(std::uint64_t offset, std::uint64_t bytes);

 private:
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;      ///< as asked for
  std::uint64_t reserved_ = 0;  ///< rounded up to whole operating-system pages
};

}  // namespace dsv4::reference
