#include "arith/hopper/dot_matrix.hpp"

#include <algorithm>
#include <vector>

#include "arith/hopper/dot_task.hpp"

namespace dsv4::arith::hopper {

const DotKernels* dot_table_generic();
#if defined(__x86_64__)
const DotKernels* dot_table_v3();
const DotKernels* dot_table_v4();
#endif

const DotKernels* dot_kernels_generic() {
  return dot_table_generic();
}
const DotKernels* dot_kernels_v3() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool runs = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  return runs ? dot_table_v3() : nullptr;
#else
  return nullptr;
#endif
}
const DotKernels* dot_kernels_v4() {
#if defined(__x86_64__)
  const bool runs = dot_kernels_v3() != nullptr && __builtin_cpu_supports("avx512f") &&
                    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return runs ? dot_table_v4() : nullptr;
#else
  return nullptr;
#endif
}

namespace {

/// Rows for which a panel of b is split once.
constexpr std::int64_t kRowBlock = 64;

const DotKernels& best_kernels() {
  static const DotKernels* const best = [] {
    if (const DotKernels* v4 = dot_kernels_v4()) return v4;
    if (const DotKernels* v3 = dot_kernels_v3()) return v3;
    return dot_kernels_generic();
  }();
  return *best;
}

template <class Code>
void blocks(DotTask<Code> task, std::int64_t step, void (*kernel)(const DotTask<Code>&)) {
  const std::int64_t rows = std::min(task.m, kRowBlock);
  const std::int64_t steps = (task.k + step - 1) / step;
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  std::vector<float> significands(size((rows + kMostLanes) * steps * step));
  std::vector<std::int32_t> exponents(significands.size());
  std::vector<std::uint8_t> special(size((rows + 1) * steps));
  task.panel_significands = significands.data();
  task.panel_exponents = exponents.data();
  task.panel_special = special.data();
  task.row_significands = significands.data() + kMostLanes * steps * step;
  task.row_exponents = exponents.data() + kMostLanes * steps * step;
  task.row_special = special.data() + steps;
  const DotTask<Code> whole = task;
  for (std::int64_t row = 0; row < whole.m; row += kRowBlock) {
    task.a = whole.a + row * whole.a_stride;
    task.c = whole.c + row * whole.c_stride;
    task.m = std::min(kRowBlock, whole.m - row);
    kernel(task);
  }
}

}  // namespace

void matmul_bf16(const std::uint16_t* a, const std::uint16_t* b, float* c, std::int64_t m, std::int64_t n,
                 std::int64_t k, std::int64_t a_stride, std::int64_t b_stride, std::int64_t c_stride,
                 const DotKernels* kernels) {
  const DotTask<std::uint16_t> task{a, b, c, m, n, k, a_stride, b_stride, c_stride, {}, {}, {}, {}, {}, {}};
  blocks(task, 16, (kernels == nullptr ? best_kernels() : *kernels).bf16);
}

void matmul_e4m3(const std::uint8_t* a, const std::uint8_t* b, float* c, std::int64_t m, std::int64_t n,
                 std::int64_t k, std::int64_t a_stride, std::int64_t b_stride, std::int64_t c_stride,
                 const DotKernels* kernels) {
  const DotTask<std::uint8_t> task{a, b, c, m, n, k, a_stride, b_stride, c_stride, {}, {}, {}, {}, {}, {}};
  blocks(task, 32, (kernels == nullptr ? best_kernels() : *kernels).e4m3);
}

}  // namespace dsv4::arith::hopper
