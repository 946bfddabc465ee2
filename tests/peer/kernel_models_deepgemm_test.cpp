/// The models of DeepGEMM's kernels against recordings: every logit that the kernel defines, to the bit. The
/// recorded files leave a token's logits outside its key range, or behind its context length, undefined.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "arith/bf16.hpp"
#include "arith/bits.hpp"
#include "arith/e4m3.hpp"
#include "model/error.hpp"
#include "peer/model_tally.hpp"
#include "peer/peer_file.hpp"
#include "reference/kernels/deepgemm_fp8_einsum.hpp"
#include "reference/kernels/deepgemm_mqa_logits.hpp"
#include "reference/kernels/deepgemm_paged_mqa_logits.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::kernels;
using peer::Array;
using peer::ModelTally;
using peer::PeerFile;

namespace {

/// A recorded case of the prefill kernel, with the memory that its description points into.
struct MqaCase {
  Array q, kv, scales, weights, start, end;
  DeepgemmMqaLogits in;

  MqaCase(const PeerFile& file, const std::string& name)
      : q(file.read(name + "/in/q")),
        kv(file.read(name + "/in/kv")),
        scales(file.read(name + "/in/kv_scales")),
        weights(file.read(name + "/in/weights")),
        start(file.read(name + "/in/cu_seq_len_k_start")),
        end(file.read(name + "/in/cu_seq_len_k_end")) {
    in.tokens = q.dim(0);
    in.keys = kv.dim(0);
    in.heads = static_cast<int>(q.dim(1));
    in.dim = static_cast<int>(q.dim(2));
    in.q = q.as<std::uint8_t>();
    in.kv = kv.as<std::uint8_t>();
    in.kv_scales = scales.as<float>();
    in.weights = weights.as<float>();
    in.key_start = start.as<std::int32_t>();
    in.key_end = end.as<std::int32_t>();
    in.clean = file.number(name, "clean_logits") != 0;
  }
};

/// Runs the model into memory that is full of `Bits{}` and compares what the kernel defines.
template <class T, class Bits>
void compare_mqa(const MqaCase& recorded, const Array& logits, ModelTally& tally) {
  const DeepgemmMqaLogits& in = recorded.in;
  std::vector<T> ours(static_cast<std::size_t>(in.tokens * in.keys));
  deepgemm_mqa_logits(in, ours.data(), in.keys);
  for (std::int64_t i = 0; i < in.tokens; ++i) {
    const std::int64_t from = in.clean ? 0 : in.key_start[i];
    const std::int64_t to = in.clean ? in.keys : in.key_end[i];
    const Bits* theirs = logits.as<Bits>() + i * logits.dim(1);
    for (std::int64_t j = from; j < to; ++j) {
      Bits bits{};
      std::memcpy(&bits, &ours[static_cast<std::size_t>(i * in.keys + j)], sizeof bits);
      tally.count(bits, theirs[j]);
    }
  }
}

void compare_mqa(const MqaCase& recorded, const Array& logits, ModelTally& tally) {
  if (logits.element_bytes == 2) {
    compare_mqa<std::uint16_t, std::uint16_t>(recorded, logits, tally);
  } else {
    compare_mqa<float, std::uint32_t>(recorded, logits, tally);
  }
}

struct PagedCase {
  Array q, cache, weights, lens, table;
  DeepgemmPagedMqaLogits in;

  PagedCase(const PeerFile& file, const std::string& name)
      : q(file.read(name + "/in/q")),
        cache(file.read(name + "/in/kv_cache")),
        weights(file.read(name + "/in/weights")),
        lens(file.read(name + "/in/context_lens")),
        table(file.read(name + "/in/block_table")) {
    in.requests = q.dim(0);
    in.next_n = static_cast<int>(q.dim(1));
    in.heads = static_cast<int>(q.dim(2));
    in.dim = static_cast<int>(q.dim(3));
    in.q = q.as<std::uint8_t>();
    in.cache = cache.as<std::uint8_t>();
    in.page_stride = cache.dim(1);
    in.pages = cache.dim(0);
    in.weights = weights.as<float>();
    in.context_lens = lens.as<std::int32_t>();
    in.block_table = table.as<std::int32_t>();
    in.table_width = table.dim(1);
  }
};

void compare_paged(const PagedCase& recorded, const Array& logits, ModelTally& tally) {
  const DeepgemmPagedMqaLogits& in = recorded.in;
  const std::int64_t width = logits.dim(1);
  std::vector<float> ours(static_cast<std::size_t>(logits.elements()));
  deepgemm_paged_mqa_logits(in, ours.data(), width);
  for (std::int64_t row = 0; row < in.requests * in.next_n; ++row) {
    for (std::int64_t j = 0; j < in.context_lens[row]; ++j) {
      tally.count(arith::to_bits(ours[static_cast<std::size_t>(row * width + j)]),
                  logits.as<std::uint32_t>()[row * width + j]);
    }
  }
}

}  // namespace

TEST_CASE("DeepGEMM prefill logits, every case") {
  PeerFile file("deepgemm_fp8_mqa_logits");
  const std::vector<std::string> names = file.cases();
  REQUIRE(names.size() == 6);
  for (const std::string& name : names) {
    const MqaCase recorded(file, name);
    ModelTally tally("deepgemm_mqa_logits", name);
    compare_mqa(recorded, file.read(name + "/out/logits"), tally);
    CHECK(tally.differing() == 0);
    CHECK(tally.compared() > 400);
  }
}

TEST_CASE("DeepGEMM paged logits, every case") {
  PeerFile file("deepgemm_fp8_paged_mqa_logits");
  const std::vector<std::string> names = file.cases();
  REQUIRE(names.size() == 3);
  for (const std::string& name : names) {
    const PagedCase recorded(file, name);
    ModelTally tally("deepgemm_paged_mqa_logits", name);
    compare_paged(recorded, file.read(name + "/out/logits"), tally);
    CHECK(tally.differing() == 0);
    CHECK(tally.compared() > 200);
  }
}

TEST_CASE("the recordings tell the fused product of the logits from the rounded one") {
  PeerFile plain("deepgemm_fp8_mqa_logits");
  for (const char* name : {"h32", "h64"}) {
    MqaCase recorded(plain, name);
    recorded.in.rules.first_product_fused = false;
    ModelTally tally("deepgemm_mqa_logits, mutated", std::string(name) + ", second product fused", false);
    compare_mqa(recorded, plain.read(std::string(name) + "/out/logits"), tally);
    CHECK(tally.differing() > 10);
  }
  PeerFile paged("deepgemm_fp8_paged_mqa_logits");
  PagedCase recorded(paged, "decode_b4");
  recorded.in.rules.first_product_fused = false;
  ModelTally tally("deepgemm_paged_mqa_logits, mutated", "decode_b4, second product fused", false);
  compare_paged(recorded, paged.read("decode_b4/out/logits"), tally);
  CHECK(tally.differing() > 10);
}

TEST_CASE("the recordings tell ascending tensor-core steps from descending ones") {
  PeerFile file("deepgemm_fp8_mqa_logits");
  MqaCase recorded(file, "h64_raw_dot_wide_codes");
  const auto reversed = [](const Array& rows) {
    Array result = rows;
    for (std::size_t at = 0; at < result.bytes.size(); at += 128) {
      for (std::size_t step = 0; step < 4; ++step) {
        std::copy_n(rows.bytes.begin() + static_cast<std::ptrdiff_t>(at + 32 * (3 - step)), 32,
                    result.bytes.begin() + static_cast<std::ptrdiff_t>(at + 32 * step));
      }
    }
    return result;
  };
  const Array q = reversed(recorded.q);
  const Array kv = reversed(recorded.kv);
  recorded.in.q = q.as<std::uint8_t>();
  recorded.in.kv = kv.as<std::uint8_t>();
  ModelTally tally("deepgemm_mqa_logits, mutated", "h64_raw_dot_wide_codes, k descending", false);
  compare_mqa(recorded, file.read("h64_raw_dot_wide_codes/out/logits"), tally);
  CHECK(tally.differing() > 100);
}

TEST_CASE("the place of the key scale shows with scales that are no powers of two") {
  PeerFile file("deepgemm_fp8_mqa_logits");
  MqaCase recorded(file, "h64");
  std::vector<float> scales(recorded.scales.as<float>(), recorded.scales.as<float>() + recorded.in.keys);
  // The recorded scales cannot tell.
  for (const float scale : scales) REQUIRE((arith::to_bits(scale) & 0x7FFFFFU) == 0);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] *= 1.0F + static_cast<float>(i) / 311.0F;
  recorded.in.kv_scales = scales.data();
  const std::size_t count = static_cast<std::size_t>(recorded.in.tokens * recorded.in.keys);
  std::vector<float> before(count);
  std::vector<float> after(count);
  deepgemm_mqa_logits(recorded.in, before.data(), recorded.in.keys);
  recorded.in.rules.scale_before_lanes = false;
  deepgemm_mqa_logits(recorded.in, after.data(), recorded.in.keys);
  CHECK(before != after);
}

TEST_CASE("a compact result holds the same logits from column 0 on") {
  PeerFile file("deepgemm_fp8_mqa_logits");
  MqaCase recorded(file, "h64");
  const DeepgemmMqaLogits& in = recorded.in;
  const Array logits = file.read("h64/out/logits");
  recorded.in.compact = true;
  std::vector<float> ours(static_cast<std::size_t>(in.tokens * in.keys));
  deepgemm_mqa_logits(in, ours.data(), in.keys);
  for (std::int64_t i = 0; i < in.tokens; ++i) {
    const std::int64_t count = in.key_end[i] - in.key_start[i];
    CHECK(std::equal(ours.begin() + i * in.keys, ours.begin() + i * in.keys + count,
                     logits.as<float>() + i * logits.dim(1) + in.key_start[i]));
  }
}

TEST_CASE("shapes, ranges and pages that DeepGEMM's kernels refuse") {
  PeerFile plain_file("deepgemm_fp8_mqa_logits");
  MqaCase plain(plain_file, "h64");
  std::vector<float> out(static_cast<std::size_t>(plain.in.tokens * plain.in.keys));
  plain.in.clean = plain.in.compact = true;
  CHECK_THROWS_AS(deepgemm_mqa_logits(plain.in, out.data(), plain.in.keys), InternalError);
  plain.in.clean = plain.in.compact = false;
  plain.in.keys = 299;  // the last tokens end at 300
  CHECK_THROWS_AS(deepgemm_mqa_logits(plain.in, out.data(), plain.in.keys), InternalError);
  plain.in.keys = 300;
  plain.in.heads = 48;
  CHECK_THROWS_AS(deepgemm_mqa_logits(plain.in, out.data(), plain.in.keys), InternalError);
  PeerFile paged_file("deepgemm_fp8_paged_mqa_logits");
  PagedCase paged(paged_file, "decode_b4");
  std::vector<float> rows(4 * 768);
  paged.in.table_width = 10;  // 700 keys need eleven pages
  CHECK_THROWS_AS(deepgemm_paged_mqa_logits(paged.in, rows.data(), 768), InternalError);
  paged.in.table_width = 12;
  paged.in.pages = 1;
  CHECK_THROWS_AS(deepgemm_paged_mqa_logits(paged.in, rows.data(), 768), InternalError);
}

namespace {

/// One head, one row, one column: 256 products in two scaled blocks.
struct OneColumn {
  std::array<std::uint8_t, 256> x{}, w{};
  std::array<float, 2> x_scales = {1, 1}, w_scales = {1, 1};

  float run(bool promotion_fused = true) const {
    DeepgemmFp8Einsum in;
    in.b = in.h = in.d = 1;
    in.r = 256;
    in.x = x.data();
    in.x_scales = x_scales.data();
    in.w = w.data();
    in.w_scales = w_scales.data();
    in.rules.promotion_fused = promotion_fused;
    std::uint16_t out = 0;
    deepgemm_fp8_einsum(in, &out);
    return arith::bf16_to_f32(out);
  }
};

}  // namespace

TEST_CASE("DeepGEMM einsum: each block has an accumulator of 13 fraction bits of its own") {
  OneColumn column;
  column.x.fill(arith::f32_to_e4m3(1.0F));
  column.w.fill(arith::f32_to_e4m3(1.0F));
  // 2^16 leads the first block: its quantum is 2^3, the ones are cut there; 128 of them count in the second.
  column.x[0] = column.w[0] = arith::f32_to_e4m3(256.0F);
  column.x_scales = {1, 4096};
  CHECK(column.run() == 65536.0F + 128.0F * 4096.0F);
  // Behind it, steps of 32 whose sum is 32: 2^16 + 32 keeps 13 bits, too.
  column.x_scales = {1, 0};
  column.x[0] = column.w[0] = arith::f32_to_e4m3(16.0F);  // 256, quantum 2^-5: nothing is cut
  CHECK(column.run() == 384.0F);                          // 256 + 127 = 383, then bf16
}

TEST_CASE("DeepGEMM einsum: a block joins the sum in one rounding") {
  OneColumn column;
  column.x[0] = arith::f32_to_e4m3(-1.0F);
  column.w[0] = arith::f32_to_e4m3(1.0F);
  column.x[128] = arith::f32_to_e4m3(3.0F);
  column.w[128] = arith::f32_to_e4m3(1.0F);
  const float scale = arith::from_bits(0x3F800001U);  // 1 + 2^-23; three times that needs a bit more
  const float rounded = 3.0F * scale;
  column.x_scales = {rounded, scale};
  const double lost = 3.0 * static_cast<double>(scale) - static_cast<double>(rounded);
  REQUIRE(lost != 0);
  CHECK(static_cast<double>(column.run()) == lost);
  CHECK(column.run(false) == 0.0F);
}

TEST_CASE("DeepGEMM einsum: shapes, strides and scale blocks, on sums that are exact") {
  DeepgemmFp8Einsum in;
  in.b = 3;
  in.h = 2;
  in.r = 288;  // two blocks and a quarter
  in.d = 160;  // a block and a quarter
  std::mt19937 random(7);
  const auto codes = [&](std::int64_t n) {
    std::vector<std::uint8_t> result(static_cast<std::size_t>(n));
    for (auto& code : result)
      code = arith::f32_to_e4m3(static_cast<float>(static_cast<int>(random() % 5) - 2));
    return result;
  };
  const auto powers = [&](std::int64_t n) {
    std::vector<float> result(static_cast<std::size_t>(n));
    for (auto& scale : result) scale = static_cast<float>(1 << (random() % 3));
    return result;
  };
  const auto x = codes(in.b * in.h * in.r);
  const auto w = codes(in.h * in.d * in.r);
  const auto x_scales = powers(in.b * in.h * 3);
  const auto w_scales = powers(in.h * 2 * 3);
  in.x = x.data();
  in.w = w.data();
  in.x_scales = x_scales.data();
  in.w_scales = w_scales.data();
  std::vector<std::uint16_t> out(static_cast<std::size_t>(in.b * in.h * in.d));
  deepgemm_fp8_einsum(in, out.data());
  std::int64_t wrong = 0;
  for (std::int64_t b = 0; b < in.b; ++b) {
    for (std::int64_t h = 0; h < in.h; ++h) {
      for (std::int64_t d = 0; d < in.d; ++d) {
        double sum = 0;
        for (std::int64_t r = 0; r < in.r; ++r) {
          const auto value = [](const auto& all, std::int64_t at) {
            return static_cast<double>(arith::e4m3_to_f32(all[static_cast<std::size_t>(at)]));
          };
          sum += value(x, (b * in.h + h) * in.r + r) * value(w, (h * in.d + d) * in.r + r) *
                 static_cast<double>(x_scales[static_cast<std::size_t>((b * in.h + h) * 3 + r / 128)] *
                                     w_scales[static_cast<std::size_t>((h * 2 + d / 128) * 3 + r / 128)]);
        }
        wrong += out[static_cast<std::size_t>((b * in.h + h) * in.d + d)] !=
                 arith::f32_to_bf16(static_cast<float>(sum));
      }
    }
  }
  CHECK(wrong == 0);
}
