#include "oracle/slots.hpp"

#include "oracle/fill.hpp"
#include "oracle/support.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::oracle;

TEST_CASE("slots follow tables and state bases") {
  RunConfig config;
  config.geometry = geometry_preset("tiny");
  config.layers = {LayerKind::swa, LayerKind::csa, LayerKind::hca};
  config.cache.swa_page = 16;
  BlockTables tables;
  tables[static_cast<std::size_t>(Pool::window)] = {-1, 9, 4};
  tables[static_cast<std::size_t>(Pool::state_c4)] = {-1, 3};

  const CacheShape window = cache_shape(config, 0, Cache::window);
  CHECK(slot_of(window, tables, 0, 15) == -1);   // page given back
  CHECK(slot_of(window, tables, 0, 16) == 144);  // 9 * 16 + 0
  CHECK(slot_of(window, tables, 0, 47) == 79);   // 4 * 16 + 15
  CHECK(slot_of(window, tables, 0, 48) == -1);   // beyond the table
  CHECK(window.row_bytes() == 584);

  const CacheShape ring = cache_shape(config, 1, Cache::state);
  CHECK(slot_of(ring, tables, 3, 13) == 29);  // 3 * 8 + 5
  CHECK(ring.row_bytes() == 8192);            // 2 * 1024 channels of f32
  config.cache.draft_rows = 2;
  CHECK(slot_of(cache_shape(config, 1, Cache::state), tables, 3, 13) == 61);    // 3 * 16 + 13
  CHECK(slot_of(cache_shape(config, 2, Cache::state), tables, 1, 300) == 300);  // 256 + 44
  config.cache.c128_state = C128State::online;
  const CacheShape online = cache_shape(config, 2, Cache::state);
  CHECK(slot_of(online, tables, 2, 77) == 6);  // base 2 of 3 banks, bank 0
  CHECK(slot_of(online, tables, 2, 77, 2) == 8);
  CHECK(online.row_bytes() == 6144);  // max, sum, kv of 512 channels
  config.cache.c4_state = C4State::paged;
  CHECK(slot_of(cache_shape(config, 1, Cache::state), tables, 0, 6) == 14);  // 3 * 4 + 2
  CHECK(cache_shape(config, 1, Cache::index_entries).row_bytes() == 132);
  config.profile = profile_named("official");
  CHECK(cache_shape(config, 1, Cache::index_entries).row_bytes() == 68);
}

TEST_CASE("synthetic rows come from their own streams") {
  const RunPlan plan = test::plan_of("csa", "  - fill: {request: a, tokens: 137}\n");
  const auto engine = test::engine_of(plan);
  test::run_all(*engine, plan);
  const std::vector<LiveRequest>& live = plan.steps.back().live;

  const std::vector<std::byte> window = engine->live_rows(0, Cache::window, live);
  REQUIRE(window.size() == 127 * 584);  // positions 10 to 136
  const SeededStream first(11, "fill/0/window", content_id("a", 10, 0));
  // u of element 0 is a sum of four bytes minus 510: its e4m3 code after 2^-8 has the sign of u.
  CHECK((static_cast<unsigned>(window[0]) & 0x80U) == (first.u(0) < 0 ? 0x80U : 0U));
  CHECK(static_cast<int>(window[576]) == 127 + static_cast<int>(first.word(512) % 3) - 1);
  CHECK(window[583] == std::byte{0});
  for (std::size_t row = 0; row < 127; ++row) {
    for (std::size_t code = 0; code < 448; ++code) {
      REQUIRE((static_cast<unsigned>(window[row * 584 + code]) & 0x7FU) != 0x7FU);
    }
  }

  const std::vector<std::byte> state = engine->live_rows(0, Cache::state, live);
  REQUIRE(state.size() == 5 * 8192);  // positions 132 to 136
  const SeededStream row(11, "fill/0/state", content_id("a", 132, 0));
  float value;
  std::memcpy(&value, state.data(), 4);
  CHECK(value == static_cast<float>(row.u(0)) / 128.0F);
  std::memcpy(&value, state.data() + 4096, 4);
  CHECK(value == static_cast<float>(row.u(1024)) / 256.0F);
  // Entry 33 covers tokens 132 to 135; its stream is that of token 135.
  const std::vector<std::byte> entries = engine->live_rows(0, Cache::entries, live);
  REQUIRE(entries.size() == 34 * 584);
  const SeededStream entry(11, "fill/0/entries", content_id("a", 135, 0));
  CHECK(static_cast<int>(entries[33 * 584 + 576]) == 127 + static_cast<int>(entry.word(512) % 3) - 1);
}
