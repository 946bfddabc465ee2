#include "io/dump_writer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include "io/dump_config.hpp"
#include "io/dump_format.hpp"
#include "io/hdf5_file.hpp"
#include "model/digest.hpp"
#include "model/error.hpp"
#include "model/tables.hpp"

namespace dsv4::io {
namespace {

/// Upper bounds of what HDF5 adds, measured generously: a group with its index, a dataset with its
/// attributes, the index node of a chunked dataset, and the share of one chunk in it.
constexpr std::int64_t kGroupBytes = 1536;
constexpr std::int64_t kDatasetBytes = 1536;
constexpr std::int64_t kChunkIndexBytes = 8192;
constexpr std::int64_t kBytesPerChunk = 256;
constexpr std::int64_t kSlackBytes = 64 * 1024;

std::int64_t dataset_bytes(const Tensor& tensor) {
  const auto bytes = static_cast<std::int64_t>(tensor.bytes().size());
  if (bytes < 64 * 1024) return bytes + kDatasetBytes;
  // Whole rows: the last chunk may be almost empty, and a chunk holds at least one row.
  const std::int64_t row = bytes / tensor.dim(0);
  const std::int64_t chunk = std::max<std::int64_t>(256 * 1024, row);
  const std::int64_t chunks = bytes / (chunk / row * row) + 1;
  // Deflate may expand incompressible data by a few bytes for every 16 KiB; Fletcher32 adds four.
  return bytes + chunk + bytes / 1024 + chunks * kBytesPerChunk + kChunkIndexBytes + kDatasetBytes;
}

class FileDescriptor {
 public:
  FileDescriptor(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC)) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string system_reason() {
  return std::strerror(errno);
}

/// Reserves blocks for [from, from + bytes) beyond the end of the file, so that writing there cannot run out
/// of space; where the file system cannot, the free space is compared. The file's length stays.
void reserve(const std::string& path, std::int64_t from, std::int64_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<std::uint64_t>(from + bytes) > limit.rlim_cur) {
    throw FileError(
        fmt::format("{}: the file may not grow by {} bytes: {}", path, bytes, std::strerror(EFBIG)));
  }
  const FileDescriptor file(path, O_WRONLY);
  if (file.get() >= 0 && ::fallocate(file.get(), FALLOC_FL_KEEP_SIZE, from, bytes) == 0) return;
  if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) {
    throw FileError(
        fmt::format("{}: no room for the {} bytes of the next step: {}", path, bytes, system_reason()));
  }
  require_free_space(path, bytes);
}

}  // namespace

std::int64_t estimate_bytes(const StepObservation& step) {
  std::int64_t total = kSlackBytes + 4 * kGroupBytes + static_cast<std::int64_t>(step.event.size());
  for (const Tensor* table :
       {&step.batch.request, &step.batch.position, &step.batch.slot, &step.batch.page, &step.batch.prefix}) {
    total += dataset_bytes(*table);
  }
  if (step.tables) {
    total += kGroupBytes;
    for (const TableInfo& table : kTables) total += dataset_bytes((*step.tables).*table.rows);
  }
  for (const LayerObservation& layer : step.layers) {
    total += static_cast<std::int64_t>(2 + kStageCount + kCacheCount) * kGroupBytes;
    for (const auto& [id, tensor] : layer.tensors) total += dataset_bytes(tensor);
    for (const auto& [id, tensor] : layer.unrounded) total += dataset_bytes(tensor);
    for (const auto& [name, tensor] : layer.state_tensors) total += dataset_bytes(tensor);
  }
  return total;
}

std::int64_t free_bytes(const std::string& path) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) {
    throw FileError(path + ": cannot ask its file system for free space: " + system_reason());
  }
  return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
}

void require_free_space(const std::string& path, std::int64_t needed) {
  const std::int64_t available = free_bytes(path);
  if (needed > available) {
    throw FileError(
        fmt::format("{}: needs up to {} bytes, the file system has {} free", path, needed, available));
  }
}

struct DumpWriter::Impl {
  std::string path;
  std::string partial;
  DumpOptions options;
  StorageOptions storage;
  std::optional<Hdf5File> file;
  std::optional<Hdf5Group> root;
  std::optional<Hdf5Group> steps_group;
  std::optional<Hdf5Group> state_group;
  std::int64_t steps = 0;
  std::int64_t last_step = -1;
  std::int64_t committed_bytes = 0;
  std::array<char, 96> superblock{};  ///< of the last flush; enough for every version of it

  void create(const SourceInfo& source);
  void commit();
  void close_handles();
  void abandon() noexcept;
  void write_batch(Hdf5Group& step, const BatchTables& batch);
  void write_layer(Hdf5Group& step, int number, const LayerObservation& layer);
  void write_tables(Hdf5Group& step, const TableState& tables);
  void write_state(Hdf5Group& step, int number, const LayerObservation& layer);
  void write_tensor(Hdf5Group& group, const std::string& name, const Tensor& tensor, std::string_view dims,
                    Role role);
};

void DumpWriter::Impl::create(const SourceInfo& source) {
  if (!options.overwrite && std::filesystem::exists(path)) throw FileError(path + ": exists already");
  file = Hdf5File::create(partial);
  root = file->root();
  root->set("schema", std::string(kSchema));
  root->set("tool_version", tool_version());
  root->set("engine", source.engine);
  root->set("profile", source.config.profile.name);
  root->set("seed", source.config.seed);
  root->set("device", source.device);
  root->set("complete", std::int64_t{0});
  Tensor text(DType::uint8, {static_cast<std::int64_t>(source.scenario.size())});
  std::memcpy(text.bytes().data(), source.scenario.data(), source.scenario.size());
  write_tensor(*root, "scenario", text, "byte", Role::input);
  write_config(*root, source, options.selection, storage);
  steps_group = root->create_group("steps");
  state_group = root->create_group("state");
  commit();
}

/// Flushes and remembers where the file could be cut back to.
void DumpWriter::Impl::commit() {
  file->flush();
  committed_bytes = file->file_bytes();
  const FileDescriptor raw(partial, O_RDONLY);
  if (raw.get() < 0 || ::pread(raw.get(), superblock.data(), superblock.size(), 0) < 0) {
    throw FileError(partial + ": cannot read back: " + system_reason());
  }
}

void DumpWriter::Impl::close_handles() {
  state_group.reset();
  steps_group.reset();
  root.reset();
}

/// After a failure: whatever the library leaves behind lies beyond the last flush, unlinked. Putting the old
/// superblock and length back makes the file what it was then; both are writes in place and need no space.
void DumpWriter::Impl::abandon() noexcept {
  try {
    close_handles();
    if (file) file->discard();
    file.reset();
    const FileDescriptor raw(partial, O_WRONLY);
    if (raw.get() < 0) return;
    if (::ftruncate(raw.get(), committed_bytes) != 0) return;
    [[maybe_unused]] const auto put = ::pwrite(raw.get(), superblock.data(), superblock.size(), 0);
  } catch (...) {  // the first error is the one to report
  }
}

void DumpWriter::Impl::write_tensor(Hdf5Group& group, const std::string& name, const Tensor& tensor,
                                    std::string_view dims, Role role) {
  require(tensor.bytes().size() == static_cast<std::size_t>(tensor.elements()) * size_bytes(tensor.dtype()),
          "a tensor without content was handed to a dump");
  const Attributes attributes{{"dtype", std::string(dsv4::name(tensor.dtype()))},
                              {"dims", std::string(dims)},
                              {"role", std::string(dsv4::name(role))},
                              {"digest", digest(tensor)}};
  const bool floating = tensor.dtype() == DType::float32 || tensor.dtype() == DType::bfloat16 ||
                        tensor.dtype() == DType::float64;
  if (!floating) return group.write(name, tensor, attributes, storage);
  Tensor canonical = tensor;
  canonicalise_nan(canonical);
  group.write(name, canonical, attributes, storage);
}

void DumpWriter::Impl::write_batch(Hdf5Group& step, const BatchTables& batch) {
  Hdf5Group group = step.create_group("batch");
  const auto write = [&](const char* table, const Tensor& rows, std::string_view dims) {
    // A step without rows may leave its tables unset.
    const Tensor none(DType::int32,
                      dims == "token" ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{0, 3});
    write_tensor(group, table, rows.bytes().empty() ? none : rows, dims, Role::input);
  };
  write("request", batch.request, "token");
  write("position", batch.position, "token");
  write("slot", batch.slot, "token");
  write("page", batch.page, "token");
  write("prefix", batch.prefix, "copy,field");
}

void DumpWriter::Impl::write_layer(Hdf5Group& step, int number, const LayerObservation& layer) {
  Hdf5Group group = step.create_group(layer_name(number));
  std::optional<Stage> open;
  std::optional<Hdf5Group> stage_group;
  const auto in_stage = [&](TensorId id) -> Hdf5Group& {
    if (const Stage stage = info(id).stage; open != stage) {
      stage_group = group.create_group(std::string(name(stage)));
      open = stage;
    }
    return *stage_group;
  };
  // Ids are grouped by stage, so each stage's group is opened once.
  for (std::size_t index = 0; index < tensor_count(); ++index) {
    const auto id = static_cast<TensorId>(index);
    const TensorInfo& about = info(id);
    if (const auto found = layer.tensors.find(id); found != layer.tensors.end()) {
      write_tensor(in_stage(id), std::string(about.name), found->second, about.dims, about.role);
    }
    if (const auto found = layer.unrounded.find(id); found != layer.unrounded.end()) {
      write_tensor(in_stage(id), std::string(about.name) + std::string(kUnroundedSuffix), found->second,
                   about.dims, about.role);
    }
  }
}

void DumpWriter::Impl::write_tables(Hdf5Group& step, const TableState& tables) {
  Hdf5Group group = step.create_group(std::string(kTablesGroup));
  for (const TableInfo& table : kTables) {
    write_tensor(group, std::string(table.name), tables.*table.rows, table.dims, Role::state);
  }
}

void DumpWriter::Impl::write_state(Hdf5Group& step, int number, const LayerObservation& layer) {
  Hdf5Group group = step.create_group(layer_name(number));
  for (std::size_t index = 0; index < kCacheCount; ++index) {
    const auto cache = static_cast<Cache>(index);
    const auto digest_of = layer.state_digests.find(cache);
    std::optional<Hdf5Group> cache_group;
    const auto opened = [&]() -> Hdf5Group& {
      if (!cache_group) cache_group = group.create_group(std::string(name(cache)));
      return *cache_group;
    };
    if (digest_of != layer.state_digests.end()) opened().set("digest", digest_of->second);
    for (const auto& [tensor_name, tensor] : layer.state_tensors) {
      if (snapshot_cache(tensor_name) != cache) continue;
      write_tensor(opened(), tensor_name, tensor,
                   tensor.dtype() == DType::uint8 ? "page,byte" : "row,channel", Role::state);
    }
  }
}

DumpWriter::DumpWriter(std::string path, const SourceInfo& source, const DumpOptions& options)
    : impl_(std::make_unique<Impl>()) {
  impl_->partial = path + ".partial";
  impl_->path = std::move(path);
  impl_->options = options;
  impl_->storage.compress = options.compress;
  try {
    impl_->create(source);
  } catch (...) {
    impl_->close_handles();
    if (impl_->file) {  // ours, and not even a beginning
      impl_->file->discard();
      ::unlink(impl_->partial.c_str());
    }
    throw;
  }
}

DumpWriter::~DumpWriter() {
  if (impl_ && impl_->file) {
    impl_->close_handles();
    impl_->file.reset();
  }
}

void DumpWriter::write(const StepObservation& step) {
  Impl& self = *impl_;
  require(self.file.has_value(), "a dump writer was used after it failed or finished");
  require(step.step > self.last_step, "steps of a dump must ascend");
  try {
    const std::int64_t estimate = estimate_bytes(step);
    if (self.options.max_bytes >= 0 && self.committed_bytes + estimate > self.options.max_bytes) {
      throw FileError(
          fmt::format("{}: step {} needs up to {} bytes beside the {} written; the cap is {} bytes",
                      self.partial, step.step, estimate, self.committed_bytes, self.options.max_bytes));
    }
    if (self.options.reserve) reserve(self.partial, self.committed_bytes, estimate);
    const std::string number = step_name(step.step);
    Hdf5Group tensors = self.steps_group->create_unlinked_group(number);
    Hdf5Group state = self.state_group->create_unlinked_group(number);
    if (step.event.size() <= kMaxAttributeBytes) {
      tensors.set("event", step.event);
    } else {
      Tensor text(DType::uint8, {static_cast<std::int64_t>(step.event.size())});
      std::memcpy(text.bytes().data(), step.event.data(), step.event.size());
      self.write_tensor(tensors, std::string(kEventDataset), text, "byte", Role::input);
    }
    self.write_batch(tensors, step.batch);
    if (step.tables) self.write_tables(state, *step.tables);
    for (std::size_t layer = 0; layer < step.layers.size(); ++layer) {
      self.write_layer(tensors, static_cast<int>(layer), step.layers[layer]);
      self.write_state(state, static_cast<int>(layer), step.layers[layer]);
    }
    self.file->flush();
    self.steps_group->link(tensors, number);
    self.state_group->link(state, number);
    self.commit();
  } catch (...) {
    self.abandon();
    throw;
  }
  self.last_step = step.step;
  ++self.steps;
}

void DumpWriter::finish() {
  Impl& self = *impl_;
  require(self.file.has_value(), "a dump writer was used after it failed or finished");
  try {
    self.root->overwrite("complete", 1);
    self.close_handles();
    self.file->close();
    self.file.reset();
  } catch (...) {
    self.abandon();
    throw;
  }
  const FileDescriptor raw(self.partial, O_WRONLY);
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(self.partial));
  // Gives back what was reserved beyond the end, and learns of any write that failed late.
  if (raw.get() < 0 || ::ftruncate(raw.get(), size) != 0 || ::fsync(raw.get()) != 0) {
    throw FileError(self.partial + ": cannot complete: " + system_reason());
  }
  if (std::rename(self.partial.c_str(), self.path.c_str()) != 0) {
    throw FileError(self.partial + ": cannot rename to " + self.path + ": " + system_reason());
  }
  self.committed_bytes = size;
}

const std::string& DumpWriter::path() const {
  return impl_->path;
}
const std::string& DumpWriter::partial_path() const {
  return impl_->partial;
}
std::int64_t DumpWriter::steps() const {
  return impl_->steps;
}
std::int64_t DumpWriter::bytes() const {
  return impl_->committed_bytes;
}

}  // namespace dsv4::io
