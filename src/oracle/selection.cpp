#include "oracle/selection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace dsv4::oracle {
namespace {

std::vector<std::string> split_commas(std::span<const std::string> lists) {
  std::vector<std::string> items;
  for (const std::string& list : lists) {
    std::size_t begin = 0;
    while (begin <= list.size()) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      if (end > begin) items.push_back(list.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return items;
}

std::int64_t parse_step(std::string_view text, std::string_view whole) {
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw UsageError("steps '" + std::string(whole) +
                     "': expected FIRST:END (half-open, from 0), FIRST:, :END or one step");
  }
  return value;
}

void select_steps(Selection& selection, std::string_view steps) {
  if (steps.empty()) return;
  const std::size_t colon = steps.find(':');
  if (colon == std::string_view::npos) {
    selection.first_step = parse_step(steps, steps);
    selection.end_step = selection.first_step + 1;
    return;
  }
  if (colon > 0) selection.first_step = parse_step(steps.substr(0, colon), steps);
  if (colon + 1 < steps.size()) selection.end_step = parse_step(steps.substr(colon + 1), steps);
  if (selection.first_step >= selection.end_step) {
    throw UsageError("steps '" + std::string(steps) + "': the range is empty");
  }
}

TensorSet stage_set(std::span<const std::string> globs) {
  TensorSet set;
  for (const std::string& glob : globs) {
    bool matched = false;
    for (const TensorInfo& tensor : tensor_catalogue()) {
      if (!glob_match(glob, name(tensor.stage))) continue;
      set.set(static_cast<std::size_t>(tensor.id));
      matched = true;
    }
    if (!matched) {
      std::string known;
      for (std::size_t stage = 0; stage < kStageCount; ++stage) {
        known += (known.empty() ? "" : ", ") + std::string(name(static_cast<Stage>(stage)));
      }
      throw UsageError("no stage matches '" + glob + "' (stages: " + known + ")");
    }
  }
  return set;
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::optional<std::size_t> star;  // position behind the last star, to come back to
  std::size_t star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = ++p;
      star_text = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star) {
      p = *star;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Selection parse_selection(std::span<const std::string> stages, std::span<const std::string> tensors,
                          std::string_view steps) {
  Selection selection;
  select_steps(selection, steps);
  const std::vector<std::string> stage_globs = split_commas(stages);
  if (!stage_globs.empty()) selection.tensors = stage_set(stage_globs);

  TensorSet named;
  bool any_named = false;
  for (const std::string& glob : split_commas(tensors)) {
    if (glob == "state") {
      selection.snapshots = true;
      continue;
    }
    any_named = true;
    bool matched = false;
    for (const TensorInfo& tensor : tensor_catalogue()) {
      if (!glob_match(glob, tensor.name) && !glob_match(glob, path(tensor.id))) continue;
      named.set(static_cast<std::size_t>(tensor.id));
      matched = true;
    }
    if (!matched) {
      throw UsageError("no tensor matches '" + glob + "' (run `dsv4-oracle list tensors` for their names)");
    }
  }
  if (any_named) {
    selection.tensors &= named;
    if (selection.tensors.none()) throw UsageError("the given stages and tensors have no tensor in common");
  }
  return selection;
}

void require_match(const Selection& selection, const std::vector<LayerKind>& layers, std::int64_t first,
                   std::int64_t end) {
  if (std::max(first, selection.first_step) >= std::min(end, selection.end_step)) {
    throw UsageError(fmt::format("--steps chooses none of the steps of this run, {}:{}", first, end));
  }
  std::string kinds;
  for (const LayerKind kind : layers) {
    for (const Stage stage : execution_order(kind, false)) {
      for (const TensorInfo& tensor : tensor_catalogue()) {
        if (tensor.stage == stage && selection.has_tensor(tensor.id)) return;
      }
    }
    kinds += (kinds.empty() ? "" : ", ") + std::string(name(kind));
  }
  throw UsageError("--stages and --tensors choose nothing that the layers of this run (" + kinds +
                   ") compute");
}

io::DumpSelection stated(const Selection& selection, std::int64_t first, std::int64_t steps) {
  io::DumpSelection stated{"all", "all"};
  const std::int64_t begin = std::max(first, selection.first_step);
  const std::int64_t end = std::min(steps, selection.end_step);
  if (begin > 0 || end < steps) stated.steps = fmt::format("{}:{}", begin, end);
  if (selection.tensors.all()) return stated;
  stated.tensors.clear();
  for (const TensorInfo& tensor : tensor_catalogue()) {
    if (!selection.has_tensor(tensor.id)) continue;
    stated.tensors += (stated.tensors.empty() ? "" : ",") + path(tensor.id);
  }
  return stated;
}

std::optional<Selection> stated_selection(const io::DumpReader& dump) {
  if (!dump.selection()) return std::nullopt;
  const auto& [steps, tensors] = *dump.selection();
  try {
    const std::vector<std::string> chosen{tensors == "all" ? "" : tensors};
    return parse_selection({}, chosen, steps == "all" ? "" : steps);
  } catch (const UsageError& error) {
    throw FileError(dump.path() + ": /config states an impossible selection: " + error.what());
  }
}

bool same_kind(const SourceInfo& a, const SourceInfo& b) {
  return a.bit_exact == b.bit_exact && a.config.cache.c128_state == b.config.cache.c128_state &&
         std::ranges::all_of(axes(), [&](const AxisInfo& axis) {
           return a.config.profile.value(axis.axis) == b.config.profile.value(axis.axis);
         });
}

}  // namespace dsv4::oracle
