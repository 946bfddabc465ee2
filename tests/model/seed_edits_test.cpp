// Edits of seeded inputs: what changes has the stated bits, everything else is as without the edit.
#include "model/seed_edits.hpp"

#include "model/seeded.hpp"
#include "support/catch.hpp"

using namespace dsv4;

namespace {

RunConfig config_of(std::vector<SeedEdit> edits) {
  RunConfig config;
  config.geometry = geometry_preset("tiny");
  config.layers = {LayerKind::swa, LayerKind::csa};
  config.seed = 5;
  config.seed_edits = std::move(edits);
  return config;
}

SeedEdit edit_of(const std::string& tensor) {
  SeedEdit edit;
  edit.tensor = tensor;
  return edit;
}

}  // namespace

TEST_CASE("a value replaces chosen elements of a vector, in the chosen layer") {
  SeedEdit edit = edit_of("kv_norm");
  edit.layer = 1;
  edit.columns = {3, 511};
  edit.value = 448.0F;
  const auto plain = seeded_weights(config_of({}));
  const auto edited = seeded_weights(config_of({edit}));
  CHECK(edited->layer(0)->kv_norm == plain->layer(0)->kv_norm);
  auto expected = plain->layer(1)->kv_norm;
  expected[3] = expected[511] = 0x43E0;  // bf16 of 448 = 1.75 * 2^8
  CHECK(edited->layer(1)->kv_norm == expected);
  CHECK(edited->layer(1)->wkv.codes == plain->layer(1)->wkv.codes);
}

TEST_CASE("a factor moves exponents: bf16 elements and f32 elements") {
  SeedEdit weights = edit_of("indexer.weights_proj");
  weights.rows = {2};
  weights.scale = 3;
  SeedEdit sink = edit_of("attn_sink");
  sink.scale = -2;
  const auto plain = seeded_weights(config_of({}))->layer(1);
  const auto edited = seeded_weights(config_of({weights, sink}))->layer(1);
  const auto columns = static_cast<std::size_t>(plain->indexer_weights_proj.columns);
  for (std::size_t i = 0; i < plain->indexer_weights_proj.bf16.size(); ++i) {
    const std::uint16_t before = plain->indexer_weights_proj.bf16[i];
    const bool moved = i / columns == 2 && (before & 0x7FFF) != 0;
    CHECK(edited->indexer_weights_proj.bf16[i] == (moved ? before + (3 << 7) : before));
  }
  for (std::size_t h = 0; h < plain->attn_sink.size(); ++h)
    CHECK(edited->attn_sink[h] == plain->attn_sink[h] / 4);
}

TEST_CASE(
    "FP8 matrices: a value replaces codes, a factor moves the scales of touched blocks and stays in range") {
  SeedEdit value = edit_of("wkv");
  value.rows = {1};
  value.columns = {0};
  value.value = 0.5F;
  SeedEdit scale = edit_of("wkv");
  scale.rows = {130};  // the second row of blocks
  scale.scale = 2;
  const auto plain = seeded_weights(config_of({}))->layer(0);
  const auto edited = seeded_weights(config_of({value, scale}))->layer(0);
  auto codes = plain->wkv.codes;
  codes[static_cast<std::size_t>(plain->wkv.columns)] = 0x30;  // 2^-1: exponent field 6, fraction 0
  CHECK(edited->wkv.codes == codes);
  auto scales = plain->wkv.scales;
  REQUIRE(scales.size() == 8);  // 512 x 256 in blocks of 128
  scales[2] = static_cast<std::uint8_t>(scales[2] + 2);
  scales[3] = static_cast<std::uint8_t>(scales[3] + 2);
  CHECK(edited->wkv.scales == scales);

  SeedEdit down = edit_of("wkv");
  down.scale = -120;
  SeedEdit up = edit_of("wkv");
  up.scale = 120;
  SeedEdit rest = edit_of("wkv");
  rest.scale = 7;
  const auto one = seeded_weights(config_of({down, down, up, rest}))->layer(0);
  CHECK(one->wkv.scales == std::vector<std::uint8_t>(8, 127));
  CHECK(seeded_weights(config_of({up, up}))->layer(0)->wkv.scales == std::vector<std::uint8_t>(8, 254));
}

TEST_CASE("hidden states of every token are edited") {
  SeedEdit edit = edit_of("hidden");
  edit.layer = 0;
  edit.columns = {7};
  edit.value = -2.0F;
  const Row row{0, 3, content_id("a", 3, 0)};
  std::vector<std::uint16_t> expected(256);
  std::vector<std::uint16_t> found(256);
  for (const int layer : {0, 1}) {
    seeded_hidden(config_of({}))->hidden(layer, row, expected);
    seeded_hidden(config_of({edit}))->hidden(layer, row, found);
    if (layer == 0) expected[7] = 0xC000;
    CHECK(found == expected);
  }
}

TEST_CASE("edits that fit no layer are named") {
  const RunConfig config = config_of({});
  const auto fault = [&](SeedEdit edit) { return seed_edit_fault(edit, config.geometry, config.layers); };
  SeedEdit edit = edit_of("kv_norm");
  edit.columns = {511};
  CHECK(fault(edit).empty());
  edit.columns = {512};
  CHECK(fault(edit) == "kv_norm: column 512 is beyond the 512 of layer 0");
  edit.columns.clear();
  edit.rows = {1};
  CHECK(fault(edit) == "kv_norm: row 1 is beyond the 1 of layer 0");
  edit.rows.clear();
  edit.layer = 2;
  CHECK(fault(edit) == "layer 2 is beyond the 2 layers");
  SeedEdit ape = edit_of("indexer.compressor.ape");
  ape.rows = {3};
  ape.columns = {255};
  CHECK(fault(ape).empty());
  ape.layer = 0;
  CHECK(fault(ape) == "no layer of the run has indexer.compressor.ape");
  CHECK(fault(edit_of("kv_Norm")).starts_with("unknown tensor 'kv_Norm' (known: hidden, wq_a, "));
  SeedEdit hidden = edit_of("hidden");
  hidden.rows = {0};
  CHECK(fault(hidden) == "hidden states have columns only");
}
