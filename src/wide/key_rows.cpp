#include "wide/key_rows.hpp"

#include <cstring>

#include "model/layout.hpp"
#include "wide/formats.hpp"

namespace dsv4::wide {
namespace {

std::vector<std::byte> packed(const Quantised& nope, const Values& key, Eigen::Index row) {
  std::vector<std::byte> bytes(layout::kKvRowBytes);
  std::memcpy(bytes.data(), nope.codes.data() + row * kNopeDim, kNopeDim);
  for (int i = 0; i < kRopeDim; ++i) {
    const std::uint16_t code = bf16_code(key(row, kNopeDim + i));
    std::memcpy(bytes.data() + kNopeDim + 2 * i, &code, sizeof code);
  }
  // The eighth scale byte stays 0.
  std::memcpy(bytes.data() + layout::kKvValueBytes, nope.scales.data() + row * layout::kKvScales,
              layout::kKvScales);
  return bytes;
}

}  // namespace

std::vector<std::byte> exact_row(const Values& values, Eigen::Index row) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(values.cols()) * sizeof(double));
  std::memcpy(bytes.data(), values.data() + row * values.cols(), bytes.size());
  return bytes;
}

std::vector<std::byte> plain_row(const Values& values, Eigen::Index row, bool f16) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(values.cols()) * 2);
  for (Eigen::Index i = 0; i < values.cols(); ++i) {
    const std::uint16_t code = f16 ? f16_code(values(row, i)) : bf16_code(values(row, i));
    std::memcpy(bytes.data() + 2 * i, &code, sizeof code);
  }
  return bytes;
}

std::vector<std::vector<std::byte>> publish_keys(Layer& layer, const KeyTensors& ids, Balls keys,
                                                 bool rounded) {
  Balls rope(keys.rows(), kRopeDim);
  rope.value = keys.value.rightCols(kRopeDim);
  rope.radius = keys.radius.rightCols(kRopeDim);
  keys = layer.publish_row(ids.key, {kHeadDim}, std::move(keys), rounded);
  std::vector<std::vector<std::byte>> rows(static_cast<std::size_t>(keys.rows()));
  const KvCache cache = layer.axis<KvCache>();
  if (!layer.exact() && layout::plain(cache)) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      rows[i] = plain_row(keys.value, static_cast<Eigen::Index>(i), cache == KvCache::f16);
    layer.publish_bytes(ids.page_bytes, rows);
    return rows;
  }
  layer.publish_bf16(ids.rope, {kRopeDim}, std::move(rope));
  if (layer.exact()) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      rows[i] = exact_row(keys.value, static_cast<Eigen::Index>(i));
    return rows;
  }
  Quantised nope = quantise(keys, kNopeDim, kv_format(layer.config.profile));
  layer.publish_codes(ids.codes, ids.scales, {kNopeDim}, {nope.blocks}, nope, false, false);
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i] = packed(nope, keys.value, static_cast<Eigen::Index>(i));
  layer.publish_bytes(ids.page_bytes, rows);
  return rows;
}

}  // namespace dsv4::wide
