/// How results are said: text for people, JSON Lines (schema "dsv4-report/1", data/schema/report.schema.json)
/// for programs. Both say the same things.
#pragma once

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "compare/comparator.hpp"
#include "compare/statistics.hpp"

namespace dsv4::report {

/// What a report says before its first record.
struct Header {
  std::string command;   ///< "replay", "diff" ...
  std::string scenario;  ///< file name, or empty
  const SourceInfo* reference = nullptr;
  const SourceInfo* subject = nullptr;  ///< null: nothing is compared
  const compare::Rules* rules = nullptr;
};

/// What a report says at its end.
struct Ending {
  compare::Totals totals;
  std::int64_t steps_not_compared = 0;  ///< left out after the first divergence
  int exit_code = 0;
};

/// Per-step facts beside the comparison.
struct StepFacts {
  std::int64_t step = 0;
  std::string event;
  std::int64_t tokens = 0;
  std::int64_t nonfinite_tensors = 0;  ///< tensors of either side with an inf or NaN
};

/// Seconds of one part of a run.
struct PartTime {
  std::string part;  ///< "subject.stages", "comparing"
  double seconds = 0;
  std::string meaning;
};

class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void config(const Header& header) = 0;
  /// One line a step; the text form is quiet about steps without a difference unless `verbose`.
  virtual void step(const StepFacts& facts, const compare::StepComparison& comparison) = 0;
  /// The block that leads from a difference to its cause; `reproduce` is the command that shows it again.
  virtual void first_divergence(const compare::Comparison& comparison, const std::string& event,
                                const compare::Totals& totals, const std::string& reproduce) = 0;
  virtual void statistics(const std::vector<compare::TensorStatistics>& rows) = 0;
  /// The per-stage error table; `yardstick` names the engine and profile compared with.
  virtual void values(const std::vector<compare::ErrorFigures>& rows, const std::string& yardstick) = 0;
  /// Where the time went.
  virtual void times(const std::vector<PartTime>& parts) = 0;
  virtual void summary(const Ending& ending) = 0;
};

struct TextOptions {
  bool verbose = false;  ///< a line for every tensor that was compared
};

std::unique_ptr<Reporter> text_reporter(std::ostream& out, TextOptions options = {});
std::unique_ptr<Reporter> json_reporter(std::ostream& out);

}  // namespace dsv4::report
