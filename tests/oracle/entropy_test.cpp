// Softmax entropy against a literal computation from the published rows, without pages and lists.
#include <cmath>

#include "arith/bf16.hpp"
#include "arith/e4m3.hpp"
#include "arith/ue8m0.hpp"
#include "oracle/attention_entropy.hpp"
#include "oracle/support.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::oracle;

namespace {

const Tensor& tensor(const StepObservation& step, TensorId id) {
  return step.layers[0].tensors.at(id);
}

double key(const StepObservation& step, std::size_t token, std::size_t dim) {
  if (dim >= 448)
    return arith::bf16_to_f32(
        tensor(step, TensorId::window_rope).as<std::uint16_t>()[token * 64 + dim - 448]);
  const std::uint8_t code = tensor(step, TensorId::window_codes).as<std::uint8_t>()[token * 448 + dim];
  const std::uint8_t scale = tensor(step, TensorId::window_scales).as<std::uint8_t>()[token * 7 + dim / 64];
  return static_cast<double>(arith::e4m3_to_f32(code)) * static_cast<double>(arith::ue8m0_to_f32(scale));
}

}  // namespace

TEST_CASE("softmax entropy equals the literal one, and its sum of exponentials the published lse") {
  constexpr std::size_t kTokens = 5;
  const RunPlan plan = test::plan_of("swa", "  - prefill: {request: a, tokens: 5}\n");
  const auto engine = test::engine_of(plan);
  const StepObservation step = test::run_all(*engine, plan).front();
  const auto q = tensor(step, TensorId::q).as<std::uint16_t>();
  const auto lse = tensor(step, TensorId::attention_lse).as<float>();
  double minimum = 1e9;
  double maximum = -1e9;
  double sum = 0;
  for (std::size_t token = 0; token < kTokens; ++token) {
    for (std::size_t head = 0; head < 4; ++head) {
      std::vector<double> z(token + 1);
      double total = 0;
      for (std::size_t k = 0; k <= token; ++k) {
        for (std::size_t dim = 0; dim < 512; ++dim) {
          z[k] +=
              static_cast<double>(arith::bf16_to_f32(q[(token * 4 + head) * 512 + dim])) * key(step, k, dim);
        }
        z[k] /= std::sqrt(512.0);
        total += std::exp(z[k]);
      }
      CHECK(std::abs(std::log(total) - static_cast<double>(lse[token * 4 + head])) < 1e-4);
      double entropy = 0;
      for (const double one : z) entropy -= std::exp(one) / total * std::log(std::exp(one) / total);
      minimum = std::min(minimum, entropy);
      maximum = std::max(maximum, entropy);
      sum += entropy;
    }
  }
  std::vector<compare::TensorStatistics> rows(2);
  rows[0].id = TensorId::attention_out;
  rows[1].id = TensorId::q;
  add_attention_entropy(*engine, step, rows);
  CHECK_FALSE(rows[1].entropy.has_value());
  REQUIRE(rows[0].entropy.has_value());
  CHECK(rows[0].entropy->count == 20);
  CHECK(std::abs(rows[0].entropy->minimum - minimum) < 1e-9);  // one key: 0
  CHECK(std::abs(rows[0].entropy->maximum - maximum) < 1e-9);
  CHECK(std::abs(rows[0].entropy->mean() - sum / 20) < 1e-9);
  CHECK(std::abs(rows[0].entropy->uniform() - std::log(1.0 * 2 * 3 * 4 * 5) / 5) < 1e-12);
}
