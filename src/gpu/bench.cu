#include "gpu/bench.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <functional>
#include <memory>

#include "arith/fma.hpp"
#include "gpu/check.cuh"
#include "gpu/cuda_engine.cuh"

namespace dsv4::gpu {
namespace {

constexpr int kRepeat = 5;
constexpr std::size_t kCopyBytes = std::size_t{1} << 30;

struct EventDeleter {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, EventDeleter>;
struct GraphDeleter {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, GraphDeleter>;

Event make_event() {
  cudaEvent_t event = nullptr;
  DSV4_CUDA(cudaEventCreate(&event));
  return Event(event);
}

/// Seconds of one of `repeat` equal pieces of device work, after one that warms up.
double timed(cudaStream_t stream, int repeat, const std::function<void()>& work) {
  const Event start = make_event();
  const Event stop = make_event();
  work();
  DSV4_CUDA(cudaEventRecord(start.get(), stream));
  for (int i = 0; i < repeat; ++i) work();
  DSV4_CUDA(cudaEventRecord(stop.get(), stream));
  DSV4_CUDA(cudaEventSynchronize(stop.get()));
  float milliseconds = 0;
  DSV4_CUDA(cudaEventElapsedTime(&milliseconds, start.get(), stop.get()));
  return milliseconds / 1e3 / repeat;
}

double timed(cudaStream_t stream, cudaGraph_t graph) {
  cudaGraphExec_t exec = nullptr;
  DSV4_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  const double seconds = timed(stream, kRepeat, [&] { DSV4_CUDA(cudaGraphLaunch(exec, stream)); });
  DSV4_CUDA(cudaGraphExecDestroy(exec));
  return seconds;
}

std::string kernel_name(const void* function) {
  const char* mangled = nullptr;
  DSV4_CUDA(cudaFuncGetName(&mangled, function));
  char* const readable = abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr);
  std::string name = readable != nullptr ? readable : mangled;
  std::free(readable);
  const std::string scope = "(anonymous namespace)::";
  if (const std::size_t at = name.find(scope); at != std::string::npos) name = name.substr(at + scope.size());
  name = name.substr(0, name.find('('));
  return name.substr(name.find_first_not_of(' '));
}

constexpr int kChains = 16;
constexpr int kFmas = 4096;

/// Independent chains of multiply-adds; `x` and `y` come from outside, so that none can be left out.
__global__ void fma_kernel(float x, float y, float* out) {
  float sum[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) sum[i] = static_cast<float>(threadIdx.x + i);
#pragma unroll 4
  for (int k = 0; k < kFmas; ++k) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) sum[i] = arith::fma(sum[i], x, y);
  }
  float all = 0.0F;
#pragma unroll
  for (int i = 0; i < kChains; ++i) all += sum[i];
  if (all == 1.5F) *out = all;
}

}  // namespace

DevicePeaks::DevicePeaks() {
  DSV4_CUDA(cudaMalloc(&from_, kCopyBytes));
  DSV4_CUDA(cudaMalloc(&to_, kCopyBytes));
  DSV4_CUDA(cudaMemset(from_, 0, kCopyBytes));
}

DevicePeaks::~DevicePeaks() {
  cudaFree(from_);
  cudaFree(to_);
}

double DevicePeaks::fma() const {
  int device = 0;
  int processors = 0;
  DSV4_CUDA(cudaGetDevice(&device));
  DSV4_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  const int blocks = 32 * processors;
  const double seconds = timed(nullptr, 4, [&] {
    fma_kernel<<<blocks, 256>>>(0.5F, 1.0F, static_cast<float*>(to_));
    DSV4_LAUNCHED("fma_kernel");
  });
  return 2.0 * kChains * kFmas * 256 * blocks / seconds;
}

double DevicePeaks::copy() const {
  const double seconds =
      timed(nullptr, 8, [&] { DSV4_CUDA(cudaMemcpyAsync(to_, from_, kCopyBytes, cudaMemcpyDeviceToDevice, nullptr)); });
  return 2.0 * kCopyBytes / seconds;
}

DeviceTime device_time(const StageFunction& stage, const StageCall& call) {
  const cudaStream_t stream = engine_of(call).stream();
  stage(call);  // buffers grow here, which a capture could not
  DSV4_CUDA(cudaStreamSynchronize(stream));
  DSV4_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  cudaGraph_t captured = nullptr;
  try {
    stage(call);
  } catch (...) {
    cudaStreamEndCapture(stream, &captured);
    cudaGraphDestroy(captured);
    throw;
  }
  DSV4_CUDA(cudaStreamEndCapture(stream, &captured));
  const Graph graph(captured);
  DeviceTime time;
  std::size_t count = 0;
  DSV4_CUDA(cudaGraphGetNodes(graph.get(), nullptr, &count));
  if (count == 0) return time;
  time.seconds = timed(stream, graph.get());
  std::vector<cudaGraphNode_t> nodes(count);
  DSV4_CUDA(cudaGraphGetNodes(graph.get(), nodes.data(), &count));
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    DSV4_CUDA(cudaGraphNodeGetType(node, &type));
    if (type != cudaGraphNodeTypeKernel) continue;
    cudaKernelNodeParams params{};
    DSV4_CUDA(cudaGraphKernelNodeGetParams(node, &params));
    cudaGraph_t alone = nullptr;
    DSV4_CUDA(cudaGraphCreate(&alone, 0));
    const Graph one(alone);
    cudaGraphNode_t copy = nullptr;
    DSV4_CUDA(cudaGraphAddKernelNode(&copy, alone, nullptr, 0, &params));
    time.kernels.push_back({kernel_name(params.func), timed(stream, alone)});
  }
  return time;
}

}  // namespace dsv4::gpu
