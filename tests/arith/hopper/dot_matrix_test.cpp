// The vectorised products against the scalar step, bit for bit, for every instruction set that runs here.
#include "arith/hopper/dot_matrix.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "arith/hopper/dot.hpp"
#include "arith/philox.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using arith::from_bits;
using arith::to_bits;
namespace hopper = arith::hopper;

namespace {

struct NamedKernels {
  const char* name;
  const hopper::DotKernels* kernels;
};
std::vector<NamedKernels> kernels_here() {
  std::vector<NamedKernels> all{{"generic", hopper::dot_kernels_generic()},
                                {"v3", hopper::dot_kernels_v3()},
                                {"v4", hopper::dot_kernels_v4()},
                                {"best", nullptr}};
  std::erase_if(all,
                [](const NamedKernels& k) { return k.kernels == nullptr && std::string(k.name) != "best"; });
  return all;
}

std::uint32_t draw(std::uint32_t i, std::uint32_t stream) {
  return arith::philox4x32_10({i / 4, stream, 0, 0}, {3, 4})[i % 4];
}

/// Codes of exponent field low .. low + span - 1, a tenth zeros; span 0: any bits.
template <class Code>
std::vector<Code> codes(std::size_t count, std::uint32_t stream, std::uint32_t low, std::uint32_t span) {
  constexpr int kMantissa = sizeof(Code) == 2 ? 7 : 3;
  constexpr std::uint32_t kSign = sizeof(Code) == 2 ? 0x8000U : 0x80U;
  std::vector<Code> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t r = draw(static_cast<std::uint32_t>(i), stream);
    const std::uint32_t field = span == 0 ? 0 : low + (r >> 20) % span;
    const std::uint32_t shaped = (r & (kSign | ((1U << kMantissa) - 1U))) | field << kMantissa;
    result[i] = static_cast<Code>(span == 0 ? r : ((r >> 16) % 10U == 0U ? r & kSign : shaped));
  }
  return result;
}
std::vector<float> floats(std::size_t count, std::uint32_t low, std::uint32_t span) {
  std::vector<float> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t r = draw(static_cast<std::uint32_t>(i), 9);
    const std::uint32_t field = span == 0 ? (r >> 23) & 0xFFU : low + (r >> 12) % span;
    result[i] = from_bits((r & 0x807FFFFFU) | field << 23);
  }
  return result;
}

struct Shape {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

float step(const std::uint16_t* a, const std::uint16_t* b, float c) {
  return hopper::dot_accumulate_bf16(a, b, c);
}
float step(const std::uint8_t* a, const std::uint8_t* b, float c) {
  return hopper::dot_accumulate_e4m3(a, b, c);
}
void product(const std::uint16_t* a, const std::uint16_t* b, float* c, const Shape& s, std::int64_t pad,
             const hopper::DotKernels* kernels) {
  hopper::matmul_bf16(a, b, c, s.m, s.n, s.k, s.k + pad, s.k + 2 * pad, s.n + 3 * pad, kernels);
}
void product(const std::uint8_t* a, const std::uint8_t* b, float* c, const Shape& s, std::int64_t pad,
             const hopper::DotKernels* kernels) {
  hopper::matmul_e4m3(a, b, c, s.m, s.n, s.k, s.k + pad, s.k + 2 * pad, s.n + 3 * pad, kernels);
}

/// Compares whole products, rows `pad` elements further apart than they are long.
template <class Code>
void compare(const std::vector<Code>& a, const std::vector<Code>& b, const std::vector<float>& c,
             const Shape& s, std::int64_t pad) {
  constexpr std::int64_t kStep = sizeof(Code) == 2 ? 16 : 32;
  std::vector<float> expected = c;
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      float& sum = expected[static_cast<std::size_t>(i * (s.n + 3 * pad) + j)];
      for (std::int64_t at = 0; at < s.k; at += kStep) {
        Code x[kStep] = {};
        Code y[kStep] = {};
        std::copy_n(&a[static_cast<std::size_t>(i * (s.k + pad) + at)], std::min(kStep, s.k - at), x);
        std::copy_n(&b[static_cast<std::size_t>(j * (s.k + 2 * pad) + at)], std::min(kStep, s.k - at), y);
        sum = step(x, y, sum);
      }
    }
  }
  for (const NamedKernels& kernels : kernels_here()) {
    std::vector<float> sums = c;
    product(a.data(), b.data(), sums.data(), s, pad, kernels.kernels);
    std::size_t differing = 0;
    for (std::size_t i = 0; i < sums.size(); ++i)
      differing += to_bits(sums[i]) != to_bits(expected[i]) ? 1 : 0;
    INFO(fmt::format("{}: {} of {} differ", kernels.name, differing, sums.size()));
    CHECK(differing == 0);
  }
}

template <class Code>
void compare_random(const Shape& s, std::int64_t pad, std::uint32_t low, std::uint32_t span,
                    std::uint32_t c_low, std::uint32_t c_span) {
  const auto a_size = static_cast<std::size_t>(s.m * (s.k + pad));
  const auto b_size = static_cast<std::size_t>(s.n * (s.k + 2 * pad));
  const auto c_size = static_cast<std::size_t>(s.m * (s.n + 3 * pad));
  compare(codes<Code>(a_size, 1, low, span), codes<Code>(b_size, 2, low, span), floats(c_size, c_low, c_span),
          s, pad);
}

}  // namespace

TEST_CASE("any bits") {
  compare_random<std::uint16_t>({70, 37, 16}, 0, 0, 0, 0, 0);
  compare_random<std::uint8_t>({70, 37, 32}, 0, 0, 0, 0, 0);
  compare_random<std::uint16_t>({20, 20, 128}, 0, 0, 0, 0, 0);
  compare_random<std::uint8_t>({20, 20, 128}, 0, 0, 0, 0, 0);
}

TEST_CASE("chains of finite values, shapes that fill no panel, rows with gaps") {
  for (const Shape& s :
       {Shape{1, 1, 16}, Shape{3, 16, 64}, Shape{65, 17, 96}, Shape{5, 33, 512}, Shape{2, 2, 0}}) {
    for (const std::int64_t pad : {0, 3}) {
      compare_random<std::uint16_t>(s, pad, 118, 14, 120, 12);
      compare_random<std::uint8_t>(s, pad, 0, 15, 110, 30);
    }
  }
}

TEST_CASE("a last step that is not full") {
  compare_random<std::uint16_t>({7, 19, 37}, 1, 118, 14, 120, 12);
  compare_random<std::uint8_t>({7, 19, 37}, 1, 0, 15, 110, 30);
}

TEST_CASE("subnormals, underflow and overflow") {
  compare_random<std::uint16_t>({40, 33, 32}, 0, 0, 67, 0, 20);     // around 2^-133
  compare_random<std::uint16_t>({40, 33, 32}, 0, 186, 7, 245, 10);  // around 2^127
  compare_random<std::uint8_t>({40, 33, 64}, 0, 0, 2, 0, 60);
  compare_random<std::uint8_t>({40, 33, 64}, 0, 0, 15, 230, 25);
}

TEST_CASE("sums beyond 31 bits") {
  // 255 * 255 in every place with one sign: 16 of them and an accumulator of 4 need 32 bits.
  const std::vector<std::uint16_t> a(16 * 4, 0x3FFFU);
  const std::vector<std::uint16_t> b(16 * 20, 0xBFFFU);
  std::vector<float> c(4 * 20);
  for (std::size_t i = 0; i < c.size(); ++i)
    c[i] = from_bits((i % 2 == 0 ? 0xC0000000U : 0xBFFFFFFFU) + 8U * static_cast<std::uint32_t>(i));
  compare(a, b, c, {4, 20, 16}, 0);
}
