#include "oracle/selection.hpp"

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

}  // namespace dsv4::oracle
