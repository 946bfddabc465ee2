/// Changes of seeded inputs (docs/scenarios.md, seeded): single elements, rows or columns set to a value or
/// multiplied by a power of two, so that a scenario reaches numbers that no draw would give.
///
/// bf16 and f32 elements take value or product with one rounding (docs/numerics.md 3). Of an FP8 matrix a
/// value is rounded to e4m3 and replaces codes, whatever the block's scale; a factor moves the scale bytes of
/// every block that the region touches, held to 0 .. 254.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/inputs.hpp"

namespace dsv4 {

/// Why an edit does not fit a run of these layers; empty if it does.
std::string seed_edit_fault(const SeedEdit& edit, const Geometry& geometry,
                            const std::vector<LayerKind>& layers);

/// Edits of weights; those of tensors that the layer does not have, and of hidden states, are left out.
void apply_seed_edits(const std::vector<SeedEdit>& edits, int layer, LayerWeights& weights);

/// Edits of one hidden state, [dim] bf16.
void apply_seed_edits(const std::vector<SeedEdit>& edits, int layer, std::span<std::uint16_t> hidden);

}  // namespace dsv4
