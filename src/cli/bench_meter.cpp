#include "cli/bench_meter.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <chrono>

#include "cli/engines.hpp"
#include "model/error.hpp"
#include "reference/simd/isa.hpp"
#include "reference/simd/peak.hpp"
#ifdef DSV4_HAS_CUDA
#include "gpu/bench.hpp"
#include "gpu/engine.hpp"
#endif

namespace dsv4::cli {
namespace {

constexpr double kPeakSeconds = 0.05;

class ReferenceMeter : public BenchMeter {
 public:
  double peak(bool arithmetic) const override {
    const int threads = omp_get_max_threads();
    return arithmetic ? reference::fma_peak(reference::selected_isa(), threads, kPeakSeconds)
                      : reference::copy_peak(threads);
  }
  StageSeconds run(const StageFunction& stage, const StageCall& call) const override {
    const auto start = std::chrono::steady_clock::now();
    stage(call);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    return {time.count(), {}};
  }
  std::string machine() const override {
    return fmt::format("{} threads, {}", omp_get_max_threads(), reference::name(reference::selected_isa()));
  }
};

#ifdef DSV4_HAS_CUDA
class CudaMeter : public BenchMeter {
 public:
  double peak(bool arithmetic) const override { return arithmetic ? peaks_.fma() : peaks_.copy(); }
  StageSeconds run(const StageFunction& stage, const StageCall& call) const override {
    const gpu::DeviceTime time = gpu::device_time(stage, call);
    StageSeconds result{time.seconds, {}};
    for (const gpu::KernelTime& kernel : time.kernels)
      result.kernels.push_back({kernel.name, kernel.seconds});
    return result;
  }
  std::string machine() const override { return gpu::cuda_devices().at(0); }

 private:
  gpu::DevicePeaks peaks_;
};
#endif

}  // namespace

std::unique_ptr<BenchMeter> bench_meter(const std::string& engine) {
  check_engine_name(engine);
  if (engine == "reference") return std::make_unique<ReferenceMeter>();
#ifdef DSV4_HAS_CUDA
  if (engine == "cuda") return std::make_unique<CudaMeter>();
#endif
  throw UsageError(fmt::format("engine '{}' is not made for speed; bench times reference and cuda", engine));
}

}  // namespace dsv4::cli
