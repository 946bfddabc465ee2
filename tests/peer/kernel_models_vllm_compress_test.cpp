/// vLLM's compressor in Triton: pooled, normed and rotated float32 values and cache bytes of the models
/// against every recorded launch, equal to the bit, and all else untouched. Then the
/// same inputs under neighbouring rules, which the recordings must reject.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "arith/exp.hpp"
#include "arith/fma.hpp"
#include "arith/hopper/divide.hpp"
#include "arith/hopper/mufu.hpp"
#include "peer/model_tally.hpp"
#include "peer/neighbour_rotations.hpp"
#include "peer/recorded_kernel.hpp"
#include "reference/kernels/block_sum.hpp"
#include "reference/kernels/device_math.hpp"
#include "reference/kernels/vllm_compress_norm_rope_insert.hpp"
#include "support/catch.hpp"

using namespace dsv4::kernels;
using namespace dsv4::peer;
using dsv4::arith::fma;
namespace hopper = dsv4::arith::hopper;

namespace {

struct CompressFile {
  const char* name;
  VllmCompressKernel kernel;
  const char* out = "out";
};

const CompressFile kFiles[] = {
    {"vllm_compress_hd512_ratio4", {}},
    {"vllm_compress_hd512_ratio128", {.ratio = 128}},
    {"vllm_compress_hd512_ratio128", {.ratio = 128, .pool = vllm_pool_two_stage}, "out_two_stage"},
    {"vllm_compress_hd128_fp8", {.head_dim = 128, .store = CompressStore::index_fp8}},
    {"vllm_compress_hd128_mxfp4", {.head_dim = 128, .store = CompressStore::index_mxfp4}},
};

/// A launch: its inputs, and its pages before and after.
struct Launch {
  Array state, block_table, token_to_req, positions, slot_mapping, kv_slot_mapping, table, recorded;
  std::vector<float> weight;
  VllmCompressInputs in;
  PageLayout pages;
  Written<std::uint8_t> cache;

  Launch(const PeerFile& file, const std::string& name, const CompressFile& what)
      : state(file.read(name + "/in/state_cache")),
        block_table(file.read(name + "/in/block_table")),
        token_to_req(file.read(name + "/in/token_to_req")),
        positions(file.read(name + "/in/positions")),
        slot_mapping(file.read(name + "/in/slot_mapping")),
        kv_slot_mapping(file.read(name + "/in/kv_slot_mapping")),
        table(file.read("shared/cos_sin_cache")),
        recorded(file.read(name + "/" + what.out + "/kv_cache")),
        weight(widened(file.read(name + "/in/rms_norm_weight"))),
        cache(recorded, static_cast<int>(file.number(name, "poison_byte"))) {
    in.state = elements<float>(state);
    in.block_rows = state.dim(1);
    in.block_table = elements<std::int32_t>(block_table);
    in.table_width = block_table.dim(1);
    in.token_to_req = elements<std::int32_t>(token_to_req);
    in.positions = elements<std::int64_t>(positions);
    in.slot_mapping = elements<std::int64_t>(slot_mapping);
    in.kv_slot_mapping = elements<std::int64_t>(kv_slot_mapping);
    in.norm_weight = weight;
    in.eps = static_cast<float>(file.number(name, "rms_norm_eps"));
    in.cos_sin = elements<float>(table);
    pages = {static_cast<std::int64_t>(file.number(name, "kv_page_stride_bytes")),
             static_cast<std::int64_t>(file.number(name, "kv_page_size")),
             static_cast<std::int64_t>(file.number(name, "token_stride")),
             static_cast<std::int64_t>(file.number(name, "scale_dim"))};
  }

  VllmCompressStages run(const VllmCompressKernel& kernel) {
    vllm_compress_norm_rope_insert(kernel, in, pages, cache.second);
    return vllm_compress_norm_rope_insert(kernel, in, pages, cache.first);
  }
};

/// Rows `tokens` of a stage [tokens, width]; `recorded` has one row for each, its last columns of them.
void compare_stage(ModelTally& tally, const std::vector<float>& stage, std::int64_t width,
                   const Array& tokens, const Array& recorded) {
  const std::int64_t columns = recorded.dim(1);
  for (std::int64_t r = 0; r < tokens.elements(); ++r) {
    const float* row = stage.data() + tokens.as<std::int32_t>()[r] * width + (width - columns);
    tally.count(bits_of(row), recorded.as<std::uint32_t>() + r * columns, columns);
  }
}

/// Cache bytes of a case that differ under another rule.
std::int64_t rejected(const CompressFile& what, const std::string& name, const std::string& rule,
                      const VllmCompressKernel& kernel) {
  PeerFile file(what.name);
  ModelTally tally(what.name, name + ", instead: " + rule, false);
  Launch launch(file, name, what);
  launch.run(kernel);
  CHECK(launch.cache.count(tally, launch.recorded));
  return tally.differing();
}

// Neighbouring rules. Pooling: each differs from the kernel's in one step.

using Column = std::span<const float>;

std::vector<float> exponentials(Column scores) {
  const float peak = *std::max_element(scores.begin(), scores.end());
  std::vector<float> e;
  for (const float s : scores) e.push_back(hopper::ex2((s - peak) * kLog2E));
  return e;
}
float total(const std::vector<float>& e) {
  float sum = e[0];
  for (std::size_t r = 1; r < e.size(); ++r) sum = sum + e[r];
  return sum;
}
float weighted(const std::vector<float>& p, Column kv) {
  float sum = fma(p[0], kv[0], p[1] * kv[1]);
  for (std::size_t r = 2; r < p.size(); ++r) sum = fma(p[r], kv[r], sum);
  return sum;
}
std::vector<float> probabilities(Column scores) {
  std::vector<float> p = exponentials(scores);
  const float sum = total(p);
  for (float& x : p) x = hopper::div_full(x, sum);
  return p;
}

float pool_divide_last(Column scores, Column kv) {
  const std::vector<float> e = exponentials(scores);
  return hopper::div_full(weighted(e, kv), total(e));
}
float pool_exact_exp(Column scores, Column kv) {
  const float peak = *std::max_element(scores.begin(), scores.end());
  std::vector<float> p;
  for (const float s : scores) p.push_back(dsv4::arith::exp(s - peak));
  const float sum = total(p);
  for (float& x : p) x = hopper::div_full(x, sum);
  return weighted(p, kv);
}
float pool_ieee_division(Column scores, Column kv) {
  std::vector<float> p = exponentials(scores);
  const float sum = total(p);
  for (float& x : p) x = x / sum;
  return weighted(p, kv);
}
float pool_from_row0(Column scores, Column kv) {
  const std::vector<float> p = probabilities(scores);
  float sum = p[0] * kv[0];
  for (std::size_t r = 1; r < p.size(); ++r) sum = fma(p[r], kv[r], sum);
  return sum;
}
float pool_no_fma(Column scores, Column kv) {
  const std::vector<float> p = probabilities(scores);
  float sum = p[0] * kv[0];
  for (std::size_t r = 1; r < p.size(); ++r) sum = sum + p[r] * kv[r];
  return sum;
}

float mean_of(float sum, Column row, float eps) {
  return fma(sum, 1.0F / static_cast<float>(row.size()), eps);
}
float kernel_sum(Column row) {
  return triton_square_sum(row, {row.size() == 512 ? 4 : 1, 4});
}
void scale(Column row, const float* weight, float r, float* normed) {
  for (std::size_t i = 0; i < row.size(); ++i) normed[i] = row[i] * r * weight[i];
}
void norm_ieee_rsqrt(Column row, const float* weight, float eps, float* normed) {
  scale(row, weight, 1.0F / std::sqrt(mean_of(kernel_sum(row), row, eps)), normed);
}
void norm_weight_first(Column row, const float* weight, float eps, float* normed) {
  const float r = hopper::rsqrt_ftz(mean_of(kernel_sum(row), row, eps));
  for (std::size_t i = 0; i < row.size(); ++i) normed[i] = row[i] * (r * weight[i]);
}
/// Lane l owns columns l, l + 32, ...
void norm_strided_sum(Column row, const float* weight, float eps, float* normed) {
  std::array<float, 32> lanes{};
  for (std::size_t i = 0; i < row.size(); ++i) lanes[i % 32] = fma(row[i], row[i], lanes[i % 32]);
  scale(row, weight, hopper::rsqrt_ftz(mean_of(butterfly_sum(lanes, kWarpOffsets), row, eps)), normed);
}
void norm_double_sum(Column row, const float* weight, float eps, float* normed) {
  double sum = 0;
  for (const float x : row) sum += double(x) * double(x);
  scale(row, weight, hopper::rsqrt_ftz(mean_of(static_cast<float>(sum), row, eps)), normed);
}

/// A rule, and how many bytes of case `rounding_sensitive` the recording's own attribute `sensitivity` says
/// would change: head 512 ratio 4, head 512 ratio 128, head 128.
struct Neighbour {
  const char* rule;
  VllmCompressKernel (*change)(VllmCompressKernel);
  std::int64_t predicted[3];
};
template <float (*pool)(Column, Column)>
VllmCompressKernel with_pool(VllmCompressKernel kernel) {
  kernel.pool = pool;
  return kernel;
}
template <void (*norm)(Column, const float*, float, float*)>
VllmCompressKernel with_norm(VllmCompressKernel kernel) {
  kernel.norm = norm;
  return kernel;
}
template <RopePair (*rotate)(RopePair, float, float)>
VllmCompressKernel with_rotate(VllmCompressKernel kernel) {
  kernel.rotate = rotate;
  return kernel;
}
const Neighbour kNeighbours[] = {
    {"divided after the weighted sum", with_pool<pool_divide_last>, {1328, 480, 803}},
    {"exp correctly rounded", with_pool<pool_exact_exp>, {1303, 465, 751}},
    {"row 0 rounded, row 1 fused", with_pool<pool_from_row0>, {162, 3, 166}},
    {"IEEE division", with_pool<pool_ieee_division>, {911, 284, 533}},
    {"weighted sum without fma", with_pool<pool_no_fma>, {1018, 189, 730}},
    {"IEEE 1 / sqrt", with_norm<norm_ieee_rsqrt>, {767, 301, 298}},
    {"root times weight first", with_norm<norm_weight_first>, {596, 148, 374}},
    {"squares summed by 32 strided lanes", with_norm<norm_strided_sum>, {628, 148, 402}},
    {"squares summed in double", with_norm<norm_double_sum>, {325, 153, 401}},
    {"even' fuses odd * sin", with_rotate<rotate_fused_odd>, {18, 6, 63}},
    {"odd' fuses even * sin", with_rotate<rotate_fused_even>, {25, 5, 53}},
    {"RoPE without fma", with_rotate<rotate_unfused>, {43, 11, 110}},
};

}  // namespace

TEST_CASE("vLLM compress, norm, RoPE, quantise, insert: every recorded byte") {
  for (const CompressFile& what : kFiles) {
    PeerFile file(what.name);
    REQUIRE(file.cases().size() >= 2);
    const std::string kernel = what.name + std::string(what.out).substr(3);
    for (const std::string& name : file.cases()) {
      Launch launch(file, name, what);
      REQUIRE(launch.state.dim(2) == 2 * what.kernel.state_width());
      const VllmCompressStages stages = launch.run(what.kernel);
      ModelTally bytes(kernel, name + ": cache bytes");
      CHECK(launch.cache.count(bytes, launch.recorded));
      CHECK(bytes.compared() > 0);
      CHECK(bytes.differing() == 0);

      const std::int64_t width = what.kernel.head_dim;
      if (what.kernel.pool == vllm_pool_two_stage) {
        // Rows of tokens that close no window hold what was there before.
        const Array scratch = file.read(name + "/out_two_stage/scratch");
        ModelTally pooled(kernel, name + ": scratch");
        for (std::int64_t t = 0; t < scratch.dim(0); ++t) {
          if (launch.in.slot_mapping[static_cast<std::size_t>(t)] < 0) continue;
          if ((launch.in.positions[static_cast<std::size_t>(t)] + 1) % what.kernel.ratio != 0) continue;
          pooled.count(bits_of(stages.pooled.data() + t * width), scratch.as<std::uint32_t>() + t * width,
                       width);
        }
        CHECK(pooled.compared() > 0);
        CHECK(pooled.differing() == 0);
      } else if (file.has(name + "/instrumented/rows")) {
        const Array rows = file.read(name + "/instrumented/rows");
        const Array rotated_rows = file.read(name + "/instrumented/rotated_rows");
        ModelTally values(kernel, name + ": pooled, normed, rotated");
        compare_stage(values, stages.pooled, width, rows, file.read(name + "/instrumented/pooled"));
        compare_stage(values, stages.normed, width, rows, file.read(name + "/instrumented/normed"));
        compare_stage(values, stages.rotated, width, rotated_rows, file.read(name + "/instrumented/rotated"));
        CHECK(values.compared() > 0);
        CHECK(values.differing() == 0);
      }
    }
  }
}

TEST_CASE("vLLM compress: neighbouring rules change as many recorded bytes as the recordings say") {
  const CompressFile* files[] = {&kFiles[0], &kFiles[1], &kFiles[3]};
  for (std::size_t f = 0; f < 3; ++f) {
    for (const Neighbour& other : kNeighbours) {
      CAPTURE(files[f]->name, other.rule);
      CHECK(rejected(*files[f], "rounding_sensitive", other.rule, other.change(files[f]->kernel)) ==
            other.predicted[f]);
    }
  }
}

TEST_CASE("vLLM compress: one and two stages add in different orders") {
  CHECK(rejected(kFiles[1], "rounding_sensitive", "two stages", kFiles[2].kernel) > 0);
  CHECK(rejected(kFiles[2], "rounding_sensitive", "one stage", kFiles[1].kernel) > 0);
}

TEST_CASE("vLLM compress, MXFP4: the recordings reject neighbouring rules") {
  // Codes of four bits hide the last bits; the rotation that every pair goes through shows in signs of zero.
  VllmCompressKernel other = kFiles[4].kernel;
  other.rotate = [](RopePair x, float c, float s) { return s == 0.0F ? x : rotate_fused_cosine(x, c, s); };
  CHECK(rejected(kFiles[4], "zero_tiny_huge_kv", "pairs outside RoPE left alone", other) > 0);
}
