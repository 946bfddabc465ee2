#include "oracle/lifetime/token_contents.hpp"

#include <algorithm>

namespace dsv4::oracle {
namespace {

/// Tokens of a fill have no inputs; any number tells them apart.
std::uint64_t filled(std::int32_t request, std::int32_t position) {
  return (static_cast<std::uint64_t>(request) + 1) << 32 | (static_cast<std::uint64_t>(position) + 1);
}

}  // namespace

void TokenContents::begin(const StepPlan& plan) {
  for (const PrefixHit& hit : plan.prefix) {
    std::vector<std::uint64_t> tokens = tokens_[hit.source];
    tokens.resize(static_cast<std::size_t>(hit.tokens), 0);
    tokens_[hit.request] = std::move(tokens);
  }
  if (plan.fill) {
    std::vector<std::uint64_t>& tokens = tokens_[plan.fill->request];
    tokens.clear();
    for (std::int32_t p = 0; p < plan.fill->tokens; ++p) tokens.push_back(filled(plan.fill->request, p));
  }
  for (const RequestStep& step : plan.requests) {
    std::vector<std::uint64_t>& tokens = tokens_[step.request];
    if (tokens.size() < static_cast<std::size_t>(step.end))
      tokens.resize(static_cast<std::size_t>(step.end), 0);
    for (std::int32_t i = 0; i < step.row_count; ++i) {
      tokens[static_cast<std::size_t>(step.begin + i)] =
          plan.rows.at(static_cast<std::size_t>(step.first_row + i)).content;
    }
  }
}

void TokenContents::end(const StepPlan& plan) {
  for (const LiveRequest& live : plan.live) {
    std::vector<std::uint64_t>& tokens = tokens_[live.request];
    tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(live.length)));
  }
}

std::uint64_t TokenContents::of(std::int32_t request, std::int64_t position) const {
  const auto found = tokens_.find(request);
  if (found == tokens_.end() || position < 0 || position >= std::ssize(found->second)) return 0;
  return found->second[static_cast<std::size_t>(position)];
}

}  // namespace dsv4::oracle
