/// Proof of exp, log, sin and cos over every float (docs/numerics.md section 7).
///
/// For each input the exact value is enclosed by a double of a known relative error, computed by tables and
/// formulas of the prover's own. If both ends of value * (1 +- 2^-48) round to the same float, that float is
/// the correctly rounded result; only the others (about one in 2^23) are decided by MPFR. Blocks of inputs in
/// which nothing is open and nothing differs pass in vectorised loops; every other block is judged input by
/// input.
#pragma once

#include <cstdint>

namespace dsv4::prover {

enum class Function : std::uint8_t { exp, log, sin, cos };

struct Verdict {
  std::uint64_t inputs = 0;
  std::uint64_t wrong = 0;
  std::uint64_t by_mpfr = 0;         ///< inputs that the enclosure left open
  std::uint64_t finite_nonzero = 0;  ///< results
  std::uint64_t trivial = 0;         ///< of those, results equal to 1, for sin to the argument
  std::uint32_t first_wrong = 0;     ///< bits of one wrong input
};

/// A second evaluation held against the first.
struct Agreement {
  std::uint64_t inputs = 0;
  std::uint64_t wrong = 0;
  std::uint32_t first_wrong = 0;  ///< bits of one of them
};

/// One build of the prover: the same source for the baseline and for a newer instruction set.
struct Prover {
  const char* name;
  Verdict (*prove)(Function);  ///< all 2^32 inputs
  Agreement (*compare_exp)();  ///< exp_by_fused_double with exp_by_double, all 2^32 inputs
  /// sin_cos_by_fused_double with sin and cos from 0 to 2^20; other angles differ by the sign of sin or take the way of
  /// sin_cos_by_double.
  Agreement (*compare_sin_cos)();
  /// Correctly rounded bits of one input, NaN as 0x7FC00000, by enclosure and MPFR as in prove().
  std::uint32_t (*expected)(Function, std::uint32_t input);
  /// The same by MPFR alone.
  std::uint32_t (*expected_by_mpfr)(Function, std::uint32_t input);
  /// What src/arith computes, compiled like the prover; NaN as 0x7FC00000.
  std::uint32_t (*computed)(Function, std::uint32_t input);
};

const Prover& baseline();
const Prover& x86_64_v3();  ///< exists on x86-64 builds only
/// The fastest that this machine can run.
const Prover& best();

}  // namespace dsv4::prover
