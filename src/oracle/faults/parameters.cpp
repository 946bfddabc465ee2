#include "oracle/faults/parameters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "model/error.hpp"

namespace dsv4::oracle::faults {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

void check_value(std::string_view fault, const ParameterInfo& info, const std::string& value) {
  if (!info.choices.empty()) {
    const std::vector<std::string> choices = split(info.choices, '|');
    if (std::ranges::find(choices, value) != choices.end()) return;
    throw UsageError(fmt::format("fault '{}': {} is '{}', but must be one of {}", fault, info.name, value,
                                 joined(choices)));
  }
  const std::optional<std::int64_t> number = number_in(value);
  if (number && *number >= info.least && *number <= info.most) return;
  throw UsageError(fmt::format("fault '{}': {} is '{}', but must be a whole number of at least {}{}", fault,
                               info.name, value, info.least,
                               info.most == INT64_MAX ? "" : fmt::format(" and at most {}", info.most)));
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view word, std::vector<std::string> names) {
  std::ranges::stable_sort(names, {}, [&](const std::string& name) { return edit_distance(word, name); });
  names.resize(std::min<std::size_t>(names.size(), 3));
  return names;
}

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

Parameters::Parameters(std::string_view fault, std::span<const ParameterInfo> known, std::string_view text) {
  for (const ParameterInfo& info : known) values_.emplace(info.name, info.standard);
  std::vector<std::string> given;
  for (const std::string& part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) {
      throw UsageError(fmt::format("fault '{}': '{}' is not key=value", fault, part));
    }
    const std::string key = part.substr(0, equals);
    const std::string value = part.substr(equals + 1);
    const auto info = std::ranges::find(known, key, &ParameterInfo::name);
    if (info == known.end()) {
      std::vector<std::string> names;
      for (const ParameterInfo& one : known) names.emplace_back(one.name);
      throw UsageError(names.empty() ? fmt::format("fault '{}' has no parameters, '{}' was given", fault, key)
                                     : fmt::format("fault '{}' has no parameter '{}'; nearest: {}", fault,
                                                   key, joined(nearest_names(key, names))));
    }
    if (std::ranges::find(given, key) != given.end()) {
      throw UsageError(fmt::format("fault '{}': {} is given twice", fault, key));
    }
    given.push_back(key);
    check_value(fault, *info, value);
    values_[key] = value;
  }
}

const std::string& Parameters::word(std::string_view name) const {
  const auto found = values_.find(name);
  require(found != values_.end(), "a fault asked for a parameter that it does not declare");
  return found->second;
}

std::int64_t Parameters::number(std::string_view name) const {
  const std::optional<std::int64_t> number = number_in(word(name));
  require(number.has_value(), "a fault's number is not a number");
  return *number;
}

}  // namespace dsv4::oracle::faults
