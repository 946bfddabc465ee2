/// Weights from safetensors under the checkpoint names `layers.N.attn.*` (an optional `model.` prefix is
/// seen), and the seeded weights written back under the same names. docs/dump-format.md, weights.
///
/// Accepted: FP8 matrices F8_E4M3 with `.scale` F8_E8M0 (or F32 powers of two) one for each 128 x 128 block;
/// wo_a also BF16; compressor and weights_proj matrices and norms BF16, or F32 whose values are bf16-exact;
/// ape and attn_sink F32 or BF16. Anything else, and any missing, misshapen or NaN tensor, is a FileError
/// that names tensor, file, shape expected and shape found.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/inputs.hpp"

namespace dsv4::io {

/// `where`: one folder (model.safetensors.index.json with shards, or a single *.safetensors inside), or
/// files. `checkpoint_layers[i]` is the checkpoint's number of the run's layer i; empty: i itself. Opens and
/// checks headers now, reads a layer's data on first use.
std::shared_ptr<const WeightSource> file_weights(const RunConfig& config,
                                                 const std::vector<std::string>& where,
                                                 const std::vector<int>& checkpoint_layers = {});

/// Writes every layer of the run to one safetensors file; layer i as `layers.<checkpoint_layers[i]>` (i
/// itself when empty). Reading it back gives the same bits.
void export_weights(const WeightSource& weights, const RunConfig& config, const std::string& path,
                    const std::vector<int>& checkpoint_layers = {});

}  // namespace dsv4::io
