#include "oracle/faults/selection.hpp"

#include <algorithm>

#include "arith/bits.hpp"
#include "oracle/faults/compressor_form.hpp"

namespace dsv4::oracle::faults {
namespace {

using enum TensorId;

/// A token's scores and its row of the selection.
struct TokenRow {
  std::span<const float> scores;  ///< visible ones
  std::span<std::int32_t> chosen;
  std::int32_t& count;
};

/// Gives every token to `visit`, then publishes what it made of the rows.
template <class Visit>
void for_each_selection(FaultyEngine& subject, const StageCall& call, const Visit& visit) {
  const Tensor& values = subject.input(call.layer, scores);
  const auto seen = subject.input(call.layer, visible).as<std::int32_t>();
  Tensor chosen = subject.input(call.layer, selected);
  Tensor counts = subject.input(call.layer, selected_count);
  for (std::size_t token = 0; token < seen.size(); ++token) {
    if (call.plan.rows[token].request < 0) continue;
    const auto at = static_cast<std::int64_t>(token);
    TokenRow row{tensor_row<float>(values, at).first(static_cast<std::size_t>(seen[token])),
                 tensor_row<std::int32_t>(chosen, at), counts.as<std::int32_t>()[token]};
    visit(row);
  }
  subject.change(call.layer, selected, std::move(chosen));
  subject.change(call.layer, selected_count, std::move(counts));
}

/// Numbers in the order of docs/numerics.md 2 as integers, greater is better; NaN is the least.
std::uint32_t order_key(float score) {
  const std::uint32_t bits = arith::to_bits(score == 0.0F ? 0.0F : score);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return 0;
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

void write_ascending(TokenRow& row, std::vector<std::int32_t> chosen) {
  std::ranges::sort(chosen);
  row.count = static_cast<std::int32_t>(chosen.size());
  std::ranges::fill(row.chosen, -1);
  std::ranges::copy(chosen, row.chosen.begin());
}

/// Buckets of the first radix pass: sign and exponent.
void select_by_buckets(TokenRow& row, std::size_t capacity) {
  constexpr int kShift = 23;
  const std::size_t wanted = row.chosen.size();
  if (row.scores.size() <= wanted) return;
  std::vector<std::uint32_t> keys;
  for (const float score : row.scores) keys.push_back(order_key(score));
  std::vector<std::uint32_t> sorted = keys;
  std::ranges::sort(sorted, std::greater<>());
  const std::uint32_t bucket = sorted[wanted - 1] >> kShift;
  std::vector<std::int32_t> chosen;
  std::vector<std::int32_t> candidates;
  for (std::size_t entry = 0; entry < keys.size(); ++entry) {
    const auto index = static_cast<std::int32_t>(entry);
    if (keys[entry] >> kShift > bucket) chosen.push_back(index);
    if (keys[entry] >> kShift == bucket && candidates.size() < capacity) candidates.push_back(index);
  }
  std::ranges::stable_sort(candidates, std::greater<>(),
                           [&](std::int32_t entry) { return keys[static_cast<std::size_t>(entry)]; });
  candidates.resize(std::min(candidates.size(), wanted - chosen.size()));
  chosen.insert(chosen.end(), candidates.begin(), candidates.end());
  write_ascending(row, std::move(chosen));
}

void take_last_of_tie(TokenRow& row) {
  if (row.count <= 0 || row.scores.size() <= static_cast<std::size_t>(row.count)) return;
  std::vector<std::int32_t> chosen(row.chosen.begin(), row.chosen.begin() + row.count);
  const auto key = [&](std::int32_t entry) { return order_key(row.scores[static_cast<std::size_t>(entry)]); };
  const std::uint32_t cut = key(std::ranges::min(chosen, {}, key));
  std::vector<std::int32_t> tied;
  for (std::int32_t entry = 0; entry < std::ssize(row.scores); ++entry) {
    if (key(entry) == cut) tied.push_back(entry);
  }
  const auto kept = static_cast<std::size_t>(
      std::ranges::count_if(chosen, [&](std::int32_t entry) { return key(entry) == cut; }));
  if (tied.size() == kept) return;
  std::erase_if(chosen, [&](std::int32_t entry) { return key(entry) == cut; });
  chosen.insert(chosen.end(), tied.end() - static_cast<std::ptrdiff_t>(kept), tied.end());
  write_ascending(row, std::move(chosen));
}

}  // namespace

void selection_drops_candidates(FaultyEngine& subject, const Parameters& parameters) {
  const auto capacity = static_cast<std::size_t>(parameters.number("capacity"));
  subject.after(Stage::indexer_select, [&subject, capacity](const StageCall& call) {
    for_each_selection(subject, call, [&](TokenRow& row) { select_by_buckets(row, capacity); });
  });
}

void selection_in_another_order(FaultyEngine& subject, const Parameters&) {
  subject.after(Stage::indexer_select, [&subject](const StageCall& call) {
    for_each_selection(subject, call, [](TokenRow& row) {
      std::ranges::reverse(row.chosen.first(static_cast<std::size_t>(row.count)));
    });
  });
}

void selection_other_tie(FaultyEngine& subject, const Parameters&) {
  subject.after(Stage::indexer_select, [&subject](const StageCall& call) {
    for_each_selection(subject, call, [](TokenRow& row) { take_last_of_tie(row); });
  });
}

}  // namespace dsv4::oracle::faults
