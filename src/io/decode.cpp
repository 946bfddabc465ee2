#include "io/decode.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "arith/bf16.hpp"
#include "arith/bits.hpp"
#include "arith/e2m1.hpp"
#include "arith/e4m3.hpp"
#include "arith/f16.hpp"
#include "arith/ue8m0.hpp"
#include "model/element.hpp"
#include "model/error.hpp"

namespace dsv4::io {
namespace {

/// Shortest decimal that gives the number back as float32 (float64: as itself).
std::string decimal(DType dtype, double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (dtype == DType::float64) return fmt::format("{}", value);
  return fmt::format("{}", static_cast<float>(value));
}

std::uint8_t byte_at(std::span<const std::byte> bytes, std::size_t at) {
  return std::to_integer<std::uint8_t>(bytes[at]);
}

std::uint32_t word_at(std::span<const std::byte> bytes, std::size_t at) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

/// What counts as saturated and as subnormal in each format, as magnitudes of bits (sign cleared).
struct Limits {
  std::uint64_t magnitude_mask;
  std::uint64_t saturated;     ///< largest finite code of formats that clamp; 0: none clamps
  std::uint64_t first_normal;  ///< smaller non-zero magnitudes are subnormal; 0: there are none
};

Limits limits(DType dtype) {
  switch (dtype) {
    case DType::float4_e2m1fn:
      return {0x7, 0x7, 0x2};
    case DType::float8_e4m3fn:
      return {0x7F, 0x7E, 0x08};
    case DType::bfloat16:
      return {0x7FFF, 0, 0x0080};
    case DType::float32:
      return {0x7FFFFFFF, 0, 0x00800000};
    case DType::float64:
      return {0x7FFFFFFFFFFFFFFF, 0, 0x0010000000000000};
    default:
      return {~std::uint64_t{0}, 0, 0};
  }
}

template <std::size_t N>
void copy_row(std::span<const std::byte> page, std::size_t at, std::vector<std::byte>& row,
              std::size_t into) {
  std::copy_n(page.begin() + static_cast<std::ptrdiff_t>(at), N,
              row.begin() + static_cast<std::ptrdiff_t>(into));
}

void check_page(std::span<const std::byte> page, int rows, int offset, int row_bytes) {
  if (rows < 1 || offset < 0 || offset >= rows) {
    throw UsageError(fmt::format("a page of {} rows has no row {}", rows, offset));
  }
  if (page.size() < static_cast<std::size_t>(rows) * static_cast<std::size_t>(row_bytes)) {
    throw UsageError(
        fmt::format("a page of {} bytes cannot hold {} rows of {} bytes", page.size(), rows, row_bytes));
  }
}

}  // namespace

Element decode(const Tensor& tensor, std::int64_t element) {
  if (element < 0 || element >= tensor.elements()) {
    throw UsageError(fmt::format("element {} of a tensor with {} elements", element, tensor.elements()));
  }
  Element result;
  result.bits = load_bits(tensor, element);
  result.hex = fmt::format("0x{:0{}x}", result.bits, 2 * size_bytes(tensor.dtype()));
  result.value = dsv4::decode(tensor.dtype(), result.bits);
  result.text = decimal(tensor.dtype(), result.value);
  if (tensor.dtype() == DType::int32 || tensor.dtype() == DType::uint8) {
    result.text = fmt::format("{}", static_cast<std::int64_t>(result.value));
  }
  return result;
}

KvRow decode_kv_row(std::span<const std::byte> row) {
  if (row.size() != layout::kKvRowBytes) {
    throw UsageError(fmt::format("a KV row has {} bytes, not {}", layout::kKvRowBytes, row.size()));
  }
  KvRow result{};
  for (std::size_t i = 0; i < result.codes.size(); ++i) result.codes[i] = byte_at(row, i);
  std::memcpy(result.rope.data(), row.data() + kNopeDim, sizeof result.rope);
  for (std::size_t i = 0; i < result.scales.size(); ++i) {
    result.scales[i] = byte_at(row, layout::kKvValueBytes + i);
  }
  result.spare = byte_at(row, layout::kKvRowBytes - 1);
  for (std::size_t i = 0; i < result.codes.size(); ++i) {
    // A code times a power of two: exact unless it leaves the range of float32.
    result.values[i] =
        arith::e4m3_to_f32(result.codes[i]) * arith::ue8m0_to_f32(result.scales[i / layout::kKvBlock]);
  }
  for (std::size_t i = 0; i < result.rope.size(); ++i) {
    result.values[kNopeDim + i] = arith::bf16_to_f32(result.rope[i]);
  }
  return result;
}

IndexRow decode_index_row(std::span<const std::byte> row) {
  IndexRow result{};
  if (row.size() == layout::kIndexFp8RowBytes) {
    result.scale_bits = {word_at(row, layout::kIndexFp8ValueBytes)};
    result.scales = {arith::from_bits(result.scale_bits[0])};
    for (std::size_t i = 0; i < result.codes.size(); ++i) {
      result.codes[i] = byte_at(row, i);
      result.values[i] = arith::e4m3_to_f32(result.codes[i]) * result.scales[0];
    }
    return result;
  }
  if (row.size() != layout::kIndexFp4RowBytes) {
    throw UsageError(fmt::format("an index row has {} or {} bytes, not {}", layout::kIndexFp8RowBytes,
                                 layout::kIndexFp4RowBytes, row.size()));
  }
  result.fp4 = true;
  for (std::size_t block = 0; block < kIndexDim / layout::kIndexFp4Block; ++block) {
    result.scale_bits.push_back(byte_at(row, layout::kIndexFp4ValueBytes + block));
    result.scales.push_back(arith::ue8m0_to_f32(static_cast<std::uint8_t>(result.scale_bits.back())));
  }
  for (std::size_t i = 0; i < result.codes.size(); ++i) {
    const std::uint8_t pair = byte_at(row, i / 2);
    result.codes[i] = i % 2 == 0 ? pair & 0xF : pair >> 4;
    result.values[i] = arith::e2m1_to_f32(result.codes[i]) * result.scales[i / layout::kIndexFp4Block];
  }
  return result;
}

std::optional<PlainRows> plain_rows(const Profile& profile, Cache cache) {
  if (cache == Cache::index_entries) {
    const IndexCache form = profile.get<IndexCache>();
    if (!layout::plain(form)) return std::nullopt;
    return PlainRows{form == IndexCache::f16, layout::kIndexPlainRowBytes};
  }
  const KvCache form = profile.get<KvCache>();
  if (!layout::plain(form)) return std::nullopt;
  return PlainRows{form == KvCache::f16, layout::kKvPlainRowBytes};
}

std::vector<float> decode_plain_row(std::span<const std::byte> row, const PlainRows& form) {
  if (row.size() != static_cast<std::size_t>(form.row_bytes)) {
    throw UsageError(fmt::format("a row of {} values has {} bytes, not {}", form.f16 ? "f16" : "bf16",
                                 form.row_bytes, row.size()));
  }
  std::vector<float> values(row.size() / 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, row.data() + 2 * i, sizeof bits);
    values[i] = form.f16 ? arith::f16_to_f32(bits) : arith::bf16_to_f32(bits);
  }
  return values;
}

std::vector<std::byte> plain_page_row(std::span<const std::byte> page, int rows, int offset,
                                      const PlainRows& form) {
  check_page(page, rows, offset, form.row_bytes);
  const auto size = static_cast<std::size_t>(form.row_bytes);
  const auto row = page.subspan(static_cast<std::size_t>(offset) * size, size);
  return {row.begin(), row.end()};
}

std::vector<std::byte> kv_page_row(std::span<const std::byte> page, int rows, int offset) {
  check_page(page, rows, offset, layout::kKvRowBytes);
  std::vector<std::byte> row(layout::kKvRowBytes);
  const auto at = static_cast<std::size_t>(offset);
  const auto scales = static_cast<std::size_t>(rows) * layout::kKvValueBytes;
  copy_row<layout::kKvValueBytes>(page, at * layout::kKvValueBytes, row, 0);
  copy_row<layout::kKvScaleBytes>(page, scales + at * layout::kKvScaleBytes, row, layout::kKvValueBytes);
  return row;
}

std::vector<std::byte> index_page_row(std::span<const std::byte> page, int rows, int offset, bool fp4) {
  check_page(page, rows, offset, fp4 ? layout::kIndexFp4RowBytes : layout::kIndexFp8RowBytes);
  std::vector<std::byte> row(fp4 ? layout::kIndexFp4RowBytes : layout::kIndexFp8RowBytes);
  const auto at = static_cast<std::size_t>(offset);
  const auto count = static_cast<std::size_t>(rows);
  if (fp4) {
    copy_row<layout::kIndexFp4ValueBytes>(page, at * layout::kIndexFp4ValueBytes, row, 0);
    copy_row<layout::kIndexFp4ScaleBytes>(
        page, count * layout::kIndexFp4ValueBytes + at * layout::kIndexFp4ScaleBytes, row,
        layout::kIndexFp4ValueBytes);
  } else {
    copy_row<layout::kIndexFp8ValueBytes>(page, at * layout::kIndexFp8ValueBytes, row, 0);
    copy_row<layout::kIndexFp8ScaleBytes>(
        page, count * layout::kIndexFp8ValueBytes + at * layout::kIndexFp8ScaleBytes, row,
        layout::kIndexFp8ValueBytes);
  }
  return row;
}

Figures figures(const Tensor& tensor) {
  Figures result;
  result.elements = tensor.elements();
  const Limits limit = limits(tensor.dtype());
  double squares = 0.0;
  std::int64_t finite = 0;
  for (std::int64_t i = 0; i < result.elements; ++i) {
    const std::uint64_t bits = load_bits(tensor, i);
    const double value = dsv4::decode(tensor.dtype(), bits);
    if (!std::isfinite(value)) {
      ++(std::isnan(value) ? result.nan : result.infinite);
      if (!result.first_non_finite) result.first_non_finite = i;
      continue;
    }
    const std::uint64_t magnitude = bits & limit.magnitude_mask;
    result.zero += value == 0.0;
    result.saturated += limit.saturated != 0 && magnitude == limit.saturated;
    result.subnormal += limit.first_normal != 0 && magnitude != 0 && magnitude < limit.first_normal;
    result.minimum = finite == 0 ? value : std::min(result.minimum, value);
    result.maximum = finite == 0 ? value : std::max(result.maximum, value);
    squares += value * value;
    ++finite;
  }
  if (finite > 0) result.rms = std::sqrt(squares / static_cast<double>(finite));
  return result;
}

}  // namespace dsv4::io
