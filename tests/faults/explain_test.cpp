// What explain says of faults that were planted by hand. The expected names come from what was planted.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>

#include "faults/planted.hpp"
#include "oracle/slots.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::test;
using oracle::explain::Evidence;
using oracle::explain::Explanation;
using Outcome = oracle::explain::Explanation::Outcome;

namespace {

const char* const kTwoSteps = "  - prefill: {request: a, tokens: 8}\n  - prefill: {request: a, tokens: 4}\n";

Tensor& of(StepObservation& step, TensorId id) {
  return step.layers.at(0).tensors.at(id);
}

/// The difference is read, and this is what it says first.
void check_read(const Explanation& all, const std::string& stage, const std::string& reading, bool alone) {
  INFO(all.sentence);
  REQUIRE(all.first);
  CHECK(all.first->stage == stage);
  CHECK(all.outcome == Outcome::read);
  REQUIRE(all.certain_reading() != nullptr);
  CHECK(all.certain_reading()->reading.name == reading);
  CHECK(all.reproducing().empty());
  if (!alone) return;
  REQUIRE(all.isolation);
  CHECK(all.isolation->total > 0);
}

std::set<std::string> names_of(const Explanation& all) {
  std::set<std::string> names;
  for (const Evidence* one : all.reproducing()) names.insert(one->candidate.name);
  return names;
}

/// One fault is named with certainty.
void check_named(const Explanation& all, const std::string& stage, const std::string& name) {
  INFO(all.sentence);
  REQUIRE(all.first);
  CHECK(all.first->stage == stage);
  CHECK(all.outcome == Outcome::explained);
  CHECK(names_of(all) == std::set<std::string>{name});
  CHECK(all.sentence.find(name) != std::string::npos);
}

float widened(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, 4);
  return value;
}

std::uint16_t nearest_bf16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  const std::uint32_t low = bits & 0xFFFFU;
  std::uint32_t high = bits >> 16;
  if (low > 0x8000U || (low == 0x8000U && (high & 1U) != 0)) ++high;
  return static_cast<std::uint16_t>(high);
}

/// Base 10000 without YaRN, as docs/numerics.md 9 has it; sine and cosine by the C library in long double.
std::array<float, 32> angles_of(std::int64_t position) {
  double t = 10000.0;
  for (int i = 0; i < 5; ++i) t = std::sqrt(t);
  double power = 1;
  std::array<float, 32> angles{};
  for (float& angle : angles) {
    angle = static_cast<float>(position) * (1.0F / static_cast<float>(power));
    power *= t;
  }
  return angles;
}

/// 64 values turned, pair i being lanes first(i) and second(i).
template <class First, class Second>
void turn(std::uint16_t* row, std::int64_t position, double sign, const First& first, const Second& second) {
  const std::array<float, 32> angles = angles_of(position);
  for (int i = 0; i < 32; ++i) {
    const auto c = static_cast<float>(cosl(angles[static_cast<std::size_t>(i)]));
    const auto s = static_cast<float>(sign) * static_cast<float>(sinl(angles[static_cast<std::size_t>(i)]));
    const float even = widened(row[first(i)]);
    const float odd = widened(row[second(i)]);
    row[first(i)] = nearest_bf16(std::fma(even, c, -(odd * s)));
    row[second(i)] = nearest_bf16(std::fma(odd, c, even * s));
  }
}

/// Pools 12 positions of one chunk by a literal loop; swapped: which columns a group is pooled by.
void pool_again(const Planted& planted, const StageCall& call, bool swapped) {
  const Tensor& kv = *call.engine.tensor(call.layer, TensorId::compress_kv);
  const Tensor& score = *call.engine.tensor(call.layer, TensorId::compress_score);
  const std::vector<float> ape = planted.weights().layer(call.layer)->compressor.ape;
  Tensor pooled = *call.engine.tensor(call.layer, TensorId::compress_pooled);
  for (int entry = 0; entry < 3; ++entry) {
    for (int channel = 0; channel < 512; ++channel) {
      std::vector<float> s;
      std::vector<float> v;
      for (int p = std::max(0, 4 * entry - 4); p < 4 * entry + 4; ++p) {
        const int column = ((p >= 4 * entry) != swapped ? 512 : 0) + channel;
        s.push_back(score.as<float>()[p * 1024 + column] +
                    ape[static_cast<std::size_t>(p % 4 * 1024 + column)]);
        v.push_back(kv.as<float>()[p * 1024 + column]);
      }
      const float most = *std::ranges::max_element(s);
      float den = 0;
      float acc = 0;
      for (std::size_t i = 0; i < s.size(); ++i) {
        const auto e = static_cast<float>(expl(static_cast<long double>(s[i] - most)));
        den = den + e;
        acc = std::fma(e, v[i], acc);
      }
      pooled.as<float>()[entry * 512 + channel] = acc / den;
    }
  }
  call.engine.set_tensor(call.layer, TensorId::compress_pooled, std::move(pooled));
}

/// Full windows of tokens 127 .. 129 lose their oldest key.
void drop_oldest_key(const StageCall& call) {
  for (const TensorId id : {TensorId::window_slots, TensorId::window_logical}) {
    Tensor list = *call.engine.tensor(0, id);
    for (std::int64_t token = 127; token < 130; ++token) {
      std::int32_t* const row = list.as<std::int32_t>().data() + token * 128;
      std::copy(row + 1, row + 128, row);
      row[127] = -1;
    }
    call.engine.set_tensor(0, id, std::move(list));
  }
  Tensor length = *call.engine.tensor(0, TensorId::window_length);
  for (int token = 127; token < 130; ++token) length.as<std::int32_t>()[token] = 127;
  call.engine.set_tensor(0, TensorId::window_length, std::move(length));
}

}  // namespace

TEST_CASE("nothing differs: nothing is explained") {
  const Explanation all = Planted("csa", kTwoSteps).dump([](auto&) {});
  CHECK(all.outcome == Outcome::no_difference);
  CHECK_FALSE(all.first);
  CHECK(all.tried == 0);
  CHECK(all.sentence.starts_with("Nothing differs"));
}

TEST_CASE("dump: halves of the codes of page rows exchanged") {
  const Explanation all = Planted("swa", kTwoSteps).dump([](std::vector<StepObservation>& steps) {
    Tensor& rows = of(steps[1], TensorId::window_page_bytes);
    for (std::int64_t row = 0; row < rows.dim(0); ++row) {
      for (std::int64_t i = 0; i < 224; ++i)
        std::swap(rows.as<std::uint8_t>()[row * 584 + i], rows.as<std::uint8_t>()[row * 584 + 224 + i]);
    }
  });
  check_read(all, "kv.window", "halves_swapped", false);
  CHECK(all.first->step == 1);
}

TEST_CASE("dump: scale bytes one too large") {
  const Explanation all = Planted("swa", kTwoSteps).dump([](std::vector<StepObservation>& steps) {
    for (std::uint8_t& scale : of(steps[0], TensorId::window_scales).as<std::uint8_t>()) ++scale;
  });
  check_read(all, "kv.window", "scale", true);
  CHECK(all.certain_reading()->reading.sentence.find("2^1") != std::string::npos);
}

TEST_CASE("dump: the pool of the step before") {
  const Explanation all =
      Planted("csa", "  - prefill: {request: a, tokens: 4}\n  - prefill: {request: a, tokens: 4}\n")
          .dump([](std::vector<StepObservation>& steps) {
            of(steps[1], TensorId::compress_pooled) = of(steps[0], TensorId::compress_pooled);
          });
  check_read(all, "compress.pool", "previous_step", true);
}

TEST_CASE("dump: every slot of the window lists one further on") {
  const Explanation all = Planted("swa", kTwoSteps).dump([](std::vector<StepObservation>& steps) {
    for (StepObservation& step : steps) {
      for (std::int32_t& slot : of(step, TensorId::window_slots).as<std::int32_t>())
        slot += slot >= 0 ? 1 : 0;
    }
  });
  check_read(all, "attention.lists", "offset", true);
}

TEST_CASE("dump: q rotated by halves instead of neighbours, and to the other side") {
  const auto with = [](double sign, bool by_halves) {
    return Planted("swa", kTwoSteps).dump([=](std::vector<StepObservation>& steps) {
      for (StepObservation& step : steps) {
        const Tensor before = of(step, TensorId::q_normed);
        Tensor& q = of(step, TensorId::q);
        for (std::int64_t token = 0; token < q.dim(0); ++token) {
          const std::int64_t position =
              step.batch.position.as<std::int32_t>()[static_cast<std::size_t>(token)];
          for (std::int64_t head = 0; head < q.dim(1); ++head) {
            const std::int64_t at = (token * q.dim(1) + head) * 512 + 448;
            std::uint16_t* const row = q.as<std::uint16_t>().data() + at;
            std::copy_n(before.as<std::uint16_t>().data() + at, 64, row);
            if (by_halves)
              turn(
                  row, position, sign, [](int i) { return i; }, [](int i) { return i + 32; });
            else
              turn(
                  row, position, sign, [](int i) { return 2 * i; }, [](int i) { return 2 * i + 1; });
          }
        }
      }
    });
  };
  // Rotated as it must be, by this loop: the loop is right.
  CHECK(with(1, false).outcome == Outcome::no_difference);
  check_read(with(1, true), "q.up", "rope_half_split", true);
  check_read(with(-1, false), "q.up", "rope_sign", true);
}

TEST_CASE("dump: lanes of q stored in the order of the other pairing") {
  const Explanation all = Planted("swa", kTwoSteps).dump([](std::vector<StepObservation>& steps) {
    Tensor& q = of(steps[0], TensorId::q);
    const Tensor right = q;
    for (std::int64_t unit = 0; unit < q.dim(0) * q.dim(1); ++unit) {
      for (int i = 0; i < 32; ++i) {
        q.as<std::uint16_t>()[unit * 512 + 448 + i] = right.as<std::uint16_t>()[unit * 512 + 448 + 2 * i];
        q.as<std::uint16_t>()[unit * 512 + 480 + i] = right.as<std::uint16_t>()[unit * 512 + 449 + 2 * i];
      }
    }
  });
  check_read(all, "q.up", "pairs_as_halves", true);
}

TEST_CASE("dump: an entry in the slot behind its own; memory alone shows it") {
  const Explanation all = Planted("csa", kTwoSteps, "cache: {c4_page: 4}\n")
                              .dump(
                                  [](std::vector<StepObservation>& steps) {
                                    // Page 1 holds entries 0 to 2; the last of them goes into slot 3.
                                    Tensor& pages = steps[1].layers[0].state_tensors.at("compressed_pages");
                                    const std::int64_t pitch = pages.dim(1);
                                    std::uint8_t* const page = pages.as<std::uint8_t>().data() + pitch;
                                    std::copy_n(page + 2 * 576, 576, page + 3 * 576);
                                    std::copy_n(page + 4 * 576 + 2 * 8, 8, page + 4 * 576 + 3 * 8);
                                  },
                                  true);
  check_read(all, "state", "neighbouring_slot", false);
  CHECK(all.first->tensor == "compressed_pages");
}

TEST_CASE("dump: heads of the output transposed with its lanes") {
  const Explanation all = Planted("swa", kTwoSteps).dump([](std::vector<StepObservation>& steps) {
    Tensor& out = of(steps[1], TensorId::attention_out);
    const Tensor right = out;
    const std::int64_t heads = out.dim(1);
    for (std::int64_t token = 0; token < out.dim(0); ++token) {
      for (std::int64_t head = 0; head < heads; ++head) {
        for (std::int64_t lane = 0; lane < 512; ++lane)
          out.as<std::uint16_t>()[token * heads * 512 + lane * heads + head] =
              right.as<std::uint16_t>()[(token * heads + head) * 512 + lane];
      }
    }
  });
  check_read(all, "attention.core", "transposed_heads", true);
}

TEST_CASE("dump: noise is not explained, and nothing is named") {
  const Explanation all = Planted("csa", kTwoSteps).dump([](std::vector<StepObservation>& steps) {
    std::uint32_t x = 12345;
    for (float& value : of(steps[0], TensorId::compress_pooled).as<float>()) {
      x = x * 1664525U + 1013904223U;
      value *= 1.0F + static_cast<float>(x >> 8U) * 0x1p-26F;
    }
  });
  INFO(all.sentence);
  CHECK(all.outcome == Outcome::unexplained);
  CHECK(all.reproducing().empty());
  REQUIRE(all.isolation);
  CHECK(all.isolation->equal < all.isolation->total);  // what was made of it was not changed
}

TEST_CASE(
    "dump: padding rows and spare bytes differ, and nothing else: that is said, and nothing is explained") {
  const Explanation all = Planted("swa", "  - batch: [{prefill: {request: a, tokens: 3}}, {pad: 2}]\n")
                              .dump([](std::vector<StepObservation>& steps) {
                                Tensor& q = of(steps[0], TensorId::q);
                                const std::int64_t width = q.row_elements();
                                for (std::int64_t i = 3 * width; i < 5 * width; ++i)
                                  q.as<std::uint16_t>()[i] = 0x4000;
                                of(steps[0], TensorId::window_page_bytes).as<std::uint8_t>()[583] ^= 0xA5;
                              });
  INFO(all.sentence);
  CHECK(all.outcome == Outcome::no_difference);
  CHECK(all.dont_care > 2);
  CHECK(all.sentence.find("no rule judges") != std::string::npos);
}

TEST_CASE("dump: sums in another order are told as such, by nobody's name") {
  const Explanation all = Planted("swa", kTwoSteps).dump([](std::vector<StepObservation>& steps) {
    // Every other element goes one step up, every fifth one down.
    Tensor& lse = of(steps[0], TensorId::attention_lse);
    for (std::int64_t i = 0; i < lse.elements(); ++i) {
      float& value = lse.as<float>()[i];
      value = i % 2 == 0 ? std::nextafter(value, 1e9F) : i % 5 == 0 ? std::nextafter(value, -1e9F) : value;
    }
  });
  check_read(all, "attention.core", "one_step", true);
  CHECK(
      std::ranges::any_of(all.readings, [](const auto& one) { return one.reading.name == "ordering_only"; }));
}

TEST_CASE("one name is certain only where all was tried and enough differs") {
  Explanation explanation;
  explanation.outcome = Outcome::explained;
  explanation.differing = 8;
  CHECK(explanation.certain());
  explanation.left_out = 1;
  CHECK_FALSE(explanation.certain());
  explanation.left_out = 0;
  explanation.differing = 7;
  CHECK_FALSE(explanation.certain());
}

TEST_CASE("engine: the overlap's halves exchanged by a literal loop") {
  const Planted planted("csa", "  - prefill: {request: a, tokens: 12}\n");
  const auto run = [&](bool swapped) {
    return planted.stage(Stage::compress_pool,
                         [&](const StageCall& call) { pool_again(planted, call, swapped); });
  };
  CHECK(run(false).outcome == Outcome::no_difference);
  check_named(run(true), "compress.pool", "pool-halves-swapped");
}

TEST_CASE("engine: a fault of the second of two such layers is named with its layer") {
  const Planted planted("csa, csa", "  - prefill: {request: a, tokens: 12}\n");
  const Explanation all = planted.stage(Stage::compress_pool, [&](const StageCall& call) {
    if (call.layer == 1) pool_again(planted, call, true);
  });
  check_named(all, "compress.pool", "pool-halves-swapped in layer 1 alone");
  CHECK(all.first->layer == 1);
}

TEST_CASE("engine: compressor state rounded to bf16 where it lies") {
  const Explanation all =
      Planted("hca", "  - prefill: {request: a, tokens: 100}\n  - prefill: {request: a, tokens: 30}\n")
          .stage(Stage::compress_state, [](const StageCall& call) {
            for (const TensorId id : {TensorId::compress_state_kv, TensorId::compress_state_score}) {
              Tensor rows = *call.engine.tensor(0, id);
              for (float& value : rows.as<float>()) value = widened(nearest_bf16(value));
              call.engine.set_tensor(0, id, std::move(rows));
            }
            std::vector<Write> writes(call.engine.writes(0).begin(), call.engine.writes(0).end());
            std::erase_if(writes, [](const Write& write) { return write.cache != Cache::state; });
            for (Write& write : writes) {
              for (std::size_t at = 0; at < write.bytes.size(); at += 4) {
                float value = 0;
                std::memcpy(&value, write.bytes.data() + at, 4);
                value = widened(nearest_bf16(value));
                std::memcpy(write.bytes.data() + at, &value, 4);
              }
            }
            call.engine.apply_writes(0, writes);
          });
  check_named(all, "compress.state", "state-in-bf16");
}

TEST_CASE("engine: the window one key short") {
  const Explanation all =
      Planted("swa", "  - prefill: {request: a, tokens: 130}\n").stage(Stage::attention_lists, drop_oldest_key);
  check_named(all, "attention.lists", "window-width");
}

TEST_CASE("engine: attention reads the query of the step before") {
  std::optional<Tensor> kept;
  const Explanation all =
      Planted("swa", "  - prefill: {request: a, tokens: 3}\n  - decode: {requests: [a], repeat: 3}\n")
          .wrapped(Stage::attention_core, [&](const StageFunction& inner, const StageCall& call) {
            const Tensor fresh = *call.engine.tensor(0, TensorId::q);
            const bool stale = kept && kept->shape() == fresh.shape();
            if (stale) call.engine.set_tensor(0, TensorId::q, *kept);
            inner(call);
            call.engine.set_tensor(0, TensorId::q, fresh);
            kept = fresh;
          });
  check_named(all, "attention.core", "stale-input");
  CHECK(all.first->step == 2);
}

TEST_CASE(
    "engine: a rotation that an axis leaves out is what the fault leaves out: both are named, none alone") {
  Profile profile;
  profile.set("index_rotation", "none");
  const Explanation all = Planted("csa", kTwoSteps).profile(profile);
  INFO(all.sentence);
  CHECK(all.outcome == Outcome::ambiguous);
  CHECK(names_of(all) == std::set<std::string>{"hadamard-dropped-on-both", "index_rotation=none"});
}

TEST_CASE("engine: three axes at once are found one after the other; a profile is named as a whole") {
  Profile profile;
  profile.set("q_rope_input", "f32");
  profile.set("pooled_rounding", "f32");
  profile.set("softmax", "online64_bf16_p");
  const Explanation all = Planted("csa", kTwoSteps).profile(profile);
  INFO(all.sentence);
  REQUIRE(all.outcome == Outcome::explained);
  const std::string name = all.reproducing().front()->candidate.name;
  for (const char* const axis : {"q_rope_input=f32", "pooled_rounding=f32", "softmax=online64_bf16_p"})
    CHECK(name.find(axis) != std::string::npos);
  const Explanation whole = Planted("csa", kTwoSteps).profile(profile_named("sglang-fp8"));
  INFO(whole.sentence);
  CHECK(names_of(whole) == std::set<std::string>{"sglang-fp8"});
}

TEST_CASE("engine: a known fault and another one behind it is not put down to the known one") {
  const Planted planted("swa", "  - prefill: {request: a, tokens: 130}\n");
  const Explanation all = planted.stage(Stage::attention_lists, [](const StageCall& call) {
    drop_oldest_key(call);
    // And the first query is wrong from here on.
    Tensor q = *call.engine.tensor(0, TensorId::q);
    q.as<std::uint16_t>()[3] ^= 0x40;
    call.engine.set_tensor(0, TensorId::q, std::move(q));
  });
  INFO(all.sentence);
  CHECK(all.reproducing().empty());
}
