#include "oracle/faults/catalogue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace dsv4::oracle::faults {
namespace {

constexpr std::array<std::string_view, 2> kEngines{"reference", "cuda"};

void check_profile(const FaultInfo& fault, const Profile& profile) {
  for (const AxisInfo& axis : axes()) {
    const std::string_view value = profile.value(axis.axis);
    if (value == axis.values.front() || (axis.axis == Axis::index_cache && value == "fp4")) continue;
    throw UsageError(fmt::format("fault '{}' computes in canonical arithmetic, but this run has {} = {}",
                                 fault.name, axis.name, value));
  }
}

std::string engine_list() {
  return joined(std::vector<std::string>(kEngines.begin(), kEngines.end()));
}

std::string parameter_words(const FaultInfo& fault) {
  std::string words;
  for (const ParameterInfo& parameter : fault.parameters) {
    if (parameter.standard == parameter.choices) continue;
    words += (words.empty() ? "" : ", ") +
             fmt::format("`{}={}`{}", parameter.name, parameter.standard,
                         parameter.choices.empty() ? "" : fmt::format(" ({})", parameter.choices));
  }
  std::string escaped;
  for (const char c : words) escaped += c == '|' ? std::string(" or ") : std::string(1, c);
  return escaped;
}

}  // namespace

std::string_view name(Family family) {
  constexpr std::array<std::string_view, 9> kNames{"state",     "pool",  "finish",    "bytes",    "index",
                                                   "selection", "lists", "attention", "lifecycle"};
  return kNames[static_cast<std::size_t>(family)];
}

std::span<const std::string_view> engines() {
  return kEngines;
}

Injection parse_injection(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view fault = text.substr(0, colon);
  const std::string_view rest = text.substr(std::min(colon + 1, text.size()));
  Injection injection;
  injection.text = text;
  if (fault == "bitflip") {
    injection.flip = parse_bit_flip(rest);
    return injection;
  }
  const auto found = std::ranges::find(catalogue(), fault, &FaultInfo::name);
  if (found == catalogue().end()) {
    std::vector<std::string> names{"bitflip"};
    for (const FaultInfo& info : catalogue()) names.emplace_back(info.name);
    throw UsageError(
        fmt::format("unknown fault '{}'; nearest: {}", fault, joined(nearest_names(fault, names))));
  }
  injection.fault = &*found;
  injection.parameters = Parameters(fault, found->parameters, rest);
  return injection;
}

std::unique_ptr<FaultyEngine> inject(std::unique_ptr<Engine> engine,
                                     std::shared_ptr<const WeightSource> weights,
                                     const Injection& injection) {
  const EngineInfo info = engine->info();
  if (std::ranges::find(kEngines, info.name) == kEngines.end()) {
    throw UsageError(fmt::format("fault '{}' cannot be put into engine '{}'; engines: {}", injection.text,
                                 info.name, engine_list()));
  }
  if (injection.fault != nullptr && injection.fault->recomputes)
    check_profile(*injection.fault, engine->config().profile);
  auto subject = std::make_unique<FaultyEngine>(std::move(engine), std::move(weights));
  if (injection.fault == nullptr)
    flip_bit(*subject, injection.flip);
  else
    injection.fault->install(*subject, injection.parameters);
  return subject;
}

std::string markdown() {
  std::string text = R"(# Faults

`dsv4-oracle replay SCENARIO --against reference --inject NAME[:key=value,...]` makes the engine under test wrong in
one way. A fault replaces an entry of the stage table, changes the plan that the engine is given, or acts when an
event is over; no stage knows of it. What it puts in place of a stage's result is right but for the fault.

Engines: )" + engine_list() +
                     R"(. *By effect* marks faults whose mechanism our engines do not have (splits, graphs,
streams, 32-bit addresses): what they would cause is put in instead. A fault that changes nothing in a run ends it
with exit code 2. *Reported first* names the stage; `state` is the comparison of live rows after an event,
`writes` a finding of the write-set check. *Explained as* is what `explain` names on that scenario; where it names two,
their bits are the same there. Scenarios lie in `tests/faults/scenarios`.

| fault | number | what goes wrong | reported first | explained as | smallest scenario | parameters | |
| --- | --- | --- | --- | --- | --- | --- | --- |
)";
  const auto row = [&](const FaultInfo& fault) {
    text += fmt::format("| `{}` | {} | {} | {} | {} | {}{} | {} | {} |\n", fault.name, fault.number, fault.field,
                        fault.verdict.empty() ? std::string(fault.reported)
                                              : fmt::format("`{}` at {}", fault.verdict, fault.reported),
                        fault.alike.empty() ? "itself" : fmt::format("itself or `{}`", fault.alike), fault.scenario, fault.example.empty() ? "" : fmt::format(" with `{}`", fault.example),
                        parameter_words(fault), fault.by_effect ? "by effect" : "");
  };
  for (const FaultInfo& fault : catalogue()) {
    if (fault.verdict.empty()) row(fault);
  }
  text +=
      R"(| `bitflip:TENSOR[:element[:bit]]` | | One bit of a published tensor, by default in its last row; the row of a cache that it carries changes too. | the tensor's stage | one bit flipped | any that publishes it | | |

## Variations that are no faults

They differ in bits, so they fail under `--rules bits`; under `--rules values` they must pass with the verdict named.

| variation | number | what differs | verdict | explained as | smallest scenario | parameters | |
| --- | --- | --- | --- | --- | --- | --- | --- |
)";
  for (const FaultInfo& fault : catalogue()) {
    if (!fault.verdict.empty()) row(fault);
  }
  return text;
}

}  // namespace dsv4::oracle::faults
