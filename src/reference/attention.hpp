/// Attention of one token over a list of dequantised key rows, with a sink a head. Implements section 15, and
/// the online form of section 18.
#pragma once

#include <cstdint>
#include <span>

#include "model/profile.hpp"

namespace dsv4::reference {

/// Choices on the axes that this stage reads.
struct AttentionMode {
  Softmax softmax = Softmax::two_pass;
  SinkInMax sink_in_max = SinkInMax::no;
  EmptyLse empty_lse = EmptyLse::plus_inf;
};
AttentionMode attention_mode(const Profile& profile);

/// One token. Keys are the values too: all 512 dims of the dequantised row, RoPE dims included.
struct AttentionCall {
  const std::uint16_t* query = nullptr;  ///< bf16 [heads, 512]
  /// One entry a list index (section 14: window part padded to 128, then the compressed part); null =
  /// invalid.
  std::span<const float* const> keys;
  std::uint16_t* out = nullptr;  ///< bf16 [heads, 512]
  float* lse = nullptr;          ///< [heads]
};

/// `sink` [heads] f32. No valid key: out +0, lse by the axis empty_lse.
void attention(const AttentionCall& call, int heads, const float* sink, const AttentionMode& mode);

/// Many tokens of one layer, spread over OpenMP threads.
void attention(std::span<const AttentionCall> calls, int heads, const float* sink, const AttentionMode& mode);

}  // namespace dsv4::reference
