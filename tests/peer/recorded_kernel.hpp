/// What tests of kernel models share: recorded arrays as spans, and which elements a model writes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "arith/bf16.hpp"
#include "peer/model_tally.hpp"
#include "peer/peer_file.hpp"
#include "support/catch.hpp"

namespace dsv4::peer {

/// The unsigned integer as wide as T.
template <class T>
using BitsOf =
    std::conditional_t<sizeof(T) == 1, std::uint8_t,
                       std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                          std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;

template <class T>
std::span<const T> elements(const Array& array) {
  return {array.as<T>(), static_cast<std::size_t>(array.elements())};
}

/// Memory that a model writes: run once on each of two fills, it shows which elements it has written, since
/// they do not depend on the fill.
template <class T>
struct Written {
  std::vector<T> first, second;

  Written(const Array& output, int fill)
      : first(static_cast<std::size_t>(output.elements())), second(first.size()) {
    if (sizeof(T) != output.element_bytes) throw std::runtime_error("recorded array of another width");
    std::memset(first.data(), fill, first.size() * sizeof(T));
    std::memset(second.data(), ~fill, second.size() * sizeof(T));
  }
  /// Counts what the model wrote; true when all else in the recording is `fill` still.
  bool count(ModelTally& tally, const Array& recorded) const {
    const auto* a = reinterpret_cast<const BitsOf<T>*>(first.data());
    const auto* b = reinterpret_cast<const BitsOf<T>*>(second.data());
    const BitsOf<T>* theirs = recorded.as<BitsOf<T>>();
    bool untouched = true;
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (a[i] == b[i])
        tally.count(a[i], theirs[i]);
      else
        untouched = untouched && theirs[i] == a[i];
    }
    return untouched;
  }
};

/// float32 values of an input that is float32 in some cases and bf16 in others.
inline std::vector<float> widened(const Array& array) {
  if (array.element_bytes == 4) return {array.as<float>(), array.as<float>() + array.elements()};
  std::vector<float> out;
  for (const std::uint16_t bits : elements<std::uint16_t>(array)) out.push_back(arith::bf16_to_f32(bits));
  return out;
}

/// Attributes of a case.
inline std::int64_t integer(const PeerFile& file, const std::string& name, const char* attribute) {
  return static_cast<std::int64_t>(file.number(name, attribute));
}
inline float real(const PeerFile& file, const std::string& name, const char* attribute) {
  return static_cast<float>(file.number(name, attribute));
}
/// The byte that filled a case's outputs before the launch.
inline int fill_of(const PeerFile& file, const std::string& name) {
  return static_cast<int>(file.number(name, "poison_byte"));
}

/// Bits of float32 values.
inline const std::uint32_t* bits_of(const float* values) {
  return reinterpret_cast<const std::uint32_t*>(values);
}

/// Every element of an output that a model makes whole.
template <class T>
void whole(ModelTally& tally, const std::vector<T>& model, const Array& recorded) {
  REQUIRE(static_cast<std::int64_t>(model.size()) == recorded.elements());
  tally.count(reinterpret_cast<const BitsOf<T>*>(model.data()), recorded.as<BitsOf<T>>(),
              recorded.elements());
}

/// Every case of a file through `run(file, name, tally)`; the number of differing elements.
template <class Run>
std::int64_t all_cases(const char* kernel, Run run, const char* instead = nullptr) {
  PeerFile file(kernel);
  REQUIRE(!file.cases().empty());
  std::int64_t differing = 0;
  for (const std::string& name : file.cases()) {
    const std::string what = instead == nullptr ? name : name + ", instead: " + instead;
    ModelTally tally(kernel, what, instead == nullptr);
    run(file, name, tally);
    CHECK(tally.compared() > 0);
    differing += tally.differing();
  }
  return differing;
}

}  // namespace dsv4::peer
