#include "compare/comparator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "compare/judge.hpp"
#include "compare/layer_comparer.hpp"
#include "compare/state_comparer.hpp"
#include "compare/table_comparer.hpp"
#include "model/error.hpp"

namespace dsv4::compare {
namespace {

void require_comparable(const SourceInfo& reference, const SourceInfo& subject) {
  if (reference.config.layers != subject.config.layers) {
    throw UsageError(
        fmt::format("the two runs cannot be compared: other layers ({} against {}, or other kinds)",
                    reference.config.layers.size(), subject.config.layers.size()));
  }
  if (!(reference.config.geometry == subject.config.geometry)) {
    throw UsageError("the two runs cannot be compared: other geometry (dimensions, eps or RoPE parameters)");
  }
}

/// A capture may know no slots: its tables are empty although the batch is not.
bool given(const Tensor& table, const Tensor& request) {
  const auto rows = [](const Tensor& tensor) { return tensor.shape().empty() ? 0 : tensor.dim(0); };
  return !table.shape().empty() && (rows(table) > 0 || rows(request) == 0);
}

}  // namespace

Finding missing(bool reference, std::int64_t step, int layer, const std::string& what) {
  Finding finding;
  finding.step = step;
  finding.layer = layer;
  finding.kind = "missing";
  finding.owner = "nobody";
  finding.message = fmt::format("{} is not in the {}, which is complete and had to hold it", what,
                                reference ? "reference" : "subject");
  return finding;
}

struct Comparator::History {
  CacheStatus caches;
};

Comparator::Comparator(const SourceInfo& reference, const SourceInfo& subject, Rules rules,
                       CompareOptions options)
    : reference_(reference),
      subject_(subject),
      rules_(std::move(rules)),
      options_(std::move(options)),
      history_(std::make_unique<History>()) {
  require_comparable(reference, subject);
}

Comparator::~Comparator() = default;

namespace {

void compare_batch(const SourceInfo& info, const Rules& rules, const Due& due,
                   const StepObservation& reference, const StepObservation& subject, StepComparison& out) {
  struct Table {
    std::string_view name;
    const Tensor& reference;
    const Tensor& subject;
  };
  const Table tables[]{
      {"request", reference.batch.request, subject.batch.request},
      {"position", reference.batch.position, subject.batch.position},
      {"slot", reference.batch.slot, subject.batch.slot},
      {"page", reference.batch.page, subject.batch.page},
      {"prefix", reference.batch.prefix, subject.batch.prefix},
  };
  for (const Table& table : tables) {
    const std::string path = "batch/" + std::string(table.name);
    const bool placed = table.name == "slot" || table.name == "page";
    const bool in_reference = given(table.reference, placed ? reference.batch.request : table.reference);
    const bool in_subject = given(table.subject, placed ? subject.batch.request : table.subject);
    if (!in_reference && !in_subject) continue;
    if (!in_reference || !in_subject) {
      const bool absent_reference = !in_reference;
      if (due && due(absent_reference, reference.step, std::nullopt)) {
        out.findings.push_back(missing(absent_reference, reference.step, -1, path));
        continue;
      }
      out.skips.push_back({Skip::Kind::not_produced, reference.step, -1, "batch", std::string(table.name),
                           in_subject ? "not produced by the reference" : "not produced by the subject"});
      continue;
    }
    Comparison result;
    result.step = reference.step;
    result.stage = "batch";
    result.tensor = table.name;
    result.rule = to_string(rules.rule(path));
    result.inputs = Inputs::identical;
    const Limits limits{rules.rule(path), 0};
    scan_pair(
        table.reference, table.subject, {},
        {rules.only_equal_passes(path), Inputs::identical, {"token", "field"}},
        [&] { return plain_judge(table.reference, table.subject, limits); }, result);
    result.failed = rules.only_equal_passes(path) ? result.verdict != Verdict::equal
                                                  : result.verdict == Verdict::diverged;
    if (!result.first.empty() && table.name != "prefix") {
      result.meaning = MeaningOf(info, reference, -1).batch_row(result.first[0]);
    }
    out.comparisons.push_back(std::move(result));
  }
}

}  // namespace

StepComparison Comparator::compare(const StepObservation& reference, const StepObservation& subject) {
  StepComparison out;
  out.step = reference.step;
  out.event = reference.event;
  compare_batch(reference_, rules_, options_.due, reference, subject, out);
  const LayerComparer::Context context{reference_, subject_, reference,       subject,
                                       rules_,     options_, history_->caches};
  compare_tables(context, out);
  CacheStatus after = history_->caches;
  const std::size_t layers =
      std::min({reference.layers.size(), subject.layers.size(), reference_.config.layers.size()});
  if (reference.layers.size() != subject.layers.size()) {
    out.skips.push_back({Skip::Kind::not_produced, reference.step, static_cast<int>(layers), "layer", "all",
                         fmt::format("the step has {} layers in the reference and {} in the subject",
                                     reference.layers.size(), subject.layers.size())});
  }
  std::vector<LayerComparer> comparers;
  comparers.reserve(layers);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    const LayerComparer* below = comparers.empty() ? nullptr : &comparers.back();
    LayerComparer& comparer = comparers.emplace_back(context, static_cast<int>(layer), below);
    comparer.run(out);
    compare_state(context, static_cast<int>(layer), comparer, after, out);
  }
  history_->caches = std::move(after);
  if (options_.complete) options_.complete(out);
  totals_.add(out);
  return out;
}

void Comparator::add_findings(StepComparison& step, std::vector<Finding> findings) {
  totals_.findings += static_cast<std::int64_t>(findings.size());
  std::ranges::move(findings, std::back_inserter(step.findings));
}

}  // namespace dsv4::compare
