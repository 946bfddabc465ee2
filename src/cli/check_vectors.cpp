#include "cli/check_vectors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "compare/element.hpp"
#include "compare/judge.hpp"
#include "compare/tensor_scan.hpp"
#include "io/vectors.hpp"
#include "model/element.hpp"
#include "model/error.hpp"

namespace dsv4::cli {
namespace {
namespace fs = std::filesystem;

std::string label(const io::VectorGroup& group, std::string_view name) {
  for (const auto& [key, value] : group.labels) {
    if (key == name) return value;
  }
  return "";
}

/// What a field holds if it is an output of its kind of test.
std::optional<DType> output_dtype(const io::VectorGroup& group, const std::string& field) {
  if (group.type == "Convert" && field == "output") return dtype_from_name(label(group, "to"));
  if (group.type == "QuantBlock" && field == "codes") return dtype_from_name(label(group, "to"));
  if (group.type == "QuantBlock" && field == "scale") return DType::float8_e8m0fnu;
  if (group.type == "TopK" && (field == "ascending" || field == "descending" || field == "count"))
    return DType::int32;
  if (group.type == "RingIndex" && field == "slot") return DType::int32;
  return std::nullopt;
}

template <class T>
Tensor hex_tensor(DType dtype, const std::string& text, const std::string& where) {
  std::vector<T> values;
  try {
    values = io::from_hex<T>(text);
  } catch (const FileError& error) {
    throw FileError(where + ": " + error.what());
  }
  Tensor tensor(dtype, {std::ssize(values)});
  if (!values.empty()) std::memcpy(tensor.bytes().data(), values.data(), tensor.bytes().size());
  return tensor;
}

Tensor field_tensor(DType dtype, const std::string& field, const std::string& text,
                    const std::string& where) {
  if (field == "count" || field == "slot") {  // decimal
    Tensor tensor(DType::int32, {1});
    std::int32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      throw FileError(where + ": '" + text + "' is no number");
    tensor.as<std::int32_t>()[0] = value;
    return tensor;
  }
  if (size_bytes(dtype) == 1) return hex_tensor<std::uint8_t>(dtype, text, where);
  if (size_bytes(dtype) == 2) return hex_tensor<std::uint16_t>(dtype, text, where);
  return hex_tensor<std::uint32_t>(dtype, text, where);
}

compare::TensorClass class_of(const io::VectorGroup& group, const std::string& field) {
  if (group.type == "Convert") return compare::TensorClass::activation;
  if (group.type == "QuantBlock")
    return field == "scale" ? compare::TensorClass::scales : compare::TensorClass::codes;
  return compare::TensorClass::index;
}

/// The rule of this class, by a tensor that has it.
const compare::Rule& rule_of(const compare::Rules& rules, compare::TensorClass of) {
  for (const TensorInfo& tensor : tensor_catalogue()) {
    if (compare::tensor_class(tensor.id) == of) return rules.rule(tensor.id);
  }
  throw InternalError("no tensor of this class");
}

/// The value of a field, or null.
const std::string* field_of(const io::VectorCase& test, const std::string& name) {
  const auto found = std::ranges::find(test.fields, name, &std::pair<std::string, std::string>::first);
  return found == test.fields.end() ? nullptr : &found->second;
}

/// One test of two files, for messages: what holds the vectors, and what holds the results.
struct Files {
  const std::string& vectors;
  const std::string& results;
};

void judge(const io::VectorGroup& group, const io::VectorCase& expected, const io::VectorCase& found,
           const Files& files, const compare::Rules& rules, CheckReport& report) {
  const auto place = [&](const std::string& file, const std::string& field) {
    return fmt::format("{}: test {}, {}", file, expected.tc_id, field);
  };
  for (const auto& [field, text] : found.fields) {
    if (field_of(expected, field) == nullptr)
      throw FileError(place(files.results, field) + " is no field of the vectors' test");
  }
  for (const auto& [field, text] : expected.fields) {
    const std::string where = place(files.results, field);
    const std::optional<DType> dtype = output_dtype(group, field);
    const std::string* const given = field_of(found, field);
    if (!dtype) {
      if (given == nullptr || *given != text)
        throw FileError(where + " is an input, and another one than the vectors have");
      continue;
    }
    if (given == nullptr) {
      report.missing(expected.tc_id, group.type, field);
      continue;
    }
    const Tensor reference = field_tensor(*dtype, field, text, place(files.vectors, field));
    const Tensor subject = field_tensor(*dtype, field, *given, where);
    if (reference.shape() != subject.shape())
      throw FileError(fmt::format("{} has {} elements, the vectors have {}", where, subject.elements(),
                                  reference.elements()));
    const compare::Limits limits{rule_of(rules, class_of(group, field)), 0};
    compare::Comparison result;
    result.step = expected.tc_id;
    result.stage = group.type;
    result.tensor = field;
    result.inputs = compare::Inputs::identical;
    result.rule = to_string(limits.rule);
    const bool only_equal = rules.set() == compare::RuleSet::bits;
    compare::scan_pair(
        reference, subject, {}, {only_equal, result.inputs, {"element"}},
        [&] { return compare::plain_judge(reference, subject, limits); }, result);
    result.failed =
        only_equal ? result.verdict != compare::Verdict::equal : result.verdict == compare::Verdict::diverged;
    const std::int64_t at = result.first.empty() ? -1 : result.first.front();
    report.tensor(
        result,
        at < 0 ? -1 : compare::ulp_distance(*dtype, load_bits(reference, at), load_bits(subject, at)));
  }
}

}  // namespace

std::vector<std::string> vector_files_of(const std::string& path) {
  std::vector<std::string> files;
  const auto is_table = [](const fs::path& file) {
    return file.extension() == ".json" && file.filename() != "manifest.json";
  };
  if (!fs::is_directory(path)) {
    if (is_table(path)) files.push_back(path);
    return files;
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (is_table(entry.path())) files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  return files;
}

void check_vector_file(const std::string& vectors, const std::string& results, const compare::Rules& rules,
                       CheckReport& report) {
  const io::VectorFile expected = io::read_vectors(vectors);
  report.begin({fs::path(vectors).stem().string(), vectors, results, "", "", std::string(name(rules.set()))});
  std::map<int, const io::VectorCase*> found;
  io::VectorFile given;
  if (!results.empty()) {
    given = io::read_vectors(results);
    if (given.algorithm != expected.algorithm)
      throw FileError(results + ": is about '" + given.algorithm + "', the vectors are about '" +
                      expected.algorithm + "'");
    for (const io::VectorGroup& group : given.groups) {
      for (const io::VectorCase& test : group.tests) found[test.tc_id] = &test;
    }
  }
  for (const io::VectorGroup& group : expected.groups) {
    for (const io::VectorCase& test : group.tests) {
      const auto at = found.find(test.tc_id);
      if (at == found.end()) {
        report.missing(test.tc_id, group.type, test.comment.empty() ? "test" : test.comment);
        continue;
      }
      judge(group, test, *at->second, {vectors, results}, rules, report);
      found.erase(at);
    }
  }
  if (!found.empty())
    throw FileError(fmt::format("{}: test {} is none of the vectors'", results, found.begin()->first));
}

}  // namespace dsv4::cli
