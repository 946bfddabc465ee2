// The check of the floating-point environment notices each way of being wrong.
#include "arith/environment.hpp"

#include <cfenv>

#include "support/catch.hpp"
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

using dsv4::arith::environment_is_strict;

TEST_CASE("The default environment is strict, other rounding directions are not") {
  CHECK(environment_is_strict());
  bool strict[3];
  const int directions[3] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
  for (int i = 0; i < 3; ++i) {
    std::fesetround(directions[i]);
    strict[i] = environment_is_strict();
    std::fesetround(FE_TONEAREST);
  }
  for (const bool s : strict) CHECK_FALSE(s);
  CHECK(environment_is_strict());
}

#if defined(__SSE2__)
TEST_CASE("Flush to zero and denormals are zero are noticed") {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8000U);
  const bool flush = environment_is_strict();
  _mm_setcsr(saved | 0x0040U);
  const bool zeros = environment_is_strict();
  _mm_setcsr(saved);
  CHECK_FALSE(flush);
  CHECK_FALSE(zeros);
  CHECK(environment_is_strict());
}
#endif
