/// vLLM's index builders: every recorded integer, and nothing else written. Then with one input off by one,
/// which the recordings must reject.
#include <string>
#include <vector>

#include "peer/model_tally.hpp"
#include "peer/recorded_kernel.hpp"
#include "reference/kernels/vllm_index_ops.hpp"
#include "support/catch.hpp"

using namespace dsv4::kernels;
using namespace dsv4::peer;

namespace {

std::int32_t integer32(const PeerFile& file, const std::string& name, const char* attribute) {
  return static_cast<std::int32_t>(file.number(name, attribute));
}

}  // namespace

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
      const Array recorded_lens = file.read(group + "/out/combined_lens");
      Written<std::int32_t> indices(recorded, 0xFF);  // the caller fills with -1
      Written<std::int32_t> lens(recorded_lens, integer32(file, name, "poison_byte"));
      vllm_combine_topk_swa(in, recorded.dim(1), indices.first, lens.first);
      vllm_combine_topk_swa(in, recorded.dim(1), indices.second, lens.second);
      CHECK(indices.count(tally, recorded));
      CHECK(lens.count(tally, recorded_lens));
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
      whole(tally, out.indices, file.read(group + "/out/global_topk_indices"));
      whole(tally, out.lens, file.read(group + "/out/topk_lens"));
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
      whole(tally, out.indices, file.read(group + "/out/sparse_indices"));
      whole(tally, out.lens, file.read(group + "/out/sparse_topk_lens"));
      CHECK((tally.differing() != 0) == altered);
    }
  }
}
