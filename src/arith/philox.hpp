/// Philox4x32-10, the counter-based generator of Salmon et al. (2011). docs/numerics.md section 19.
#pragma once

#include <array>

#include "arith/config.hpp"

namespace dsv4::arith {

/// Four random words for a counter under a key: ten rounds of two 32 x 32 multiplications.
DSV4_FN constexpr std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                                             std::array<std::uint32_t, 2> key) {
  std::uint32_t c0 = counter[0];
  std::uint32_t c1 = counter[1];
  std::uint32_t c2 = counter[2];
  std::uint32_t c3 = counter[3];
  std::uint32_t k0 = key[0];
  std::uint32_t k1 = key[1];
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {c0, c1, c2, c3};
}

}  // namespace dsv4::arith
