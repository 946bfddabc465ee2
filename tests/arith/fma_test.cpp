// The software fma (docs/numerics.md section 5) against MPFR and against the machine's or libm's fused
// operation.
#include "arith/fma.hpp"

#include <fmt/core.h>
#include <mpfr.h>

#include <array>
#include <cmath>
#include <vector>

#include "arith/philox.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using arith::from_bits;
using arith::to_bits;

namespace {

std::uint32_t canonical(float x) {
  const std::uint32_t bits = to_bits(x);
  return arith::is_nan_bits(bits) ? arith::kNanBits : bits;
}

float fma_by_mpfr(float a, float b, float c) {
  mpfr_set_emin(-148);
  mpfr_set_emax(128);
  mpfr_t x, y, z;
  mpfr_inits2(24, x, y, z, static_cast<mpfr_ptr>(nullptr));
  mpfr_set_flt(x, a, MPFR_RNDN);
  mpfr_set_flt(y, b, MPFR_RNDN);
  mpfr_set_flt(z, c, MPFR_RNDN);
  const int inexact = mpfr_fma(x, x, y, z, MPFR_RNDN);
  mpfr_subnormalize(x, inexact, MPFR_RNDN);
  const float result = mpfr_get_flt(x, MPFR_RNDN);
  mpfr_clears(x, y, z, static_cast<mpfr_ptr>(nullptr));
  return result;
}

struct Triple {
  float a, b, c;
};

std::uint32_t word(std::uint32_t n) {
  return arith::philox4x32_10({n / 4, 0, 0, 0}, {17, 29})[n % 4];
}

/// Triples that a single rounding to double, or two roundings, would get wrong, and ordinary ones.
std::vector<Triple> triples() {
  std::vector<Triple> list;
  const float inf = from_bits(0x7F800000U);
  const float nan = from_bits(0x7FC00000U);
  const std::array specials{0.0F,      -0.0F,    1.0F,      -1.0F,           inf,
                            -inf,      nan,      0x1p-149F, -0x1p-149F,      0x1p-126F,
                            0x1p-127F, 0x1p127F, -0x1p127F, 0x1.fffffep127F, 0x1.fffffcp-127F,
                            0x1p-75F,  0x1p-74F, 3.0F,      0x1.000002p0F,   0x1.fffffep0F};
  for (const float a : specials) {
    for (const float b : specials) {
      for (const float c : specials) list.push_back({a, b, c});
    }
  }
  for (std::uint32_t i = 0; i < 60000; ++i) {
    const std::uint32_t w0 = word(3 * i);
    const std::uint32_t w1 = word(3 * i + 1);
    const std::uint32_t w2 = word(3 * i + 2);
    const float raw_a = from_bits(w0);
    const float raw_b = from_bits(w1);
    list.push_back({raw_a, raw_b, from_bits(w2)});  // any bits
    // Mantissas at random, exponents chosen so that product and addend overlap everywhere from far above to
    // below.
    const float a = from_bits((w0 & 0x807FFFFFU) | ((100U + (w2 & 31U)) << 23));
    const float b = from_bits((w1 & 0x807FFFFFU) | ((110U + ((w2 >> 5) & 15U)) << 23));
    const float product = a * b;
    const std::uint32_t exponent = (to_bits(product) >> 23) & 255U;
    const std::uint32_t shift = (w2 >> 9) & 63U;
    const std::uint32_t addend_exponent = exponent + 32U > shift + 1U ? exponent + 32U - shift : 1U;
    const float c = from_bits((w2 & 0x80000000U) | (addend_exponent << 23) | ((w0 ^ (w1 << 5)) & 0x7FFFFFU));
    list.push_back({a, b, c});
    // Cancellation: the addend is the rounded product, or a neighbour of it, with the other sign.
    list.push_back({a, b, -from_bits(to_bits(product) + (w2 & 3U) - 1U)});
    // Double rounding: the product is half the last place of the addend less a part in 2^46, which double
    // loses.
    const std::uint32_t top = 60U + (w0 & 127U);
    const float addend = from_bits((w2 & 0x807FFFFFU) | (top << 23));
    const float above_half = from_bits((w1 & 0x80000000U) | ((top - 24U) << 23) | 1U);
    list.push_back({above_half, 0x1.fffffcp-1F, addend});
    list.push_back({0x1.fffffcp+3F, above_half * 0x1p-4F, addend});
    // Results among the subnormals.
    const float tiny_a = from_bits((w0 & 0x807FFFFFU) | ((40U + (w1 & 31U)) << 23));
    const float tiny_b = from_bits((w1 & 0x807FFFFFU) | ((20U + (w0 & 31U)) << 23));
    list.push_back({tiny_a, tiny_b, from_bits(w2 & 0x80FFFFFFU)});
    list.push_back({tiny_a, tiny_b, from_bits(w2 & 0x80000003U)});
  }
  return list;
}

}  // namespace

TEST_CASE("Software fma equals MPFR on random and adversarial triples") {
  const std::vector<Triple> list = triples();
  std::uint64_t wrong = 0;
  std::uint64_t two_roundings = 0;
  std::uint64_t double_rounding = 0;
  std::uint64_t subnormal = 0;
  for (const Triple& t : list) {
    const std::uint32_t wanted = canonical(fma_by_mpfr(t.a, t.b, t.c));
    const bool differs = canonical(arith::fma_software(t.a, t.b, t.c)) != wanted;
    if (differs && wrong++ < 5) fmt::print("fma({:a}, {:a}, {:a}) is wrong\n", t.a, t.b, t.c);
    // How many of the triples tell a right fma from the usual wrong ones.
    two_roundings += canonical(t.a * t.b + t.c) != wanted;
    const double sum = static_cast<double>(t.a) * static_cast<double>(t.b) + static_cast<double>(t.c);
    double_rounding += canonical(static_cast<float>(sum)) != wanted;
    const std::uint32_t magnitude = wanted & 0x7FFFFFFFU;
    subnormal += magnitude != 0U && magnitude < 0x00800000U;
  }
  fmt::print(
      "fma: {} triples against MPFR, {} wrong; a*b+c in float would miss {}, in double {}; {} subnormal\n",
      list.size(), wrong, two_roundings, double_rounding, subnormal);
  CHECK(wrong == 0);
  CHECK(two_roundings > 1000);
  CHECK(double_rounding > 1000);
  CHECK(subnormal > 1000);
}

TEST_CASE("Software fma, the target's fma and libm's fused operation agree") {
  std::uint64_t wrong_library = 0;
  std::uint64_t wrong_target = 0;
  std::uint64_t count = 0;
  for (const Triple& t : triples()) {
    const std::uint32_t ours = canonical(arith::fma_software(t.a, t.b, t.c));
    wrong_library += ours != canonical(std::fma(t.a, t.b, t.c));
    wrong_target += ours != canonical(arith::fma(t.a, t.b, t.c));
    ++count;
  }
  for (std::uint32_t i = 0; i < 4000000; i += 4) {
    const auto w = arith::philox4x32_10({i, 1, 0, 0}, {3, 5});
    const float a = from_bits(w[0]);
    const float b = from_bits(w[1]);
    // An addend whose exponent lies near that of the product.
    const std::uint32_t near = (to_bits(a * b) >> 23 & 255U) + (w[3] & 63U);
    const float c = from_bits((w[2] & 0x807FFFFFU) | ((near > 32U && near < 286U ? near - 32U : 1U) << 23));
    const std::uint32_t ours = canonical(arith::fma_software(a, b, c));
    wrong_library += ours != canonical(std::fma(a, b, c));
    wrong_target += ours != canonical(arith::fma(a, b, c));
    ++count;
  }
  fmt::print("fma: {} triples, {} differ from libm, {} from the target's\n", count, wrong_library,
             wrong_target);
  CHECK(wrong_library == 0);
  CHECK(wrong_target == 0);
}

TEST_CASE("Signed zeros, infinities and NaN of fma") {
  const float inf = from_bits(0x7F800000U);
  CHECK(to_bits(arith::fma_software(1.0F, 1.0F, -1.0F)) == 0U);
  CHECK(to_bits(arith::fma_software(-0.0F, 1.0F, -0.0F)) == 0x80000000U);
  CHECK(to_bits(arith::fma_software(-0.0F, 1.0F, 0.0F)) == 0U);
  CHECK(arith::fma_software(inf, 1.0F, 1.0F) == inf);
  CHECK(canonical(arith::fma_software(inf, 0.0F, 1.0F)) == arith::kNanBits);
  CHECK(canonical(arith::fma_software(inf, 1.0F, -inf)) == arith::kNanBits);
  CHECK(arith::fma_software(0x1.fffffep127F, 1.0F, 0x1p103F) == inf);  // a tie past the largest float
  CHECK(arith::fma_software(0x1.fffffep127F, 1.0F, 0x1.fffffep102F) == 0x1.fffffep127F);
  CHECK(arith::fma_software(0x1.fffffep127F, 2.0F, -0x1.fffffep127F) ==
        0x1.fffffep127F);                                               // no overflow within
  CHECK(to_bits(arith::fma_software(0x1p-75F, 0x1p-75F, 0.0F)) == 0U);  // a tie to zero
  CHECK(to_bits(arith::fma_software(0x1.000002p-75F, 0x1p-75F, 0.0F)) == 1U);
  CHECK(to_bits(arith::fma_software(-0x1p-80F, 0x1p-80F, 0.0F)) == 0x80000000U);  // underflow keeps its sign
}
