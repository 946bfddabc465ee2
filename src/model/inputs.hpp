/// Where a run's inputs come from: hidden states and weights, seeded or read from files.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/step_plan.hpp"

namespace dsv4 {

/// Hidden states of a layer, after the layer's norm.
class HiddenSource {
 public:
  virtual ~HiddenSource() = default;
  /// Writes the bf16 bits of one token, [dim]. Throws FileError naming request and position if there is none.
  virtual void hidden(int layer, const Row& row, std::span<std::uint16_t> out) const = 0;
};

/// A weight matrix [rows (outputs), columns (inputs)], row major, in the form in which it is stored.
struct Matrix {
  enum class Format : std::uint8_t {
    fp8_block128,  ///< e4m3 codes with one ue8m0 byte for each 128 x 128 block
    bf16,
  };
  Format format = Format::bf16;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<std::uint8_t> codes;   ///< [rows, columns], fp8 only
  std::vector<std::uint8_t> scales;  ///< [ceil(rows / 128), ceil(columns / 128)], fp8 only
  std::vector<std::uint16_t> bf16;   ///< [rows, columns], bf16 only
};

/// Weights of one compressor; d = 512 (main) or 128 (indexer), coff = 2 for ratio 4, else 1.
struct CompressorWeights {
  Matrix wkv;                     ///< [coff * d, dim] bf16
  Matrix wgate;                   ///< [coff * d, dim] bf16
  std::vector<float> ape;         ///< [ratio, coff * d] f32
  std::vector<std::uint16_t> norm;  ///< [d] bf16
};

/// Weights of one layer under their official short names (docs/dump-format.md, weights).
struct LayerWeights {
  Matrix wq_a;   ///< [q_lora, dim] fp8
  Matrix wq_b;   ///< [heads * 512, q_lora] fp8
  Matrix wkv;    ///< [512, dim] fp8
  Matrix wo_a;   ///< [o_groups * o_lora, heads / o_groups * 512] fp8 or bf16
  Matrix wo_b;   ///< [dim, o_groups * o_lora] fp8
  std::vector<std::uint16_t> q_norm;   ///< [q_lora] bf16
  std::vector<std::uint16_t> kv_norm;  ///< [512] bf16
  std::vector<float> attn_sink;        ///< [heads] f32
  CompressorWeights compressor;        ///< CSA and HCA
  Matrix indexer_wq_b;                 ///< [index_heads * 128, q_lora] fp8, CSA
  Matrix indexer_weights_proj;         ///< [index_heads, dim] bf16, CSA
  CompressorWeights indexer_compressor;  ///< CSA
};

/// Weights of every layer of a run. Layers are made on first use and may be dropped again.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Never null. Throws FileError naming a missing, misshapen or NaN tensor.
  virtual std::shared_ptr<const LayerWeights> layer(int index) const = 0;
};

}  // namespace dsv4
