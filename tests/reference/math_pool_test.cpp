#include "arith/exp.hpp"
#include "math_support.hpp"
#include "reference/online_pool.hpp"
#include "reference/pool.hpp"

using namespace dsv4::reference;
using namespace dsv4::reference::test;

namespace {

/// Section 12.4 of one channel.
float literal_pool(const std::vector<float>& kv, const std::vector<float>& score) {
  float m = -kInf;
  for (const float s : score) {
    if (s > m) m = s;
  }
  float den = 0;
  for (const float s : score) den += dsv4::arith::exp(s - m);
  float acc = 0;
  for (std::size_t r = 0; r < kv.size(); ++r) acc = std::fma(dsv4::arith::exp(score[r] - m), kv[r], acc);
  return acc / den;
}

std::vector<float> pooled_of(const std::vector<std::vector<float>>& kv,
                             const std::vector<std::vector<float>>& score) {
  std::vector<PoolRow> rows;
  for (std::size_t r = 0; r < kv.size(); ++r) rows.push_back({kv[r].data(), score[r].data()});
  std::vector<float> out(kv[0].size());
  pool_window(rows, static_cast<std::int64_t>(out.size()), out.data());
  return out;
}

}  // namespace

TEST_CASE("pooling by hand") {
  on_every_isa([] {
    // Equal scores: the mean. One score far above: its row. exp(-200) is 0, exp(-inf) too.
    const std::vector<float> out = pooled_of({{1, 1, 4}, {3, 8, 5}}, {{-7, 100, -kInf}, {-7, -100, 3}});
    REQUIRE(out == std::vector<float>{2, 1, 5});
    REQUIRE(pooled_of({{6.5F}}, {{-3}}) == std::vector<float>{6.5F});
    REQUIRE(std::isnan(pooled_of({{1}, {2}}, {{-kInf}, {-kInf}})[0]));  // -inf - -inf
    REQUIRE(std::isnan(pooled_of({{1}, {2}}, {{kNan}, {0}})[0]));
  });
}

TEST_CASE("windows of 1 to 128 rows equal the literal rule") {
  on_every_isa([] {
    Numbers numbers(51);
    int order_matters = 0;
    for (const int count : {1, 4, 5, 8, 127, 128}) {
      for (const int d : {1, 15, 128, 300, 512}) {
        std::vector<std::vector<float>> kv;
        std::vector<std::vector<float>> score;
        for (int r = 0; r < count; ++r) {
          kv.push_back(numbers.narrows(d));
          score.push_back(numbers.narrows(d));
        }
        const std::vector<float> out = pooled_of(kv, score);
        for (int c = 0; c < d; ++c) {
          std::vector<float> k;
          std::vector<float> s;
          for (int r = 0; r < count; ++r) {
            k.push_back(kv[r][c]);
            s.push_back(score[r][c]);
          }
          REQUIRE(bits(out[c]) == bits(literal_pool(k, s)));
          std::reverse(k.begin(), k.end());
          std::reverse(s.begin(), s.end());
          if (bits(out[c]) != bits(literal_pool(k, s))) ++order_matters;
        }
      }
    }
    REQUIRE(order_matters > 500);
  });
}

TEST_CASE("the online pool is the recurrence, token by token") {
  on_every_isa([] {
    Numbers numbers(61);
    const int d = 70;
    std::vector<float> m(d);
    std::vector<float> t(d);
    std::vector<float> a(d);
    std::vector<float> lm(d);
    std::vector<float> lt(d);
    std::vector<float> la(d);
    for (int token = 0; token < 256; ++token) {
      const std::vector<float> kv = numbers.narrows(d);
      std::vector<float> score = numbers.narrows(d);
      if (token == 130) score[3] = kNan;
      if (token == 128) score[4] = -kInf;
      online_pool_update(token % 128, kv.data(), score.data(), d, m.data(), t.data(), a.data());
      for (int c = 0; c < d; ++c) {
        if (token % 128 == 0) {
          lm[c] = score[c];
          lt[c] = 1.0F;
          la[c] = kv[c];
        } else {
          const float x = score[c] > lm[c] ? score[c] : lm[c];
          const float f = dsv4::arith::exp(lm[c] - x);
          const float g = dsv4::arith::exp(score[c] - x);
          const float product = kv[c] * g;
          lt[c] = std::fma(lt[c], f, g);
          la[c] = std::fma(la[c], f, product);
          lm[c] = x;
        }
      }
      REQUIRE(bits(m) == bits(lm));
      REQUIRE(bits(t) == bits(lt));
      REQUIRE(bits(a) == bits(la));
      if (token % 128 == 127) {
        std::vector<float> pooled(d);
        online_pool_finish(t.data(), a.data(), d, pooled.data());
        for (int c = 0; c < d; ++c) REQUIRE(bits(pooled[c]) == bits(la[c] / lt[c]));
      }
    }
    REQUIRE(std::isnan(t[3]));
  });
}
