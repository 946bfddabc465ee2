/// The models of FlashMLA's sparse kernels against recordings: outputs, logarithms, partial results and
/// schedules, to the bit. Undefined by the recorded files: partial results of requests that were not split,
/// and the schedule of parts without work.
#include <cstdint>
#include <string>
#include <vector>

#include "arith/bits.hpp"
#include "peer/flashmla_cases.hpp"
#include "peer/model_tally.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::kernels;
using peer::Array;
using peer::DecodeCase;
using peer::ModelTally;
using peer::PeerFile;
using peer::PrefillCase;
using peer::PrefillResult;
using peer::read_if_there;

namespace {

void count_floats(ModelTally& tally, const float* ours, const std::uint32_t* theirs, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) tally.count(arith::to_bits(ours[i]), theirs[i]);
}

}  // namespace

TEST_CASE("FlashMLA sparse decode, every case") {
  PeerFile file("flashmla_sparse_decode_model1");
  const std::vector<std::string> names = file.cases();
  REQUIRE(names.size() == 4);
  int split_requests = 0;
  int split_outputs = 0;
  for (const std::string& name : names) {
    const DecodeCase recorded(file, name);
    const FlashmlaSparseDecodeResult result = flashmla_sparse_decode(recorded.in);
    const std::int64_t rows = std::int64_t{recorded.in.queries} * recorded.in.heads;

    ModelTally out("flashmla_sparse_decode", name + ", out");
    const Array out_bits = file.read(name + "/out/out");
    REQUIRE(out_bits.elements() == static_cast<std::int64_t>(result.out.size()));
    out.count(result.out.data(), out_bits.as<std::uint16_t>(), out_bits.elements());
    CHECK(out.differing() == 0);

    ModelTally lse("flashmla_sparse_decode", name + ", lse");
    const Array lse_bits = file.read(name + "/out/lse");
    REQUIRE(lse_bits.elements() == static_cast<std::int64_t>(result.lse.size()));
    count_floats(lse, result.lse.data(), lse_bits.as<std::uint32_t>(), lse_bits.elements());
    CHECK(lse.differing() == 0);

    ModelTally schedule("flashmla_sparse_decode", name + ", schedule");
    const Array splits = file.read(name + "/out/num_splits");
    REQUIRE(splits.elements() == static_cast<std::int64_t>(result.schedule.num_splits.size()));
    for (std::size_t i = 0; i < result.schedule.num_splits.size(); ++i) {
      schedule.count(std::uint32_t(result.schedule.num_splits[i]), splits.as<std::uint32_t>()[i]);
    }
    const Array table = file.read(name + "/out/tile_scheduler_metadata");
    std::int64_t working = 0;
    for (std::int64_t p = 0; p < table.dim(0); ++p)
      working += table.as<std::int32_t>()[p * 8] < recorded.in.batch;
    REQUIRE(working == static_cast<std::int64_t>(result.schedule.parts.size()));
    for (std::size_t p = 0; p < result.schedule.parts.size(); ++p) {
      const DecodePart& part = result.schedule.parts[p];
      const int ours[7] = {part.begin_request, part.end_request,    part.begin_block,  part.end_block,
                           part.begin_split,   part.first_is_split, part.last_is_split};
      for (std::size_t i = 0; i < 7; ++i)
        schedule.count(std::uint32_t(ours[i]), table.as<std::uint32_t>()[p * 8 + i]);
    }
    CHECK(schedule.differing() == 0);

    const Array partial_bits = file.read(name + "/out/lse_accum");
    const Array partial_out_bits = read_if_there(file, name + "/out/o_accum");
    for (std::size_t request = 0; request < std::size_t(recorded.in.batch); ++request) {
      const std::int64_t from = result.schedule.num_splits[request] * rows;
      const std::int64_t to = result.schedule.num_splits[request + 1] * rows;
      if (to - from == rows) continue;
      const std::string what = name + ", request " + std::to_string(request) + ", partial ";
      ModelTally partial("flashmla_sparse_decode", what + "lse");
      count_floats(partial, result.lse_accum.data() + from, partial_bits.as<std::uint32_t>() + from,
                   to - from);
      CHECK(partial.differing() == 0);
      ++split_requests;
      if (partial_out_bits.bytes.empty()) continue;
      ModelTally partial_out("flashmla_sparse_decode", what + "out");
      count_floats(partial_out, result.o_accum.data() + from * kFlashDim,
                   partial_out_bits.as<std::uint32_t>() + from * kFlashDim, (to - from) * kFlashDim);
      CHECK(partial_out.differing() == 0);
      ++split_outputs;
    }
  }
  CHECK(split_requests == 3);
  CHECK(split_outputs == 1);
}

TEST_CASE("FlashMLA sparse prefill, every case") {
  PeerFile file("flashmla_sparse_prefill");
  const std::vector<std::string> names = file.cases();
  REQUIRE(names.size() == 3);
  for (const std::string& name : names) {
    const PrefillCase recorded(file, name);
    const PrefillResult result(recorded.in);

    ModelTally out("flashmla_sparse_prefill", name + ", out");
    const Array out_bits = file.read(name + "/out/out");
    REQUIRE(out_bits.elements() == static_cast<std::int64_t>(result.out.size()));
    out.count(result.out.data(), out_bits.as<std::uint16_t>(), out_bits.elements());
    CHECK(out.differing() == 0);

    ModelTally max_logits("flashmla_sparse_prefill", name + ", max_logits");
    const Array max_bits = file.read(name + "/out/max_logits");
    REQUIRE(max_bits.elements() == static_cast<std::int64_t>(result.max_logits.size()));
    count_floats(max_logits, result.max_logits.data(), max_bits.as<std::uint32_t>(), max_bits.elements());
    CHECK(max_logits.differing() == 0);

    ModelTally lse("flashmla_sparse_prefill", name + ", lse");
    const Array lse_bits = file.read(name + "/out/lse");
    REQUIRE(lse_bits.elements() == static_cast<std::int64_t>(result.lse.size()));
    count_floats(lse, result.lse.data(), lse_bits.as<std::uint32_t>(), lse_bits.elements());
    CHECK(lse.differing() == 0);
  }
}

TEST_CASE("the recordings tell the rules of sparse decode apart") {
  PeerFile file("flashmla_sparse_decode_model1");
  const std::string name = "b1_h64_parts1";
  DecodeCase recorded(file, name);
  const Array lse_bits = file.read(name + "/out/lse");
  SECTION("the exponent is one fused operation") {
    recorded.in.exponent = FlashExponent::rounded;
    ModelTally lse("flashmla_sparse_decode, mutated", name + ", exponent rounded, lse", false);
    const FlashmlaSparseDecodeResult result = flashmla_sparse_decode(recorded.in);
    count_floats(lse, result.lse.data(), lse_bits.as<std::uint32_t>(), lse_bits.elements());
    CHECK(lse.differing() > 0);
  }
  SECTION("a lane adds one probability after the other") {
    recorded.in.row_sum = FlashRowSum::pairs;
    ModelTally lse("flashmla_sparse_decode, mutated", name + ", pairs summed first, lse", false);
    const FlashmlaSparseDecodeResult result = flashmla_sparse_decode(recorded.in);
    count_floats(lse, result.lse.data(), lse_bits.as<std::uint32_t>(), lse_bits.elements());
    CHECK(lse.differing() > 0);
  }
  SECTION("a cut request is normalised piece by piece") {
    recorded.in.num_sm_parts = 5;
    ModelTally out("flashmla_sparse_decode, mutated", name + ", split five ways, out", false);
    const FlashmlaSparseDecodeResult result = flashmla_sparse_decode(recorded.in);
    REQUIRE(result.schedule.pieces.size() > 1);
    const Array bits = file.read(name + "/out/out");
    out.count(result.out.data(), bits.as<std::uint16_t>(), bits.elements());
    CHECK(out.differing() > 0);
  }
}

TEST_CASE("the recordings tell the rules of sparse prefill apart") {
  PeerFile file("flashmla_sparse_prefill");
  const std::string name = "h64_sink";
  PrefillCase recorded(file, name);
  const Array lse_bits = file.read(name + "/out/lse");
  const Array max_bits = file.read(name + "/out/max_logits");
  SECTION("odd blocks start with the upper dims") {
    recorded.in.rules.odd_upper_dims_first = false;
    ModelTally max_logits("flashmla_sparse_prefill, mutated", name + ", dims ascending, max_logits", false);
    const PrefillResult result(recorded.in);
    count_floats(max_logits, result.max_logits.data(), max_bits.as<std::uint32_t>(), max_bits.elements());
    CHECK(max_logits.differing() > 10);
  }
  SECTION("the exponent is one fused operation") {
    recorded.in.rules.exponent = FlashExponent::rounded;
    ModelTally lse("flashmla_sparse_prefill, mutated", name + ", exponent rounded, lse", false);
    const PrefillResult result(recorded.in);
    count_floats(lse, result.lse.data(), lse_bits.as<std::uint32_t>(), lse_bits.elements());
    CHECK(lse.differing() > 0);
  }
  SECTION("a lane adds pairs") {
    recorded.in.rules.row_sum = FlashRowSum::serial;
    ModelTally lse("flashmla_sparse_prefill, mutated", name + ", summed one by one, lse", false);
    const PrefillResult result(recorded.in);
    count_floats(lse, result.lse.data(), lse_bits.as<std::uint32_t>(), lse_bits.elements());
    CHECK(lse.differing() > 0);
  }
}
