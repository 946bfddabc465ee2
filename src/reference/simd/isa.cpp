#include "reference/simd/isa.hpp"

#include <atomic>
#include <string>

#include "model/error.hpp"
#include "reference/simd/kernels.hpp"

namespace dsv4::reference {
namespace {

/// Whether this processor and operating system run code of the set.
bool runs_here(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool v2 =
      __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("popcnt");
  const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  switch (isa) {
    case Isa::scalar:
      return __builtin_cpu_supports("fma");
    case Isa::generic:
      return false;
    case Isa::v2:
      return v2;
    case Isa::v3:
      return v3;
    case Isa::v4:
      return v4;
  }
  return false;
#else
  return isa == Isa::scalar || isa == Isa::generic;
#endif
}

const simd::Kernels* table(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return simd::scalar_kernels();
#if defined(__x86_64__)
    case Isa::generic:
      return nullptr;
    case Isa::v2:
      return simd::v2_kernels();
    case Isa::v3:
      return simd::v3_kernels();
    case Isa::v4:
      return simd::v4_kernels();
#else
    case Isa::generic:
      return simd::generic_kernels();
    case Isa::v2:
    case Isa::v3:
    case Isa::v4:
      return nullptr;
#endif
  }
  return nullptr;
}

struct Selection {
  std::atomic<Isa> isa{best_isa()};
  std::atomic<const simd::Kernels*> kernels{table(isa)};
};

Selection& selection() {
  static Selection current;
  return current;
}

}  // namespace

std::string_view name(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::generic:
      return "generic";
    case Isa::v2:
      return "v2";
    case Isa::v3:
      return "v3";
    case Isa::v4:
      return "v4";
  }
  return "unknown";
}

std::vector<Isa> available_isas() {
  std::vector<Isa> list;
  for (const Isa isa : {Isa::scalar, Isa::generic, Isa::v2, Isa::v3, Isa::v4}) {
    if (kernels_of(isa) != nullptr) list.push_back(isa);
  }
  return list;
}

Isa best_isa() {
  const std::vector<Isa> list = available_isas();
  if (list.empty()) throw SubjectError("the reference engine needs an x86-64-v2 processor");
  return list.back();
}

Isa isa_from_name(std::string_view text) {
  std::string known;
  for (const Isa isa : available_isas()) {
    if (name(isa) == text) return isa;
    known += (known.empty() ? "" : ", ") + std::string(name(isa));
  }
  throw UsageError("instruction set '" + std::string(text) +
                   "' is unknown or this machine cannot run it (known: " + known + ")");
}

void select_isa(Isa isa) {
  isa = isa_from_name(name(isa));
  selection().isa = isa;
  selection().kernels = table(isa);
}

Isa selected_isa() {
  return selection().isa;
}

const simd::Kernels* kernels_of(Isa isa) {
  return runs_here(isa) ? table(isa) : nullptr;
}

const simd::Kernels& simd::kernels() {
  return *selection().kernels.load(std::memory_order_relaxed);
}

}  // namespace dsv4::reference
