// exp, log, sin and cos over all 2^32 floats (docs/numerics.md section 7).
#include <fmt/core.h>

#include <cstdio>

#include "prover.hpp"
#include "support/catch.hpp"

namespace {

using dsv4::prover::Agreement;
using dsv4::prover::Function;
using dsv4::prover::Prover;
using dsv4::prover::Verdict;

Verdict prove(const char* name, Function function) {
  const Prover& prover = dsv4::prover::best();
  const Verdict v = prover.prove(function);
  fmt::print(
      "{} ({}): {} inputs, {} finite non-zero results ({} of them trivial), {} decided by MPFR, {} wrong\n",
      name, prover.name, v.inputs, v.finite_nonzero, v.trivial, v.by_mpfr, v.wrong);
  std::fflush(stdout);
  INFO(fmt::format("{}: one wrong input has the bits {:#010x}", name, v.first_wrong));
  CHECK(v.inputs == std::uint64_t{1} << 32);
  CHECK(v.wrong == 0);
  CHECK(v.by_mpfr > 0);        // an enclosure that decides everything would be too good
  CHECK(v.by_mpfr < 1000000);  // and one that decides nothing would be no enclosure
  return v;
}

Agreement agree(const char* name, Agreement (*compare)()) {
  const Agreement a = compare();
  fmt::print("{} ({}): {} inputs, {} wrong\n", name, dsv4::prover::best().name, a.inputs, a.wrong);
  std::fflush(stdout);
  INFO(fmt::format("{}: one wrong input has the bits {:#010x}", name, a.first_wrong));
  CHECK(a.wrong == 0);
  return a;
}

}  // namespace

TEST_CASE("exp is correctly rounded for every float") {
  const Verdict v = prove("exp", Function::exp);
  CHECK(v.finite_nonzero - v.trivial > 500000000);
}

TEST_CASE("exp_by_fused_double gives the float of exp_by_double for every float") {
  CHECK(agree("exp_by_fused_double", dsv4::prover::best().compare_exp).inputs == std::uint64_t{1} << 32);
}

TEST_CASE("sin_cos_by_fused_double gives the floats of sin and cos for every angle to 2^20") {
  CHECK(agree("sin_cos_by_fused_double", dsv4::prover::best().compare_sin_cos).inputs > 0x49800000U);
}

TEST_CASE("log is correctly rounded for every float") {
  const Verdict v = prove("log", Function::log);
  // Every positive finite float but 1, whose logarithm is zero.
  CHECK(v.finite_nonzero == 0x7F800000U - 2U);
}

TEST_CASE("sin is correctly rounded for every float") {
  const Verdict v = prove("sin", Function::sin);
  CHECK(v.finite_nonzero == 2U * (0x7F800000U - 1U));  // no float but zero is a multiple of pi
}

TEST_CASE("cos is correctly rounded for every float") {
  const Verdict v = prove("cos", Function::cos);
  CHECK(v.finite_nonzero == 2U * 0x7F800000U);
}
