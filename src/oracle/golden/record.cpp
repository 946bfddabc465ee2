#include "oracle/golden/record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "io/dump_format.hpp"
#include "model/digest.hpp"
#include "model/seeded.hpp"
#include "oracle/golden/step_lines.hpp"
#include "oracle/runner.hpp"
#include "scenario/plan.hpp"
#include "scenario/scenario.hpp"

namespace dsv4::oracle::golden {
namespace {

template <class T>
std::string digest_of(const std::vector<T>& values) {
  return digest(std::as_bytes(std::span<const T>(values)));
}

void add_matrix(std::vector<std::string>& lines, const std::string& name, const Matrix& matrix) {
  if (!matrix.codes.empty()) {
    lines.push_back(fmt::format("weights {}.codes {}", name, digest_of(matrix.codes)));
    lines.push_back(fmt::format("weights {}.scale {}", name, digest_of(matrix.scales)));
  }
  if (!matrix.bf16.empty()) lines.push_back(fmt::format("weights {} {}", name, digest_of(matrix.bf16)));
}

void add_compressor(std::vector<std::string>& lines, const std::string& name,
                    const CompressorWeights& weights) {
  add_matrix(lines, name + ".wkv", weights.wkv);
  add_matrix(lines, name + ".wgate", weights.wgate);
  lines.push_back(fmt::format("weights {}.ape {}", name, digest_of(weights.ape)));
  lines.push_back(fmt::format("weights {}.norm {}", name, digest_of(weights.norm)));
}

void add_weights(std::vector<std::string>& lines, const RunConfig& config, const WeightSource& source) {
  for (int layer = 0; layer < static_cast<int>(config.layers.size()); ++layer) {
    const LayerKind kind = config.layers[static_cast<std::size_t>(layer)];
    const std::shared_ptr<const LayerWeights> weights = source.layer(layer);
    const std::string at = io::layer_name(layer) + "/";
    add_matrix(lines, at + "wq_a", weights->wq_a);
    add_matrix(lines, at + "wq_b", weights->wq_b);
    add_matrix(lines, at + "wkv", weights->wkv);
    add_matrix(lines, at + "wo_a", weights->wo_a);
    add_matrix(lines, at + "wo_b", weights->wo_b);
    lines.push_back(fmt::format("weights {}q_norm {}", at, digest_of(weights->q_norm)));
    lines.push_back(fmt::format("weights {}kv_norm {}", at, digest_of(weights->kv_norm)));
    lines.push_back(fmt::format("weights {}attn_sink {}", at, digest_of(weights->attn_sink)));
    if (has_compressor(kind)) add_compressor(lines, at + "compressor", weights->compressor);
    if (!has_indexer(kind)) continue;
    add_matrix(lines, at + "indexer.wq_b", weights->indexer_wq_b);
    add_matrix(lines, at + "indexer.weights_proj", weights->indexer_weights_proj);
    add_compressor(lines, at + "indexer.compressor", weights->indexer_compressor);
  }
}

void add_step(std::vector<std::string>& lines, const StepObservation& step) {
  const std::vector<std::string> parts = step_lines(step);
  lines.push_back(fmt::format("step {} {} {}", step.step, digest_of_lines(parts), step.event));
  lines.insert(lines.end(), parts.begin(), parts.end());
}

Tensor gather_rows(const Tensor& tensor, const std::vector<std::int64_t>& rows) {
  std::vector<std::int64_t> shape = tensor.shape();
  shape[0] = static_cast<std::int64_t>(rows.size());
  Tensor kept(tensor.dtype(), shape);
  const std::size_t size = static_cast<std::size_t>(tensor.row_elements()) * size_bytes(tensor.dtype());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(kept.bytes().data() + i * size,
                tensor.bytes().data() + static_cast<std::size_t>(rows[i]) * size, size);
  }
  canonicalise_nan(kept);
  return kept;
}

std::vector<std::int64_t> kept_rows(const StepObservation& step, LayerKind kind, const TensorInfo& tensor,
                                    const Tensor& content) {
  std::vector<std::int64_t> rows;
  const LayerObservation& layer = step.layers.front();
  const bool indexer = name(tensor.stage).starts_with("indexer");
  const TensorId index_id = indexer ? TensorId::indexer_pool_index : TensorId::compress_pool_index;
  for (std::int64_t row = 0; row < content.dim(0); ++row) {
    const auto at = static_cast<std::size_t>(row);
    bool keep = true;  // state rows are few: those live after the step
    if (tensor.dims.starts_with("token")) {
      keep = keeps_token(kind, tensor.id, step.batch.position.as<std::int32_t>()[at]);
    } else if (tensor.dims.starts_with("entry")) {
      keep = keeps_entry(kind, tensor.id, layer.tensors.at(index_id).as<std::int32_t>()[at]);
    }
    if (keep) rows.push_back(row);
  }
  return rows;
}

void keep_step(std::vector<KeptTensor>& kept, const StepObservation& step, LayerKind kind) {
  const auto keep_batch = [&](const char* tensor, const Tensor& content) {
    std::vector<std::int64_t> rows;
    for (std::int64_t row = 0; row < content.dim(0); ++row) rows.push_back(row);
    kept.push_back({step.step, "batch", tensor, "token", "input", rows, content});
  };
  keep_batch("position", step.batch.position);
  keep_batch("slot", step.batch.slot);
  for (const auto& [id, content] : step.layers.front().tensors) {
    const TensorInfo& tensor = info(id);
    const std::vector<std::int64_t> rows = kept_rows(step, kind, tensor, content);
    if (rows.empty()) continue;
    kept.push_back({step.step, std::string(name(tensor.stage)), std::string(tensor.name),
                    std::string(tensor.dims), std::string(name(tensor.role)), rows,
                    gather_rows(content, rows)});
  }
}

}  // namespace

std::string KeptTensor::path() const {
  return io::step_name(step) + "/" + stage + "/" + tensor;
}

Record record(const Case& golden_case, const std::string& engine_name, const EngineFactory& factory) {
  const scenario::Scenario scenario =
      scenario::parse_scenario(golden_case.scenario, golden_case.name + ".yaml");
  const RunPlan plan = scenario::plan(scenario);
  Record result{golden_case, plan.config, {}, {}, seeded_weights(plan.config), ""};
  const std::unique_ptr<Engine> engine =
      factory(engine_name, plan.config, result.weights, seeded_hidden(plan.config));
  Runner runner(*engine, Selection{});
  add_weights(result.lines, plan.config, *result.weights);
  for (const StepPlan& step : plan.steps) {
    const StepObservation observation = runner.run(step);
    add_step(result.lines, observation);
    if (golden_case.keeps_rows) keep_step(result.kept, observation, plan.config.layers.front());
  }
  return result;
}

}  // namespace dsv4::oracle::golden
