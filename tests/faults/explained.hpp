/// What `explain` makes of the faults of the matrix.
#pragma once

#include <string>

#include "faults/matrix.hpp"

namespace dsv4::test {

/// What explains a case, in words: names that reproduce everything, or the outcome.
struct Explained {
  std::string as;        ///< "pool-halves-swapped", "a, b", "read: one_bit", "unexplained"
  bool named = false;    ///< the injected one is among the names
  bool certain = false;  ///< one name alone
  bool wrong = false;    ///< one name alone, and another one
  std::string alike;     ///< the other names
  std::string sentence;
};
Explained explained(const std::string& folder, const std::string& engine, const EngineFactory& factory,
                    const Case& one);

}  // namespace dsv4::test
