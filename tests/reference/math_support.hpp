/// Helpers of the tests of the reference engine's arithmetic: seeded numbers, literal sums and every
/// instruction set.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "reference/simd/isa.hpp"
#include "support/catch.hpp"

namespace dsv4::reference::test {

inline std::uint32_t bits(float x) {
  std::uint32_t b;
  std::memcpy(&b, &x, sizeof b);
  return std::isnan(x) ? 0x7FC00000U : b;
}
inline float value(std::uint32_t b) {
  float x;
  std::memcpy(&x, &b, sizeof x);
  return x;
}
inline std::vector<std::uint32_t> bits(const std::vector<float>& x) {
  std::vector<std::uint32_t> b;
  for (const float v : x) b.push_back(bits(v));
  return b;
}

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// bf16 of a float by its definition: the neighbour that is nearer, the even one of two equally near.
inline std::uint16_t literal_bf16(float x) {
  if (std::isnan(x)) return 0x7FC0;
  std::uint32_t b = bits(x);
  const std::uint32_t rest = b & 0xFFFFU;
  b >>= 16;
  if (rest > 0x8000U || (rest == 0x8000U && (b & 1U) != 0U)) ++b;
  return static_cast<std::uint16_t>(b);
}
inline float from_bf16(std::uint16_t b) {
  return value(std::uint32_t{b} << 16);
}
inline float via_bf16(float x) {
  return from_bf16(literal_bf16(x));
}

/// a_s[l] = a_2s[l] + a_2s[l + s], a_32 = the lanes: the tree of section 5 from the top.
inline float literal_tree(const float* lanes, int l = 0, int s = 1) {
  if (s == 32) return lanes[l];
  return literal_tree(lanes, l, 2 * s) + literal_tree(lanes, l + s, 2 * s);
}

/// One lane after the other, each with its elements.
inline float literal_dot(const float* x, const float* y, std::int64_t n) {
  float lanes[32];
  for (int l = 0; l < 32; ++l) {
    lanes[l] = 0.0F;
    for (std::int64_t i = l; i < n; i += 32) lanes[l] = std::fma(x[i], y[i], lanes[l]);
  }
  return literal_tree(lanes);
}
inline float literal_sum(const float* x, std::int64_t n) {
  float lanes[32];
  for (int l = 0; l < 32; ++l) {
    lanes[l] = 0.0F;
    for (std::int64_t i = l; i < n; i += 32) lanes[l] += x[i];
  }
  return literal_tree(lanes);
}

/// An e4m3 code by its definition.
inline float e4m3_value(std::uint8_t code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return kNan;
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

/// An e2m1 code, from the table of the format.
inline float e2m1_value(std::uint8_t code) {
  constexpr float kMagnitudes[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  return (code & 8) != 0 ? -kMagnitudes[code & 7] : kMagnitudes[code & 7];
}

/// Numbers whose sums depend on the order: many exponents, both signs.
class Numbers {
 public:
  explicit Numbers(std::uint32_t seed) : engine_(seed) {}
  std::uint32_t word() { return static_cast<std::uint32_t>(engine_()); }
  int below(int n) { return static_cast<int>(word() % static_cast<std::uint32_t>(n)); }
  float wide() { return std::ldexp(static_cast<float>(below(1 << 24)) - 8388608.0F, below(24) - 32); }
  float narrow() { return (static_cast<float>(below(1 << 20)) - 524288.0F) / 131072.0F; }
  std::uint16_t bf16() { return literal_bf16(narrow()); }
  std::uint8_t code() {  // e4m3, not NaN
    const auto c = static_cast<std::uint8_t>(word());
    return (c & 0x7FU) == 0x7FU ? static_cast<std::uint8_t>(c - 1U) : c;
  }
  std::vector<float> wides(std::int64_t n) {
    std::vector<float> v(static_cast<std::size_t>(n));
    for (float& x : v) x = wide();
    return v;
  }
  std::vector<float> narrows(std::int64_t n) {
    std::vector<float> v(static_cast<std::size_t>(n));
    for (float& x : v) x = narrow();
    return v;
  }
  std::vector<std::uint16_t> bf16s(std::int64_t n) {
    std::vector<std::uint16_t> v(static_cast<std::size_t>(n));
    for (auto& x : v) x = bf16();
    return v;
  }

 private:
  std::mt19937 engine_;
};

/// Runs `body` with every instruction set of this machine selected.
template <class Body>
void on_every_isa(const Body& body) {
  const Isa before = selected_isa();
  for (const Isa isa : available_isas()) {
    select_isa(isa);
    INFO("instruction set " << std::string(name(isa)));
    body();
  }
  select_isa(before);
}

}  // namespace dsv4::reference::test
