// exp, log, sin and cos: values by definition, a sample against MPFR, and the same bits from every build.
#include <fmt/core.h>

#include "arith/sin_cos.hpp"
#include "prover.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using prover::Function;

namespace {
constexpr Function kFunctions[] = {Function::exp, Function::log, Function::sin, Function::cos};
constexpr std::uint32_t kNan = 0x7FC00000U;
constexpr std::uint32_t kInf = 0x7F800000U;
constexpr std::uint32_t kMinusInf = 0xFF800000U;
constexpr std::uint32_t kOne = 0x3F800000U;

std::uint32_t computed(Function function, std::uint32_t input) {
  return prover::baseline().computed(function, input);
}
}  // namespace

TEST_CASE("Values by definition") {
  for (const Function function : kFunctions) {
    for (const std::uint32_t nan : {0x7FC00000U, 0xFFC00000U, 0x7F800001U, 0xFFFFFFFFU}) {
      CHECK(computed(function, nan) == kNan);
    }
  }
  CHECK(computed(Function::exp, 0U) == kOne);
  CHECK(computed(Function::exp, 0x80000000U) == kOne);
  CHECK(computed(Function::exp, kInf) == kInf);
  CHECK(computed(Function::exp, kMinusInf) == 0U);
  CHECK(computed(Function::exp, 0x42B17217U) == 0x7F7FFF84U);  // 88.72283: the last finite result
  CHECK(computed(Function::exp, 0x42B17218U) == kInf);
  CHECK(computed(Function::exp, 0xC2CFF1B4U) == 1U);  // -103.97207: the last non-zero result
  CHECK(computed(Function::exp, 0xC2CFF1B5U) == 0U);
  CHECK(computed(Function::log, 0U) == kMinusInf);
  CHECK(computed(Function::log, 0x80000000U) == kMinusInf);
  CHECK(computed(Function::log, 0x80000001U) == kNan);
  CHECK(computed(Function::log, kMinusInf) == kNan);
  CHECK(computed(Function::log, kInf) == kInf);
  CHECK(computed(Function::log, kOne) == 0U);
  CHECK(computed(Function::log, 0x40000000U) == 0x3F317218U);
  CHECK(computed(Function::sin, 0U) == 0U);
  CHECK(computed(Function::sin, 0x80000000U) == 0x80000000U);
  CHECK(computed(Function::cos, 0x80000000U) == kOne);
  for (const std::uint32_t infinity : {kInf, kMinusInf}) {
    CHECK(computed(Function::sin, infinity) == kNan);
    CHECK(computed(Function::cos, infinity) == kNan);
  }
  CHECK(computed(Function::sin, 0x40490FDBU) == 0xB3BBBD2EU);  // sin(float(pi)) = -8.7422777e-8
}

TEST_CASE("A sample of all inputs against MPFR alone, and the prover against MPFR") {
  constexpr std::uint32_t kStep = 40009;  // prime: every exponent, changing mantissas
  for (const Function function : kFunctions) {
    std::uint64_t count = 0;
    std::uint64_t wrong = 0;
    std::uint64_t wrong_prover = 0;
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += kStep) {
      const auto input = static_cast<std::uint32_t>(bits);
      const std::uint32_t wanted = prover::baseline().expected_by_mpfr(function, input);
      wrong += computed(function, input) != wanted;
      wrong_prover += prover::baseline().expected(function, input) != wanted;
      ++count;
    }
    fmt::print("function {}: {} inputs against MPFR, {} wrong; prover {} wrong\n", static_cast<int>(function),
               count, wrong, wrong_prover);
    CHECK(wrong == 0);
    CHECK(wrong_prover == 0);
  }
}

TEST_CASE("Both reductions of sin and cos meet at 2^20, and the hardest argument is right") {
  for (const Function function : {Function::sin, Function::cos}) {
    for (std::uint32_t input = 0x49800000U - 300U; input < 0x49800000U + 300U; ++input) {
      REQUIRE(computed(function, input) == prover::baseline().expected_by_mpfr(function, input));
    }
    // 16367173 * 2^72 is the float nearest to a multiple of pi/2, at a distance of 1.6e-9.
    const std::uint32_t hardest = 0x6F79BE45U;
    CHECK(computed(function, hardest) == prover::baseline().expected_by_mpfr(function, hardest));
  }
}

#if defined(DSV4_HAVE_V3)
TEST_CASE("both forms of sin_cos give the floats of sin and cos") {
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < std::uint64_t{1} << 32; i += 251) {
    const float x = arith::from_bits(static_cast<std::uint32_t>(i));
    for (const arith::SinCos both : {arith::sin_cos_by_double(x), arith::sin_cos_by_fused_double(x)}) {
      wrong += arith::to_bits(both.sin) != arith::to_bits(arith::sin(x));
      wrong += arith::to_bits(both.cos) != arith::to_bits(arith::cos(x));
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("The build for AVX2 and FMA gives the bits of the baseline") {
  if (&prover::best() == &prover::baseline()) return;  // this machine has neither
  std::uint64_t count = 0;
  for (const Function function : kFunctions) {
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 8209) {
      const auto input = static_cast<std::uint32_t>(bits);
      REQUIRE(prover::x86_64_v3().computed(function, input) == computed(function, input));
      ++count;
    }
  }
  fmt::print("{} results equal in both builds\n", count);
}
#endif
