// Looking up pages and slots: snapshots first, then the last write that the dump saw.
#include "io/inspect.hpp"

#include <cstring>

#include "io/dump_writer.hpp"
#include "model/error.hpp"
#include "sample.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::io;

namespace {

/// A step that writes one window row, one index row and one state row, each marked by `code`.
StepObservation writing_step(std::int64_t number, std::int32_t slot, std::uint8_t code) {
  StepObservation step;
  step.step = number;
  step.event = "{}";
  step.batch.request = Tensor(DType::int32, {2});
  step.batch.position = Tensor(DType::int32, {2});
  step.batch.page = Tensor(DType::int32, {2});
  step.batch.slot = sample::tensor<std::int32_t>(DType::int32, {2}, {slot, slot + 1});
  step.layers.resize(3);
  LayerObservation& layer = step.layers[1];
  Tensor rows(DType::uint8, {2, 584});
  rows.as<std::uint8_t>()[0] = code;
  rows.as<std::uint8_t>()[576] = 127;
  layer.tensors[TensorId::window_page_bytes] = rows;
  layer.tensors[TensorId::indexer_slot] = sample::tensor<std::int32_t>(DType::int32, {1}, {slot});
  layer.tensors[TensorId::indexer_page_bytes] = sample::tensor<std::uint8_t>(DType::uint8, {1, 68}, {0x22});
  layer.tensors[TensorId::indexer_state_slot] = sample::tensor<std::int32_t>(DType::int32, {2}, {3, slot});
  layer.tensors[TensorId::indexer_state_kv] = Tensor(DType::float32, {2, 256});
  layer.tensors[TensorId::indexer_state_kv].as<float>()[256] = 1.0F;
  layer.tensors[TensorId::indexer_state_kv].as<float>()[257] = static_cast<float>(number);
  layer.tensors[TensorId::indexer_state_score] = Tensor(DType::float32, {2, 256});
  return step;
}

}  // namespace

TEST_CASE("a slot shows its last write up to the step") {
  const sample::Folder folder;
  {
    DumpWriter writer(folder / "a.h5", sample::source());
    writer.write(writing_step(0, 70, 0x38));
    writer.write(writing_step(4, 70, 0x40));
    writer.write(writing_step(5, 90, 0x48));
    writer.finish();
  }
  const DumpReader dump(folder / "a.h5");
  const SlotContent first = inspect_slot(dump, 3, 1, Cache::window, 70);
  REQUIRE(first.written_step == 0);
  REQUIRE(first.kv->values[0] == 1.0F);
  const SlotContent second = inspect_slot(dump, 5, 1, Cache::window, 70);
  REQUIRE(second.written_step == 4);
  REQUIRE(second.kv->values[0] == 2.0F);
  REQUIRE(second.source == "step 4 kv.window/page_bytes row 0");
  const SlotContent index = inspect_slot(dump, 5, 1, Cache::index_entries, 90);
  REQUIRE(index.index->fp4);
  REQUIRE(index.index->codes[0] == 2);
  const SlotContent state = inspect_slot(dump, 4, 1, Cache::index_state, 70);
  REQUIRE(state.state.size() == 2);
  REQUIRE(state.state[0].first == "kv");
  REQUIRE(state.state[0].second.size() == 256);
  REQUIRE(state.state[0].second[0] == 1.0F);
  REQUIRE(state.state[0].second[1] == 4.0F);
  REQUIRE_THROWS_AS(inspect_slot(dump, 5, 1, Cache::window, 71 + 64), FileError);
  REQUIRE_THROWS_AS(inspect_slot(dump, 5, 0, Cache::state, 0), UsageError);
  REQUIRE_THROWS_AS(inspect_slot(dump, 5, 3, Cache::window, 0), UsageError);
  REQUIRE_THROWS_AS(inspect_page(dump, 5, 1, Cache::window, 0), FileError);
}

TEST_CASE("a snapshot shows what is in memory, written by the dump or not") {
  const sample::Folder folder;
  StepObservation step = writing_step(0, 70, 0x38);
  Tensor pages(DType::uint8, {3, 37440});
  pages.as<std::uint8_t>()[37440 + 6 * 576] = 0x50;          // page 1, row 6 (slot 70): 8.0
  pages.as<std::uint8_t>()[37440 + 64 * 576 + 6 * 8] = 126;  // its scale: 1/2
  step.layers[1].state_tensors["swa_pages"] = pages;
  step.layers[1].state_tensors["indexer_state_kv"] =
      sample::tensor<float>(DType::float32, {2, 2}, {1, 2, 3, 4});
  {
    DumpWriter writer(folder / "a.h5", sample::source());
    writer.write(step);
    writer.finish();
  }
  const DumpReader dump(folder / "a.h5");
  const SlotContent slot = inspect_slot(dump, 0, 1, Cache::window, 70);
  REQUIRE(slot.written_step == -1);
  REQUIRE(slot.kv->values[0] == 4.0F);
  REQUIRE(inspect_slot(dump, 0, 1, Cache::index_state, 1).state[0].second == std::vector<float>{3.0F, 4.0F});
  const auto page = inspect_page(dump, 0, 1, Cache::window, 1);
  REQUIRE(std::memcmp(page.data(), pages.bytes().data() + 37440, 37440) == 0);
  REQUIRE_THROWS_AS(inspect_page(dump, 0, 1, Cache::window, 3), UsageError);
  REQUIRE_THROWS_AS(inspect_page(dump, 0, 1, Cache::index_state, 0), UsageError);
}
