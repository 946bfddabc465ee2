#include "oracle/recorded/record_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "io/atomic_file.hpp"
#include "model/error.hpp"

namespace dsv4::oracle::recorded {
namespace {

bool is_digest(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// Cuts the last word off; the rest keeps its spaces.
std::string take_last_word(std::string& text) {
  const std::size_t space = text.rfind(' ');
  if (space == std::string::npos) return "";
  std::string word = text.substr(space + 1);
  text.resize(space);
  return word;
}

void read_run(RecordFile& record, std::string rest, const std::string& where) {
  RunRecord run;
  run.plan = take_last_word(rest);
  run.profile = take_last_word(rest);
  run.name = rest;
  if (!is_digest(run.plan) || run.profile.empty() || run.name.empty())
    throw FileError(where + ": a run needs name, profile and the digest of its plan");
  if (record.find(run.name, run.profile) != nullptr)
    throw FileError(where + ": run " + run.name + " " + run.profile + " stands there twice");
  record.runs.push_back(std::move(run));
}

void read_step(RecordFile& record, std::string rest, const std::string& where) {
  const std::string digest = take_last_word(rest);
  if (!is_digest(digest) || record.runs.empty() || rest != std::to_string(record.runs.back().steps.size()))
    throw FileError(where + ": expected the next step of a run and its digest");
  record.runs.back().steps.push_back({digest, {}});
}

void read_line(RecordFile& record, const std::string& line, const std::string& where) {
  const auto rest_of = [&](const char* word) { return line.substr(std::string(word).size()); };
  if (line.starts_with("about ")) {
    const std::string rest = rest_of("about ");
    const std::size_t space = rest.find(' ');
    if (space == std::string::npos) throw FileError(where + ": about needs a key and a value");
    record.about.emplace_back(rest.substr(0, space), rest.substr(space + 1));
  } else if (line.starts_with("run ")) {
    read_run(record, rest_of("run "), where);
  } else if (line.starts_with("step ")) {
    read_step(record, rest_of("step "), where);
  } else {
    const std::size_t space = line.rfind(' ');
    const bool in_step = !record.runs.empty() && !record.runs.back().steps.empty();
    if (!in_step || space == std::string::npos || line.find(' ') == space ||
        !is_digest(line.substr(space + 1)))
      throw FileError(where + ": is no line of a record");
    record.runs.back().steps.back().lines.push_back(line);
  }
}

}  // namespace

const RunRecord* RecordFile::find(const std::string& name, const std::string& profile) const {
  const auto found = std::ranges::find_if(
      runs, [&](const RunRecord& run) { return run.name == name && run.profile == profile; });
  return found == runs.end() ? nullptr : &*found;
}

std::string RecordFile::said(const std::string& key) const {
  const auto found = std::ranges::find_if(about, [&](const auto& line) { return line.first == key; });
  return found == about.end() ? "" : found->second;
}

std::string record_path(const std::string& folder, const std::string& scenario_file) {
  return (std::filesystem::path(folder) / std::filesystem::path(scenario_file).stem()).string() + kExtension;
}

RecordFile read_record(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw FileError(path + ": cannot be read");
  RecordFile record;
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    const std::string where = fmt::format("{}:{}", path, ++number);
    if (number == 1) {
      if (line != kSchema) throw FileError(where + ": expected '" + kSchema + "'");
    } else {
      read_line(record, line, where);
    }
  }
  if (in.bad()) throw FileError(path + ": cannot be read");
  if (record.runs.empty()) throw FileError(path + ": holds no run");
  return record;
}

std::int64_t write_record(const std::string& path, const RecordFile& record, bool lines) {
  std::string text = std::string(kSchema) + "\n";
  for (const auto& [key, value] : record.about) text += fmt::format("about {} {}\n", key, value);
  for (const RunRecord& run : record.runs) {
    text += fmt::format("run {} {} {}\n", run.name, run.profile, run.plan);
    for (std::size_t step = 0; step < run.steps.size(); ++step) {
      text += fmt::format("step {} {}\n", step, run.steps[step].digest);
      if (!lines) continue;
      for (const std::string& line : run.steps[step].lines) text += line + "\n";
    }
  }
  io::AtomicFile file(path);
  file.write(text);
  file.finish();
  return static_cast<std::int64_t>(text.size());
}

}  // namespace dsv4::oracle::recorded
