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

/// What exp_by_floats decides, held against exp_by_double, over every float.
struct Agreement {
  std::uint64_t inputs = 0;
  std::uint64_t decided = 0;
  std::uint64_t wrong = 0;           ///< decided, and another float than exp_by_double's
  std::uint32_t first_wrong = 0;     ///< bits of one of them
  std::uint64_t usual = 0;           ///< inputs from -30 to -0
  std::uint64_t usual_open = 0;      ///< of those, undecided
  std::uint64_t not_small = 0;       ///< inputs from -30 to -1/16, where no result is near 1
  std::uint64_t not_small_open = 0;  ///< of those, undecided
};

/// One build of the prover: the same source for the baseline and for a newer instruction set.
struct Prover {
  const char* name;
  Verdict (*prove)(Function);  ///< all 2^32 inputs
  Agreement (*compare_exp)();  ///< all 2^32 inputs
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
