/// Block products, dot32, Hadamard and selection (docs/numerics.md sections 2, 5, 6, 10, 13).
#pragma once

#include "harness.cuh"

namespace probe {

// ---- data with a wide spread of exponents, so that every change of order shows

inline float spread(std::uint32_t i, std::uint32_t stream) {
  const auto w = arith::philox4x32_10({i / 2, stream, 0, 0}, {7, 11});
  const std::uint32_t bits = w[2 * (i % 2)];
  return arith::from_bits((bits & 0x807FFFFFU) | (120U + (w[2 * (i % 2) + 1] % 12U)) << 23);
}
inline float bf16_spread(std::uint32_t i, std::uint32_t stream) {
  return arith::bf16_to_f32(arith::f32_to_bf16(spread(i, stream)));
}
template <class T>
T* to_device(const std::vector<T>& values) {
  T* pointer = nullptr;
  check(cudaMalloc(&pointer, values.size() * sizeof(T)), "allocate");
  check(cudaMemcpy(pointer, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "copy");
  return pointer;
}

// ---- section 6: block product. W is stored [k][n] here so that both sides read it in rows.

constexpr int kTile = 64;
__global__ void product_kernel(const float* x, const float* w, const float* sx, const float* sw, int m, int n,
                               int k, u64* digest) {
  __shared__ float xs[16][kTile + 1];
  __shared__ float ws[16][kTile];
  const int row0 = blockIdx.y * kTile;
  const int column0 = blockIdx.x * kTile;
  const int ty = threadIdx.x / 16;
  const int tx = threadIdx.x % 16;
  float out[4][4] = {};
  for (int block = 0; block * 128 < k; ++block) {
    float b[4][4] = {};
    const int end = min(k, block * 128 + 128);
    for (int k0 = block * 128; k0 < end; k0 += 16) {
      for (int i = threadIdx.x; i < 16 * kTile; i += 256) {
        const int kk = k0 + i / kTile;
        ws[i / kTile][i % kTile] =
            kk < end ? w[static_cast<std::size_t>(kk) * n + column0 + i % kTile] : 0.0F;
        const int kx = k0 + i % 16;
        xs[i % 16][i / 16] = kx < end ? x[static_cast<std::size_t>(row0 + i / 16) * k + kx] : 0.0F;
      }
      __syncthreads();
      const int count = min(16, end - k0);
      for (int kk = 0; kk < count; ++kk) {
        for (int i = 0; i < 4; ++i) {
          for (int j = 0; j < 4; ++j) {
            b[i][j] = arith::fma(xs[kk][ty * 4 + i], ws[kk][tx + 16 * j], b[i][j]);
          }
        }
      }
      __syncthreads();
    }
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) {
        const int row = row0 + ty * 4 + i;
        const int column = column0 + tx + 16 * j;
        const float s = sx[block * m + row] * sw[block * ((n + 127) / 128) + column / 128];
        out[i][j] = arith::fma(s, b[i][j], out[i][j]);
      }
    }
  }
  u64 part = 0;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const int row = row0 + ty * 4 + i;
      const int column = column0 + tx + 16 * j;
      part += mix(static_cast<u64>(row) * n + column, canonical(out[i][j]));
    }
  }
  add_to(digest, part);
}

inline void product(const char* name, int m, int n, int k, bool fp8) {
  const int blocks = (k + 127) / 128;
  const int column_blocks = (n + 127) / 128;
  std::vector<float> x(static_cast<std::size_t>(m) * k), w(static_cast<std::size_t>(k) * n);
  std::vector<float> sx(static_cast<std::size_t>(blocks) * m, 1.0F);
  std::vector<float> sw(static_cast<std::size_t>(blocks) * column_blocks, 1.0F);
  const auto operand = [&](std::uint32_t i, std::uint32_t stream) {
    return fp8 ? arith::e4m3_to_f32(arith::f32_to_e4m3(spread(i, stream))) : bf16_spread(i, stream);
  };
#pragma omp parallel for
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(x.size()); ++i)
    x[i] = operand(static_cast<std::uint32_t>(i), 1);
#pragma omp parallel for
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(w.size()); ++i)
    w[i] = operand(static_cast<std::uint32_t>(i), 2);
  if (fp8) {
    for (std::size_t i = 0; i < sx.size(); ++i)
      sx[i] = arith::ue8m0_to_f32(static_cast<std::uint8_t>(120 + i % 9));
    for (std::size_t i = 0; i < sw.size(); ++i)
      sw[i] = arith::ue8m0_to_f32(static_cast<std::uint8_t>(121 + i % 7));
  }
  const Timer timer;
  u64 host = 0;
#pragma omp parallel for reduction(+ : host)
  for (int row = 0; row < m; ++row) {
    std::vector<float> out(n, 0.0F), b(n);
    for (int block = 0; block < blocks; ++block) {
      std::fill(b.begin(), b.end(), 0.0F);
      for (int kk = block * 128; kk < std::min(k, block * 128 + 128); ++kk) {
        const float value = x[static_cast<std::size_t>(row) * k + kk];
        const float* line = &w[static_cast<std::size_t>(kk) * n];
        float* sum = b.data();
        for (int column = 0; column < n; ++column) sum[column] = arith::fma(value, line[column], sum[column]);
      }
      for (int column = 0; column < n; ++column) {
        const float s = sx[static_cast<std::size_t>(block) * m + row] *
                        sw[static_cast<std::size_t>(block) * column_blocks + column / 128];
        out[column] = arith::fma(s, b[column], out[column]);
      }
    }
    for (int column = 0; column < n; ++column)
      host += mix(static_cast<u64>(row) * n + column, canonical(out[column]));
  }
  const double host_s = timer.seconds();
  float* dx = to_device(x);
  float* dw = to_device(w);
  float* dsx = to_device(sx);
  float* dsw = to_device(sw);
  const auto launch = [&] {
    product_kernel<<<dim3(n / kTile, m / kTile), 256>>>(dx, dw, dsx, dsw, m, n, k, device_digest);
  };
  timed(launch);
  begin();
  const double device_s = timed(launch);
  report(name, static_cast<double>(m) * n * k, "fma", host, host_s, fetch(), device_s);
  for (float* p : {dx, dw, dsx, dsw}) cudaFree(p);
}

// ---- section 5: dot32, literally and with lanes in bit-reversed order over a carry stack

DSV4_HD inline float dot32_literal(const float* x, const float* y, int n) {
  float a[32];
  for (int lane = 0; lane < 32; ++lane) a[lane] = 0.0F;
  for (int i = 0; i < n; ++i) a[i % 32] = arith::fma(x[i], y[i], a[i % 32]);
  for (int s = 16; s > 0; s /= 2) {
    for (int lane = 0; lane < s; ++lane) a[lane] = a[lane] + a[lane + s];
  }
  return a[0];
}
template <int kStride>
__device__ inline float dot32_carry(const float* x, const float* y, int n) {
  float stack[6];
#pragma unroll
  for (int t = 0; t < 32; ++t) {
    const int lane = ((t & 1) << 4) | ((t & 2) << 2) | (t & 4) | ((t & 8) >> 2) | ((t & 16) >> 4);
    float s = 0.0F;
    for (int i = lane; i < n; i += 32) s = arith::fma(x[i], y[static_cast<std::size_t>(i) * kStride], s);
    int level = 0;
#pragma unroll
    for (int done = t + 1; done % 2 == 0; done /= 2) s = stack[level++] + s;
    stack[level] = s;
  }
  return stack[5];
}
constexpr int kQueries = 64;
constexpr int kKeys = 32768;
__global__ void dot_literal_kernel(const float* q, const float* keys, int n, u64* digest) {
  const int key = blockIdx.x * blockDim.x + threadIdx.x;
  u64 part = 0;
  for (int i = blockIdx.y; i < kQueries; i += gridDim.y) {
    part += mix(static_cast<u64>(i) * kKeys + key,
                canonical(dot32_literal(q + i * n, keys + static_cast<std::size_t>(key) * n, n)));
  }
  add_to(digest, part);
}
__global__ void dot_carry_kernel(const float* q, const float* keys_by_column, int n, u64* digest) {
  const int key = blockIdx.x * blockDim.x + threadIdx.x;
  u64 part = 0;
  for (int i = blockIdx.y; i < kQueries; i += gridDim.y) {
    part += mix(static_cast<u64>(i) * kKeys + key,
                canonical(dot32_carry<kKeys>(q + i * n, keys_by_column + key, n)));
  }
  add_to(digest, part);
}
inline void dots(const char* literal_name, const char* carry_name, int n) {
  std::vector<float> q(static_cast<std::size_t>(kQueries) * n), keys(static_cast<std::size_t>(kKeys) * n),
      turned(keys.size());
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = bf16_spread(static_cast<std::uint32_t>(i), 3);
#pragma omp parallel for
  for (int key = 0; key < kKeys; ++key) {
    for (int i = 0; i < n; ++i) {
      const std::size_t at = static_cast<std::size_t>(key) * n + i;
      keys[at] = bf16_spread(static_cast<std::uint32_t>(at), 4);
      turned[static_cast<std::size_t>(i) * kKeys + key] = keys[at];
    }
  }
  const Timer timer;
  u64 host = 0;
#pragma omp parallel for reduction(+ : host)
  for (int key = 0; key < kKeys; ++key) {
    for (int i = 0; i < kQueries; ++i) {
      host += mix(static_cast<u64>(i) * kKeys + key,
                  canonical(dot32_literal(&q[static_cast<std::size_t>(i) * n],
                                          &keys[static_cast<std::size_t>(key) * n], n)));
    }
  }
  const double host_s = timer.seconds();
  float* dq = to_device(q);
  float* dk = to_device(keys);
  float* dt = to_device(turned);
  const double work = static_cast<double>(kQueries) * kKeys * n;
  begin();
  const double literal_s =
      timed([&] { dot_literal_kernel<<<dim3(kKeys / 128, 8), 128>>>(dq, dk, n, device_digest); });
  report(literal_name, work, "fma", host, host_s, fetch(), literal_s);
  timed([&] { dot_carry_kernel<<<dim3(kKeys / 128, 8), 128>>>(dq, dt, n, device_digest); });
  begin();
  const double carry_s =
      timed([&] { dot_carry_kernel<<<dim3(kKeys / 128, 8), 128>>>(dq, dt, n, device_digest); });
  report(carry_name, work, "fma", host, host_s, fetch(), carry_s);
  for (float* p : {dq, dk, dt}) cudaFree(p);
}

// ---- section 10: Hadamard; the host walks the definition, the device gives a warp a row and shuffles

constexpr int kRows = 1 << 18;
__global__ void hadamard_kernel(const float* rows, u64* digest) {
  const int lane = threadIdx.x % 32;
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  float v[4];  // dims 4 * lane + j
  for (int j = 0; j < 4; ++j) v[j] = rows[static_cast<std::size_t>(row) * 128 + 4 * lane + j];
  const float a0 = v[0] + v[1], a1 = v[0] - v[1], a2 = v[2] + v[3], a3 = v[2] - v[3];
  v[0] = a0 + a2;
  v[1] = a1 + a3;
  v[2] = a0 - a2;
  v[3] = a1 - a3;
  for (int h = 1; h < 32; h *= 2) {
    for (int j = 0; j < 4; ++j) {
      const float other = __shfl_xor_sync(0xFFFFFFFFU, v[j], h);
      v[j] = (lane & h) == 0 ? v[j] + other : other - v[j];
    }
  }
  u64 part = 0;
  const float scale = arith::from_bits(0x3DB504F3U);
  for (int j = 0; j < 4; ++j) {
    part += mix(static_cast<u64>(row) * 128 + 4 * lane + j, arith::f32_to_bf16(v[j] * scale));
  }
  add_to(digest, part);
}
inline void hadamard() {
  std::vector<float> rows(static_cast<std::size_t>(kRows) * 128);
#pragma omp parallel for
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(rows.size()); ++i)
    rows[i] = bf16_spread(static_cast<std::uint32_t>(i), 5);
  const Timer timer;
  u64 host = 0;
#pragma omp parallel for reduction(+ : host)
  for (int row = 0; row < kRows; ++row) {
    float v[128];
    for (int i = 0; i < 128; ++i) v[i] = rows[static_cast<std::size_t>(row) * 128 + i];
    for (int h = 1; h < 128; h *= 2) {
      for (int i = 0; i < 128; ++i) {
        if ((i & h) != 0) continue;
        const float a = v[i], b = v[i + h];
        v[i] = a + b;
        v[i + h] = a - b;
      }
    }
    for (int i = 0; i < 128; ++i)
      host += mix(static_cast<u64>(row) * 128 + i, arith::f32_to_bf16(v[i] * arith::from_bits(0x3DB504F3U)));
  }
  const double host_s = timer.seconds();
  float* device_rows = to_device(rows);
  timed([&] { hadamard_kernel<<<kRows / 8, 256>>>(device_rows, device_digest); });
  begin();
  const double device_s = timed([&] { hadamard_kernel<<<kRows / 8, 256>>>(device_rows, device_digest); });
  report("Hadamard 128", kRows, "rows", host, host_s, fetch(), device_s);
  cudaFree(device_rows);
}

// ---- sections 2 and 13: selection. Host: sort by the order as written. Device: rank by integer keys.

constexpr int kLists = 512;
constexpr int kVisible = 4096;
constexpr int kTop = 512;
__global__ void select_kernel(const float* scores, u64* digest) {
  __shared__ u64 keys[kVisible];
  __shared__ unsigned char taken[kVisible];
  const float* list = scores + static_cast<std::size_t>(blockIdx.x) * kVisible;
  for (int i = threadIdx.x; i < kVisible; i += blockDim.x) {
    std::uint32_t bits = arith::to_bits(list[i]);
    std::uint32_t order;
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
      order = 0U;
    } else {
      if (bits == 0x80000000U) bits = 0U;
      order = (bits & 0x80000000U) != 0U ? ~bits : bits | 0x80000000U;
    }
    keys[i] = static_cast<u64>(order) << 32 | (0xFFFFFFFFU - static_cast<std::uint32_t>(i));
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kVisible; i += blockDim.x) {
    const u64 mine = keys[i];
    int before = 0;
    for (int j = 0; j < kVisible; ++j) before += keys[j] > mine;
    taken[i] = before < kTop;
  }
  __syncthreads();
  u64 part = 0;
  for (int i = threadIdx.x; i < kVisible; i += blockDim.x) {
    if (taken[i] == 0) continue;
    int place = 0;
    for (int j = 0; j < i; ++j) place += taken[j];
    part += mix(static_cast<u64>(blockIdx.x) * kTop + place, static_cast<std::uint32_t>(i));
  }
  add_to(digest, part);
}
inline void selection() {
  std::vector<float> scores(static_cast<std::size_t>(kLists) * kVisible);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const auto w = arith::philox4x32_10({static_cast<std::uint32_t>(i), 9, 0, 0}, {1, 1});
    float value = static_cast<float>(static_cast<int>(w[0] % 4001U) - 2000) * 0.125F;  // many ties
    if (w[1] % 50U == 0U) value = (w[1] & 64U) != 0U ? 0.0F : -0.0F;
    if (w[2] % 97U == 0U) value = arith::from_bits(0xFF800000U);
    // Some lists are mostly NaN and -inf, so that both are selected.
    if (w[3] % 101U == 0U || (i / kVisible % 4 == 3 && w[3] % 16U != 0U))
      value = arith::from_bits((w[3] & 128U) != 0U ? 0x7FC00000U : 0xFF800000U);
    scores[i] = value;
  }
  const Timer timer;
  u64 host = 0;
#pragma omp parallel for reduction(+ : host)
  for (int list = 0; list < kLists; ++list) {
    const float* s = &scores[static_cast<std::size_t>(list) * kVisible];
    std::vector<int> order(kVisible);
    for (int i = 0; i < kVisible; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      const bool nan_a = s[a] != s[a], nan_b = s[b] != s[b];
      if (nan_a || nan_b) return !nan_a && nan_b;
      return s[a] > s[b];
    });
    std::sort(order.begin(), order.begin() + kTop);
    for (int i = 0; i < kTop; ++i)
      host += mix(static_cast<u64>(list) * kTop + i, static_cast<std::uint32_t>(order[i]));
  }
  const double host_s = timer.seconds();
  float* device_scores = to_device(scores);
  timed([&] { select_kernel<<<kLists, 1024>>>(device_scores, device_digest); });
  begin();
  const double device_s = timed([&] { select_kernel<<<kLists, 1024>>>(device_scores, device_digest); });
  report("top 512 of 4096", kLists, "lists", host, host_s, fetch(), device_s);
  cudaFree(device_scores);
}

}  // namespace probe
