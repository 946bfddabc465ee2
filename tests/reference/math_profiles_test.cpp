/// Arithmetic that only some profiles have (docs/numerics.md 17), against values worked out by hand.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "arith/bf16.hpp"
#include "arith/bits.hpp"
#include "reference/attention.hpp"
#include "reference/block_quantizer.hpp"
#include "reference/hadamard.hpp"
#include "reference/norm_rotate.hpp"
#include "reference/pool.hpp"
#include "reference/profile_rows.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::reference;

TEST_CASE("activation_floor: an empty block of activations") {
  // 1e-4 / 448 lies in (2^-23, 2^-22], 1e-10 / 448 in (2^-43, 2^-42].
  const std::vector<std::uint16_t> zeros(128, 0);
  std::array<std::uint8_t, 128> codes;
  std::uint8_t scale = 0;
  quantize_e4m3(zeros.data(), 128, 128, QuantFloor::amax, codes.data(), &scale);
  CHECK(scale == 127 - 22);
  quantize_e4m3(zeros.data(), 128, 128, QuantFloor::small_amax, codes.data(), &scale);
  CHECK(scale == 127 - 42);
  Profile profile = profile_named("canonical");
  CHECK(activation_floor(profile) == QuantFloor::amax);
  profile.set("activation_floor", "1e-10");
  CHECK(activation_floor(profile) == QuantFloor::small_amax);
}

TEST_CASE("fp4_rule ties_down: ties take the smaller magnitude, a zero has no sign") {
  // The largest magnitude 6 makes the scale 1, so that values are in units of the codes.
  std::array<float, 32> x{6,      0.25F,  0.75F, 1.25F, 1.75F, 2.5F,   3.5F, 5,
                          -0.25F, -0.75F, -5,    -0.0F, 0.26F, -1.26F, 5.01F};
  std::array<std::uint8_t, 32> codes;
  std::uint8_t scale = 0;
  quantize_e2m1_ties_down(x.data(), 32, codes.data(), &scale);
  CHECK(scale == 127);
  const std::array<std::uint8_t, 15> expected{7, 0, 1, 2, 3, 4, 5, 6, 0, 9, 14, 0, 1, 11, 7};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO(i);
    CHECK(int{codes[i]} == int{expected[i]});
  }
  // Ties to even differ in three of them.
  quantize_e2m1(x.data(), 32, codes.data(), &scale);
  CHECK(codes[2] == 2);
  CHECK(codes[4] == 4);
  CHECK(codes[6] == 6);
  CHECK(codes[11] == 8);
  // Floor 1e-4: 1e-4 / 6 lies in (2^-16, 2^-15].
  x.fill(0);
  quantize_e2m1_ties_down(x.data(), 32, codes.data(), &scale);
  CHECK(scale == 127 - 15);
}

TEST_CASE("index_scale f32: the scale is the quotient itself") {
  std::array<float, 128> x{};
  x[0] = 7.0F;
  x[1] = -3.5F;
  x[2] = 1.0F / 64.0F;
  IndexForm form;
  form.scale = IndexScale::f32;
  const IndexCodes row = quantize_index(x.data(), form);
  CHECK(row.scale == 0.015625F);  // 7 / 448 = 2^-6, exact
  CHECK(row.codes[0] == 0x7E);    // 448
  CHECK(row.codes[1] == 0xF6);    // -224
  CHECK(row.codes[2] == 0x38);    // 1
  x[0] = 3.0F;                    // 3 / 448 is no power of two
  x[1] = 0.0F;
  const IndexCodes other = quantize_index(x.data(), form);
  CHECK(other.scale == 3.0F / 448.0F);
  CHECK(quantize_index(x.data(), IndexForm{}).scale == 0.0078125F);  // the power of two above it
  std::array<std::byte, 132> bytes;
  store_index_row(other, form, bytes.data());
  float stored = 0;
  std::memcpy(&stored, bytes.data() + 128, 4);
  CHECK(stored == other.scale);
}

TEST_CASE("kv_cache and index_cache without a quantiser: two bytes a value") {
  const std::array<float, 4> x{1.0F, -1.001F, 65520.0F, 0x1p-24F};
  std::array<std::uint16_t, 4> codes;
  std::array<float, 4> back;
  auto* const bytes = reinterpret_cast<std::byte*>(codes.data());
  store_plain(x.data(), 4, true, bytes);
  CHECK(codes == std::array<std::uint16_t, 4>{0x3C00, 0xBC01, 0x7C00, 0x0001});
  load_plain(bytes, 4, true, back.data());
  CHECK(back[1] == -(1.0F + 0x1p-10F));
  store_plain(x.data(), 4, false, bytes);
  CHECK(codes == std::array<std::uint16_t, 4>{0x3F80, 0xBF80, 0x4780, 0x3380});
  load_plain(bytes, 4, false, back.data());
  CHECK(back[2] == 65536.0F);
}

TEST_CASE("kv_row and index_row f32: norm, rotation and Hadamard without a rounding") {
  std::array<float, 128> x;
  x.fill(3.0F);
  RopeAngles still;
  still.cos.fill(1.0F);
  still.sin.fill(0.0F);
  const NormRotate how{nullptr, 0.5F, NormWeight::then_round, RopeInput::bf16};
  std::array<float, 128> out;
  norm_rotate(how, x.data(), 128, still, static_cast<float*>(nullptr), out.data());
  const float factor = 1.0F / std::sqrt(9.5F);  // 128 * 9 / 128 + 0.5
  CHECK(out[0] == 3.0F * factor);
  CHECK(out[127] == 3.0F * factor);
  CHECK(out[0] != arith::bf16_to_f32(arith::f32_to_bf16(out[0])));
  std::array<float, 128> unit{};
  unit[5] = 1.0F;
  hadamard128(unit.data());
  CHECK(arith::to_bits(unit[0]) == 0x3DB504F3U);
  CHECK(arith::to_bits(unit[1]) == 0xBDB504F3U);  // bits 0 of 1 and 5 meet once
}

TEST_CASE("pool f32_softmax_bf16_sum: weights, products and the sum are bf16") {
  // Equal scores: weights 1/2. 0.5 + bf16(0.5 * (1 + 2^-7)) = 1 + 2^-8, a tie of bf16 that goes to 1.
  const float scores[]{2.0F, 2.0F};
  const float kv[]{1.0F, 1.0F + 0x1p-7F};
  const std::vector<PoolRow> rows{{kv, scores}, {kv + 1, scores + 1}};
  float pooled = 0;
  pool_window_bf16(rows, 1, &pooled);
  CHECK(pooled == 1.0F);
  pool_window(rows, 1, &pooled);
  CHECK(pooled == 1.0F + 0x1p-8F);
}

TEST_CASE("softmax bf16: logits and probabilities are bf16, the sink may take part in the maximum") {
  std::array<std::uint16_t, kHeadDim> query{};
  query[0] = 0x3F80;
  std::array<float, kHeadDim> key{};
  key[0] = 1.0F;
  key[1] = 3.0F;
  const std::vector<const float*> keys{nullptr, key.data()};
  std::array<std::uint16_t, kHeadDim> out;
  float lse = 0;
  AttentionCall call;
  call.query = query.data();
  call.keys = keys;
  call.out = out.data();
  call.lse = &lse;
  AttentionMode mode;
  mode.softmax = Softmax::bf16;
  const float logit = arith::from_bits(0x3D350000);  // bf16 of 0x3D3504F3
  for (const SinkInMax in_max : {SinkInMax::no, SinkInMax::yes}) {
    mode.sink_in_max = in_max;
    attention(call, 1, &logit, mode);  // sink = logit: probability 1/2
    CHECK(lse == logit);
    CHECK(out[0] == 0x3F00);
    CHECK(out[1] == 0x3FC0);
  }
  // A sink far above: without it in the maximum exp overflows and the output is 0; with it, it only is tiny.
  const float sink = 89.0F;
  mode.sink_in_max = SinkInMax::no;
  attention(call, 1, &sink, mode);
  CHECK(out[1] == 0);
  mode.sink_in_max = SinkInMax::yes;
  attention(call, 1, &sink, mode);
  CHECK(out[1] != 0);
}
