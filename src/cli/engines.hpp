/// The only place that names concrete engines: a table from name to maker.
#pragma once

#include <string>
#include <vector>

#include "model/engine.hpp"
#include "scenario/scenario.hpp"

namespace dsv4::cli {

/// Engines of this build. Making one of another name throws: SubjectError for a known engine that the build
/// lacks, UsageError otherwise.
EngineFactory engine_factory();
std::vector<std::string> engine_names();

/// Throws as the factory would.
void check_engine_name(const std::string& name);

/// Inputs of a run: from the files that the scenario names, else seeded.
std::shared_ptr<const WeightSource> weights_of(const scenario::Scenario& scenario, const RunConfig& config);
std::shared_ptr<const HiddenSource> hidden_of(const scenario::Scenario& scenario, const RunConfig& config);

}  // namespace dsv4::cli
