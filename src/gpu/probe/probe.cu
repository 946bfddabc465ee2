#include <algorithm>

#include "gpu/probe/probe.hpp"
#include "gpu/probe/probe_parts.cuh"
#include "model/error.hpp"

namespace dsv4::gpu::probe {

bool Report::conforms() const {
  return has_wgmma &&
         std::all_of(lines.begin(), lines.end(), [](const Line& line) { return line.mismatches == 0; });
}

Report run(int device, bool record) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
    throw SubjectError("probe: no CUDA device");
  if (device < 0 || device >= devices) {
    throw SubjectError("probe: no CUDA device " + std::to_string(device) + ", there are " +
                       std::to_string(devices));
  }
  DSV4_CUDA(cudaSetDevice(device));
  cudaDeviceProp properties{};
  DSV4_CUDA(cudaGetDeviceProperties(&properties, device));
  Report report;
  report.gpu = properties.name;
  report.major = properties.major;
  report.minor = properties.minor;
  DSV4_CUDA(cudaDriverGetVersion(&report.driver_cuda));
  report.has_wgmma = properties.major == 9 && properties.minor == 0;
  measure_functions(report, record);
  measure_divisions(report, record);
  measure_matrices(report, record);
  return report;
}

}  // namespace dsv4::gpu::probe
