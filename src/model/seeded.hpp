/// Seeded inputs (docs/numerics.md sections 19 and 20): hidden states and weights from one 64-bit seed
/// through Philox, the same on every machine, thread count and order of use.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "model/inputs.hpp"

namespace dsv4 {

/// Stream of Philox words of one named tensor and one id: word(i) is word i mod 4 of counter
/// (i / 4, 0, id low, id high) under key XXH3-64(name, seed).
class SeededStream {
 public:
  SeededStream(std::uint64_t seed, std::string_view tensor_name, std::uint64_t id);
  std::uint32_t word(std::uint64_t element) const;
  /// Sum of the four bytes of word(element) minus 510: near normal, deviation 147.8.
  std::int32_t u(std::uint64_t element) const;
  /// u of elements first, first + 1, ...; `first` is a multiple of 4. Elements end at 2^34.
  void u_values(std::uint64_t first, std::span<std::int16_t> out) const;

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint32_t id_low_;
  std::uint32_t id_high_;
};

/// XXH3-64 of the ASCII text `<request>:<position>:<generation>`.
std::uint64_t content_id(std::string_view request, std::int64_t position, std::int64_t generation);
/// XXH3-64 of `hash:<hash_id>:<offset>`, for tokens of imported traces.
std::uint64_t trace_content_id(std::int64_t hash_id, std::int64_t offset);

/// Hidden states of every layer of the run; a row's values depend on its content id and the layer alone. The run's
/// seed_edits are in place, here and in the weights.
std::shared_ptr<const HiddenSource> seeded_hidden(const RunConfig& config);
/// Weights of every layer of the run, made on first use; layers beyond 3 GiB are dropped, oldest use first.
std::shared_ptr<const WeightSource> seeded_weights(const RunConfig& config);

}  // namespace dsv4
