#include <fmt/format.h>

#include "cli/explain_report.hpp"
#include "cli/model_kernels.hpp"

namespace dsv4::cli {
namespace {

using oracle::explain::Candidate;

Candidate all_models(const Profile& profile) {
  Candidate one;
  one.kind = Candidate::Kind::model;
  one.name = one.family = fmt::format("{} with --model-kernels", profile.name);
  one.meaning = fmt::format("stages are computed as the production kernels of profile {} do", profile.name);
  one.profile = profile;
  one.change = [](std::unique_ptr<Engine> engine, std::shared_ptr<const WeightSource> weights) {
    return explained_with_kernels(std::move(engine), std::move(weights));
  };
  return one;
}

Candidate single_model(const Profile& profile, const StageModel& model) {
  Candidate one = all_models(profile);
  one.name = one.family = fmt::format("{} ({})", model.models, name(model.stage));
  one.reported = name(model.stage);
  one.meaning =
      fmt::format("{} is computed as the production kernel {} does", name(model.stage), model.models);
  one.change = [wanted = &model](std::unique_ptr<Engine> engine,
                                 std::shared_ptr<const WeightSource> weights) {
    return with_model_kernels(std::move(engine), std::move(weights),
                              [wanted](const StageModel& other) { return &other == wanted; });
  };
  return one;
}

}  // namespace

std::unique_ptr<Engine> explained_with_kernels(std::unique_ptr<Engine> engine,
                                               std::shared_ptr<const WeightSource> weights) {
  return with_model_kernels(std::move(engine), std::move(weights));
}

std::vector<Candidate> kernel_model_candidates(const Profile& profile) {
  std::vector<Candidate> candidates;
  for (const StageModel& model : stage_models()) {
    if (profile.name.starts_with(model.profiles)) candidates.push_back(single_model(profile, model));
  }
  for (const std::string_view named : profile_names()) {
    for (const StageModel& model : stage_models()) {
      if (!named.starts_with(model.profiles)) continue;
      candidates.push_back(all_models(named == profile.name ? profile : profile_named(named)));
      break;
    }
  }
  return candidates;
}

}  // namespace dsv4::cli
