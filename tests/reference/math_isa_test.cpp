#include "math_support.hpp"
#include "model/error.hpp"
#include "reference/arithmetic_support.hpp"
#include "reference/simd/peak.hpp"

using namespace dsv4;
using namespace dsv4::reference;

TEST_CASE("instruction sets are chosen by name") {
  const Isa before = selected_isa();
  REQUIRE(before == best_isa());
  const std::vector<Isa> known = available_isas();
  REQUIRE(known.size() >= 2);
  for (const Isa isa : known) {
    REQUIRE(isa_from_name(name(isa)) == isa);
    select_isa(isa);
    REQUIRE(selected_isa() == isa);
  }
  REQUIRE_THROWS_AS(isa_from_name("v9"), UsageError);
  REQUIRE_THROWS_AS(isa_from_name(""), UsageError);
  REQUIRE(selected_isa() == known.back());
  select_isa(before);
}

TEST_CASE("values without arithmetic are refused by axis and value") {
  REQUIRE_NOTHROW(check_arithmetic(profile_named("canonical")));
  REQUIRE_NOTHROW(check_arithmetic(profile_named("official")));
  REQUIRE_THROWS_AS(check_arithmetic(profile_named("exact")), UsageError);
  const auto message = [](const char* axis, const char* text) {
    Profile profile = profile_named("canonical");
    profile.set(axis, text);
    try {
      check_arithmetic(profile);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  REQUIRE(message("arithmetic", "hopper").find("arithmetic") != std::string::npos);
  REQUIRE(message("list_order", "compressed_first").find("'compressed_first'") != std::string::npos);
  REQUIRE(message("out_rotation", "f32").find("needs wo_a: fp8_1x128") != std::string::npos);
  REQUIRE(message("kv_cache", "bf16").empty());
  REQUIRE(message("norm_weight", "round_then").empty());
}

TEST_CASE("peaks are measured for the sets of this machine only") {
  for (const Isa isa : available_isas()) REQUIRE(fma_peak(isa, 1, 0.01) > 1e6);
  REQUIRE(fma_peak(best_isa(), 1, 0.01) > fma_peak(available_isas().front(), 1, 0.01));
  REQUIRE_THROWS_AS(fma_peak(static_cast<Isa>(99), 1), UsageError);
}
