#include "gpu/guard.cuh"

namespace dsv4::gpu {
namespace {

constexpr int kElementBits = 40;
constexpr int kTensorBits = 8;
constexpr int kStageBits = 6;

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

}  // namespace dsv4::gpu
