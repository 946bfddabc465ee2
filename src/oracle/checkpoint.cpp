#include "oracle/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "io/atomic_hdf5.hpp"
#include "io/dump_format.hpp"
#include "io/hdf5_file.hpp"
#include "model/layout.hpp"
#include "oracle/slots.hpp"

namespace dsv4::oracle {
namespace {

constexpr const char* kSchemaName = "dsv4-checkpoint/1";

bool fresh(const std::vector<std::byte>& bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{layout::kPoison}; });
}

Tensor text_tensor(const std::string& text) {
  Tensor tensor(DType::uint8, {static_cast<std::int64_t>(text.size())});
  if (!text.empty()) std::memcpy(tensor.bytes().data(), text.data(), text.size());
  return tensor;
}

void write_cache(io::Hdf5Group& layer_group, const Engine& engine, int layer, Cache cache) {
  const std::int64_t units = physical_rows(engine.config(), cache_shape(engine.config(), layer, cache));
  std::vector<std::int32_t> numbers;
  std::vector<std::byte> bytes;
  std::int64_t unit_bytes = 0;
  for (std::int64_t unit = 0; unit < units; ++unit) {
    const std::vector<std::byte> row = engine.read_row(layer, cache, unit);
    unit_bytes = static_cast<std::int64_t>(row.size());
    if (fresh(row)) continue;
    numbers.push_back(static_cast<std::int32_t>(unit));
    bytes.insert(bytes.end(), row.begin(), row.end());
  }
  Tensor rows(DType::int32, {static_cast<std::int64_t>(numbers.size())});
  std::ranges::copy(numbers, rows.as<std::int32_t>().begin());
  Tensor content(DType::uint8, {static_cast<std::int64_t>(numbers.size()), unit_bytes});
  std::ranges::copy(bytes, content.bytes().begin());
  io::Hdf5Group group = layer_group.create_group(std::string(name(cache)));
  group.write("rows", rows, {}, {});
  group.write("bytes", content, {}, {});
}

void write_inputs(io::Hdf5Group& layer_group, const Engine& engine, int layer) {
  const std::vector<StoredInput> inputs = engine.stored_inputs(layer);
  if (inputs.empty()) return;
  const auto count = static_cast<std::int64_t>(inputs.size());
  Tensor content(DType::uint8, {count, 8});
  Tensor hidden(DType::bfloat16, {count, engine.config().geometry.dim});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::memcpy(content.bytes().data() + 8 * i, &inputs[i].content, 8);
    require(static_cast<std::int64_t>(inputs[i].row.size()) == hidden.dim(1),
            "a stored layer input of another width");
    std::ranges::copy(inputs[i].row,
                      hidden.as<std::uint16_t>().begin() + static_cast<std::ptrdiff_t>(i) * hidden.dim(1));
  }
  io::Hdf5Group group = layer_group.create_group("inputs");
  group.write("content", content, {}, {});
  group.write("hidden", hidden, {}, {});
}

void restore_cache(const io::Hdf5File& file, const std::string& group, Engine& engine, int layer,
                   Cache cache) {
  const std::int64_t units = physical_rows(engine.config(), cache_shape(engine.config(), layer, cache));
  const Tensor rows = file.read(group + "/rows", DType::int32);
  const Tensor bytes = file.read(group + "/bytes", DType::uint8);
  if (rows.elements() == 0) return;
  const std::size_t unit_bytes = engine.read_row(layer, cache, 0).size();
  if (bytes.shape() != std::vector<std::int64_t>{rows.elements(), static_cast<std::int64_t>(unit_bytes)}) {
    throw FileError(fmt::format("{}: {}/bytes has another shape than the run's cache ({} bytes a row)",
                                file.path(), group, unit_bytes));
  }
  for (std::int64_t i = 0; i < rows.elements(); ++i) {
    const std::int32_t row = rows.as<std::int32_t>()[static_cast<std::size_t>(i)];
    if (row < 0 || row >= units) {
      throw FileError(
          fmt::format("{}: {}/rows names row {}, the run has {}", file.path(), group, row, units));
    }
    engine.write_row(layer, cache, row,
                     bytes.bytes().subspan(static_cast<std::size_t>(i) * unit_bytes, unit_bytes));
  }
}

void restore_inputs(const io::Hdf5File& file, const std::string& group, Engine& engine, int layer) {
  if (!file.exists(group)) return;
  const Tensor content = file.read(group + "/content", DType::uint8);
  const Tensor hidden = file.read(group + "/hidden", DType::bfloat16);
  if (hidden.shape() != std::vector<std::int64_t>{content.dim(0), engine.config().geometry.dim}) {
    throw FileError(
        fmt::format("{}: {}/hidden has another shape than the run's layer inputs", file.path(), group));
  }
  std::vector<StoredInput> inputs(static_cast<std::size_t>(content.dim(0)));
  const auto dim = static_cast<std::size_t>(hidden.dim(1));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::memcpy(&inputs[i].content, content.bytes().data() + 8 * i, 8);
    const auto row = hidden.as<std::uint16_t>().subspan(i * dim, dim);
    inputs[i].row.assign(row.begin(), row.end());
  }
  engine.store_inputs(layer, inputs);
}

}  // namespace

void write_checkpoint(const std::string& path, const Engine& engine, std::int64_t next_step,
                      const std::string& scenario, const std::string& scenario_file,
                      const std::string& kernel_models) {
  if (!engine.info().byte_state) {
    throw SubjectError("engine '" + engine.info().name +
                       "' has no byte-exact caches, so it cannot write a checkpoint");
  }
  const RunConfig& config = engine.config();
  io::write_hdf5(path, [&](io::Hdf5Group& root) {
    root.set("schema", std::string(kSchemaName));
    root.set("engine", engine.info().name);
    root.set("next_step", next_step);
    root.set("seed", config.seed);
    root.set("scenario_file", scenario_file);
    if (!kernel_models.empty()) root.set("kernel_models", kernel_models);
    for (const AxisInfo& axis : axes()) {
      root.set("axis." + std::string(axis.name), std::string(config.profile.value(axis.axis)));
    }
    root.write("scenario", text_tensor(scenario), {}, {});
    for (int layer = 0; layer < static_cast<int>(config.layers.size()); ++layer) {
      io::Hdf5Group group = root.create_group(io::layer_name(layer));
      for (std::size_t c = 0; c < kCacheCount; ++c) {
        const auto cache = static_cast<Cache>(c);
        if (has_cache(config.layers[static_cast<std::size_t>(layer)], cache))
          write_cache(group, engine, layer, cache);
      }
      if (config.chain) write_inputs(group, engine, layer);
    }
  });
}

CheckpointInfo read_checkpoint(const std::string& path) {
  const io::Hdf5File file = io::Hdf5File::open(path);
  const auto schema = file.attribute("/", "schema");
  if (!schema || !std::holds_alternative<std::string>(*schema) ||
      std::get<std::string>(*schema) != kSchemaName) {
    throw FileError(path + ": is no checkpoint (schema " + kSchemaName + " expected)");
  }
  CheckpointInfo info;
  info.engine = file.text("/", "engine");
  info.next_step = file.integer("/", "next_step");
  info.scenario_file = file.text("/", "scenario_file");
  if (file.attribute("/", "kernel_models")) info.kernel_models = file.text("/", "kernel_models");
  const auto seed = file.attribute("/", "seed");
  if (!seed || !std::holds_alternative<std::uint64_t>(*seed))
    throw FileError(path + ": attribute seed is missing");
  info.seed = std::get<std::uint64_t>(*seed);
  for (const AxisInfo& axis : axes()) {
    info.axes[std::string(axis.name)] = file.text("/", "axis." + std::string(axis.name));
  }
  const Tensor text = file.read("/scenario", DType::uint8);
  info.scenario.assign(reinterpret_cast<const char*>(text.bytes().data()), text.bytes().size());
  return info;
}

void restore_checkpoint(const std::string& path, Engine& engine) {
  const io::Hdf5File file = io::Hdf5File::open(path);
  const RunConfig& config = engine.config();
  for (int layer = 0; layer < static_cast<int>(config.layers.size()); ++layer) {
    const std::string group = "/" + io::layer_name(layer);
    for (std::size_t c = 0; c < kCacheCount; ++c) {
      const auto cache = static_cast<Cache>(c);
      if (!has_cache(config.layers[static_cast<std::size_t>(layer)], cache)) continue;
      restore_cache(file, group + "/" + std::string(name(cache)), engine, layer, cache);
    }
    if (config.chain) restore_inputs(file, group + "/inputs", engine, layer);
  }
}

}  // namespace dsv4::oracle
