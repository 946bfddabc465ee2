/// Shapes of FlashMLA's kernels that no recording has, derived from recorded ones or by hand: 128 heads and
/// several query tokens, schedules, many pieces, and what the kernels refuse.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "arith/bf16.hpp"
#include "arith/bits.hpp"
#include "model/error.hpp"
#include "peer/flashmla_cases.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::kernels;
using peer::Array;
using peer::DecodeCase;
using peer::PeerFile;
using peer::PrefillCase;
using peer::PrefillResult;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool same_bits(const float* ours, const float* theirs, std::int64_t n) {
  return std::equal(ours, ours + n, theirs,
                    [](float a, float b) { return arith::to_bits(a) == arith::to_bits(b); });
}

/// `pieces` of one request: logarithms and constant rows.
struct Pieces {
  std::vector<float> lse, o;
  std::array<std::uint16_t, kFlashDim> out{};
  float out_lse = 0;

  Pieces(int pieces, float value) : lse(static_cast<std::size_t>(pieces)), o(lse.size() * kFlashDim, value) {}
  void combine(const float* sink) {
    flashmla_combine(lse.data(), 1, o.data(), kFlashDim, static_cast<int>(lse.size()), sink, out.data(),
                     &out_lse);
  }
  float value() const { return arith::bf16_to_f32(out[kFlashDim - 1]); }
};

std::vector<std::array<int, 3>> cut(const DecodeLengths& lengths, int parts) {
  std::vector<std::array<int, 3>> result;
  for (const DecodePiece& piece : decode_schedule(lengths, parts).pieces) {
    result.push_back({piece.request, piece.begin_block, piece.end_block});
  }
  return result;
}

}  // namespace

TEST_CASE("several query tokens of a request are independent of each other") {
  PeerFile file("flashmla_sparse_decode_model1");
  const std::string name = "b1_h64_parts1";
  DecodeCase recorded(file, name);
  const auto twice = [](const auto* values, std::int64_t n) {
    std::vector<std::remove_cv_t<std::remove_pointer_t<decltype(values)>>> result(values, values + n);
    result.insert(result.end(), values, values + n);
    return result;
  };
  const auto q = twice(recorded.in.q, recorded.q.elements());
  const auto window = twice(recorded.in.window.indices, recorded.in.window.topk);
  const auto extra = twice(recorded.in.extra.indices, recorded.in.extra.topk);
  recorded.in.queries = 2;
  recorded.in.q = q.data();
  recorded.in.window.indices = window.data();
  recorded.in.extra.indices = extra.data();
  const FlashmlaSparseDecodeResult result = flashmla_sparse_decode(recorded.in);
  const Array out = file.read(name + "/out/out");
  const Array lse = file.read(name + "/out/lse");
  const auto* theirs = out.as<std::uint16_t>();
  for (std::int64_t query = 0; query < 2; ++query) {
    CHECK(std::equal(theirs, theirs + out.elements(), result.out.begin() + query * out.elements()));
    CHECK(same_bits(result.lse.data() + query * 64, lse.as<float>(), 64));
  }
}

TEST_CASE("a request alone has the bits of its batch where the cut is the same") {
  PeerFile file("flashmla_sparse_decode_model1");
  DecodeCase recorded(file, "b2_h64");
  const auto row = [](const Array& all, std::int64_t r) {
    return all.as<std::int32_t>() + r * (all.elements() / all.dim(0));
  };
  recorded.in.batch = 1;
  recorded.in.q += 64 * kFlashDim;
  recorded.in.window.indices = row(recorded.window.indices, 1);
  recorded.in.window.lengths = row(recorded.window.lengths, 1);
  recorded.in.extra.indices = row(recorded.extra.indices, 1);
  recorded.in.extra.lengths = row(recorded.extra.lengths, 1);
  const FlashmlaSparseDecodeResult result = flashmla_sparse_decode(recorded.in);
  const Array out = file.read("b2_h64/out/out");
  CHECK(std::equal(result.out.begin(), result.out.end(), out.as<std::uint16_t>() + 64 * kFlashDim));
}

TEST_CASE("128 heads of prefill are two tiles of 64") {
  PeerFile file("flashmla_sparse_prefill");
  PrefillCase recorded(file, "h64_sink");
  FlashmlaSparsePrefill& in = recorded.in;
  std::vector<std::uint16_t> q;
  std::vector<float> sink;
  for (int tile = 0; tile < 2; ++tile) sink.insert(sink.end(), in.sink, in.sink + 64);
  for (std::int64_t token = 0; token < in.tokens; ++token) {
    const std::uint16_t* row = in.q + token * 64 * kFlashDim;
    for (int tile = 0; tile < 2; ++tile) q.insert(q.end(), row, row + 64 * kFlashDim);
  }
  in.heads = 128;
  in.q = q.data();
  in.sink = sink.data();
  const PrefillResult result(in);
  const Array out = file.read("h64_sink/out/out");
  const Array lse = file.read("h64_sink/out/lse");
  for (std::int64_t tile = 0; tile < in.tokens * 2; ++tile) {
    const auto* theirs = out.as<std::uint16_t>() + tile / 2 * 64 * kFlashDim;
    CHECK(std::equal(theirs, theirs + 64 * kFlashDim, result.out.begin() + tile * 64 * kFlashDim));
    CHECK(same_bits(result.lse.data() + tile * 64, lse.as<float>() + tile / 2 * 64, 64));
  }
}

TEST_CASE("no key at all") {
  PeerFile file("flashmla_sparse_prefill");
  PrefillCase recorded(file, "h64_sink");
  const std::vector<std::int32_t> lengths(static_cast<std::size_t>(recorded.in.tokens), 0);
  recorded.in.topk_lengths = lengths.data();
  const PrefillResult result(recorded.in);
  CHECK(std::all_of(result.out.begin(), result.out.end(), [](std::uint16_t bits) { return bits == 0; }));
  CHECK(std::all_of(result.lse.begin(), result.lse.end(), [](float x) { return x == kInfinity; }));
  CHECK(std::all_of(result.max_logits.begin(), result.max_logits.end(),
                    [](float x) { return x == -kInfinity; }));
}

TEST_CASE("decode schedules by hand") {
  using Cut = std::vector<std::array<int, 3>>;
  // Three requests of two blocks: (3 * 7 + 1) / 2 + 5 = 16 a part; two requests cost 14, a third does not
  // fit.
  const DecodeLengths three{3, 128, nullptr, 0, nullptr};
  CHECK(cut(three, 2) == Cut{{0, 0, 2}, {1, 0, 2}, {2, 0, 2}});
  CHECK(decode_schedule(three, 2).parts.size() == 2);
  // One request of 20 blocks: ceil(25 / 3) + 5 = 14, nine blocks a part.
  const DecodeLengths one{1, 1280, nullptr, 0, nullptr};
  CHECK(cut(one, 3) == Cut{{0, 0, 9}, {0, 9, 18}, {0, 18, 20}});
  // A cut that runs on into the next request: blocks 3 and 3, ceil(16 / 2) + 5 = 13; 8 for the first, 5 left
  // for nothing of the second.
  const DecodeLengths pair{2, 192, nullptr, 0, nullptr};
  CHECK(cut(pair, 2) == Cut{{0, 0, 3}, {1, 0, 3}});
  // Blocks 1 and 13: ceil(24 / 2) + 5 = 17; 6 for the first, 11 - 5 = 6 blocks of the second.
  const std::array<std::int32_t, 2> lengths = {1, 832};
  const DecodeLengths uneven{2, 832, lengths.data(), 0, nullptr};
  CHECK(cut(uneven, 2) == Cut{{0, 0, 1}, {1, 0, 6}, {1, 6, 13}});
  // An empty list is one block; an extra list starts a block of its own.
  const std::array<std::int32_t, 1> none = {0};
  const std::array<std::int32_t, 1> few = {65};
  CHECK(decode_blocks({1, 128, none.data(), 0, nullptr}, 0) == 1);
  CHECK(decode_blocks({1, 128, none.data(), 192, few.data()}, 0) == 3);
  CHECK(decode_blocks({1, 128, few.data(), 192, none.data()}, 0) == 2);

  CHECK(decode_num_sm_parts(132, 1, 64) == 132);
  CHECK(decode_num_sm_parts(132, 1, 128) == 66);
  CHECK(decode_num_sm_parts(132, 3, 64) == 44);
  CHECK(decode_num_sm_parts(132, 3, 128) == 22);
  CHECK(decode_num_sm_parts(4, 16, 64) == 1);
}

TEST_CASE("combine: 64 equal pieces, sinks, nothing") {
  Pieces equal(64, 1.5F);
  equal.combine(nullptr);
  CHECK(equal.value() == 1.5F);  // LG2(64) = 6 and EX2(-6) are exact
  CHECK(equal.out_lse == 6.0F * kLn2);
  const float none = -kInfinity;
  equal.combine(&none);
  CHECK(equal.value() == 1.5F);
  equal.combine(&kInfinity);
  CHECK(equal.value() == 0.0F);
  CHECK(equal.out_lse == 6.0F * kLn2);  // the sink never enters it

  Pieces empty(2, 0.0F);
  std::fill(empty.lse.begin(), empty.lse.end(), -kInfinity);
  const float finite = 3.0F;
  for (const float* sink : {static_cast<const float*>(nullptr), &none, &finite, &kInfinity}) {
    empty.combine(sink);
    CHECK(empty.out[0] == 0);
    CHECK(empty.out_lse == kInfinity);
  }
}

TEST_CASE("shapes and indices that the kernels refuse") {
  PeerFile decode_file("flashmla_sparse_decode_model1");
  DecodeCase decode(decode_file, "b1_h64_parts1");
  std::vector<std::int32_t> indices(decode.in.window.indices,
                                    decode.in.window.indices + decode.in.window.topk);
  indices[5] = static_cast<std::int32_t>(decode.in.window.pages * decode.in.window.page_rows);
  decode.in.window.indices = indices.data();
  CHECK_THROWS_AS(flashmla_sparse_decode(decode.in), InternalError);
  indices[5] = -2;
  CHECK_THROWS_AS(flashmla_sparse_decode(decode.in), InternalError);
  indices[5] = -1;
  CHECK_NOTHROW(flashmla_sparse_decode(decode.in));
  decode.in.heads = 32;
  CHECK_THROWS_AS(flashmla_sparse_decode(decode.in), InternalError);
  PeerFile prefill_file("flashmla_sparse_prefill");
  PrefillCase prefill(prefill_file, "h64_sink");
  const std::vector<std::int32_t> lengths(static_cast<std::size_t>(prefill.in.tokens), prefill.in.topk + 1);
  prefill.in.topk_lengths = lengths.data();
  CHECK_THROWS_AS(PrefillResult(prefill.in), InternalError);
  prefill.in.topk_lengths = nullptr;
  prefill.in.topk = 64;
  CHECK_THROWS_AS(PrefillResult(prefill.in), InternalError);
}
