/// vLLM's and DeepGEMM's kernel models in the place of stages: what a stage publishes and writes equals the
/// model called with inputs that this test puts together, and everything before it is the profile's.
#include <cmath>
#include <cstring>

#include "cli/stage_model_pair.hpp"
#include "reference/kernels/deepgemm_mqa_logits.hpp"
#include "reference/kernels/vllm_compress_norm_rope_insert.hpp"
#include "reference/kernels/vllm_indexer_query.hpp"
#include "reference/kernels/vllm_qk_rmsnorm.hpp"
#include "reference/kernels/vllm_qnorm_rope_kv_insert.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::reference::test;

TEST_CASE("vLLM: query latent, query and window row") {
  for (const LayerKind kind : {LayerKind::swa, LayerKind::csa}) {
    Pair latent(config_of(kind, "vllm-fp8"), Stage::q_down);
    latent.step(9);
    REQUIRE(latent.same(TensorId::hidden));
    kernels::VllmRmsNorm norm;
    const std::vector<float> q_norm = wide(latent.layer()->q_norm);
    norm.weight = q_norm;
    norm.eps = latent.geometry().eps;
    const std::vector<std::uint16_t> q_a =
        product(latent, latent.layer()->wq_a, latent.before(TensorId::hidden));
    std::vector<std::uint16_t> rows(q_a.size());
    for (std::size_t t = 0; t < 9; ++t)
      kernels::vllm_rmsnorm_row(norm, q_a.data() + t * q_norm.size(), rows.data() + t * q_norm.size());
    REQUIRE(holds(latent.after(TensorId::q_latent), rows));
    REQUIRE(relative(latent.before(TensorId::q_latent), latent.after(TensorId::q_latent)) < 1e-3);

    Pair query(config_of(kind, "vllm-fp8"), Stage::q_up);
    query.step(5);
    query.step(4);
    REQUIRE(query.same(TensorId::q_latent));
    REQUIRE(query.same(TensorId::q_raw));
    const std::vector<float> angles = table(query.geometry(), kind, 16);
    const std::vector<std::int64_t> positions = positions_of(query.plan);
    kernels::VllmQueryAndKv in;
    in.heads = query.geometry().heads;
    in.padded_heads = 8;  // more than the live ones
    in.q = query.before(TensorId::q_raw).as<std::uint16_t>();
    in.positions = positions;
    in.cos_sin = angles;
    in.eps = query.geometry().eps;
    std::vector<std::uint16_t> padded(4 * 8 * kHeadDim);
    kernels::vllm_qnorm_rope_kv_insert(in, {}, padded, {});
    const auto q = query.after(TensorId::q).as<std::uint16_t>();
    const auto width = static_cast<std::size_t>(in.heads) * kHeadDim;
    for (std::size_t t = 0; t < 4; ++t)
      REQUIRE(
          std::equal(q.begin() + t * width, q.begin() + (t + 1) * width, padded.begin() + t * 8 * kHeadDim));

    Pair window(config_of(kind, "vllm-fp8"), Stage::kv_window);
    window.step(5);
    window.step(4);
    const std::vector<float> kv_norm = wide(window.layer()->kv_norm);
    norm.weight = kv_norm;
    const std::vector<std::uint16_t> kv_a =
        product(window, window.layer()->wkv, window.before(TensorId::hidden));
    std::vector<std::uint16_t> normed(kv_a.size());
    for (std::size_t t = 0; t < 4; ++t)
      kernels::vllm_rmsnorm_row(norm, kv_a.data() + t * kHeadDim, normed.data() + t * kHeadDim);
    REQUIRE(holds(window.after(TensorId::window_normed), normed));
    // One page of 64 rows, as the kernel addresses it; slots 5 .. 8.
    const std::vector<std::int64_t> slots{5, 6, 7, 8};
    in = {};
    in.kv = normed;
    in.positions = positions;
    in.slot_mapping = slots;
    in.cos_sin = angles;
    std::vector<std::uint8_t> page(37440);
    const kernels::PageLayout layout = kernels::main_pages(64, 37440);
    kernels::vllm_qnorm_rope_kv_insert(in, layout, {}, page);
    const std::vector<std::uint8_t> live = cache_rows(window, Cache::window);
    const auto published = window.after(TensorId::window_page_bytes).as<std::uint8_t>();
    for (std::size_t t = 0; t < 4; ++t) {
      std::vector<std::uint8_t> row(page.begin() + layout.values_at(slots[t]),
                                    page.begin() + layout.values_at(slots[t]) + 576);
      row.insert(row.end(), page.begin() + layout.scales_at(slots[t]),
                 page.begin() + layout.scales_at(slots[t]) + 8);
      REQUIRE(std::equal(row.begin(), row.end(), published.begin() + t * 584));
      REQUIRE(std::equal(row.begin(), row.end(), live.begin() + (t + 5) * 584));
      REQUIRE(std::equal(row.begin(), row.begin() + 448,
                         window.after(TensorId::window_codes).as<std::uint8_t>().begin() + t * 448));
      REQUIRE(std::equal(row.begin() + 576, row.begin() + 583,
                         window.after(TensorId::window_scales).as<std::uint8_t>().begin() + t * 7));
    }
    // What the step says that it wrote is what lies there.
    for (const Write& write : window.models.engine().writes(0)) {
      if (write.cache != Cache::window) continue;
      REQUIRE(std::memcmp(write.bytes.data(), live.data() + write.index * 584, 584) == 0);
    }
  }
}

TEST_CASE("vLLM: compressed and index entries, pooled and finished by one kernel") {
  for (const char* profile : {"vllm-fp8", "vllm-mxfp4"}) {
    for (const bool indexer : {false, true}) {
      INFO(profile << ", indexer " << indexer);
      const Stage pool = indexer ? Stage::indexer_pool : Stage::compress_pool;
      const Stage finish = indexer ? Stage::indexer_finish : Stage::compress_finish;
      RunConfig config = config_of(LayerKind::csa, profile);
      Harness harness(config);
      const auto weights = seeded_weights(harness.plans.config);
      harness.wrap([&](std::unique_ptr<Engine> engine) {
        return cli::with_model_kernels(std::move(engine), weights, [&](const cli::StageModel& model) {
          return model.stage == pool || model.stage == finish;
        });
      });
      harness.admit("a");
      // The state as the kernel sees it: rows kv | score + ape of all positions, in one block.
      const int d = indexer ? kIndexDim : kHeadDim;
      const int width = 2 * d;
      std::vector<float> state(64 * 2 * static_cast<std::size_t>(width));
      const CompressorWeights& compressor =
          indexer ? weights->layer(0)->indexer_compressor : weights->layer(0)->compressor;
      int at = 0;
      for (const int tokens : {6, 5}) {
        harness.run(harness.plans.step({{0, tokens}}));
        const auto kv =
            harness.engine().tensor(0, indexer ? TensorId::indexer_kv : TensorId::compress_kv)->as<float>();
        const auto score = harness.engine()
                               .tensor(0, indexer ? TensorId::indexer_score_raw : TensorId::compress_score)
                               ->as<float>();
        for (int t = 0; t < tokens; ++t, ++at) {
          for (int c = 0; c < width; ++c) {
            const auto from = static_cast<std::size_t>(t * width + c);
            state[static_cast<std::size_t>(at * 2 * width + c)] = kv[from];
            state[static_cast<std::size_t>(at * 2 * width + width + c)] =
                score[from] + compressor.ape[static_cast<std::size_t>(at % 4 * width + c)];
          }
        }
      }
      const bool fp4 = harness.config().profile.get<IndexCache>() == IndexCache::fp4;
      kernels::VllmCompressKernel kernel;
      kernel.head_dim = d;
      kernel.store = !indexer ? kernels::CompressStore::main_fp8
                     : fp4    ? kernels::CompressStore::index_mxfp4
                              : kernels::CompressStore::index_fp8;
      const std::vector<float> norm = wide(compressor.norm);
      const std::vector<float> angles = table(harness.config().geometry, LayerKind::csa, 16);
      const std::vector<std::int32_t> block{0};
      const std::vector<std::int32_t> owner{0, 0};
      const std::vector<std::int64_t> positions{3, 7};
      const std::vector<std::int64_t> slots{0, 1};
      kernels::VllmCompressInputs in;
      in.state = state;
      in.block_rows = 64;
      in.block_table = block;
      in.table_width = 1;
      in.token_to_req = owner;
      in.positions = positions;
      in.slot_mapping = positions;
      in.kv_slot_mapping = slots;
      in.norm_weight = norm;
      in.eps = harness.config().geometry.eps;
      in.cos_sin = angles;
      const int values = !indexer ? 576 : fp4 ? 64 : 128;
      const int scales = !indexer ? 8 : 4;
      const kernels::PageLayout layout{64 * (values + scales), 64, values, scales};
      std::vector<std::uint8_t> page(static_cast<std::size_t>(layout.page_bytes));
      const kernels::VllmCompressStages stages =
          kernels::vllm_compress_norm_rope_insert(kernel, in, layout, page);
      // Entry 1 closed in the second step, over rows of both.
      const Tensor& pooled =
          *harness.engine().tensor(0, indexer ? TensorId::indexer_pooled : TensorId::compress_pooled);
      REQUIRE(pooled.dim(0) == 1);
      REQUIRE(std::memcmp(pooled.bytes().data(), stages.pooled.data() + d, pooled.bytes().size()) == 0);
      const std::vector<std::byte> live =
          harness.engine().live_rows(0, indexer ? Cache::index_entries : Cache::entries, harness.live);
      for (int entry = 0; entry < 2; ++entry) {
        const std::byte* const row = live.data() + entry * (values + scales);
        REQUIRE(std::memcmp(row, page.data() + layout.values_at(entry), static_cast<std::size_t>(values)) ==
                0);
        REQUIRE(std::memcmp(row + values, page.data() + layout.scales_at(entry),
                            static_cast<std::size_t>(scales)) == 0);
      }
      const Tensor& bytes =
          *harness.engine().tensor(0, indexer ? TensorId::indexer_page_bytes : TensorId::compress_page_bytes);
      REQUIRE(std::memcmp(bytes.bytes().data(), live.data() + (values + scales), bytes.bytes().size()) == 0);
    }
  }
}

TEST_CASE("vLLM: index queries in FP8 and MXFP4") {
  for (const char* profile : {"vllm-fp8", "vllm-mxfp4"}) {
    Pair pair(config_of(LayerKind::csa, profile), Stage::indexer_query);
    pair.step(5);
    pair.step(4);
    REQUIRE(pair.same(TensorId::q_latent));
    REQUIRE(pair.same(TensorId::indexer_page_bytes));
    const std::vector<std::uint16_t> q =
        product(pair, pair.layer()->indexer_wq_b, pair.before(TensorId::q_latent));
    const Matrix& proj = pair.layer()->indexer_weights_proj;
    std::vector<std::uint16_t> projected(static_cast<std::size_t>(4 * proj.rows));
    reference::Activations plain;
    plain.bf16 = pair.before(TensorId::hidden).as<std::uint16_t>().data();
    reference::linear(proj, reference::all_outputs(proj), plain, 4, projected.data(), proj.rows);
    const std::vector<float> head_weights = wide(projected);
    const std::vector<std::int64_t> positions = positions_of(pair.plan);
    const std::vector<float> angles = table(pair.geometry(), LayerKind::csa, 16);
    kernels::VllmIndexerQuery in;
    in.heads = pair.geometry().index_heads;
    in.q = q;
    in.positions = positions;
    in.cos_sin = angles;
    in.weights = head_weights;
    in.softmax_scale = arith::from_bits(0x3DB504F3U);  // 128^-0.5
    in.head_scale = static_cast<float>(std::pow(static_cast<double>(in.heads), -0.5));
    if (pair.models.config().profile.get<IndexCache>() == IndexCache::fp8) {
      const kernels::VllmIndexerQueryFp8 out = kernels::vllm_indexer_query_fp8(in);
      REQUIRE(holds(pair.after(TensorId::query_codes), out.codes));
      REQUIRE(holds(pair.after(TensorId::query_weights), out.weights));
    } else {
      const kernels::VllmIndexerQueryMxfp4 out = kernels::vllm_indexer_query_mxfp4(in);
      const auto codes = pair.after(TensorId::query_codes).as<std::uint8_t>();
      for (std::size_t i = 0; i < out.codes.size(); ++i)
        REQUIRE((codes[2 * i] | codes[2 * i + 1] << 4) == out.codes[i]);
      REQUIRE(holds(pair.after(TensorId::query_scales), out.scales));
      REQUIRE(holds(pair.after(TensorId::query_weights), out.weights));
    }
  }
}

TEST_CASE("index scores by DeepGEMM") {
  RunConfig config = config_of(LayerKind::csa, "vllm-fp8");
  config.geometry.index_heads = 32;
  Pair pair(config, Stage::indexer_score);
  pair.step(9);
  pair.step(3);
  REQUIRE(pair.same(TensorId::query_codes));
  const std::vector<std::uint8_t> rows = cache_rows(pair, Cache::index_entries);
  std::vector<std::uint8_t> keys;
  std::vector<float> scales(3);
  for (std::size_t j = 0; j < 3; ++j) {
    keys.insert(keys.end(), rows.begin() + j * 132, rows.begin() + j * 132 + 128);
    std::memcpy(&scales[j], rows.data() + j * 132 + 128, 4);
  }
  const std::vector<std::int32_t> start(3, 0);
  kernels::DeepgemmMqaLogits in;
  in.tokens = 3;
  in.keys = 3;
  in.heads = 32;
  in.q = pair.before(TensorId::query_codes).as<std::uint8_t>().data();
  in.kv = keys.data();
  in.kv_scales = scales.data();
  in.weights = pair.before(TensorId::query_weights).as<float>().data();
  in.key_start = start.data();
  in.key_end = pair.before(TensorId::visible).as<std::int32_t>().data();
  std::vector<float> logits(9);
  kernels::deepgemm_mqa_logits(in, logits.data(), 3);
  const Tensor& scores = pair.after(TensorId::scores);
  for (std::int64_t t = 0; t < 3; ++t) {
    for (std::int32_t j = 0; j < in.key_end[t]; ++j) {
      REQUIRE(scores.as<float>()[static_cast<std::size_t>(t * scores.dim(1) + j)] ==
              logits[static_cast<std::size_t>(t * 3 + j)]);
    }
  }
}
