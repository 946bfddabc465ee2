#include "model/element.hpp"

#include <bit>
#include <cstring>

#include "arith/bf16.hpp"
#include "arith/e2m1.hpp"
#include "arith/e4m3.hpp"
#include "arith/ue8m0.hpp"

namespace dsv4 {

std::uint64_t load_bits(const Tensor& tensor, std::int64_t index) {
  const std::size_t width = size_bytes(tensor.dtype());
  std::uint64_t bits = 0;
  std::memcpy(&bits, tensor.bytes().data() + static_cast<std::size_t>(index) * width, width);
  return bits;
}

double decode(DType dtype, std::uint64_t bits) {
  switch (dtype) {
    case DType::float4_e2m1fn:
      return arith::e2m1_to_f32(static_cast<std::uint8_t>(bits & 0xF));
    case DType::float8_e4m3fn:
      return arith::e4m3_to_f32(static_cast<std::uint8_t>(bits));
    case DType::float8_e8m0fnu:
      return arith::ue8m0_to_f32(static_cast<std::uint8_t>(bits));
    case DType::bfloat16:
      return arith::bf16_to_f32(static_cast<std::uint16_t>(bits));
    case DType::float32:
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    case DType::float64:
      return std::bit_cast<double>(bits);
    case DType::int32:
      return static_cast<std::int32_t>(bits);
    case DType::uint8:
      return static_cast<std::uint8_t>(bits);
  }
  throw InternalError("unknown dtype");
}

}  // namespace dsv4
