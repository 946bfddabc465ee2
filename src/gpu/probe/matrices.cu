// Tensor-core instructions on a million outputs of each kind of data, against docs/hopper.md 4; and the rule
// (step, F, OF) that explains an instruction best.
#include <algorithm>
#include <cstdio>

#include "arith/hopper/dot_matrix.hpp"
#include "gpu/probe/matrix_instructions.cuh"
#include "gpu/probe/operands.hpp"
#include "gpu/probe/probe_parts.cuh"

namespace dsv4::gpu::probe {
namespace {

namespace hopper = arith::hopper;
using arith::to_bits;

constexpr int kTiles = 2048;
constexpr int kTileOutputs = kTileRows * kTileColumns;
constexpr int kOutputs = kTiles * kTileOutputs;
constexpr int kHostTiles = 32;
constexpr int kMostSteps = 4;
constexpr int kKeptRows = 16;

/// A kind of data and the number of chained instructions.
struct Set {
  Data data;
  int steps;
};
constexpr Set kSets[] = {{Data::random_bits, 1}, {Data::values, 1}, {Data::wide, 1},    {Data::cancel, 1},
                         {Data::huge, 1},        {Data::deep, 1},   {Data::special, 1}, {Data::top, 1},
                         {Data::carry, 1},       {Data::values, 4}, {Data::cancel, 4},  {Data::huge, 4}};
/// What a rule is fitted on: together they fix step, F and OF.
constexpr Set kFitSets[] = {{Data::values, 1}, {Data::wide, 1}, {Data::huge, 1}};

std::string name_of(const Set& set) {
  const std::string name = kDataNames[static_cast<int>(set.data)];
  return set.steps == 1 ? name : name + ", chain of " + std::to_string(set.steps);
}

template <class F>
__global__ void fill_kernel(Data data, int steps, typename F::Code* a, typename F::Code* b, float* c) {
  const std::uint32_t tile = blockIdx.x;
  const int k = steps * F::kStep;
  for (int i = static_cast<int>(threadIdx.x); i < kTileRows * k; i += 128)
    a[static_cast<std::size_t>(tile) * kTileRows * k + i] =
        operand<F>(data, tile, static_cast<std::uint32_t>(i / k), static_cast<std::uint32_t>(i % k), false);
  for (int i = static_cast<int>(threadIdx.x); i < kTileColumns * k; i += 128)
    b[static_cast<std::size_t>(tile) * kTileColumns * k + i] =
        operand<F>(data, tile, static_cast<std::uint32_t>(i / k), static_cast<std::uint32_t>(i % k), true);
  for (int i = static_cast<int>(threadIdx.x); i < kTileOutputs; i += 128)
    c[static_cast<std::size_t>(tile) * kTileOutputs + i] =
        accumulator<F>(data, tile, static_cast<std::uint32_t>(i / kTileColumns),
                       static_cast<std::uint32_t>(i % kTileColumns));
}

DSV4_FN hopper::DotOperand unpack(std::uint16_t code) {
  return hopper::unpack_bf16(code);
}
DSV4_FN hopper::DotOperand unpack(std::uint8_t code) {
  return hopper::unpack_e4m3(code);
}

template <int kStep, class Code>
DSV4_HD float steps(const Code* a, const Code* b, float c, int k, const hopper::DotRule& rule) {
  constexpr int kFraction = sizeof(Code) == 2 ? hopper::kBf16Fraction : hopper::kE4m3Fraction;
  for (int i = 0; i < k; i += kStep) {
    hopper::DotOperand x[kStep];
    hopper::DotOperand y[kStep];
    for (int j = 0; j < kStep; ++j) {
      x[j] = unpack(a[i + j]);
      y[j] = unpack(b[i + j]);
    }
    c = hopper::dot_accumulate(x, y, kFraction, c, rule);
  }
  return c;
}

/// kStep of a chain that is no chain of steps of one rule: mma.sync e4m3 as Hopper composes it.
constexpr int kComposed = 0;

/// k in steps of kStep under `rule`, or one composed product after the other.
template <int kStep, class Code>
DSV4_HD float chain(const Code* a, const Code* b, float c, int k, const hopper::DotRule& rule) {
  if constexpr (kStep == kComposed) {
    for (int i = 0; i < k; i += 32) c = hopper::mma_e4m3(a + i, b + i, c);
    return c;
  } else {
    return steps<kStep>(a, b, c, k, rule);
  }
}

template <int kStep, class Code>
__global__ void compare_kernel(const Code* a, const Code* b, const float* c, const float* d, int k,
                               hopper::DotRule rule, Counter* counter) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= kOutputs) return;
  const std::size_t row = static_cast<std::size_t>(i / kTileColumns);
  const std::size_t column =
      static_cast<std::size_t>(i / kTileOutputs) * kTileColumns + static_cast<std::size_t>(i % kTileColumns);
  const float model = chain<kStep>(a + row * k, b + column * k, c[i], k, rule);
  count(counter, to_bits(model) != to_bits(d[i]), static_cast<unsigned long long>(i));
}

std::string hex(float value) {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", to_bits(value));
  return text;
}

void host_product(const std::uint16_t* a, const std::uint16_t* b, float* c, int k) {
  hopper::matmul_bf16(a, b, c, kTileRows, kTileColumns, k);
}
void host_product(const std::uint8_t* a, const std::uint8_t* b, float* c, int k) {
  hopper::matmul_e4m3(a, b, c, kTileRows, kTileColumns, k);
}

/// One instruction: operands of format F, run by Instruction, expected to be steps of kStep or kComposed.
template <class F, class Instruction, int kStep = F::kStep>
class Matrix {
 public:
  using Code = typename F::Code;
  Matrix()
      : a_(std::size_t{kTiles} * kTileRows * F::kStep * kMostSteps),
        b_(std::size_t{kTiles} * kTileColumns * F::kStep * kMostSteps),
        c_(kOutputs),
        d_(kOutputs),
        counter_(1) {}

  /// Mismatches with the rule of Hopper, on the device and for the first tiles on the host.
  void compare(Report& report, bool record) {
    constexpr hopper::DotRule kRule = sizeof(Code) == 2 ? hopper::kBf16Rule : hopper::kE4m3Rule;
    for (const Set& set : kSets) {
      produce(set);
      const Counter seen = mismatches<kStep>(set, kRule);
      Line line{Instruction::kName, name_of(set), kOutputs, seen.mismatches, ""};
      if (seen.mismatches != 0) line.first = describe(set, static_cast<std::size_t>(seen.first), kRule);
      report.lines.push_back(line);
      host(report, set);
      if (record) keep(report, set);
    }
  }

  /// What explains the instruction best. Ties go to the longest step, then the fewest bits.
  void fit(Report& report) {
    Fit best{Instruction::kName, 0, 0, 0, 0, ~0ULL, 0};
    std::vector<Fit> all;
    for (int shrink = 1; shrink <= 8; shrink *= 2) {
      for (int fraction = 11; fraction <= 30; ++fraction) {
        for (int output = 10; output <= 23; ++output)
          all.push_back({Instruction::kName, F::kStep / shrink, fraction, output, 0, 0, 0});
      }
    }
    if (sizeof(Code) == 1) all.push_back({Instruction::kName, kComposed, 25, 23, 0, 0, 0});
    for (const Set& set : kFitSets) {
      produce(set);
      for (Fit& candidate : all) {
        const hopper::DotRule rule{candidate.fraction_bits, candidate.output_fraction_bits, -133};
        candidate.outputs += kOutputs;
        candidate.mismatches += by_step(set, candidate.step, rule).mismatches;
      }
    }
    for (const Fit& candidate : all) {
      if (candidate.mismatches < best.mismatches) best = candidate;
    }
    best.rivals = static_cast<int>(std::count_if(
                      all.begin(), all.end(),
                      [&](const Fit& candidate) { return candidate.mismatches == best.mismatches; })) -
                  1;
    report.fits.push_back(best);
  }

 private:
  void produce(const Set& set) {
    fill_kernel<F><<<kTiles, 128>>>(set.data, set.steps, a_.get(), b_.get(), c_.get());
    DSV4_LAUNCHED("fill_kernel");
    tile_kernel<Instruction><<<kTiles, 128>>>(a_.get(), b_.get(), c_.get(), d_.get(), set.steps);
    DSV4_LAUNCHED("tile_kernel");
  }
  template <int kLength>
  Counter mismatches(const Set& set, const hopper::DotRule& rule) {
    reset(counter_);
    compare_kernel<kLength><<<kOutputs / 256, 256>>>(a_.get(), b_.get(), c_.get(), d_.get(),
                                                     set.steps * F::kStep, rule, counter_.get());
    DSV4_LAUNCHED("compare_kernel");
    return counter_.read(1).front();
  }
  Counter by_step(const Set& set, int step, const hopper::DotRule& rule) {
    if constexpr (sizeof(Code) == 1) {
      if (step == kComposed) return mismatches<kComposed>(set, rule);
    }
    if (step == F::kStep) return mismatches<F::kStep>(set, rule);
    if (step == F::kStep / 2) return mismatches<F::kStep / 2>(set, rule);
    if (step == F::kStep / 4) return mismatches<F::kStep / 4>(set, rule);
    return mismatches<F::kStep / 8>(set, rule);
  }

  struct Host {
    std::vector<Code> a;
    std::vector<Code> b;
    std::vector<float> c;
    std::vector<float> d;
  };
  Host read(const Set& set, int tiles) const {
    const auto k = static_cast<std::size_t>(set.steps * F::kStep);
    const auto n = static_cast<std::size_t>(tiles);
    return {a_.read(n * kTileRows * k), b_.read(n * kTileColumns * k), c_.read(n * kTileOutputs),
            d_.read(n * kTileOutputs)};
  }

  std::string describe(const Set& set, std::size_t at, const hopper::DotRule& rule) const {
    const auto k = static_cast<std::size_t>(set.steps * F::kStep);
    const std::size_t tile = at / kTileOutputs;
    const std::size_t row = at % kTileOutputs / kTileColumns;
    const std::size_t column = at % kTileColumns;
    const Host all = read(set, static_cast<int>(tile) + 1);
    const Code* const a = &all.a[(tile * kTileRows + row) * k];
    const Code* const b = &all.b[(tile * kTileColumns + column) * k];
    const float model = chain<kStep>(a, b, all.c[at], static_cast<int>(k), rule);
    std::string text = "tile " + std::to_string(tile) + " row " + std::to_string(row) + " column " +
                       std::to_string(column) + ", c " + hex(all.c[at]) + ": " + hex(all.d[at]) + ", model " +
                       hex(model) + "; a b";
    for (std::size_t i = 0; i < k && i < 32; ++i) {
      char codes[32];
      std::snprintf(codes, sizeof codes, " %x*%x", static_cast<unsigned>(a[i]), static_cast<unsigned>(b[i]));
      text += codes;
    }
    return text;
  }

  /// The vectorised model of the host on the first tiles.
  void host(Report& report, const Set& set) const {
    const Host all = read(set, kHostTiles);
    const int k = set.steps * F::kStep;
    std::vector<float> sum = all.c;
    Line line{Instruction::kName, "host's model, " + name_of(set), sum.size(), 0, ""};
    for (int tile = 0; tile < kHostTiles; ++tile) {
      const Code* const a = &all.a[static_cast<std::size_t>(tile) * kTileRows * k];
      const Code* const b = &all.b[static_cast<std::size_t>(tile) * kTileColumns * k];
      float* const c = &sum[static_cast<std::size_t>(tile) * kTileOutputs];
      if constexpr (kStep != kComposed) {
        host_product(a, b, c, k);
      } else {
        for (int i = 0; i < kTileOutputs; ++i)
          c[i] = chain<kStep>(a + i / kTileColumns * k, b + i % kTileColumns * k, c[i], k, {});
      }
    }
    for (std::size_t i = 0; i < sum.size(); ++i) {
      if (to_bits(sum[i]) == to_bits(all.d[i])) continue;
      if (line.mismatches++ == 0)
        line.first = "output " + std::to_string(i) + ": " + hex(all.d[i]) + ", model " + hex(sum[i]);
    }
    report.lines.push_back(line);
  }

  /// The first rows of the first tile.
  void keep(Report& report, const Set& set) const {
    const Host all = read(set, 1);
    const int k = set.steps * F::kStep;
    RecordedTile tile{Instruction::kName, name_of(set), kKeptRows, kTileColumns, k, {}, {}, {}, {}};
    tile.a.assign(all.a.begin(), all.a.begin() + kKeptRows * k);
    tile.b.assign(all.b.begin(), all.b.end());
    for (std::size_t i = 0; i < std::size_t{kKeptRows} * kTileColumns; ++i) {
      tile.c.push_back(to_bits(all.c[i]));
      tile.d.push_back(to_bits(all.d[i]));
    }
    report.tiles.push_back(std::move(tile));
  }

  Buffer<Code> a_;
  Buffer<Code> b_;
  Buffer<float> c_;
  Buffer<float> d_;
  Buffer<Counter> counter_;
};

/// Whether the e4m3 form of mma.sync was compiled into the code that this device runs.
bool has_fp8_mma() {
  cudaFuncAttributes attributes{};
  DSV4_CUDA(cudaFuncGetAttributes(&attributes, tile_kernel<Mma<false>, std::uint8_t>));
  return attributes.binaryVersion >= 89;
}

}  // namespace

namespace {

template <class M>
void measure(Report& report, bool record) {
  M matrix;
  if (report.has_wgmma) matrix.compare(report, record);
  matrix.fit(report);
}

}  // namespace

void measure_matrices(Report& report, bool record) {
  if (report.has_wgmma) {
    measure<Matrix<Bf16Operand, Wgmma<true>>>(report, record);
    measure<Matrix<E4m3Operand, Wgmma<false>>>(report, record);
  }
  measure<Matrix<Bf16Operand, Mma<true>>>(report, record);
  if (has_fp8_mma()) measure<Matrix<E4m3Operand, Mma<false>, kComposed>>(report, record);
}

}  // namespace dsv4::gpu::probe
