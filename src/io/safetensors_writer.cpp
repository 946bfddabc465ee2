#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/atomic_file.hpp"
#include "io/safetensors.hpp"
#include "model/error.hpp"

namespace dsv4::io {
namespace {

/// Ordered, so that names stay sorted in the file whatever the JSON library prefers.
using Json = nlohmann::ordered_json;

std::uint64_t element_bytes(StDType dtype) {
  switch (dtype) {
    case StDType::f8_e4m3:
    case StDType::f8_e8m0:
    case StDType::u8:
      return 1;
    case StDType::bf16:
      return 2;
    case StDType::f32:
    case StDType::i32:
      return 4;
    case StDType::f64:
      return 8;
    default:
      throw InternalError("a safetensors dtype that is never written");
  }
}

}  // namespace

void write_safetensors(const std::string& path, std::vector<StOutput> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::ranges::sort(tensors, {}, &StOutput::name);
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const StOutput& tensor : tensors) {
    const std::uint64_t bytes = tensor.bytes.size();
    require(static_cast<std::uint64_t>(Tensor::count(tensor.shape)) * element_bytes(tensor.dtype) == bytes,
            "a tensor's bytes disagree with its shape");
    require(!header.contains(tensor.name), "a safetensors file would hold one name twice");
    header[tensor.name] = {
        {"dtype", name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t header_bytes = text.size();

  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&header_bytes, 1)));
  file.write(text);
  for (const StOutput& tensor : tensors) file.write(tensor.bytes);
  file.finish();
}

}  // namespace dsv4::io
