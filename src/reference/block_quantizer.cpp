#include "reference/block_quantizer.hpp"

#include <algorithm>

#include "arith/bf16.hpp"
#include "arith/bits.hpp"
#include "arith/e2m1.hpp"
#include "arith/e4m3.hpp"
#include "arith/ue8m0.hpp"

namespace dsv4::reference {
namespace {

constexpr float kLargestE4m3 = 448.0F;
constexpr float kLargestE2m1 = 6.0F;
constexpr int kE2m1Block = 32;
/// 1e-4 in f32, of the amax or of the scale.
constexpr std::uint32_t kE4m3FloorBits = 0x38D1B717;
/// 6 * 2^-126.
constexpr float kE2m1Floor = 0x1.8p-124F;

float load(std::uint16_t bf16) {
  return arith::bf16_to_f32(bf16);
}
float load(float x) {
  return x;
}

float max_of(float m, float x) {
  return x > m ? x : m;
}

template <class Value>
float amax(const Value* x, std::int64_t n) {
  float m = 0.0F;
  for (std::int64_t i = 0; i < n; ++i) {
    m = max_of(m, arith::from_bits(arith::to_bits(load(x[i])) & 0x7FFFFFFFU));
  }
  return m;
}

/// A floor of the scale s is a floor of 448 * s on the amax wherever the quotient is then rounded up to a
/// power of two, but the quotient is what section 4 rounds, so the floored quotient itself is handed on.
std::uint8_t e4m3_scale(float m, QuantFloor floor) {
  const float least = arith::from_bits(kE4m3FloorBits);
  if (floor == QuantFloor::amax) return arith::ue8m0_scale_for(max_of(least, m), kLargestE4m3);
  return arith::ue8m0_scale_for(max_of(least, m / kLargestE4m3), 1.0F);
}

template <class Value>
void quantize_e4m3_of(const Value* x, std::int64_t n, int block, QuantFloor floor, std::uint8_t* codes,
                      std::uint8_t* scales) {
  for (std::int64_t begin = 0; begin < n; begin += block) {
    const std::int64_t end = std::min(n, begin + block);
    const std::uint8_t scale = e4m3_scale(amax(x + begin, end - begin), floor);
    const float inverse = arith::ue8m0_inverse(scale);
    scales[begin / block] = scale;
    for (std::int64_t i = begin; i < end; ++i) codes[i] = arith::f32_to_e4m3(load(x[i]) * inverse);
  }
}

}  // namespace

QuantFloor kv_floor(const Profile& profile) {
  return profile.get<KvCache>() == KvCache::e4m3_scale_floor ? QuantFloor::scale : QuantFloor::amax;
}

void quantize_e4m3(const std::uint16_t* bf16, std::int64_t n, int block, QuantFloor floor,
                   std::uint8_t* codes, std::uint8_t* scales) {
  quantize_e4m3_of(bf16, n, block, floor, codes, scales);
}

void quantize_e4m3(const float* x, std::int64_t n, int block, QuantFloor floor, std::uint8_t* codes,
                   std::uint8_t* scales) {
  quantize_e4m3_of(x, n, block, floor, codes, scales);
}

void quantize_e2m1(const std::uint16_t* bf16, std::int64_t n, std::uint8_t* codes, std::uint8_t* scales) {
  for (std::int64_t begin = 0; begin < n; begin += kE2m1Block) {
    const std::int64_t end = std::min(n, begin + kE2m1Block);
    const float m = max_of(kE2m1Floor, amax(bf16 + begin, end - begin));
    const std::uint8_t scale = arith::ue8m0_scale_for(m, kLargestE2m1);
    const float inverse = arith::ue8m0_inverse(scale);
    scales[begin / kE2m1Block] = scale;
    for (std::int64_t i = begin; i < end; ++i) codes[i] = arith::f32_to_e2m1(load(bf16[i]) * inverse);
  }
}

void dequantize_e4m3(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t n, int block,
                     float* out) {
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = arith::e4m3_to_f32(codes[i]) * arith::ue8m0_to_f32(scales[i / block]);
  }
}

void dequantize_e2m1_packed(const std::uint8_t* packed, const std::uint8_t* scales, std::int64_t n,
                            float* out) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto code = static_cast<std::uint8_t>(i % 2 == 0 ? packed[i / 2] & 0xF : packed[i / 2] >> 4);
    out[i] = arith::e2m1_to_f32(code) * arith::ue8m0_to_f32(scales[i / kE2m1Block]);
  }
}

void decode_e4m3(const std::uint8_t* codes, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = arith::e4m3_to_f32(codes[i]);
}

void dequantize_e2m1(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = arith::e2m1_to_f32(codes[i]) * arith::ue8m0_to_f32(scales[i / kE2m1Block]);
  }
}

void widen_bf16(const std::uint16_t* in, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = arith::bf16_to_f32(in[i]);
}

void round_bf16(const float* in, std::int64_t n, std::uint16_t* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = arith::f32_to_bf16(in[i]);
}

}  // namespace dsv4::reference
