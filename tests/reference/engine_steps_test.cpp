/// What a token gets does not depend on chunks, batches, pages or the form of the state; what was discarded
/// leaves no trace (docs/numerics.md 12).
#include <algorithm>

#include "arith/bf16.hpp"
#include "model/error.hpp"
#include "reference/engine_harness.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::reference::test;
using support::Part;

namespace {

const std::vector<LayerKind> kAll{LayerKind::swa, LayerKind::csa, LayerKind::hca};

/// Every token of `expected` must be in `actual`, with equal bytes (`renamed`: under another request name).
void require_equal(const TokenBytes& actual, const TokenBytes& expected) {
  REQUIRE_FALSE(expected.empty());
  std::size_t compared = 0;
  for (const auto& [key, bytes] : expected) {
    const auto found = actual.find(key);
    INFO("layer " << std::get<0>(key) << " " << std::get<1>(key) << " " << std::get<2>(key) << ":"
                  << std::get<3>(key));
    if (found == actual.end()) FAIL("missing");
    if (found->second != bytes) FAIL("differs");
    ++compared;
  }
  REQUIRE(compared == expected.size());
}

/// No NaN anywhere: poison is NaN in every float format.
void require_finite(const TokenBytes& tokens) {
  for (const auto& [key, bytes] : tokens) {
    const std::string& path = std::get<1>(key);
    const bool f32 = path == "attention.core/lse" || path == "indexer.score/scores" ||
                     path == "indexer.query/weights" || path.find("pooled") != std::string::npos ||
                     path.find(".project/kv") != std::string::npos;
    const bool bf16 = path == "attention.core/out" || path == "output.project/hidden_out" ||
                      path.ends_with("finish/entry") || path == "kv.window/kv";
    INFO(path << " position " << std::get<3>(key));
    for (std::size_t at = 0; f32 && at < bytes.size(); at += 4) {
      float value = 0;
      std::memcpy(&value, bytes.data() + at, 4);
      if (!(std::abs(value) < 1e30F)) FAIL("not finite");
    }
    for (std::size_t at = 0; bf16 && at < bytes.size(); at += 2) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, bytes.data() + at, 2);
      if (!(std::abs(arith::bf16_to_f32(bits)) < 1e30F)) FAIL("not finite");
    }
  }
}

void require_null_pages_untouched(Harness& harness) {
  for (int layer = 0; layer < std::ssize(harness.plans.config.layers); ++layer) {
    for (const Cache cache : {Cache::window, Cache::entries, Cache::index_entries}) {
      if (!has_cache(harness.plans.config.layers[static_cast<std::size_t>(layer)], cache)) continue;
      const auto page = harness.engine().read_row(layer, cache, 0);
      REQUIRE(std::ranges::all_of(page, [](std::byte byte) { return byte == std::byte{0xFF}; }));
    }
  }
}

RunConfig config_of(std::vector<LayerKind> layers, C4State c4 = C4State::ring,
                    C128State c128 = C128State::ring, int draft_rows = 1) {
  RunConfig config = tiny_config(std::move(layers));
  config.cache.c4_state = c4;
  config.cache.c128_state = c128;
  config.cache.draft_rows = draft_rows;
  config.cache.poison_freed = true;
  return config;
}

/// One request of `tokens` tokens in one step.
Harness one_shot(const RunConfig& config, int tokens) {
  Harness harness(config);
  harness.prefill(harness.admit("a"), tokens);
  return harness;
}

}  // namespace

TEST_CASE("chunks of any size give the tokens and the state of one shot") {
  for (const auto& [c4, c128] : {std::pair{C4State::ring, C128State::ring},
                                 {C4State::paged, C128State::paged},
                                 {C4State::page4align, C128State::online}}) {
    const RunConfig config = config_of(kAll, c4, c128);
    Harness whole = one_shot(config, 270);
    const auto state = whole.state(0);
    for (const std::vector<int>& sizes :
         {std::vector<int>{1, 2, 3, 4, 5}, {128, 128, 14}, {127, 1, 1, 141}, {131, 7}, {67}}) {
      INFO("first chunk " << sizes[0]);
      Harness chunked(config);
      const int request = chunked.admit("a");
      for (std::size_t i = 0; chunked.plans.length(request) < 270; ++i) {
        chunked.prefill(request, std::min(sizes[i % sizes.size()], 270 - chunked.plans.length(request)));
      }
      require_equal(chunked.tokens, whole.tokens);
      REQUIRE(chunked.state(request) == state);
      require_finite(chunked.tokens);
      require_null_pages_untouched(chunked);
    }
  }
}

TEST_CASE("ring, paged and page4align state give the same tokens and live rows") {
  const auto run = [](C4State c4, C128State c128, bool from_top) {
    Harness harness(config_of({LayerKind::csa, LayerKind::hca}, c4, c128));
    harness.plans.from_top = from_top;
    const int request = harness.admit("a");
    for (const int chunk : {130, 1, 1, 1, 1, 9, 120, 1, 1}) harness.prefill(request, chunk);
    return std::pair(harness.tokens, harness.state(request));
  };
  const auto ring = run(C4State::ring, C128State::ring, false);
  for (const auto& other :
       {run(C4State::paged, C128State::paged, false), run(C4State::page4align, C128State::ring, true),
        run(C4State::ring, C128State::paged, true)}) {
    require_equal(other.first, ring.first);
    REQUIRE(other.second == ring.second);
  }
}

TEST_CASE("online C128 differs from offline in bits, little in value") {
  const auto entry = [](C128State form) {
    Harness harness(config_of({LayerKind::hca}, C4State::ring, form));
    harness.prefill(harness.admit("a"), 128);
    const auto bytes = harness.tokens.at({0, "compress.pool/pooled", "a", 127});
    std::vector<float> values(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  const auto offline = entry(C128State::ring);
  const auto online = entry(C128State::online);
  REQUIRE(offline != online);
  double square = 0;
  double worst = 0;
  for (std::size_t i = 0; i < offline.size(); ++i) {
    square += double{offline[i]} * offline[i];
    worst = std::max(worst, std::abs(double{offline[i]} - online[i]));
  }
  // Each of 128 updates rounds a (twice) and t, relative 2^-24 each; exp is correctly rounded but its
  // argument is not: |score| below 8 leaves 2^-22 there. 128 * (3 * 2^-24 + 2 * 2^-22) of the largest partial
  // sum, which the root mean square of the result times 128 bounds with room to spare.
  const double rms = std::sqrt(square / static_cast<double>(offline.size()));
  REQUIRE(worst <= 128 * 11 * std::ldexp(1.0, -24) * 16 * rms);
}

TEST_CASE("a batch of several equals each alone") {
  const RunConfig config = config_of(kAll, C4State::paged, C128State::ring, 4);
  const std::vector<std::string> names{"a", "b", "c", "d"};
  const int prompts[]{37, 128, 5, 200};
  Harness batch(config);
  for (const std::string& name : names) batch.admit(name);
  batch.step({{0, 37}, {-1, 3}, {1, 100}});
  batch.step({{1, 28}, {0, 1}, {2, 5}, {-1, 1}, {3, 140}});
  batch.step({{3, 60}, {2, 4, 2}, {0, 1}, {1, 1}});
  for (int i = 0; i < 6; ++i) batch.step({{0, 1}, {1, 1}, {2, 1}, {-1, 2}, {3, 1}});
  for (int index = 0; index < 4; ++index) {
    Harness alone(config);
    alone.plans.from_top = true;
    const int request = alone.admit(names[static_cast<std::size_t>(index)]);
    alone.plans.adopt(request, batch.plans.contents(index));
    alone.prefill(request, prompts[index]);
    while (alone.plans.length(request) < batch.plans.length(index)) alone.prefill(request, 1);
    require_equal(batch.tokens, alone.tokens);
    auto state = batch.state(index);
    REQUIRE(state == alone.state(request));
  }
}

TEST_CASE("rejected rows leave no trace") {
  for (const auto& [c4, c128] : {std::pair{C4State::ring, C128State::ring},
                                 {C4State::paged, C128State::paged},
                                 {C4State::page4align, C128State::online}}) {
    const RunConfig config = config_of(kAll, c4, c128, 5);
    Harness drafted(config);
    const int request = drafted.admit("a");
    drafted.prefill(request, 118);
    const int accepts[]{1, 0, 4, 2, 0, 3, 5, 1, 1, 0, 2};  // across the boundaries of 4 and 128
    for (const int accept : accepts) drafted.step({{request, 5, accept}});
    drafted.prefill(request, 1);

    Harness plain(config_of(kAll, c4, c128));
    plain.admit("a");
    plain.plans.adopt(0, drafted.plans.contents(request));
    plain.prefill(0, 118);
    while (plain.plans.length(0) < drafted.plans.length(request)) plain.prefill(0, 1);
    REQUIRE(plain.plans.length(0) > 128);
    TokenBytes committed = drafted.tokens;
    std::erase_if(committed,
                  [&](const auto& item) { return std::get<3>(item.first) >= plain.plans.length(0); });
    require_equal(committed, plain.tokens);
    REQUIRE(drafted.state(request) == plain.state(0));
  }
}

TEST_CASE("a dropped request comes back the same, also in a chained stack") {
  for (const C128State c128 : {C128State::ring, C128State::online}) {
    for (const bool chain : {false, true}) {
      RunConfig config = config_of(kAll, C4State::paged, c128);
      config.chain = chain;
      Harness steady(config);
      steady.admit("a");
      steady.admit("b");
      Harness tossed(config);
      tossed.admit("a");
      tossed.admit("b");
      for (Harness* harness : {&steady, &tossed}) {
        harness->step({{0, 150}, {1, 20}});
        if (harness == &tossed) {
          harness->run(harness->plans.drop(0));
          harness->step({{1, 30}});  // takes the freed pages
          for (int at = 0; at < 150; at += 64)
            harness->run(harness->plans.restore(0, at, std::min(150, at + 64)));
        } else {
          harness->step({{1, 30}});
        }
        harness->step({{0, 1}, {1, 1}});
        harness->step({{0, 110}});
      }
      require_equal(tossed.tokens, steady.tokens);
      REQUIRE(tossed.state(0) == steady.state(0));
      REQUIRE(tossed.state(1) == steady.state(1));
      require_finite(tossed.tokens);
    }
  }
}

TEST_CASE("a request cut back equals one that never went further") {
  for (const C128State c128 : {C128State::ring, C128State::paged, C128State::online}) {
    RunConfig config = config_of(kAll, C4State::ring, c128);
    config.chain = true;
    Harness cut(config);
    cut.admit("a");
    cut.prefill(0, 270);
    cut.run(cut.plans.cut(0, 150));
    // Live at 150: window rows from 23, ratio-4 rows from 144, ratio-128 rows from 128; entries are all kept.
    KeepFrom keep;
    keep.entries_c4 = 37;
    keep.entries_c128 = 1;
    cut.run(cut.plans.restore(0, 23, 150, keep));
    Harness straight(config);
    straight.admit("a");
    cut.prefill(0, 10);
    straight.plans.adopt(0, cut.plans.contents(0));
    straight.prefill(0, 150);
    straight.prefill(0, 10);
    TokenBytes kept = cut.tokens;
    std::erase_if(kept, [](const auto& item) { return std::get<3>(item.first) >= 160; });
    require_equal(kept, straight.tokens);
    REQUIRE(cut.state(0) == straight.state(0));
  }
}

TEST_CASE("a prefix hit continues as if it had computed the prefix") {
  RunConfig config = config_of(kAll);
  config.chain = true;
  Harness hit(config);
  hit.admit("b");
  hit.admit("c");
  hit.prefill(0, 140);
  hit.run(hit.plans.copy_prefix(1, 0, 128));
  KeepFrom keep;
  keep.entries_c4 = 32;
  keep.entries_c128 = 1;
  hit.run(hit.plans.restore(1, 1, 128, keep));
  hit.prefill(1, 130);
  Harness straight(config);
  straight.admit("c");
  straight.plans.adopt(0, hit.plans.contents(1));
  straight.prefill(0, 128);
  const TokenBytes prefix = std::exchange(straight.tokens, {});
  straight.prefill(0, 130);
  require_equal(hit.tokens, straight.tokens);
  REQUIRE(hit.state(1) == straight.state(0));
  REQUIRE_FALSE(prefix.empty());
}

TEST_CASE("chained layers read the norm of input plus output") {
  RunConfig config = config_of({LayerKind::swa, LayerKind::swa});
  config.chain = true;
  Harness harness(config);
  harness.prefill(harness.admit("a"), 3);
  const auto rows = [&](int layer, TensorId id) {
    return harness.engine().tensor(layer, id)->as<std::uint16_t>();
  };
  const auto in = rows(0, TensorId::hidden);
  const auto out = rows(0, TensorId::hidden_out);
  const auto next = rows(1, TensorId::hidden);
  const int dim = config.geometry.dim;
  for (int token = 0; token < 3; ++token) {
    double square = 0;
    for (int i = 0; i < dim; ++i) {
      const int at = token * dim + i;
      const double sum =
          arith::bf16_to_f32(arith::f32_to_bf16(arith::bf16_to_f32(in[at]) + arith::bf16_to_f32(out[at])));
      square += sum * sum;
    }
    const double factor = 1 / std::sqrt(square / dim + 1e-6);
    for (int i = 0; i < dim; ++i) {
      const int at = token * dim + i;
      const double sum =
          arith::bf16_to_f32(arith::f32_to_bf16(arith::bf16_to_f32(in[at]) + arith::bf16_to_f32(out[at])));
      REQUIRE(std::abs(arith::bf16_to_f32(next[at]) - sum * factor) <= std::abs(sum * factor) * 0.004);
    }
  }
}
