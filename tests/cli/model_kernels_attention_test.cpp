/// Kernel models of attention, of the output projection and of SGLang in the place of stages; which tensors
/// then have a kernel's bits, and what is refused.
#include <cmath>
#include <cstring>
#include <limits>

#include "arith/e4m3.hpp"
#include "arith/ue8m0.hpp"
#include "cli/stage_model_pair.hpp"
#include "model/error.hpp"
#include "reference/kernels/deepgemm_fp8_einsum.hpp"
#include "reference/kernels/flashmla_sparse_decode.hpp"
#include "reference/kernels/flashmla_sparse_prefill.hpp"
#include "reference/kernels/sglang_c128_online.hpp"
#include "reference/kernels/sglang_c4.hpp"
#include "reference/kernels/sglang_norm_rope_store.hpp"
#include "reference/kernels/vllm_inv_rope_fp8_quant.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::reference::test;

namespace {

constexpr std::int64_t kPage = 37440;  // of 64 rows
constexpr std::int64_t kRows = 64;

/// Live rows of a cache as pages of 64, entry or position i in slot i.
std::vector<std::uint8_t> paged(const std::vector<std::uint8_t>& rows) {
  const auto count = static_cast<std::int64_t>(rows.size()) / 584;
  std::vector<std::uint8_t> pages(static_cast<std::size_t>((count + kRows - 1) / kRows * kPage));
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint8_t* const page = pages.data() + i / kRows * kPage;
    std::copy_n(rows.data() + i * 584, 576, page + i % kRows * 576);
    std::copy_n(rows.data() + i * 584 + 576, 8, page + kRows * 576 + i % kRows * 8);
  }
  return pages;
}

/// q rows with heads of zeros behind the live ones.
std::vector<std::uint16_t> padded_queries(const Tensor& q, std::int64_t heads) {
  std::vector<std::uint16_t> rows(static_cast<std::size_t>(q.dim(0) * heads * kHeadDim));
  const std::int64_t width = q.dim(1) * kHeadDim;
  for (std::int64_t t = 0; t < q.dim(0); ++t)
    std::copy_n(q.as<std::uint16_t>().data() + t * width, width, rows.data() + t * heads * kHeadDim);
  return rows;
}

void require_heads(const Pair& pair, const Tensor& out, const Tensor& lse,
                   const std::vector<std::uint16_t>& rows, const std::vector<float>& logs) {
  const std::int64_t heads = pair.models.plans.config.geometry.heads;
  for (std::int64_t t = 0; t < out.dim(0); ++t) {
    REQUIRE(std::memcmp(out.as<std::uint16_t>().data() + t * heads * kHeadDim,
                        rows.data() + t * 64 * kHeadDim,
                        static_cast<std::size_t>(heads * kHeadDim * 2)) == 0);
    REQUIRE(std::memcmp(lse.as<float>().data() + t * heads, logs.data() + t * 64,
                        static_cast<std::size_t>(heads * 4)) == 0);
  }
}

}  // namespace

TEST_CASE("attention by FlashMLA: one row is decoded from pages, a chunk is prefilled from widened rows") {
  for (const char* profile : {"vllm-fp8", "sglang-fp8"}) {
    INFO(profile);
    const bool newest_first = std::string(profile).starts_with("sglang");
    Pair pair(config_of(LayerKind::csa, profile), Stage::attention_core);
    std::vector<float> sink = pair.layer()->attn_sink;
    sink.resize(64, -std::numeric_limits<float>::infinity());
    const float scale = 0x1.6a09e6p-5F;  // 512^-0.5
    pair.step(30);
    pair.step(6);  // positions 30 .. 35: a chunk
    REQUIRE(pair.same(TensorId::q));
    REQUIRE(pair.same(TensorId::window_slots));
    REQUIRE(pair.same(TensorId::compressed_logical));
    {
      const std::vector<std::uint8_t> window = cache_rows(pair, Cache::window);
      const std::vector<std::uint8_t> entries = cache_rows(pair, Cache::entries);
      REQUIRE(window.size() == 36 * 584);
      REQUIRE(entries.size() == 9 * 584);
      // Widened rows: entries, then the window.
      std::vector<std::uint16_t> kv(45 * kHeadDim);
      for (std::int64_t i = 0; i < 45; ++i) {
        const std::uint8_t* const row = i < 9 ? entries.data() + i * 584 : window.data() + (i - 9) * 584;
        for (int c = 0; c < kNopeDim; ++c) {
          kv[static_cast<std::size_t>(i * kHeadDim + c)] =
              arith::f32_to_bf16(arith::e4m3_to_f32(row[c]) * arith::ue8m0_to_f32(row[576 + c / 64]));
        }
        std::memcpy(kv.data() + i * kHeadDim + kNopeDim, row + kNopeDim, 128);
      }
      std::vector<std::int32_t> indices(6 * 128, -1);
      std::vector<std::int32_t> lengths;
      const Tensor& selected = pair.before(TensorId::compressed_logical);
      for (int t = 0; t < 6; ++t) {
        int n = 0;
        const int entry_count =
            pair.before(TensorId::compressed_length).as<std::int32_t>()[static_cast<std::size_t>(t)];
        for (int i = 0; i < entry_count; ++i)
          indices[static_cast<std::size_t>(t * 128 + n++)] =
              selected.as<std::int32_t>()[static_cast<std::size_t>(t * selected.dim(1) + i)];
        for (int i = 0; i <= 30 + t; ++i)
          indices[static_cast<std::size_t>(t * 128 + n++)] = 9 + (newest_first ? 30 + t - i : i);
        lengths.push_back(n);
      }
      const std::vector<std::uint16_t> q = padded_queries(pair.before(TensorId::q), 64);
      kernels::FlashmlaSparsePrefill in;
      in.tokens = 6;
      in.keys = 45;
      in.topk = 128;
      in.softmax_scale = scale;
      in.q = q.data();
      in.kv = kv.data();
      in.indices = indices.data();
      in.topk_lengths = lengths.data();
      in.sink = sink.data();
      std::vector<std::uint16_t> out(6 * 64 * kHeadDim);
      std::vector<float> maxima(6 * 64);
      std::vector<float> lse(6 * 64);
      kernels::flashmla_sparse_prefill(in, {out.data(), maxima.data(), lse.data()});
      require_heads(pair, pair.after(TensorId::attention_out), pair.after(TensorId::attention_lse), out, lse);
      REQUIRE(relative(pair.before(TensorId::attention_out), pair.after(TensorId::attention_out)) < 4e-3);
      REQUIRE(relative(pair.before(TensorId::attention_lse), pair.after(TensorId::attention_lse)) < 1e-6);
      REQUIRE_FALSE(pair.same(TensorId::attention_out));
    }
    pair.step(1);  // position 36
    const std::vector<std::uint8_t> window = paged(cache_rows(pair, Cache::window));
    const std::vector<std::uint8_t> entries = paged(cache_rows(pair, Cache::entries));
    std::vector<std::int32_t> window_list(128, -1);
    for (int i = 0; i <= 36; ++i) window_list[static_cast<std::size_t>(i)] = newest_first ? 36 - i : i;
    const Tensor& selected = pair.before(TensorId::compressed_logical);
    const std::int32_t window_length = 37;
    const std::int32_t entry_count = pair.before(TensorId::compressed_length).as<std::int32_t>()[0];
    const std::vector<std::uint16_t> q = padded_queries(pair.before(TensorId::q), 64);
    kernels::FlashmlaSparseDecode in;
    in.batch = 1;
    in.softmax_scale = scale;
    in.q = q.data();
    in.window = {window.data(), std::ssize(window) / kPage, kRows, kPage, window_list.data(), 128,
                 &window_length};
    in.extra = {entries.data(), std::ssize(entries) / kPage,        kRows,
                kPage,          selected.as<std::int32_t>().data(), static_cast<int>(selected.dim(1)),
                &entry_count};
    in.sink = sink.data();
    in.num_sm_parts = kernels::decode_num_sm_parts(132, 1, 64);
    const kernels::FlashmlaSparseDecodeResult result = kernels::flashmla_sparse_decode(in);
    require_heads(pair, pair.after(TensorId::attention_out), pair.after(TensorId::attention_lse), result.out,
                  result.lse);
    REQUIRE(relative(pair.before(TensorId::attention_out), pair.after(TensorId::attention_out)) < 4e-3);
  }
}

TEST_CASE("the output projection: inverse rotation and quantiser by vLLM, wo_a by DeepGEMM") {
  for (const char* profile : {"vllm-fp8", "sglang-fp8"}) {
    INFO(profile);
    Pair pair(config_of(LayerKind::hca, profile), Stage::output_project);
    pair.step(5);
    REQUIRE(pair.same(TensorId::attention_out));
    const Geometry& g = pair.geometry();
    const std::int64_t r = g.heads / g.o_groups * kHeadDim;
    kernels::DeepgemmFp8Einsum in;
    in.b = 5;
    in.h = g.o_groups;
    in.r = r;
    in.d = g.o_lora;
    std::vector<std::uint8_t> x(static_cast<std::size_t>(5 * in.h * r));
    std::vector<float> x_scales(x.size() / 128);
    if (std::string(profile).starts_with("vllm")) {
      const std::vector<float> angles = table(g, LayerKind::hca, 8);
      const std::vector<std::int64_t> positions = positions_of(pair.plan);
      kernels::VllmInverseRope rope;
      rope.groups = g.o_groups;
      rope.heads_per_group = g.heads / g.o_groups;
      rope.padded_tokens = 8;
      rope.o = pair.before(TensorId::attention_out).as<std::uint16_t>();
      rope.positions = positions;
      rope.cos_sin = angles;
      const kernels::VllmInverseRopeOutput out = kernels::vllm_inv_rope_fp8_quant(rope);
      for (std::int64_t t = 0; t < 5; ++t) {
        for (std::int64_t at = 0; at < in.h * r; ++at) {
          const std::int64_t group = at / r;
          x[static_cast<std::size_t>(t * in.h * r + at)] =
              out.codes[static_cast<std::size_t>((group * 5 + t) * r + at % r)];
          x_scales[static_cast<std::size_t>((t * in.h * r + at) / 128)] =
              out.scales[static_cast<std::size_t>((at / 128) * 8 + t)];
        }
      }
      REQUIRE(relative(pair.before(TensorId::o_rot), pair.after(TensorId::o_rot)) < 1e-6);
    } else {
      REQUIRE(pair.same(TensorId::o_rot));
      const auto rows = reference::quantize_rows(
          pair.models.config().profile, pair.before(TensorId::o_rot).as<std::uint16_t>().data(), 5, in.h * r);
      std::ranges::copy(rows.codes, x.begin());
      std::ranges::transform(rows.scales, x_scales.begin(), arith::ue8m0_to_f32);
    }
    const Matrix& weight = pair.layer()->wo_a;
    std::vector<float> w_scales;
    for (const std::uint8_t scale : weight.scales) w_scales.push_back(arith::ue8m0_to_f32(scale));
    in.x = x.data();
    in.x_scales = x_scales.data();
    in.w = weight.codes.data();
    in.w_scales = w_scales.data();
    std::vector<std::uint16_t> latent(static_cast<std::size_t>(5 * in.h * in.d));
    kernels::deepgemm_fp8_einsum(in, latent.data());
    REQUIRE(holds(pair.after(TensorId::o_latent), latent));
    REQUIRE(holds(pair.after(TensorId::hidden_out),
                  product(pair, pair.layer()->wo_b, pair.after(TensorId::o_latent))));
    REQUIRE(relative(pair.before(TensorId::o_latent), pair.after(TensorId::o_latent)) < 2e-3);
  }
}

TEST_CASE("SGLang: entries pooled from raw scores, norm, rotation and store") {
  for (const char* profile : {"sglang-fp8", "sglang-fp4"}) {
    for (const bool indexer : {false, true}) {
      INFO(profile << ", indexer " << indexer);
      Pair pool(config_of(LayerKind::csa, profile), indexer ? Stage::indexer_pool : Stage::compress_pool);
      pool.step(11);
      const std::int64_t d = indexer ? kIndexDim : kHeadDim;
      const CompressorWeights& compressor =
          indexer ? pool.layer()->indexer_compressor : pool.layer()->compressor;
      const auto kv = pool.before(indexer ? TensorId::indexer_kv : TensorId::compress_kv).as<float>();
      const auto score =
          pool.before(indexer ? TensorId::indexer_score_raw : TensorId::compress_score).as<float>();
      std::vector<float> input(static_cast<std::size_t>(11 * 4 * d));
      for (std::int64_t t = 0; t < 11; ++t) {
        std::copy_n(kv.data() + t * 2 * d, 2 * d, input.data() + t * 4 * d);
        std::copy_n(score.data() + t * 2 * d, 2 * d, input.data() + t * 4 * d + 2 * d);
      }
      // The bias of the older half of a window is the first half of the APE.
      std::vector<float> bias(static_cast<std::size_t>(8 * d));
      for (std::int64_t row = 0; row < 8; ++row)
        std::copy_n(compressor.ape.data() + row % 4 * 2 * d + (row < 4 ? 0 : d), d, bias.data() + row * d);
      const std::vector<kernels::SglangCompressPlan> plans{{4, 3, 0, 0, 0}, {8, 7, 0, 0, 0}};
      std::vector<float> memory(4);
      kernels::SglangState state{std::span<float>(memory), 4 * d};
      std::vector<float> pooled(static_cast<std::size_t>(2 * d));
      kernels::sglang_c4_prefill(plans, {}, input.data(), bias.data(), d, state, pooled.data());
      REQUIRE(holds(pool.after(indexer ? TensorId::indexer_pooled : TensorId::compress_pooled), pooled));

      Pair finish(config_of(LayerKind::csa, profile),
                  indexer ? Stage::indexer_finish : Stage::compress_finish);
      finish.step(11);
      const Tensor& rows = finish.before(indexer ? TensorId::indexer_pooled : TensorId::compress_pooled);
      REQUIRE(finish.same(indexer ? TensorId::indexer_pooled : TensorId::compress_pooled));
      const std::vector<float> halves = table(finish.geometry(), LayerKind::csa, 16);
      std::vector<float> freqs;
      for (std::size_t p = 0; p < 16; ++p) {
        for (std::size_t i = 0; i < 32; ++i) {
          freqs.push_back(halves[p * 64 + i]);
          freqs.push_back(halves[p * 64 + 32 + i]);
        }
      }
      const bool fp4 = finish.models.config().profile.get<IndexCache>() == IndexCache::fp4;
      const std::int64_t values = !indexer ? 576 : fp4 ? 64 : 128;
      const std::int64_t scales = !indexer ? 8 : 4;
      const std::vector<float> weight = wide(compressor.norm);
      const std::vector<std::int64_t> slots{0, 0, 0, 0, 0, 0, 0, 1};
      const std::vector<kernels::SglangCompressPlan> stored{{4, 0, 0, 0, 0}, {8, 7, 0, 0, 0}};
      std::vector<std::byte> cache(static_cast<std::size_t>(64 * (values + scales)));
      kernels::SglangStoreTask task;
      task.rows = 2;
      task.input = rows.as<float>().data();
      task.weight = weight.data();
      task.eps = finish.geometry().eps;
      task.freqs = freqs.data();
      task.extend = stored;
      task.out_loc = slots.data();
      task.cache = cache;
      task.page_bytes = std::ssize(cache);
      if (!indexer)
        kernels::sglang_norm_rope_store_flashmla(task);
      else if (fp4)
        kernels::sglang_norm_rope_store_indexer_fp4(task);
      else
        kernels::sglang_norm_rope_store_indexer_fp8(task);
      const std::vector<std::uint8_t> live =
          cache_rows(finish, indexer ? Cache::index_entries : Cache::entries);
      for (std::int64_t i = 0; i < 2; ++i) {
        const std::uint8_t* const row = live.data() + i * (values + scales);
        REQUIRE(std::memcmp(row, cache.data() + i * values, static_cast<std::size_t>(values)) == 0);
        REQUIRE(std::memcmp(row + values, cache.data() + 64 * values + i * scales,
                            static_cast<std::size_t>(scales)) == 0);
      }
    }
  }
}

TEST_CASE("SGLang: online state by segments, then token by token, its mean in the cache") {
  RunConfig config = config_of(LayerKind::hca, "sglang-fp8");
  config.cache.c128_state = C128State::online;
  Harness harness(config);
  Harness plain(config);
  const auto weights = seeded_weights(harness.plans.config);
  harness.wrap([&](std::unique_ptr<Engine> engine) {
    return cli::with_model_kernels(std::move(engine), weights, [](const cli::StageModel& model) {
      return model.stage == Stage::compress_state;
    });
  });
  harness.admit("a");
  plain.admit("a");
  const float* const bias = weights->layer(0)->compressor.ape.data();
  std::vector<float> state(3 * kHeadDim);
  std::vector<float> pooled(kHeadDim);
  int position = 0;
  for (const int tokens : {100, 1, 2, 24, 1, 1}) {
    harness.run(harness.plans.step({{0, tokens}}));
    plain.run(plain.plans.step({{0, tokens}}));
    const auto kv = harness.engine().tensor(0, TensorId::compress_kv)->as<float>();
    const auto score = harness.engine().tensor(0, TensorId::compress_score)->as<float>();
    std::vector<float> input(static_cast<std::size_t>(tokens * 2 * kHeadDim));
    for (int t = 0; t < tokens; ++t) {
      std::copy_n(kv.data() + t * kHeadDim, kHeadDim, input.data() + t * 2 * kHeadDim);
      std::copy_n(score.data() + t * kHeadDim, kHeadDim, input.data() + t * 2 * kHeadDim + kHeadDim);
    }
    position += tokens;
    if (tokens == 1) {
      const kernels::SglangDecodePlan one{static_cast<std::uint32_t>(position), 0, 0, 0};
      kernels::sglang_c128_online_decode({&one, 1}, input.data(), bias, kHeadDim, state, pooled.data());
    } else {
      const auto n = static_cast<std::uint16_t>(tokens);
      const kernels::SglangCompressPlan segment{static_cast<std::uint32_t>(position),
                                                static_cast<std::uint16_t>(n - 1), n, 0, 0};
      kernels::sglang_c128_online_prefill({}, {&segment, 1}, input.data(), bias, kHeadDim, state,
                                          pooled.data());
    }
    if (position % 128 == 0) {
      REQUIRE(holds(*harness.engine().tensor(0, TensorId::compress_pooled), pooled));
      REQUIRE(relative(*plain.engine().tensor(0, TensorId::compress_pooled),
                       *harness.engine().tensor(0, TensorId::compress_pooled)) < 3e-6);
      continue;
    }
    const std::vector<std::byte> row =
        harness.engine().read_row(0, Cache::state, harness.live.front().state_base);
    REQUIRE(std::memcmp(row.data(), state.data(), row.size()) == 0);
    // Published is the weighted sum of both engines.
    REQUIRE(relative(*plain.engine().tensor(0, TensorId::compress_state_kv),
                     *harness.engine().tensor(0, TensorId::compress_state_kv)) < 3e-6);
    REQUIRE(relative(*plain.engine().tensor(0, TensorId::compress_state_sum),
                     *harness.engine().tensor(0, TensorId::compress_state_sum)) < 3e-6);
  }
  REQUIRE(position == 129);
  REQUIRE(cli::keeps_kernel_state(harness.plans.config));
}

TEST_CASE("profiles and axes without kernel models are refused") {
  const auto refused = [](RunConfig config) {
    Harness harness(config);
    harness.wrap([&](std::unique_ptr<Engine> engine) {
      REQUIRE_THROWS_AS(cli::with_model_kernels(std::move(engine), seeded_weights(config)), UsageError);
      return reference::make_reference_engine(config, seeded_weights(config), seeded_hidden(config));
    });
  };
  refused(config_of(LayerKind::csa, "ggml"));
  RunConfig changed = config_of(LayerKind::csa, "vllm-fp8");
  changed.profile.set("kv_cache", "e4m3_scale_floor");
  refused(changed);
}

TEST_CASE("hopper-exact needs a run with kernel models on one side") {
  SourceInfo plain;
  plain.engine = "reference";
  plain.config = config_of(LayerKind::csa, "sglang-fp8");
  SourceInfo models = plain;
  models.engine += cli::kModelKernelsSuffix;
  REQUIRE_THROWS_AS(cli::make_rules("hopper-exact", true, plain, plain), UsageError);
  models.config.geometry.index_heads = 64;
  for (const auto& [a, b] : {std::pair{plain, models}, std::pair{models, plain}}) {
    const compare::Rules rules = cli::make_rules("hopper-exact", true, a, b);
    for (const TensorId id :
         {TensorId::compress_pooled, TensorId::indexer_pooled, TensorId::scores, TensorId::compress_codes,
          TensorId::attention_out, TensorId::attention_lse, TensorId::o_latent}) {
      REQUIRE(rules.only_equal_on_same_inputs(id));
    }
    REQUIRE(rules.given(TensorId::o_latent) == TensorId::o_rot);
    REQUIRE_FALSE(rules.bounded(TensorId::attention_out));
    REQUIRE_FALSE(rules.bounded(TensorId::scores));
    REQUIRE(rules.bounded(TensorId::compress_pooled));
    for (const TensorId id : {TensorId::compress_kv, TensorId::window_kv, TensorId::q, TensorId::hidden_out})
      REQUIRE_FALSE(rules.only_equal_on_same_inputs(id));
  }
  // Without a model of the scores, no bits of theirs.
  models.config.geometry.index_heads = 8;
  REQUIRE_FALSE(
      cli::make_rules("hopper-exact", true, plain, models).only_equal_on_same_inputs(TensorId::scores));
  models.config.geometry.index_heads = 64;
  models.config.profile = profile_named("vllm-mxfp4");
  const compare::Rules vllm = cli::make_rules("hopper-exact", true, plain, models);
  REQUIRE_FALSE(vllm.only_equal_on_same_inputs(TensorId::scores));
  REQUIRE(vllm.only_equal_on_same_inputs(TensorId::q));
  REQUIRE(vllm.given(TensorId::q) == TensorId::q_raw);
  // A layer whose state is online has no kernel of vLLM's.
  models.config.layers = {LayerKind::csa, LayerKind::hca};
  models.config.cache.c128_state = C128State::online;
  REQUIRE_FALSE(cli::make_rules("hopper-exact", true, plain, models)
                    .only_equal_on_same_inputs(TensorId::compress_pooled));
  REQUIRE(cli::make_rules("", true, plain, plain).set() == compare::RuleSet::bits);
  REQUIRE(cli::make_rules("", false, plain, models).set() == compare::RuleSet::values);
  REQUIRE(cli::make_rules("values", true, plain, plain).set() == compare::RuleSet::values);
}
