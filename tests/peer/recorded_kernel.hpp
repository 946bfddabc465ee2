/// What tests of kernel models share: recorded arrays as spans, outputs as they were before the launch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "arith/bf16.hpp"
#include "peer/peer_file.hpp"

namespace dsv4::peer {

template <class T>
std::span<const T> elements(const Array& array) {
  return {array.as<T>(), static_cast<std::size_t>(array.elements())};
}

/// An output before the launch: every byte the fill that the case states.
template <class T>
std::vector<T> filled_like(const Array& output, int byte) {
  std::vector<T> out(static_cast<std::size_t>(output.elements()));
  if (sizeof(T) != output.element_bytes) throw std::runtime_error("recorded array read with another width");
  std::memset(out.data(), byte, out.size() * sizeof(T));
  return out;
}

/// float32 values of an input that is float32 in some cases and bf16 in others.
inline std::vector<float> widened(const Array& array) {
  if (array.element_bytes == 4) return {array.as<float>(), array.as<float>() + array.elements()};
  std::vector<float> out;
  for (const std::uint16_t bits : elements<std::uint16_t>(array)) out.push_back(arith::bf16_to_f32(bits));
  return out;
}

/// Bits of float32 values.
inline const std::uint32_t* bits_of(const float* values) {
  return reinterpret_cast<const std::uint32_t*>(values);
}

}  // namespace dsv4::peer
