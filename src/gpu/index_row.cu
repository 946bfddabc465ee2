#include "arith/ue8m0.hpp"
#include "gpu/check.cuh"
#include "gpu/index_row.cuh"
#include "model/layout.hpp"

namespace dsv4::gpu {
namespace {

unsigned blocks_for(std::int64_t items) { return static_cast<unsigned>((items + 255) / 256); }

__global__ void widen_scales_kernel(const std::uint8_t* bytes, float* scales, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) scales[i] = arith::ue8m0_to_f32(bytes[i]);
}

/// One thread a byte.
__global__ void pack_fp8_kernel(const std::uint8_t* codes, const float* scales, std::uint8_t* bytes, std::int64_t rows) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * layout::kIndexFp8RowBytes) return;
  const std::int64_t row = i / layout::kIndexFp8RowBytes;
  const int b = static_cast<int>(i % layout::kIndexFp8RowBytes);
  bytes[i] = b < layout::kIndexFp8ValueBytes
                 ? codes[row * kIndexDim + b]
                 : static_cast<std::uint8_t>(arith::to_bits(scales[row]) >> (8 * (b - layout::kIndexFp8ValueBytes)));
}

__global__ void pack_fp4_kernel(const std::uint8_t* codes, const std::uint8_t* scales, std::uint8_t* bytes,
                                std::int64_t rows) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * layout::kIndexFp4RowBytes) return;
  const std::int64_t row = i / layout::kIndexFp4RowBytes;
  const int b = static_cast<int>(i % layout::kIndexFp4RowBytes);
  const std::uint8_t* pair = codes + row * kIndexDim + 2 * b;
  bytes[i] = b < layout::kIndexFp4ValueBytes
                 ? static_cast<std::uint8_t>(pair[0] | (pair[1] << 4))
                 : scales[row * layout::kIndexFp4ScaleBytes + b - layout::kIndexFp4ValueBytes];
}

}  // namespace

void publish_index_rows(CudaEngine& engine, int layer, const IndexRowTensors& ids, const std::uint16_t* vectors,
                        std::vector<std::int64_t> shape) {
  const bool fp4 = engine.profile().get<IndexCache>() == IndexCache::fp4;
  const std::int64_t rows = Tensor::count(shape);
  std::vector<std::int64_t> code_shape = shape;
  code_shape.push_back(kIndexDim);
  std::vector<std::int64_t> scale_shape = shape;
  scale_shape.push_back(fp4 ? kIndexDim / layout::kIndexFp4Block : 1);
  const DeviceTensor codes =
      engine.publish(layer, ids.codes, fp4 ? DType::float4_e2m1fn : DType::float8_e4m3fn, code_shape);
  const DeviceTensor scales =
      engine.publish(layer, ids.scales, fp4 ? DType::float8_e8m0fnu : DType::float32, scale_shape);
  if (rows == 0) return;
  if (fp4) {
    quantise_e2m1(vectors, rows, kIndexDim, codes.as<std::uint8_t>(), scales.as<std::uint8_t>(), engine.stream());
    return;
  }
  auto* bytes = engine.memory().get<std::uint8_t>("scratch/index_scales", static_cast<std::size_t>(rows));
  quantise_e4m3(vectors, kIndexDim, rows, kIndexDim, kIndexDim, codes.as<std::uint8_t>(), kIndexDim, bytes, 1,
                engine.stream());
  widen_scales_kernel<<<blocks_for(rows), 256, 0, engine.stream()>>>(bytes, scales.as<float>(), rows);
  DSV4_LAUNCHED("widen_scales_kernel");
}

void pack_index_rows(CudaEngine& engine, int layer, const IndexRowTensors& ids, const DeviceTensor& bytes) {
  const std::int64_t rows = bytes.shape[0];
  if (rows == 0) return;
  const unsigned blocks = blocks_for(bytes.elements());
  const auto* codes = engine.input(layer, ids.codes).as<std::uint8_t>();
  const DeviceTensor& scales = engine.input(layer, ids.scales);
  if (engine.profile().get<IndexCache>() == IndexCache::fp4) {
    pack_fp4_kernel<<<blocks, 256, 0, engine.stream()>>>(codes, scales.as<std::uint8_t>(), bytes.as<std::uint8_t>(), rows);
    DSV4_LAUNCHED("pack_fp4_kernel");
  } else {
    pack_fp8_kernel<<<blocks, 256, 0, engine.stream()>>>(codes, scales.as<float>(), bytes.as<std::uint8_t>(), rows);
    DSV4_LAUNCHED("pack_fp8_kernel");
  }
}

}  // namespace dsv4::gpu
