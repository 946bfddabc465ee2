#include "oracle/golden/vector_set.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/dump_format.hpp"
#include "io/hdf5_file.hpp"
#include "io/safetensors.hpp"
#include "model/digest.hpp"
#include "oracle/golden/files.hpp"
#include "oracle/runner.hpp"

namespace dsv4::oracle::golden {
namespace {
namespace fs = std::filesystem;

bool is_hdf5(const fs::path& path) {
  return path.extension() == ".h5" || path.extension() == ".hdf5";
}
bool is_safetensors(const fs::path& path) {
  return path.extension() == ".safetensors" && !path.stem().string().ends_with(".weights");
}

/// "0,3,7"
std::vector<std::int64_t> parse_rows(const std::string& text, const std::string& where) {
  std::vector<std::int64_t> rows;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    std::int64_t row = -1;
    const auto [stop, error] = std::from_chars(at, end, row);
    if (error != std::errc() || row < 0 || (stop != end && *stop != ','))
      throw FileError(where + ": rows '" + text + "' are no list of places");
    rows.push_back(row);
    at = stop == end ? stop : stop + 1;
  }
  return rows;
}

/// Splits "000001/q.up/q".
KeptTensor placed(const std::string& path, const std::string& where) {
  const std::size_t first = path.find('/');
  const std::size_t last = path.rfind('/');
  KeptTensor kept;
  kept.step = io::step_number(path.substr(0, first));
  if (first == std::string::npos || last == first || kept.step < 0)
    throw FileError(where + ": '" + path + "' is no STEP/STAGE/TENSOR");
  kept.stage = path.substr(first + 1, last - first - 1);
  kept.tensor = path.substr(last + 1);
  return kept;
}

void check_kept(const KeptTensor& kept, const std::string& digest_text, const std::string& file) {
  const bool fits = !kept.content.shape().empty() && kept.content.dim(0) == std::ssize(kept.rows) &&
                    std::ranges::is_sorted(kept.rows);
  if (!fits) throw FileError(file + ": " + kept.path() + " has other rows than it states");
  if (digest(kept.content) != digest_text)
    throw FileError(file + ": " + kept.path() + " is damaged: its digest is " + digest(kept.content) +
                    ", stated is " + digest_text);
}

/// Paths of all tensors below /steps.
std::vector<std::string> hdf5_names(const io::Hdf5File& file) {
  std::vector<std::string> names;
  if (!file.exists("/steps")) throw FileError(file.path() + ": has no group /steps");
  for (const io::Child& step : file.children("/steps")) {
    for (const io::Child& stage : file.children("/steps/" + step.name)) {
      for (const io::Child& tensor : file.children("/steps/" + step.name + "/" + stage.name))
        names.push_back(step.name + "/" + stage.name + "/" + tensor.name);
    }
  }
  return names;
}

VectorSet read_hdf5(const std::string& path) {
  const io::Hdf5File file = io::Hdf5File::open(path);
  if (file.text("/", "schema") != kSchema) throw FileError(path + ": is no golden file");
  VectorSet set{file.text("/", "case"), path, "", "", {}};
  if (file.attribute("/", "kernel_models")) set.kernel_models = file.text("/", "kernel_models");
  const Tensor text = file.read("/scenario", DType::uint8);
  set.scenario.assign(reinterpret_cast<const char*>(text.bytes().data()), text.bytes().size());
  for (const std::string& name : hdf5_names(file)) {
    const std::string object = "/steps/" + name;
    KeptTensor kept = placed(name, path);
    kept.dims = file.text(object, "dims");
    kept.role = file.text(object, "role");
    kept.rows = parse_rows(file.text(object, "rows"), path + ", " + name);
    kept.content = file.read(object, dtype_from_name(file.text(object, "dtype")));
    check_kept(kept, file.text(object, "digest"), path);
    set.tensors.push_back(std::move(kept));
  }
  return set;
}

nlohmann::json read_manifest(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw FileError(path + ": cannot open (safetensors vectors need the manifest beside them)");
  nlohmann::json manifest = nlohmann::json::parse(in, nullptr, false);
  const bool fits = manifest.is_object() && manifest.contains("schema") && manifest["schema"] == kSchema &&
                    manifest.contains("cases") && manifest["cases"].is_array();
  if (!fits) throw FileError(path + ": is no manifest of golden vectors");
  return manifest;
}

VectorSet read_safetensors(const std::string& path, const nlohmann::json& manifest) {
  const io::SafetensorsFile file(path);
  const std::string name = fs::path(path).filename().string();
  for (const nlohmann::json& about : manifest["cases"]) {
    if (about.value("file", "") != name) continue;
    VectorSet set{
        about.value("name", ""), path, about.value("scenario", ""), about.value("kernel_models", ""), {}};
    for (const nlohmann::json& tensor : about["tensors"]) {
      KeptTensor kept = placed(tensor.value("name", ""), path);
      const io::StTensor* const stored = file.find(kept.path());
      if (stored == nullptr)
        throw FileError(path + ": " + kept.path() + " is in the manifest, but not in the file");
      kept.dims = tensor.value("dims", "");
      kept.role = tensor.value("role", "");
      kept.rows = tensor["rows"].get<std::vector<std::int64_t>>();
      kept.content = Tensor(dtype_from_name(tensor.value("dtype", "")), stored->shape);
      if (kept.content.bytes().size() != stored->bytes.size())
        throw FileError(path + ": " + kept.path() + " has another dtype than the manifest says");
      std::ranges::copy(stored->bytes, kept.content.bytes().begin());
      check_kept(kept, tensor.value("digest", ""), path);
      set.tensors.push_back(std::move(kept));
    }
    return set;
  }
  throw FileError(path + ": the manifest beside it does not name this file");
}

/// The stored tensor as the vectors have it; a one-byte format may travel as plain bytes.
Tensor fitting(const io::StTensor& stored, const KeptTensor& kept, const std::string& file) {
  const DType dtype = kept.content.dtype();
  const bool fits = stored.dtype == io::safetensors_dtype(dtype) ||
                    (size_bytes(dtype) == 1 && stored.dtype == io::StDType::u8) ||
                    (dtype == DType::bfloat16 && stored.dtype == io::StDType::u16);
  if (!fits) {
    throw FileError(
        fmt::format("{}: {} is {}, the vectors have {}", file, kept.path(), stored.dtype_text, name(dtype)));
  }
  if (stored.shape != kept.content.shape()) {
    throw FileError(fmt::format("{}: {} has the shape [{}], the vectors have [{}]", file, kept.path(),
                                fmt::join(stored.shape, ", "), fmt::join(kept.content.shape(), ", ")));
  }
  Tensor tensor(dtype, stored.shape);
  std::ranges::copy(stored.bytes, tensor.bytes().begin());
  return tensor;
}

}  // namespace

const KeptTensor* VectorSet::find(const std::string& path) const {
  const auto found = std::ranges::find(tensors, path, &KeptTensor::path);
  return found == tensors.end() ? nullptr : &*found;
}

std::vector<VectorSet> read_vector_sets(const std::string& path) {
  std::vector<std::string> files;
  if (fs::is_directory(path)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
      if (is_hdf5(entry.path()) || is_safetensors(entry.path())) files.push_back(entry.path().string());
    }
    std::ranges::sort(files);
    if (files.empty()) throw FileError(path + ": holds neither .h5 nor .safetensors vectors");
  } else {
    files.push_back(path);
  }
  std::vector<VectorSet> sets;
  for (const std::string& file : files) {
    if (is_hdf5(file)) {
      sets.push_back(read_hdf5(file));
    } else if (is_safetensors(file)) {
      const std::string manifest = (fs::path(file).parent_path() / "manifest.json").string();
      try {
        sets.push_back(read_safetensors(file, read_manifest(manifest)));
      } catch (const nlohmann::json::exception& error) {
        throw FileError(manifest + ": is no manifest of golden vectors: " + error.what());
      }
    } else {
      throw FileError(file + ": is neither .h5 nor .safetensors");
    }
  }
  return sets;
}

std::vector<std::string> result_names(const std::string& file) {
  if (is_hdf5(file)) return hdf5_names(io::Hdf5File::open(file));
  if (!is_safetensors(file)) throw FileError(file + ": is neither .h5 nor .safetensors");
  const io::SafetensorsFile opened(file);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : opened.tensors()) names.push_back(name);
  return names;
}

std::string case_of_results(const std::string& file) {
  if (is_hdf5(file)) {
    const io::Hdf5File opened = io::Hdf5File::open(file);
    if (opened.attribute("/", "case")) return opened.text("/", "case");
  } else if (is_safetensors(file)) {
    const io::SafetensorsFile opened(file);
    const auto found = opened.metadata().find("case");
    if (found != opened.metadata().end()) return found->second;
  }
  return fs::path(file).stem().string();
}

ResultSet read_results(const std::string& file, const VectorSet& vectors) {
  ResultSet results{file, {}};
  if (is_hdf5(file)) {
    const io::Hdf5File opened = io::Hdf5File::open(file);
    for (const std::string& path : hdf5_names(opened)) {
      const KeptTensor* const kept = vectors.find(path);
      require(kept != nullptr, "a name that the vectors do not hold");
      const std::vector<std::int64_t> shape = opened.dataset_info("/steps/" + path).shape;
      if (shape != kept->content.shape()) {
        throw FileError(fmt::format("{}: {} has the shape [{}], the vectors have [{}]", file, path,
                                    fmt::join(shape, ", "), fmt::join(kept->content.shape(), ", ")));
      }
      results.tensors.emplace(path, opened.read("/steps/" + path, kept->content.dtype()));
    }
    return results;
  }
  const io::SafetensorsFile opened(file);
  for (const auto& [path, tensor] : opened.tensors()) {
    const KeptTensor* const kept = vectors.find(path);
    require(kept != nullptr, "a name that the vectors do not hold");
    results.tensors.emplace(path, fitting(tensor, *kept, file));
  }
  return results;
}

StepRows step_rows(const RunConfig& config, const StepPlan& plan, const VectorSet& vectors,
                   const ResultSet* content) {
  StepRows rows;
  StepObservation& observation = rows.observation;
  observation.step = plan.index;
  observation.event = plan.event;
  observation.layers.resize(1);
  if (content == nullptr) observation.batch = batch_tables(config, plan);
  for (const KeptTensor& kept : vectors.tensors) {
    if (kept.step != plan.index) continue;
    const Tensor* given = &kept.content;
    if (content != nullptr) {
      const auto found = content->tensors.find(kept.path());
      if (found == content->tensors.end()) continue;
      given = &found->second;
    }
    if (kept.stage == "batch") {
      if (content != nullptr)
        (kept.tensor == "position" ? observation.batch.position : observation.batch.slot) = *given;
      continue;
    }
    const auto stage = stage_named(kept.stage);
    const auto id = stage ? tensor_named(*stage, kept.tensor) : std::nullopt;
    if (!id) throw FileError(vectors.file + ": " + kept.path() + " is no tensor of this program");
    std::vector<std::int64_t> shape = given->shape();
    const std::int64_t last = kept.rows.empty() ? 0 : kept.rows.back() + 1;
    shape[0] = kept.dims.starts_with("token") ? std::ssize(plan.rows) : last;
    if (last > shape[0]) throw FileError(vectors.file + ": " + kept.path() + " has rows beyond the step");
    Tensor whole(given->dtype(), shape);
    std::vector<bool>& flags = rows.kept[*id];
    flags.resize(static_cast<std::size_t>(shape[0]));
    const std::size_t size = static_cast<std::size_t>(given->row_elements()) * size_bytes(given->dtype());
    for (std::size_t i = 0; i < kept.rows.size(); ++i) {
      const auto row = static_cast<std::size_t>(kept.rows[i]);
      if (size > 0) std::memcpy(whole.bytes().data() + row * size, given->bytes().data() + i * size, size);
      flags[row] = true;
    }
    observation.layers.front().tensors.emplace(*id, std::move(whole));
  }
  return rows;
}

}  // namespace dsv4::oracle::golden
