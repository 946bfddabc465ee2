#include "compare/judge.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "arith/f16.hpp"
#include "compare/element.hpp"
#include "compare/judge_parts.hpp"
#include "model/geometry.hpp"

namespace dsv4::compare {
namespace {

// One element read on both sides, with the larger step of the two formats at these values.
struct Reading {
  double reference = 0;
  double subject = 0;
  double step = 0;
  std::int64_t ulp = 0;
};

Judgement decide(const Reading& reading, const Limits& limits, double rms) {
  Judgement result;
  result.value_equal = same_number(reading.reference, reading.subject);
  result.ulp = reading.ulp;
  result.absolute = distance(reading.reference, reading.subject);
  result.relative = result.absolute == 0 ? 0 : result.absolute / std::abs(reading.reference);
  const Rule& rule = limits.rule;
  if (rule.kind == Rule::Kind::ulp) {
    result.within = result.ulp <= rule.ulp;
  } else if (rule.kind == Rule::Kind::tolerance) {
    result.within =
        (rule.ulp > 0 && result.ulp <= rule.ulp) ||
        result.absolute <= rule.absolute + rule.rms * rms + rule.relative * std::abs(reading.reference);
  }
  if (!std::isfinite(result.absolute)) result.within = false;
  result.within = result.within || result.value_equal;
  result.ordering = result.value_equal || (limits.ordering_in_rms > 0 &&
                                           result.absolute <= limits.ordering_in_rms * rms + reading.step);
  return result;
}

// Root mean square of the finite elements of a tensor.
double rms_of(const Tensor& tensor) {
  double squares = 0;
  std::int64_t finite = 0;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const double value = decode(tensor.dtype(), load_bits(tensor, i));
    if (!std::isfinite(value)) continue;
    squares += value * value;
    ++finite;
  }
  return finite == 0 ? 0 : std::sqrt(squares / static_cast<double>(finite));
}

bool needs_rms(const Limits& limits) {
  return limits.rule.rms > 0 || limits.ordering_in_rms > 0;
}

class PlainJudge : public ElementJudge {
 public:
  PlainJudge(const Tensor& reference, const Tensor& subject, const Limits& limits)
      : reference_(reference),
        subject_(subject),
        limits_(limits),
        rms_(needs_rms(limits) ? rms_of(reference) : 0) {}

  Judgement judge(std::int64_t i) const override {
    const std::uint64_t a = load_bits(reference_, i);
    const std::uint64_t b = load_bits(subject_, i);
    Reading reading{decode(reference_.dtype(), a), decode(subject_.dtype(), b)};
    reading.step = std::max(step_at(reference_.dtype(), reading.reference),
                            step_at(reference_.dtype(), reading.subject));
    if (reference_.dtype() == subject_.dtype()) {
      reading.ulp = ulp_distance(reference_.dtype(), a, b);
    } else {
      const double steps = distance(reading.reference, reading.subject) / reading.step;
      reading.ulp = steps < 1e18 ? static_cast<std::int64_t>(std::ceil(steps)) : kFar;
    }
    return decide(reading, limits_, rms_);
  }
  ElementValue reference(std::int64_t i) const override { return value(reference_, i); }
  ElementValue subject(std::int64_t i) const override { return value(subject_, i); }

 private:
  static ElementValue value(const Tensor& tensor, std::int64_t i) {
    const std::uint64_t bits = load_bits(tensor, i);
    return {
        .hex = hex(tensor.dtype(), bits), .value = decode(tensor.dtype(), bits), .decoded = {}, .score = {}};
  }
  const Tensor& reference_;
  const Tensor& subject_;
  Limits limits_;
  double rms_;
};

class CodesJudge : public ElementJudge {
 public:
  CodesJudge(Quantised reference, Quantised subject, const Limits& limits)
      : reference_(reference),
        subject_(subject),
        limits_(limits),
        blocks_(*reference.codes, reference.scales) {}

  Judgement judge(std::int64_t i) const override {
    const DType dtype = reference_.codes->dtype();
    const std::uint64_t a = load_bits(*reference_.codes, i);
    const std::uint64_t b = load_bits(*subject_.codes, i);
    const double scale_a = scale(reference_, i);
    const double scale_b = scale(subject_, i);
    Reading reading{decode(dtype, a) * scale_a, decode(dtype, b) * scale_b};
    reading.step =
        std::max(step_at(dtype, decode(dtype, a)) * scale_a, step_at(dtype, decode(dtype, b)) * scale_b);
    if (same_number(scale_a, scale_b)) {
      reading.ulp = ulp_distance(dtype, a, b);
    } else {
      const double steps = distance(reading.reference, reading.subject) / reading.step;
      reading.ulp = steps < 1e18 ? static_cast<std::int64_t>(std::ceil(steps)) : kFar;
    }
    return decide(reading, limits_, needs_rms(limits_) ? block_rms(blocks_.scale_of(i)) : 0);
  }
  ElementValue reference(std::int64_t i) const override { return value(reference_, i); }
  ElementValue subject(std::int64_t i) const override { return value(subject_, i); }

 private:
  // Of one block of the reference; blocks are asked for one after the other.
  double block_rms(std::int64_t block) const {
    if (block == rms_block_) return rms_;
    double squares = 0;
    const std::int64_t first = blocks_.first_code(block);
    for (std::int64_t i = first; i < first + blocks_.size; ++i) {
      const double value = dequantised(reference_, i);
      if (std::isfinite(value)) squares += value * value;
    }
    rms_block_ = block;
    rms_ = std::sqrt(squares / static_cast<double>(blocks_.size));
    return rms_;
  }
  double scale(const Quantised& side, std::int64_t i) const {
    if (side.scales == nullptr) return 1;
    return decode(side.scales->dtype(), load_bits(*side.scales, blocks_.scale_of(i)));
  }
  double dequantised(const Quantised& side, std::int64_t i) const {
    return decode(side.codes->dtype(), load_bits(*side.codes, i)) * scale(side, i);
  }
  ElementValue value(const Quantised& side, std::int64_t i) const {
    const std::uint64_t bits = load_bits(*side.codes, i);
    return {.hex = hex(side.codes->dtype(), bits),
            .value = decode(side.codes->dtype(), bits),
            .decoded = dequantised(side, i),
            .score = {}};
  }
  Quantised reference_;
  Quantised subject_;
  Limits limits_;
  Blocks blocks_;
  mutable std::int64_t rms_block_ = -1;
  mutable double rms_ = 0;
};

// The worst of several elements stands for all.
void worsen(Judgement& total, const Judgement& part) {
  total.value_equal = total.value_equal && part.value_equal;
  total.within = total.within && part.within;
  total.ordering = total.ordering && part.ordering;
  total.ulp = std::max(total.ulp, part.ulp);
  total.absolute = std::max(total.absolute, part.absolute);
  total.relative = std::max(total.relative, part.relative);
}

constexpr Judgement kBest{true, true, true, 0, 0, 0, std::nullopt};

class ScalesJudge : public ElementJudge {
 public:
  ScalesJudge(Quantised reference, Quantised subject, const Limits& limits)
      : plain_(*reference.scales, *subject.scales, limits),
        codes_(reference, subject, limits),
        blocks_(*reference.codes, reference.scales) {}

  Judgement judge(std::int64_t i) const override {
    Judgement result = kBest;
    const std::int64_t first = blocks_.first_code(i);
    for (std::int64_t code = first; code < first + blocks_.size; ++code) worsen(result, codes_.judge(code));
    const Judgement scale = plain_.judge(i);
    result.absolute = scale.absolute;
    result.relative = scale.relative;
    result.ulp = scale.ulp;
    return result;
  }
  ElementValue reference(std::int64_t i) const override { return plain_.reference(i); }
  ElementValue subject(std::int64_t i) const override { return plain_.subject(i); }

 private:
  PlainJudge plain_;
  CodesJudge codes_;
  Blocks blocks_;
};

/// bf16 rows as a bf16 tensor; f16 rows as float32 values, since no published tensor is f16.
Tensor half_values(const Tensor& rows, bool f16) {
  Tensor values(f16 ? DType::float32 : DType::bfloat16, {rows.dim(0), rows.dim(1) / 2});
  for (std::int64_t i = 0; i < values.elements(); ++i) {
    std::uint16_t code = 0;
    std::memcpy(&code, rows.bytes().data() + 2 * i, sizeof code);
    if (f16) {
      values.as<float>()[static_cast<std::size_t>(i)] = arith::f16_to_f32(code);
    } else {
      values.as<std::uint16_t>()[static_cast<std::size_t>(i)] = code;
    }
  }
  return values;
}

class HalfRowsJudge : public ElementJudge {
 public:
  HalfRowsJudge(const Tensor& reference, const Tensor& subject, bool f16, const Limits& limits)
      : reference_(half_values(reference, f16)),
        subject_(half_values(subject, f16)),
        values_(reference_, subject_, limits) {}

  Judgement judge(std::int64_t i) const override { return values_.judge(i / 2); }
  ElementValue reference(std::int64_t i) const override { return values_.reference(i / 2); }
  ElementValue subject(std::int64_t i) const override { return values_.subject(i / 2); }

 private:
  Tensor reference_;
  Tensor subject_;
  PlainJudge values_;
};

class BytesJudge : public ElementJudge {
 public:
  BytesJudge(const Tensor& reference, const Tensor& subject, const PackedRow& layout, const Limits& limits)
      : reference_(reference),
        subject_(subject),
        layout_(layout),
        limits_(limits),
        row_bytes_(reference.dim(1)) {}

  Judgement judge(std::int64_t i) const override {
    const std::int64_t page = i / row_bytes_;
    const PackedByte where = layout_.locate(i % row_bytes_);
    switch (where.part) {
      case PackedPart::codes: {
        Judgement result = code(page, where.row, where.first);
        if (layout_.kind == PackedRow::Kind::index_fp4)
          worsen(result, code(page, where.row, where.first + 1));
        return result;
      }
      case PackedPart::rope:
        return rope(page, where);
      case PackedPart::scales: {
        Judgement result = kBest;
        const std::int64_t first = where.first * layout_.block;
        for (std::int64_t dim = first; dim < first + layout_.block; ++dim) {
          worsen(result, code(page, where.row, dim));
        }
        return result;
      }
      default:
        return {};
    }
  }
  ElementValue reference(std::int64_t i) const override { return value(reference_, i); }
  ElementValue subject(std::int64_t i) const override { return value(subject_, i); }

 private:
  std::uint64_t byte(const Tensor& tensor, std::int64_t page, std::int64_t offset) const {
    return load_bits(tensor, page * row_bytes_ + offset);
  }
  DType code_type() const {
    return layout_.kind == PackedRow::Kind::index_fp4 ? DType::float4_e2m1fn : DType::float8_e4m3fn;
  }
  std::uint64_t code_bits(const Tensor& tensor, std::int64_t page, std::int64_t row, std::int64_t dim) const {
    const std::uint64_t bits = byte(tensor, page, layout_.code_byte(row, dim));
    if (layout_.kind != PackedRow::Kind::index_fp4) return bits;
    return dim % 2 == 0 ? bits & 0xF : bits >> 4;
  }
  double scale(const Tensor& tensor, std::int64_t page, std::int64_t row, std::int64_t dim) const {
    const std::int64_t first = layout_.scale_byte(row, dim / layout_.block);
    if (layout_.kind != PackedRow::Kind::index_fp8) {
      return decode(DType::float8_e8m0fnu, byte(tensor, page, first));
    }
    std::uint64_t bits = 0;
    for (std::int64_t k = 0; k < 4; ++k) bits |= byte(tensor, page, first + k) << (8 * k);
    return decode(DType::float32, bits);
  }
  Judgement code(std::int64_t page, std::int64_t row, std::int64_t dim) const {
    const std::uint64_t a = code_bits(reference_, page, row, dim);
    const std::uint64_t b = code_bits(subject_, page, row, dim);
    const double scale_a = scale(reference_, page, row, dim);
    const double scale_b = scale(subject_, page, row, dim);
    Reading reading{decode(code_type(), a) * scale_a, decode(code_type(), b) * scale_b};
    reading.step = std::max(step_at(code_type(), decode(code_type(), a)) * scale_a,
                            step_at(code_type(), decode(code_type(), b)) * scale_b);
    if (same_number(scale_a, scale_b)) {
      reading.ulp = ulp_distance(code_type(), a, b);
    } else {
      const double steps = distance(reading.reference, reading.subject) / reading.step;
      reading.ulp = steps < 1e18 ? static_cast<std::int64_t>(std::ceil(steps)) : kFar;
    }
    return decide(reading, limits_, rms(page, row, dim / layout_.block));
  }
  std::uint64_t rope_bits(const Tensor& tensor, std::int64_t page, std::int64_t row, std::int64_t dim) const {
    const std::int64_t first = layout_.rope_byte(row, dim);
    return byte(tensor, page, first) | byte(tensor, page, first + 1) << 8;
  }
  Judgement rope(std::int64_t page, const PackedByte& where) const {
    const std::uint64_t a = rope_bits(reference_, page, where.row, where.first);
    const std::uint64_t b = rope_bits(subject_, page, where.row, where.first);
    Reading reading{decode(DType::bfloat16, a), decode(DType::bfloat16, b)};
    reading.step =
        std::max(step_at(DType::bfloat16, reading.reference), step_at(DType::bfloat16, reading.subject));
    reading.ulp = ulp_distance(DType::bfloat16, a, b);
    return decide(reading, limits_, rms(page, where.row, kRopePart));
  }
  // Of one block of codes of the reference, or of its RoPE part; parts are asked for one after the other.
  double rms(std::int64_t page, std::int64_t row, std::int64_t block) const {
    const std::array<std::int64_t, 3> part{page, row, block};
    if (part == rms_part_) return rms_;
    const bool rope = block == kRopePart;
    const std::int64_t size = rope ? kRopeDim : layout_.block;
    double squares = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t dim = block * size + i;
      const double value = rope ? decode(DType::bfloat16, rope_bits(reference_, page, row, i))
                                : decode(code_type(), code_bits(reference_, page, row, dim)) *
                                      scale(reference_, page, row, dim);
      if (std::isfinite(value)) squares += value * value;
    }
    rms_part_ = part;
    rms_ = std::sqrt(squares / static_cast<double>(size));
    return rms_;
  }
  ElementValue value(const Tensor& tensor, std::int64_t i) const {
    const std::int64_t page = i / row_bytes_;
    const PackedByte where = layout_.locate(i % row_bytes_);
    ElementValue result{.hex = hex(DType::uint8, load_bits(tensor, i)),
                        .value = static_cast<double>(load_bits(tensor, i)),
                        .decoded = {},
                        .score = {}};
    if (where.part == PackedPart::codes) {
      result.decoded = decode(code_type(), code_bits(tensor, page, where.row, where.first)) *
                       scale(tensor, page, where.row, where.first);
    } else if (where.part == PackedPart::rope) {
      result.decoded = decode(DType::bfloat16, rope_bits(tensor, page, where.row, where.first));
    } else if (where.part == PackedPart::scales) {
      result.decoded = scale(tensor, page, where.row, where.first * layout_.block);
    }
    return result;
  }

  const Tensor& reference_;
  const Tensor& subject_;
  PackedRow layout_;
  Limits limits_;
  std::int64_t row_bytes_;
  static constexpr std::int64_t kRopePart = -1;
  mutable std::array<std::int64_t, 3> rms_part_{-1, -1, -1};
  mutable double rms_ = 0;
};

}  // namespace

std::unique_ptr<ElementJudge> plain_judge(const Tensor& reference, const Tensor& subject,
                                          const Limits& limits) {
  return std::make_unique<PlainJudge>(reference, subject, limits);
}

std::unique_ptr<ElementJudge> codes_judge(Quantised reference, Quantised subject, const Limits& limits) {
  if (reference.scales == nullptr || subject.scales == nullptr) {
    reference.scales = nullptr;
    subject.scales = nullptr;
  }
  return std::make_unique<CodesJudge>(reference, subject, limits);
}

std::unique_ptr<ElementJudge> scales_judge(Quantised reference, Quantised subject, const Limits& limits) {
  if (reference.codes != nullptr && subject.codes != nullptr) {
    return std::make_unique<ScalesJudge>(reference, subject, limits);
  }
  Limits alone = limits;
  if (alone.rule.ulp > 0) alone.rule = Rule{};
  alone.ordering_in_rms = 0;
  return std::make_unique<PlainJudge>(*reference.scales, *subject.scales, alone);
}

std::unique_ptr<ElementJudge> bytes_judge(const Tensor& reference, const Tensor& subject,
                                          const PackedRow& layout, const Limits& limits) {
  return std::make_unique<BytesJudge>(reference, subject, layout, limits);
}

std::unique_ptr<ElementJudge> half_rows_judge(const Tensor& reference, const Tensor& subject, bool f16,
                                              const Limits& limits) {
  return std::make_unique<HalfRowsJudge>(reference, subject, f16, limits);
}

}  // namespace dsv4::compare
