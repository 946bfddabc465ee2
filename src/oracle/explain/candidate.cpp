#include "oracle/explain/candidate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "oracle/faults/catalogue.hpp"

namespace dsv4::oracle::explain {
namespace {

using faults::FaultInfo;
using faults::ParameterInfo;

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('|'), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::vector<std::string> values_of(const ParameterInfo& parameter, const std::vector<std::int64_t>& steps) {
  if (!parameter.choices.empty()) return split(parameter.choices);
  std::vector<std::string> values;
  if (parameter.tried == faults::kTriedSteps) {
    for (const std::int64_t step : steps) values.push_back(std::to_string(step));
  } else {
    values = split(parameter.tried);
  }
  if (values.empty()) values.emplace_back(parameter.standard);
  return values;
}

/// Every set of parameters of a fault, as "key=value,..."; parameters at their standard values are left out.
std::vector<std::string> parameter_sets(const FaultInfo& fault, const std::vector<std::int64_t>& steps) {
  std::vector<std::string> sets{""};
  for (const ParameterInfo& parameter : fault.parameters) {
    std::vector<std::string> longer;
    for (const std::string& set : sets) {
      for (const std::string& value : values_of(parameter, steps)) {
        if (value == parameter.standard)
          longer.push_back(set);
        else
          longer.push_back(fmt::format("{}{}{}={}", set, set.empty() ? "" : ",", parameter.name, value));
      }
    }
    sets = std::move(longer);
  }
  return sets;
}

/// The stage that a set of parameters changes first, as far as names tell.
std::string reported_of(const FaultInfo& fault, std::string_view parameters) {
  std::string stage(fault.reported);
  if (parameters.find("compressor=indexer") != std::string_view::npos && stage.starts_with("compress."))
    return fmt::format("indexer.{}", stage.substr(9));
  if (parameters.find("rows=entries") != std::string_view::npos && stage == "kv.window")
    return "compress.finish";
  if (parameters.find("rows=index") != std::string_view::npos && stage == "kv.window")
    return "indexer.finish";
  const std::size_t consumer = parameters.find("consumer=");
  if (consumer != std::string_view::npos) return std::string(parameters.substr(consumer + 9));
  return stage;
}

bool concerns(const std::string& reported, const std::vector<LayerKind>& layers) {
  const auto any = [&](bool (*has)(LayerKind)) { return std::ranges::any_of(layers, has); };
  if (reported.starts_with("indexer.")) return any([](LayerKind kind) { return has_indexer(kind); });
  if (reported.starts_with("compress.")) return any([](LayerKind kind) { return has_compressor(kind); });
  return true;
}

std::string without_full_stop(std::string_view sentence) {
  while (sentence.ends_with('.')) sentence.remove_suffix(1);
  return std::string(sentence);
}

bool same_axes(const Profile& a, const Profile& b) {
  return a.exact == b.exact && std::ranges::all_of(axes(), [&](const AxisInfo& axis) {
           return a.value(axis.axis) == b.value(axis.axis);
         });
}

}  // namespace

std::string_view name(Candidate::Kind kind) {
  constexpr std::array<std::string_view, 6> kNames{"fault",   "variation",     "axis",
                                                   "profile", "kernel models", "axes"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::vector<Candidate> fault_candidates(const Profile& profile, const std::vector<LayerKind>& layers,
                                        const std::vector<std::int64_t>& steps) {
  std::vector<Candidate> candidates;
  for (const FaultInfo& fault : faults::catalogue()) {
    for (const std::string& parameters : parameter_sets(fault, steps)) {
      Candidate one;
      one.kind = fault.verdict.empty() ? Candidate::Kind::fault : Candidate::Kind::variation;
      one.family = fault.name;
      one.name = parameters.empty() ? one.family : fmt::format("{}:{}", one.family, parameters);
      one.meaning = without_full_stop(fault.field);
      one.reported = reported_of(fault, parameters);
      one.profile = profile;
      if (!concerns(one.reported, layers)) continue;
      one.change = [text = one.name](std::unique_ptr<Engine> engine,
                                     std::shared_ptr<const WeightSource> weights) {
        return faults::inject(std::move(engine), std::move(weights), faults::parse_injection(text));
      };
      candidates.push_back(std::move(one));
    }
  }
  return candidates;
}

Candidate in_layer(const Candidate& fault, int layer) {
  Candidate one = fault;
  one.name = fmt::format("{} in layer {} alone", fault.name, layer);
  one.change = [inject = fault.change, layer](std::unique_ptr<Engine> engine,
                                              std::shared_ptr<const WeightSource> weights) {
    Engine* const inside = engine.get();
    std::unique_ptr<Engine> faulty = inject(std::move(engine), std::move(weights));
    for (StageFunction& entry : faulty->stages()) {
      entry = [wrong = entry, inside, layer](const StageCall& call) {
        if (call.layer == layer)
          wrong(call);
        else
          inside->run_stage(call.plan, call.layer, call.stage);
      };
    }
    return faulty;
  };
  return one;
}

std::vector<Candidate> axis_candidates(const Profile& profile) {
  std::vector<Candidate> candidates;
  for (const AxisInfo& axis : axes()) {
    for (const std::string_view value : axis.values) {
      if (value == profile.value(axis.axis)) continue;
      Candidate one;
      one.kind = Candidate::Kind::axis;
      one.name = one.family = fmt::format("{}={}", axis.name, value);
      one.meaning = fmt::format("axis {} is {}, where the reference has {}", axis.name, value,
                                profile.value(axis.axis));
      one.profile = profile;
      one.profile.set(axis.name, value);
      candidates.push_back(std::move(one));
    }
  }
  return candidates;
}

std::vector<Candidate> profile_candidates(const Profile& profile) {
  std::vector<Candidate> candidates;
  for (const std::string_view named : profile_names()) {
    Candidate one;
    one.kind = Candidate::Kind::profile;
    one.name = one.family = named;
    one.meaning = fmt::format("the numerics are those of profile {}", named);
    one.profile = profile_named(named);
    if (one.profile.exact || same_axes(one.profile, profile)) continue;
    candidates.push_back(std::move(one));
  }
  return candidates;
}

}  // namespace dsv4::oracle::explain
