/// The only place that names concrete engines: a table from name to maker.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/engine.hpp"
#include "scenario/scenario.hpp"

namespace dsv4::cli {

/// What the command line says of engines on a device; others have no use for it.
struct EngineOptions {
  int device = 0;
  bool graphs = false;  ///< decode steps run through captured graphs, too
};

/// Engines of this build. Making one of another name throws: SubjectError for a known engine that the build
/// lacks, UsageError otherwise.
EngineFactory engine_factory(const EngineOptions& options = {});
std::vector<std::string> engine_names();

/// Throws as the factory would.
void check_engine_name(const std::string& name);
/// Throws UsageError if options are given that none of the named engines has a use for.
void check_engine_options(const EngineOptions& options, const std::vector<std::string>& names);

/// Names of the devices that engines can be told to use, by number.
std::vector<std::string> device_names();

/// Inputs of a run: from the files that the scenario names, else seeded.
std::shared_ptr<const WeightSource> weights_of(const scenario::Scenario& scenario, const RunConfig& config);
std::shared_ptr<const HiddenSource> hidden_of(const scenario::Scenario& scenario, const RunConfig& config);

}  // namespace dsv4::cli
