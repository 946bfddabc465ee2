// Decoding for people: every code of the narrow formats, cache rows made by hand, pages recorded from real
// kernels.
#include "io/decode.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "arith/bf16.hpp"
#include "io/hdf5_file.hpp"
#include "model/element.hpp"
#include "model/error.hpp"
#include "sample.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::io;

namespace {

bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

template <class T>
std::span<const T> as(const RawDataset& raw) {
  REQUIRE(raw.element_bytes == sizeof(T));
  return {reinterpret_cast<const T*>(raw.bytes.data()), raw.bytes.size() / sizeof(T)};
}

}  // namespace

TEST_CASE("every code of the narrow formats decodes to its defining formula") {
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15;
    const int mantissa = code & 7;
    double expected = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    if ((code & 0x7F) == 0x7F) expected = std::numeric_limits<double>::quiet_NaN();
    if (code & 0x80) expected = -expected;
    REQUIRE(same(dsv4::decode(DType::float8_e4m3fn, static_cast<std::uint64_t>(code)), expected));
    const double scale = code == 255 ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, code - 127);
    REQUIRE(same(dsv4::decode(DType::float8_e8m0fnu, static_cast<std::uint64_t>(code)), scale));
    REQUIRE(dsv4::decode(DType::uint8, static_cast<std::uint64_t>(code)) == code);
  }
  const double e2m1[]{0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  for (std::uint64_t code = 0; code < 16; ++code) {
    REQUIRE(same(dsv4::decode(DType::float4_e2m1fn, code), code < 8 ? e2m1[code] : -e2m1[code - 8]));
  }
  REQUIRE(dsv4::decode(DType::bfloat16, 0x3F80) == 1.0);
  REQUIRE(dsv4::decode(DType::bfloat16, 0x0001) == std::ldexp(1.0, -133));
  REQUIRE(dsv4::decode(DType::int32, 0xFFFFFFFF) == -1.0);
  REQUIRE(dsv4::decode(DType::float32, 0x00000001) == std::ldexp(1.0, -149));
  REQUIRE(dsv4::decode(DType::float64, 0x3FF8000000000000) == 1.5);
}

TEST_CASE("an element is shown in hex as wide as it is stored and in decimal") {
  const Tensor bf16 =
      sample::tensor<std::uint16_t>(DType::bfloat16, {5}, {0x3DCD, 0x8000, 0x7F80, 0xFF80, 0x7FC0});
  REQUIRE(decode(bf16, 0).hex == "0x3dcd");
  REQUIRE(decode(bf16, 0).text == "0.100097656");
  REQUIRE(decode(bf16, 1).text == "-0");
  REQUIRE(decode(bf16, 2).text == "inf");
  REQUIRE(decode(bf16, 3).text == "-inf");
  REQUIRE(decode(bf16, 4).text == "nan");
  const Tensor ints = sample::tensor<std::int32_t>(DType::int32, {2}, {-1, 2147483647});
  REQUIRE(decode(ints, 0).hex == "0xffffffff");
  REQUIRE(decode(ints, 0).text == "-1");
  REQUIRE(decode(ints, 1).text == "2147483647");
  const Tensor f32 = sample::tensor<std::uint32_t>(DType::float32, {1}, {0x3D3504F3U});
  REQUIRE(decode(f32, 0).text == "0.044194173");
  const Tensor f64 = sample::tensor<double>(DType::float64, {1}, {0.1});
  REQUIRE(decode(f64, 0).text == "0.1");
  REQUIRE(decode(f64, 0).hex == "0x3fb999999999999a");
  REQUIRE_THROWS_AS(decode(ints, 2), UsageError);
  REQUIRE_THROWS_AS(decode(ints, -1), UsageError);
}

TEST_CASE("a row put together by hand comes apart again") {
  std::vector<std::byte> row(584);
  row[0] = std::byte{0x38};    // 1.0 in block 0
  row[64] = std::byte{0xBC};   // -1.5 in block 1
  row[447] = std::byte{0x7E};  // 448 in block 6
  row[448] = std::byte{0x80};  // bf16 0x3F80, low byte first
  row[449] = std::byte{0x3F};
  row[574] = std::byte{0x00};  // bf16 0xC000 = -2
  row[575] = std::byte{0xC0};
  row[576] = std::byte{127};  // 2^0
  row[577] = std::byte{130};  // 2^3
  row[582] = std::byte{117};  // 2^-10
  const io::KvRow kv = decode_kv_row(row);
  REQUIRE(kv.values[0] == 1.0F);
  REQUIRE(kv.values[64] == -12.0F);
  REQUIRE(kv.values[447] == 0.4375F);
  REQUIRE(kv.values[448] == 1.0F);
  REQUIRE(kv.values[511] == -2.0F);
  REQUIRE(kv.scales[6] == 117);
  REQUIRE(kv.spare == 0);
  REQUIRE_THROWS_AS(decode_kv_row(std::span(row).first(583)), UsageError);

  std::vector<std::byte> fp4(68);
  fp4[0] = std::byte{0x72};   // element 0: 1.0, element 1: 6
  fp4[63] = std::byte{0x9F};  // element 126: -6, element 127: -0.5
  fp4[64] = std::byte{128};   // block 0: 2
  fp4[67] = std::byte{126};   // block 3: 0.5
  const io::IndexRow narrow = decode_index_row(fp4);
  REQUIRE(narrow.fp4);
  REQUIRE(narrow.values[0] == 2.0F);
  REQUIRE(narrow.values[1] == 12.0F);
  REQUIRE(narrow.values[126] == -3.0F);
  REQUIRE(narrow.values[127] == -0.25F);
  REQUIRE(narrow.codes[127] == 9);
  REQUIRE_THROWS_AS(decode_index_row(std::span(fp4).first(67)), UsageError);
}

TEST_CASE("rows of plain values: bf16 or f16 by the profile, no padding between them") {
  Profile profile = profile_named("canonical");
  REQUIRE_FALSE(plain_rows(profile, Cache::window));
  REQUIRE_FALSE(plain_rows(profile, Cache::index_entries));
  profile = profile_named("transformers");
  const auto bf16 = plain_rows(profile, Cache::entries);
  REQUIRE(bf16);
  profile = profile_named("ggml");
  const auto f16 = plain_rows(profile, Cache::index_entries);
  REQUIRE(f16);
  REQUIRE(plain_rows(profile, Cache::window)->f16);

  std::vector<std::byte> page(2 * 1024);
  page[1024] = std::byte{0xC0};  // row 1, value 0: 0x40C0 = 6 as bf16
  page[1025] = std::byte{0x40};
  page[2046] = std::byte{0x80};  // value 511: 0xBE80 = -0.25
  page[2047] = std::byte{0xBE};
  const std::vector<float> wide = decode_plain_row(plain_page_row(page, 2, 1, *bf16), *bf16);
  REQUIRE(wide.size() == 512);
  REQUIRE(wide[0] == 6.0F);
  REQUIRE(wide[1] == 0.0F);
  REQUIRE(wide[511] == -0.25F);
  // The same two bytes as f16: 2^1 * (1 + 192/1024) = 2.375.
  page[0] = std::byte{0xC0};
  page[1] = std::byte{0x40};
  page[254] = std::byte{0x01};  // value 127: the smallest subnormal
  const std::vector<float> half = decode_plain_row(plain_page_row(page, 8, 0, *f16), *f16);
  REQUIRE(half.size() == 128);
  REQUIRE(half[0] == 2.375F);
  REQUIRE(half[127] == 0x1p-24F);
  REQUIRE_THROWS_AS(decode_plain_row(std::span(page).first(584), *bf16), UsageError);
  REQUIRE_THROWS_AS(plain_page_row(page, 2, 2, *bf16), UsageError);
  REQUIRE_THROWS_AS(plain_page_row(page, 3, 0, *bf16), UsageError);
}

TEST_CASE("recorded KV pages decode to what the recorded kernel gathered from them") {
  // vLLM's own gather of 75 rows out of shuffled pages is the independent witness.
  const Hdf5File file = Hdf5File::open("data/peer/vllm_k_cache.h5");
  const std::string group = "/two_requests_page64";
  const RawDataset pages = file.read_raw(group + "/out/k_cache");
  const RawDataset gathered = file.read_raw(group + "/out/gathered");
  const RawDataset table_raw = file.read_raw(group + "/in/block_table");
  const auto table = as<std::uint32_t>(table_raw);
  const RawDataset lens_raw = file.read_raw(group + "/in/seq_lens");
  const auto lens = as<std::uint32_t>(lens_raw);
  const auto expected = as<std::uint16_t>(gathered);
  const std::int64_t first_row = file.integer(group, "offset");
  const std::int64_t out_rows = file.integer(group, "out_rows");
  const auto page_bytes = static_cast<std::size_t>(pages.shape[1]);
  std::int64_t compared = 0;
  for (std::size_t request = 0; request < lens.size(); ++request) {
    for (std::uint32_t position = 0; position < lens[request]; ++position) {
      const std::size_t page = table[request * static_cast<std::size_t>(table_raw.shape[1]) + position / 64];
      const io::KvRow row =
          decode_kv_row(kv_page_row(std::span(pages.bytes).subspan(page * page_bytes, page_bytes), 64,
                                    static_cast<int>(position % 64)));
      const auto at =
          (request * static_cast<std::size_t>(out_rows) + static_cast<std::size_t>(first_row) + position) *
          std::size_t{kHeadDim};
      for (std::size_t dim = 0; dim < kHeadDim; ++dim, ++compared) {
        REQUIRE(arith::f32_to_bf16(row.values[dim]) == expected[at + dim]);
      }
    }
  }
  REQUIRE(compared == 75 * 512);
}

TEST_CASE("recorded index pages decode near the values that were quantised") {
  // The kernel stored these rotated rows in FP8: each value lies within half a step of e4m3 (2^-4 relative),
  // or half a subnormal step, of what the page gives back.
  const Hdf5File file = Hdf5File::open("data/peer/vllm_compress_hd128_fp8.h5");
  const std::string group = "/start_of_sequence";
  const RawDataset pages = file.read_raw(group + "/out/kv_cache");
  const RawDataset rotated_raw = file.read_raw(group + "/instrumented/rotated");
  const auto rotated = as<float>(rotated_raw);
  const RawDataset rows_raw = file.read_raw(group + "/instrumented/rotated_rows");
  const RawDataset slots_raw = file.read_raw(group + "/in/kv_slot_mapping");
  const auto rows = as<std::uint32_t>(rows_raw);
  const auto slots = as<std::uint64_t>(slots_raw);
  const auto page_bytes = static_cast<std::size_t>(pages.shape[1]);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::uint64_t slot = slots[rows[i]];
    const io::IndexRow row =
        decode_index_row(index_page_row(std::span(pages.bytes).subspan(slot / 64 * page_bytes, page_bytes),
                                        64, static_cast<int>(slot % 64), false));
    for (std::size_t dim = 0; dim < kIndexDim; ++dim) {
      const float value = rotated[i * kIndexDim + dim];
      const float bound =
          std::max(std::abs(value) * 0x1p-4F, row.scales[0] * 0x1p-10F) + std::abs(value) * 0x1p-8F;
      REQUIRE(std::abs(row.values[dim] - value) <= bound);
    }
  }
  REQUIRE(rows.size() == 3);
}

TEST_CASE("a page row outside the page is refused") {
  const std::vector<std::byte> page(37440);
  REQUIRE_THROWS_AS(kv_page_row(page, 64, 64), UsageError);
  REQUIRE_THROWS_AS(kv_page_row(page, 64, -1), UsageError);
  REQUIRE_THROWS_AS(kv_page_row(page, 65, 0), UsageError);
  REQUIRE_THROWS_AS(index_page_row(page, 0, 0, true), UsageError);
}

TEST_CASE("figures count what is special") {
  const Tensor codes = sample::tensor<std::uint8_t>(DType::float8_e4m3fn, {8},
                                                    {0x7E, 0xFE, 0x00, 0x80, 0x01, 0x38, 0x7F, 0x7D});
  const Figures e4m3 = figures(codes);
  REQUIRE(e4m3.elements == 8);
  REQUIRE(e4m3.saturated == 2);
  REQUIRE(e4m3.zero == 2);
  REQUIRE(e4m3.subnormal == 1);
  REQUIRE(e4m3.nan == 1);
  REQUIRE(e4m3.first_non_finite == 6);
  REQUIRE(e4m3.minimum == -448.0);
  REQUIRE(e4m3.maximum == 448.0);
  const Figures f32 = figures(sample::tensor<float>(DType::float32, {2}, {3.0F, -4.0F}));
  REQUIRE(f32.rms == std::sqrt(12.5));
  REQUIRE_FALSE(f32.first_non_finite.has_value());
  REQUIRE(figures(Tensor(DType::float32, {0, 4})).elements == 0);
  const Figures infinite =
      figures(sample::tensor<std::uint16_t>(DType::bfloat16, {3}, {0x0001, 0x7F80, 0xFF80}));
  REQUIRE(infinite.infinite == 2);
  REQUIRE(infinite.subnormal == 1);
}
