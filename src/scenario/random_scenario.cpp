#include "scenario/random_scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "model/error.hpp"
#include "model/layout.hpp"
#include "scenario/parse_parts.hpp"
#include "scenario/plan.hpp"
#include "scenario/random_script.hpp"
#include "scenario/write_yaml.hpp"

namespace dsv4::scenario {
namespace {

Model random_model(Dice& dice) {
  using enum LayerKind;
  Model model;
  model.geometry = geometry_preset("tiny");
  model.layers = dice.pick<std::vector<LayerKind>>(
      {{csa}, {hca}, {swa}, {swa, csa, hca}, {csa, hca}, {csa, csa}, {hca, csa, swa, csa}});
  model.checkpoint_layers.resize(model.layers.size());
  std::iota(model.checkpoint_layers.begin(), model.checkpoint_layers.end(), 0);
  model.chain = model.layers.size() > 1 && dice.once_in(3);
  if (dice.once_in(2)) {
    model.geometry.index_topk = dice.pick({8, 1, 2, 5, 16, 64});
    model.geometry.index_heads = dice.pick({4, 1, 3, 8});
  }
  if (dice.once_in(3)) {
    model.geometry.o_groups = dice.pick({1, 2, 3});
    model.geometry.heads = model.geometry.o_groups * dice.pick({1, 2, 3});
  }
  return model;
}

/// Canonical and official arithmetic, now and then that of an engine in the field.
Profile random_profile(Dice& dice) {
  const std::uint32_t choice = dice.below(8);
  if (choice < 4) return profile_named("canonical");
  if (choice < 7) return profile_named("official");
  std::vector<Profile> others;
  for (const std::string_view name : profile_names()) {
    others.push_back(profile_named(name));
    if (others.back().exact) others.pop_back();
  }
  return dice.pick(others);
}

CacheConfig random_cache(Dice& dice, const Profile& profile) {
  CacheConfig cache;
  if (dice.once_in(2)) cache.swa_page = dice.pick({64, 1, 3, 16, 32, 128, 256});
  if (dice.once_in(2)) cache.c4_page = dice.pick({64, 1, 2, 3, 16});
  if (dice.once_in(3)) cache.c128_page = dice.pick({2, 1, 3, 64});
  if (dice.once_in(2)) cache.index_page = dice.pick({64, 1, 2, 3, 16});
  cache.c4_state = dice.pick({C4State::ring, C4State::paged, C4State::page4align});
  cache.c128_state = dice.pick({C128State::ring, C128State::paged, C128State::online});
  // An online accumulator has its own sum.
  if (cache.c128_state == C128State::online && profile.get<PoolMode>() != PoolMode::f32)
    cache.c128_state = C128State::paged;
  cache.allocate = dice.pick({Allocate::sequential, Allocate::shuffled, Allocate::lifo});
  cache.swa_release = dice.once_in(4) ? SwaRelease::never : SwaRelease::eager;
  cache.poison_freed = dice.once_in(2);
  // Pages of plain rows have another size, to which a plan does not hold the pitch.
  const bool plain = layout::plain(profile.get<KvCache>()) || layout::plain(profile.get<IndexCache>());
  if (dice.once_in(8) && !plain) {
    std::int64_t pitch = layout::kKvPageAlign;
    while (!pitch_fault(cache, pitch).empty()) pitch += layout::kKvPageAlign;
    cache.pitch = pitch + layout::kKvPageAlign * dice.between(0, 3);
  }
  return cache;
}

/// Pages that the largest pool holds at its peak, whatever form compressor state has.
std::int64_t most_pages(const Scenario& scenario) {
  std::int64_t most = 1;
  try {
    const Scenario parsed = parse_scenario(write_yaml(scenario), scenario.file);
    for (const C4State form : {C4State::ring, C4State::paged, C4State::page4align}) {
      Overrides forms;
      forms.c4_state = form;
      forms.c128_state = form == C4State::ring ? C128State::ring : C128State::paged;
      for (const std::int64_t pages : plan(parsed, forms).config.pool_pages) most = std::max(most, pages - 1);
    }
    plan(parsed);
  } catch (const UsageError& error) {
    throw InternalError(
        fmt::format("the grammar wrote a scenario that is none: {}\n{}", error.what(), write_yaml(scenario)));
  }
  return most;
}

}  // namespace

Scenario random_scenario(Dice dice, const std::string& name, const RandomSize& size) {
  Scenario scenario;
  scenario.name = name;
  scenario.file = name + ".yaml";
  scenario.seed = dice.below(1000);
  scenario.model = random_model(dice);
  scenario.profile = random_profile(dice);
  scenario.profile_given = true;
  scenario.cache = random_cache(dice, scenario.profile);
  const bool wider = dice.once_in(6);
  const bool tight = dice.once_in(3);
  const int spare = dice.between(0, 2);
  RandomScript script(dice, scenario.model, scenario.cache, size.tokens);
  scenario.steps = script.make(dice.between(1, size.events));
  scenario.cache.draft_rows = std::max(widest_verify(scenario.steps).value, wider ? 2 : 1);
  const std::int64_t most = most_pages(scenario);
  if (tight) {
    // Hardly more pages than the run holds at its peak, so that pages come back early.
    scenario.cache.pool_pages = most + spare;
    if (scenario.cache.allocate != Allocate::shuffled && spare == 2)
      scenario.cache.first_page = static_cast<std::int32_t>(*scenario.cache.pool_pages);
    most_pages(scenario);
  }
  return parse_scenario(write_yaml(scenario), scenario.file);
}

Scenario random_scenario(std::uint64_t seed, std::uint64_t index) {
  return random_scenario(Dice(seed, index), fmt::format("fuzz-{}-{}", seed, index));
}

}  // namespace dsv4::scenario
