/// Memory, rows and slots of the caches against addresses written out by hand.
#include <cstring>
#include <numeric>

#include "arith/bf16.hpp"
#include "model/error.hpp"
#include "reference/kv_row.hpp"
#include "reference/layer_caches.hpp"
#include "reference/poisoned_memory.hpp"
#include "reference/slots.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::reference;

namespace {

RunConfig config_of(LayerKind kind, std::string_view profile = "canonical") {
  RunConfig config;
  config.geometry = geometry_preset("tiny");
  config.profile = profile_named(profile);
  config.layers = {kind};
  config.pool_pages.fill(5);
  config.state_bases = 3;
  return config;
}

std::vector<std::byte> counted(std::size_t size, int first) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>((first + 7 * static_cast<int>(i)) % 251);
  return bytes;
}

bool all(std::span<const std::byte> bytes, int value) {
  return std::ranges::all_of(bytes, [&](std::byte byte) { return byte == static_cast<std::byte>(value); });
}

/// The whole unit after one row was written at `row`, by a literal layout: value bytes of all rows, scale
/// bytes of all rows, the rest 0xFF.
std::vector<std::byte> literal_unit(std::span<const std::byte> row, int value_bytes, int scale_bytes,
                                    int rows, int at, std::int64_t pitch) {
  std::vector<std::byte> unit(static_cast<std::size_t>(pitch), std::byte{0xFF});
  for (int i = 0; i < value_bytes; ++i) unit[static_cast<std::size_t>(at * value_bytes + i)] = row[i];
  for (int i = 0; i < scale_bytes; ++i) {
    unit[static_cast<std::size_t>(rows * value_bytes + at * scale_bytes + i)] = row[value_bytes + i];
  }
  return unit;
}

}  // namespace

TEST_CASE("memory reads 0xFF until written, and again after a reset") {
  PoisonedMemory memory((std::uint64_t{40} << 20) + 123);
  REQUIRE(memory.size() == (std::uint64_t{40} << 20) + 123);
  for (const std::uint64_t at :
       {std::uint64_t{0}, (std::uint64_t{16} << 20) - 1, std::uint64_t{16} << 20, memory.size() - 1}) {
    REQUIRE(memory.data()[at] == std::byte{0xFF});
    memory.data()[at] = std::byte{1};
  }
  // A second mapping shares nothing with the first.
  PoisonedMemory other(4096);
  REQUIRE(all({other.data(), 4096}, 0xFF));

  std::memset(memory.data() + 1000, 2, 100000);
  memory.reset(5000, 50000);
  REQUIRE(all({memory.data() + 1000, 4000}, 2));
  REQUIRE(all({memory.data() + 5000, 50000}, 0xFF));
  REQUIRE(all({memory.data() + 55000, 46000}, 2));
  memory.reset(60000, 10);
  REQUIRE(all({memory.data() + 60000, 10}, 0xFF));
  REQUIRE(memory.data()[59999] == std::byte{2});
  REQUIRE(memory.data()[60010] == std::byte{2});
  REQUIRE_THROWS_AS(memory.reset(memory.size(), 1), InternalError);
}

TEST_CASE("rows lie where the layouts say") {
  struct Case {
    LayerKind kind;
    Cache cache;
    const char* profile;
    int values, scales, rows;
    std::int64_t pitch;
  };
  // 64 * 584 = 37376 -> 37440; 2 * 584 = 1168 -> 1728; 64 * 132; 64 * 68; CSA state kv | score of 1024 each.
  const Case cases[]{{LayerKind::swa, Cache::window, "canonical", 576, 8, 64, 37440},
                     {LayerKind::csa, Cache::entries, "canonical", 576, 8, 64, 37440},
                     {LayerKind::hca, Cache::entries, "canonical", 576, 8, 2, 1728},
                     {LayerKind::csa, Cache::index_entries, "canonical", 128, 4, 64, 8448},
                     {LayerKind::csa, Cache::index_entries, "official", 64, 4, 64, 4352}};
  for (const Case& it : cases) {
    INFO(name(it.cache) << " " << name(it.kind) << " " << it.profile);
    const RunConfig config = config_of(it.kind, it.profile);
    LayerCaches caches(config, 0);
    RowStore& store = caches.at(it.cache);
    REQUIRE(store.shape().pitch == it.pitch);
    REQUIRE(store.shape().slots() == 5 * it.rows);
    REQUIRE(all(store.read_unit(3), 0xFF));
    const int at = it.rows - 1;
    const auto row = counted(static_cast<std::size_t>(it.values + it.scales), 3);
    store.write(3 * it.rows + at, row);
    REQUIRE(store.read_unit(3) == literal_unit(row, it.values, it.scales, it.rows, at, it.pitch));
    REQUIRE(all(store.read_unit(2), 0xFF));
    REQUIRE(all(store.read_unit(4), 0xFF));
    std::vector<std::byte> back(row.size());
    store.read(3 * it.rows + at, back);
    REQUIRE(back == row);
  }
}

TEST_CASE("state rows are f32 kv then score, ring rows are units of their own") {
  const RunConfig ring = config_of(LayerKind::csa);
  LayerCaches caches(ring, 0);
  REQUIRE(caches.at(Cache::state).shape().pitch == 2 * 1024 * 4);
  REQUIRE(caches.at(Cache::state).shape().units == 3 * 8);
  REQUIRE(caches.at(Cache::index_state).shape().pitch == 2 * 256 * 4);

  RunConfig paged = config_of(LayerKind::hca);
  paged.cache.c128_state = C128State::paged;
  REQUIRE(LayerCaches(paged, 0).at(Cache::state).shape().pitch == 8 * 2 * 512 * 4);

  RunConfig online = config_of(LayerKind::hca);
  online.cache.c128_state = C128State::online;
  online.cache.draft_rows = 4;
  REQUIRE(LayerCaches(online, 0).at(Cache::state).shape().pitch == 3 * 512 * 4);
  REQUIRE(LayerCaches(online, 0).at(Cache::state).shape().units == 3 * 5);
}

TEST_CASE("a wide pitch reaches beyond 2^32 bytes and costs nothing") {
  RunConfig config = config_of(LayerKind::swa);
  config.cache.pitch = (std::int64_t{64} << 20) + 4;
  config.pool_pages.fill(100);
  LayerCaches caches(config, 0);
  RowStore& store = caches.at(Cache::window);
  const auto row = counted(584, 9);
  store.write(99 * 64 + 63, row);
  std::vector<std::byte> back(584);
  store.read(99 * 64 + 63, back);
  REQUIRE(back == row);
  store.read(98 * 64 + 63, back);
  REQUIRE(all(back, 0xFF));
  store.fill_unit(99, 0xFF);
  store.read(99 * 64 + 63, back);
  REQUIRE(all(back, 0xFF));

  config.cache.pitch = 37439;
  REQUIRE_THROWS_AS(LayerCaches(config, 0), UsageError);
}

TEST_CASE("slots out of range and the null page are refused") {
  const RunConfig config = config_of(LayerKind::swa);
  LayerCaches caches(config, 0);
  RowStore& store = caches.at(Cache::window);
  const auto row = counted(584, 1);
  std::vector<std::byte> back(584);
  REQUIRE_THROWS_AS(store.write(-1, row), InternalError);
  REQUIRE_THROWS_AS(store.write(5 * 64, row), InternalError);
  REQUIRE_THROWS_AS(store.read(5 * 64, back), InternalError);
  REQUIRE_THROWS_AS(store.write(63, row), InternalError);  // page 0
  REQUIRE_THROWS_AS(store.fill_unit(0, 0), InternalError);
  REQUIRE_THROWS_AS(store.copy_rows(1, 0, 1), InternalError);
  REQUIRE_THROWS_AS(store.write(64, std::span(row).first(583)), InternalError);
  REQUIRE_THROWS_AS(caches.at(Cache::state), InternalError);
  REQUIRE(all(store.read_unit(0), 0xFF));
}

TEST_CASE("a copy takes the first rows, scales included") {
  const RunConfig config = config_of(LayerKind::csa);
  LayerCaches caches(config, 0);
  RowStore& store = caches.at(Cache::entries);
  for (int row = 0; row < 64; ++row) store.write(64 + row, counted(584, row));
  caches.copy({Pool::entries_c4, 1, 4, 3});
  caches.copy({Pool::entries_c128, 1, 3, 2});  // another kind's pool
  std::vector<std::byte> back(584);
  for (int row = 0; row < 64; ++row) {
    store.read(4 * 64 + row, back);
    REQUIRE(back == (row < 3 ? counted(584, row) : std::vector<std::byte>(584, std::byte{0xFF})));
  }
  REQUIRE(all(store.read_unit(3), 0xFF));
}

TEST_CASE("slots against literal address arithmetic") {
  BlockTables tables;
  tables[static_cast<std::size_t>(Pool::window)] = {-1, 4, 2};
  tables[static_cast<std::size_t>(Pool::entries_c4)] = {3};
  tables[static_cast<std::size_t>(Pool::entries_c128)] = {1, 4};
  tables[static_cast<std::size_t>(Pool::index)] = {2};
  tables[static_cast<std::size_t>(Pool::state_c4)] = {-1, -1, 3, 1};
  tables[static_cast<std::size_t>(Pool::state_c128)] = {4, 2};

  const RunConfig csa = config_of(LayerKind::csa);
  const Slots ring(csa, 0, 0, &tables, 2);
  REQUIRE(ring.find(Cache::window, 0) == -1);
  REQUIRE(ring.find(Cache::window, 63) == -1);
  REQUIRE(ring.find(Cache::window, 64) == 4 * 64);
  REQUIRE(ring.find(Cache::window, 191) == 2 * 64 + 63);
  REQUIRE(ring.find(Cache::window, 192) == -1);
  REQUIRE(ring.find(Cache::entries, 5) == 3 * 64 + 5);
  REQUIRE(ring.find(Cache::entries, 64) == -1);
  REQUIRE(ring.find(Cache::index_entries, 63) == 2 * 64 + 63);
  REQUIRE(ring.find(Cache::state, 13) == 2 * 8 + 5);
  REQUIRE(ring.find(Cache::index_state, 16) == 2 * 8);

  RunConfig drafting = csa;
  drafting.cache.draft_rows = 4;
  REQUIRE(Slots(drafting, 0, 0, &tables, 2).find(Cache::state, 13) == 2 * 16 + 13);

  for (const C4State form : {C4State::paged, C4State::page4align}) {
    RunConfig paged = csa;
    paged.cache.c4_state = form;
    const Slots slots(paged, 0, 0, &tables, 2);
    REQUIRE(slots.find(Cache::state, 7) == -1);
    REQUIRE(slots.find(Cache::state, 8) == 3 * 4);
    REQUIRE(slots.find(Cache::state, 15) == 1 * 4 + 3);
    REQUIRE_THROWS_AS(slots.at(Cache::state, 7), InternalError);
  }

  const RunConfig hca = config_of(LayerKind::hca);
  REQUIRE(Slots(hca, 0, 0, &tables, 1).find(Cache::entries, 3) == 4 * 2 + 1);
  REQUIRE(Slots(hca, 0, 0, &tables, 1).find(Cache::state, 130) == 128 + 2);
  RunConfig hca_paged = hca;
  hca_paged.cache.c128_state = C128State::paged;
  REQUIRE(Slots(hca_paged, 0, 0, &tables, 1).find(Cache::state, 9) == 2 * 8 + 1);
  RunConfig online = hca;
  online.cache.c128_state = C128State::online;
  online.cache.draft_rows = 3;
  REQUIRE(Slots(online, 0, 0, &tables, 2).bank(0) == 8);
  REQUIRE(Slots(online, 0, 0, &tables, 2).bank(3) == 11);
  REQUIRE_THROWS_AS(Slots(online, 0, 0, &tables, 2).bank(4), InternalError);
  REQUIRE_THROWS_AS(Slots(online, 0, 0, &tables, 2).find(Cache::state, 1), InternalError);
}

TEST_CASE("tables that name the null page, a foreign page or no page are refused") {
  const RunConfig config = config_of(LayerKind::csa);
  BlockTables tables;
  tables[static_cast<std::size_t>(Pool::window)] = {0, 5, 4};
  const Slots slots(config, 0, 1, &tables, 0);
  REQUIRE_THROWS_AS(slots.find(Cache::window, 10), InternalError);
  REQUIRE_THROWS_AS(slots.find(Cache::window, 64), InternalError);
  REQUIRE(slots.find(Cache::window, 128) == 4 * 64);
  REQUIRE_THROWS_AS(slots.at(Cache::window, 192), InternalError);
  REQUIRE_THROWS_AS(slots.find(Cache::window, -1), InternalError);
  REQUIRE_THROWS_AS(Slots(config, 0, 1, &tables, 3).find(Cache::state, 0), InternalError);
  try {
    slots.at(Cache::window, 200);
    FAIL("a page that is not held");
  } catch (const InternalError& error) {
    REQUIRE(std::string(error.what()) == "layer 0 window: request 1, index 200: no page is held for it");
  }
}

TEST_CASE("a KV row as bytes, by hand") {
  // Block 0: 448 and -1.75 (scale 2^0); block 1: all zero (floor: 1e-4 / 448 -> 2^-22); block 6: 0.5 and 2^-9
  // with amax 0.5 -> 0.5 / 448 lies between 2^-10 and 2^-9, so codes are those of 256 and 1.
  std::vector<std::uint16_t> row(512, 0);
  row[0] = arith::f32_to_bf16(448.0F);
  row[1] = arith::f32_to_bf16(-1.75F);
  row[384] = arith::f32_to_bf16(0.5F);
  row[385] = arith::f32_to_bf16(0.001953125F);
  for (int i = 448; i < 512; ++i) row[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(0x3F00 + i);
  std::array<std::uint8_t, 448> codes{};
  std::array<std::uint8_t, 7> scales{};
  std::array<std::byte, 584> bytes{};
  encode_kv_row(row.data(), QuantFloor::amax, codes.data(), scales.data(), bytes.data());
  REQUIRE(bytes[0] == std::byte{0x7E});    // 448
  REQUIRE(bytes[1] == std::byte{0xBE});    // -1.75
  REQUIRE(bytes[384] == std::byte{0x78});  // 256
  REQUIRE(bytes[385] == std::byte{0x38});  // 1
  REQUIRE(bytes[448] == std::byte{0xC0});  // 0x3F00 + 448 = 0x40C0, low byte first
  REQUIRE(bytes[449] == std::byte{0x40});
  REQUIRE(bytes[576] == std::byte{127});
  REQUIRE(bytes[577] == std::byte{127 - 22});
  REQUIRE(bytes[582] == std::byte{127 - 9});
  REQUIRE(bytes[583] == std::byte{0});

  RowStore store("a", {.value_bytes = 576,
                       .scale_bytes = 8,
                       .unit_rows = 64,
                       .units = 3,
                       .pitch = 37441,
                       .null_unit = true});  // an odd pitch leaves rows unaligned
  store.write(2 * 64 + 5, bytes);
  std::array<float, 512> values{};
  decode_kv_row(store, 2 * 64 + 5, values.data());
  REQUIRE(values[0] == 448.0F);
  REQUIRE(values[1] == -1.75F);
  REQUIRE(values[384] == 0.5F);
  REQUIRE(values[385] == 0.001953125F);
  REQUIRE(values[448] == arith::bf16_to_f32(0x40C0));
  REQUIRE(values[511] == arith::bf16_to_f32(0x40FF));
}

TEST_CASE("index rows as bytes, by hand") {
  RowStore store(
      "a",
      {.value_bytes = 64, .scale_bytes = 4, .unit_rows = 64, .units = 2, .pitch = 4352, .null_unit = true});
  std::vector<std::uint8_t> codes(128, 0);
  codes[0] = 0x1;    // 0.5, low nibble
  codes[1] = 0xF;    // -6, high nibble
  codes[127] = 0x7;  // 6
  const std::uint8_t scales[4]{127, 128, 126, 130};
  std::array<std::byte, 68> bytes{};
  encode_index_row(codes.data(), scales, IndexCache::fp4, bytes.data());
  REQUIRE(bytes[0] == std::byte{0xF1});
  REQUIRE(bytes[63] == std::byte{0x70});
  REQUIRE(bytes[67] == std::byte{130});
  store.write(64 + 9, bytes);
  std::array<float, 128> values{};
  float untouched = 5;
  decode_index_row(store, 64 + 9, IndexCache::fp4, values.data(), &untouched);
  REQUIRE(values[0] == 0.5F);
  REQUIRE(values[1] == -6.0F);
  REQUIRE(values[127] == 48.0F);
  REQUIRE(untouched == 5);

  RowStore fp8(
      "a",
      {.value_bytes = 128, .scale_bytes = 4, .unit_rows = 64, .units = 2, .pitch = 8448, .null_unit = true});
  std::vector<std::uint8_t> code8(128, 0x38);
  const std::uint8_t scale8[1]{120};
  std::array<std::byte, 132> bytes8{};
  encode_index_row(code8.data(), scale8, IndexCache::fp8, bytes8.data());
  REQUIRE(bytes8[131] == std::byte{0x3C});  // 2^-7 = 0x3C000000, little endian
  fp8.write(64, bytes8);
  float scale = 0;
  decode_index_row(fp8, 64, IndexCache::fp8, values.data(), &scale);
  REQUIRE(values[77] == 1.0F);
  REQUIRE(scale == 0.0078125F);
}

TEST_CASE("rows that lists name again and again are decoded once") {
  RowStore store(
      "a",
      {.value_bytes = 576, .scale_bytes = 8, .unit_rows = 2, .units = 50, .pitch = 1728, .null_unit = true});
  for (int slot = 2; slot < 100; ++slot) {
    std::vector<std::byte> row(584, std::byte{0});
    row[0] = std::byte{0x38};
    row[576] = static_cast<std::byte>(127 + slot % 8);
    store.write(slot, row);
  }
  DecodedRows rows(store);
  std::vector<std::size_t> indices;
  const int slots[]{7, 90, 6, 7, 91, 90, 7};
  for (const int slot : slots) indices.push_back(rows.add(slot));
  REQUIRE(indices == std::vector<std::size_t>{0, 1, 2, 0, 3, 1, 0});
  rows.decode();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    REQUIRE(rows.row(indices[i])[0] == static_cast<float>(1 << slots[i] % 8));
  }
  REQUIRE_THROWS_AS(rows.add(100), InternalError);
}
