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
Tensor hex_tensor(DType dtype, const std::string& text) {
  const std::vector<T> values = io::from_hex<T>(text);
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
  if (size_bytes(dtype) == 1) return hex_tensor<std::uint8_t>(dtype, text);
  if (size_bytes(dtype) == 2) return hex_tensor<std::uint16_t>(dtype, text);
  return hex_tensor<std::uint32_t>(dtype, text);
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

void judge(const io::VectorGroup& group, const io::VectorCase& expected, const io::VectorCase& found,
           const std::string& file, const compare::Rules& rules, CheckReport& report) {
  for (const auto& [field, text] : expected.fields) {
    const std::string where = fmt::format("{}: test {}, {}", file, expected.tc_id, field);
    const std::optional<DType> dtype = output_dtype(group, field);
    if (!dtype) {
      if (found.field(field) != text)
        throw FileError(where + " is an input, and another one than the vectors have");
      continue;
    }
    const Tensor reference = field_tensor(*dtype, field, text, where);
    const Tensor subject = field_tensor(*dtype, field, found.field(field), where);
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
      judge(group, test, *at->second, results, rules, report);
      found.erase(at);
    }
  }
  if (!found.empty())
    throw FileError(fmt::format("{}: test {} is none of the vectors'", results, found.begin()->first));
}

}  // namespace dsv4::cli
