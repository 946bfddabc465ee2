#include "cli/replay_run.hpp"

namespace dsv4::cli {

void ReplayRun::report_times() {
  std::vector<report::PartTime> parts;
  const auto add = [&](const std::string& side, const oracle::EngineTimes& times) {
    parts.push_back({side + ".stages", times.stages, "the stage table; a device only starts its work there"});
    parts.push_back({side + ".tensors", times.tensors, "tensors and writes: waiting for a device, copies"});
    parts.push_back({side + ".states", times.states, "live rows and their digests, snapshots"});
    parts.push_back({side + ".checks", times.checks, "write sets, lifetimes"});
  };
  if (reference_) add("reference", reference_->runner->times());
  add("subject", subject_->runner->times());
  if (comparator_) parts.push_back({"comparing", comparing_, ""});
  parts.push_back({"whole", whole_, "from the first step to the last, with all else"});
  reporter_.times(parts);
}

}  // namespace dsv4::cli
