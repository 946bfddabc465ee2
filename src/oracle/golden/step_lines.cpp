#include "oracle/golden/step_lines.hpp"

#include <fmt/format.h>

#include <map>
#include <tuple>

#include "io/dump_format.hpp"
#include "model/digest.hpp"
#include "oracle/runner.hpp"

namespace dsv4::oracle::golden {
namespace {

std::string shape_text(const Tensor& tensor) {
  std::string text;
  for (const std::int64_t size : tensor.shape()) text += (text.empty() ? "" : ",") + std::to_string(size);
  return text;
}

std::string layer_prefix(const StepObservation& step, std::size_t layer) {
  return io::step_name(step.step) + " " + io::layer_name(static_cast<std::int64_t>(layer)) + "/";
}

}  // namespace

std::vector<std::string> step_lines(const StepObservation& step) {
  std::vector<std::string> lines;
  const std::string at = io::step_name(step.step) + " ";
  const auto add_tensor = [&](const std::string& name, const Tensor& tensor) {
    lines.push_back(
        fmt::format("{} {} {} {}", name, dsv4::name(tensor.dtype()), shape_text(tensor), digest(tensor)));
  };
  add_tensor(at + "batch/request", step.batch.request);
  add_tensor(at + "batch/position", step.batch.position);
  add_tensor(at + "batch/slot", step.batch.slot);
  add_tensor(at + "batch/page", step.batch.page);
  for (std::size_t layer = 0; layer < step.layers.size(); ++layer) {
    const std::string prefix = layer_prefix(step, layer);
    for (const auto& [id, tensor] : step.layers[layer].tensors) add_tensor(prefix + path(id), tensor);
    for (const auto& [cache, text] : step.layers[layer].state_digests) {
      lines.push_back(fmt::format("{}state/{} {}", prefix, name(cache), text));
    }
  }
  return lines;
}

std::vector<std::string> write_lines(const StepObservation& step) {
  std::vector<std::string> lines;
  for (std::size_t layer = 0; layer < step.layers.size(); ++layer) {
    std::map<std::tuple<Cache, std::int64_t, std::int32_t, std::int32_t>, const Write*> rows;
    for (const Write& write : step.layers[layer].writes)
      rows[{write.cache, write.slot, write.request, write.index}] = &write;
    if (rows.empty()) continue;
    std::vector<std::string> parts;
    for (const auto& [key, write] : rows) {
      parts.push_back(fmt::format("{} {} {} {} {}", name(write->cache), write->slot, write->request,
                                  write->index, live_state_digest(write->cache, write->bytes)));
    }
    lines.push_back(
        fmt::format("{}writes {} {}", layer_prefix(step, layer), rows.size(), digest_of_lines(parts)));
  }
  return lines;
}

std::string digest_of_lines(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return digest(std::as_bytes(std::span<const char>(all)));
}

}  // namespace dsv4::oracle::golden
