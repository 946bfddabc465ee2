/// Stages of ours that recorded kernels compute by rules that ours cover exactly: state writes, cache insert
/// and gather, slot translation, e4m3 / ue8m0 / e2m1 codes and scales, RoPE. Equal to the bit, or the test
/// names the rounding step at which they part.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "arith/bf16.hpp"
#include "arith/bits.hpp"
#include "arith/fma.hpp"
#include "model/layout.hpp"
#include "peer/peer_file.hpp"
#include "reference/block_quantizer.hpp"
#include "reference/kv_row.hpp"
#include "reference/rms_norm.hpp"
#include "reference/rope.hpp"
#include "reference/row_store.hpp"
#include "reference/slots.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::reference;
using peer::Array;
using peer::PeerFile;

namespace {

/// Elements compared and differing, printed as one row of the table of `ctest -L peer -V`.
struct Tally {
  std::string what;
  std::int64_t compared = 0;
  std::int64_t differing = 0;

  explicit Tally(std::string name) : what(std::move(name)) {}
  ~Tally() {
    std::printf("%-72s %9ld compared %7ld differ\n", what.c_str(), long(compared), long(differing));
  }
  void count(bool equal) {
    ++compared;
    differing += equal ? 0 : 1;
  }
  void bytes(const void* ours, const void* theirs, std::size_t n) {
    const auto* a = static_cast<const unsigned char*>(ours);
    const auto* b = static_cast<const unsigned char*>(theirs);
    for (std::size_t i = 0; i < n; ++i) count(a[i] == b[i]);
  }
};

/// The recorded rotation table: [position, 32 cosines then 32 sines].
RopeAngles recorded_angles(const Array& table, std::int64_t position) {
  RopeAngles angles;
  const float* row = table.as<float>() + position * kRopeDim;
  for (int i = 0; i < kRopePairs; ++i) {
    angles.cos[static_cast<std::size_t>(i)] = row[i];
    angles.sin[static_cast<std::size_t>(i)] = row[kRopePairs + i];
  }
  return angles;
}

/// The kernels that fuse the other product of the odd element: odd' = fma(even, sin, rn(odd * cos)).
void rotate_fusing_sine(std::uint16_t* x, const RopeAngles& angles) {
  for (int i = 0; i < kRopePairs; ++i) {
    const float c = angles.cos[static_cast<std::size_t>(i)];
    const float s = angles.sin[static_cast<std::size_t>(i)];
    const float e = arith::bf16_to_f32(x[2 * i]);
    const float o = arith::bf16_to_f32(x[2 * i + 1]);
    x[2 * i] = arith::f32_to_bf16(arith::fma(e, c, -(o * s)));
    x[2 * i + 1] = arith::f32_to_bf16(arith::fma(e, s, o * c));
  }
}

RowShape kv_pages(std::int64_t pages, int rows, std::int64_t pitch) {
  return {layout::kKvValueBytes, layout::kKvScaleBytes, rows, pages, pitch, false};
}

/// Compares the bytes of every slot in `slots` with a recorded image of the pages.
void compare_slots(Tally& tally, const RowStore& ours, const Array& recorded,
                   const std::vector<std::int64_t>& slots) {
  RowStore theirs("recorded", ours.shape());
  for (std::int64_t page = 0; page < ours.shape().units; ++page) {
    theirs.write_unit(page, {recorded.bytes.data() + page * ours.shape().pitch,
                             static_cast<std::size_t>(ours.shape().pitch)});
  }
  std::vector<std::byte> a(static_cast<std::size_t>(ours.shape().row_bytes()));
  std::vector<std::byte> b(a.size());
  for (const std::int64_t slot : slots) {
    ours.read(slot, a);
    theirs.read(slot, b);
    tally.bytes(a.data(), b.data(), a.size());
  }
}

}  // namespace

TEST_CASE("the page size of recorded caches is ours") {
  PeerFile file("vllm_compress_hd512_ratio4");
  for (const std::string& name : file.cases()) {
    REQUIRE(layout::kv_page_bytes(64) ==
            static_cast<std::int64_t>(file.number(name, "kv_page_stride_bytes")));
  }
  PeerFile index8("vllm_compress_hd128_fp8");
  PeerFile index4("vllm_compress_hd128_mxfp4");
  REQUIRE(layout::index_page_bytes(64, false) == index8.read("start_of_sequence/out/kv_cache").dim(1));
  REQUIRE(layout::index_page_bytes(64, true) == index4.read("start_of_sequence/out/kv_cache").dim(1));
}

TEST_CASE("compressed rows from the recorded norm on: RoPE, codes, scales, page bytes") {
  for (const char* kernel : {"vllm_compress_hd512_ratio4", "vllm_compress_hd512_ratio128"}) {
    PeerFile file(kernel);
    const Array table = file.read("shared/cos_sin_cache");
    const std::int64_t ratio = kernel == std::string("vllm_compress_hd512_ratio4") ? 4 : 128;
    for (const std::string& name : file.cases()) {
      const Array positions = file.read(name + "/in/positions");
      const Array slots = file.read(name + "/in/kv_slot_mapping");
      const Array rows = file.read(name + "/instrumented/rows");
      const Array normed = file.read(name + "/instrumented/normed");
      const Array rotated_rows = file.read(name + "/instrumented/rotated_rows");
      const Array rotated = file.read(name + "/instrumented/rotated");
      const Array pages = file.read(name + "/out/kv_cache");
      RowStore store(name, kv_pages(pages.dim(0), 64, pages.dim(1)));
      Tally rope(std::string(kernel) + " " + name + ": rotated f32");
      Tally bytes(std::string(kernel) + " " + name + ": cache bytes");
      std::vector<std::int64_t> written;
      for (std::int64_t r = 0; r < rotated_rows.elements(); ++r) {
        const std::int32_t token = rotated_rows.as<std::int32_t>()[r];
        std::int64_t n = 0;
        while (rows.as<std::int32_t>()[n] != token) ++n;
        const float* norm = normed.as<float>() + n * kHeadDim;
        std::array<float, kRopeDim> part;
        std::copy(norm + kNopeDim, norm + kHeadDim, part.begin());
        const std::int64_t position = positions.as<std::int64_t>()[token];
        rope_rotate(part.data(), recorded_angles(table, position / ratio * ratio), RopeDirection::forward);
        for (int i = 0; i < kRopeDim; ++i) {
          rope.count(arith::to_bits(part[static_cast<std::size_t>(i)]) ==
                     arith::to_bits(rotated.as<float>()[r * kRopeDim + i]));
        }
        std::array<std::uint16_t, kHeadDim> row;
        round_bf16(norm, kNopeDim, row.data());
        round_bf16(part.data(), kRopeDim, row.data() + kNopeDim);
        std::array<std::uint8_t, kNopeDim> codes;
        std::array<std::uint8_t, layout::kKvScales> scales;
        std::array<std::byte, layout::kKvRowBytes> encoded;
        encode_kv_row(row.data(), QuantFloor::amax, codes.data(), scales.data(), encoded.data());
        const std::int64_t slot = slots.as<std::int64_t>()[token];
        store.write(slot, encoded);
        written.push_back(slot);
      }
      REQUIRE_FALSE(written.empty());
      compare_slots(bytes, store, pages, written);
      CHECK(rope.differing == 0);
      CHECK(bytes.differing == 0);
    }
  }
}

TEST_CASE("index keys from the recorded norm on: RoPE, codes, f32 scale, page bytes") {
  PeerFile file("vllm_compress_hd128_fp8");
  const Array table = file.read("shared/cos_sin_cache");
  for (const std::string& name : file.cases()) {
    const Array positions = file.read(name + "/in/positions");
    const Array slots = file.read(name + "/in/kv_slot_mapping");
    const Array rows = file.read(name + "/instrumented/rows");
    const Array normed = file.read(name + "/instrumented/normed");
    const Array rotated_rows = file.read(name + "/instrumented/rotated_rows");
    const Array rotated = file.read(name + "/instrumented/rotated");
    const Array pages = file.read(name + "/out/kv_cache");
    RowStore store(name, {layout::kIndexFp8ValueBytes, layout::kIndexFp8ScaleBytes, 64, pages.dim(0),
                          pages.dim(1), false});
    Tally rope("vllm_compress_hd128_fp8 " + name + ": rotated f32");
    Tally bytes("vllm_compress_hd128_fp8 " + name + ": cache bytes");
    std::vector<std::int64_t> written;
    for (std::int64_t r = 0; r < rotated_rows.elements(); ++r) {
      const std::int32_t token = rotated_rows.as<std::int32_t>()[r];
      std::int64_t n = 0;
      while (rows.as<std::int32_t>()[n] != token) ++n;
      const float* norm = normed.as<float>() + n * kIndexDim;
      std::array<float, kIndexDim> all;
      std::copy(norm, norm + kIndexDim, all.begin());
      const std::int64_t position = positions.as<std::int64_t>()[token];
      rope_rotate(all.data() + kRopeDim, recorded_angles(table, position / 4 * 4), RopeDirection::forward);
      for (int i = kRopeDim; i < kIndexDim; ++i) {
        rope.count(arith::to_bits(all[static_cast<std::size_t>(i)]) ==
                   arith::to_bits(rotated.as<float>()[r * kIndexDim + i]));
      }
      // The kernel turns every pair, below the RoPE part by cos 1 and sin 0, where -0 becomes +0: take its
      // rows.
      std::array<std::uint16_t, kIndexDim> row;
      round_bf16(rotated.as<float>() + r * kIndexDim, kIndexDim, row.data());
      std::array<std::uint8_t, kIndexDim> codes;
      std::uint8_t scale = 0;
      std::array<std::byte, layout::kIndexFp8RowBytes> encoded;
      quantize_index(row.data(), IndexCache::fp8, codes.data(), &scale);
      encode_index_row(codes.data(), &scale, IndexCache::fp8, encoded.data());
      const std::int64_t slot = slots.as<std::int64_t>()[token];
      store.write(slot, encoded);
      written.push_back(slot);
    }
    REQUIRE_FALSE(written.empty());
    compare_slots(bytes, store, pages, written);
    CHECK(rope.differing == 0);
    CHECK(bytes.differing == 0);
  }
}

TEST_CASE("index queries: e2m1 codes, packing and scales; e4m3 codes; folded weights") {
  const auto c_of = [](std::int64_t heads) {
    return static_cast<float>(1.0 / std::sqrt(128.0 * static_cast<double>(heads)));
  };
  PeerFile fp4("vllm_indexer_q_mxfp4");
  const Array table4 = fp4.read("shared/cos_sin_cache");
  for (const std::string& name : fp4.cases()) {
    const Array q = fp4.read(name + "/in/q");
    const Array positions = fp4.read(name + "/in/positions");
    const Array packed = fp4.read(name + "/out/q_packed");
    const Array scales = fp4.read(name + "/out/q_scale");
    Tally bytes("vllm_indexer_q_mxfp4 " + name + ": codes and scales, sine product fused");
    Tally own("vllm_indexer_q_mxfp4 " + name + ": the same with our RoPE (cosine fused)");
    const std::int64_t heads = q.dim(1);
    for (std::int64_t v = 0; v < q.dim(0) * heads; ++v) {
      const RopeAngles angles = recorded_angles(table4, positions.as<std::int64_t>()[v / heads]);
      for (const bool ours : {false, true}) {
        std::array<std::uint16_t, kIndexDim> row;
        std::copy_n(q.as<std::uint16_t>() + v * kIndexDim, kIndexDim, row.begin());
        if (ours) {
          rope_rotate(row.data() + kRopeDim, angles, RopeDirection::forward);
        } else {
          rotate_fusing_sine(row.data() + kRopeDim, angles);
        }
        std::array<std::uint8_t, kIndexDim> codes;
        std::array<std::uint8_t, 4> scale;
        std::array<std::byte, layout::kIndexFp4RowBytes> encoded;
        quantize_index(row.data(), IndexCache::fp4, codes.data(), scale.data());
        encode_index_row(codes.data(), scale.data(), IndexCache::fp4, encoded.data());
        Tally& tally = ours ? own : bytes;
        tally.bytes(encoded.data(), packed.as<std::uint8_t>() + v * 64, 64);
        tally.bytes(scale.data(), scales.as<std::uint8_t>() + v * 4, 4);
      }
    }
    CHECK(bytes.differing == 0);
    CHECK(own.differing * 1000 <= own.compared);
  }

  PeerFile fp8("vllm_indexer_q_fp8");
  const Array table8 = fp8.read("shared/cos_sin_cache");
  for (const std::string& name : fp8.cases()) {
    const Array q = fp8.read(name + "/in/q");
    const Array positions = fp8.read(name + "/in/positions");
    const Array weights = fp8.read(name + "/in/weights");
    const Array codes_out = fp8.read(name + "/out/q_fp8");
    const Array weights_out = fp8.read(name + "/out/weights_out");
    Tally bytes("vllm_indexer_q_fp8 " + name + ": codes, sine product fused");
    Tally folded("vllm_indexer_q_fp8 " + name + ": weights with scales folded");
    const std::int64_t heads = q.dim(1);
    for (std::int64_t v = 0; v < q.dim(0) * heads; ++v) {
      std::array<std::uint16_t, kIndexDim> row;
      std::copy_n(q.as<std::uint16_t>() + v * kIndexDim, kIndexDim, row.begin());
      rotate_fusing_sine(row.data() + kRopeDim,
                         recorded_angles(table8, positions.as<std::int64_t>()[v / heads]));
      std::array<std::uint8_t, kIndexDim> codes;
      std::uint8_t scale = 0;
      float wide_scale = 0;
      quantize_index(row.data(), IndexCache::fp8, codes.data(), &scale);
      widen_scales(&scale, 1, &wide_scale);
      bytes.bytes(codes.data(), codes_out.as<std::uint8_t>() + v * kIndexDim, kIndexDim);
      if (heads != 64 || weights.element_bytes != 2)
        continue;  // elsewhere c is no product of two powers of two and 2^-3.5
      const float w = arith::bf16_to_f32(weights.as<std::uint16_t>()[v]);
      folded.count(arith::to_bits(w * c_of(heads) * wide_scale) ==
                   arith::to_bits(weights_out.as<float>()[v]));
    }
    CHECK(bytes.differing == 0);
    CHECK(folded.differing == 0);
  }
}

TEST_CASE("attention output: inverse RoPE and FP8 codes and scales") {
  PeerFile file("vllm_inv_rope_fp8_quant");
  const Array table = file.read("shared/cos_sin_cache");
  std::int64_t total = 0;
  for (const std::string& name : file.cases()) {
    const Array o = file.read(name + "/in/o");
    const Array positions = file.read(name + "/in/positions");
    const Array codes_out = file.read(name + "/out/o_fp8");
    const Array scales_out = file.read(name + "/out/scale");
    const std::int64_t tokens = o.dim(0);
    const std::int64_t heads = o.dim(1);
    const std::int64_t group_heads = heads / codes_out.dim(0);
    Tally codes_tally("vllm_inv_rope_fp8_quant " + name + ": codes");
    Tally scales_tally("vllm_inv_rope_fp8_quant " + name + ": scales");
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t h = 0; h < heads; ++h) {
        std::array<float, kHeadDim> row;
        widen_bf16(o.as<std::uint16_t>() + (t * heads + h) * kHeadDim, kHeadDim, row.data());
        rope_rotate(row.data() + kNopeDim, recorded_angles(table, positions.as<std::int64_t>()[t]),
                    RopeDirection::inverse);
        std::array<std::uint8_t, kHeadDim> codes;
        std::array<std::uint8_t, 4> scales;
        quantize_e4m3(row.data(), kHeadDim, 128, QuantFloor::amax, codes.data(), scales.data());
        const std::int64_t group = h / group_heads;
        const std::int64_t column = h % group_heads;
        codes_tally.bytes(
            codes.data(),
            codes_out.as<std::uint8_t>() + ((group * tokens + t) * group_heads + column) * kHeadDim,
            kHeadDim);
        for (std::int64_t b = 0; b < 4; ++b) {
          float scale = 0;
          widen_scales(&scales[static_cast<std::size_t>(b)], 1, &scale);
          const std::int64_t at = (group * scales_out.dim(1) + column * 4 + b) * scales_out.dim(2) + t;
          scales_tally.count(arith::to_bits(scale) == arith::to_bits(scales_out.as<float>()[at]));
        }
      }
    }
    total += codes_tally.compared;
    CHECK(codes_tally.differing == 0);
    CHECK(scales_tally.differing == 0);
  }
  CHECK(total == 28672);
}

TEST_CASE("cache insert and gather of bf16 keys") {
  PeerFile file("vllm_k_cache");
  const std::string name = "two_requests_page64";
  const Array k = file.read(name + "/in/k");
  const Array slots = file.read(name + "/in/slot_mapping");
  const Array pages = file.read(name + "/out/k_cache");
  RowStore store(name, kv_pages(pages.dim(0), 64, pages.dim(1)));
  std::vector<std::int64_t> written;
  for (std::int64_t t = 0; t < k.dim(0); ++t) {
    const std::int64_t slot = slots.as<std::int64_t>()[t];
    if (slot < 0) continue;
    std::array<std::uint8_t, kNopeDim> codes;
    std::array<std::uint8_t, layout::kKvScales> scales;
    std::array<std::byte, layout::kKvRowBytes> encoded;
    encode_kv_row(k.as<std::uint16_t>() + t * kHeadDim, QuantFloor::amax, codes.data(), scales.data(),
                  encoded.data());
    store.write(slot, encoded);
    written.push_back(slot);
  }
  REQUIRE(written.size() == 75);
  {
    Tally bytes("vllm_k_cache " + name + ": cache bytes");
    compare_slots(bytes, store, pages, written);
    CHECK(bytes.differing == 0);
  }
  const Array table = file.read(name + "/in/block_table");
  const Array lengths = file.read(name + "/in/seq_lens");
  const Array gathered = file.read(name + "/out/gathered");
  const auto offset = static_cast<std::int64_t>(file.number(name, "offset"));
  Tally values("vllm_k_cache " + name + ": gathered bf16 values");
  for (std::int64_t request = 0; request < lengths.elements(); ++request) {
    for (std::int64_t p = 0; p < lengths.as<std::int32_t>()[request]; ++p) {
      const std::int64_t page = table.as<std::int32_t>()[request * table.dim(1) + p / 64];
      std::array<float, kHeadDim> row;
      std::array<std::uint16_t, kHeadDim> rounded;
      decode_kv_row(store, page * 64 + p % 64, row.data());
      round_bf16(row.data(), kHeadDim, rounded.data());
      values.bytes(rounded.data(),
                   gathered.as<std::uint16_t>() + (request * gathered.dim(1) + offset + p) * kHeadDim,
                   sizeof rounded);
    }
  }
  CHECK(values.compared == 75 * 1024);
  CHECK(values.differing == 0);
}

TEST_CASE("window rows of the CUDA insert: codes, scales; RoPE parts at the fused product") {
  PeerFile file("vllm_qnorm_rope_kv_insert");
  const Array table = file.read("shared/cos_sin_cache");
  for (const std::string& name : file.cases()) {
    const Array kv = file.read(name + "/in/kv");
    const Array positions = file.read(name + "/in/positions");
    const Array slots = file.read(name + "/in/slot_mapping");
    const Array pages = file.read(name + "/out/k_cache");
    const int page_rows = static_cast<int>(file.number(name, "page_size"));
    REQUIRE(layout::kv_page_bytes(page_rows) == pages.dim(1));
    for (const bool ours : {false, true}) {
      RowStore store(name, kv_pages(pages.dim(0), page_rows, pages.dim(1)));
      std::vector<std::int64_t> written;
      for (std::int64_t t = 0; t < slots.elements(); ++t) {
        const std::int64_t slot = slots.as<std::int64_t>()[t];
        if (slot < 0) continue;
        std::array<std::uint16_t, kHeadDim> row;
        std::copy_n(kv.as<std::uint16_t>() + t * kHeadDim, kHeadDim, row.begin());
        const RopeAngles angles = recorded_angles(table, positions.as<std::int64_t>()[t]);
        if (ours) {
          rope_rotate(row.data() + kNopeDim, angles, RopeDirection::forward);
        } else {
          rotate_fusing_sine(row.data() + kNopeDim, angles);
        }
        std::array<std::uint8_t, kNopeDim> codes;
        std::array<std::uint8_t, layout::kKvScales> scales;
        std::array<std::byte, layout::kKvRowBytes> encoded;
        encode_kv_row(row.data(), QuantFloor::amax, codes.data(), scales.data(), encoded.data());
        store.write(slot, encoded);
        written.push_back(slot);
      }
      Tally bytes("vllm_qnorm_rope_kv_insert " + name +
                  (ours ? ": with our RoPE (cosine fused)" : ": cache bytes, sine product fused"));
      compare_slots(bytes, store, pages, written);
      if (!ours) CHECK(bytes.differing == 0);
      // The pairs of `rounding_sensitive` were searched for because they tell the two fusions apart.
      if (ours && name == "rounding_sensitive") CHECK(bytes.differing > 0);
      if (ours && name != "rounding_sensitive") CHECK(bytes.differing * 1000 <= bytes.compared);
    }
  }
}

TEST_CASE("RMS norm parts from the recorded one at mean + eps and the order of the sum") {
  PeerFile file("vllm_qk_rmsnorm");
  for (const std::string& name : file.cases()) {
    const Array qkv = file.read(name + "/in/qkv");
    const Array weight = file.read(name + "/in/kv_weight");
    const Array out = file.read(name + "/out/kv");
    if (weight.element_bytes != 2) continue;  // our norm weights are bf16
    const std::int64_t columns = qkv.dim(1);
    Tally bits("vllm_qk_rmsnorm " + name + ": bf16 (their sum: a chain in a thread, then a butterfly)");
    std::int64_t far = 0;
    for (std::int64_t t = 0; t < qkv.dim(0); ++t) {
      const std::uint16_t* x = qkv.as<std::uint16_t>() + t * columns + (columns - kHeadDim);
      std::array<std::uint16_t, kHeadDim> y;
      rms_norm(x, kHeadDim, weight.as<std::uint16_t>(), 1e-6F, NormWeight::then_round, y.data());
      for (int i = 0; i < kHeadDim; ++i) {
        const std::uint16_t a = y[static_cast<std::size_t>(i)];
        const std::uint16_t b = out.as<std::uint16_t>()[t * kHeadDim + i];
        bits.count(a == b);
        far += a != b && a + 1 != b && b + 1 != a ? 1 : 0;
      }
    }
    CHECK(far == 0);  // neighbouring bf16 values at most
    CHECK(bits.differing * 50 <= bits.compared);
  }
}

TEST_CASE("RoPE table of window-only layers parts from the recorded one at the rounding of the angle") {
  // Theirs is cos and sin of the float64 angle; in ours frequency and angle are f32, which is part of
  // section 9.
  PeerFile file("vllm_compress_hd512_ratio4");
  const Array table = file.read("shared/cos_sin_cache");
  const RopeAngleTable ours(geometry_preset("v4-flash"), LayerKind::swa, RopeTable::f32);
  Tally values("rope table, base 10000: cos and sin (theirs of the float64 angle)");
  for (std::int64_t p = 0; p < table.dim(0); ++p) {
    const RopeAngles a = ours.at(p);
    const RopeAngles b = recorded_angles(table, p);
    for (std::size_t i = 0; i < kRopePairs; ++i) {
      values.count(a.cos[i] == b.cos[i]);
      values.count(a.sin[i] == b.sin[i]);
      // Power, reciprocal and product: three roundings of the angle; then one of the function on each side.
      const double bound = static_cast<double>(p) * ours.frequencies()[i] * 3 * 0x1p-24 + 2 * 0x1p-25;
      REQUIRE(std::fabs(a.cos[i] - b.cos[i]) <= bound);
      REQUIRE(std::fabs(a.sin[i] - b.sin[i]) <= bound);
    }
  }
}

TEST_CASE("selected entries to slots through the block table") {
  PeerFile file("vllm_index_ops");
  const std::string name = "global_topk";
  const Array table = file.read(name + "/in/block_table");
  const Array token_request = file.read(name + "/in/token_to_req");
  const Array valid = file.read(name + "/in/is_valid_token");
  const Array selected = file.read(name + "/in/topk_indices");
  const Array slots = file.read(name + "/out/global_topk_indices");
  const Array lengths = file.read(name + "/out/topk_lens");
  RunConfig config;
  config.geometry = geometry_preset("tiny");
  config.layers = {LayerKind::csa};
  config.cache.c4_page = static_cast<int>(file.number(name, "block_size"));
  config.pool_pages.fill(1 << 10);
  config.state_bases = 1;
  Tally tally("vllm_index_ops " + name + ": slots and lengths");
  for (std::int64_t t = 0; t < selected.dim(0); ++t) {
    if (valid.as<std::uint8_t>()[t] == 0) continue;
    BlockTables tables;
    const std::int32_t request = token_request.as<std::int32_t>()[t];
    const std::int32_t* row = table.as<std::int32_t>() + request * table.dim(1);
    tables[static_cast<std::size_t>(Pool::entries_c4)].assign(row, row + table.dim(1));
    const Slots ours(config, 0, request, &tables, 0);
    std::int32_t count = 0;
    for (std::int64_t i = 0; i < selected.dim(1); ++i) {
      const std::int32_t entry = selected.as<std::int32_t>()[t * selected.dim(1) + i];
      const std::int64_t slot = entry < 0 ? -1 : ours.find(Cache::entries, entry);
      count += entry < 0 ? 0 : 1;
      tally.count(slot == slots.as<std::int32_t>()[t * selected.dim(1) + i]);
    }
    tally.count(count == lengths.as<std::int32_t>()[t]);
  }
  CHECK(tally.differing == 0);
}

TEST_CASE("window and compressed lists of a chunk, combined") {
  // Theirs: compressed selection first, then the window, as rows of a gathered buffer (M a request, N
  // compressed rows first). The sets and both inner orders are ours.
  PeerFile file("vllm_index_ops");
  const std::string name = "combine_c128";
  const Array starts = file.read(name + "/in/query_start_loc");
  const Array lengths = file.read(name + "/in/seq_lens");
  const Array gathered = file.read(name + "/in/gather_lens");
  const Array combined = file.read(name + "/out/combined_indices");
  const Array counts = file.read(name + "/out/combined_lens");
  const auto m = static_cast<std::int32_t>(file.number(name, "M"));
  const auto n = static_cast<std::int32_t>(file.number(name, "N"));
  Tally tally("vllm_index_ops " + name + ": items and lengths");
  for (std::int64_t request = 0; request < lengths.elements(); ++request) {
    const std::int32_t first = starts.as<std::int32_t>()[request];
    const std::int32_t count = starts.as<std::int32_t>()[request + 1] - first;
    const std::int32_t length = lengths.as<std::int32_t>()[request];
    const std::int32_t gather_start = length - gathered.as<std::int32_t>()[request];
    for (std::int32_t q = 0; q < count; ++q) {
      const std::int32_t token = first - starts.as<std::int32_t>()[0] + q;
      const std::int32_t p = length - count + q;
      const std::int32_t entries = (p + 1) / 128;  // section 13: (j + 1) * r <= p + 1
      std::vector<std::int32_t> ours;
      const Array topk = file.read(name + "/in/topk_indices");
      for (std::int32_t i = 0; i < entries; ++i) {
        ours.push_back(topk.as<std::int32_t>()[token * topk.dim(1) + i] +
                       static_cast<std::int32_t>(request) * m);
      }
      for (std::int32_t row = std::max(0, p - kWindow + 1); row <= p; ++row) {
        ours.push_back(static_cast<std::int32_t>(request) * m + n + row - gather_start);
      }
      tally.count(static_cast<std::int32_t>(ours.size()) == counts.as<std::int32_t>()[token]);
      for (std::size_t i = 0; i < ours.size(); ++i) {
        tally.count(ours[i] ==
                    combined.as<std::int32_t>()[token * combined.dim(1) + static_cast<std::int64_t>(i)]);
      }
    }
  }
  CHECK(tally.differing == 0);
}
