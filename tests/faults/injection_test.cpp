#include <fstream>
#include <set>
#include <sstream>

#include "model/seeded.hpp"
#include "oracle/faults/catalogue.hpp"
#include "oracle/support.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::oracle::faults;

namespace {

std::string message(const std::string& injection) {
  try {
    parse_injection(injection);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// An engine that calls itself something else.
class Renamed : public FaultyEngine {
 public:
  using FaultyEngine::FaultyEngine;
  EngineInfo info() const override {
    EngineInfo info = FaultyEngine::info();
    info.name = "wide";
    return info;
  }
};

}  // namespace

TEST_CASE("unknown faults, parameters, values and tensors are refused with the nearest names") {
  CHECK(holds(message("pool-halfs-swapped"), "pool-halves-swapped"));
  CHECK(holds(message("window-width:wdth=3"), "no parameter 'wdth'; nearest: width"));
  CHECK(holds(message("window-width:width=0"), "whole number of at least 1"));
  CHECK(holds(message("window-width:width=x"), "'x'"));
  CHECK(holds(message("window-width:width"), "not key=value"));
  CHECK(holds(message("window-width:width=3,width=4"), "given twice"));
  CHECK(holds(message("one-rotary-base:a=1"), "has no parameters"));
  CHECK(holds(message("invalid-lane-read:as=first"), "one of zero, last"));
  CHECK(holds(message("bitflip:q.up/p"), "q.up/q"));
  CHECK(holds(message("bitflip:q.up/q:-1"), "element"));
  CHECK(holds(message("bitflip:q.up/q:0:16"), "of 16 bits"));
  CHECK(holds(message("bitflip:q.up/q:0:1:2"), "expected TENSOR:element:bit"));
  CHECK(message("window-width:width=129").empty());
  CHECK(message("bitflip:q.up/q:7:15").empty());
}

TEST_CASE("a fault is refused on an engine or profile that it does not apply to") {
  const RunPlan plan = test::plan_of("swa", "  - prefill: {request: a, tokens: 2}\n");
  const auto weights = seeded_weights(plan.config);
  auto renamed = std::make_unique<Renamed>(test::engine_of(plan), weights);
  CHECK_THROWS_AS(inject(std::move(renamed), weights, parse_injection("window-width")), UsageError);
  RunPlan official = plan;
  official.config.profile = profile_named("official");
  CHECK_THROWS_AS(inject(test::engine_of(official), weights, parse_injection("sink-in-every-split")),
                  UsageError);
  CHECK_NOTHROW(inject(test::engine_of(official), weights, parse_injection("window-width")));
}

TEST_CASE("a bit flip changes the bit asked for and nothing else") {
  const RunPlan plan = test::plan_of("swa", "  - prefill: {request: a, tokens: 2}\n");
  const auto clean = test::engine_of(plan);
  const Tensor right = test::run_all(*clean, plan)[0].layers[0].tensors.at(TensorId::q);
  const auto subject =
      inject(test::engine_of(plan), seeded_weights(plan.config), parse_injection("bitflip:q.up/q:5:9"));
  const Tensor wrong = test::run_all(*subject, plan)[0].layers[0].tensors.at(TensorId::q);
  REQUIRE(right.shape() == wrong.shape());
  for (std::size_t i = 0; i < static_cast<std::size_t>(right.elements()); ++i) {
    const int flipped = right.as<std::uint16_t>()[i] ^ wrong.as<std::uint16_t>()[i];
    REQUIRE(flipped == (i == 5 ? 1 << 9 : 0));
  }
  CHECK(subject->fired() == 1);
}

TEST_CASE("a fault that has nothing to change does not fire") {
  const RunPlan plan = test::plan_of("swa", "  - prefill: {request: a, tokens: 2}\n");
  const auto subject =
      inject(test::engine_of(plan), seeded_weights(plan.config), parse_injection("pool-halves-swapped"));
  test::run_all(*subject, plan);
  CHECK(subject->fired() == 0);
}

TEST_CASE("docs/faults.md is the catalogue") {
  std::ifstream file("docs/faults.md");
  std::ostringstream text;
  text << file.rdbuf();
  CHECK(text.str() == markdown());
}

TEST_CASE("all mutations and controls have a fault, names are unique") {
  std::set<std::string> numbers;
  std::set<std::string_view> names;
  for (const FaultInfo& fault : catalogue()) {
    numbers.emplace(fault.number);
    CHECK(names.insert(fault.name).second);
  }
  for (int i = 1; i <= 30; ++i) CHECK(numbers.contains((i < 10 ? "MU0" : "MU") + std::to_string(i)));
  for (int i = 1; i <= 5; ++i) CHECK(numbers.contains("NC" + std::to_string(i)));
}
