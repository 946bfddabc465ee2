// Readings of what elements hold.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>

#include "compare/element.hpp"
#include "compare/reading_scan.hpp"

namespace dsv4::compare {
namespace {

Said said(bool holds) {
  return holds ? Said::yes : Said::no;
}

void constants(const ReadingScan& scan, std::vector<Reading>& out) {
  const Tensor& subject = *scan.input().subject;
  const std::size_t size = size_bytes(scan.dtype());
  const std::uint64_t ones = size == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * size) - 1;
  out.push_back(scan.count(
      "unwritten", "memory was never written (all bytes 0xFF)",
      [&](std::int64_t i) { return said(load_bits(subject, i) == ones); }, false));
  out.push_back(scan.count(
      "zero", "the values are 0", [&](std::int64_t i) { return said(scan.seen(i) == 0); }, false));
  if (is_float(scan.dtype()))
    out.push_back(scan.count(
        "nan", "the values are NaN",
        [&](std::int64_t i) { return said(is_nan(scan.dtype(), load_bits(subject, i))); }, false));
}

void flipped_bits(const ReadingScan& scan, std::vector<Reading>& out) {
  const Tensor& a = *scan.input().reference;
  const Tensor& b = *scan.input().subject;
  const std::int64_t first = scan.differing().front();
  const std::uint64_t mask = load_bits(a, first) ^ load_bits(b, first);
  if (std::popcount(mask) != 1) return;
  const int bit = std::countr_zero(mask);
  const auto holds = [&](std::int64_t i) {
    const std::uint64_t x = load_bits(a, i) ^ load_bits(b, i);
    return x == 0 ? Said::nothing : said(x == mask);
  };
  out.push_back(scan.count("one_bit", fmt::format("bit {} is flipped", bit), holds, false));
}

/// The exponent k of 2^k that most of the first elements agree on.
std::optional<int> common_exponent(const ReadingScan& scan) {
  std::map<int, int> votes;
  for (std::size_t i = 0; i < scan.differing().size() && i < 256; ++i) {
    const double a = scan.right_value(scan.differing()[i]);
    const double b = scan.seen_value(scan.differing()[i]);
    if (!std::isfinite(a) || !std::isfinite(b) || a == 0 || b == 0) continue;
    int exponent = 0;
    if (std::frexp(b / a, &exponent) == 0.5) ++votes[exponent - 1];
  }
  std::optional<int> best;
  for (const auto& [exponent, count] : votes) {
    if (exponent != 0 && (!best || count > votes[*best])) best = exponent;
  }
  return best;
}

void factors(const ReadingScan& scan, std::vector<Reading>& out) {
  if (!is_float(scan.dtype())) return;
  if (const std::optional<int> k = common_exponent(scan)) {
    const bool scales = scan.dtype() == DType::float8_e8m0fnu;
    out.push_back(scan.count(
        "scale", fmt::format("{} off by a factor of 2^{}", scales ? "the scales are" : "the values are", *k),
        [&scan, k](std::int64_t i) {
          return said(scan.seen_value(i) == std::ldexp(scan.right_value(i), *k));
        },
        false));
  }
  if (scan.dtype() == DType::float8_e8m0fnu) return;
  out.push_back(scan.count(
      "negated", "the values have the other sign",
      [&](std::int64_t i) { return said(scan.seen_value(i) == -scan.right_value(i)); }, false));
  // A factor that is no power of two: each product was rounded, so one step of the format is allowed.
  const std::int64_t largest = [&] {
    std::int64_t best = scan.differing().front();
    for (const std::int64_t i : scan.differing()) {
      if (std::isfinite(scan.right_value(i)) &&
          std::fabs(scan.right_value(i)) > std::fabs(scan.right_value(best)))
        best = i;
    }
    return best;
  }();
  const double factor = scan.seen_value(largest) / scan.right_value(largest);
  const bool plain = scan.dtype() == DType::float32 || scan.dtype() == DType::bfloat16;
  if (!plain || !std::isfinite(factor) || factor == 0 || std::fabs(factor - 1) < 0.03 ||
      scan.differing().size() < 8)
    return;
  out.push_back(scan.count(
      "factor", fmt::format("the values are {:.6g} times what they must be, within one step", factor),
      [&scan, factor](std::int64_t i) {
        const double wanted = factor * scan.right_value(i);
        const double seen = scan.seen_value(i);
        return said(std::fabs(seen - wanted) <= 1.5 * step_at(scan.dtype(), wanted));
      },
      false));
}

void offsets(const ReadingScan& scan, std::vector<Reading>& out) {
  if (scan.dtype() != DType::int32) return;
  const auto a = scan.input().reference->as<std::int32_t>();
  const auto b = scan.input().subject->as<std::int32_t>();
  const auto first = static_cast<std::size_t>(scan.differing().front());
  const std::int64_t by = std::int64_t{b[first]} - a[first];
  out.push_back(scan.count(
      "offset", fmt::format("the numbers are off by {:+}", by),
      [=](std::int64_t at) {
        const auto i = static_cast<std::size_t>(at);
        if (a[i] < 0) return said(a[i] == b[i]);  // nothing is listed there
        return said(b[i] == a[i] + by);
      },
      false));
}

float float_at(const Tensor& bytes, std::int64_t at) {
  float value = 0;
  std::memcpy(&value, bytes.bytes().data() + at, sizeof value);
  return value;
}

/// Scales within packed rows: bytes that count exponents, or f32 of FP8 index rows.
void packed_scales(const ReadingScan& scan, std::vector<Reading>& out) {
  if (!scan.input().packed) return;
  const PackedRow& packed = *scan.input().packed;
  const Tensor& a = *scan.input().reference;
  const Tensor& b = *scan.input().subject;
  const auto is_scale = [&](std::int64_t i) {
    return packed.locate(i % scan.width()).part == PackedPart::scales;
  };
  const std::int64_t first = scan.differing().front();
  if (!is_scale(first)) return;
  if (packed.kind != PackedRow::Kind::index_fp8) {
    const std::int64_t by =
        static_cast<std::int64_t>(load_bits(b, first)) - static_cast<std::int64_t>(load_bits(a, first));
    out.push_back(scan.count(
        "scale", fmt::format("the scales are off by a factor of 2^{}", by),
        [&, by](std::int64_t i) {
          if (!is_scale(i)) return Said::nothing;
          return said(static_cast<std::int64_t>(load_bits(b, i)) ==
                      static_cast<std::int64_t>(load_bits(a, i)) + by);
        },
        false));
    return;
  }
  const auto start = [&](std::int64_t i) {
    const std::int64_t at = i % scan.width() - packed.rows * packed.value_bytes;
    return i - at % packed.scale_bytes;
  };
  int exponent = 0;
  const double ratio = double{float_at(b, start(first))} / double{float_at(a, start(first))};
  if (!std::isfinite(ratio) || std::frexp(ratio, &exponent) != 0.5) return;
  out.push_back(scan.count(
      "scale", fmt::format("the scales are off by a factor of 2^{}", exponent - 1),
      [&, exponent](std::int64_t i) {
        if (!is_scale(i)) return Said::nothing;
        return said(float_at(b, start(i)) == std::ldexp(float_at(a, start(i)), exponent - 1));
      },
      false));
}

void nibbles(const ReadingScan& scan, std::vector<Reading>& out) {
  if (!scan.input().packed || scan.input().packed->kind != PackedRow::Kind::index_fp4) return;
  out.push_back(scan.count(
      "nibbles_swapped", "the two codes of each byte are exchanged",
      [&](std::int64_t i) {
        if (scan.input().packed->locate(i % scan.width()).part != PackedPart::codes) return Said::nothing;
        const std::uint64_t byte = scan.right(i);
        return said(scan.seen(i) == ((byte << 4 | byte >> 4) & 0xFF));
      },
      true));
}

/// f32 values that lost their lower half.
void precision(const ReadingScan& scan, std::vector<Reading>& out) {
  if (scan.dtype() != DType::float32) return;
  out.push_back(scan.count(
      "rounded_to_bf16", "the values were rounded to bf16",
      [&](std::int64_t i) {
        const std::uint64_t bits = scan.right(i);
        const std::uint64_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
        return said(scan.seen(i) == rounded);
      },
      false));
  out.push_back(scan.count(
      "cut_to_bf16", "the values were cut off to bf16, not rounded",
      [&](std::int64_t i) { return said(scan.seen(i) == (scan.right(i) & 0xFFFF0000)); }, false));
}

void one_step(const ReadingScan& scan, std::vector<Reading>& out) {
  if (!is_float(scan.dtype()) || scan.dtype() == DType::float8_e8m0fnu) return;
  const Tensor& a = *scan.input().reference;
  const Tensor& b = *scan.input().subject;
  out.push_back(scan.count(
      "one_step",
      "the values are one step of the format away, which is what another rounding or another order "
      "of a sum leaves",
      [&](std::int64_t i) {
        if (scan.right(i) == scan.seen(i)) return Said::nothing;
        return said(ulp_distance(scan.dtype(), load_bits(a, i), load_bits(b, i)) == 1);
      },
      false));
}

}  // namespace

void read_values(const ReadingScan& scan, std::vector<Reading>& out) {
  // Of many elements the same bit is a sign, an exponent or an offset rather than a flipped bit.
  const bool alone = scan.differing().size() == 1;
  if (alone) flipped_bits(scan, out);
  constants(scan, out);
  packed_scales(scan, out);
  factors(scan, out);
  offsets(scan, out);
  if (!alone) flipped_bits(scan, out);
  nibbles(scan, out);
  precision(scan, out);
  one_step(scan, out);
}

}  // namespace dsv4::compare
