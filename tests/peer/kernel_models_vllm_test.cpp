/// vLLM's row kernels and index builders: whole outputs of the models against every recorded launch, equal to
/// the bit, elements that the kernel leaves alone included. Then each model under a neighbouring rule or with
/// inputs that mean something else, which the recordings must reject.
#include <string>
#include <vector>

#include "peer/model_tally.hpp"
#include "peer/recorded_kernel.hpp"
#include "reference/kernels/vllm_index_ops.hpp"
#include "reference/kernels/vllm_indexer_query.hpp"
#include "reference/kernels/vllm_inv_rope_fp8_quant.hpp"
#include "reference/kernels/vllm_k_cache.hpp"
#include "reference/kernels/vllm_qk_rmsnorm.hpp"
#include "reference/kernels/vllm_qnorm_rope_kv_insert.hpp"
#include "reference/kernels/vllm_save_partial_states.hpp"
#include "support/catch.hpp"

using namespace dsv4::kernels;
using namespace dsv4::peer;

namespace {

std::int64_t integer(const PeerFile& file, const std::string& name, const char* attribute) {
  return static_cast<std::int64_t>(file.number(name, attribute));
}
std::int32_t integer32(const PeerFile& file, const std::string& name, const char* attribute) {
  return static_cast<std::int32_t>(file.number(name, attribute));
}
float real(const PeerFile& file, const std::string& name, const char* attribute) {
  return static_cast<float>(file.number(name, attribute));
}
int fill_of(const PeerFile& file, const std::string& name) {
  return static_cast<int>(file.number(name, "poison_byte"));
}

template <class T, class Bits = T>
void whole(ModelTally& tally, const std::vector<T>& model, const Array& recorded) {
  REQUIRE(static_cast<std::int64_t>(model.size()) == recorded.elements());
  tally.count(reinterpret_cast<const Bits*>(model.data()), recorded.as<Bits>(), recorded.elements());
}

RopePair rotate_unfused(RopePair x, float c, float s) {
  return {x.even * c - x.odd * s, x.odd * c + x.even * s};
}
RopePair rotate_back_fused_sine(RopePair x, float c, float s) {
  return {dsv4::arith::fma(x.odd, s, x.even * c), dsv4::arith::fma(-x.even, s, x.odd * c)};
}

/// Every case of a file through `run(file, name, tally)`; the number of differing elements.
template <class Run>
std::int64_t all_cases(const char* kernel, Run run, const char* instead = nullptr) {
  PeerFile file(kernel);
  REQUIRE(!file.cases().empty());
  std::int64_t differing = 0;
  for (const std::string& name : file.cases()) {
    const std::string what = instead == nullptr ? name : name + ", instead: " + instead;
    ModelTally tally(kernel, what, instead == nullptr);
    run(file, name, tally);
    CHECK(tally.compared() > 0);
    differing += tally.differing();
  }
  return differing;
}

}  // namespace

TEST_CASE("vLLM save partial states") {
  const auto run = [](std::int64_t ratio_divisor) {
    return [ratio_divisor](const PeerFile& file, const std::string& name, ModelTally& tally) {
      const Array ape = file.read(name + "/in/ape");
      const Array kv_score = file.read(name + "/in/kv_score");
      const Array positions = file.read(name + "/in/positions");
      const Array slots = file.read(name + "/in/slot_mapping");
      const Array recorded = file.read(name + "/out/state_cache");
      VllmPartialStates in;
      in.width = integer(file, name, "state_width");
      in.ratio = integer(file, name, "compress_ratio") / ratio_divisor;
      in.kv_score = elements<float>(kv_score);
      in.ape = elements<float>(ape);
      in.positions = elements<std::int64_t>(positions);
      in.slot_mapping = elements<std::int64_t>(slots);
      std::vector<float> state = filled_like<float>(recorded, fill_of(file, name));
      vllm_save_partial_states(in, state);
      whole<float, std::uint32_t>(tally, state, recorded);
    };
  };
  CHECK(all_cases("vllm_save_partial_states", run(1)) == 0);
  CHECK(all_cases("vllm_save_partial_states", run(2), "the APE of half the ratio") > 0);
}

namespace {

/// Inputs of the two query kernels.
struct Query {
  Array q, positions, table;
  std::vector<float> weights;
  VllmIndexerQuery in;

  Query(const PeerFile& file, const std::string& name, Rotate rotate)
      : q(file.read(name + "/in/q")),
        positions(file.read(name + "/in/positions")),
        table(file.read("shared/cos_sin_cache")),
        weights(widened(file.read(name + "/in/weights"))) {
    in.heads = q.dim(1);
    in.q = elements<std::uint16_t>(q);
    in.positions = elements<std::int64_t>(positions);
    in.cos_sin = elements<float>(table);
    in.weights = weights;
    in.softmax_scale = real(file, name, "softmax_scale");
    in.head_scale = real(file, name, "head_scale");
    in.rotate = rotate;
  }
};

}  // namespace

TEST_CASE("vLLM indexer query, FP8") {
  const auto run = [](Rotate rotate) {
    return [rotate](const PeerFile& file, const std::string& name, ModelTally& tally) {
      const Query query(file, name, rotate);
      const VllmIndexerQueryFp8 out = vllm_indexer_query_fp8(query.in);
      whole(tally, out.codes, file.read(name + "/out/q_fp8"));
      whole<float, std::uint32_t>(tally, out.weights, file.read(name + "/out/weights_out"));
    };
  };
  CHECK(all_cases("vllm_indexer_q_fp8", run(rotate_fused_even)) == 0);
  CHECK(all_cases("vllm_indexer_q_fp8", run(rotate_fused_cosine), "odd' fuses odd * cos") > 0);
  CHECK(all_cases("vllm_indexer_q_fp8", run(rotate_unfused), "both products rounded") > 0);
}

TEST_CASE("vLLM indexer query, MXFP4") {
  const auto run = [](float softmax_factor) {
    return [softmax_factor](const PeerFile& file, const std::string& name, ModelTally& tally) {
      Query query(file, name, rotate_fused_even);
      query.in.softmax_scale *= softmax_factor;
      query.in.head_scale /= softmax_factor;
      const VllmIndexerQueryMxfp4 out = vllm_indexer_query_mxfp4(query.in);
      whole(tally, out.codes, file.read(name + "/out/q_packed"));
      whole(tally, out.scales, file.read(name + "/out/q_scale"));
      whole<float, std::uint32_t>(tally, out.weights, file.read(name + "/out/weights_out"));
    };
  };
  CHECK(all_cases("vllm_indexer_q_mxfp4", run(1)) == 0);
  CHECK(all_cases("vllm_indexer_q_mxfp4", run(3), "weights rounded after other products") > 0);
}

TEST_CASE("vLLM inverse RoPE and FP8 quantisation") {
  const auto run = [](Rotate rotate) {
    return [rotate](const PeerFile& file, const std::string& name, ModelTally& tally) {
      const Array o = file.read(name + "/in/o");
      const Array positions = file.read(name + "/in/positions");
      const Array table = file.read("shared/cos_sin_cache");
      VllmInverseRope in;
      in.groups = integer(file, name, "n_groups");
      in.heads_per_group = integer(file, name, "heads_per_group");
      in.padded_tokens = integer(file, name, "tma_aligned_T");
      in.o = elements<std::uint16_t>(o);
      in.positions = elements<std::int64_t>(positions);
      in.cos_sin = elements<float>(table);
      in.rotate = rotate;
      const VllmInverseRopeOutput out = vllm_inv_rope_fp8_quant(in);
      whole(tally, out.codes, file.read(name + "/out/o_fp8"));
      whole<float, std::uint32_t>(tally, out.scales, file.read(name + "/out/scale"));
      whole(tally, out.codes, file.read(name + "/out_packed_scales/o_fp8"));
      whole(tally, out.packed_scales, file.read(name + "/out_packed_scales/scale"));
    };
  };
  CHECK(all_cases("vllm_inv_rope_fp8_quant", run(rotate_back_fused_cosine)) == 0);
  CHECK(all_cases("vllm_inv_rope_fp8_quant", run(rotate_back_fused_sine), "the sine product fused") > 0);
}

TEST_CASE("vLLM RMS norm of the query latent and the kv row") {
  const auto run = [](RowOwnership ownership) {
    return [ownership](const PeerFile& file, const std::string& name, ModelTally& tally) {
      const Array qkv = file.read(name + "/in/qkv");
      const Array q_recorded = file.read(name + "/out/q");
      const Array kv_recorded = file.read(name + "/out/kv");
      const std::vector<float> q_weight = widened(file.read(name + "/in/q_weight"));
      const std::vector<float> kv_weight = widened(file.read(name + "/in/kv_weight"));
      const float eps = real(file, name, "eps");
      auto q = filled_like<std::uint16_t>(q_recorded, fill_of(file, name));
      auto kv = filled_like<std::uint16_t>(kv_recorded, fill_of(file, name));
      vllm_qk_rmsnorm({q_weight, eps, ownership}, {kv_weight, eps, ownership}, elements<std::uint16_t>(qkv),
                      q, kv);
      whole(tally, q, q_recorded);
      whole(tally, kv, kv_recorded);
    };
  };
  CHECK(all_cases("vllm_qk_rmsnorm", run({4, 8})) == 0);
  CHECK(all_cases("vllm_qk_rmsnorm", run({1, 2}), "one warp, two columns a lane") > 0);
}

TEST_CASE("vLLM FP8 insert of bf16 keys, and gather") {
  const auto run = [](int quant_block, int gathered_twice) {
    return [=](const PeerFile& file, const std::string& name, ModelTally& tally) {
      const Array k = file.read(name + "/in/k");
      const Array slots = file.read(name + "/in/slot_mapping");
      const Array seq_lens = file.read(name + "/in/seq_lens");
      const Array table = file.read(name + "/in/block_table");
      const Array pages = file.read(name + "/out/k_cache");
      const Array gathered = file.read(name + "/out/gathered");
      REQUIRE(integer(file, name, "has_gather_lens") == 0);
      const PageLayout layout =
          main_pages(integer(file, name, "page_size"), integer(file, name, "block_stride_bytes"));
      auto cache = filled_like<std::uint8_t>(pages, fill_of(file, name));
      vllm_quantize_and_insert_k(elements<std::uint16_t>(k), elements<std::int64_t>(slots), layout, cache,
                                 quant_block);
      whole(tally, cache, pages);
      VllmGather gather;
      gather.seq_lens = elements<std::int32_t>(seq_lens);
      gather.block_table = elements<std::int32_t>(table);
      gather.table_width = table.dim(1);
      gather.offset = integer(file, name, "offset") + gathered_twice;
      gather.out_rows = integer(file, name, "out_rows");
      auto out = filled_like<std::uint16_t>(gathered, fill_of(file, name));
      vllm_dequantize_and_gather_k(gather, layout, elements<std::uint8_t>(pages), out);
      whole(tally, out, gathered);
    };
  };
  CHECK(all_cases("vllm_k_cache", run(64, 0)) == 0);
  CHECK(all_cases("vllm_k_cache", run(32, 0), "blocks of 32") > 0);
  CHECK(all_cases("vllm_k_cache", run(64, -1), "gathered one row earlier") > 0);
}

TEST_CASE("vLLM gather of a sequence's last tokens") {
  // The recorded launch gathers everything. Lengths select its tail, which must land at the offset.
  PeerFile file("vllm_k_cache");
  const std::string name = file.cases().at(0);
  const Array pages = file.read(name + "/out/k_cache");
  const Array table = file.read(name + "/in/block_table");
  const Array seq_lens = file.read(name + "/in/seq_lens");
  const Array gathered = file.read(name + "/out/gathered");
  const std::int64_t first = integer(file, name, "offset");
  const std::vector<std::int32_t> last = {7, 2};
  VllmGather gather;
  gather.seq_lens = elements<std::int32_t>(seq_lens);
  gather.gather_lens = last;
  gather.block_table = elements<std::int32_t>(table);
  gather.table_width = table.dim(1);
  gather.out_rows = 8;
  std::vector<std::uint16_t> out(2 * 8 * kVllmKeyDim);
  vllm_dequantize_and_gather_k(
      gather, main_pages(integer(file, name, "page_size"), integer(file, name, "block_stride_bytes")),
      elements<std::uint8_t>(pages), out);
  for (std::int64_t request = 0; request < 2; ++request) {
    const std::int32_t count = last[static_cast<std::size_t>(request)];
    const std::int64_t skipped = seq_lens.as<std::int32_t>()[request] - count;
    const std::uint16_t* theirs =
        gathered.as<std::uint16_t>() + (request * gathered.dim(1) + first + skipped) * kVllmKeyDim;
    const std::uint16_t* ours = out.data() + request * 8 * kVllmKeyDim;
    CHECK(std::equal(ours, ours + count * kVllmKeyDim, theirs));
  }
}

TEST_CASE("vLLM query norm, RoPE and kv insert") {
  const auto run = [](Rotate rotate) {
    return [rotate](const PeerFile& file, const std::string& name, ModelTally& tally) {
      const Array q = file.read(name + "/in/q");
      const Array kv = file.read(name + "/in/kv");
      const Array positions = file.read(name + "/in/positions");
      const Array slots = file.read(name + "/in/slot_mapping");
      const Array table = file.read("shared/cos_sin_cache");
      const Array q_recorded = file.read(name + "/out/q");
      const Array pages = file.read(name + "/out/k_cache");
      VllmQueryAndKv in;
      in.heads = integer(file, name, "num_heads");
      in.padded_heads = integer(file, name, "num_heads_padded");
      in.q = elements<std::uint16_t>(q);
      in.kv = elements<std::uint16_t>(kv);
      in.positions = elements<std::int64_t>(positions);
      in.slot_mapping = elements<std::int64_t>(slots);
      in.cos_sin = elements<float>(table);
      in.eps = real(file, name, "eps");
      in.rotate = rotate;
      auto q_out = filled_like<std::uint16_t>(q_recorded, fill_of(file, name));
      auto cache = filled_like<std::uint8_t>(pages, fill_of(file, name));
      vllm_qnorm_rope_kv_insert(
          in, main_pages(integer(file, name, "page_size"), integer(file, name, "block_stride_bytes")), q_out,
          cache);
      whole(tally, q_out, q_recorded);
      whole(tally, cache, pages);
    };
  };
  CHECK(all_cases("vllm_qnorm_rope_kv_insert", run(rotate_fused_even)) == 0);
  CHECK(all_cases("vllm_qnorm_rope_kv_insert", run(rotate_fused_cosine), "odd' fuses odd * cos") > 0);
  CHECK(all_cases("vllm_qnorm_rope_kv_insert", run(rotate_unfused), "both products rounded") > 0);
}

TEST_CASE("vLLM index builders") {
  PeerFile file("vllm_index_ops");
  REQUIRE(file.cases().size() == 4);
  for (const bool altered : {false, true}) {
    const std::int32_t off = altered ? 1 : 0;
    const std::string suffix = altered ? ", instead: off by one" : "";
    for (const char* name : {"combine_c4", "combine_c128"}) {
      ModelTally tally("vllm_index_ops", name + suffix, !altered);
      const std::string group = name;
      const Array topk = file.read(group + "/in/topk_indices");
      const Array starts = file.read(group + "/in/query_start_loc");
      const Array seq_lens = file.read(group + "/in/seq_lens");
      const Array gather_lens = file.read(group + "/in/gather_lens");
      const Array recorded = file.read(group + "/out/combined_indices");
      VllmCombine in;
      in.topk_indices = elements<std::int32_t>(topk);
      in.topk_width = topk.dim(1);
      in.query_start_loc = elements<std::int32_t>(starts);
      in.seq_lens = elements<std::int32_t>(seq_lens);
      in.gather_lens = elements<std::int32_t>(gather_lens);
      in.window = integer32(file, name, "window_size");
      in.ratio = integer32(file, name, "compress_ratio");
      in.topk = integer32(file, name, "topk");
      in.request_rows = integer32(file, name, "M");
      in.compressed_rows = integer32(file, name, "N") + off;
      auto indices = filled_like<std::int32_t>(recorded, 0xFF);  // the caller fills with -1
      std::vector<std::int32_t> lens(static_cast<std::size_t>(recorded.dim(0)));
      vllm_combine_topk_swa(in, recorded.dim(1), indices, lens);
      whole<std::int32_t, std::uint32_t>(tally, indices, recorded);
      whole<std::int32_t, std::uint32_t>(tally, lens, file.read(group + "/out/combined_lens"));
      CHECK((tally.differing() != 0) == altered);
    }
    {
      ModelTally tally("vllm_index_ops", "global_topk" + suffix, !altered);
      const std::string group = "global_topk";
      const Array topk = file.read(group + "/in/topk_indices");
      const Array token_to_req = file.read(group + "/in/token_to_req");
      const Array valid = file.read(group + "/in/is_valid_token");
      const Array table = file.read(group + "/in/block_table");
      const VllmBlockTable blocks{elements<std::int32_t>(table), table.dim(1),
                                  integer32(file, group, "block_size") + off};
      const VllmGlobalTopk out = vllm_compute_global_topk(elements<std::int32_t>(topk), topk.dim(1),
                                                          elements<std::int32_t>(token_to_req),
                                                          elements<std::uint8_t>(valid), blocks);
      whole<std::int32_t, std::uint32_t>(tally, out.indices, file.read(group + "/out/global_topk_indices"));
      whole<std::int32_t, std::uint32_t>(tally, out.lens, file.read(group + "/out/topk_lens"));
      CHECK((tally.differing() != 0) == altered);
    }
    {
      ModelTally tally("vllm_index_ops", "mixed_sparse_indices" + suffix, !altered);
      const std::string group = "mixed_sparse_indices";
      const auto read = [&](const char* dataset) { return file.read(group + "/in/" + dataset); };
      const Array decode_window = read("decode_swa_indices");
      const Array decode_compressed = read("decode_compressed_indices");
      const Array decode_lens = read("decode_compressed_topk_lens");
      const Array prefill_topk = read("prefill_topk_indices");
      const Array starts = read("query_start_loc");
      const Array seq_lens = read("seq_lens");
      const Array token_to_req = read("token_to_req");
      const Array window_blocks = read("swa_block_table");
      const Array compressed_blocks = read("compressed_block_table");
      VllmMixedIndices in;
      in.window = integer32(file, group, "window_size");
      in.ratio = integer32(file, group, "compress_ratio");
      in.topk = integer32(file, group, "topk");
      in.decode_tokens = decode_window.dim(0);
      in.decode_window = elements<std::int32_t>(decode_window);
      in.decode_compressed = elements<std::int32_t>(decode_compressed);
      in.decode_width = decode_compressed.dim(1);
      in.decode_lens = elements<std::int32_t>(decode_lens);
      in.prefill_topk = elements<std::int32_t>(prefill_topk);
      in.prefill_width = prefill_topk.dim(1);
      in.query_start_loc = elements<std::int32_t>(starts);
      in.seq_lens = elements<std::int32_t>(seq_lens);
      in.token_to_req = elements<std::int32_t>(token_to_req);
      in.window_table = {elements<std::int32_t>(window_blocks), window_blocks.dim(1),
                         integer32(file, group, "swa_block_size")};
      in.compressed_table = {elements<std::int32_t>(compressed_blocks), compressed_blocks.dim(1),
                             integer32(file, group, "compressed_block_size")};
      in.window_span = integer32(file, group, "swa_block_span") + off;
      in.compressed_span = integer32(file, group, "compressed_block_span");
      const VllmMixedIndicesOutput out = vllm_build_mixed_sparse_indices(in);
      whole<std::int32_t, std::uint32_t>(tally, out.indices, file.read(group + "/out/sparse_indices"));
      whole<std::int32_t, std::uint32_t>(tally, out.lens, file.read(group + "/out/sparse_topk_lens"));
      CHECK((tally.differing() != 0) == altered);
    }
  }
}
