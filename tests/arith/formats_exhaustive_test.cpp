// Conversions to bf16, e4m3 and e2m1 over all 2^32 floats (docs/numerics.md section 3).
//
// The expected code comes from the list of a format's values alone: between two neighbours the nearer one, at
// the midpoint, which is a float, the one with the even code. Each stretch of inputs between midpoints is
// checked.
#include <fmt/core.h>

#include <cmath>
#include <functional>
#include <vector>

#include "arith/bf16.hpp"
#include "arith/e2m1.hpp"
#include "arith/e4m3.hpp"
#include "support/catch.hpp"

#if defined(DSV4_CUDA_HEADERS)
#include <cuda_bf16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#endif

using namespace dsv4;
using arith::from_bits;
using arith::to_bits;

namespace {

constexpr std::uint32_t kInfinity = 0x7F800000U;

struct Format {
  const char* name;
  std::vector<double> magnitudes;  // of codes 0, 1, ... in rising order
  std::uint32_t sign;              // the code's sign bit
  std::uint32_t beyond;            // code of everything past the last midpoint, infinity included
  bool overflows;                  // past half a step above the largest value begins `beyond`
  std::uint32_t nan;
};

/// value = (hidden + mantissa) * 2^(field - bias), by the format's definition.
std::vector<double> magnitudes_of(int mantissa_bits, int bias, int codes) {
  std::vector<double> values;
  for (int code = 0; code < codes; ++code) {
    const int field = code >> mantissa_bits;
    const int mantissa = code & ((1 << mantissa_bits) - 1);
    const int whole = field == 0 ? mantissa : mantissa + (1 << mantissa_bits);
    values.push_back(std::ldexp(whole, (field == 0 ? 1 : field) - bias - mantissa_bits));
  }
  return values;
}

struct Count {
  std::uint64_t inputs = 0;
  std::uint64_t wrong = 0;
};

/// All inputs first .. last (bits), both signs, must convert to `code`.
template <class Convert>
void stretch(std::uint32_t first, std::uint32_t last, std::uint32_t code, std::uint32_t sign,
             const Convert& convert, Count& count) {
  std::uint64_t wrong = 0;
  for (std::uint64_t bits = first; bits <= last; ++bits) {
    const auto input = static_cast<std::uint32_t>(bits);
    wrong += convert(from_bits(input)) != code;
    wrong += convert(from_bits(input | 0x80000000U)) != (code | sign);
  }
  count.inputs += 2 * (std::uint64_t{last} - first + 1);
  count.wrong += wrong;
}

template <class Convert>
Count check_all(const Format& format, const Convert& convert) {
  const auto codes = static_cast<std::int64_t>(format.magnitudes.size());
  std::uint64_t inputs = 0;
  std::uint64_t wrong = 0;
#pragma omp parallel for schedule(dynamic) reduction(+ : inputs, wrong)
  for (std::int64_t code = 0; code <= codes; ++code) {
    Count count;
    // Midpoints to the neighbours; each is a float, and belongs to the even code.
    const auto midpoint = [&](std::int64_t lower) {
      const double low = format.magnitudes[static_cast<std::size_t>(lower)];
      const double high = lower + 1 < codes
                              ? format.magnitudes[static_cast<std::size_t>(lower + 1)]
                              : 2 * low - format.magnitudes[static_cast<std::size_t>(lower - 1)];
      return to_bits(static_cast<float>((low + high) / 2));
    };
    const bool even = code % 2 == 0;
    if (code < codes) {
      const std::uint32_t first = code == 0 ? 0U : midpoint(code - 1) + (even ? 0U : 1U);
      const bool last_code = code == codes - 1;
      std::uint32_t last = kInfinity;
      if (!last_code || format.overflows) last = midpoint(code) - (even ? 0U : 1U);
      stretch(first, last, static_cast<std::uint32_t>(code), format.sign, convert, count);
    } else {
      if (format.overflows) {
        const std::uint32_t first = midpoint(codes - 1) + (even ? 0U : 1U);
        stretch(first, kInfinity, format.beyond, format.sign, convert, count);
      }
      stretch(kInfinity + 1U, 0x7FFFFFFFU, format.nan, 0U, convert, count);
    }
    inputs += count.inputs;
    wrong += count.wrong;
  }
  return {inputs, wrong};
}

const Format kBf16{"bf16", magnitudes_of(7, 127, 0x7F80), 0x8000U, 0x7F80U, true, 0x7FC0U};
const Format kE4m3{"e4m3", magnitudes_of(3, 7, 0x7F), 0x80U, 0U, false, 0x7FU};
const Format kE2m1{"e2m1", magnitudes_of(1, 1, 8), 8U, 0U, false, 7U};

template <class Convert>
void require_all(const Format& format, const Convert& convert) {
  const Count count = check_all(format, convert);
  fmt::print("f32 -> {}: {} inputs, {} wrong\n", format.name, count.inputs, count.wrong);
  CHECK(count.inputs == std::uint64_t{1} << 32);
  CHECK(count.wrong == 0);
}

}  // namespace

TEST_CASE("f32 to bf16 over every float") {
  require_all(kBf16, [](float x) { return std::uint32_t{arith::f32_to_bf16(x)}; });
}

TEST_CASE("f32 to e4m3 over every float") {
  require_all(kE4m3, [](float x) { return std::uint32_t{arith::f32_to_e4m3(x)}; });
}

TEST_CASE("f32 to e2m1 over every float") {
  require_all(kE2m1, [](float x) { return std::uint32_t{arith::f32_to_e2m1(x)}; });
}

TEST_CASE("Values of all codes") {
  for (std::uint32_t code = 0; code < 0x10000U; ++code) {
    const std::uint32_t bits = to_bits(arith::bf16_to_f32(static_cast<std::uint16_t>(code)));
    REQUIRE(bits == code << 16);
    const std::uint32_t magnitude = code & 0x7FFFU;
    if (magnitude < 0x7F80U) {
      REQUIRE(static_cast<double>(from_bits(bits & 0x7FFFFFFFU)) == kBf16.magnitudes[magnitude]);
    }
  }
  for (std::uint32_t code = 0; code < 0x7FU; ++code) {
    REQUIRE(static_cast<double>(arith::e4m3_to_f32(static_cast<std::uint8_t>(code))) ==
            kE4m3.magnitudes[code]);
  }
  for (std::uint32_t code = 0; code < 8U; ++code) {
    REQUIRE(static_cast<double>(arith::e2m1_to_f32(static_cast<std::uint8_t>(code))) ==
            kE2m1.magnitudes[code]);
  }
}

#if defined(DSV4_CUDA_HEADERS)
namespace {
/// Compares a conversion with CUDA's host intrinsic on every 2^16-th float and, around each, on the inputs
/// whose low half is near a rounding boundary of any of the formats.
template <class Ours, class Theirs>
Count compare(const Ours& ours, const Theirs& theirs) {
  std::uint64_t inputs = 0;
  std::uint64_t wrong = 0;
#pragma omp parallel for schedule(dynamic, 256) reduction(+ : inputs, wrong)
  for (std::int64_t high = 0; high < 0x10000; ++high) {
    for (std::uint32_t step = 0; step < 0x400U; ++step) {
      for (const std::uint32_t near : {0U, 1U, 0x3FU}) {
        const std::uint32_t bits = (static_cast<std::uint32_t>(high) << 16) | (step << 6) | near;
        const float x = from_bits(bits);
        wrong += ours(x) != theirs(x);
        ++inputs;
      }
    }
  }
  return {inputs, wrong};
}
}  // namespace

TEST_CASE("CUDA's host conversions give the same codes") {
  const Count e4m3 = compare([](float x) { return arith::f32_to_e4m3(x); },
                             [](float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3); });
  const Count e2m1 = compare([](float x) { return arith::f32_to_e2m1(x); },
                             [](float x) { return __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest); });
  // CUDA's NaN is 0x7FFF, ours 0x7FC0: everything but NaN must agree.
  const Count bf16 = compare([](float x) { return arith::f32_to_bf16(x); },
                             [](float x) {
                               const __nv_bfloat16_raw raw = __float2bfloat16_rn(x);
                               return static_cast<std::uint16_t>(raw.x == 0x7FFFU ? 0x7FC0U : raw.x);
                             });
  fmt::print("CUDA host intrinsics: {} inputs each; e4m3 {}, e2m1 {}, bf16 {} different\n", e4m3.inputs,
             e4m3.wrong, e2m1.wrong, bf16.wrong);
  CHECK(e4m3.wrong == 0);
  CHECK(e2m1.wrong == 0);
  CHECK(bf16.wrong == 0);
}
#else
TEST_CASE("CUDA's host conversions give the same codes") {
  fmt::print("CUDA toolkit not found: its host conversions were not compared\n");
}
#endif
