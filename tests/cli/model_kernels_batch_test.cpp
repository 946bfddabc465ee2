/// Kernel models over several requests: which rows of a batch are one decode launch and which are prefilled;
/// and windows of 128 that close over rows of two steps.
#include <cstring>
#include <limits>

#include "cli/stage_model_pair.hpp"
#include "reference/kernels/flashmla_sparse_decode.hpp"
#include "reference/kernels/sglang_c128.hpp"
#include "reference/kernels/vllm_compress_norm_rope_insert.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::reference::test;

namespace {

/// The whole memory of a cache, page after page.
struct Memory {
  std::vector<std::uint8_t> bytes;
  std::int64_t stride = 0;
  std::int64_t pages = 0;
};
Memory memory_of(Harness& harness, Cache cache, Pool pool) {
  Memory memory;
  memory.pages = harness.config().pool_pages[static_cast<std::size_t>(pool)];
  for (std::int64_t page = 0; page < memory.pages; ++page) {
    const std::vector<std::byte> bytes = harness.engine().read_row(0, cache, page);
    memory.stride = std::ssize(bytes);
    for (const std::byte byte : bytes) memory.bytes.push_back(static_cast<std::uint8_t>(byte));
  }
  return memory;
}

/// A published list of some rows.
struct Lists {
  std::vector<std::int32_t> slots, lengths;
  int width = 0;
};
Lists lists_of(Harness& harness, TensorId slots_id, TensorId length_id,
               const std::vector<std::int64_t>& rows) {
  const Tensor& slots = *harness.engine().tensor(0, slots_id);
  const Tensor& length = *harness.engine().tensor(0, length_id);
  Lists lists;
  lists.width = static_cast<int>(slots.dim(1));
  for (const std::int64_t row : rows) {
    const auto first = slots.as<std::int32_t>().begin() + row * lists.width;
    lists.slots.insert(lists.slots.end(), first, first + lists.width);
    lists.lengths.push_back(length.as<std::int32_t>()[static_cast<std::size_t>(row)]);
  }
  return lists;
}

/// These rows of the step's attention are what one decode launch makes of them.
void require_decoded(Harness& harness, const LayerWeights& weights, LayerKind kind,
                     const std::vector<std::int64_t>& rows) {
  const std::int64_t heads = harness.config().geometry.heads;
  std::vector<float> sink = weights.attn_sink;
  sink.resize(64, -std::numeric_limits<float>::infinity());
  const Tensor& q = *harness.engine().tensor(0, TensorId::q);
  std::vector<std::uint16_t> queries(rows.size() * 64 * kHeadDim);
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::copy_n(q.as<std::uint16_t>().data() + rows[i] * heads * kHeadDim, heads * kHeadDim,
                queries.data() + i * 64 * kHeadDim);
  const Memory window = memory_of(harness, Cache::window, Pool::window);
  const Lists windows = lists_of(harness, TensorId::window_slots, TensorId::window_length, rows);
  kernels::FlashmlaSparseDecode in;
  in.batch = static_cast<int>(rows.size());
  in.softmax_scale = 0x1.6a09e6p-5F;  // 512^-0.5
  in.q = queries.data();
  in.sink = sink.data();
  in.num_sm_parts = kernels::decode_num_sm_parts(132, 1, 64);
  in.window = {window.bytes.data(), window.pages,          64, window.stride, windows.slots.data(),
               windows.width,       windows.lengths.data()};
  Memory entries;
  Lists compressed;
  if (kind != LayerKind::swa) {
    entries = memory_of(harness, Cache::entries, pool_of(kind, Cache::entries));
    compressed = lists_of(harness, TensorId::compressed_slots, TensorId::compressed_length, rows);
    in.extra = {entries.bytes.data(),    entries.pages,    kind == LayerKind::csa ? 64 : 2, entries.stride,
                compressed.slots.data(), compressed.width, compressed.lengths.data()};
  }
  const kernels::FlashmlaSparseDecodeResult result = kernels::flashmla_sparse_decode(in);
  const Tensor& out = *harness.engine().tensor(0, TensorId::attention_out);
  const Tensor& lse = *harness.engine().tensor(0, TensorId::attention_lse);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    INFO("row " << rows[i]);
    REQUIRE(std::memcmp(out.as<std::uint16_t>().data() + rows[i] * heads * kHeadDim,
                        result.out.data() + i * 64 * kHeadDim,
                        static_cast<std::size_t>(heads * kHeadDim * 2)) == 0);
    REQUIRE(std::memcmp(lse.as<float>().data() + rows[i] * heads, result.lse.data() + i * 64,
                        static_cast<std::size_t>(heads * 4)) == 0);
  }
}

}  // namespace

TEST_CASE("decode rows and verified rows of a batch are one launch of FlashMLA, a chunk is none of it") {
  for (const LayerKind kind : {LayerKind::swa, LayerKind::csa, LayerKind::hca}) {
    INFO(name(kind));
    RunConfig config = config_of(kind, "vllm-fp8");
    config.cache.draft_rows = 4;
    Harness harness(config);
    const auto weights = seeded_weights(harness.plans.config);
    harness.wrap([&](std::unique_ptr<Engine> engine) {
      return cli::with_model_kernels(std::move(engine), weights, [](const cli::StageModel& model) {
        return model.stage == Stage::attention_core;
      });
    });
    const int a = harness.admit("a");
    const int b = harness.admit("b");
    harness.prefill(a, 270);
    harness.prefill(b, 131);
    harness.step({{a, 1}, {b, 3, 1}});
    require_decoded(harness, *weights->layer(0), kind, {0, 1, 2, 3});
    harness.step({{b, 5}, {a, 1}});
    require_decoded(harness, *weights->layer(0), kind, {5});
  }
}

TEST_CASE("windows of 128 that close over rows of the state and of the step") {
  for (const char* profile : {"vllm-fp8", "sglang-fp8"}) {
    INFO(profile);
    Pair pair(config_of(LayerKind::hca, profile), Stage::compress_pool);
    const std::vector<float>& ape = pair.layer()->compressor.ape;
    std::vector<float> raw;
    std::vector<float> biased;
    for (const int tokens : {100, 40}) {
      pair.step(tokens);
      const auto kv = pair.before(TensorId::compress_kv).as<float>();
      const auto score = pair.before(TensorId::compress_score).as<float>();
      for (std::int64_t t = 0; t < tokens; ++t) {
        const auto position = static_cast<std::int64_t>(raw.size()) / (2 * kHeadDim);
        for (std::vector<float>* rows : {&raw, &biased})
          rows->insert(rows->end(), kv.begin() + t * kHeadDim, kv.begin() + (t + 1) * kHeadDim);
        for (std::int64_t c = 0; c < kHeadDim; ++c) {
          const float value = score[static_cast<std::size_t>(t * kHeadDim + c)];
          raw.push_back(value);
          biased.push_back(value + ape[static_cast<std::size_t>(position % 128 * kHeadDim + c)]);
        }
      }
    }
    std::vector<float> pooled(kHeadDim);
    if (std::string(profile).starts_with("vllm")) {
      kernels::VllmCompressKernel kernel;
      kernel.ratio = 128;
      const std::vector<std::int32_t> zero{0};
      const std::vector<std::int64_t> position{127};
      const std::vector<std::int64_t> nowhere{-1};
      const std::vector<float> norm = wide(pair.layer()->compressor.norm);
      const std::vector<float> angles = table(pair.geometry(), LayerKind::hca, 1);
      kernels::VllmCompressInputs in;
      in.state = biased;
      in.block_rows = 140;
      in.block_table = zero;
      in.table_width = 1;
      in.token_to_req = zero;
      in.positions = position;
      in.slot_mapping = position;
      in.kv_slot_mapping = nowhere;
      in.norm_weight = norm;
      in.eps = pair.geometry().eps;
      in.cos_sin = angles;
      pooled = kernels::vllm_compress_norm_rope_insert(kernel, in, kernels::main_pages(64, 37440), {}).pooled;
    } else {
      const kernels::SglangCompressPlan plan{128, 127, 0, 0, 0};
      std::vector<float> memory(2 * kHeadDim);
      kernels::SglangState state{std::span<float>(memory), 2 * kHeadDim};
      kernels::sglang_c128_prefill({&plan, 1}, {}, raw.data(), ape.data(), kHeadDim, state, pooled.data());
    }
    REQUIRE(pair.after(TensorId::compress_pooled).dim(0) == 1);
    REQUIRE(holds(pair.after(TensorId::compress_pooled), pooled));
    REQUIRE_FALSE(pair.same(TensorId::compress_pooled));
    REQUIRE(relative(pair.before(TensorId::compress_pooled), pair.after(TensorId::compress_pooled)) < 1e-6);
  }
}
