#include "io/dump_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "io/dump_checks.hpp"
#include "io/dump_config.hpp"
#include "io/dump_format.hpp"
#include "io/hdf5_file.hpp"
#include "model/digest.hpp"
#include "model/error.hpp"
#include "model/tables.hpp"

namespace dsv4::io {
namespace {

constexpr const char* kSteps = "/steps";
constexpr const char* kState = "/state";

std::string joined(const std::string& parent, std::string_view child) {
  return parent + "/" + std::string(child);
}

std::vector<std::string> split(const std::string& path) {
  std::vector<std::string> parts;
  for (std::size_t at = 1; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    parts.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

}  // namespace

struct DumpReader::Impl {
  Hdf5File file;
  bool verify_digests;
  SourceInfo source{};
  std::string tool_version{};
  std::optional<DumpSelection> selection{};
  std::vector<std::int64_t> steps{};
  std::size_t next = 0;
  TensorSet wanted = TensorSet().set();
  bool want_unrounded = true;
  bool want_state_tensors = true;

  void read_root();
  void read_steps();
  DType dtype_of(const std::string& path) const;
  Tensor read(const std::string& path, bool verify) const;
  Tensor read_table(const std::string& path, std::size_t rank) const;
  BatchTables read_batch(const std::string& group) const;
  void read_layer(const std::string& group, int number, const BatchTables& batch,
                  LayerObservation& layer) const;
  void read_tensors(const std::string& group, Stage stage, int number, const BatchTables& batch,
                    LayerObservation& layer) const;
  void read_state(const std::string& group, LayerObservation& layer) const;
  std::optional<TableState> read_tables(const std::string& group) const;
  StepObservation read_step(std::int64_t step) const;
  std::string read_event(const std::string& group) const;
  void list(const std::string& group, std::set<std::uint64_t>& seen, std::vector<DumpEntry>& entries) const;
  DumpEntry entry(const std::string& path) const;
  [[noreturn]] void refuse(const std::string& object, const std::string& why) const {
    throw FileError(file.path() + ": " + object + " " + why);
  }
};

void DumpReader::Impl::read_root() {
  const auto schema = file.attribute("/", "schema");
  const auto* text = schema ? std::get_if<std::string>(&*schema) : nullptr;
  if (text == nullptr) throw FileError(file.path() + ": not a dump: it has no attribute 'schema'");
  if (*text != kSchema) {
    throw FileError(fmt::format("{}: schema is '{}'; this program reads '{}'", file.path(), *text, kSchema));
  }
  tool_version = file.text("/", "tool_version");
  source.engine = file.text("/", "engine");
  source.device = file.text("/", "device");
  source.config.profile.name = file.text("/", "profile");
  for (const std::string* text_of :
       {&tool_version, &source.engine, &source.device, &source.config.profile.name}) {
    check_plain_text(*text_of, file.path(), "a root attribute");
  }
  const auto seed = file.attribute("/", "seed");
  const auto* natural = seed ? std::get_if<std::uint64_t>(&*seed) : nullptr;
  source.config.seed = natural ? *natural : static_cast<std::uint64_t>(file.integer("/", "seed"));
  const std::int64_t complete = file.integer("/", "complete");
  if (complete != 0 && complete != 1) refuse("attribute 'complete'", "is neither 0 nor 1");
  source.complete = complete == 1;
  read_config(file, source);
  selection = read_selection(file);
  if (file.exists("/scenario")) {
    const Tensor scenario = read("/scenario", verify_digests);
    const auto bytes = scenario.as<char>();
    source.scenario.assign(bytes.begin(), bytes.end());
  }
}

void DumpReader::Impl::read_steps() {
  if (!file.exists(kSteps)) refuse(kSteps, "is missing");
  for (const Child& child : file.children(kSteps)) {
    const std::int64_t step = step_number(child.name);
    if (step < 0 || !child.is_group) refuse(joined(kSteps, child.name), "is not a step");
    steps.push_back(step);
  }
  std::ranges::sort(steps);  // numbers beyond 999999 sort after, not between
}

DType DumpReader::Impl::dtype_of(const std::string& path) const {
  try {
    return dtype_from_name(file.text(path, "dtype"));
  } catch (const FileError& error) {
    const std::string what = error.what();
    if (what.starts_with(file.path())) throw;
    refuse(path, "has an " + what);
  }
}

Tensor DumpReader::Impl::read(const std::string& path, bool verify) const {
  Tensor tensor = file.read(path, dtype_of(path));
  if (verify) {
    const std::string stated = file.text(path, "digest");
    const std::string actual = digest(tensor);
    if (stated != actual) refuse(path, "has the digest " + actual + ", its attribute says " + stated);
  }
  return tensor;
}

Tensor DumpReader::Impl::read_table(const std::string& path, std::size_t rank) const {
  const bool needed = path.ends_with("/request") || path.ends_with("/position");
  if (!file.exists(path) && needed) refuse(path, "is missing");
  if (!file.exists(path))
    return Tensor(DType::int32, rank == 1 ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{0, 3});
  Tensor table = read(path, verify_digests);
  if (table.dtype() != DType::int32 || table.shape().size() != rank || (rank == 2 && table.dim(1) != 3)) {
    refuse(path, rank == 1 ? "is not int32 [token]" : "is not int32 [copy, 3]");
  }
  return table;
}

BatchTables DumpReader::Impl::read_batch(const std::string& group) const {
  BatchTables batch{read_table(joined(group, "request"), 1), read_table(joined(group, "position"), 1),
                    read_table(joined(group, "slot"), 1), read_table(joined(group, "page"), 1),
                    read_table(joined(group, "prefix"), 2)};
  const std::int64_t tokens = batch.request.dim(0);
  if (batch.position.dim(0) != tokens) refuse(joined(group, "position"), "and 'request' differ in length");
  for (const auto& [table, name] : {std::pair{&batch.slot, "slot"}, std::pair{&batch.page, "page"}}) {
    // A foreign capture may know no slots.
    if (table->dim(0) != tokens && table->dim(0) != 0) {
      refuse(joined(group, name), "and 'request' differ in length");
    }
  }
  check_batch(batch, source.config, file.path(), group);
  return batch;
}

void DumpReader::Impl::read_tensors(const std::string& group, Stage stage, int number,
                                    const BatchTables& batch, LayerObservation& layer) const {
  std::map<std::string_view, std::int64_t> rows;  // of the axes 'entry' and 'row', one number a stage
  for (const Child& child : file.children(group)) {
    std::string_view tensor_name = child.name;
    const bool unrounded = tensor_name.ends_with(kUnroundedSuffix);
    if (unrounded) tensor_name.remove_suffix(kUnroundedSuffix.size());
    const auto id = tensor_named(stage, tensor_name);
    if (!id || !wanted.test(static_cast<std::size_t>(*id)) || (unrounded && !want_unrounded)) continue;
    const std::string path = joined(group, child.name);
    Tensor tensor = read(path, verify_digests);
    check_tensor(tensor, *id, unrounded, source.config, number, batch, file.path(), path);
    const std::string_view dims = dsv4::info(*id).dims;
    const auto [first, added] = rows.emplace(dims.substr(0, dims.find(',')), tensor.dim(0));
    if (!added && first->second != tensor.dim(0)) {
      refuse(path,
             fmt::format("has {} rows, other tensors of its stage have {}", tensor.dim(0), first->second));
    }
    (unrounded ? layer.unrounded : layer.tensors).emplace(*id, std::move(tensor));
  }
}

void DumpReader::Impl::read_layer(const std::string& group, int number, const BatchTables& batch,
                                  LayerObservation& layer) const {
  if (!file.exists(group)) return;
  for (const Child& child : file.children(group)) {
    if (const auto stage = stage_named(child.name)) {
      read_tensors(joined(group, child.name), *stage, number, batch, layer);
    }
  }
}

void DumpReader::Impl::read_state(const std::string& group, LayerObservation& layer) const {
  if (!file.exists(group)) return;
  for (std::size_t index = 0; index < kCacheCount; ++index) {
    const auto cache = static_cast<Cache>(index);
    const std::string path = joined(group, name(cache));
    if (!file.exists(path)) continue;
    if (file.attribute(path, "digest")) layer.state_digests[cache] = file.text(path, "digest");
    if (!want_state_tensors) continue;
    for (const Child& child : file.children(path)) {
      Tensor snapshot = read(joined(path, child.name), verify_digests);
      check_snapshot(snapshot, file.path(), joined(path, child.name));
      layer.state_tensors.emplace(child.name, std::move(snapshot));
    }
  }
}

std::optional<TableState> DumpReader::Impl::read_tables(const std::string& group) const {
  if (!file.exists(group)) return std::nullopt;
  TableState tables;
  for (const TableInfo& table : kTables) {
    const std::string path = joined(group, table.name);
    if (!file.exists(path)) refuse(path, "is missing");
    tables.*table.rows = read(path, verify_digests);
  }
  check_tables(tables, source.config, file.path(), group);
  return tables;
}

std::string DumpReader::Impl::read_event(const std::string& group) const {
  const std::string dataset = joined(group, kEventDataset);
  std::string event;
  if (file.exists(dataset)) {
    const Tensor text = read(dataset, verify_digests);
    event.assign(text.as<char>().begin(), text.as<char>().end());
  } else {
    event = file.text(group, "event");
  }
  check_event(event, file.path(), group);
  return event;
}

StepObservation DumpReader::Impl::read_step(std::int64_t step) const {
  const std::string group = joined(kSteps, step_name(step));
  if (!std::ranges::binary_search(steps, step)) refuse(group, "is missing");
  StepObservation observation;
  observation.step = step;
  observation.event = read_event(group);
  observation.batch = read_batch(joined(group, "batch"));
  observation.tables = read_tables(joined(joined(kState, step_name(step)), kTablesGroup));
  observation.layers.resize(source.config.layers.size());
  for (std::size_t layer = 0; layer < observation.layers.size(); ++layer) {
    const std::string child = layer_name(static_cast<std::int64_t>(layer));
    read_layer(joined(group, child), static_cast<int>(layer), observation.batch, observation.layers[layer]);
    read_state(joined(joined(kState, step_name(step)), child), observation.layers[layer]);
  }
  return observation;
}

DumpEntry DumpReader::Impl::entry(const std::string& path) const {
  const DatasetInfo stored = file.dataset_info(path);
  DumpEntry result;
  result.path = path;
  result.shape = stored.shape;
  result.stored_bytes = stored.stored_bytes;
  const auto text = [&](const char* attribute) {
    const auto value = file.attribute(path, attribute);
    const auto* held = value ? std::get_if<std::string>(&*value) : nullptr;
    return held ? *held : std::string();
  };
  if (!text("dtype").empty()) result.dtype = dtype_of(path);
  result.dims = text("dims");
  result.role = text("role");
  result.digest = text("digest");
  const std::vector<std::string> parts = split(path);
  result.tensor = parts.back();
  if (parts.size() < 3 || (parts[0] != "steps" && parts[0] != "state")) return result;
  result.step = step_number(parts[1]);
  const bool in_layer = layer_number(parts[2]) >= 0;
  if (in_layer) result.layer = static_cast<int>(layer_number(parts[2]));
  if (parts.size() > 3) result.stage = parts[in_layer ? 3 : 2];
  if (parts[0] == "state") {
    result.stage = "state/" + result.stage;
  } else if (in_layer) {
    std::string_view plain = result.tensor;
    if (plain.ends_with(kUnroundedSuffix)) plain.remove_suffix(kUnroundedSuffix.size());
    const auto stage = stage_named(result.stage);
    result.known = stage && tensor_named(*stage, plain);
  }
  return result;
}

void DumpReader::Impl::list(const std::string& group, std::set<std::uint64_t>& seen,
                            std::vector<DumpEntry>& entries) const {
  for (const Child& child : file.children(group.empty() ? "/" : group)) {
    const std::string path = joined(group, child.name);
    if (child.is_group) {
      // A group that is linked twice may contain itself: its listing would not end.
      if (!seen.insert(child.address).second) refuse(path, "is linked more than once");
      list(path, seen, entries);
    } else {
      entries.push_back(entry(path));
    }
  }
}

// ------------------------------------------------------------------------------------------ the interface

DumpReader::DumpReader(const std::string& path, bool verify_digests)
    : impl_(new Impl{Hdf5File::open(path), verify_digests}) {
  impl_->read_root();
  impl_->read_steps();
}

DumpReader::~DumpReader() = default;

const SourceInfo& DumpReader::info() const {
  return impl_->source;
}

std::optional<StepObservation> DumpReader::next() {
  if (impl_->next >= impl_->steps.size()) return std::nullopt;
  return impl_->read_step(impl_->steps[impl_->next++]);
}

void DumpReader::want(const TensorSet& wanted) {
  impl_->wanted = wanted;
}
void DumpReader::want_unrounded(bool wanted) {
  impl_->want_unrounded = wanted;
}
void DumpReader::want_state_tensors(bool wanted) {
  impl_->want_state_tensors = wanted;
}

const std::string& DumpReader::path() const {
  return impl_->file.path();
}
const std::string& DumpReader::tool_version() const {
  return impl_->tool_version;
}
const std::optional<DumpSelection>& DumpReader::selection() const {
  return impl_->selection;
}
const std::vector<std::int64_t>& DumpReader::steps() const {
  return impl_->steps;
}
bool DumpReader::has_step(std::int64_t step) const {
  return std::ranges::binary_search(impl_->steps, step);
}
StepObservation DumpReader::read_step(std::int64_t step) const {
  return impl_->read_step(step);
}

void DumpReader::seek(std::int64_t step) {
  const auto found = std::ranges::lower_bound(impl_->steps, step);
  if (found == impl_->steps.end() || *found != step) {
    throw FileError(fmt::format("{}: step {} is missing", path(), step));
  }
  impl_->next = static_cast<std::size_t>(found - impl_->steps.begin());
}

std::optional<Tensor> DumpReader::read_tensor(std::int64_t step, int layer, TensorId id) const {
  const std::string object =
      fmt::format("{}/{}/{}/{}", kSteps, step_name(step), layer_name(layer), dsv4::path(id));
  if (!impl_->file.exists(object)) return std::nullopt;
  Tensor tensor = impl_->read(object, impl_->verify_digests);
  const BatchTables batch = impl_->read_batch(joined(joined(kSteps, step_name(step)), "batch"));
  check_tensor(tensor, id, false, impl_->source.config, layer, batch, path(), object);
  return tensor;
}

bool DumpReader::has_object(const std::string& path) const {
  return impl_->file.exists(path);
}

Tensor DumpReader::read_path(const std::string& path) const {
  return impl_->read(path, impl_->verify_digests);
}

std::vector<DumpEntry> DumpReader::list(std::optional<std::int64_t> step) const {
  std::vector<DumpEntry> entries;
  std::set<std::uint64_t> seen;
  if (!step) {
    impl_->list("", seen, entries);
    return entries;
  }
  for (const char* parent : {kState, kSteps}) {
    const std::string group = joined(parent, step_name(*step));
    if (impl_->file.exists(group)) impl_->list(group, seen, entries);
  }
  return entries;
}

DumpEntry DumpReader::entry(const std::string& path) const {
  if (!impl_->file.exists(path)) throw FileError(impl_->file.path() + ": there is no " + path);
  return impl_->entry(path);
}

void DumpReader::verify() const {
  for (const DumpEntry& about : list()) {
    if (!about.digest.empty()) impl_->read(about.path, true);
  }
}

}  // namespace dsv4::io
