/// Models of SGLang's kernels against every recorded launch of them: whole outputs, bytes that the kernel
/// leaves alone included, equal to the bit. Then each model once more on inputs that mean the same in exact
/// arithmetic, or nearly: the recordings must tell the difference.
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "peer/peer_file.hpp"
#include "reference/kernels/sglang_c128.hpp"
#include "reference/kernels/sglang_c128_online.hpp"
#include "reference/kernels/sglang_c4.hpp"
#include "reference/kernels/sglang_norm_rope_store.hpp"
#include "support/catch.hpp"

using namespace dsv4::kernels;
using dsv4::peer::Array;
using dsv4::peer::PeerFile;

namespace {

struct Tally {
  std::int64_t compared = 0;
  std::int64_t differing = 0;

  template <class T>
  void compare(const T* ours, const T* theirs, std::int64_t n) {
    compared += n;
    for (std::int64_t i = 0; i < n; ++i) differing += std::memcmp(ours + i, theirs + i, sizeof(T)) != 0;
  }
  /// One row of the table of `ctest -L peer -V`.
  void print(const std::string& kernel, const std::string& name) const {
    std::printf("%-72s %9ld compared %7ld differ\n", (kernel + " " + name).c_str(), long(compared),
                long(differing));
  }
};

template <class Plan>
std::span<const Plan> plans(const Array& bytes) {
  return {reinterpret_cast<const Plan*>(bytes.bytes.data()), static_cast<std::size_t>(bytes.dim(0))};
}

/// An output before the launch.
Array poisoned(const Array& like, int byte) {
  Array array = like;
  std::fill(array.bytes.begin(), array.bytes.end(), static_cast<std::byte>(byte));
  return array;
}

template <class T>
std::span<T> elements(Array& array) {
  if (sizeof(T) != array.element_bytes) throw std::runtime_error("recorded array read with another width");
  return {reinterpret_cast<T*>(array.bytes.data()), static_cast<std::size_t>(array.elements())};
}

SglangState state_of(Array& buffer, std::int64_t width) {
  if (buffer.element_bytes == 2) return {elements<std::uint16_t>(buffer), width};
  return {elements<float>(buffer), width};
}

/// Inputs of a pooling case, free to be changed before the launch.
struct PoolInputs {
  Array state, input, bias;

  PoolInputs(const PeerFile& file, const std::string& name)
      : state(file.read(name + "/in/kv_score_buffer")),
        input(file.read(name + "/in/kv_score_input")),
        bias(file.read(name + "/in/score_bias")) {}

  /// Exchanges `count` rows at `a` and `b` in each state page and in the bias.
  void exchange(std::int64_t a, std::int64_t b, std::int64_t count) {
    const std::int64_t page_rows = state.dim(1);
    const std::int64_t width = state.dim(2) * static_cast<std::int64_t>(state.element_bytes);
    const auto swap_rows = [](std::byte* x, std::byte* y, std::int64_t n) { std::swap_ranges(x, x + n, y); };
    for (std::int64_t page = 0; page < state.dim(0); ++page) {
      std::byte* rows = state.bytes.data() + page * page_rows * width;
      swap_rows(rows + a * width, rows + b * width, count * width);
    }
    const std::int64_t bias_width = bias.dim(1) * 4;
    for (std::int64_t window = 0; window < bias.dim(0); window += page_rows) {
      std::byte* rows = bias.bytes.data() + window * bias_width;
      swap_rows(rows + a * bias_width, rows + b * bias_width, count * bias_width);
    }
  }
};

using Decode = decltype(&sglang_c4_decode);
using Prefill = decltype(&sglang_c4_prefill);

Tally run_pool(const PeerFile& file, const std::string& name, PoolInputs& in, Decode decode,
               Prefill prefill) {
  const Array recorded = file.read(name + "/out/compressed");
  Array pooled = poisoned(recorded, static_cast<int>(file.number(name, "poison_byte")));
  const std::int64_t d = recorded.dim(1);
  const SglangState state = state_of(in.state, in.input.dim(1));
  float* out = elements<float>(pooled).data();
  if (file.has(name + "/in/plan_d")) {
    const Array plan = file.read(name + "/in/plan_d");
    decode(plans<SglangDecodePlan>(plan), in.input.as<float>(), in.bias.as<float>(), d, state, out);
  } else {
    const Array close = file.read(name + "/in/plan_c");
    const Array write = file.read(name + "/in/plan_w");
    prefill(plans<SglangCompressPlan>(close), plans<SglangWritePlan>(write), in.input.as<float>(),
            in.bias.as<float>(), d, state, out);
  }
  Tally tally;
  tally.compare(pooled.as<std::uint32_t>(), recorded.as<std::uint32_t>(), recorded.elements());
  return tally;
}

void compare_state(Tally& tally, const Array& ours, const Array& theirs) {
  if (ours.element_bytes == 2) {
    tally.compare(ours.as<std::uint16_t>(), theirs.as<std::uint16_t>(), theirs.elements());
  } else {
    tally.compare(ours.as<std::uint32_t>(), theirs.as<std::uint32_t>(), theirs.elements());
  }
}

/// The recorded state after a launch: whole, or the one before with the changed rows put in.
Array state_after(const PeerFile& file, const std::string& name) {
  if (file.has(name + "/out/kv_score_buffer")) return file.read(name + "/out/kv_score_buffer");
  Array state = file.read(name + "/in/kv_score_buffer");
  const Array rows = file.read(name + "/out/changed_rows");
  const Array values = file.read(name + "/out/changed_row_values");
  const std::int64_t width = state.dim(2);
  for (std::int64_t i = 0; i < rows.dim(0); ++i) {
    const std::int32_t* at = rows.as<std::int32_t>() + 2 * i;
    std::copy_n(values.as<float>() + i * width, width,
                elements<float>(state).data() + (at[0] * state.dim(1) + at[1]) * width);
  }
  return state;
}

void check_pool(const char* kernel, Decode decode, Prefill prefill, std::size_t cases) {
  PeerFile file(kernel);
  REQUIRE(file.cases().size() == cases);
  for (const std::string& name : file.cases()) {
    PoolInputs in(file, name);
    Tally tally = run_pool(file, name, in, decode, prefill);
    compare_state(tally, in.state, state_after(file, name));
    tally.print(kernel, name);
    CHECK(tally.differing == 0);
  }
}

struct OnlineInputs {
  Array input, bias;
  OnlineInputs(const PeerFile& file, const std::string& name)
      : input(file.read(name + "/in/kv_score_input")), bias(file.read(name + "/in/score_bias")) {}
};

/// 128 launches of one token; compares the recorded states and the entry.
Tally run_rolling(const PeerFile& file, const OnlineInputs& in) {
  const std::string name = "decode_rolling";
  const auto slot = static_cast<std::int32_t>(file.number(name, "slot"));
  const int poison = static_cast<int>(file.number(name, "poison_byte"));
  const Array recorded = file.read(name + "/out/compressed");
  const std::int64_t d = recorded.dim(1);
  const Array state_end = file.read(name + "/out/state_buffer");
  Array state = poisoned(state_end, poison);
  Array pooled = poisoned(recorded, poison);
  Tally tally;
  for (std::uint32_t step = 0; step < 128; ++step) {
    const SglangDecodePlan plan{step + 1, slot, slot, -1};
    sglang_c128_online_decode({&plan, 1}, in.input.as<float>() + step * 2 * d, in.bias.as<float>(), d,
                              elements<float>(state), elements<float>(pooled).data());
    const std::string after = name + "/out/state_after_step_" + std::to_string(step);
    if (!file.has(after)) continue;
    tally.compare(state.as<std::uint32_t>() + slot * 3 * d, file.read(after).as<std::uint32_t>(), 3 * d);
  }
  tally.compare(pooled.as<std::uint32_t>(), recorded.as<std::uint32_t>(), d);
  tally.compare(state.as<std::uint32_t>(), state_end.as<std::uint32_t>(), state_end.elements());
  return tally;
}

Tally run_segments(const PeerFile& file, const OnlineInputs& in) {
  const std::string name = "prefill";
  const Array recorded = file.read(name + "/out/compressed");
  const Array state_end = file.read(name + "/out/state_buffer");
  Array state = file.read(name + "/in/state_buffer");
  Array pooled = poisoned(recorded, static_cast<int>(file.number(name, "poison_byte")));
  const Array close = file.read(name + "/in/plan_c");
  const Array partial = file.read(name + "/in/plan_w");
  sglang_c128_online_prefill(plans<SglangCompressPlan>(close), plans<SglangCompressPlan>(partial),
                             in.input.as<float>(), in.bias.as<float>(), recorded.dim(1),
                             elements<float>(state), elements<float>(pooled).data());
  Tally tally;
  tally.compare(pooled.as<std::uint32_t>(), recorded.as<std::uint32_t>(), recorded.elements());
  tally.compare(state.as<std::uint32_t>(), state_end.as<std::uint32_t>(), state_end.elements());
  return tally;
}

/// Exchanges steps a and b of one channel-wise input, bias included.
void exchange_steps(OnlineInputs& in, std::int64_t a, std::int64_t b) {
  for (Array* array : {&in.input, &in.bias}) {
    float* rows = elements<float>(*array).data();
    const std::int64_t width = array->dim(1);
    std::swap_ranges(rows + a * width, rows + (a + 1) * width, rows + b * width);
  }
}

struct StoreInputs {
  Array input, weight, freqs, plan, out_loc;
  StoreInputs(const PeerFile& file, const std::string& name)
      : input(file.read(name + "/in/input")),
        weight(file.read(name + "/in/norm_weight")),
        freqs(file.read("shared/freqs_cis")),
        plan(file.read(name + "/in/plan")),
        out_loc(file.read(name + "/in/out_loc")) {}
};

Tally run_store(const PeerFile& file, const std::string& name, const StoreInputs& in) {
  const Array recorded = file.read(name + "/out/kv_cache");
  Array cache = poisoned(recorded, static_cast<int>(file.number(name, "poison_byte")));
  SglangStoreTask task;
  task.ratio = static_cast<std::int64_t>(file.number(name, "compress_ratio"));
  task.rows = in.input.dim(0);
  task.input = in.input.as<float>();
  task.weight = in.weight.as<float>();
  task.eps = static_cast<float>(file.number(name, "eps"));
  task.freqs = in.freqs.as<float>();
  if (name.ends_with("decode")) {
    task.decode = plans<SglangDecodePlan>(in.plan);
  } else {
    task.extend = plans<SglangCompressPlan>(in.plan);
  }
  task.out_loc = in.out_loc.as<std::int64_t>();
  task.cache = cache.bytes;
  task.page_rows = static_cast<std::int64_t>(file.number(name, "page_size"));
  task.page_bytes = recorded.dim(1);
  if (name.starts_with("flashmla")) {
    sglang_norm_rope_store_flashmla(task);
  } else if (name.starts_with("indexer_fp8")) {
    sglang_norm_rope_store_indexer_fp8(task);
  } else {
    sglang_norm_rope_store_indexer_fp4(task);
  }
  Tally tally;
  tally.compare(cache.as<std::uint8_t>(), recorded.as<std::uint8_t>(), recorded.elements());
  return tally;
}

}  // namespace

TEST_CASE("SGLang pooling of ratio 4 equals the recorded kernel") {
  check_pool("sglang_c4", sglang_c4_decode, sglang_c4_prefill, 4);
}

TEST_CASE("SGLang pooling of ratio 128 equals the recorded kernel") {
  check_pool("sglang_c128", sglang_c128_decode, sglang_c128_prefill, 2);
}

TEST_CASE("SGLang's online compressor equals the recorded kernel") {
  PeerFile file("sglang_c128_online");
  REQUIRE(file.cases() == std::vector<std::string>{"decode_rolling", "prefill"});
  const Tally rolling = run_rolling(file, OnlineInputs(file, "decode_rolling"));
  rolling.print("sglang_c128_online", "decode_rolling");
  CHECK(rolling.differing == 0);
  const Tally segments = run_segments(file, OnlineInputs(file, "prefill"));
  segments.print("sglang_c128_online", "prefill");
  CHECK(segments.differing == 0);
}

TEST_CASE("SGLang's norm, RoPE and store equals the recorded kernels") {
  PeerFile file("sglang_norm_rope_store");
  REQUIRE(file.cases().size() == 6);
  for (const std::string& name : file.cases()) {
    const Tally tally = run_store(file, name, StoreInputs(file, name));
    tally.print("sglang_norm_rope_store", name);
    CHECK(tally.differing == 0);
  }
}

TEST_CASE("the recordings tell another order of the rows of a window") {
  // Rows exchanged together with their bias: the same sum, added in another order.
  PeerFile c4("sglang_c4");
  PoolInputs window(c4, "decode_hd512");
  window.exchange(0, 1, 1);
  CHECK(run_pool(c4, "decode_hd512", window, sglang_c4_decode, sglang_c4_prefill).differing > 0);

  // Whole warps exchanged: every chain is the same, the merge adds them elsewhere. Distance 1 in the last
  // exchange of the butterfly would not show: a sum of two commutes.
  PeerFile c128("sglang_c128");
  PoolInputs warps(c128, "decode");
  warps.exchange(0, 16, 8);
  CHECK(run_pool(c128, "decode", warps, sglang_c128_decode, sglang_c128_prefill).differing > 0);

  PeerFile online("sglang_c128_online");
  OnlineInputs steps(online, "decode_rolling");
  exchange_steps(steps, 3, 4);
  CHECK(run_rolling(online, steps).differing > 0);
  OnlineInputs segment(online, "prefill");
  exchange_steps(segment, 3, 12);
  CHECK(run_segments(online, segment).differing > 0);
}

TEST_CASE("the recordings tell a norm weight one step off, and a position one off") {
  PeerFile file("sglang_norm_rope_store");
  for (const std::string name : {"indexer_fp8_decode", "indexer_fp8_extreme"}) {
    StoreInputs in(file, name);
    for (std::uint32_t& bits : elements<std::uint32_t>(in.weight)) ++bits;
    CHECK(run_store(file, name, in).differing > 0);
  }
  for (const std::string name :
       {"flashmla_decode", "flashmla_extend", "indexer_fp4_decode", "indexer_fp4_extend"}) {
    StoreInputs in(file, name);
    const auto table = elements<float>(in.freqs);
    std::rotate(table.begin(), table.begin() + 64, table.end());
    CHECK(run_store(file, name, in).differing > 0);
  }
}
