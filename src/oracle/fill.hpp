/// Synthetic cache content of a `fill` event (docs/scenarios.md, fill).
///
/// Every live row of a request of n tokens gets seeded content. The stream of a row is named
/// `fill/<layer>/<cache>` (layer index in decimal, cache as in model/stage.hpp), its id is the content id of
/// the row's last token at generation 0: for an entry j of ratio r the token (j + 1) * r - 1. Elements of a
/// row in stream order:
///   page rows    codes e4m3(u * 2^-8) (448, or 128 of an FP8 index row; an FP4 index row takes 128 codes
///   e2m1(u * 2^-8),
///                even element in the low nibble); RoPE part bf16(u * 2^-7) (64, window and entries only);
///                scales 2^((word mod 3) - 1) (7 bytes and a spare 0; one f32; four bytes)
///   state rows   kv u * 2^-7, then score u * 2^-8
///   online rows  max u * 2^-8, sum 1 + |u| * 2^-7, kv u * 2^-7; written when n mod 128 is not 0
#pragma once

#include "model/engine.hpp"

namespace dsv4::oracle {

/// Writes the rows of every cache of every layer through Engine::apply_writes. `plan.kind` is StepKind::fill.
void apply_fill(Engine& engine, const StepPlan& plan);

}  // namespace dsv4::oracle
