#include "gpu/check.cuh"

#include <string>

#include "model/error.hpp"

namespace dsv4::gpu {

void check(cudaError_t status, const char* what, const char* file, int line) {
  if (status == cudaSuccess) return;
  throw SubjectError(std::string("CUDA error in ") + what + " (" + file + ":" + std::to_string(line) +
                     "): " + cudaGetErrorName(status) + ", " + cudaGetErrorString(status));
}

}  // namespace dsv4::gpu
