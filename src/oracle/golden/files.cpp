#include "oracle/golden/files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "io/atomic_file.hpp"
#include "io/atomic_hdf5.hpp"
#include "io/dump_format.hpp"
#include "io/hdf5_file.hpp"
#include "model/digest.hpp"

namespace dsv4::oracle::golden {
namespace {
namespace fs = std::filesystem;

std::string digests_path(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / (name + ".digests")).string();
}
std::string rows_path(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / (name + ".h5")).string();
}

std::vector<std::string> header_lines(const Record& record) {
  return {kSchema, "case " + record.golden_case.name, "profile " + record.config.profile.name,
          fmt::format("seed {}", record.config.seed)};
}

std::vector<std::string> read_lines(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw FileError(path + ": cannot open");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  if (in.bad() || lines.empty() || lines.front() != kSchema)
    throw FileError(path + ": is no golden digest file");
  return lines;
}

std::string rows_text(const std::vector<std::int64_t>& rows) {
  std::string text;
  for (const std::int64_t row : rows) text += (text.empty() ? "" : ",") + std::to_string(row);
  return text;
}

/// The line without its last word, and the last word (the digest; for steps the event is left out).
std::pair<std::string, std::string> split_line(const std::string& line) {
  if (line.starts_with("step ")) {
    std::istringstream words(line);
    std::string step;
    std::string number;
    std::string value;
    words >> step >> number >> value;
    return {step + " " + number, value};
  }
  const std::size_t space = line.rfind(' ');
  return space == std::string::npos ? std::pair{line, std::string()}
                                    : std::pair{line.substr(0, space), line.substr(space + 1)};
}

void compare_lines(const std::vector<std::string>& expected, const std::vector<std::string>& found,
                   const std::string& name, Verification& result) {
  std::map<std::string, std::string> by_key;
  for (const std::string& line : found) by_key.insert(split_line(line));
  for (const std::string& line : expected) {
    const auto [key, value] = split_line(line);
    ++result.compared;
    const auto other = by_key.find(key);
    if (other == by_key.end()) {
      result.mismatches.push_back({name + ", " + key, value, "absent (or another dtype or shape)"});
    } else if (other->second != value) {
      result.mismatches.push_back({name + ", " + key, value, other->second});
    }
    if (other != by_key.end()) by_key.erase(other);
  }
  for (const auto& [key, value] : by_key) result.mismatches.push_back({name + ", " + key, "absent", value});
}

void compare_rows(const std::string& path, const Record& record, Verification& result) {
  const io::Hdf5File file = io::Hdf5File::open(path);
  if (file.text("/", "schema") != kSchema) throw FileError(path + ": is no golden file");
  for (const KeptTensor& kept : record.kept) {
    const std::string object = "/steps/" + kept.path();
    ++result.compared;
    if (!file.exists(object)) {
      result.mismatches.push_back({record.golden_case.name + ", " + object, "absent", digest(kept.content)});
      continue;
    }
    const Tensor stored = file.read(object, kept.content.dtype());
    if (stored.shape() == kept.content.shape() && std::ranges::equal(stored.bytes(), kept.content.bytes()))
      continue;
    result.mismatches.push_back(
        {record.golden_case.name + ", " + object, digest(stored), digest(kept.content)});
  }
}

std::int64_t size_or_absent(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? -1 : static_cast<std::int64_t>(size);
}

}  // namespace

void write_rows(const std::string& path, const Record& record) {
  io::write_hdf5(path, [&](io::Hdf5Group& root) {
    root.set("schema", std::string(kSchema));
    root.set("case", record.golden_case.name);
    root.set("profile", record.config.profile.name);
    root.set("seed", record.config.seed);
    if (!record.kernel_models.empty()) root.set("kernel_models", record.kernel_models);
    root.set("layer", std::string(name(record.config.layers.front())));
    const std::string& text = record.golden_case.scenario;
    Tensor scenario(DType::uint8, {static_cast<std::int64_t>(text.size())});
    std::memcpy(scenario.bytes().data(), text.data(), text.size());
    root.write("scenario", scenario, {{"dtype", std::string("uint8")}}, {});
    io::Hdf5Group steps = root.create_group("steps");
    std::map<std::string, io::Hdf5Group> groups;
    const auto group = [&](io::Hdf5Group& parent, const std::string& key,
                           const std::string& name) -> io::Hdf5Group& {
      const auto found = groups.find(key);
      if (found != groups.end()) return found->second;
      return groups.emplace(key, parent.create_group(name)).first->second;
    };
    for (const KeptTensor& kept : record.kept) {
      const std::string step = io::step_name(kept.step);
      io::Hdf5Group& stage = group(group(steps, step, step), step + "/" + kept.stage, kept.stage);
      stage.write(kept.tensor, kept.content,
                  {{"dtype", std::string(name(kept.content.dtype()))},
                   {"dims", kept.dims},
                   {"role", kept.role},
                   {"rows", rows_text(kept.rows)},
                   {"digest", digest(kept.content)}},
                  {});
    }
  });
}

std::int64_t write_files(const std::string& folder, const Record& record) {
  const std::string path = digests_path(folder, record.golden_case.name);
  {
    io::AtomicFile out(path);
    for (const std::string& line : header_lines(record)) out.write(line + "\n");
    for (const std::string& line : record.lines) out.write(line + "\n");
    out.finish();
  }
  std::int64_t bytes = size_or_absent(path);
  if (record.golden_case.keeps_rows) {
    const std::string rows = rows_path(folder, record.golden_case.name);
    write_rows(rows, record);
    bytes += size_or_absent(rows);
  }
  return bytes;
}

void check_files(io::OutputPaths& paths, const std::string& folder, const Case& golden_case) {
  paths.writes(digests_path(folder, golden_case.name), io::OutputKind::text);
  if (golden_case.keeps_rows) paths.writes(rows_path(folder, golden_case.name), io::OutputKind::hdf5);
}

Verification verify_files(const std::string& folder, const Record& record) {
  Verification result;
  std::vector<std::string> found = header_lines(record);
  found.insert(found.end(), record.lines.begin(), record.lines.end());
  compare_lines(read_lines(digests_path(folder, record.golden_case.name)), found, record.golden_case.name,
                result);
  if (record.golden_case.keeps_rows) compare_rows(rows_path(folder, record.golden_case.name), record, result);
  return result;
}

FileSummary summary(const std::string& folder, const Case& golden_case) {
  FileSummary about;
  about.name = golden_case.name;
  const std::string path = digests_path(folder, golden_case.name);
  about.digest_bytes = size_or_absent(path);
  about.row_bytes = golden_case.keeps_rows ? size_or_absent(rows_path(folder, golden_case.name)) : 0;
  if (about.digest_bytes < 0) return about;
  for (const std::string& line : read_lines(path)) {
    if (line.starts_with("step ")) ++about.steps;
    if (!line.empty() && line[0] >= '0' && line[0] <= '9') ++about.tensors;
  }
  return about;
}

}  // namespace dsv4::oracle::golden
