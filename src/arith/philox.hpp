/// Philox4x32-10, the counter-based generator of Salmon et al. (2011). docs/numerics.md section 19.
#pragma once

#include <array>

#include "arith/config.hpp"

namespace dsv4::arith {

/// Ten rounds of two 32 x 32 multiplications on four counter words, in place, under the key (k0, k1).
DSV4_FN constexpr void philox_rounds(std::uint32_t& c0, std::uint32_t& c1, std::uint32_t& c2,
                                     std::uint32_t& c3, std::uint32_t k0, std::uint32_t k1) {
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
}

/// Four random words for a counter under a key. Host only: std::array is no device type.
[[maybe_unused]] static constexpr std::array<std::uint32_t, 4> philox4x32_10(
    std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  philox_rounds(counter[0], counter[1], counter[2], counter[3], key[0], key[1]);
  return counter;
}

}  // namespace dsv4::arith
