// Addresses, layouts and lifecycle of the wide engine's caches, by hand.
#include "wide/caches.hpp"

#include <cstring>
#include <numeric>

#include "model/error.hpp"
#include "support/catch.hpp"

namespace dsv4::wide {
namespace {

RunConfig config_of(LayerKind kind, std::string_view profile = "canonical") {
  RunConfig config;
  config.geometry = geometry_preset("tiny");
  config.profile = profile_named(profile);
  config.layers = {kind};
  config.pool_pages.fill(10);
  config.state_bases = 4;
  return config;
}

std::shared_ptr<const BlockTables> tables_with(Pool pool, std::vector<std::int32_t> pages) {
  BlockTables tables;
  tables[static_cast<std::size_t>(pool)] = std::move(pages);
  return std::make_shared<BlockTables>(std::move(tables));
}

std::vector<std::byte> counted_row(std::size_t size, int first) {
  std::vector<std::byte> row(size);
  for (std::size_t i = 0; i < size; ++i)
    row[i] = static_cast<std::byte>((static_cast<std::size_t>(first) + i) % 251);
  return row;
}

}  // namespace

TEST_CASE("a window page holds values first, scales behind", "[wide]") {
  Caches caches(config_of(LayerKind::swa), 0);
  const auto tables = tables_with(Pool::window, {3, 7});
  REQUIRE(caches.slot(Cache::window, {*tables, 0}, 5) == 3 * 64 + 5);
  REQUIRE(caches.slot(Cache::window, {*tables, 0}, 66) == 7 * 64 + 2);
  REQUIRE(caches.slot(Cache::window, {*tables, 0}, 128) == -1);

  const auto row = counted_row(584, 1);
  caches.put(Cache::window, 7 * 64 + 2, row);
  const auto page = caches.memory(Cache::window).page(7);
  REQUIRE(page.size() == 65 * 576);  // 64 * 584 = 37376, rounded up to a multiple of 576
  REQUIRE(std::equal(row.begin(), row.begin() + 576, page.begin() + 2 * 576));
  REQUIRE(std::equal(row.begin() + 576, row.end(), page.begin() + 64 * 576 + 2 * 8));
  REQUIRE(page[0] == std::byte{0xFF});
  REQUIRE(page[65 * 576 - 1] == std::byte{0xFF});
  REQUIRE(caches.memory(Cache::window).row(7 * 64 + 2) == row);
  REQUIRE(caches.memory(Cache::window).page(3) == std::vector<std::byte>(65 * 576, std::byte{0xFF}));
  REQUIRE_THROWS_AS(caches.memory(Cache::window).row(640), InternalError);
  REQUIRE_THROWS_AS(caches.memory(Cache::window).row(-1), InternalError);
}

TEST_CASE("a window row is read as codes times scales, then bf16", "[wide]") {
  Caches caches(config_of(LayerKind::swa), 0);
  std::vector<std::byte> row(584);
  row[0] = std::byte{0x38};    // 1, block 0
  row[64] = std::byte{0xB9};   // -1.125, block 1
  row[447] = std::byte{0x7E};  // 448, block 6
  row[576] = std::byte{128};   // 2
  row[577] = std::byte{120};   // 2^-7
  row[582] = std::byte{127};
  const std::uint16_t rope = 0x4040;  // 3
  std::memcpy(row.data() + 448 + 2 * 63, &rope, 2);
  caches.put(Cache::window, 65, row);
  std::vector<double> values(512);
  caches.read_kv(Cache::window, 65, values.data());
  REQUIRE(values[0] == 2);
  REQUIRE(values[64] == -1.125 / 128);
  REQUIRE(values[447] == 448);
  REQUIRE(values[511] == 3);
  REQUIRE(std::accumulate(values.begin(), values.end(), 0.0) == 2 - 1.125 / 128 + 448 + 3);
  caches.read_kv(Cache::window, 66, values.data());  // never written: poison
  REQUIRE(std::isnan(values[0]));
  REQUIRE(std::isnan(values[511]));
}

TEST_CASE("FP4 index rows hold the even element in the low nibble", "[wide]") {
  RunConfig config = config_of(LayerKind::csa, "official");
  Caches caches(config, 0);
  std::vector<std::byte> row(68);
  row[0] = std::byte{0x72};   // element 0: code 2 = 1, element 1: code 7 = 6
  row[63] = std::byte{0x90};  // element 127: code 9 = -0.5
  row[64] = std::byte{127};
  row[67] = std::byte{129};
  caches.put(Cache::index_entries, 64, row);
  std::vector<double> values(128);
  REQUIRE(caches.read_index(64, values.data()) == 1);
  REQUIRE(values[0] == 1);
  REQUIRE(values[1] == 6);
  REQUIRE(values[127] == -2);
  const auto page = caches.memory(Cache::index_entries).page(1);
  REQUIRE(page.size() == 4352);
  REQUIRE(page[64 * 64 + 3] == std::byte{129});
}

TEST_CASE("FP8 index rows give codes and their scale", "[wide]") {
  Caches caches(config_of(LayerKind::csa), 0);
  std::vector<std::byte> row(132);
  row[5] = std::byte{0x40};  // 2
  const float scale = 0.25F;
  std::memcpy(row.data() + 128, &scale, 4);
  caches.put(Cache::index_entries, 64, row);
  std::vector<double> values(128);
  REQUIRE(caches.read_index(64, values.data()) == 0.25);
  REQUIRE(values[5] == 2);
  REQUIRE(caches.memory(Cache::index_entries).page(1).size() == 8448);
}

TEST_CASE("state addresses of all forms", "[wide]") {
  const BlockTables none;
  RunConfig config = config_of(LayerKind::csa);
  REQUIRE(Caches(config, 0).slot(Cache::state, {none, 2}, 13) == 2 * 8 + 5);
  config.cache.draft_rows = 3;
  REQUIRE(Caches(config, 0).slot(Cache::index_state, {none, 2}, 29) == 2 * 16 + 13);
  config.cache.c4_state = C4State::paged;
  const auto c4 = tables_with(Pool::state_c4, {-1, 9, 4});
  REQUIRE(Caches(config, 0).slot(Cache::state, {*c4, 0}, 11) == 4 * 4 + 3);
  REQUIRE(Caches(config, 0).slot(Cache::state, {*c4, 0}, 3) == -1);
  config.cache.c4_state = C4State::page4align;
  REQUIRE(Caches(config, 0).slot(Cache::state, {*c4, 0}, 5) == 9 * 4 + 1);

  RunConfig hca = config_of(LayerKind::hca);
  REQUIRE(Caches(hca, 0).slot(Cache::state, {none, 1}, 300) == 128 + 44);
  hca.cache.draft_rows = 2;
  REQUIRE(Caches(hca, 0).slot(Cache::state, {none, 1}, 300) == 256 + 44);
  hca.cache.c128_state = C128State::paged;
  const auto c128 = tables_with(Pool::state_c128, {1, 2});
  REQUIRE(Caches(hca, 0).slot(Cache::state, {*c128, 0}, 10) == 2 * 8 + 2);
  hca.cache.c128_state = C128State::online;
  const Caches online(hca, 0);
  REQUIRE(online.online());
  REQUIRE(online.online_slot({none, 3}, 0) == 9);  // three banks a base
  REQUIRE(online.online_slot({none, 3}, 2) == 11);
  REQUIRE(online.memory(Cache::state).row_bytes() == 3 * 512 * 4);
}

TEST_CASE("copies take whole rows, fills whole pages and bases", "[wide]") {
  RunConfig config = config_of(LayerKind::csa);
  Caches caches(config, 0);
  for (int i = 0; i < 4; ++i) caches.put(Cache::entries, 64 + i, counted_row(584, i));
  caches.copy({Pool::entries_c4, 1, 2, 3});
  for (int i = 0; i < 3; ++i) REQUIRE(caches.memory(Cache::entries).row(128 + i) == counted_row(584, i));
  REQUIRE(caches.memory(Cache::entries).row(131) == std::vector<std::byte>(584, std::byte{0xFF}));
  caches.copy({Pool::entries_c128, 1, 3, 1});  // another layer's pool
  REQUIRE(caches.memory(Cache::entries).row(192) == std::vector<std::byte>(584, std::byte{0xFF}));

  caches.fill({Pool::entries_c4, 1}, 0x5A);
  const auto page = caches.memory(Cache::entries).page(1);
  REQUIRE(page == std::vector<std::byte>(page.size(), std::byte{0x5A}));

  const std::size_t state_row = caches.memory(Cache::state).row_bytes();
  REQUIRE(state_row == 2 * 1024 * 4);
  caches.put(Cache::state, 7, counted_row(state_row, 0));
  caches.put(Cache::state, 8, counted_row(state_row, 1));
  caches.put(Cache::state, 16, counted_row(state_row, 2));
  caches.fill_base(1, 0xFF);
  REQUIRE(caches.memory(Cache::state).row(7) == counted_row(state_row, 0));
  REQUIRE(caches.memory(Cache::state).row(8) == std::vector<std::byte>(state_row, std::byte{0xFF}));
  REQUIRE(caches.memory(Cache::state).row(16) == counted_row(state_row, 2));
}

TEST_CASE("live rows come in logical order", "[wide]") {
  RunConfig config = config_of(LayerKind::csa);
  Caches caches(config, 0);
  const std::size_t size = caches.memory(Cache::state).row_bytes();
  for (int slot = 0; slot < 8; ++slot) caches.put(Cache::state, slot, counted_row(size, slot));
  LiveRequest live;
  live.tables = std::make_shared<BlockTables>();
  live.length = 10;  // rows 4 .. 9 are live, at ring slots 4 .. 7, 0, 1
  std::vector<std::byte> bytes;
  caches.append_live(Cache::state, live, bytes);
  std::vector<std::byte> expected;
  for (const int slot : {4, 5, 6, 7, 0, 1}) {
    const auto row = counted_row(size, slot);
    expected.insert(expected.end(), row.begin(), row.end());
  }
  REQUIRE(bytes == expected);
}

TEST_CASE("exact rows are float64, and the profile's bytes are widened", "[wide]") {
  Caches caches(config_of(LayerKind::csa, "exact"), 0);
  REQUIRE(caches.memory(Cache::window).row_bytes() == 4096);
  std::vector<std::byte> row(584);
  row[0] = std::byte{0x38};
  row[576] = std::byte{126};
  caches.put(Cache::window, 64, row);
  std::vector<double> values(512);
  caches.read_kv(Cache::window, 64, values.data());
  REQUIRE(values[0] == 0.5);
  REQUIRE(values[1] == 0);
  std::vector<std::byte> index(132);
  index[3] = std::byte{0x38};
  const float scale = 4;
  std::memcpy(index.data() + 128, &scale, 4);
  caches.put(Cache::index_entries, 64, index);
  REQUIRE(caches.read_index(64, values.data()) == 1);
  REQUIRE(values[3] == 4);
}

TEST_CASE("a pitch that cannot hold a page is refused", "[wide]") {
  RunConfig config = config_of(LayerKind::swa);
  config.cache.pitch = 37375;
  REQUIRE_THROWS_AS(Caches(config, 0), UsageError);
  config.cache.pitch = 40000;
  REQUIRE(Caches(config, 0).memory(Cache::window).page(0).size() == 40000);
}

}  // namespace dsv4::wide
