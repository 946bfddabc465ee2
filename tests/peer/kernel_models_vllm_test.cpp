/// vLLM's state, query, output and key cache kernels: every element that the models write against every
/// recorded launch, equal to the bit, and all else untouched. Then each model under a neighbouring rule or
/// with inputs that mean something else, which the recordings must reject.
#include <algorithm>
#include <string>
#include <vector>

#include "peer/model_tally.hpp"
#include "peer/neighbour_rotations.hpp"
#include "peer/recorded_kernel.hpp"
#include "reference/kernels/vllm_indexer_query.hpp"
#include "reference/kernels/vllm_inv_rope_fp8_quant.hpp"
#include "reference/kernels/vllm_k_cache.hpp"
#include "reference/kernels/vllm_save_partial_states.hpp"
#include "support/catch.hpp"

using namespace dsv4::kernels;
using namespace dsv4::peer;

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
      Written<float> state(recorded, fill_of(file, name));
      vllm_save_partial_states(in, state.first);
      vllm_save_partial_states(in, state.second);
      CHECK(state.count(tally, recorded));
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
      whole(tally, out.weights, file.read(name + "/out/weights_out"));
    };
  };
  CHECK(all_cases("vllm_indexer_q_fp8", run(rotate_fused_even)) == 0);
  CHECK(all_cases("vllm_indexer_q_fp8", run(rotate_fused_cosine), "odd' fuses odd * cos") > 0);
  CHECK(all_cases("vllm_indexer_q_fp8", run(rotate_fused_sine), "even' fuses odd * sin") > 0);
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
      whole(tally, out.weights, file.read(name + "/out/weights_out"));
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
      whole(tally, out.scales, file.read(name + "/out/scale"));
      whole(tally, out.codes, file.read(name + "/out_packed_scales/o_fp8"));
      whole(tally, out.packed_scales, file.read(name + "/out_packed_scales/scale"));
    };
  };
  CHECK(all_cases("vllm_inv_rope_fp8_quant", run(rotate_back_fused_cosine)) == 0);
  CHECK(all_cases("vllm_inv_rope_fp8_quant", run(rotate_back_fused_sine), "the sine products fused") > 0);
}

TEST_CASE("vLLM FP8 insert of bf16 keys, and gather") {
  const auto run = [](int earlier, bool exchanged) {
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
      std::vector<std::int64_t> order(slots.as<std::int64_t>(), slots.as<std::int64_t>() + slots.elements());
      if (exchanged) std::swap(order.at(0), order.at(1));
      Written<std::uint8_t> cache(pages, fill_of(file, name));
      for (auto* memory : {&cache.first, &cache.second}) {
        vllm_quantize_and_insert_k(elements<std::uint16_t>(k), order, layout, *memory);
      }
      bool untouched = cache.count(tally, pages);
      VllmGather gather;
      gather.seq_lens = elements<std::int32_t>(seq_lens);
      gather.block_table = elements<std::int32_t>(table);
      gather.table_width = table.dim(1);
      gather.offset = integer(file, name, "offset") - earlier;
      gather.out_rows = integer(file, name, "out_rows");
      Written<std::uint16_t> out(gathered, fill_of(file, name));
      for (auto* memory : {&out.first, &out.second}) {
        vllm_dequantize_and_gather_k(gather, layout, elements<std::uint8_t>(pages), *memory);
      }
      untouched = out.count(tally, gathered) && untouched;
      CHECK(untouched == (earlier == 0));
    };
  };
  CHECK(all_cases("vllm_k_cache", run(0, false)) == 0);
  CHECK(all_cases("vllm_k_cache", run(0, true), "two slots exchanged") > 0);
  CHECK(all_cases("vllm_k_cache", run(1, false), "gathered one row earlier") > 0);
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
