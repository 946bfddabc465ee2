// Prints a digest of every function of src/arith over a sample of all inputs. Needs nothing but a compiler:
// the same line must come from every compiler, instruction set and architecture (portable_digest.sh).
#include <cstdio>

#include "arith/bf16.hpp"
#include "arith/e2m1.hpp"
#include "arith/e4m3.hpp"
#include "arith/exp.hpp"
#include "arith/fma.hpp"
#include "arith/log.hpp"
#include "arith/philox.hpp"
#include "arith/sin_cos.hpp"
#include "arith/ue8m0.hpp"

namespace {

std::uint64_t digest = 0xCBF29CE484222325U;

void add(std::uint32_t bits) {
  digest = (digest ^ bits) * 0x100000001B3U;
}
void add(float value) {
  const std::uint32_t bits = dsv4::arith::to_bits(value);
  add(dsv4::arith::is_nan_bits(bits) ? dsv4::arith::kNanBits : bits);
}

}  // namespace

int main() {
  using namespace dsv4::arith;
  std::uint32_t count = 0;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 16411) {
    const auto input = static_cast<std::uint32_t>(bits);
    const float x = from_bits(input);
    const auto w = philox4x32_10({input, 0, 0, 0}, {1, 2});
    const float a = from_bits(w[0]);
    const float b = from_bits(w[1] ^ ((w[0] << 1 ^ w[1]) & 0x40000000U));
    for (const float value :
         {exp(x), log(x), sin(x), cos(x), fma(a, b, x), fma_software(a, b, x), 1.0F / x}) {
      add(value);
    }
    for (const std::uint32_t code :
         {std::uint32_t{f32_to_bf16(x)}, std::uint32_t{f32_to_e4m3(x)}, std::uint32_t{f32_to_e2m1(x)},
          std::uint32_t{ue8m0_scale_for(x, 6.0F)}, w[3]}) {
      add(code);
    }
    ++count;
  }
  std::printf("%u inputs %016llx\n", count, static_cast<unsigned long long>(digest));
}
