#include "model/digest.hpp"

#include <xxhash.h>

#include <algorithm>

namespace dsv4 {
namespace {

template <class T>
void replace_nan(std::span<T> elements, T magnitude_mask, T infinity, T canonical) {
  for (T& bits : elements) {
    if ((bits & magnitude_mask) > infinity) bits = canonical;
  }
}

template <class T>
bool has_nan(std::span<const T> elements, T magnitude_mask, T infinity) {
  return std::ranges::any_of(elements, [=](T bits) { return (bits & magnitude_mask) > infinity; });
}

bool has_nan(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::float32:
      return has_nan<std::uint32_t>(tensor.as<std::uint32_t>(), 0x7FFFFFFFU, 0x7F800000U);
    case DType::bfloat16:
      return has_nan<std::uint16_t>(tensor.as<std::uint16_t>(), 0x7FFF, 0x7F80);
    case DType::float64:
      return has_nan<std::uint64_t>(tensor.as<std::uint64_t>(), 0x7FFFFFFFFFFFFFFFU, 0x7FF0000000000000U);
    default:
      return false;
  }
}

}  // namespace

void canonicalise_nan(Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::float32:
      return replace_nan<std::uint32_t>(tensor.as<std::uint32_t>(), 0x7FFFFFFFU, 0x7F800000U, 0x7FC00000U);
    case DType::bfloat16:
      return replace_nan<std::uint16_t>(tensor.as<std::uint16_t>(), 0x7FFF, 0x7F80, 0x7FC0);
    case DType::float64:
      return replace_nan<std::uint64_t>(tensor.as<std::uint64_t>(), 0x7FFFFFFFFFFFFFFFU, 0x7FF0000000000000U,
                                        0x7FF8000000000000U);
    default:
      return;
  }
}

std::string digest(const Tensor& tensor) {
  if (!has_nan(tensor)) return digest(tensor.bytes());
  Tensor canonical = tensor;
  canonicalise_nan(canonical);
  return digest(canonical.bytes());
}

std::string digest(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  std::string text;
  text.reserve(32);
  for (const std::uint64_t word : {hash.high64, hash.low64}) {
    for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[(word >> shift) & 15];
  }
  return text;
}

}  // namespace dsv4
