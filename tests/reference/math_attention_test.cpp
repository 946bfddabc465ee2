#include "arith/exp.hpp"
#include "arith/log.hpp"
#include "math_support.hpp"
#include "reference/attention.hpp"

using namespace dsv4;
using namespace dsv4::reference;
using namespace dsv4::reference::test;

namespace {

struct Problem {
  int heads;
  std::vector<std::uint16_t> query;
  std::vector<std::vector<float>> rows;  ///< by list index; empty = invalid
  std::vector<float> sink;
};

/// `invalid(i)` tells which list indices hold no key.
template <class Invalid>
Problem make(int heads, int length, std::uint32_t seed, const Invalid& invalid) {
  Numbers numbers(seed);
  Problem p{heads, numbers.bf16s(heads * 512), {}, numbers.narrows(heads)};
  for (int i = 0; i < length; ++i) {
    p.rows.emplace_back();
    if (invalid(i)) continue;
    p.rows.back() = numbers.narrows(512);
    for (float& v : p.rows.back()) v = via_bf16(v);
  }
  return p;
}

struct Result {
  std::vector<std::uint16_t> out;
  std::vector<float> lse;
};

std::vector<const float*> key_list(const Problem& p) {
  std::vector<const float*> keys;
  for (const auto& row : p.rows) keys.push_back(row.empty() ? nullptr : row.data());
  return keys;
}

Result run(const Problem& p, const AttentionMode& mode) {
  Result r{std::vector<std::uint16_t>(p.query.size(), 0x1234), std::vector<float>(p.heads)};
  const std::vector<const float*> keys = key_list(p);
  attention({p.query.data(), keys, r.out.data(), r.lse.data()}, p.heads, p.sink.data(), mode);
  return r;
}

float exp(float x) {
  return dsv4::arith::exp(x);
}

/// One head, with the list written out: e[i] is 0 where there is no key.
void literal_head(const Problem& p, const AttentionMode& mode, int h, Result& r) {
  const std::size_t n = p.rows.size();
  std::vector<float> q;
  for (int c = 0; c < 512; ++c) q.push_back(from_bf16(p.query[h * 512 + c]));
  std::vector<float> z(n);
  std::vector<bool> valid(n);
  for (std::size_t i = 0; i < n; ++i) {
    valid[i] = !p.rows[i].empty();
    if (valid[i]) z[i] = literal_dot(q.data(), p.rows[i].data(), 512) * value(0x3D3504F3);
  }
  const bool online = mode.softmax == Softmax::online64_bf16_p;
  const std::size_t block = online ? 64 : n;
  float m = mode.sink_in_max == SinkInMax::yes ? p.sink[h] : -kInf;
  float sum = 0;
  std::vector<float> o(512);
  for (std::size_t begin = 0; begin < n; begin += block) {
    const std::size_t end = std::min(n, begin + block);
    float next = m;
    for (std::size_t i = begin; i < end; ++i) {
      if (valid[i] && z[i] > next) next = z[i];
    }
    std::vector<float> e(end - begin);
    for (std::size_t i = begin; i < end; ++i) {
      if (valid[i]) e[i - begin] = exp(z[i] - next);
    }
    const float block_sum = literal_sum(e.data(), static_cast<std::int64_t>(e.size()));
    if (online) {
      const float f = m == -kInf ? 0.0F : exp(m - next);
      sum = std::fma(sum, f, block_sum);
      for (float& v : o) v = v * f;
    } else {
      sum = block_sum;
    }
    for (std::size_t i = begin; i < end; ++i) {
      if (!valid[i]) continue;
      const float weight = online ? via_bf16(e[i - begin]) : e[i - begin];
      for (int c = 0; c < 512; ++c) o[c] = std::fma(weight, p.rows[i][c], o[c]);
    }
    m = next;
  }
  const float den = sum + exp(p.sink[h] - m);
  for (int c = 0; c < 512; ++c) r.out[h * 512 + c] = literal_bf16(o[c] / den);
  r.lse[h] = m + dsv4::arith::log(sum);
}

Result literal(const Problem& p, const AttentionMode& mode) {
  Result r{std::vector<std::uint16_t>(p.query.size()), std::vector<float>(p.heads)};
  for (int h = 0; h < p.heads; ++h) literal_head(p, mode, h, r);
  return r;
}

const std::vector<AttentionMode> kModes{
    {Softmax::two_pass, SinkInMax::no, EmptyLse::plus_inf},
    {Softmax::two_pass, SinkInMax::yes, EmptyLse::plus_inf},
    {Softmax::online64_bf16_p, SinkInMax::no, EmptyLse::plus_inf},
    {Softmax::online64_bf16_p, SinkInMax::yes, EmptyLse::minus_inf},
};

}  // namespace

TEST_CASE("attention by hand") {
  on_every_isa([] {
    Problem p = make(1, 3, 1, [](int i) { return i == 1; });
    // Two orthogonal keys and a query of zeros: both weights are 1, the sink adds 2.
    p.query.assign(512, 0);
    p.rows[0].assign(512, 4.0F);
    p.rows[2].assign(512, 8.0F);
    p.sink[0] = value(0x3F317218);  // the float nearest to ln 2
    const Result r = run(p, {});
    for (const std::uint16_t v : r.out) REQUIRE(v == literal_bf16(3.0F));
    REQUIRE(bits(r.lse[0]) == 0x3F317218U);
    // A sink far above takes everything; one far below nothing.
    p.sink[0] = 1000.0F;
    for (const std::uint16_t v : run(p, {}).out) REQUIRE(v == 0);
    p.sink[0] = -kInf;
    for (const std::uint16_t v : run(p, {}).out) REQUIRE(v == literal_bf16(6.0F));
  });
}

TEST_CASE("attention equals the literal rule in every mode") {
  for (const int heads : {1, 4, 13, 40}) {
    for (const int length : {1, 12, 31, 65, 150}) {
      const Problem p = make(heads, length, static_cast<std::uint32_t>(1000 * heads + length),
                             [=](int i) { return length > 1 && i % 5 == 2; });
      for (const AttentionMode& mode : kModes) {
        const Result expected = literal(p, mode);
        on_every_isa([&] {
          const Result got = run(p, mode);
          REQUIRE(got.out == expected.out);
          REQUIRE(bits(got.lse) == bits(expected.lse));
        });
      }
    }
  }
}

TEST_CASE("the place of a key in the list decides its lane and block") {
  // The same keys in the same order, with holes at other places: other lanes, other bits.
  int two_pass_moves = 0;
  int online_moves = 0;
  for (std::uint32_t seed = 0; seed < 8; ++seed) {
    Problem packed = make(4, 90, seed, [](int) { return false; });
    for (std::uint16_t& q : packed.query)
      q = literal_bf16(from_bf16(q) / 16.0F);  // many keys of similar weight
    Problem holed = packed;
    for (int hole = 0; hole < 40; ++hole) {
      holed.rows.insert(holed.rows.begin() + 2 * hole, std::vector<float>());
    }
    for (const AttentionMode& mode : kModes) {
      const Result a = literal(packed, mode);
      const Result b = literal(holed, mode);
      on_every_isa([&] {
        const Result got = run(holed, mode);
        REQUIRE(got.out == b.out);
        REQUIRE(bits(got.lse) == bits(b.lse));
      });
      const bool moved = bits(a.lse) != bits(b.lse) || a.out != b.out;
      (mode.softmax == Softmax::two_pass ? two_pass_moves : online_moves) += moved ? 1 : 0;
    }
  }
  REQUIRE(two_pass_moves > 3);
  REQUIRE(online_moves > 8);
}

TEST_CASE("leading and inner blocks without a key change nothing that the rule does not say") {
  on_every_isa([] {
    const Problem p = make(3, 300, 9, [](int i) { return i < 130 || (i >= 192 && i < 256); });
    for (const AttentionMode& mode : kModes) {
      const Result got = run(p, mode);
      const Result expected = literal(p, mode);
      REQUIRE(got.out == expected.out);
      REQUIRE(bits(got.lse) == bits(expected.lse));
    }
  });
}

TEST_CASE("no valid key gives zero and the lse of the axis") {
  on_every_isa([] {
    const Problem p = make(5, 70, 3, [](int) { return true; });
    for (const AttentionMode& mode : kModes) {
      const Result r = run(p, mode);
      for (const std::uint16_t v : r.out) REQUIRE(v == 0);
      for (const float v : r.lse) REQUIRE(v == (mode.empty_lse == EmptyLse::plus_inf ? kInf : -kInf));
    }
  });
}

TEST_CASE("NaN stays with its head, or with every head when a key holds it") {
  on_every_isa([] {
    Problem p = make(4, 20, 4, [](int) { return false; });
    p.query[2 * 512 + 5] = 0x7FC0;
    for (const AttentionMode& mode : kModes) {
      const Result got = run(p, mode);
      const Result expected = literal(p, mode);
      REQUIRE(got.out == expected.out);
      REQUIRE(bits(got.lse) == bits(expected.lse));
      for (int h = 0; h < 4; ++h) REQUIRE(std::isnan(got.lse[h]) == (h == 2));
    }
  });
}

TEST_CASE("many tokens at once give the result of each alone") {
  on_every_isa([] {
    std::vector<Problem> problems;
    for (int t = 0; t < 9; ++t) {
      problems.push_back(
          make(70, 10 + 13 * t, static_cast<std::uint32_t>(t), [=](int i) { return t == 4 || i % 7 == 3; }));
      problems.back().sink = problems.front().sink;
    }
    for (const std::size_t tokens : {std::size_t{1}, problems.size()}) {
      std::vector<Result> results;
      std::vector<std::vector<const float*>> lists;
      std::vector<AttentionCall> calls;
      for (std::size_t t = 0; t < tokens; ++t) {
        results.push_back({std::vector<std::uint16_t>(problems[t].query.size()), std::vector<float>(70)});
        lists.push_back(key_list(problems[t]));
      }
      for (std::size_t t = 0; t < tokens; ++t) {
        calls.push_back({problems[t].query.data(), lists[t], results[t].out.data(), results[t].lse.data()});
      }
      attention(calls, 70, problems.front().sink.data(), {});
      for (std::size_t t = 0; t < tokens; ++t) {
        const Result alone = run(problems[t], {});
        REQUIRE(results[t].out == alone.out);
        REQUIRE(bits(results[t].lse) == bits(alone.lse));
      }
    }
  });
}
