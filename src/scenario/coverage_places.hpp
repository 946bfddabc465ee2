/// Facts about places: residues of lengths, pages and their addresses, forms and orders of memory, hits,
/// graphs. Internal to src/scenario; coverage.cpp holds what concerns groups, selections and restores.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/step_plan.hpp"

namespace dsv4::scenario {

class PlaceObserver {
 public:
  explicit PlaceObserver(const RunConfig& config);
  void step(const StepPlan& step);
  std::set<std::string> take() { return std::move(facts_); }

 private:
  void note(std::string_view fact, bool holds) {
    if (holds) facts_.emplace(fact);
  }
  void forms();
  void rows(const RequestStep& share);
  void edges(std::string_view pool, std::int32_t first, std::int32_t end, int page_size);
  void addresses(const BlockTables& tables);
  void batch(const StepPlan& step);
  void graph(const StepPlan& step, bool replay);
  void verify(const RequestStep& share);
  void hit(const StepPlan& step);
  void poison(const StepPlan& step, const nlohmann::ordered_json& event);
  void lengths(const nlohmann::ordered_json& event);
  std::int32_t length_of(std::string_view name) const;

  const RunConfig& config_;
  bool csa_ = false;
  bool hca_ = false;
  std::vector<LiveRequest> live_;                     ///< after the step before
  std::map<std::int32_t, std::int32_t> last_length_;  ///< by request
  std::set<std::pair<std::int32_t, std::int32_t>>
      in_order_;  ///< requests of which the first came before the second
  std::set<std::pair<Pool, std::int32_t>> poisoned_;
  bool ran_ = false;  ///< a request has been there
  std::set<std::string> facts_;
};

}  // namespace dsv4::scenario
