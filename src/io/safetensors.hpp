/// safetensors files: 8-byte little-endian header length, JSON header, raw little-endian data.
///
/// Reader: memory-mapped; refuses (FileError naming file, tensor and both numbers) a truncated file, a header
/// that is too long, not JSON or has duplicate names, unknown dtypes, shapes that overflow, sizes that
/// disagree with shape and dtype, ranges that overlap, leave holes or leave the file. Writer: names sorted,
/// header padded with spaces to a multiple of 8, written to PATH.partial and renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/tensor.hpp"

namespace dsv4::io {

/// Element types as safetensors spells them. F16 and the rest are recognised so that a refusal can name them,
/// and so that a file may hold tensors that nobody asks for.
enum class StDType : std::uint8_t {
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  bf16,
  f16,
  f32,
  f64,
  i8,
  i16,
  i32,
  i64,
  u8,
  u16,
  u32,
  u64,
  boolean,
  other
};
std::string_view name(StDType dtype);

struct StTensor {
  std::string name;
  StDType dtype = StDType::other;
  std::string dtype_text;  ///< as in the file
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  ///< valid while the file object lives
};

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::string& path() const;
  const std::map<std::string, StTensor, std::less<>>& tensors() const;
  /// Null when absent.
  const StTensor* find(std::string_view tensor_name) const;
  const std::map<std::string, std::string>& metadata() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// One tensor to write; `bytes` must hold the whole tensor.
struct StOutput {
  std::string name;
  StDType dtype = StDType::u8;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

/// float4 codes travel as U8, one code a byte; float64 as F64.
StDType safetensors_dtype(DType dtype);
/// Inverse; throws FileError for types that a tensor of ours cannot be.
DType tensor_dtype(StDType dtype);

void write_safetensors(const std::string& path, std::vector<StOutput> tensors,
                       const std::map<std::string, std::string>& metadata);
/// Owning copy of a file's tensor.
Tensor to_tensor(const StTensor& tensor);

}  // namespace dsv4::io
