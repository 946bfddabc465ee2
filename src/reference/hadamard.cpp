#include "reference/hadamard.hpp"

#include "arith/bf16.hpp"
#include "arith/bits.hpp"

namespace dsv4::reference {

void hadamard128(const std::uint16_t* in, std::uint16_t* out) {
  constexpr int kWidth = 128;
  constexpr std::uint32_t kScaleBits = 0x3DB504F3;  // f32(128^-0.5)
  float x[kWidth];
  for (int i = 0; i < kWidth; ++i) x[i] = arith::bf16_to_f32(in[i]);
  for (int h = 1; h < kWidth; h *= 2) {
    for (int i = 0; i < kWidth; ++i) {
      if ((i & h) != 0) continue;
      const float a = x[i];
      const float b = x[i + h];
      x[i] = a + b;
      x[i + h] = a - b;
    }
  }
  const float scale = arith::from_bits(kScaleBits);
  for (int i = 0; i < kWidth; ++i) out[i] = arith::f32_to_bf16(x[i] * scale);
}

}  // namespace dsv4::reference
