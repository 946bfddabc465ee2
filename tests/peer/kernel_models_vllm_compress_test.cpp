/// vLLM's compressor in Triton: pooled, normed and rotated float32 values and whole cache pages of the models
/// against every recorded launch, equal to the bit, bytes that the kernel leaves alone included. Then the
/// same inputs under neighbouring rules, which the recordings must reject.
#include <functional>
#include <string>
#include <vector>

#include "peer/model_tally.hpp"
#include "peer/recorded_kernel.hpp"
#include "reference/kernels/vllm_compress_norm_rope_insert.hpp"
#include "support/catch.hpp"

using namespace dsv4::kernels;
using namespace dsv4::peer;

namespace {

struct CompressFile {
  const char* name;
  VllmCompressKernel kernel;
  const char* out = "out";
};

const CompressFile kFiles[] = {
    {"vllm_compress_hd512_ratio4", {}},
    {"vllm_compress_hd512_ratio128", {.ratio = 128}},
    {"vllm_compress_hd512_ratio128", {.ratio = 128, .order = PoolOrder::two_stage}, "out_two_stage"},
    {"vllm_compress_hd128_fp8", {.head_dim = 128, .store = CompressStore::index_fp8}},
    {"vllm_compress_hd128_mxfp4", {.head_dim = 128, .store = CompressStore::index_mxfp4}},
};

/// A launch: its inputs, and its pages before and after.
struct Launch {
  Array state, block_table, token_to_req, positions, slot_mapping, kv_slot_mapping, table, recorded;
  std::vector<float> weight;
  VllmCompressInputs in;
  PageLayout pages;
  std::vector<std::uint8_t> cache;

  Launch(const PeerFile& file, const std::string& name, const CompressFile& what)
      : state(file.read(name + "/in/state_cache")),
        block_table(file.read(name + "/in/block_table")),
        token_to_req(file.read(name + "/in/token_to_req")),
        positions(file.read(name + "/in/positions")),
        slot_mapping(file.read(name + "/in/slot_mapping")),
        kv_slot_mapping(file.read(name + "/in/kv_slot_mapping")),
        table(file.read("shared/cos_sin_cache")),
        recorded(file.read(name + "/" + what.out + "/kv_cache")),
        weight(widened(file.read(name + "/in/rms_norm_weight"))) {
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
    cache = filled_like<std::uint8_t>(recorded, static_cast<int>(file.number(name, "poison_byte")));
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

/// Differing cache bytes of all cases of a file under another rule.
std::int64_t rejected(
    const CompressFile& what, const std::string& rule, const VllmCompressKernel& kernel,
    const std::function<void(Launch&)>& change = [](Launch&) {}) {
  PeerFile file(what.name);
  ModelTally tally(what.name, "instead: " + rule, false);
  for (const std::string& name : file.cases()) {
    Launch launch(file, name, what);
    change(launch);
    vllm_compress_norm_rope_insert(kernel, launch.in, launch.pages, launch.cache);
    tally.count(launch.cache.data(), launch.recorded.as<std::uint8_t>(), launch.recorded.elements());
  }
  return tally.differing();
}

RopePair rotate_unfused(RopePair x, float c, float s) {
  return {x.even * c - x.odd * s, x.odd * c + x.even * s};
}

}  // namespace

TEST_CASE("vLLM compress, norm, RoPE, quantise, insert: every recorded byte") {
  for (const CompressFile& what : kFiles) {
    PeerFile file(what.name);
    REQUIRE(file.cases().size() >= 2);
    const std::string kernel = what.name + std::string(what.out).substr(3);
    for (const std::string& name : file.cases()) {
      Launch launch(file, name, what);
      REQUIRE(launch.state.dim(2) == 2 * what.kernel.state_width());
      const VllmCompressStages stages =
          vllm_compress_norm_rope_insert(what.kernel, launch.in, launch.pages, launch.cache);
      ModelTally bytes(kernel, name + ": cache bytes");
      bytes.count(launch.cache.data(), launch.recorded.as<std::uint8_t>(), launch.recorded.elements());
      CHECK(bytes.differing() == 0);

      const std::int64_t width = what.kernel.head_dim;
      if (what.kernel.order == PoolOrder::two_stage) {
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

TEST_CASE("vLLM compress: the recordings reject neighbouring rules") {
  for (const CompressFile& what : kFiles) {
    VllmCompressKernel other = what.kernel;
    other.rotate = rotate_fused_even;
    const std::int64_t even = rejected(what, "odd' fuses even * sin", other);
    other.rotate = rotate_unfused;
    const std::int64_t unfused = rejected(what, "both products of RoPE rounded", other);
    // The case made for these rules exists for the kernels but MXFP4.
    if (what.kernel.store != CompressStore::index_mxfp4) CHECK(even + unfused > 0);

    if (what.kernel.ratio == 128) {
      other = what.kernel;
      other.order = other.order == PoolOrder::one_stage ? PoolOrder::two_stage : PoolOrder::one_stage;
      CHECK(rejected(what, "rows added in the other kernel's order", other) > 0);
    }
  }
}
