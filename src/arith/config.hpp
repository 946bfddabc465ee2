/// What every header of src/arith shares: how its functions are declared on host and device.
///
/// All functions of this folder are pure, allocate nothing and never fail. They are `static inline`, so that
/// an object compiled for a newer instruction set keeps its own copy and never lends it to the rest of a
/// program. They need IEEE float and double with round to nearest, subnormals kept and no contraction
/// (dsv4_strict).
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define DSV4_HD __host__ __device__
#define DSV4_FN __host__ __device__ static __forceinline__
/// For what is rarely called: one copy a translation unit on a device.
#define DSV4_FN_APART __host__ __device__ static __noinline__
#else
#define DSV4_HD
#define DSV4_FN [[gnu::always_inline, maybe_unused]] static inline
#define DSV4_FN_APART DSV4_FN
#endif

#if defined(__FAST_MATH__)
#error "dsv4 arithmetic needs strict IEEE semantics: compile without -ffast-math"
#endif
