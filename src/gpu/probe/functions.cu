// The special-function unit on all 2^32 inputs, and divisions on 2^30 pairs of each kind, against
// docs/hopper.md sections 1 to 3. The device's model meets every result; the host's model meets a sample, by
// digest.
#include <cstdio>

#include "arith/hopper/divide.hpp"
#include "arith/hopper/mufu.hpp"
#include "gpu/probe/operands.hpp"
#include "gpu/probe/probe_parts.cuh"

namespace dsv4::gpu::probe {
namespace {

namespace hopper = arith::hopper;
using arith::from_bits;
using arith::to_bits;

#define DSV4_UNARY(Type, name, instruction, function)                   \
  struct Type {                                                         \
    static constexpr const char* kName = name;                          \
    __device__ static float hardware(float x) {                         \
      float y;                                                          \
      asm(instruction " %0, %1;" : "=f"(y) : "f"(x));                   \
      return y;                                                         \
    }                                                                   \
    DSV4_HD static float model(float x) { return hopper::function(x); } \
  }
DSV4_UNARY(Ex2Ftz, "ex2.approx.ftz", "ex2.approx.ftz.f32", ex2_ftz);
DSV4_UNARY(Ex2, "ex2.approx", "ex2.approx.f32", ex2);
DSV4_UNARY(RcpFtz, "rcp.approx.ftz", "rcp.approx.ftz.f32", rcp_ftz);
DSV4_UNARY(Rcp, "rcp.approx", "rcp.approx.f32", rcp);
DSV4_UNARY(RsqrtFtz, "rsqrt.approx.ftz", "rsqrt.approx.ftz.f32", rsqrt_ftz);
DSV4_UNARY(Rsqrt, "rsqrt.approx", "rsqrt.approx.f32", rsqrt);
DSV4_UNARY(Lg2Ftz, "lg2.approx.ftz", "lg2.approx.ftz.f32", lg2_ftz);
DSV4_UNARY(Lg2, "lg2.approx", "lg2.approx.f32", lg2);

#define DSV4_BINARY(Type, name, instruction, function)                              \
  struct Type {                                                                     \
    static constexpr const char* kName = name;                                      \
    static constexpr int kArguments = 2;                                            \
    __device__ static float hardware(float a, float b) {                            \
      float y;                                                                      \
      asm(instruction " %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));                   \
      return y;                                                                     \
    }                                                                               \
    DSV4_HD static float model(float a, float b) { return hopper::function(a, b); } \
  }
DSV4_BINARY(DivFull, "div.full", "div.full.f32", div_full);
DSV4_BINARY(DivFullFtz, "div.full.ftz", "div.full.ftz.f32", div_full_ftz);
DSV4_BINARY(DivApprox, "div.approx", "div.approx.f32", div_approx);
DSV4_BINARY(DivApproxFtz, "div.approx.ftz", "div.approx.ftz.f32", div_approx_ftz);

/// fma.ftz of a, 1 / b and a third number that a's bits choose among those around which flushing is decided.
DSV4_FN float third(float a) {
  constexpr std::uint32_t kBits[8] = {0x00800000U, 0x80800000U, 0x00800000U, 0x80800000U,
                                      0x00000000U, 0x00800001U, 0x01000000U, 0x00000001U};
  return from_bits(kBits[to_bits(a) * 2654435761U >> 29]);
}
struct FmaFtz {
  static constexpr const char* kName = "fma.ftz";
  static constexpr int kArguments = 3;
  __device__ static float hardware(float a, float b) {
    float y;
    asm("fma.rn.ftz.f32 %0, %1, %2, %3;" : "=f"(y) : "f"(a), "f"(hopper::rcp_ftz(b)), "f"(third(a)));
    return y;
  }
  DSV4_HD static float model(float a, float b) { return hopper::fma_ftz(a, hopper::rcp_ftz(b), third(a)); }
};

constexpr unsigned long long kAll = 1ULL << 32;
constexpr unsigned long long kPairs = 1ULL << 30;
constexpr unsigned long long kSample = 1021;  // a prime: every residue of the bit fields is met
constexpr int kBlocks = 2048;
constexpr int kThreads = 256;

DSV4_FN unsigned long long mix(unsigned long long index, std::uint32_t bits) {
  unsigned long long z = index * 0x9E3779B97F4A7C15ULL + bits;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  return z ^ (z >> 31);
}

template <class F>
__global__ void unary_kernel(Counter* counter) {
  unsigned long long digest = 0;
  const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < kAll; i += stride) {
    const float x = from_bits(static_cast<std::uint32_t>(i));
    const std::uint32_t bits = to_bits(F::hardware(x));
    count(counter, bits != to_bits(F::model(x)), i);
    if (i % kSample == 0) digest += mix(i, bits);
  }
  if (digest != 0) atomicAdd(&counter->digest, digest);
}
template <class F>
__global__ void unary_of(const std::uint32_t* in, std::uint32_t* out, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
    out[i] = to_bits(F::hardware(from_bits(in[i])));
}

std::string hex(std::uint32_t bits) {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", bits);
  return text;
}

/// Inputs worth keeping: specials, both ends of every binade that matters, and random bits.
std::vector<std::uint32_t> chosen_inputs(int count) {
  std::vector<std::uint32_t> inputs{
      0x00000000U, 0x00000001U, 0x007FFFFFU, 0x00800000U, 0x3F000000U, 0x3F7FFFFFU, 0x3F800000U, 0x3F800001U,
      0x40000000U, 0x42FC0000U, 0x42FE0000U, 0x42FFFFFFU, 0x43000000U, 0x43150000U, 0x43160000U, 0x7E800000U,
      0x7E800001U, 0x7F000000U, 0x7F7FFFFFU, 0x7F800000U, 0x7F800001U, 0x7FC00000U, 0x7FFFFFFFU};
  for (std::size_t i = 0, n = inputs.size(); i < n; ++i) inputs.push_back(inputs[i] | 0x80000000U);
  for (std::uint32_t i = 0; inputs.size() < static_cast<std::size_t>(count); ++i) {
    const Words r = draw(i, 0, 1000);
    // Half of any size, half between 2^-24 and 2^8, where results move.
    const std::uint32_t field = 103U + r.w[1] % 32U;
    inputs.push_back(i % 2U == 0U ? r.w[0] : (r.w[0] & 0x807FFFFFU) | field << 23);
  }
  return inputs;
}

constexpr int kKept = 1024;

template <class F>
void unary(Report& report, bool record) {
  Buffer<Counter> counter(1);
  reset(counter);
  unary_kernel<F><<<kBlocks, kThreads>>>(counter.get());
  DSV4_LAUNCHED("unary_kernel");
  const Counter seen = counter.read(1).front();
  Buffer<std::uint32_t> in(kKept);
  Buffer<std::uint32_t> out(kKept);
  const auto hardware = [&](const std::vector<std::uint32_t>& inputs) {
    in.write(inputs.data(), inputs.size());
    unary_of<F><<<1, kThreads>>>(in.get(), out.get(), static_cast<int>(inputs.size()));
    DSV4_LAUNCHED("unary_of");
    return out.read(inputs.size());
  };
  Line line{F::kName, "all", kAll, seen.mismatches, ""};
  if (seen.mismatches != 0) {
    const auto x = static_cast<std::uint32_t>(seen.first);
    line.first =
        hex(x) + ": " + hex(hardware({x}).front()) + ", model " + hex(to_bits(F::model(from_bits(x))));
  }
  report.lines.push_back(line);

  unsigned long long digest = 0;
  for (unsigned long long i = 0; i < kAll; i += kSample)
    digest += mix(i, to_bits(F::model(from_bits(static_cast<std::uint32_t>(i)))));
  const bool equal = digest == seen.digest;
  report.lines.push_back({F::kName, "host's model, every 1021st", (kAll + kSample - 1) / kSample,
                          equal ? 0ULL : 1ULL, equal ? "" : "digests differ"});

  if (!record) return;
  RecordedFunction kept{F::kName, 1, {}};
  const std::vector<std::uint32_t> inputs = chosen_inputs(kKept);
  const std::vector<std::uint32_t> outputs = hardware(inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    kept.words.push_back(inputs[i]);
    kept.words.push_back(outputs[i]);
  }
  report.functions.push_back(std::move(kept));
}

/// Pairs: any bits; exponents within 65; divisor or quotient at the edges of the scaled ranges; the quotient
/// within some units of 2^-126, or 2^-149 to 2^-152 of it.
enum class Pairs : int { bits, values, edges, threshold };
constexpr const char* kPairNames[4] = {"random bits", "exponents within 65", "edges of the range",
                                       "quotients about 2^-126"};

DSV4_FN void pair(Pairs kind, unsigned long long i, float& a, float& b) {
  const Words r = draw(static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32),
                       2000U + static_cast<std::uint32_t>(kind));
  std::uint32_t field_a = r.w[0] >> 23 & 0xFFU;
  std::uint32_t field_b = r.w[1] >> 23 & 0xFFU;
  if (kind == Pairs::values) {
    field_a = 62U + r.w[2] % 131U;
    field_b = 62U + r.w[3] % 131U;
  } else if (kind == Pairs::edges) {
    // Divisors below 2^-124 and above 2^124, or any with a quotient near 2^-126 or 2^127.
    const std::uint32_t which = r.w[2] % 4U;
    if (which == 0U)
      field_b = r.w[3] % 4U;
    else if (which == 1U)
      field_b = 251U + r.w[3] % 5U;
    else {
      const int quotient =
          which == 2U ? -128 + static_cast<int>(r.w[3] % 4U) : 126 + static_cast<int>(r.w[3] % 3U);
      const int field = static_cast<int>(field_b) + quotient;
      field_a = static_cast<std::uint32_t>(field < 0 ? 0 : (field > 255 ? 255 : field));
    }
  }
  if (kind == Pairs::threshold) {
    field_b = 180U + r.w[3] % 72U;
    const std::uint32_t shift = r.w[2] % 2U == 0U ? 0U : 23U + r.w[2] / 2U % 4U;
    const std::uint32_t bits = (field_b << 23 | (r.w[1] & 0x7FFFFFU)) + r.w[3] / 72U % 5U - 2U;
    a = from_bits((r.w[0] & 0x80000000U) | (bits - ((126U + shift) << 23)));
    b = from_bits((r.w[1] & 0x807FFFFFU) | field_b << 23);
    return;
  }
  a = from_bits((r.w[0] & 0x807FFFFFU) | field_a << 23);
  b = from_bits((r.w[1] & 0x807FFFFFU) | field_b << 23);
}

template <class F>
__global__ void binary_kernel(Pairs kind, Counter* counter) {
  const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < kPairs; i += stride) {
    float a, b;
    pair(kind, i, a, b);
    count(counter, to_bits(F::hardware(a, b)) != to_bits(F::model(a, b)), i);
  }
}
template <class F>
__global__ void binary_of(Pairs kind, unsigned long long first, std::uint32_t* out, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    float a, b;
    pair(kind, first + static_cast<unsigned long long>(i), a, b);
    out[i] = to_bits(F::hardware(a, b));
  }
}

template <class F>
void binary(Report& report, bool record) {
  Buffer<Counter> counter(1);
  Buffer<std::uint32_t> out(kKept);
  RecordedFunction kept{F::kName, F::kArguments, {}};
  for (const Pairs kind : {Pairs::bits, Pairs::values, Pairs::edges, Pairs::threshold}) {
    reset(counter);
    binary_kernel<F><<<kBlocks, kThreads>>>(kind, counter.get());
    DSV4_LAUNCHED("binary_kernel");
    const Counter seen = counter.read(1).front();
    Line line{F::kName, kPairNames[static_cast<int>(kind)], kPairs, seen.mismatches, ""};
    const auto hardware = [&](unsigned long long first, int count) {
      binary_of<F><<<1, kThreads>>>(kind, first, out.get(), count);
      DSV4_LAUNCHED("binary_of");
      return out.read(static_cast<std::size_t>(count));
    };
    float a, b;
    if (seen.mismatches != 0) {
      pair(kind, seen.first, a, b);
      line.first = hex(to_bits(a)) + " / " + hex(to_bits(b)) + ": " + hex(hardware(seen.first, 1).front()) +
                   ", model " + hex(to_bits(F::model(a, b)));
    }
    report.lines.push_back(line);

    // The host's model meets the first pairs, which are also those that are kept.
    const std::vector<std::uint32_t> outputs = hardware(0, kKept);
    Line host{F::kName, std::string("host's model, ") + kPairNames[static_cast<int>(kind)], kKept, 0, ""};
    for (int i = 0; i < kKept; ++i) {
      pair(kind, static_cast<unsigned long long>(i), a, b);
      const std::uint32_t result = outputs[static_cast<std::size_t>(i)];
      const std::uint32_t model = to_bits(F::model(a, b));
      if (result != model && host.mismatches++ == 0)
        host.first = hex(to_bits(a)) + " / " + hex(to_bits(b)) + ": " + hex(result) + ", model " + hex(model);
      if (i >= kKept / 4) continue;
      if constexpr (F::kArguments == 3)
        kept.words.insert(kept.words.end(),
                          {to_bits(a), to_bits(hopper::rcp_ftz(b)), to_bits(third(a)), result});
      else
        kept.words.insert(kept.words.end(), {to_bits(a), to_bits(b), result});
    }
    report.lines.push_back(host);
  }
  if (record) report.functions.push_back(std::move(kept));
}

}  // namespace

void measure_functions(Report& report, bool record) {
  unary<Ex2Ftz>(report, record);
  unary<Ex2>(report, record);
  unary<RcpFtz>(report, record);
  unary<Rcp>(report, record);
  unary<RsqrtFtz>(report, record);
  unary<Rsqrt>(report, record);
  unary<Lg2Ftz>(report, record);
  unary<Lg2>(report, record);
}

void measure_divisions(Report& report, bool record) {
  binary<DivFull>(report, record);
  binary<DivFullFtz>(report, record);
  binary<DivApprox>(report, record);
  binary<DivApproxFtz>(report, record);
  binary<FmaFtz>(report, record);
}

}  // namespace dsv4::gpu::probe
