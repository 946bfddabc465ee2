#include "reference/kv_row.hpp"

#include <array>
#include <cstring>

#include "arith/ue8m0.hpp"
#include "model/error.hpp"
#include "reference/profile_rows.hpp"

namespace dsv4::reference {
namespace {

constexpr int kRopeBytes = 2 * kRopeDim;

}  // namespace

void encode_kv_row(const std::uint16_t* row, QuantFloor floor, std::uint8_t* codes, std::uint8_t* scales,
                   std::byte* bytes) {
  quantize_e4m3(row, kNopeDim, layout::kKvBlock, floor, codes, scales);
  std::memcpy(bytes, codes, kNopeDim);
  std::memcpy(bytes + kNopeDim, row + kNopeDim, kRopeBytes);
  std::memcpy(bytes + layout::kKvValueBytes, scales, layout::kKvScales);
  bytes[layout::kKvRowBytes - 1] = std::byte{0};
}

void decode_kv_row(const RowStore& store, std::int64_t slot, float* out) {
  const std::byte* values = store.values(slot);
  dequantize_e4m3(reinterpret_cast<const std::uint8_t*>(values),
                  reinterpret_cast<const std::uint8_t*>(store.scales(slot)), kNopeDim, layout::kKvBlock, out);
  std::array<std::uint16_t, kRopeDim> rope;  // a page pitch may leave the row unaligned
  std::memcpy(rope.data(), values + kNopeDim, kRopeBytes);
  widen_bf16(rope.data(), kRopeDim, out + kNopeDim);
}

void quantize_index(const std::uint16_t* row, IndexCache format, std::uint8_t* codes, std::uint8_t* scales) {
  if (format == IndexCache::fp4) {
    quantize_e2m1(row, kIndexDim, codes, scales);
  } else {
    quantize_e4m3(row, kIndexDim, kIndexDim, QuantFloor::amax, codes, scales);
  }
}

void widen_scales(const std::uint8_t* scales, std::int64_t count, float* out) {
  for (std::int64_t index = 0; index < count; ++index) out[index] = arith::ue8m0_to_f32(scales[index]);
}

void encode_index_row(const std::uint8_t* codes, const std::uint8_t* scales, IndexCache format,
                      std::byte* bytes) {
  if (format == IndexCache::fp4) {
    for (int pair = 0; pair < layout::kIndexFp4ValueBytes; ++pair) {
      bytes[pair] = static_cast<std::byte>(codes[2 * pair] | (codes[2 * pair + 1] << 4));
    }
    std::memcpy(bytes + layout::kIndexFp4ValueBytes, scales, layout::kIndexFp4ScaleBytes);
    return;
  }
  std::memcpy(bytes, codes, layout::kIndexFp8ValueBytes);
  const float scale = arith::ue8m0_to_f32(scales[0]);
  std::memcpy(bytes + layout::kIndexFp8ValueBytes, &scale, layout::kIndexFp8ScaleBytes);
}

void decode_index_row(const RowStore& store, std::int64_t slot, IndexCache format, float* out, float* scale) {
  const auto* values = reinterpret_cast<const std::uint8_t*>(store.values(slot));
  if (format == IndexCache::fp4) {
    dequantize_e2m1_packed(values, reinterpret_cast<const std::uint8_t*>(store.scales(slot)), kIndexDim, out);
    return;
  }
  decode_e4m3(values, kIndexDim, out);
  std::memcpy(scale, store.scales(slot), layout::kIndexFp8ScaleBytes);
}

std::size_t DecodedRows::add(std::int64_t slot) {
  const RowShape& shape = store_.shape();
  const std::int64_t unit = slot / shape.unit_rows;
  if (unit != last_unit_ || last_ == nullptr) {
    store_.values(slot);  // refuses a slot outside the cache
    last_ = &units_.try_emplace(unit, static_cast<std::size_t>(shape.unit_rows), -1).first->second;
    last_unit_ = unit;
  }
  std::int32_t& index = (*last_)[static_cast<std::size_t>(slot % shape.unit_rows)];
  if (index < 0) {
    index = static_cast<std::int32_t>(slots_.size());
    slots_.push_back(slot);
  }
  return static_cast<std::size_t>(index);
}

void DecodedRows::decode() {
  values_.resize(slots_.size() * kHeadDim);
  const std::int64_t count = std::ssize(slots_);
#pragma omp parallel for schedule(static) if (count > 1)
  for (std::int64_t index = 0; index < count; ++index) {
    load_kv_row(store_, slots_[static_cast<std::size_t>(index)], cache_, values_.data() + index * kHeadDim);
  }
}

}  // namespace dsv4::reference
