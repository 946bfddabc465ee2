#include "report/wording.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

namespace dsv4::report {
namespace {

void append(std::string& text, const std::string& part) {
  if (!text.empty()) text += ", ";
  text += part;
}

}  // namespace

std::string number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    return fmt::format("{}{:.0f}", value == 0 && std::signbit(value) ? "-" : "",
                       std::abs(value) == 0 ? 0 : value);
  }
  return fmt::format("{:.9g}", value);
}

std::string figure(double value) {
  if (value == 0) return "0";
  if (!std::isfinite(value)) return number(value);
  return fmt::format("{:.2e}", value);
}

std::string describe(const compare::Meaning& meaning) {
  std::string text;
  if (meaning.padding && meaning.request.empty() && !meaning.page && !meaning.slot && !meaning.head) {
    append(text, "padding row");
  }
  if (!meaning.request.empty()) append(text, "request " + meaning.request);
  if (meaning.position) {
    append(text, fmt::format("position {}", *meaning.position));
    if (meaning.position_mod_4 && meaning.position_mod_128 && meaning.position_mod_page) {
      text += fmt::format(" (mod 4 = {}, mod 128 = {}, mod page = {})", *meaning.position_mod_4,
                          *meaning.position_mod_128, *meaning.position_mod_page);
    }
  }
  if (meaning.entry) {
    append(text, fmt::format("entry {}", *meaning.entry));
    if (meaning.entry_first)
      text += fmt::format(" (positions {} to {})", *meaning.entry_first, *meaning.entry_last);
  }
  const auto add = [&text](std::string_view what, const std::optional<std::int64_t>& index) {
    if (index) append(text, fmt::format("{} {}", what, *index));
  };
  add("head", meaning.head);
  if (!meaning.part.empty()) append(text, meaning.part);
  add("dim", meaning.dim);
  add("block", meaning.block);
  add("rank", meaning.rank);
  add("slot", meaning.slot);
  add("page", meaning.page);
  add("offset", meaning.offset);
  return text.empty() ? "-" : text;
}

std::string describe(const compare::ElementValue& value) {
  std::string text = fmt::format("{:<15} {}", number(value.value), value.hex);
  if (value.decoded) text += "   decoded " + number(*value.decoded);
  if (value.score) text += "   score " + number(*value.score);
  return text;
}

std::string describe_coordinate(const std::vector<std::int64_t>& coordinate) {
  return fmt::format("[{}]", fmt::join(coordinate, ", "));
}

std::string describe_inputs(const compare::Comparison& comparison) {
  std::string named = fmt::format("{}", fmt::join(comparison.inputs_compared, ", "));
  if (!named.empty()) named = " (" + named + ")";
  switch (comparison.inputs) {
    case compare::Inputs::identical:
      return "IDENTICAL" + named + "  ->  introduced here, not inherited";
    case compare::Inputs::within_rule:
      return "differ within their rules" + named + "  ->  grew beyond its rule here";
    case compare::Inputs::different:
      return "DIFFERENT" + named + "  ->  inherited; marked inputs (*) diverged before";
    case compare::Inputs::unknown:
      return "not all compared" + named + "  ->  introduced or inherited, the inputs do not tell";
  }
  return named;
}

std::string hint(const compare::Totals& totals) {
  if (!totals.first_divergence) return {};
  const compare::Comparison& first = *totals.first_divergence;
  if (first.inputs == compare::Inputs::identical || !first.id) return {};
  return fmt::format(
      "{}/{}, the first that failed, had {} on the two sides, so its difference may be inherited; "
      "'replay --against ENGINE --feed reference' gives every stage the same inputs and leaves what is "
      "introduced",
      first.stage, first.tensor,
      first.inputs == compare::Inputs::unknown ? "inputs that were not all compared" : "other inputs");
}

}  // namespace dsv4::report
