#include "oracle/golden/vectors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "arith/bf16.hpp"
#include "arith/bits.hpp"
#include "arith/e2m1.hpp"
#include "arith/e4m3.hpp"
#include "arith/ue8m0.hpp"
#include "model/seeded.hpp"

namespace dsv4::oracle::golden {
namespace {

constexpr const char* kRevision = "1";  // of docs/numerics.md
constexpr std::uint64_t kSeed = 20260103;

template <class T>
std::string hex(const std::vector<T>& values) {
  return io::to_hex<T>(std::span<const T>(values));
}

std::string hex_floats(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(arith::to_bits(value));
  return hex(bits);
}

void number_tests(io::VectorFile& file) {
  int id = 0;
  for (io::VectorGroup& group : file.groups) {
    for (io::VectorCase& test : group.tests) test.tc_id = ++id;
  }
}

io::VectorCase make_case(std::string comment, std::vector<std::string> flags,
                         std::vector<std::pair<std::string, std::string>> fields) {
  io::VectorCase test;
  test.comment = std::move(comment);
  test.flags = std::move(flags);
  test.fields = std::move(fields);
  return test;
}

// --- conversions (docs/numerics.md 3)
// --------------------------------------------------------------------------------

struct Input {
  const char* comment;
  std::uint32_t bits;
  const char* flag;  ///< empty: an ordinary value
};

constexpr std::array kInputs{
    Input{"+0", 0x00000000U, "zero"},
    Input{"-0", 0x80000000U, "zero"},
    Input{"smallest subnormal", 0x00000001U, "subnormal"},
    Input{"2^-10, half of the smallest e4m3 subnormal", 0x3A800000U, "tie"},
    Input{"3 * 2^-10", 0x3B400000U, "tie"},
    Input{"2^-9, smallest e4m3 subnormal", 0x3B000000U, "subnormal"},
    Input{"0.25, between 0 and 0.5 of e2m1", 0x3E800000U, "tie"},
    Input{"0.75, between 0.5 and 1 of e2m1", 0x3F400000U, "tie"},
    Input{"1", 0x3F800000U, ""},
    Input{"1.0625, between two e4m3 codes", 0x3F880000U, "tie"},
    Input{"1.1875, between two e4m3 codes", 0x3F980000U, "tie"},
    Input{"1 + 2^-8, between two bf16 values", 0x3F808000U, "tie"},
    Input{"1 + 3 * 2^-8", 0x3F818000U, "tie"},
    Input{"1.25, between 1 and 1.5 of e2m1", 0x3FA00000U, "tie"},
    Input{"-1.75", 0xBFE00000U, "tie"},
    Input{"2.5, between 2 and 3 of e2m1", 0x40200000U, "tie"},
    Input{"3.5", 0x40600000U, "tie"},
    Input{"5", 0x40A00000U, "tie"},
    Input{"-6", 0xC0C00000U, ""},
    Input{"6.5, above the largest e2m1", 0x40D00000U, "saturate"},
    Input{"448, largest e4m3", 0x43E00000U, ""},
    Input{"464, would round to 480", 0x43E80000U, "saturate"},
    Input{"-1000", 0xC47A0000U, "saturate"},
    Input{"largest f32", 0x7F7FFFFFU, "saturate"},
    Input{"+inf", 0x7F800000U, "infinity"},
    Input{"-inf", 0xFF800000U, "infinity"},
    Input{"NaN", 0x7FC00000U, "nan"},
    Input{"NaN with a payload and a sign", 0xFFA00001U, "nan"},
};

template <class Convert>
io::VectorGroup conversion_group(const char* to, Convert convert) {
  io::VectorGroup group;
  group.type = "Convert";
  group.labels = {{"from", "float32"}, {"to", to}};
  const auto add = [&](std::string comment, std::uint32_t bits, const char* flag) {
    std::vector<std::string> flags;
    if (*flag != '\0') flags.emplace_back(flag);
    group.tests.push_back(make_case(std::move(comment), flags,
                                    {{"input", hex(std::vector<std::uint32_t>{bits})},
                                     {"output", hex(std::vector{convert(arith::from_bits(bits))})}}));
  };
  for (const Input& input : kInputs) add(input.comment, input.bits, input.flag);
  const SeededStream stream(kSeed, std::string("golden/convert/") + to, 0);
  for (std::uint32_t i = 0; i < 32; ++i) {
    add("seeded", arith::to_bits(static_cast<float>(stream.u(i)) * (i % 2 == 0 ? 0x1p-8F : 0x1.234p-5F)), "");
  }
  return group;
}

io::VectorFile conversions() {
  io::VectorFile file{"convert_v1.json", "conversions from f32", kRevision, {}, {}};
  file.notes = {{"tie", {"EDGE_CASE", "halfway between two codes: nearest even"}},
                {"zero", {"EDGE_CASE", "the sign of zero is kept"}},
                {"subnormal", {"EDGE_CASE", "subnormals are kept, nothing is flushed"}},
                {"saturate", {"EDGE_CASE", "e4m3 and e2m1 saturate, bf16 rounds to infinity"}},
                {"infinity", {"EDGE_CASE", "e4m3 and e2m1 saturate"}},
                {"nan", {"EDGE_CASE", "bf16 0x7fc0, e4m3 0x7f, e2m1 0x7"}}};
  file.groups = {conversion_group("bfloat16", arith::f32_to_bf16),
                 conversion_group("float8_e4m3fn", arith::f32_to_e4m3),
                 conversion_group("float4_e2m1fn", arith::f32_to_e2m1)};
  number_tests(file);
  return file;
}

// --- block quantiser (docs/numerics.md 4)
// ----------------------------------------------------------------------------

struct Format {
  const char* to;
  int block;
  float largest;
  float floor;
  std::uint8_t (*convert)(float);
};

io::VectorCase quantised(const Format& format, std::string comment, std::vector<std::string> flags,
                         const std::vector<float>& values) {
  std::vector<std::uint16_t> input;
  float amax = 0.0F;
  for (const float value : values) {
    input.push_back(arith::f32_to_bf16(value));
    const float magnitude = std::fabs(arith::bf16_to_f32(input.back()));
    amax = magnitude > amax ? magnitude : amax;
  }
  const float floored = format.floor > amax ? format.floor : amax;
  const std::uint8_t scale = arith::ue8m0_scale_for(floored, format.largest);
  std::vector<std::uint8_t> codes;
  for (const std::uint16_t bits : input) {
    codes.push_back(format.convert(arith::bf16_to_f32(bits) * arith::ue8m0_inverse(scale)));
  }
  return make_case(
      std::move(comment), std::move(flags),
      {{"input", hex(input)}, {"scale", hex(std::vector<std::uint8_t>{scale})}, {"codes", hex(codes)}});
}

io::VectorGroup quantiser_group(const Format& format) {
  io::VectorGroup group;
  group.type = "QuantBlock";
  group.parameters = {{"block", format.block}};
  group.labels = {{"from", "bfloat16"}, {"to", format.to}};
  const auto n = static_cast<std::size_t>(format.block);
  const SeededStream stream(kSeed, fmt::format("golden/quant/{}/{}", format.to, format.block), 0);
  std::uint32_t next = 0;
  const auto seeded = [&](float factor) {
    std::vector<float> values(n);
    for (float& value : values) value = static_cast<float>(stream.u(next++)) * factor;
    return values;
  };
  const auto with_largest = [&](float amax) {
    std::vector<float> values = seeded(amax * 0x1p-11F);
    values[n / 3] = -amax;
    return values;
  };
  group.tests.push_back(quantised(format, "seeded, deviation about 1", {}, seeded(0x1p-7F)));
  group.tests.push_back(quantised(format, "seeded, deviation about 2^-13", {}, seeded(0x1p-20F)));
  group.tests.push_back(quantised(format, "seeded, deviation about 2^10", {}, seeded(0x1p3F)));
  group.tests.push_back(
      quantised(format, "largest magnitude exactly M: scale 2^0", {"carry"}, with_largest(format.largest)));
  group.tests.push_back(quantised(format, "one bf16 step above M: the next exponent", {"carry"},
                                  with_largest(format.largest * 1.0078125F)));
  group.tests.push_back(
      quantised(format, "largest magnitude M * 2^-5", {"carry"}, with_largest(format.largest * 0x1p-5F)));
  group.tests.push_back(
      quantised(format, "all zero: the scale of the floor", {"floor"}, std::vector<float>(n, 0.0F)));
  std::vector<float> below(n, 0.0F);
  below[1] = format.floor * 0.25F;
  below[2] = -format.floor * 0.125F;
  group.tests.push_back(quantised(format, "below the floor", {"floor"}, below));
  std::vector<float> ties(n, 0.0F);
  for (std::size_t i = 0; i < n; ++i)
    ties[i] = (i % 2 == 0 ? 1.0F : -1.0F) * static_cast<float>(i % 16) * 0x1p-2F;
  ties[0] = format.largest;
  ties[1] = 1.0625F;
  ties[2] = -1.1875F;
  group.tests.push_back(quantised(format, "values halfway between codes", {"tie"}, ties));
  std::vector<float> negative_zero(n, -0.0F);
  negative_zero[5] = 1.0F;
  group.tests.push_back(quantised(format, "negative zeros", {"zero"}, negative_zero));
  std::vector<float> infinite = seeded(0x1p-7F);
  infinite[3] = std::numeric_limits<float>::infinity();
  group.tests.push_back(quantised(format, "an infinity: scale byte 254", {"infinity"}, infinite));
  return group;
}

io::VectorFile quantiser() {
  io::VectorFile file{"quant_block_v1.json", "block quantiser", kRevision, {}, {}};
  file.notes = {
      {"carry", {"EDGE_CASE", "the largest magnitude divided by M is a power of two, or just above one"}},
      {"floor", {"EDGE_CASE", "the largest magnitude is below the floor"}},
      {"tie", {"EDGE_CASE", "halfway between two codes: nearest even"}},
      {"zero", {"EDGE_CASE", "the sign of zero is kept"}},
      {"infinity", {"EDGE_CASE", "the exponent is capped"}}};
  const float e4m3_floor = arith::from_bits(0x38D1B717U);
  file.groups = {quantiser_group({"float8_e4m3fn", 64, 448.0F, e4m3_floor, arith::f32_to_e4m3}),
                 quantiser_group({"float8_e4m3fn", 128, 448.0F, e4m3_floor, arith::f32_to_e4m3}),
                 quantiser_group({"float4_e2m1fn", 32, 6.0F, 6.0F * 0x1p-126F, arith::f32_to_e2m1})};
  number_tests(file);
  return file;
}

// --- selection (docs/numerics.md 2 and 13)
// ---------------------------------------------------------------------------

io::VectorCase selection(std::string comment, std::vector<std::string> flags,
                         const std::vector<float>& scores, int k) {
  // Rank 0: numbers, 1: -inf, 2: NaN; -0 equals +0; equal: lower index first.
  const auto rank = [&](int i) {
    const float score = scores[static_cast<std::size_t>(i)];
    return std::isnan(score) ? 2 : score == -std::numeric_limits<float>::infinity() ? 1 : 0;
  };
  std::vector<int> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    return rank(a) == 0 && scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  order.resize(std::min<std::size_t>(order.size(), static_cast<std::size_t>(k)));
  const std::size_t count = order.size();
  std::vector<int> ascending = order;
  std::ranges::sort(ascending);
  const auto text = [&](std::vector<int> list) {
    list.resize(static_cast<std::size_t>(k), -1);
    std::vector<std::uint32_t> bits;
    for (const int index : list) bits.push_back(static_cast<std::uint32_t>(index));
    return hex(bits);
  };
  return make_case(std::move(comment), std::move(flags),
                   {{"scores", hex_floats(scores)},
                    {"k", std::to_string(k)},
                    {"ascending", text(ascending)},
                    {"descending", text(order)},
                    {"count", std::to_string(count)}});
}

io::VectorFile top_k() {
  io::VectorFile file{"top_k_v1.json", "selection of the highest scores", kRevision, {}, {}};
  file.notes = {{"tie", {"EDGE_CASE", "equal scores: the lower index first"}},
                {"zero", {"EDGE_CASE", "-0 equals +0"}},
                {"nan", {"EDGE_CASE", "NaN comes last"}},
                {"infinity", {"EDGE_CASE", "-inf comes after every number, before NaN"}},
                {"padding", {"EDGE_CASE", "fewer scores than k: -1 behind them"}}};
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  io::VectorGroup group;
  group.type = "TopK";
  group.tests = {
      selection("distinct", {}, {0.5F, -1.0F, 3.0F, 2.0F, 0.25F, 7.0F}, 3),
      selection("a tie at the cut", {"tie"}, {1.0F, 2.0F, 1.0F, 3.0F, 1.0F, 1.0F}, 4),
      selection("all equal", {"tie"}, {0.0F, 0.0F, 0.0F, 0.0F, 0.0F}, 2),
      selection("zeros of both signs at the cut", {"tie", "zero"}, {-0.0F, 0.0F, -0.0F, 1.0F, 0.0F}, 3),
      selection("fewer than k", {"padding"}, {4.0F, 5.0F}, 8),
      selection("none", {"padding"}, {}, 4),
      selection("-inf before NaN", {"infinity", "nan"}, {kNan, -kInf, -1e30F, kNan, -kInf}, 3),
      selection("NaN never beats a number", {"nan"}, {kNan, -3.0F, kNan, -2.0F, kInf}, 3),
      selection("exactly k", {}, {1.0F, 2.0F, 3.0F, 4.0F}, 4)};
  std::vector<float> seeded;
  const SeededStream stream(kSeed, "golden/top_k", 0);
  for (std::uint32_t i = 0; i < 64; ++i) seeded.push_back(static_cast<float>(stream.u(i) / 64));
  group.tests.push_back(selection("seeded, many ties", {"tie"}, seeded, 16));
  file.groups = {group};
  number_tests(file);
  return file;
}

// --- addresses (docs/numerics.md 12.2 and 20)
// ------------------------------------------------------------------------

io::VectorFile ring_index() {
  io::VectorFile file{"ring_index_v1.json", "addresses of compressor state", kRevision, {}, {}};
  file.notes = {{"wrap", {"EDGE_CASE", "the position is a multiple of the ring"}}};
  for (const int rows : {8, 16, 128, 256}) {
    io::VectorGroup group;
    group.type = "RingIndex";
    group.parameters = {{"ring_rows", rows}};
    for (const int base : {0, 3}) {
      for (const int position : {0, 1, 3, 7, 8, 15, 16, 127, 128, 129, 255, 256, 65535, 1048575}) {
        std::vector<std::string> flags;
        if (position > 0 && position % rows == 0) flags.emplace_back("wrap");
        group.tests.push_back(
            make_case("", flags,
                      {{"base", std::to_string(base)},
                       {"position", std::to_string(position)},
                       {"slot", std::to_string(std::int64_t{base} * rows + position % rows)}}));
      }
    }
    file.groups.push_back(std::move(group));
  }
  number_tests(file);
  return file;
}

}  // namespace

std::vector<std::pair<std::string, io::VectorFile>> vector_files() {
  return {{"convert", conversions()},
          {"quant_block", quantiser()},
          {"top_k", top_k()},
          {"ring_index", ring_index()}};
}

}  // namespace dsv4::oracle::golden
