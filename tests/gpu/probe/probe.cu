// Does a GPU compute the canonical arithmetic (docs/numerics.md) bit for bit, and how fast?
//
// Every line computes the same thing on host and device, each with a loop of its own where the section leaves
// a choice, and compares digests: the sum over all items of a 64-bit mix of item number and result bits, so
// that order does not matter. Exit 1 if any pair differs. Includes nothing but src/arith.
#include "harness.cuh"
#include "sums.cuh"

namespace probe {
namespace {

// ---- one float in, bits out, over all 2^32 inputs

struct Exp {
  DSV4_HD static std::uint32_t of(float x) { return canonical(arith::exp(x)); }
};
struct Log {
  DSV4_HD static std::uint32_t of(float x) { return canonical(arith::log(x)); }
};
struct Sin {
  DSV4_HD static std::uint32_t of(float x) {
#if defined(__CUDA_ARCH__)
    return canonical(arith::sin_cos(x).sin);
#else
    return canonical(arith::sin(x));
#endif
  }
};
struct Cos {
  DSV4_HD static std::uint32_t of(float x) {
#if defined(__CUDA_ARCH__)
    return canonical(arith::sin_cos(x).cos);
#else
    return canonical(arith::cos(x));
#endif
  }
};
struct ReciprocalRoot {
  DSV4_HD static std::uint32_t of(float x) {
#if defined(__CUDA_ARCH__)
    return canonical(1.0F / __fsqrt_rn(x));
#else
    return canonical(1.0F / __builtin_sqrtf(x));
#endif
  }
};
struct NarrowFormats {
  DSV4_HD static std::uint32_t of(float x) {
    return arith::f32_to_bf16(x) | static_cast<std::uint32_t>(arith::f32_to_e4m3(x)) << 16 |
           static_cast<std::uint32_t>(arith::f32_to_e2m1(x)) << 24;
  }
};

struct Bf16Pair {
  DSV4_HD static std::uint32_t of(float x) {
    float a = x;
    float b = arith::from_bits(~arith::to_bits(x));  // another of all floats
    arith::round_to_bf16(a, b);
    return canonical(a) >> 16 | (canonical(b) & 0xFFFF0000U);
  }
};

template <class F>
__global__ void unary_kernel(u64* digest) {
  u64 part = 0;
  const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;
  for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < 1ULL << 32; i += stride) {
    part += mix(i, F::of(arith::from_bits(static_cast<std::uint32_t>(i))));
  }
  add_to(digest, part);
}

template <class F>
void unary(const char* name) {
  const Timer timer;
  u64 host = 0;
#pragma omp parallel for schedule(dynamic, 64) reduction(+ : host)
  for (std::int64_t block = 0; block < 1 << 22; ++block) {
    std::uint32_t result[1024];
    const auto first = static_cast<std::uint32_t>(block * 1024);
    for (int i = 0; i < 1024; ++i) result[i] = F::of(arith::from_bits(first + static_cast<std::uint32_t>(i)));
    for (int i = 0; i < 1024; ++i) host += mix(first + static_cast<u64>(i), result[i]);
  }
  const double host_s = timer.seconds();
  begin();
  const double device_s = timed([] { unary_kernel<F><<<132 * 16, 256>>>(device_digest); });
  report(name, 0x1p32, "inputs", host, host_s, fetch(), device_s);
}

// ---- fma: the device's instruction against the host's software form, on Philox triples

DSV4_HD inline void triple(std::uint32_t i, float& a, float& b, float& c) {
  std::uint32_t w0 = i, w1 = 0, w2 = 0, w3 = 0;
  arith::philox_rounds(w0, w1, w2, w3, 1U, 2U);
  a = arith::from_bits(w0);
  b = arith::from_bits(w1);
  const std::uint32_t near = (w0 >> 23 & 255U) + (w1 >> 23 & 255U) + (w3 & 63U);
  const std::uint32_t field = near > 159U && near < 413U ? near - 159U : 0U;
  c = arith::from_bits((w2 & 0x807FFFFFU) | field << 23);
}
constexpr std::uint32_t kTriples = 1U << 28;
__global__ void fma_kernel(u64* digest) {
  u64 part = 0;
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < kTriples; i += gridDim.x * blockDim.x) {
    float a, b, c;
    triple(i, a, b, c);
    part += mix(i, canonical(arith::fma(a, b, c)));
  }
  add_to(digest, part);
}
void fma_triples() {
  const Timer timer;
  u64 host = 0;
#pragma omp parallel for reduction(+ : host)
  for (std::int64_t i = 0; i < kTriples; ++i) {
    float a, b, c;
    triple(static_cast<std::uint32_t>(i), a, b, c);
    host += mix(static_cast<u64>(i), canonical(arith::fma_software(a, b, c)));
  }
  const double host_s = timer.seconds();
  begin();
  const double device_s = timed([] { fma_kernel<<<132 * 16, 256>>>(device_digest); });
  report("fma, Philox triples", kTriples, "triples", host, host_s, fetch(), device_s);
}

}  // namespace
}  // namespace probe

int main() {
  using namespace probe;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no CUDA device: skipped\n");
    return 77;
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "device");
  std::printf("%s, compute %d.%d, %d SMs\n", properties.name, properties.major, properties.minor,
              properties.multiProcessorCount);
  check(cudaMalloc(&device_digest, sizeof(u64)), "allocate");
  product("block product fp8 K 4096", 1024, 1024, 4096, true);
  product("block product bf16 K 7168", 1024, 512, 7168, false);
  product("block product bf16 K 1000", 256, 256, 1000, false);
  dots("dot32 literal, 128", "dot32 carry stack, 128", 128);
  dots("dot32 literal, 512", "dot32 carry stack, 512", 512);
  dots("dot32 literal, 77", "dot32 carry stack, 77", 77);
  hadamard();
  selection();
  fma_triples();
  unary<NarrowFormats>("bf16, e4m3, e2m1");
  unary<Bf16Pair>("bf16, two at once");
  unary<ReciprocalRoot>("1 / sqrt");
  unary<Exp>("exp");
  unary<Log>("log");
  unary<Sin>("sin");
  unary<Cos>("cos");
  std::printf(all_equal ? "all equal\n" : "some differ\n");
  return all_equal ? 0 : 1;
}
