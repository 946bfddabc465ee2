#include "model/zeroed_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace dsv4 {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kLargePage = std::size_t{2} << 20;
/// Pieces from here on are mapped: below, the rest of a large page would cost more than it saves.
constexpr std::size_t kMapped = kLargePage;

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

/// Whole large pages at a multiple of their size.
void* map(std::size_t bytes) {
  const std::size_t length = rounded_up(bytes, kLargePage);
  const std::size_t reserved = length + kLargePage;
  void* const base = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  auto* const begin = static_cast<std::byte*>(base);
  const auto head = static_cast<std::size_t>(-reinterpret_cast<std::uintptr_t>(begin) % kLargePage);
  if (head > 0) munmap(begin, head);
  if (head < kLargePage) munmap(begin + head + length, kLargePage - head);
#ifdef MADV_HUGEPAGE
  madvise(begin + head, length, MADV_HUGEPAGE);  // a hint: without it the pages are small
#endif
  return begin + head;
}

}  // namespace

void* allocate_zeroed(std::size_t bytes) {
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  if (bytes >= kMapped) return map(bytes);
  void* const memory = std::aligned_alloc(kLine, rounded_up(bytes > 0 ? bytes : 1, kLine));
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, bytes);
  return memory;
}

void free_zeroed(void* memory, std::size_t bytes) noexcept {
  if (bytes >= kMapped) {
    munmap(memory, rounded_up(bytes, kLargePage));
  } else {
    std::free(memory);
  }
}

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  const auto pieces = static_cast<std::int64_t>((bytes + kLargePage - 1) / kLargePage);
#pragma omp parallel for schedule(static) if (pieces > 2)
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const std::size_t first = static_cast<std::size_t>(piece) * kLargePage;
    std::memcpy(static_cast<std::byte*>(to) + first, static_cast<const std::byte*>(from) + first,
                std::min(kLargePage, bytes - first));
  }
}

}  // namespace dsv4
