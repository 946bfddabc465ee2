/// Scenarios that `shrink` and `fuzz` save: what they show, where they come from and how to see it, in
/// comments.
#pragma once

#include <string>

#include "cli/command.hpp"
#include "oracle/fuzz.hpp"

namespace dsv4::cli {

/// The command that shows a divergence again; `options` are those of replay that have to be repeated.
std::string command_of(const std::string& file, const oracle::TrialPair& pair, const std::string& options);

/// The file's text. `origin` says what it was shrunk from.
std::string saved_text(const oracle::ShrunkFailure& failure, const oracle::TrialPair& pair,
                       const std::string& file, const std::string& origin, const std::string& options);

/// "2 steps, 131 tokens"
std::string size_of(const scenario::Scenario& scenario);

/// Seeded inputs or the scenario's files, engines of this build, the fault of `--inject` if there is one, and
/// kernel models if asked for.
oracle::TrialTools trial_tools(const ComputeOptions& compute, const std::string& inject, bool model_kernels);

/// Throws UsageError for a pair that kernel models cannot be part of.
void check_model_kernels(const oracle::TrialPair& pair);

}  // namespace dsv4::cli
