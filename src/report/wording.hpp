/// Sentences of the text report, apart from where they are printed.
#pragma once

#include <string>

#include "compare/comparison.hpp"

namespace dsv4::report {

/// "request b, position 4113 (mod 4 = 1, mod 128 = 17, mod page = 17), rank 511"
std::string describe(const compare::Meaning& meaning);

/// "1027  0x00000403  score 0.4375"
std::string describe(const compare::ElementValue& value);

/// "[2, 0, 511]"
std::string describe_coordinate(const std::vector<std::int64_t>& coordinate);

/// Decimal with as many digits as float32 needs; inf and nan by name.
std::string number(double value);

/// "4.2e-07", or "0".
std::string figure(double value);

/// What the inputs say: "IDENTICAL (q.down/q_latent)  ->  introduced here, not inherited".
std::string describe_inputs(const compare::Comparison& comparison);

/// What to do next about a first divergence whose inputs differed on the two sides; empty where they were
/// identical: then the difference was introduced where it is seen.
std::string hint(const compare::Totals& totals);

}  // namespace dsv4::report
