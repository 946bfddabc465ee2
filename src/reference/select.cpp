#include "reference/select.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace dsv4::reference {

int select_top(std::span<const float> scores, SelectOrder order, std::span<std::int32_t> out) {
  std::vector<std::int32_t> indices(scores.size());
  std::iota(indices.begin(), indices.end(), 0);
  const auto before = [&scores](std::int32_t a, std::int32_t b) {
    const float x = scores[static_cast<std::size_t>(a)];
    const float y = scores[static_cast<std::size_t>(b)];
    const bool x_nan = x != x;
    const bool y_nan = y != y;
    if (x_nan != y_nan) return y_nan;
    if (x > y) return true;
    if (x < y) return false;
    return a < b;
  };
  const std::size_t count = std::min(out.size(), scores.size());
  const auto end = indices.begin() + static_cast<std::ptrdiff_t>(count);
  if (count < indices.size()) std::nth_element(indices.begin(), end, indices.end(), before);
  if (order == SelectOrder::descending) {
    std::sort(indices.begin(), end, before);
  } else {
    std::sort(indices.begin(), end);
  }
  std::copy(indices.begin(), end, out.begin());
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(count), out.end(), -1);
  return static_cast<int>(count);
}

}  // namespace dsv4::reference
