/// Which instruction set the hot functions of the reference engine use. All give the same bits.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace dsv4::reference {

namespace simd {
struct Kernels;
}

enum class Isa : std::uint8_t {
  scalar,   ///< plain loops, fused multiply-add, no vectors: the baseline of benchmarks (x86-64)
  generic,  ///< whatever the build targets, on machines other than x86-64
  v2,       ///< x86-64-v2: fma in software, exact and slow
  v3,       ///< x86-64-v3: AVX2 and FMA
  v4,       ///< x86-64-v4: AVX-512
};

/// "scalar", "generic", "v2", "v3" or "v4".
std::string_view name(Isa isa);
/// Throws UsageError that lists what this machine can run.
Isa isa_from_name(std::string_view name);

/// What this build holds and this machine can run, slowest first.
std::vector<Isa> available_isas();
/// The fastest of them.
Isa best_isa();

/// Chooses for all later calls of any thread; not while work is in flight. Throws UsageError if this machine
/// cannot run it. Without a call, best_isa() is used.
void select_isa(Isa isa);
Isa selected_isa();

/// The kernels of one set, or null where isa cannot run here; for benchmarks that compare sets.
const simd::Kernels* kernels_of(Isa isa);

}  // namespace dsv4::reference
