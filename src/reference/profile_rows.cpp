#include "reference/profile_rows.hpp"

#include <algorithm>
#include <cstring>

#include "arith/bf16.hpp"
#include "arith/f16.hpp"
#include "reference/block_quantizer.hpp"
#include "reference/kv_row.hpp"

namespace dsv4::reference {

void store_plain(const float* values, std::int64_t n, bool f16, std::byte* bytes) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint16_t code = f16 ? arith::f32_to_f16(values[i]) : arith::f32_to_bf16(values[i]);
    std::memcpy(bytes + 2 * i, &code, sizeof code);
  }
}

void load_plain(const std::byte* bytes, std::int64_t n, bool f16, float* values) {
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint16_t code = 0;
    std::memcpy(&code, bytes + 2 * i, sizeof code);
    values[i] = f16 ? arith::f16_to_f32(code) : arith::bf16_to_f32(code);
  }
}

void store_kv_row(const float* row, KvCache cache, std::uint8_t* codes, std::uint8_t* scales,
                  std::byte* bytes) {
  if (layout::plain(cache)) return store_plain(row, kHeadDim, cache == KvCache::f16, bytes);
  const QuantFloor floor = cache == KvCache::e4m3_scale_floor ? QuantFloor::scale : QuantFloor::amax;
  quantize_e4m3(row, kNopeDim, layout::kKvBlock, floor, codes, scales);
  std::memcpy(bytes, codes, kNopeDim);
  store_plain(row + kNopeDim, kRopeDim, false, bytes + kNopeDim);
  std::memcpy(bytes + layout::kKvValueBytes, scales, layout::kKvScales);
  bytes[layout::kKvRowBytes - 1] = std::byte{0};
}

void load_kv_row(const RowStore& store, std::int64_t slot, KvCache cache, float* out) {
  if (layout::plain(cache)) return load_plain(store.values(slot), kHeadDim, cache == KvCache::f16, out);
  decode_kv_row(store, slot, out);
}

IndexForm index_form(const Profile& profile) {
  return {profile.get<IndexCache>(), profile.get<IndexScale>(), profile.get<Fp4Rule>()};
}

IndexCodes quantize_index(const float* row, const IndexForm& form) {
  IndexCodes out{};
  if (form.fp4()) {
    const auto quantize = form.fp4_rule == Fp4Rule::ties_down
                              ? quantize_e2m1_ties_down
                              : static_cast<decltype(&quantize_e2m1_ties_down)>(quantize_e2m1);
    quantize(row, kIndexDim, out.codes.data(), out.scale_bytes.data());
  } else if (form.scale == IndexScale::f32) {
    quantize_e4m3_f32_scale(row, kIndexDim, out.codes.data(), &out.scale);
  } else {
    quantize_e4m3(row, kIndexDim, kIndexDim, QuantFloor::amax, out.codes.data(), out.scale_bytes.data());
    widen_scales(out.scale_bytes.data(), 1, &out.scale);
  }
  return out;
}

void store_index_row(const IndexCodes& row, const IndexForm& form, std::byte* bytes) {
  encode_index_row(row.codes.data(), row.scale_bytes.data(), form.cache, bytes);
  if (!form.fp4()) std::memcpy(bytes + layout::kIndexFp8ValueBytes, &row.scale, sizeof row.scale);
}

}  // namespace dsv4::reference
