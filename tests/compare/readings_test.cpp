// Differences made by hand, each by its own loop; what reads them is named by what was done.
#include "compare/readings.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::compare;

namespace {

/// Numbers without a pattern that a reading could take for its own.
std::uint32_t scrambled(std::uint32_t x) {
  x = (x ^ 61U) ^ (x >> 16U);
  x *= 9U;
  x ^= x >> 4U;
  x *= 0x27d4eb2dU;
  return x ^ (x >> 15U);
}

Tensor floats(std::vector<std::int64_t> shape, std::uint32_t seed = 1) {
  Tensor tensor(DType::float32, std::move(shape));
  std::uint32_t at = seed * 100003U;
  for (float& value : tensor.as<float>())
    value = (static_cast<float>(scrambled(at++) % 20011U) - 10007.5F) / 777.0F;
  return tensor;
}

Tensor halves(std::vector<std::int64_t> shape, std::uint32_t seed = 1) {
  Tensor tensor(DType::bfloat16, std::move(shape));
  std::uint32_t at = seed * 100003U;
  for (std::uint16_t& value : tensor.as<std::uint16_t>())
    value = static_cast<std::uint16_t>(0x3F00U + scrambled(at++) % 0x180U);
  return tensor;
}

Tensor bytes(std::int64_t rows, std::int64_t width, std::uint32_t seed = 1) {
  Tensor tensor(DType::uint8, {rows, width});
  std::uint32_t at = seed * 100003U;
  for (std::uint8_t& value : tensor.as<std::uint8_t>())
    value = static_cast<std::uint8_t>(scrambled(at++) % 251U);
  return tensor;
}

std::vector<Reading> read(const Tensor& reference, const Tensor& subject, std::int64_t rotated = 0,
                          const Tensor* previous = nullptr) {
  ReadingInput input;
  input.reference = &reference;
  input.subject = &subject;
  input.rotated = rotated;
  input.previous = previous;
  return readings(input);
}

std::vector<Reading> read_packed(const Tensor& reference, const Tensor& subject, std::int64_t row_bytes,
                                 std::int64_t rows = 1) {
  ReadingInput input;
  input.reference = &reference;
  input.subject = &subject;
  input.packed = PackedRow::of_row_bytes(row_bytes)->with_rows(rows);
  return readings(input);
}

const Reading* named(const std::vector<Reading>& all, const std::string& name) {
  const auto found = std::ranges::find(all, name, &Reading::name);
  return found == all.end() ? nullptr : &*found;
}

/// The best reading is this one, and it is certain.
void check_best(const std::vector<Reading>& all, const std::string& name, const std::string& words = "") {
  REQUIRE_FALSE(all.empty());
  CAPTURE(all.front().name, all.front().sentence);
  CHECK(all.front().name == name);
  CHECK(all.front().certain());
  CHECK(all.front().sentence.find(words) != std::string::npos);
  CHECK(all.size() <= 3);
}

}  // namespace

TEST_CASE("equal tensors, other shapes and unrelated numbers have no reading") {
  const Tensor a = floats({4, 64});
  CHECK(read(a, a).empty());
  CHECK(read(a, floats({64, 4})).empty());
  CHECK(read(a, floats({4, 64}, 7)).empty());
  CHECK(read(halves({4, 64}), halves({4, 64}, 9)).empty());
}

TEST_CASE("halves of a row exchanged, in one row of three") {
  const Tensor a = floats({3, 64});
  Tensor b = a;
  for (int i = 0; i < 32; ++i) std::swap(b.as<float>()[64 + i], b.as<float>()[64 + 32 + i]);
  check_best(read(a, b), "halves_swapped", "32 elements");
}

TEST_CASE("lanes of a rotated part in the order of the other pairing") {
  const Tensor a = halves({2, 3, 512});
  Tensor b = a;
  for (int unit = 0; unit < 6; ++unit) {
    for (int i = 0; i < 32; ++i) {
      b.as<std::uint16_t>()[unit * 512 + 448 + i] = a.as<std::uint16_t>()[unit * 512 + 448 + 2 * i];
      b.as<std::uint16_t>()[unit * 512 + 448 + 32 + i] = a.as<std::uint16_t>()[unit * 512 + 448 + 2 * i + 1];
    }
  }
  check_best(read(a, b, 64), "pairs_as_halves", "rotated lanes");
  check_best(read(b, a, 64), "halves_as_pairs", "rotated lanes");
}

TEST_CASE("neighbours exchanged, a row reversed") {
  const Tensor a = floats({2, 32});
  Tensor b = a;
  for (int i = 0; i < 64; i += 2) std::swap(b.as<float>()[i], b.as<float>()[i + 1]);
  check_best(read(a, b), "neighbours_swapped");
  Tensor c = a;
  std::reverse(c.as<float>().begin(), c.as<float>().begin() + 32);
  check_best(read(a, c), "reversed");
}

TEST_CASE("a block shifted by 8, and one that turns round") {
  const Tensor a = floats({2, 128});
  Tensor b = a;
  for (int row = 0; row < 2; ++row) {
    for (int i = 0; i < 128; ++i) b.as<float>()[row * 128 + i] = a.as<float>()[row * 128 + (i + 120) % 128];
  }
  check_best(read(a, b), "shifted_block", "turned by +8");
  Tensor c = a;
  for (int row = 0; row < 2; ++row) {
    for (int i = 4; i < 128; ++i) c.as<float>()[row * 128 + i] = a.as<float>()[row * 128 + i - 4];
  }
  // The first four are as they were: the rest is predicted, nothing speaks against it.
  check_best(read(a, c), "shifted_block", "shifted by +4");
}

TEST_CASE("rows from one row further on, and rows of other rows") {
  const Tensor a = floats({6, 16});
  Tensor b = a;
  for (int row = 1; row < 5; ++row)
    std::copy_n(a.as<float>().begin() + (row - 1) * 16, 16, b.as<float>().begin() + row * 16);
  check_best(read(a, b), "neighbouring_row", "row i-1");
  Tensor c = a;
  std::swap_ranges(c.as<float>().begin(), c.as<float>().begin() + 16, c.as<float>().begin() + 3 * 16);
  check_best(read(a, c), "rows_elsewhere", "0 holds 3, 3 holds 0");
}

TEST_CASE("heads: neighbours, transposed with lanes, tokens and groups") {
  const Tensor a = floats({3, 4, 16});
  const auto at = [](int token, int head, int dim) { return (token * 4 + head) * 16 + dim; };
  Tensor next = a;
  Tensor lanes = a;
  Tensor groups = a;
  for (int t = 0; t < 3; ++t) {
    for (int h = 0; h < 4; ++h) {
      for (int d = 0; d < 16; ++d) {
        if (h < 3) next.as<float>()[at(t, h, d)] = a.as<float>()[at(t, h + 1, d)];
        lanes.as<float>()[t * 64 + d * 4 + h] = a.as<float>()[at(t, h, d)];
        groups.as<float>()[at(t, h, d)] = a.as<float>()[at(t, h % 2 * 2 + h / 2, d)];
      }
    }
  }
  check_best(read(a, next), "neighbouring_head", "head h+1");
  check_best(read(a, lanes), "transposed_heads", "heads and lanes");
  check_best(read(a, groups), "transposed_heads", "2 groups");
  Tensor tokens = a;
  for (int t = 0; t < 3; ++t) {
    for (int h = 0; h < 4; ++h) {
      // The memory is [head, token] although it is read as [token, head].
      const int flat = h * 3 + t;
      std::copy_n(a.as<float>().begin() + at(t, h, 0), 16, tokens.as<float>().begin() + flat * 16);
    }
  }
  check_best(read(a, tokens), "transposed_heads", "tokens and heads");
}

TEST_CASE("the step before") {
  const Tensor a = floats({2, 32});
  const Tensor before = floats({5, 32}, 4);
  Tensor first = a;
  std::copy_n(before.as<float>().begin(), 64, first.as<float>().begin());
  check_best(read(a, first, 0, &before), "previous_step", "of the step before");
  Tensor last = a;
  std::copy_n(before.as<float>().begin() + 3 * 32, 64, last.as<float>().begin());
  check_best(read(a, last, 0, &before), "previous_step", "last ones");
  CHECK(named(read(a, floats({2, 32}, 8), 0, &before), "previous_step") == nullptr);
}

TEST_CASE("powers of two, other factors, signs") {
  const Tensor a = floats({2, 64});
  Tensor scaled = a;
  for (int i = 0; i < 64; ++i) scaled.as<float>()[i] *= 8.0F;
  check_best(read(a, scaled), "scale", "2^3");
  Tensor odd = a;
  for (float& value : odd.as<float>()) value *= 22.627417F;
  check_best(read(a, odd), "factor", "22.627");
  Tensor negative = a;
  for (int i = 64; i < 128; ++i) negative.as<float>()[i] = -negative.as<float>()[i];
  check_best(read(a, negative), "negated");
  Tensor scales(DType::float8_e8m0fnu, {2, 7});
  for (int i = 0; i < 14; ++i)
    scales.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(100 + scrambled(i) % 30);
  Tensor up = scales;
  for (std::uint8_t& value : up.as<std::uint8_t>()) ++value;
  check_best(read(scales, up), "scale", "scales are off by a factor of 2^1");
}

TEST_CASE("zero, NaN, memory that was never written") {
  const Tensor a = halves({2, 16});
  const auto filled = [&](std::uint16_t bits) {
    Tensor b = a;
    std::fill_n(b.as<std::uint16_t>().begin() + 16, 16, bits);
    return b;
  };
  check_best(read(a, filled(0)), "zero");
  check_best(read(a, filled(0x7FC0)), "nan");
  check_best(read(a, filled(0xFFFF)), "unwritten");
}

TEST_CASE("numbers off by one; entries of a list that list nothing stay") {
  Tensor a(DType::int32, {3, 4});
  const std::int32_t values[]{7, 3, 9, -1, 4, 8, 2, -1, 30, 1, 6, -1};
  std::ranges::copy(values, a.as<std::int32_t>().begin());
  Tensor b = a;
  for (std::int32_t& value : b.as<std::int32_t>()) value += value >= 0 ? 1 : 0;
  check_best(read(a, b), "offset", "+1");
  Tensor c = a;
  for (std::int32_t& value : c.as<std::int32_t>()) value += 1;  // an empty place became 0
  CHECK(named(read(a, c), "offset") == nullptr);
}

TEST_CASE("one bit, lost precision, one step, another order") {
  const Tensor a = floats({4, 32});
  Tensor bit = a;
  bit.bytes()[4 * 17 + 2] ^= std::byte{0x10};
  check_best(read(a, bit), "one_bit", "bit 20");
  Tensor rounded = a;
  Tensor cut = a;
  Tensor step = a;
  for (std::size_t i = 0; i < 128; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, a.bytes().data() + 4 * i, 4);
    // Nearest, by arithmetic on the two neighbours instead of on bits.
    const std::uint32_t low = bits & 0xFFFF0000U;
    const std::uint32_t high = low + 0x10000U;
    float below = 0;
    float above = 0;
    std::memcpy(&below, &low, 4);
    std::memcpy(&above, &high, 4);
    const double x = a.as<float>()[i];
    rounded.as<float>()[i] = std::fabs(x - below) < std::fabs(above - x) ? below : above;
    cut.as<float>()[i] = below;
    step.as<float>()[i] = std::nextafter(a.as<float>()[i], i % 3 == 0 ? 1e9F : -1e9F);
  }
  check_best(read(a, rounded), "rounded_to_bf16");
  check_best(read(a, cut), "cut_to_bf16");
  check_best(read(a, step), "one_step");
  Tensor order(DType::int32, {2, 8});
  for (int i = 0; i < 16; ++i) order.as<std::int32_t>()[i] = static_cast<std::int32_t>(scrambled(i) % 1000U);
  Tensor other = order;
  std::rotate(other.as<std::int32_t>().begin(), other.as<std::int32_t>().begin() + 3,
              other.as<std::int32_t>().begin() + 5);
  std::swap(other.as<std::int32_t>()[9], other.as<std::int32_t>()[14]);
  check_best(read(order, other), "other_order");
}

TEST_CASE("packed rows: scale bytes, halves of the codes, nibbles, spare bytes") {
  const Tensor a = bytes(3, 584);
  Tensor scale = a;
  for (int i = 576; i < 583; ++i) ++scale.as<std::uint8_t>()[584 + i];
  check_best(read_packed(a, scale, 584), "scale", "2^1");
  Tensor half = a;
  for (int i = 0; i < 224; ++i)
    std::swap(half.as<std::uint8_t>()[2 * 584 + i], half.as<std::uint8_t>()[2 * 584 + 224 + i]);
  check_best(read_packed(a, half, 584), "halves_swapped", "the codes");
  Tensor spare = a;
  spare.as<std::uint8_t>()[583] ^= 0x55;
  CHECK(read_packed(a, spare, 584).empty());
  const Tensor narrow = bytes(2, 68);
  Tensor nibbles = narrow;
  for (int row = 0; row < 2; ++row) {
    for (int i = 0; i < 64; ++i) {
      const int byte = narrow.as<std::uint8_t>()[row * 68 + i];
      nibbles.as<std::uint8_t>()[row * 68 + i] = static_cast<std::uint8_t>(byte % 16 * 16 + byte / 16);
    }
  }
  check_best(read_packed(narrow, nibbles, 68), "nibbles_swapped");
  Tensor group = narrow;
  for (int row = 0; row < 2; ++row) {
    for (int i = 0; i < 4; ++i)
      group.as<std::uint8_t>()[row * 68 + 64 + (i + 1) % 4] = narrow.as<std::uint8_t>()[row * 68 + 64 + i];
  }
  check_best(read_packed(narrow, group, 68), "shifted_block", "the scales");
}

TEST_CASE("pages: an entry one slot later, over the page's end too") {
  // Pages of 4 rows of 584: values of all rows, then their scales; a pitch that is longer.
  const Tensor a = bytes(2, 2880);
  Tensor b = a;
  const auto copy = [&](std::int64_t from, std::int64_t to) {
    for (int i = 0; i < 576; ++i)
      b.as<std::uint8_t>()[to / 4 * 2880 + to % 4 * 576 + i] =
          a.as<std::uint8_t>()[from / 4 * 2880 + from % 4 * 576 + i];
    for (int i = 0; i < 8; ++i)
      b.as<std::uint8_t>()[to / 4 * 2880 + 2304 + to % 4 * 8 + i] =
          a.as<std::uint8_t>()[from / 4 * 2880 + 2304 + from % 4 * 8 + i];
  };
  copy(2, 3);
  copy(3, 4);
  check_best(read_packed(a, b, 584, 4), "neighbouring_slot", "slot i-1");
}

TEST_CASE("a reading with exceptions is told, but not certain; few hits are coincidence") {
  const Tensor a = floats({1, 64});
  Tensor b = a;
  for (int i = 0; i < 32; ++i) std::swap(b.as<float>()[i], b.as<float>()[32 + i]);
  b.as<float>()[5] = 1234.5F;
  const auto all = read(a, b);
  REQUIRE_FALSE(all.empty());
  CHECK(all.front().name == "halves_swapped");
  CHECK_FALSE(all.front().certain());
  CHECK(all.front().explained == 63);
  CHECK(all.front().differing == 64);
  // Half of the row fits and half does not: nothing is said.
  Tensor c = floats({1, 64}, 3);
  for (int i = 0; i < 16; ++i) c.as<float>()[i] = a.as<float>()[32 + i];
  CHECK(read(a, c).empty());
  // Three elements that lie where a shift would put them.
  Tensor d = a;
  for (int i = 10; i < 13; ++i) d.as<float>()[i] = a.as<float>()[i - 1];
  CHECK(named(read(a, d), "shifted_block") == nullptr);
}

TEST_CASE("elements that no rule judges are not read") {
  const Tensor a = floats({2, 16});
  Tensor b = a;
  std::fill_n(b.as<float>().begin() + 16, 16, 0.0F);
  ReadingInput input;
  input.reference = &a;
  input.subject = &b;
  input.judged = [](std::int64_t row, std::int64_t) { return row == 0; };
  CHECK(readings(input).empty());
}
