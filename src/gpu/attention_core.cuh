/// The parts of attention.core (docs/numerics.md 15, 18), over a chunk of tokens: places of the keys, logits, softmax,
/// weighted sum. List index i is window item i below W, else compressed item i - W.
#pragma once

#include "gpu/cuda_engine.cuh"
#include "model/layout.hpp"

namespace dsv4::gpu {

inline constexpr int kOnlineBlock = 64;  // of list indices, section 18

/// Where the row of a list item lies: its value bytes and its scale bytes; null where the item is invalid.
struct KeyPlace {
  const std::uint8_t* values;
  const std::uint8_t* scales;
};

struct CoreProblem {
  const std::uint16_t* q;     // [T, H, 512]
  CheckedIndices window;      // [T, W] slots
  CheckedIndices compressed;  // [T, compressed width]
  std::int64_t compressed_width;
  CacheMemory window_pages, entry_pages;
  const float* sink;
  int heads;
  std::int64_t first_token;  // of the chunk
  std::int64_t tokens;       // in the chunk
  int items;                 // list length: W + compressed width
  KeyPlace* places;          // [chunk, items]
  float* weights;            // [chunk, H, items]: z, then e (or bf16-rounded e)
  float* factors;            // [chunk, H, blocks of 64]: rescale before each block, or null
  float* denominators;       // [chunk, H]
  std::uint16_t* out;        // [T, H, 512]
  float* lse;                // [T, H]
  float empty_lse;
};

/// weights = rn(dot32(q, k) * scale) for every item; what invalid items get means nothing.
void attention_logits(const CoreProblem& p, cudaStream_t stream);
/// out = rn(fold of e v / denominator), in list order.
void attention_sum(const CoreProblem& p, cudaStream_t stream);

}  // namespace dsv4::gpu
