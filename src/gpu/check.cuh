/// CUDA calls and kernel launches, checked: a failure is a SubjectError that names call or kernel, file and line.
#pragma once

#include <cuda_runtime.h>

namespace dsv4::gpu {

/// Throws SubjectError unless `status` is success.
void check(cudaError_t status, const char* what, const char* file, int line);

}  // namespace dsv4::gpu

/// Checks a CUDA runtime call.
#define DSV4_CUDA(call) ::dsv4::gpu::check((call), #call, __FILE__, __LINE__)
/// Checks the launch just made; `kernel` is its name.
#define DSV4_LAUNCHED(kernel) ::dsv4::gpu::check(cudaGetLastError(), kernel, __FILE__, __LINE__)
