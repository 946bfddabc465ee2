#include "gpu/guard.cuh"

#include "gpu/check.cuh"

namespace dsv4::gpu {
namespace {

constexpr int kElementBits = 40;
constexpr int kTensorBits = 8;
constexpr int kStageBits = 6;

__global__ void check_indices_kernel(const std::int32_t* values, std::int32_t* out, std::int64_t count,
                                     std::int64_t limit, unsigned long long site, unsigned long long* report) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const std::int32_t value = values[i];
  const bool good = value >= -1 && value < limit;
  out[i] = good ? value : -1;
  if (!good) atomicMin(report, site | static_cast<unsigned long long>(i));
}

}  // namespace

std::uint64_t report_of(const IndexSite& site, std::uint64_t element) {
  return (((static_cast<std::uint64_t>(site.layer) << kStageBits | static_cast<std::uint64_t>(site.stage)) << kTensorBits |
           static_cast<std::uint64_t>(site.tensor))
          << kElementBits) |
         element;
}

IndexSite site_of(std::uint64_t report) {
  report >>= kElementBits;
  const auto tensor = static_cast<TensorId>(report & ((1U << kTensorBits) - 1));
  report >>= kTensorBits;
  return {static_cast<int>(report >> kStageBits), static_cast<Stage>(report & ((1U << kStageBits) - 1)), tensor};
}

std::uint64_t element_of(std::uint64_t report) { return report & ((std::uint64_t{1} << kElementBits) - 1); }

void check_indices(const std::int32_t* values, std::int32_t* out, std::int64_t count, std::int64_t limit,
                   const IndexSite& site, std::uint64_t* report, cudaStream_t stream) {
  if (count == 0) return;
  check_indices_kernel<<<static_cast<unsigned>((count + 255) / 256), 256, 0, stream>>>(
      values, out, count, limit, report_of(site, 0), reinterpret_cast<unsigned long long*>(report));
  DSV4_LAUNCHED("check_indices_kernel");
}

}  // namespace dsv4::gpu
