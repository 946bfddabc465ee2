#include "reference/block_quantizer.hpp"

#include <algorithm>

#include "arith/bits.hpp"
#include "arith/e2m1.hpp"
#include "arith/ue8m0.hpp"
#include "model/error.hpp"
#include "reference/simd/kernels.hpp"

namespace dsv4::reference {
namespace {

constexpr float kLargestE4m3 = 448.0F;
constexpr float kLargestE2m1 = 6.0F;
constexpr int kE2m1Block = 32;
constexpr int kLargestBlock = 128;
/// 1e-4 in f32, of the amax or of the scale.
constexpr std::uint32_t kE4m3FloorBits = 0x38D1B717;
/// 6 * 2^-126.
constexpr float kE2m1Floor = 0x1.8p-124F;

/// A floor of the quotient is itself a quotient: section 4 rounds it up to a power of two.
std::uint8_t e4m3_scale(float amax, QuantFloor floor) {
  const float least = floor == QuantFloor::small_amax ? 1e-10F : arith::from_bits(kE4m3FloorBits);
  if (floor != QuantFloor::scale) return arith::ue8m0_scale_for(std::max(least, amax), kLargestE4m3);
  return arith::ue8m0_scale_for(std::max(least, amax / kLargestE4m3), 1.0F);
}

/// Calls body(first, x, count) for each block, x as f32.
template <class Body>
void for_each_block(const std::uint16_t* bf16, std::int64_t n, int block, const Body& body) {
  require(block > 0 && block <= kLargestBlock, "quantiser: block longer than 128");
  float x[kLargestBlock];
  for (std::int64_t begin = 0; begin < n; begin += block) {
    const std::int64_t count = std::min<std::int64_t>(n - begin, block);
    simd::kernels().widen_bf16(bf16 + begin, count, x);
    body(begin, x, count);
  }
}

template <class Body>
void for_each_block(const float* values, std::int64_t n, int block, const Body& body) {
  require(block > 0, "quantiser: block must be positive");
  for (std::int64_t begin = 0; begin < n; begin += block) {
    body(begin, values + begin, std::min<std::int64_t>(n - begin, block));
  }
}

template <class Value>
void quantize_e4m3_of(const Value* values, std::int64_t n, int block, QuantFloor floor, std::uint8_t* codes,
                      std::uint8_t* scales) {
  const simd::Kernels& kernels = simd::kernels();
  for_each_block(values, n, block, [&](std::int64_t begin, const float* x, std::int64_t count) {
    const std::uint8_t scale = e4m3_scale(kernels.amax(x, count), floor);
    scales[begin / block] = scale;
    kernels.encode_e4m3(x, count, arith::ue8m0_inverse(scale), codes + begin);
  });
}

template <class Value>
void quantize_e2m1_of(const Value* values, std::int64_t n, std::uint8_t* codes, std::uint8_t* scales) {
  const simd::Kernels& kernels = simd::kernels();
  for_each_block(values, n, kE2m1Block, [&](std::int64_t begin, const float* x, std::int64_t count) {
    const float amax = std::max(kE2m1Floor, kernels.amax(x, count));
    const std::uint8_t scale = arith::ue8m0_scale_for(amax, kLargestE2m1);
    scales[begin / kE2m1Block] = scale;
    kernels.encode_e2m1(x, count, arith::ue8m0_inverse(scale), codes + begin);
  });
}

/// Thresholds exceeded by |x|; a zero has no sign.
std::uint8_t e2m1_ties_down(float x) {
  constexpr float kThresholds[]{0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};
  const float magnitude = x < 0 ? -x : x;
  unsigned code = 0;
  for (const float threshold : kThresholds) code += magnitude > threshold ? 1U : 0U;
  return static_cast<std::uint8_t>(code != 0 && x < 0 ? code | 8U : code);
}

}  // namespace

QuantFloor activation_floor(const Profile& profile) {
  return profile.get<ActivationFloor>() == ActivationFloor::f1e10 ? QuantFloor::small_amax : QuantFloor::amax;
}

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
  quantize_e2m1_of(bf16, n, codes, scales);
}

void quantize_e2m1(const float* x, std::int64_t n, std::uint8_t* codes, std::uint8_t* scales) {
  quantize_e2m1_of(x, n, codes, scales);
}

void quantize_e2m1_ties_down(const float* values, std::int64_t n, std::uint8_t* codes, std::uint8_t* scales) {
  const float least = arith::from_bits(kE4m3FloorBits);
  for_each_block(values, n, kE2m1Block, [&](std::int64_t begin, const float* x, std::int64_t count) {
    const float amax = std::max(least, simd::kernels().amax(x, count));
    const std::uint8_t scale = arith::ue8m0_scale_for(amax, kLargestE2m1);
    const float inverse = arith::ue8m0_inverse(scale);
    scales[begin / kE2m1Block] = scale;
    std::transform(x, x + count, codes + begin, [&](float value) { return e2m1_ties_down(value * inverse); });
  });
}

void quantize_e4m3_f32_scale(const float* x, std::int64_t n, std::uint8_t* codes, float* scale) {
  const simd::Kernels& kernels = simd::kernels();
  *scale = std::max(arith::from_bits(kE4m3FloorBits), kernels.amax(x, n)) / kLargestE4m3;
  kernels.encode_e4m3(x, n, 1.0F / *scale, codes);
}

void dequantize_e4m3(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t n, int block,
                     float* out) {
  const simd::Kernels& kernels = simd::kernels();
  for (std::int64_t begin = 0; begin < n; begin += block) {
    kernels.decode_e4m3(codes + begin, std::min<std::int64_t>(n - begin, block),
                        arith::ue8m0_to_f32(scales[begin / block]), out + begin);
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
  simd::kernels().decode_e4m3(codes, n, 1.0F, out);
}

void dequantize_e2m1(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t n, float* out) {
  const simd::Kernels& kernels = simd::kernels();
  for (std::int64_t begin = 0; begin < n; begin += kE2m1Block) {
    kernels.decode_e2m1(codes + begin, std::min<std::int64_t>(n - begin, kE2m1Block),
                        arith::ue8m0_to_f32(scales[begin / kE2m1Block]), out + begin);
  }
}

void widen_bf16(const std::uint16_t* in, std::int64_t n, float* out) {
  simd::kernels().widen_bf16(in, n, out);
}

void round_bf16(const float* in, std::int64_t n, std::uint16_t* out) {
  simd::kernels().round_bf16(in, n, out);
}

}  // namespace dsv4::reference
