#include "math_support.hpp"
#include "reference/select.hpp"

using namespace dsv4;
using namespace dsv4::reference;
using namespace dsv4::reference::test;

namespace {

std::vector<std::int32_t> select(const std::vector<float>& scores, SelectOrder order, int k) {
  std::vector<std::int32_t> out(k, 77);
  const int count = select_top(scores, order, out);
  REQUIRE(count == std::min<int>(k, static_cast<int>(scores.size())));
  return out;
}

/// Takes the best remaining one k times. Classes: number 0, -inf 1, NaN 2.
std::vector<std::int32_t> literal(const std::vector<float>& scores, int k) {
  const auto rank = [](float x) { return std::isnan(x) ? 2 : x == -kInf ? 1 : 0; };
  std::vector<bool> taken(scores.size());
  std::vector<std::int32_t> out;
  while (static_cast<int>(out.size()) < k) {
    int best = -1;
    for (int i = 0; i < static_cast<int>(scores.size()); ++i) {
      if (taken[i]) continue;
      if (best < 0 || rank(scores[i]) < rank(scores[best]) ||
          (rank(scores[i]) == 0 && rank(scores[best]) == 0 && scores[i] > scores[best])) {
        best = i;
      }
    }
    if (best >= 0) taken[best] = true;
    out.push_back(best);
  }
  return out;
}

}  // namespace

TEST_CASE("selection by hand") {
  const std::vector<float> scores{1, kNan, 3, -kInf, 3, -0.0F, 0.0F, kInf};
  REQUIRE(select(scores, SelectOrder::descending, 8) == std::vector<std::int32_t>{7, 2, 4, 0, 5, 6, 3, 1});
  REQUIRE(select(scores, SelectOrder::descending, 2) == std::vector<std::int32_t>{7, 2});
  REQUIRE(select(scores, SelectOrder::ascending, 3) == std::vector<std::int32_t>{2, 4, 7});
  REQUIRE(select(scores, SelectOrder::ascending, 10) ==
          std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, -1, -1});
  REQUIRE(select({}, SelectOrder::ascending, 2) == std::vector<std::int32_t>{-1, -1});
  REQUIRE(select({kNan, kNan, kNan}, SelectOrder::descending, 2) == std::vector<std::int32_t>{0, 1});
}

TEST_CASE("selection equals taking the best one after the other") {
  Numbers numbers(71);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> scores;
    const int n = numbers.below(300);
    for (int i = 0; i < n; ++i) {
      const int kind = numbers.below(20);
      scores.push_back(kind == 0   ? kNan
                       : kind == 1 ? -kInf
                       : kind == 2 ? -0.0F
                                   : static_cast<float>(numbers.below(40)) - 8);
    }
    const int k = 1 + numbers.below(320);
    std::vector<std::int32_t> expected = literal(scores, k);
    REQUIRE(select(scores, SelectOrder::descending, k) == expected);
    std::sort(expected.begin(), expected.begin() + std::min(k, n));
    REQUIRE(select(scores, SelectOrder::ascending, k) == expected);
  }
}
