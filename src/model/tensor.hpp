/// Dense host tensors as raw little-endian bits.
///
/// Narrow floats are kept as bits in unsigned integers of the same width, never as numbers, so that nothing
/// can convert them by accident. A float4 tensor holds one code a byte (packed only inside pages).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/error.hpp"
#include "model/zeroed_memory.hpp"

namespace dsv4 {

/// Element types, spelled in files as ml_dtypes spells them.
enum class DType : std::uint8_t {
  float4_e2m1fn,
  float8_e4m3fn,
  float8_e8m0fnu,
  bfloat16,
  float32,
  float64,  ///< only the wide engine publishes it
  int32,
  uint8,
};

/// Bytes of one stored element (float4: one code a byte).
std::size_t size_bytes(DType dtype);

/// The ml_dtypes spelling, for example "float8_e4m3fn".
std::string_view name(DType dtype);

/// The inverse of name(); throws FileError for an unknown spelling.
DType dtype_from_name(std::string_view spelling);

/// A row-major tensor that owns its bytes.
class Tensor {
 public:
  Tensor() = default;

  /// Zero bytes of the given shape.
  Tensor(DType dtype, std::vector<std::int64_t> shape)
      : dtype_(dtype), shape_(std::move(shape)),
        bytes_(static_cast<std::size_t>(count(shape_)) * size_bytes(dtype)) {}

  DType dtype() const { return dtype_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::int64_t dim(std::size_t axis) const { return shape_.at(axis); }
  std::int64_t elements() const { return count(shape_); }

  std::span<const std::byte> bytes() const { return bytes_; }
  std::span<std::byte> bytes() { return bytes_; }

  /// The elements as T, whose size must be that of the dtype (uint16_t for bfloat16, and so on).
  template <class T>
  std::span<T> as() {
    require(sizeof(T) == size_bytes(dtype_), "tensor viewed with an element type of another width");
    return {reinterpret_cast<T*>(bytes_.data()), static_cast<std::size_t>(elements())};
  }
  template <class T>
  std::span<const T> as() const {
    require(sizeof(T) == size_bytes(dtype_), "tensor viewed with an element type of another width");
    return {reinterpret_cast<const T*>(bytes_.data()), static_cast<std::size_t>(elements())};
  }

  /// Elements of one index of the first axis.
  std::int64_t row_elements() const { return shape_.empty() ? 1 : count({shape_.begin() + 1, shape_.end()}); }

  static std::int64_t count(const std::vector<std::int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  }

 private:
  DType dtype_ = DType::uint8;
  std::vector<std::int64_t> shape_;
  ZeroedArray<std::byte> bytes_;
};

}  // namespace dsv4
