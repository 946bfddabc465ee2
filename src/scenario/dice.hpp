/// The choices of a random scenario, one number after another, from a seed or from a given list. A list that
/// is used up goes on with zeros, so the first alternative of every choice is the simplest one and short
/// lists make small scenarios.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "model/seeded.hpp"

namespace dsv4::scenario {

class Dice {
 public:
  /// The numbers of scenario `index` under a seed.
  Dice(std::uint64_t seed, std::uint64_t index) : stream_(std::in_place, seed, "fuzz", index) {}
  explicit Dice(std::vector<std::uint32_t> given) : given_(std::move(given)) {}

  /// 0 to n - 1; 0 for n = 0.
  std::uint32_t below(std::uint32_t n) {
    const std::uint32_t word = stream_ ? stream_->word(drawn_) : drawn_ < given_.size() ? given_[drawn_] : 0;
    ++drawn_;
    return n == 0 ? 0 : word % n;
  }
  /// low to high, both included.
  int between(int low, int high) {
    return low + static_cast<int>(below(static_cast<std::uint32_t>(high - low) + 1));
  }
  /// True once in n times, but never at the end of a list.
  bool once_in(std::uint32_t n) { return below(n) == n - 1; }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return *(values.begin() + below(static_cast<std::uint32_t>(values.size())));
  }
  template <class T>
  const T& pick(const std::vector<T>& values) {
    return values.at(below(static_cast<std::uint32_t>(values.size())));
  }

 private:
  std::optional<SeededStream> stream_;
  std::vector<std::uint32_t> given_;
  std::size_t drawn_ = 0;
};

}  // namespace dsv4::scenario
