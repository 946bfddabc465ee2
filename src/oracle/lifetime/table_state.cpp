#include "oracle/lifetime/table_state.hpp"

#include <algorithm>
#include <array>

namespace dsv4::oracle {
namespace {

template <std::size_t N>
Tensor table_of(std::vector<std::array<std::int32_t, N>> rows) {
  std::ranges::sort(rows);
  Tensor tensor(DType::int32, {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(N)});
  auto out = tensor.as<std::int32_t>().begin();
  for (const auto& row : rows) out = std::ranges::copy(row, out).out;
  return tensor;
}

}  // namespace

TableState table_state(const PageLedger& ledger, const StepPlan& plan, std::span<const HeldTable> held) {
  const auto with_own_pages = [&](std::vector<std::int32_t> table, std::int32_t request, std::size_t pool) {
    for (const HeldTable& own : held) {
      if (own.request != request || static_cast<std::size_t>(own.pool) != pool) continue;
      for (std::size_t i = 0; i < own.pages.size(); ++i) {
        const std::size_t item = static_cast<std::size_t>(own.first) + i;
        if (item < table.size() && table[item] >= 0)
          table[item] = own.pages[i];  // what was given back is gone
      }
    }
    return table;
  };
  std::vector<std::array<std::int32_t, 4>> blocks;
  std::vector<std::array<std::int32_t, 3>> holders;
  std::vector<std::array<std::int32_t, 2>> free;
  std::vector<std::array<std::int32_t, 2>> bases;
  for (const LiveRequest& live : plan.live) {
    bases.push_back({live.request, live.state_base});
    for (std::size_t pool = 0; pool < kPoolCount; ++pool) {
      const std::vector<std::int32_t> table = with_own_pages((*live.tables)[pool], live.request, pool);
      for (std::size_t item = 0; item < table.size(); ++item) {
        if (table[item] < 0) continue;
        blocks.push_back(
            {static_cast<std::int32_t>(pool), live.request, static_cast<std::int32_t>(item), table[item]});
      }
    }
  }
  for (std::size_t pool = 0; pool < kPoolCount; ++pool) {
    const auto number = static_cast<std::int32_t>(pool);
    for (const auto& [page, info] : ledger.pages(static_cast<Pool>(pool))) {
      const auto at = static_cast<std::int32_t>(page);
      if (info.held) {
        holders.push_back({number, at, info.holders});
      } else if (info.until >= 0) {
        free.push_back({number, at});
      }
    }
  }
  return {table_of(std::move(blocks)), table_of(std::move(holders)), table_of(std::move(free)),
          table_of(std::move(bases))};
}

}  // namespace dsv4::oracle
