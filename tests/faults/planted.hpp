/// Foreign runs for `explain` that no fault of the catalogue made: dumps edited by hand, and engines in which
/// a stage's result is replaced by a literal loop.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "io/dump_writer.hpp"
#include "model/seeded.hpp"
#include "oracle/explain/explain.hpp"
#include "oracle/support.hpp"

namespace dsv4::test {

class Planted {
 public:
  Planted(const std::string& layers, const std::string& steps, const std::string& more = "")
      : scenario_(scenario::parse_scenario(
            "model: {preset: tiny, layers: [" + layers + "]}\nseed: 11\n" + more + "steps:\n" + steps,
            "planted.yaml")) {
    bench_.plan = [own = scenario_](const Profile& profile) {
      scenario::Scenario one = own;
      one.profile = profile;
      return scenario::plan(one);
    };
    bench_.profile = scenario_.profile;
    const RunPlan plan = bench_.plan(bench_.profile);
    bench_.engine = reference_factory();
    bench_.weights = seeded_weights(plan.config);
    bench_.hidden = seeded_hidden(plan.config);
    bench_.seconds = 1e9;
  }

  RunPlan plan() const { return bench_.plan(bench_.profile); }
  std::unique_ptr<Engine> engine(const Profile& profile) const {
    return bench_.engine("reference", bench_.plan(profile).config, bench_.weights, bench_.hidden);
  }
  const WeightSource& weights() const { return *bench_.weights; }

  /// What the reference publishes, changed by `edit`, through a file.
  oracle::explain::Explanation dump(const std::function<void(std::vector<StepObservation>&)>& edit,
                                    bool snapshots = false) const {
    const RunPlan own = plan();
    const auto made = engine(bench_.profile);
    oracle::Selection selection;
    selection.snapshots = snapshots;
    oracle::Runner runner(*made, selection);
    oracle::LiveSource source(runner, own, scenario_.text);
    std::vector<StepObservation> steps;
    while (auto step = source.next()) steps.push_back(std::move(*step));
    edit(steps);
    const std::string path =
        (std::filesystem::temp_directory_path() / ("dsv4-planted-" + std::to_string(getpid()) + ".h5"))
            .string();
    {
      io::DumpWriter writer(path, source.info());
      for (const StepObservation& step : steps) writer.write(step);
      writer.finish();
    }
    io::DumpReader reader(path);
    const auto foreign = oracle::explain::foreign_dump(reader);
    oracle::explain::Explanation explanation = oracle::explain::explain(bench_, *foreign);
    std::filesystem::remove(path);
    return explanation;
  }

  /// The reference with `change` behind a stage.
  oracle::explain::Explanation stage(Stage stage, const std::function<void(const StageCall&)>& change) const {
    return wrapped(stage, [change](const StageFunction& inner, const StageCall& call) {
      inner(call);
      change(call);
    });
  }
  oracle::explain::Explanation wrapped(
      Stage stage, const std::function<void(const StageFunction&, const StageCall&)>& around) const {
    auto made = engine(bench_.profile);
    StageFunction& entry = made->stages()[static_cast<std::size_t>(stage)];
    entry = [inner = entry, around](const StageCall& call) { around(inner, call); };
    const auto foreign = oracle::explain::foreign_engine(std::move(made), plan(), false);
    return oracle::explain::explain(bench_, *foreign);
  }
  /// The reference with other numerics.
  oracle::explain::Explanation profile(const Profile& profile) const {
    const auto foreign = oracle::explain::foreign_engine(engine(profile), bench_.plan(profile), false);
    return oracle::explain::explain(bench_, *foreign);
  }

 private:
  scenario::Scenario scenario_;
  oracle::explain::Bench bench_;
};

}  // namespace dsv4::test
