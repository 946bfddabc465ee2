// The Python reader of notebooks_export and this program decode one dump alike: two decoders that share no
// code.
#include <cstdlib>
#include <fstream>

#include "io/decode.hpp"
#include "io/dump_writer.hpp"
#include "sample.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::io;

namespace {

/// All codes of a format, and where that is too many, all of one byte's patterns in each byte.
template <class T>
Tensor all_codes(DType dtype, std::int64_t codes) {
  Tensor tensor(dtype, {codes, 1});
  const auto out = tensor.template as<T>();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<T>(i);
  return tensor;
}

}  // namespace

TEST_CASE("the Python reader gives the same values, settings and meanings") {
  const sample::Folder folder;
  StepObservation step = sample::step(0, 256);
  LayerObservation& layer = step.layers[1];
  layer.tensors.clear();
  layer.tensors[TensorId::window_codes] = all_codes<std::uint8_t>(DType::float8_e4m3fn, 256);
  layer.tensors[TensorId::window_scales] = all_codes<std::uint8_t>(DType::float8_e8m0fnu, 256);
  Tensor bf16(DType::bfloat16, {256, 256});
  for (std::size_t i = 0; i < 65536; ++i) bf16.as<std::uint16_t>()[i] = static_cast<std::uint16_t>(i);
  layer.tensors[TensorId::window_kv] = bf16;
  Tensor fp4(DType::float4_e2m1fn, {256, 1, 1});
  for (std::size_t i = 0; i < 256; ++i) fp4.as<std::uint8_t>()[i] = i % 16;
  layer.tensors[TensorId::query_codes] = fp4;
  layer.tensors[TensorId::scores] = sample::tensor<std::uint32_t>(
      DType::float32, {256, 5}, {0x7F800000U, 0xFF800000U, 0x80000000U, 0x00000001U, 0x3F800000U});
  layer.tensors[TensorId::selected] =
      sample::tensor<std::int32_t>(DType::int32, {256, 8}, {-1, 0, 2147483647});
  layer.tensors[TensorId::window_page_bytes] = sample::noise<std::uint8_t>(DType::uint8, {256, 584}, 3);
  layer.tensors[TensorId::compress_entry] = Tensor(DType::bfloat16, {2, 512});
  layer.tensors[TensorId::compress_request] = sample::tensor<std::int32_t>(DType::int32, {2}, {1, 2});
  layer.tensors[TensorId::compress_index] = sample::tensor<std::int32_t>(DType::int32, {2}, {7, 3});
  layer.tensors[TensorId::indexer_page_bytes] = sample::noise<std::uint8_t>(DType::uint8, {2, 132}, 4);
  layer.tensors[TensorId::query_weights] = Tensor(DType::float32, {256, 4});
  step.batch.request.as<std::int32_t>()[1] = 2;
  step.batch.request.as<std::int32_t>()[255] = -1;
  step.batch.position = sample::tensor<std::int32_t>(DType::int32, {256}, {11, 12, -1});
  {
    DumpWriter writer(folder / "a.h5", sample::source());
    writer.write(step);
    StepObservation longer = sample::step(3, 1);
    longer.event = "{\"free\":\"" + std::string(100000, 'x') + "\"}";
    writer.write(longer);
    writer.finish();
  }
  // What this program decodes: one line a tensor, values as float64 bits.
  std::ofstream expected(folder / "expected.txt");
  for (const auto& [id, tensor] : layer.tensors) {
    expected << path(id) << ' ' << name(tensor.dtype());
    Tensor canonical = tensor;
    canonicalise_nan(canonical);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      const double value = decode(canonical, i).value;
      std::uint64_t bits = 0;
      std::memcpy(&bits, &value, 8);
      expected << ' ' << std::hex << (value != value ? 0x7FF8000000000000U : bits) << std::dec;
    }
    expected << '\n';
  }
  const auto rows = [&](const char* label, const Tensor& bytes, auto decoder) {
    expected << label << " rows";
    const auto width = static_cast<std::size_t>(bytes.dim(1));
    for (std::size_t row = 0; row < static_cast<std::size_t>(bytes.dim(0)); ++row) {
      for (const float value : decoder(bytes.bytes().subspan(row * width, width)).values) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value, 4);
        expected << ' ' << std::hex << (value != value ? 0x7FC00000U : bits) << std::dec;
      }
    }
    expected << '\n';
  };
  rows("kv_rows", layer.tensors.at(TensorId::window_page_bytes), decode_kv_row);
  rows("index_rows", layer.tensors.at(TensorId::indexer_page_bytes), decode_index_row);
  expected.close();
  const std::string command = "/usr/bin/python3 tests/io/python_reader_check.py " + (folder / "a.h5") + " " +
                              (folder / "expected.txt");
  REQUIRE(std::system(command.c_str()) == 0);
}
