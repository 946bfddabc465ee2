#include "compare/table_comparer.hpp"

#include <fmt/format.h>

#include <map>

#include "model/tables.hpp"

namespace dsv4::compare {
namespace {

using Row = std::vector<std::int32_t>;
using Rows = std::map<Row, Row>;  ///< keys -> values

Rows rows_of(const Tensor& table, int keys) {
  Rows rows;
  const auto values = table.as<std::int32_t>();
  const auto width = static_cast<std::size_t>(table.dim(1));
  for (std::size_t at = 0; at + width <= values.size(); at += width) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(at);
    rows[Row(first, first + keys)] = Row(first + keys, first + static_cast<std::ptrdiff_t>(width));
  }
  return rows;
}

std::string request_name(const RunConfig& config, std::int32_t request) {
  const auto index = static_cast<std::size_t>(request);
  return request >= 0 && index < config.requests.size() ? config.requests[index] : std::to_string(request);
}

/// "pool window, request b, item 2"
std::string key_text(const RunConfig& config, const TableInfo& table, const Row& key) {
  if (&table == &kTables[3]) return "request " + request_name(config, key[0]);
  const std::string pool = "pool " + std::string(name(static_cast<Pool>(key[0])));
  if (table.keys == 3)
    return fmt::format("{}, request {}, item {}", pool, request_name(config, key[1]), key[2]);
  return fmt::format("{}, page {}", pool, key[1]);
}

std::string value_text(const TableInfo& table, const Row* value) {
  if (value == nullptr) return "nothing";
  if (value->empty()) return "is there";
  return std::string(table.columns.substr(table.columns.rfind(',') + 1)) + " " +
         std::to_string(value->front());
}

Meaning meaning_of(const RunConfig& config, const TableInfo& table, const Row& key, const Row& value) {
  Meaning meaning;
  if (table.keys == 3) {
    meaning.request = request_name(config, key[1]);
    meaning.rank = key[2];
    meaning.page = value.front();
  } else if (table.keys == 2) {
    meaning.page = key[1];
  } else {
    meaning.request = request_name(config, key[0]);
  }
  if (table.keys > 1) meaning.part = name(static_cast<Pool>(key[0]));
  return meaning;
}

void compare_table(const LayerComparer::Context& context, const TableInfo& table, StepComparison& out) {
  const RunConfig& config = context.reference_info.config;
  Comparison result;
  result.step = context.reference.step;
  result.stage = "state";
  result.tensor = table.name;
  result.rule = "same entries";
  result.inputs = Inputs::identical;
  const Rows reference = rows_of((*context.reference.tables).*table.rows, table.keys);
  const Rows subject = rows_of((*context.subject.tables).*table.rows, table.keys);
  const auto differs = [&](const Row& key, const Row* a, const Row* b) {
    if (result.mismatches++ > 0) return;
    result.note = fmt::format("{}: {} in the reference, {} in the subject", key_text(config, table, key),
                              value_text(table, a), value_text(table, b));
    result.meaning = meaning_of(config, table, key, b != nullptr ? *b : *a);
  };
  for (const auto& [key, value] : reference) {
    ++result.elements;
    const auto other = subject.find(key);
    if (other == subject.end()) {
      differs(key, &value, nullptr);
    } else if (other->second != value) {
      differs(key, &value, &other->second);
    }
  }
  for (const auto& [key, value] : subject) {
    if (reference.contains(key)) continue;
    ++result.elements;
    differs(key, nullptr, &value);
  }
  result.outside = result.mismatches;
  if (result.mismatches > 0) result.verdict = Verdict::diverged;
  result.failed = result.mismatches > 0;
  out.comparisons.push_back(std::move(result));
}

}  // namespace

void compare_tables(const LayerComparer::Context& context, StepComparison& out) {
  const bool in_reference = context.reference.tables.has_value();
  const bool in_subject = context.subject.tables.has_value();
  if (!in_reference && !in_subject) return;
  if (in_reference && in_subject) {
    for (const TableInfo& table : kTables) compare_table(context, table, out);
    return;
  }
  out.skips.push_back({Skip::Kind::not_produced, context.reference.step, -1, "state",
                       std::string(kTablesGroup),
                       in_reference ? "no tables by the subject" : "no tables by the reference"});
}

}  // namespace dsv4::compare
