// What an H200 returned (data/recorded/h200/probe, written by `dsv4-oracle probe --record`), bit for bit.
#include <fmt/core.h>

#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "arith/hopper/divide.hpp"
#include "arith/hopper/dot.hpp"
#include "arith/hopper/dot_matrix.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using arith::from_bits;
using arith::to_bits;
namespace hopper = arith::hopper;

namespace {

const std::string kFolder = "data/recorded/h200/probe/";
using Arguments = std::vector<float>;
using Function = std::function<float(const Arguments&)>;

const std::map<std::string, Function>& functions() {
  static const std::map<std::string, Function> all{
      {"ex2.approx.ftz", [](const Arguments& a) { return hopper::ex2_ftz(a[0]); }},
      {"ex2.approx", [](const Arguments& a) { return hopper::ex2(a[0]); }},
      {"rcp.approx.ftz", [](const Arguments& a) { return hopper::rcp_ftz(a[0]); }},
      {"rcp.approx", [](const Arguments& a) { return hopper::rcp(a[0]); }},
      {"rsqrt.approx.ftz", [](const Arguments& a) { return hopper::rsqrt_ftz(a[0]); }},
      {"rsqrt.approx", [](const Arguments& a) { return hopper::rsqrt(a[0]); }},
      {"lg2.approx.ftz", [](const Arguments& a) { return hopper::lg2_ftz(a[0]); }},
      {"lg2.approx", [](const Arguments& a) { return hopper::lg2(a[0]); }},
      {"div.full", [](const Arguments& a) { return hopper::div_full(a[0], a[1]); }},
      {"div.full.ftz", [](const Arguments& a) { return hopper::div_full_ftz(a[0], a[1]); }},
      {"div.approx", [](const Arguments& a) { return hopper::div_approx(a[0], a[1]); }},
      {"div.approx.ftz", [](const Arguments& a) { return hopper::div_approx_ftz(a[0], a[1]); }},
      {"fma.ftz", [](const Arguments& a) { return hopper::fma_ftz(a[0], a[1], a[2]); }},
  };
  return all;
}

std::uint32_t word(const std::string& text) {
  return static_cast<std::uint32_t>(std::stoul(text, nullptr, 16));
}

/// Values of a line "NAME HEX", each of `digits` digits.
template <class T>
void append(std::vector<T>& values, const std::string& hex, std::size_t digits) {
  REQUIRE(hex.size() % digits == 0);
  for (std::size_t i = 0; i < hex.size(); i += digits)
    values.push_back(static_cast<T>(word(hex.substr(i, digits))));
}

template <class Code>
std::size_t differing(const std::string& instruction, std::int64_t m, std::int64_t n, std::int64_t k,
                      const std::vector<std::uint16_t>& a_words, const std::vector<std::uint16_t>& b_words,
                      const std::vector<std::uint32_t>& c, const std::vector<std::uint32_t>& d) {
  const std::vector<Code> a(a_words.begin(), a_words.end());
  const std::vector<Code> b(b_words.begin(), b_words.end());
  std::vector<float> sums;
  for (const std::uint32_t bits : c) sums.push_back(from_bits(bits));
  if constexpr (sizeof(Code) == 2) {
    hopper::matmul_bf16(a.data(), b.data(), sums.data(), m, n, k);
  } else if (instruction.starts_with("wgmma")) {
    hopper::matmul_e4m3(a.data(), b.data(), sums.data(), m, n, k);
  } else {
    for (std::int64_t i = 0; i < m * n; ++i) {
      for (std::int64_t at = 0; at < k; at += 32) {
        float& sum = sums[static_cast<std::size_t>(i)];
        sum = hopper::mma_e4m3(&a[static_cast<std::size_t>(i / n * k + at)],
                               &b[static_cast<std::size_t>(i % n * k + at)], sum);
      }
    }
  }
  std::size_t count = 0;
  for (std::size_t i = 0; i < d.size(); ++i) count += to_bits(sums[i]) != d[i] ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("recorded functions") {
  std::ifstream file(kFolder + "functions.txt");
  REQUIRE(file);
  std::map<std::string, std::size_t> seen;
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with('#')) continue;
    std::istringstream header(line);
    std::string keyword, name;
    std::size_t arguments = 0;
    std::size_t cases = 0;
    header >> keyword >> name >> arguments >> cases;
    REQUIRE(keyword == "function");
    REQUIRE(functions().count(name) == 1);
    std::size_t wrong = 0;
    std::string first;
    for (std::size_t i = 0; i < cases; ++i) {
      REQUIRE(std::getline(file, line));
      std::istringstream words(line);
      Arguments values(arguments);
      std::string text;
      for (float& value : values) {
        words >> text;
        value = from_bits(word(text));
      }
      REQUIRE(words >> text);
      const std::uint32_t result = to_bits(functions().at(name)(values));
      if (result != word(text) && wrong++ == 0) first = fmt::format("{}, model {:08x}", line, result);
    }
    INFO(name << ": " << first);
    CHECK(wrong == 0);
    seen[name] = cases;
  }
  for (const auto& [name, function] : functions()) {
    INFO(name);
    CHECK(seen[name] >= 1000);
  }
}

TEST_CASE("recorded matrix products") {
  std::ifstream file(kFolder + "matrices.txt");
  REQUIRE(file);
  std::map<std::string, std::size_t> outputs;
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with('#')) continue;
    std::istringstream header(line);
    std::string keyword, what;
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    std::size_t digits = 0;
    header >> keyword >> m >> n >> k >> digits;
    std::getline(header >> std::ws, what);
    REQUIRE(keyword == "tile");
    std::vector<std::uint16_t> a, b;
    std::vector<std::uint32_t> c, d;
    for (std::int64_t row = 0; row < 3 * m + n; ++row) {
      REQUIRE(std::getline(file, line));
      const std::string hex = line.substr(2);
      switch (line[0]) {
        case 'a':
          append(a, hex, digits);
          break;
        case 'b':
          append(b, hex, digits);
          break;
        case 'c':
          append(c, hex, 8);
          break;
        case 'd':
          append(d, hex, 8);
          break;
        default:
          FAIL("unknown row " << line);
      }
    }
    REQUIRE(a.size() == static_cast<std::size_t>(m * k));
    REQUIRE(b.size() == static_cast<std::size_t>(n * k));
    REQUIRE(c.size() == static_cast<std::size_t>(m * n));
    REQUIRE(d.size() == c.size());
    const std::string instruction = what.substr(0, what.find(';'));
    INFO(what);
    CHECK((digits == 4 ? differing<std::uint16_t>(instruction, m, n, k, a, b, c, d)
                       : differing<std::uint8_t>(instruction, m, n, k, a, b, c, d)) == 0);
    outputs[instruction] += d.size();
  }
  for (const char* instruction :
       {"wgmma m64n8k16 bf16", "wgmma m64n8k32 e4m3", "mma.sync m16n8k16 bf16", "mma.sync m16n8k32 e4m3"}) {
    INFO(instruction);
    CHECK(outputs[instruction] >= 1000);
  }
}
