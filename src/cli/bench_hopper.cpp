#include "cli/bench_hopper.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "arith/hopper/dot.hpp"
#include "arith/hopper/dot_matrix.hpp"
#include "arith/philox.hpp"
#include "cli/exit_code.hpp"
#include "cli/json_lines.hpp"

namespace dsv4::cli {
namespace {

namespace hopper = arith::hopper;

constexpr std::int64_t kRows = 64;
constexpr std::int64_t kColumns = 64;
constexpr std::int64_t kDepth = 512;
constexpr double kProducts = static_cast<double>(kRows) * kColumns * kDepth;
constexpr double kSeconds = 0.2;  ///< time for each line
constexpr int kSamples = 5;       ///< the best of them counts: the machine may be busy

/// Finite codes about 1, both signs.
std::vector<std::uint16_t> bf16_codes(std::uint32_t stream) {
  std::vector<std::uint16_t> codes(kRows * kDepth);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::uint32_t r = arith::philox4x32_10({static_cast<std::uint32_t>(i), stream, 0, 0}, {1, 2})[0];
    codes[i] = static_cast<std::uint16_t>((r & 0x807FU) | (120U + (r >> 20) % 12U) << 7);
  }
  return codes;
}
std::vector<std::uint8_t> e4m3_codes(std::uint32_t stream) {
  std::vector<std::uint8_t> codes(kRows * kDepth);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::uint32_t r = arith::philox4x32_10({static_cast<std::uint32_t>(i), stream, 0, 0}, {1, 2})[0];
    codes[i] = static_cast<std::uint8_t>((r & 0x87U) | (3U + (r >> 20) % 10U) << 3);
  }
  return codes;
}

/// Seconds of one call: the best mean of several samples.
template <class Call>
double seconds_of(const Call& call) {
  double best = 1e9;
  for (int sample = 0; sample < kSamples; ++sample) {
    int calls = 0;
    const auto start = std::chrono::steady_clock::now();
    std::chrono::duration<double> time{};
    do {
      call();
      ++calls;
      time = std::chrono::steady_clock::now() - start;
    } while (time.count() < kSeconds / kSamples);
    best = std::min(best, time.count() / calls);
  }
  return best;
}

struct Variant {
  std::string isa;
  const hopper::DotKernels* kernels;
};
std::vector<Variant> variants() {
  std::vector<Variant> all;
  const auto add = [&](const char* isa, const hopper::DotKernels* kernels) {
    if (kernels != nullptr) all.push_back({isa, kernels});
  };
  add("generic", hopper::dot_kernels_generic());
  add("v3", hopper::dot_kernels_v3());
  add("v4", hopper::dot_kernels_v4());
  return all;
}

void print_rate(const char* format, const std::string& isa, double seconds, double scalar, bool json) {
  const double rate = kProducts / seconds * 1e-9;
  if (json) {
    print_json_line({{"type", "bench_hopper"},
                     {"format", format},
                     {"isa", isa},
                     {"gproducts_s", rate},
                     {"times_scalar", scalar / seconds}});
  } else {
    fmt::print("{:<6} {:<10} {:>10.3f} {:>9.1f}\n", format, isa, rate, scalar / seconds);
  }
}

/// `multiply(kernels, c)` and `step_all(c)` add to c; false when their bits differ.
template <class Multiply, class Scalar>
bool measure(const char* format, const Multiply& multiply, const Scalar& step_all, bool json) {
  std::vector<float> expected(kRows * kColumns);
  step_all(expected.data());
  std::vector<float> sums(expected.size());
  const double scalar = seconds_of([&] { step_all(sums.data()); });
  print_rate(format, "scalar", scalar, scalar, json);
  bool equal = true;
  for (const Variant& variant : variants()) {
    std::ranges::fill(sums, 0.0F);
    multiply(variant.kernels, sums.data());
    equal &= std::memcmp(sums.data(), expected.data(), sums.size() * sizeof(float)) == 0;
    print_rate(format, variant.isa, seconds_of([&] { multiply(variant.kernels, sums.data()); }), scalar,
               json);
  }
  return equal;
}

template <class Step>
void scalar_chains(float* c, std::int64_t step_length, const Step& step) {
  for (std::int64_t i = 0; i < kRows; ++i) {
    for (std::int64_t j = 0; j < kColumns; ++j) {
      float& sum = c[i * kColumns + j];
      for (std::int64_t k = 0; k < kDepth; k += step_length) sum = step(i * kDepth + k, j * kDepth + k, sum);
    }
  }
}

}  // namespace

int bench_hopper(bool json) {
  if (!json) {
    fmt::print("chains of tensor-core steps, {} x {} x {}, one core\n", kRows, kColumns, kDepth);
    fmt::print("{:<6} {:<10} {:>10} {:>9}\n", "format", "isa", "G prod/s", "x scalar");
  }
  const std::vector<std::uint16_t> a16 = bf16_codes(1);
  const std::vector<std::uint16_t> b16 = bf16_codes(2);
  const bool bf16 = measure(
      "bf16",
      [&](const hopper::DotKernels* kernels, float* c) {
        hopper::matmul_bf16(a16.data(), b16.data(), c, kRows, kColumns, kDepth, kDepth, kDepth, kColumns,
                            kernels);
      },
      [&](float* c) {
        scalar_chains(c, 16, [&](std::int64_t i, std::int64_t j, float sum) {
          return hopper::dot_accumulate_bf16(&a16[static_cast<std::size_t>(i)],
                                             &b16[static_cast<std::size_t>(j)], sum);
        });
      },
      json);
  const std::vector<std::uint8_t> a8 = e4m3_codes(3);
  const std::vector<std::uint8_t> b8 = e4m3_codes(4);
  const bool e4m3 = measure(
      "e4m3",
      [&](const hopper::DotKernels* kernels, float* c) {
        hopper::matmul_e4m3(a8.data(), b8.data(), c, kRows, kColumns, kDepth, kDepth, kDepth, kColumns,
                            kernels);
      },
      [&](float* c) {
        scalar_chains(c, 32, [&](std::int64_t i, std::int64_t j, float sum) {
          return hopper::dot_accumulate_e4m3(&a8[static_cast<std::size_t>(i)],
                                             &b8[static_cast<std::size_t>(j)], sum);
        });
      },
      json);
  if (bf16 && e4m3) return kDone;
  fmt::print(stderr, "dsv4-oracle: a vectorised product differs from the scalar one\n");
  return kInternal;
}

}  // namespace dsv4::cli
