/// Memory for large arrays: zero bytes that begin at a cache line.
///
/// Large pieces come straight from the system, in large pages where it has them, and are not touched here: a
/// page becomes zero when the thread that fills it writes to it first. std::vector would write all zeros on
/// the calling thread, at a fraction of the speed of the memory.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace dsv4 {

/// `bytes` zero bytes at a multiple of 64; throws std::bad_alloc.
void* allocate_zeroed(std::size_t bytes);

/// Takes back what allocate_zeroed(bytes) gave.
void free_zeroed(void* memory, std::size_t bytes) noexcept;

/// Copies between pieces that do not overlap; large ones by all threads, since a first write to a page costs more than
/// the copy.
void copy_bytes(void* to, const void* from, std::size_t bytes);

/// An array of fixed length whose elements start as zero bytes; it can be copied and moved.
template <class T>
class ZeroedArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  ZeroedArray() = default;
  explicit ZeroedArray(std::size_t count) {
    if (count > static_cast<std::size_t>(-1) / sizeof(T)) throw std::bad_array_new_length();
    if (count > 0) data_ = static_cast<T*>(allocate_zeroed(count * sizeof(T)));
    size_ = count;
  }
  ZeroedArray(const ZeroedArray& other) : ZeroedArray(other.size_) {
    if (size_ > 0) copy_bytes(data_, other.data_, size_ * sizeof(T));
  }
  ZeroedArray(ZeroedArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  ZeroedArray& operator=(ZeroedArray other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~ZeroedArray() {
    if (data_ != nullptr) free_zeroed(data_, size_ * sizeof(T));
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](std::size_t index) { return data_[index]; }
  const T& operator[](std::size_t index) const { return data_[index]; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace dsv4
