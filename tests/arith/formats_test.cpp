// Number formats (docs/numerics.md sections 3 and 4) against tables written by hand.
#include <array>
#include <cmath>
#include <limits>

#include "arith/bf16.hpp"
#include "arith/e2m1.hpp"
#include "arith/e4m3.hpp"
#include "arith/ue8m0.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using arith::from_bits;
using arith::to_bits;

namespace {
constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = from_bits(0x7FC00000U);

struct Case {
  float value;
  unsigned code;
};
}  // namespace

TEST_CASE("bf16 rounds to nearest even, keeps subnormals and overflows to infinity") {
  const std::array cases{
      Case{1.0F, 0x3F80},
      Case{from_bits(0x3F808000U), 0x3F80},  // tie to the even 0x3F80
      Case{from_bits(0x3F818000U), 0x3F82},  // tie to the even 0x3F82
      Case{from_bits(0x3F808001U), 0x3F81},  // just above a tie
      Case{from_bits(0x3F817FFFU), 0x3F81},  // just below a tie
      Case{from_bits(0x7F7F7FFFU), 0x7F7F},  // largest that stays finite
      Case{from_bits(0x7F7F8000U), 0x7F80},  // tie at the end: overflows
      Case{-kInf, 0xFF80},
      Case{-0.0F, 0x8000},
      Case{from_bits(0x00008000U), 0x0000},  // half the smallest subnormal: tie to zero
      Case{from_bits(0x00008001U), 0x0001},
      Case{from_bits(0x80018000U), 0x8002},
      Case{kNan, 0x7FC0},
      Case{from_bits(0xFF800001U), 0x7FC0},
      Case{from_bits(0x7FFFFFFFU), 0x7FC0},
  };
  for (const Case& c : cases) CHECK(arith::f32_to_bf16(c.value) == c.code);
  CHECK(arith::bf16_to_f32(0x3FC0) == 1.5F);
  CHECK(to_bits(arith::bf16_to_f32(0x8001)) == 0x80010000U);
}

TEST_CASE("e4m3 values follow sign, exponent with bias 7 and three mantissa bits") {
  for (unsigned code = 0; code < 256; ++code) {
    const unsigned exponent = (code >> 3) & 15U;
    const unsigned mantissa = code & 7U;
    const float value = arith::e4m3_to_f32(static_cast<std::uint8_t>(code));
    if ((code & 0x7FU) == 0x7FU) {
      CHECK(to_bits(value) == 0x7FC00000U);
      continue;
    }
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, static_cast<int>(exponent) - 10);
    CHECK(static_cast<double>(value) == ((code & 0x80U) != 0U ? -magnitude : magnitude));
    CHECK(std::signbit(value) == ((code & 0x80U) != 0U));
  }
}

TEST_CASE("four e4m3 codes at once equal each alone, every code in every place") {
  for (std::uint32_t code = 0; code < 256; ++code) {
    for (int place = 0; place < 4; ++place) {
      for (const std::uint32_t others : {0x00000000U, 0x7E08FF01U, 0x817F7830U}) {
        const std::uint32_t codes = (others & ~(0xFFU << (8 * place))) | (code << (8 * place));
        float values[4];
        arith::e4m3x4_to_f32(codes, values);
        for (int i = 0; i < 4; ++i) {
          const auto one = static_cast<std::uint8_t>(codes >> (8 * i));
          REQUIRE(arith::to_bits(values[i]) == arith::to_bits(arith::e4m3_to_f32(one)));
        }
      }
    }
  }
}

TEST_CASE("e4m3 conversion: ties, subnormals, saturation, zeros, NaN") {
  const std::array cases{
      Case{448.0F, 0x7E},
      Case{449.0F, 0x7E},
      Case{464.0F, 0x7E},
      Case{1e30F, 0x7E},
      Case{kInf, 0x7E},
      Case{-kInf, 0xFE},
      Case{-1000.0F, 0xFE},
      Case{432.0F, 0x7E},  // tie between 416 (0x7D) and 448
      Case{400.0F, 0x7C},  // tie between 384 (0x7C) and 416
      Case{1.0F, 0x38},
      Case{1.0625F, 0x38},  // tie between 1 and 1.125
      Case{1.1875F, 0x3A},  // tie between 1.125 (0x39) and 1.25
      Case{0x1p-6F, 0x08},
      Case{0x1.ep-7F, 0x08},  // tie between 7 * 2^-9 and 2^-6
      Case{0x1p-9F, 0x01},
      Case{0x1p-10F, 0x00},  // tie between 0 and 2^-9
      Case{0x1.000002p-10F, 1},
      Case{0x1.8p-9F, 0x02},  // tie between 1 and 2 steps
      Case{0x1.4p-8F, 0x02},  // tie between 2 and 3 steps
      Case{0.0F, 0x00},
      Case{-0.0F, 0x80},
      Case{-0x1p-20F, 0x80},
      Case{from_bits(1U), 0x00},
      Case{kNan, 0x7F},
      Case{from_bits(0xFFC00000U), 0x7F},
      Case{from_bits(0x7F800001U), 0x7F},
  };
  for (const Case& c : cases) {
    INFO(c.value);
    CHECK(arith::f32_to_e4m3(c.value) == c.code);
  }
}

TEST_CASE("e2m1 knows eight magnitudes, ties go to the even code, 6 saturates") {
  const std::array<float, 8> magnitudes{0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  for (unsigned code = 0; code < 8; ++code) {
    CHECK(to_bits(arith::e2m1_to_f32(static_cast<std::uint8_t>(code))) == to_bits(magnitudes[code]));
    CHECK(to_bits(arith::e2m1_to_f32(static_cast<std::uint8_t>(code | 8U))) == to_bits(-magnitudes[code]));
  }
  const std::array cases{
      Case{0.25F, 0},   Case{0.75F, 2},   Case{1.25F, 2},         Case{1.75F, 4},
      Case{2.5F, 4},    Case{3.5F, 6},    Case{5.0F, 6},          Case{5.0000005F, 7},
      Case{6.0F, 7},    Case{7.0F, 7},    Case{1e9F, 7},          Case{kInf, 7},
      Case{-kInf, 15},  Case{0.0F, 0},    Case{-0.0F, 8},         Case{-0.25F, 8},
      Case{-0.26F, 9},  Case{kNan, 7},    Case{-1.0F, 10},        Case{from_bits(0xFFC00000U), 7},
      Case{0.2499F, 0}, Case{0.2501F, 1}, Case{from_bits(1U), 0},
  };
  for (const Case& c : cases) {
    INFO(c.value);
    CHECK(arith::f32_to_e2m1(c.value) == c.code);
  }
}

TEST_CASE("ue8m0 bytes are powers of two, 255 is NaN") {
  for (int byte = 0; byte < 255; ++byte) {
    const auto b = static_cast<std::uint8_t>(byte);
    CHECK(static_cast<double>(arith::ue8m0_to_f32(b)) == std::ldexp(1.0, byte - 127));
    CHECK(static_cast<double>(arith::ue8m0_inverse(b)) == std::ldexp(1.0, 127 - byte));
  }
  CHECK(to_bits(arith::ue8m0_to_f32(255)) == 0x7FC00000U);
  CHECK(to_bits(arith::ue8m0_inverse(255)) == 0x7FC00000U);
}

TEST_CASE("A block scale is the smallest power of two that keeps amax within the format") {
  CHECK(arith::ue8m0_scale_for(448.0F, 448.0F) == 127);
  CHECK(arith::ue8m0_scale_for(from_bits(to_bits(448.0F) + 1U), 448.0F) == 128);
  CHECK(arith::ue8m0_scale_for(224.0F, 448.0F) == 126);
  CHECK(arith::ue8m0_scale_for(from_bits(0x38D1B717U), 448.0F) ==
        105);  // the floor 1e-4: 2^-22.1 up to 2^-22
  CHECK(arith::ue8m0_scale_for(6.0F, 6.0F) == 127);
  CHECK(arith::ue8m0_scale_for(6.0F * 0x1p-126F, 6.0F) == 1);  // the floor of e2m1
  CHECK(arith::ue8m0_scale_for(5.0F, 6.0F) == 127);
  CHECK(arith::ue8m0_scale_for(3.0F, 6.0F) == 126);
  CHECK(arith::ue8m0_scale_for(kInf, 448.0F) == 254);
  CHECK(arith::ue8m0_scale_for(std::numeric_limits<float>::max(), 6.0F) == 253);  // 2^125.4 up to 2^126
}

TEST_CASE("Block scales against logarithms in double over all bf16 magnitudes") {
  for (unsigned bits = 0; bits < 0x7F80U; ++bits) {
    const float amax = arith::bf16_to_f32(static_cast<std::uint16_t>(bits));
    for (const float largest : {448.0F, 6.0F}) {
      const float floor = largest == 448.0F ? 1e-4F : 6.0F * 0x1p-126F;
      const float raised = amax > floor ? amax : floor;
      // Smallest e with largest * 2^e >= raised; exact in double.
      int e = -130;
      while (std::ldexp(static_cast<double>(largest), e) < static_cast<double>(raised)) ++e;
      INFO(raised);
      REQUIRE(arith::ue8m0_scale_for(raised, largest) == e + 127);
    }
  }
}
