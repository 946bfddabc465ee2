// Sweeps: values in place of ${...}, one run for each member of the product.
#include "scenario/sweep.hpp"

#include "scenario/support.hpp"
#include "support/catch.hpp"

namespace dsv4::scenario {
namespace {

std::vector<std::string> names(const std::string& text) {
  std::vector<std::string> list;
  for (const Scenario& run : expand(test::parse(text))) list.push_back(run.name);
  return list;
}

TEST_CASE("cartesian product, last variable fastest") {
  const std::string text = R"(name: x
sweep: {n: [1, 2..3], s: 7..8}   # a comment with ${unknown}
steps:
  - prefill: {request: a, tokens: ${n}}
  - prefill: {request: a, tokens: ${s}}
)";
  CHECK(names(text) == std::vector<std::string>{"x[n=1,s=7]", "x[n=1,s=8]", "x[n=2,s=7]", "x[n=2,s=8]",
                                                "x[n=3,s=7]", "x[n=3,s=8]"});
  const std::vector<Scenario> runs = expand(test::parse(text));
  CHECK(std::get<Prefill>(runs[3].steps[0].body).tokens.value == 2);
  CHECK(std::get<Prefill>(runs[3].steps[1].body).tokens.value == 8);
  CHECK(runs[3].steps[1].mark.line == 5);
  CHECK(runs[3].sweep.empty());
  CHECK(runs[3].text.find("sweep") == std::string::npos);
  // The text of a run is a scenario of its own.
  CHECK(std::get<Prefill>(test::parse(runs[3].text).steps[0].body).tokens.value == 2);
}

TEST_CASE("a block over several lines, words as values, arithmetic") {
  const std::string text = R"(name: x
sweep:
  form: [ring, paged]
  n:
    - 3
    - 5
steps:
  - prefill: {request: a_${n}, tokens: ${(100 - n) * 2 + n}}
cache: {c4_state: ${form}}
)";
  const std::vector<Scenario> runs = expand(test::parse(text));
  REQUIRE(runs.size() == 4);
  CHECK(runs[3].name == "x[form=paged,n=5]");
  CHECK(runs[3].cache.c4_state == C4State::paged);
  CHECK(std::get<Prefill>(runs[3].steps[0].body).request.value == "a_5");
  CHECK(std::get<Prefill>(runs[3].steps[0].body).tokens.value == 195);
}

TEST_CASE("a scenario without a sweep is one run") {
  CHECK(names("name: y\nsteps: [{batch: [{pad: 1}]}]") == std::vector<std::string>{"y"});
}

TEST_CASE("sweeps that make no sense") {
  const auto error = [](const std::string& text) {
    return test::usage_error([&] { expand(test::parse(text)); });
  };
  const std::string steps = "steps: [{prefill: {request: a, tokens: ${n}}}]\n";
  CHECK(error(steps) == "s.yaml:1:40: ${n}: unknown variable 'n'");
  CHECK(error("sweep: {m: 1}\n" + steps) == "s.yaml:2:40: ${n}: unknown variable 'n'");
  CHECK(error("sweep: {n: 1, m: 2}\n" + steps) == "s.yaml: sweep variable 'm' is not used");
  CHECK(error("sweep: {n: 4..1}\n" + steps) ==
        "s.yaml:1:12: '4..1' is not a range FIRST..LAST of at most 4096 integers");
  CHECK(error("sweep: {n: []}\n" + steps) == "s.yaml:1:12: sweep variable 'n' has no values");
  CHECK(error("sweep: {n: 1}\nsweep: {n: 2}\n" + steps) ==
        "s.yaml:2:1: duplicate key 'sweep' (first on line 1)");
  CHECK(error("sweep: {n: 1, n: 2}\n" + steps) == "s.yaml:1:15: duplicate key 'n' (first on line 1)");
  CHECK(error("sweep: {n: 1..100, m: 1..100}\n" + steps) == "s.yaml:1:20: the sweep has more than 4096 runs");
  CHECK(error("sweep: {n: [a b]}\n" + steps) ==
        "s.yaml:1:13: sweep value 'a b' must be an integer, a word or a range");
  CHECK(error("sweep: {n: 1}\nsteps: [{prefill: {request: a, tokens: ${n + }}}]\n") ==
        "s.yaml:2:40: ${n + }: a number or a variable is missing");
  CHECK(error("sweep: {n: 1}\nsteps: [{prefill: {request: a, tokens: ${n\n}}}]\n") ==
        "s.yaml:2:40: '${' without '}'");
  CHECK(error("sweep: {n: x}\nsteps: [{prefill: {request: a, tokens: ${n + 1}}}]\n") ==
        "s.yaml:2:40: ${n + 1}: 'x' is not an integer");
  CHECK(error("sweep: {n: 1099511627776}\nsteps: [{prefill: {request: a, tokens: ${n * n}}}]\n") ==
        "s.yaml:2:40: ${n * n}: a value above 2^40");
  CHECK(error("sweep: {n: [1, 2, 1]}\n" + steps) == "s.yaml:1:12: sweep variable 'n' has the value 1 twice");
  CHECK(error("sweep: {n: [3, 1..4]}\n" + steps) == "s.yaml:1:12: sweep variable 'n' has the value 3 twice");
  CHECK(error("sweep: {n: 1}\nsteps: [{prefill: {request: a, tokens: ${" + std::string(9000, 'x') + "}}}]\n")
            .size() < 300);
  // The second run is the wrong one.
  CHECK(error("sweep: {n: [1, 0]}\n" + steps) == "s.yaml:2:40: tokens must be 1 to 1048576, not 0 [n=0]");
  CHECK(error("{sweep: {n: 1}, steps: [{batch: [{pad: 1}]}]}") ==
        "s.yaml:1:9: sweep must stand at the start of a line, as a block of its own");
}

TEST_CASE("a sweep is not planned as it is") {
  CHECK_THROWS_AS(plan(test::parse("sweep: {n: 1}\nsteps: [{prefill: {request: a, tokens: ${n}}}]")),
                  InternalError);
}

}  // namespace
}  // namespace dsv4::scenario
