/// Content ids of the tokens that requests hold, as plans tell them: a row of a cache belongs to a token, and
/// a token that was rolled back and its successor differ in nothing else.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "model/step_plan.hpp"

namespace dsv4::oracle {

class TokenContents {
 public:
  /// Tokens of the step's rows (rejected ones included), of prefix hits and of fills.
  void begin(const StepPlan& plan);
  /// Forgets what was rolled back: tokens at and above each request's length.
  void end(const StepPlan& plan);
  /// 0: unknown.
  std::uint64_t of(std::int32_t request, std::int64_t position) const;

 private:
  std::map<std::int32_t, std::vector<std::uint64_t>> tokens_;
};

}  // namespace dsv4::oracle
