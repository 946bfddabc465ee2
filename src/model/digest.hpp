/// Content digests: XXH3-128 over little-endian elements in row-major order after NaN canonicalisation, as 32
/// lower-case hex digits, high word first (docs/dump-format.md).
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "model/tensor.hpp"

namespace dsv4 {

/// Replaces every NaN of a float32, bfloat16 or float64 tensor by the canonical one (0x7FC00000, 0x7FC0,
/// 0x7FF8000000000000); other dtypes have one NaN code each and stay as they are.
void canonicalise_nan(Tensor& tensor);

/// Digest of a tensor's content.
std::string digest(const Tensor& tensor);

/// Digest of raw bytes.
std::string digest(std::span<const std::byte> bytes);

}  // namespace dsv4
