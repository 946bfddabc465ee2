/// What `explain` prints: one sentence, then the evidence; or JSON Lines.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "model/engine.hpp"
#include "oracle/explain/explain.hpp"

namespace dsv4::cli {

struct ExplainFacts {
  std::string scenario;
  std::string subject;  ///< the foreign run
  std::string profile;  ///< of the reference
  double seconds = 0;
  std::size_t shown = 8;
  bool json = false;
};
void print_explanation(const oracle::explain::Explanation& explanation, const ExplainFacts& facts);

/// Runs with kernel models: of every profile that has some, and where the reference's profile has, each model
/// alone.
std::vector<oracle::explain::Candidate> kernel_model_candidates(const Profile& profile);
/// An engine under test with the kernel models of its profile.
std::unique_ptr<Engine> explained_with_kernels(std::unique_ptr<Engine> engine,
                                               std::shared_ptr<const WeightSource> weights);

}  // namespace dsv4::cli
