#include "reference/poisoned_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "model/error.hpp"
#include "model/layout.hpp"

namespace dsv4::reference {
namespace {

/// A file of 0xFF is mapped privately again and again over the whole reservation: reads share its pages, a
/// write copies one page, and dropping a copy brings 0xFF back.
constexpr std::uint64_t kPatternBytes = std::uint64_t{16} << 20;

int pattern_file() {
  static const int file = [] {
    const int made = memfd_create("dsv4-poison", MFD_CLOEXEC);
    if (made < 0) throw SubjectError(std::string("no memory file for caches: ") + std::strerror(errno));
    const std::vector<unsigned char> block(1 << 20, layout::kPoison);
    for (std::uint64_t done = 0; done < kPatternBytes;) {
      const ssize_t wrote = write(made, block.data(), block.size());
      if (wrote <= 0) {
        const std::string reason = std::strerror(errno);
        close(made);
        throw SubjectError("cannot fill the memory file of the caches: " + reason);
      }
      done += static_cast<std::uint64_t>(wrote);
    }
    return made;
  }();
  return file;
}

std::uint64_t system_page() {
  static const auto size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

PoisonedMemory::PoisonedMemory(std::uint64_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  const int file = pattern_file();
  reserved_ = (bytes + system_page() - 1) / system_page() * system_page();
  void* base = mmap(nullptr, reserved_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    throw SubjectError("cannot reserve " + std::to_string(bytes) +
                       " bytes for a cache: " + std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(base);
  for (std::uint64_t at = 0; at < reserved_; at += kPatternBytes) {
    const std::uint64_t length = std::min(kPatternBytes, reserved_ - at);
    void* part =
        mmap(data_ + at, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0);
    if (part == MAP_FAILED) {
      const std::string reason = std::strerror(errno);
      munmap(data_, reserved_);
      throw SubjectError("cannot map " + std::to_string(bytes) + " bytes for a cache: " + reason);
    }
  }
}

PoisonedMemory::~PoisonedMemory() {
  if (data_ != nullptr) munmap(data_, reserved_);
}

PoisonedMemory::PoisonedMemory(PoisonedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      reserved_(std::exchange(other.reserved_, 0)) {}

PoisonedMemory& PoisonedMemory::operator=(PoisonedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(reserved_, other.reserved_);
  return *this;
}

void PoisonedMemory::reset(std::uint64_t offset, std::uint64_t bytes) {
  require(offset <= size_ && bytes <= size_ - offset, "a reset beyond the end of a cache's memory");
  const std::uint64_t end = offset + bytes;
  const std::uint64_t first = (offset + system_page() - 1) / system_page() * system_page();
  const std::uint64_t last = end / system_page() * system_page();
  if (first >= last || madvise(data_ + first, last - first, MADV_DONTNEED) != 0) {
    std::memset(data_ + offset, layout::kPoison, bytes);
    return;
  }
  std::memset(data_ + offset, layout::kPoison, first - offset);
  std::memset(data_ + last, layout::kPoison, end - last);
}

}  // namespace dsv4::reference
