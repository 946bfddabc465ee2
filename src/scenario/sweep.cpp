#include "scenario/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <set>

#include "scenario/yaml_reader.hpp"

namespace dsv4::scenario {
namespace {

constexpr std::size_t kMaxRuns = 4096;
constexpr std::size_t kShown = 60;  ///< of an expression in a message

std::optional<std::int64_t> integer_of(std::string_view text) {
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Evaluates what stands between `${` and `}`.
class Expression {
 public:
  Expression(std::string_view text, const std::vector<SweepVariable>& variables,
             const std::vector<std::string>& values, std::set<std::size_t>& used)
      : text_(text), variables_(variables), values_(values), used_(used) {}

  /// The text to put in place; the fault, if any, is in fault().
  std::string evaluate() {
    std::string_view word = text_;
    while (word.starts_with(' ')) word.remove_prefix(1);
    while (word.ends_with(' ')) word.remove_suffix(1);
    if (!word.empty() && std::ranges::all_of(word, [](char c) { return is_letter(c) || is_digit(c); }) &&
        is_letter(word.front())) {
      return variable(word);
    }
    const std::int64_t value = sum();
    skip_spaces();
    if (fault_.empty() && at_ != text_.size()) fault_ = fmt::format("unexpected '{}'", text_.substr(at_));
    return std::to_string(value);
  }
  const std::string& fault() const { return fault_; }

 private:
  static constexpr std::int64_t kLargest = std::int64_t{1} << 40;

  std::string variable(std::string_view name) {
    for (std::size_t i = 0; i < variables_.size(); ++i) {
      if (variables_[i].name != name) continue;
      used_.insert(i);
      return values_[i];
    }
    if (fault_.empty()) fault_ = fmt::format("unknown variable '{}'", name);
    return {};
  }

  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip_spaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::int64_t bounded(std::int64_t value) {
    if (fault_.empty() && (value > kLargest || value < -kLargest)) fault_ = "a value above 2^40";
    return fault_.empty() ? value : 0;
  }

  std::int64_t sum() {
    std::int64_t value = product();
    while (fault_.empty()) {
      if (take('+')) {
        value = bounded(value + product());
      } else if (take('-')) {
        value = bounded(value - product());
      } else {
        break;
      }
    }
    return value;
  }

  std::int64_t product() {
    std::int64_t value = factor();
    while (fault_.empty() && take('*')) {
      const std::int64_t other = factor();
      if (value != 0 && std::abs(other) > kLargest / std::abs(value)) {
        fault_ = "a value above 2^40";
        return 0;
      }
      value *= other;
    }
    return value;
  }

  std::int64_t factor() {
    if (take('(')) {
      if (++depth_ > 32) fault_ = "too many parentheses";
      const std::int64_t value = fault_.empty() ? sum() : 0;
      if (fault_.empty() && !take(')')) fault_ = "missing ')'";
      return value;
    }
    skip_spaces();
    const std::size_t begin = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word.empty()) {
      if (fault_.empty()) fault_ = "a number or a variable is missing";
      return 0;
    }
    const std::string value = is_letter(word.front()) ? variable(word) : std::string(word);
    if (!fault_.empty()) return 0;
    const auto number = integer_of(value);
    if (!number) {
      fault_ = fmt::format("'{}' is not an integer", value);
      return 0;
    }
    return bounded(*number);
  }

  std::string_view text_;
  const std::vector<SweepVariable>& variables_;
  const std::vector<std::string>& values_;
  std::set<std::size_t>& used_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::string fault_;
};

/// Adds a value or the members of a range.
void add_values(const YamlReader& reader, const YamlNode& node, std::vector<std::string>& values) {
  const std::string text = reader.text(node, "a value of a sweep");
  if (const auto dots = text.find(".."); dots != std::string::npos) {
    const auto first = integer_of(std::string_view(text).substr(0, dots));
    const auto last = integer_of(std::string_view(text).substr(dots + 2));
    if (!first || !last || *first > *last || *last - *first >= static_cast<std::int64_t>(kMaxRuns)) {
      reader.fail(node.mark,
                  fmt::format("'{}' is not a range FIRST..LAST of at most {} integers", text, kMaxRuns));
    }
    for (std::int64_t value = *first; value <= *last; ++value) values.push_back(std::to_string(value));
    return;
  }
  const bool fits =
      std::ranges::all_of(text, [](char c) { return is_letter(c) || is_digit(c) || c == '.' || c == '-'; });
  if (!fits)
    reader.fail(node.mark, fmt::format("sweep value '{}' must be an integer, a word or a range", text));
  values.push_back(text);
}

std::vector<SweepVariable> read_variables(const YamlReader& reader, const YamlNode& sweep) {
  reader.expect_map(sweep, "sweep");
  std::vector<SweepVariable> variables;
  std::size_t runs = 1;
  for (const auto& [key, value] : sweep.entries) {
    if (!is_request_name(key.text)) {
      reader.fail(key.mark, fmt::format("sweep variable '{}' is not a name: [a-z][a-z0-9_]*", key.text));
    }
    SweepVariable variable{key.text, {}};
    if (value.kind == YamlNode::Kind::list) {
      for (const YamlNode& item : value.items) add_values(reader, item, variable.values);
    } else {
      add_values(reader, value, variable.values);
    }
    std::set<std::string> distinct;
    for (const std::string& one : variable.values) {
      if (!distinct.insert(one).second) {
        reader.fail(value.mark, fmt::format("sweep variable '{}' has the value {} twice", key.text, one));
      }
    }
    if (variable.values.empty())
      reader.fail(value.mark, fmt::format("sweep variable '{}' has no values", key.text));
    if (runs > kMaxRuns / variable.values.size()) {
      reader.fail(key.mark, fmt::format("the sweep has more than {} runs", kMaxRuns));
    }
    runs *= variable.values.size();
    variables.push_back(std::move(variable));
  }
  if (variables.empty()) reader.fail(sweep.mark, "sweep is empty");
  return variables;
}

/// True for a line that belongs to the block above it: empty, indented or a comment.
bool continues_block(std::string_view line) {
  return line.empty() || line.front() == ' ' || line.front() == '\t' || line.front() == '#' ||
         line.front() == '\r';
}

}  // namespace

SweepText split_sweep(std::string_view text, const std::string& file) {
  SweepText result;
  std::string section;
  int line_number = 0;
  int first_line = 0;
  bool inside = false;
  while (!text.empty()) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, length);
    ++line_number;
    if (line.starts_with("sweep:")) {
      if (first_line != 0) {
        fail_at(file, {line_number, 1}, fmt::format("duplicate key 'sweep' (first on line {})", first_line));
      }
      first_line = line_number;
      inside = true;
      section.assign(static_cast<std::size_t>(line_number - 1), '\n');
    } else if (inside && !continues_block(line)) {
      inside = false;
    }
    (inside ? section : result.text).append(line);
    section += inside ? "\n" : "";
    text.remove_prefix(length);
    if (!text.empty()) {
      result.text += '\n';
      text.remove_prefix(1);
    }
  }
  if (first_line == 0) return result;
  const YamlReader reader(file);
  const YamlNode root = parse_yaml(section, file);
  result.variables = read_variables(reader, *root.find("sweep"));
  return result;
}

std::size_t sweep_runs(const std::vector<SweepVariable>& variables) {
  std::size_t runs = 1;
  for (const SweepVariable& variable : variables) runs *= variable.values.size();
  return runs;
}

std::vector<std::string> sweep_values(const std::vector<SweepVariable>& variables, std::size_t run) {
  std::vector<std::string> values(variables.size());
  for (std::size_t i = variables.size(); i-- > 0;) {
    values[i] = variables[i].values[run % variables[i].values.size()];
    run /= variables[i].values.size();
  }
  return values;
}

std::string substitute(const SweepText& sweep, const std::vector<std::string>& values,
                       const std::string& file) {
  std::string result;
  std::set<std::size_t> used;
  const std::string& text = sweep.text;
  Mark mark{1, 1};
  bool comment = false;
  char before = '\n';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '#' && (before == '\n' || before == ' ' || before == '\t')) comment = true;
    if (!comment && c == '$' && i + 1 < text.size() && text[i + 1] == '{') {
      const std::size_t close = text.find_first_of("}\n", i);
      if (close == std::string::npos || text[close] != '}') fail_at(file, mark, "'${' without '}'");
      const std::string_view inner = std::string_view(text).substr(i + 2, close - i - 2);
      Expression expression(inner, sweep.variables, values, used);
      const std::string value = expression.evaluate();
      if (!expression.fault().empty())
        fail_at(
            file, mark,
            fmt::format("${{{}}}: {}", printable(inner, kShown), printable(expression.fault(), 2 * kShown)));
      result += value;
      mark.column += static_cast<int>(close - i) + 1;
      before = '}';
      i = close;
      continue;
    }
    result += c;
    before = c;
    ++mark.column;
    if (c == '\n') {
      ++mark.line;
      mark.column = 1;
      comment = false;
    }
  }
  for (std::size_t i = 0; i < sweep.variables.size(); ++i) {
    if (!used.contains(i)) {
      throw UsageError(fmt::format("{}: sweep variable '{}' is not used", file, sweep.variables[i].name));
    }
  }
  return result;
}

}  // namespace dsv4::scenario
