#include <array>

#include "arith/bf16.hpp"
#include "arith/bits.hpp"
#include "arith/e4m3.hpp"
#include "math_support.hpp"
#include "reference/block_quantizer.hpp"
#include "reference/simd/kernels.hpp"

using namespace dsv4;
using namespace dsv4::reference;
using namespace dsv4::reference::test;

namespace {

/// Magnitudes of the codes 0, 1, 2, ... of a format.
std::vector<double> e4m3_magnitudes() {
  std::vector<double> m;
  for (int code = 0; code < 127; ++code) {
    m.push_back(code < 8 ? std::ldexp(code, -9) : std::ldexp(8 + code % 8, code / 8 - 10));
  }
  return m;
}
const std::vector<double> kE2m1{0, 0.5, 1, 1.5, 2, 3, 4, 6};

/// The nearest code by search; of two equally near the even one; the largest for everything beyond it.
std::uint8_t nearest(double x, const std::vector<double>& magnitudes, std::uint8_t sign_bit) {
  if (std::isnan(x)) return static_cast<std::uint8_t>(sign_bit - 1);
  const double a = std::min(std::fabs(x), magnitudes.back());
  std::size_t best = 0;
  for (std::size_t c = 1; c < magnitudes.size(); ++c) {
    const double now = std::fabs(a - magnitudes[c]);
    const double before = std::fabs(a - magnitudes[best]);
    if (now < before || (now == before && c % 2 == 0)) best = c;
  }
  return static_cast<std::uint8_t>(best | (std::signbit(x) ? sign_bit : 0U));
}

/// Smallest power of two at or above q, as ue8m0.
std::uint8_t literal_scale(float q) {
  if (std::isinf(q)) return 254;
  int byte = 0;
  while (byte < 254 && std::ldexp(1.0, byte - 127) < static_cast<double>(q)) ++byte;
  return static_cast<std::uint8_t>(byte);
}

float literal_amax(const std::uint16_t* x, std::int64_t n) {
  float m = 0.0F;
  for (std::int64_t i = 0; i < n; ++i) {
    const float a = std::fabs(from_bf16(x[i]));
    if (a > m) m = a;
  }
  return m;
}

struct Quantized {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;
};

Quantized e4m3_of(const std::vector<std::uint16_t>& x, int block, QuantFloor floor = QuantFloor::amax) {
  Quantized q{std::vector<std::uint8_t>(x.size()), std::vector<std::uint8_t>((x.size() + block - 1) / block)};
  quantize_e4m3(x.data(), static_cast<std::int64_t>(x.size()), block, floor, q.codes.data(), q.scales.data());
  return q;
}
Quantized e2m1_of(const std::vector<std::uint16_t>& x) {
  Quantized q{std::vector<std::uint8_t>(x.size()), std::vector<std::uint8_t>((x.size() + 31) / 32)};
  quantize_e2m1(x.data(), static_cast<std::int64_t>(x.size()), q.codes.data(), q.scales.data());
  return q;
}

std::vector<std::uint16_t> bf16_list(const std::vector<float>& x) {
  std::vector<std::uint16_t> b;
  for (const float v : x) b.push_back(literal_bf16(v));
  return b;
}

}  // namespace

TEST_CASE("e4m3 blocks worked out by hand") {
  on_every_isa([] {
    // amax 448: q = 1, scale 2^0. Ties: 17 goes to 16, 19 to 20, 2^-10 to 0; 1.5 * 2^-10 is nearer to 2^-9.
    const Quantized a = e4m3_of(bf16_list({448, 17, 19, -0.0F, 0.0009765625F, 0.00146484375F}), 64);
    REQUIRE(a.scales == std::vector<std::uint8_t>{127});
    REQUIRE(a.codes == std::vector<std::uint8_t>{0x7E, 0x58, 0x5A, 0x80, 0x00, 0x01});
    // amax 450 (bf16): q just above 1, scale 2^1; 450 / 2 = 225 lies between 224 and 240.
    const Quantized b = e4m3_of(bf16_list({450, -225}), 64);
    REQUIRE(b.scales == std::vector<std::uint8_t>{128});
    REQUIRE(b.codes == std::vector<std::uint8_t>{0x76, 0xEE});
    // An empty block: 1e-4 / 448 lies between 2^-23 and 2^-22; as a floor of the scale 1e-4 lies below 2^-13.
    REQUIRE(e4m3_of(bf16_list({0, 0}), 64).scales[0] == 127 - 22);
    REQUIRE(e4m3_of(bf16_list({0, 0}), 64, QuantFloor::scale).scales[0] == 127 - 13);
    // 0.02734375 = 448 * 2^-14 is the largest amax that the two floors treat differently.
    REQUIRE(e4m3_of(bf16_list({0.02734375F}), 64).scales[0] == 127 - 14);
    REQUIRE(e4m3_of(bf16_list({0.02734375F}), 64, QuantFloor::scale).scales[0] == 127 - 13);
    REQUIRE(e4m3_of(bf16_list({0.03F}), 64, QuantFloor::scale).scales[0] == 127 - 13);
    REQUIRE(e4m3_of(bf16_list({0.03F}), 64).scales[0] == 127 - 13);
  });
}

TEST_CASE("e4m3 blocks with infinities and NaN") {
  on_every_isa([] {
    const Quantized a = e4m3_of(bf16_list({kInf, -kInf, 1, kNan}), 64);
    REQUIRE(a.scales[0] == 254);
    REQUIRE(a.codes == std::vector<std::uint8_t>{0x7E, 0xFE, 0x00, 0x7F});
    const Quantized b = e4m3_of(bf16_list({kNan, 448, 224}), 64);  // NaN does not take part in amax
    REQUIRE(b.scales[0] == 127);
    REQUIRE(b.codes == std::vector<std::uint8_t>{0x7F, 0x7E, 0x76});
  });
}

TEST_CASE("e2m1 blocks worked out by hand") {
  on_every_isa([] {
    // amax 6: scale 2^0. Ties, 0.25 to 5, go to the even code: 0, 1, 1, 2, 2, 4, 4.
    const Quantized a = e2m1_of(bf16_list({6, 0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5, -0.0F, -5.5F}));
    REQUIRE(a.scales == std::vector<std::uint8_t>{127});
    REQUIRE(a.codes == std::vector<std::uint8_t>{7, 0, 2, 2, 4, 4, 6, 6, 8, 15});
    // amax 6.0625: scale 2^1.
    REQUIRE(e2m1_of(bf16_list({6.0625F})).scales[0] == 128);
    // An empty block: 6 * 2^-126 / 6 = 2^-126.
    REQUIRE(e2m1_of(bf16_list({0, 0})).scales[0] == 1);
    REQUIRE(e2m1_of(bf16_list({kNan, 6})).codes[0] == 7);
  });
}

TEST_CASE("quantisers equal a search through all codes") {
  on_every_isa([] {
    const std::vector<double> e4m3 = e4m3_magnitudes();
    Numbers numbers(11);
    for (int round = 0; round < 60; ++round) {
      const int n = 1 + numbers.below(300);
      std::vector<std::uint16_t> x;
      const int exponent = numbers.below(60) - 40;
      for (int i = 0; i < n; ++i)
        x.push_back(literal_bf16(std::ldexp(numbers.narrow(), exponent - numbers.below(12))));
      for (const int block : {64, 128}) {
        const Quantized q = e4m3_of(x, block);
        for (int begin = 0; begin < n; begin += block) {
          const int count = std::min(block, n - begin);
          const float a = std::max(literal_amax(x.data() + begin, count), value(0x38D1B717));
          const std::uint8_t scale = literal_scale(a / 448.0F);
          REQUIRE(q.scales[begin / block] == scale);
          for (int i = begin; i < begin + count; ++i) {
            const float scaled = std::ldexp(from_bf16(x[i]), 127 - scale);
            REQUIRE(q.codes[i] == nearest(scaled, e4m3, 0x80));
          }
        }
      }
      const Quantized q = e2m1_of(x);
      for (int begin = 0; begin < n; begin += 32) {
        const int count = std::min(32, n - begin);
        const float a = std::max(literal_amax(x.data() + begin, count), std::ldexp(6.0F, -126));
        const std::uint8_t scale = literal_scale(a / 6.0F);
        REQUIRE(q.scales[begin / 32] == scale);
        for (int i = begin; i < begin + count; ++i) {
          REQUIRE(q.codes[i] == nearest(std::ldexp(from_bf16(x[i]), 127 - scale), kE2m1, 8));
        }
      }
    }
  });
}

TEST_CASE("unrounded values are quantised from f32") {
  on_every_isa([] {
    // 17 + 2^-15 is nearer to 18; as bf16 it would be the tie 17 and go to 16.
    const std::vector<float> x{448.0F, 17.000030517578125F};
    std::array<std::uint8_t, 2> codes{};
    std::uint8_t scale = 0;
    quantize_e4m3(x.data(), 2, 128, QuantFloor::amax, codes.data(), &scale);
    REQUIRE(codes[1] == 0x59);
  });
}

TEST_CASE("codes become numbers again") {
  on_every_isa([] {
    const std::vector<double> e4m3 = e4m3_magnitudes();
    std::vector<std::uint8_t> codes(256);
    for (int i = 0; i < 256; ++i) codes[i] = static_cast<std::uint8_t>(i);
    const std::vector<std::uint8_t> scales{120, 127, 1, 140};
    std::vector<float> out(256);
    dequantize_e4m3(codes.data(), scales.data(), 256, 64, out.data());
    std::vector<float> plain(256);
    decode_e4m3(codes.data(), 256, plain.data());
    for (int i = 0; i < 256; ++i) {
      const int magnitude = i & 127;
      const double sign = i < 128 ? 1 : -1;
      const float exact = magnitude == 127 ? kNan : static_cast<float>(sign * e4m3[magnitude]);
      REQUIRE(bits(plain[i]) == bits(exact));
      REQUIRE(bits(out[i]) == bits(std::ldexp(exact, scales[i / 64] - 127)));
    }
    std::vector<std::uint8_t> narrow(64);
    std::vector<std::uint8_t> packed(32);
    for (int i = 0; i < 64; ++i) narrow[i] = static_cast<std::uint8_t>((i * 7) % 16);
    for (int i = 0; i < 32; ++i)
      packed[i] = static_cast<std::uint8_t>(narrow[2 * i] | (narrow[2 * i + 1] << 4));
    std::vector<float> one(64);
    std::vector<float> two(64);
    dequantize_e2m1(narrow.data(), scales.data(), 64, one.data());
    dequantize_e2m1_packed(packed.data(), scales.data(), 64, two.data());
    for (int i = 0; i < 64; ++i) {
      const double exact = (narrow[i] < 8 ? 1 : -1) * std::ldexp(kE2m1[narrow[i] % 8], scales[i / 32] - 127);
      REQUIRE(bits(one[i]) == bits(static_cast<float>(exact)));
      REQUIRE(bits(two[i]) == bits(one[i]));
    }
  });
}

TEST_CASE("the smallest and the largest scale round once") {
  on_every_isa([] {
    const std::uint8_t code = 0x01;  // 2^-9
    float out = 0;
    for (const int byte : {0, 1, 254}) {
      const auto scale = static_cast<std::uint8_t>(byte);
      dequantize_e4m3(&code, &scale, 1, 64, &out);
      REQUIRE(out == std::ldexp(1.0F, byte - 127 - 9));
    }
    const std::uint8_t largest = 0x7E;
    const std::uint8_t top = 254;
    dequantize_e4m3(&largest, &top, 1, 64, &out);
    REQUIRE(out == kInf);
  });
}

TEST_CASE("bf16 rows") {
  on_every_isa([] {
    std::vector<float> x;
    Numbers numbers(3);
    for (int i = 0; i < 5000; ++i) x.push_back(value(numbers.word()));
    for (const std::uint32_t b :
         {0x3F808000U, 0x3F818000U, 0x7F7FFFFFU, 0x7F800000U, 0xFFC00001U, 0x80000000U, 1U}) {
      x.push_back(value(b));
    }
    std::vector<std::uint16_t> rounded(x.size());
    std::vector<float> wide(x.size());
    round_bf16(x.data(), static_cast<std::int64_t>(x.size()), rounded.data());
    widen_bf16(rounded.data(), static_cast<std::int64_t>(x.size()), wide.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      REQUIRE(rounded[i] == literal_bf16(x[i]));
      REQUIRE(bits(wide[i]) == bits(from_bf16(rounded[i])));
    }
  });
}

TEST_CASE("conversions of rows are those of single values, at every boundary") {
  // Every sign, exponent and upper mantissa, with the lower bits on both sides of halves.
  std::vector<float> x;
  for (std::uint32_t upper = 0; upper < 65536; ++upper) {
    for (const std::uint32_t lower : {0x0000U, 0x0001U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      x.push_back(arith::from_bits(upper << 16 | lower));
    }
  }
  on_every_isa([&] {
    const simd::Kernels& kernels = simd::kernels();
    const auto n = static_cast<std::int64_t>(x.size()) - 5;  // an uneven rest
    std::vector<std::uint16_t> bf16(x.size());
    std::vector<std::uint8_t> e4m3(x.size());
    kernels.round_bf16(x.data(), n, bf16.data());
    kernels.encode_e4m3(x.data(), n, 0.5F, e4m3.data());
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      wrong += bf16[i] != arith::f32_to_bf16(x[i]) ? 1 : 0;
      wrong += e4m3[i] != arith::f32_to_e4m3(x[i] * 0.5F) ? 1 : 0;
    }
    REQUIRE(wrong == 0);
    std::vector<std::uint8_t> codes(1000);
    for (std::size_t j = 0; j < codes.size(); ++j)
      codes[j] = static_cast<std::uint8_t>(j * 77);  // all of them
    for (const std::int64_t count : {1, 63, 64, 448, 999}) {
      std::vector<float> values(codes.size(), 7.0F);
      kernels.decode_e4m3(codes.data(), count, 0.25F, values.data());
      for (std::int64_t j = 0; j < count; ++j) {
        const float value = e4m3_value(codes[j]) * 0.25F;
        REQUIRE((std::isnan(value) ? std::isnan(values[j]) : bits(values[j]) == bits(value)));
      }
      REQUIRE(values[count] == 7.0F);
    }
    for (const std::int64_t begin : {0L, 200000L, 390000L}) {
      for (const std::int64_t count : {1L, 15L, 64L, 100L, 128L}) {
        float largest = 0.0F;
        for (std::int64_t i = begin; i < begin + count; ++i) {
          if (std::fabs(x[i]) > largest) largest = std::fabs(x[i]);
        }
        REQUIRE(bits(kernels.amax(x.data() + begin, count)) == bits(largest));
      }
    }
  });
}
