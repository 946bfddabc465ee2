/// Elements of one output of one recorded case that a kernel model was held against: compared and differing.
/// Prints itself as a row of the table of `ctest -L peer --verbose` when it goes.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace dsv4::peer {

class ModelTally {
 public:
  /// `expected_equal`: false where a rule is put wrong on purpose and differences are what the test asks for;
  /// the row says so, and none of them is printed.
  ModelTally(std::string kernel, std::string what, bool expected_equal = true)
      : kernel_(std::move(kernel)),
        what_(std::move(what)),
        expected_equal_(expected_equal),
        shown_(expected_equal ? 0 : kShown) {}
  ModelTally(const ModelTally&) = delete;
  ModelTally& operator=(const ModelTally&) = delete;
  ~ModelTally() {
    std::printf("%-34s %-44s %9lld compared %7lld differ%s\n", kernel_.c_str(), what_.c_str(),
                static_cast<long long>(compared_), static_cast<long long>(differing_),
                expected_equal_ ? "" : ", wrong on purpose");
  }

  /// Bits of one element.
  void count(std::uint64_t model, std::uint64_t recorded) {
    ++compared_;
    if (model == recorded) return;
    ++differing_;
    if (shown_++ < kShown) {
      std::printf("  %s %s: element %lld is %llx in the model, %llx recorded\n", kernel_.c_str(),
                  what_.c_str(), static_cast<long long>(compared_ - 1),
                  static_cast<unsigned long long>(model), static_cast<unsigned long long>(recorded));
    }
  }
  /// n elements of an unsigned type.
  template <class Bits>
  void count(const Bits* model, const Bits* recorded, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) count(model[i], recorded[i]);
  }

  std::int64_t compared() const { return compared_; }
  std::int64_t differing() const { return differing_; }

 private:
  static constexpr std::int64_t kShown = 4;
  std::string kernel_;
  std::string what_;
  bool expected_equal_;
  std::int64_t shown_;
  std::int64_t compared_ = 0;
  std::int64_t differing_ = 0;
};

}  // namespace dsv4::peer
