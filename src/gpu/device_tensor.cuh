/// A tensor in device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/stage.hpp"
#include "model/tensor.hpp"

namespace dsv4::gpu {

struct DeviceTensor {
  DType dtype = DType::uint8;
  std::vector<std::int64_t> shape;
  std::byte* data = nullptr;

  std::int64_t elements() const { return Tensor::count(shape); }
  std::size_t size_in_bytes() const { return static_cast<std::size_t>(elements()) * size_bytes(dtype); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

/// Rows that a stage wrote into a cache: row r is row r of each part, one after another. Parts are tensors as the
/// stage published them; what is given in their place later lies elsewhere.
struct NotedWrites {
  Stage stage;
  Cache cache;
  std::vector<DeviceTensor> parts;
};

}  // namespace dsv4::gpu
