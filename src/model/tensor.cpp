#include "model/tensor.hpp"

#include <array>

namespace dsv4 {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::size_t size_bytes;
};

constexpr std::array<DTypeInfo, 8> kDTypes{{
    {DType::float4_e2m1fn, "float4_e2m1fn", 1},
    {DType::float8_e4m3fn, "float8_e4m3fn", 1},
    {DType::float8_e8m0fnu, "float8_e8m0fnu", 1},
    {DType::bfloat16, "bfloat16", 2},
    {DType::float32, "float32", 4},
    {DType::float64, "float64", 8},
    {DType::int32, "int32", 4},
    {DType::uint8, "uint8", 1},
}};

}  // namespace

std::size_t size_bytes(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].size_bytes; }

std::string_view name(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].name; }

DType dtype_from_name(std::string_view spelling) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.name == spelling) return info.dtype;
  }
  throw FileError("unknown dtype '" + std::string(spelling) + "'");
}

}  // namespace dsv4
