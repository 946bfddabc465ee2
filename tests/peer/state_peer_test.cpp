/// Rows of compressor state: our stage, with its slot arithmetic and memory, against the recorded kernel that
/// saves partial states (kv verbatim, score + APE in one addition), whole pages compared.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "model/layout.hpp"
#include "peer/peer_file.hpp"
#include "reference/engine.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using peer::Array;
using peer::PeerFile;

namespace {

/// Weights of which only the APE is read.
class ApeOnly : public WeightSource {
 public:
  ApeOnly(std::vector<float> ape, bool indexer) : weights_(std::make_shared<LayerWeights>()) {
    (indexer ? weights_->indexer_compressor : weights_->compressor).ape = std::move(ape);
  }
  std::shared_ptr<const LayerWeights> layer(int) const override { return weights_; }

 private:
  std::shared_ptr<LayerWeights> weights_;
};

class NoHidden : public HiddenSource {
 public:
  void hidden(int, const Row&, std::span<std::uint16_t>) const override {}
};

/// Columns [first, first + count) of every row.
Tensor columns(const Array& matrix, std::int64_t first, std::int64_t count) {
  Tensor tensor(DType::float32, {matrix.dim(0), count});
  for (std::int64_t t = 0; t < matrix.dim(0); ++t) {
    std::copy_n(matrix.as<float>() + t * matrix.dim(1) + first, count,
                tensor.as<float>().begin() + t * count);
  }
  return tensor;
}

}  // namespace

TEST_CASE("state rows equal the recorded kernel's, and nothing else changes") {
  PeerFile file("vllm_save_partial_states");
  REQUIRE(file.cases().size() == 3);
  for (const std::string& name : file.cases()) {
    const Array ape = file.read(name + "/in/ape");
    const Array kv_score = file.read(name + "/in/kv_score");
    const Array positions = file.read(name + "/in/positions");
    const Array slots = file.read(name + "/in/slot_mapping");
    const Array out = file.read(name + "/out/state_cache");
    const bool indexer = file.number(name, "head_dim") == kIndexDim;
    const LayerKind kind = file.number(name, "compress_ratio") == 4 ? LayerKind::csa : LayerKind::hca;
    const std::int64_t width = ape.dim(1);
    const auto page_rows = static_cast<std::int32_t>(out.dim(1));

    RunConfig config;
    config.geometry = geometry_preset("tiny");
    config.layers = {kind};
    config.cache.c4_state = C4State::paged;
    config.cache.c128_state = C128State::paged;
    config.pool_pages.fill(out.dim(0) + 1);  // page 0 is ours: recorded block b is page b + 1
    config.state_bases = 1;
    const Cache cache = indexer ? Cache::index_state : Cache::state;
    const Pool pool = pool_of(kind, cache);

    // Every token is a request of its own whose table holds one page; a verify step writes all its rows.
    StepPlan plan;
    for (std::int64_t t = 0; t < slots.elements(); ++t) {
      const std::int64_t slot = slots.as<std::int64_t>()[t];
      const auto p = static_cast<std::int32_t>(positions.as<std::int64_t>()[t]);
      if (slot < 0) {
        plan.rows.push_back({});
        continue;
      }
      REQUIRE(slot % page_rows == p % page_rows);
      auto tables = std::make_shared<BlockTables>();
      auto& table = (*tables)[static_cast<std::size_t>(pool)];
      table.assign(static_cast<std::size_t>(p / page_rows + 1), -1);
      table.back() = static_cast<std::int32_t>(slot / page_rows + 1);
      RequestStep request;
      request.request = static_cast<std::int32_t>(t);
      request.first_row = static_cast<std::int32_t>(t);
      request.row_count = 1;
      request.begin = p;
      request.end = p + 1;
      request.committed = p + 1;
      request.verify = true;
      request.tables = tables;
      plan.requests.push_back(request);
      plan.rows.push_back({request.request, p, 0});
      config.requests.push_back("r" + std::to_string(t));
    }

    std::vector<float> table(ape.as<float>(), ape.as<float>() + ape.elements());
    const auto engine = reference::make_reference_engine(
        config, std::make_shared<ApeOnly>(std::move(table), indexer), std::make_shared<NoHidden>());
    engine->begin_step(plan);
    engine->set_tensor(0, indexer ? TensorId::indexer_kv : TensorId::compress_kv,
                       columns(kv_score, 0, width));
    engine->set_tensor(0, indexer ? TensorId::indexer_score_raw : TensorId::compress_score,
                       columns(kv_score, width, width));
    engine->run_stage(plan, 0, indexer ? Stage::indexer_state : Stage::compress_state);

    std::int64_t compared = 0;
    std::int64_t differing = 0;
    const std::int64_t page_bytes = out.dim(1) * out.dim(2) * 4;
    for (std::int64_t block = 0; block < out.dim(0); ++block) {
      const std::vector<std::byte> page = engine->read_row(0, cache, block + 1);
      REQUIRE(static_cast<std::int64_t>(page.size()) == page_bytes);
      for (std::int64_t i = 0; i < page_bytes; ++i) {
        differing +=
            page[static_cast<std::size_t>(i)] != out.bytes[static_cast<std::size_t>(block * page_bytes + i)];
        ++compared;
      }
    }
    std::printf("vllm_save_partial_states %-47s %9ld compared %7ld differ\n",
                (name + ": state bytes").c_str(), long(compared), long(differing));
    CHECK(differing == 0);
  }
}
