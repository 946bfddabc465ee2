#include "io/hdf5_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "io/hdf5_file_impl.hpp"
#include "model/error.hpp"

namespace dsv4::io {

hid_t memory_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return H5T_IEEE_F32LE;
    case DType::float64:
      return H5T_IEEE_F64LE;
    case DType::int32:
      return H5T_STD_I32LE;
    default:
      return h5::unsigned_type(size_bytes(dtype));
  }
}

namespace {

using h5::Extent;
using h5::Handle;
using h5::Place;

/// A stored element type by the name that numpy gives it, for messages.
std::string type_text(hid_t type) {
  std::string text = "other";
  if (H5Tget_class(type) == H5T_FLOAT) text = "float";
  if (H5Tget_class(type) == H5T_INTEGER) text = H5Tget_sign(type) == H5T_SGN_NONE ? "uint" : "int";
  if (text == "other") return "another kind of element";
  text += std::to_string(8 * H5Tget_size(type));
  return H5Tget_order(type) == H5T_ORDER_BE ? "big-endian " + text : text;
}

/// Puts the length into the superblock of a file in the earliest format (versions 0 and 1; later ones, and a
/// superblock that is not written yet, are left to the library).
bool state_length(const std::string& path, std::int64_t length) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1A\n";
  std::array<char, 9> begin{};  // the version is behind the signature
  bool done = ::pread(file, begin.data(), begin.size(), 0) == static_cast<ssize_t>(begin.size());
  if (done && std::string_view(begin.data(), 8) == kSignature && begin[8] <= 1) {
    const off_t length_at = begin[8] == 0 ? 40 : 44;  // HDF5 file format, superblock: end of file address
    done = ::pwrite(file, &length, sizeof length, length_at) == sizeof length;
  }
  return ::close(file) == 0 && done;
}

std::string trimmed(std::string text) {
  text.resize(std::strlen(text.c_str()));
  return text;
}

AttributeValue read_value(hid_t attribute, const Place& place) {
  const Handle type = h5::attribute_type(attribute, place);
  const Handle space = h5::attribute_space(attribute, place);
  if (!h5::extent(space.get(), place).empty()) {
    throw FileError(place.file + ": an attribute of " + place.object + " is not a scalar");
  }
  const std::size_t size = H5Tget_size(type.get());
  const auto read = [&]<class T>(T value, hid_t memory) {
    h5::read_attribute(attribute, memory, &value, place);
    return value;
  };
  switch (H5Tget_class(type.get())) {
    case H5T_STRING: {
      if (H5Tis_variable_str(type.get()) > 0) {
        throw FileError(place.file + ": an attribute of " + place.object + " is a variable-length string");
      }
      std::string text(size, '\0');
      h5::read_attribute(attribute, type.get(), text.data(), place);
      text += '\0';
      return trimmed(std::move(text));
    }
    case H5T_FLOAT:
      if (H5Tequal(type.get(), H5T_IEEE_F32LE) > 0) return read(0.0F, H5T_IEEE_F32LE);
      if (H5Tequal(type.get(), H5T_IEEE_F64LE) > 0) return read(0.0, H5T_IEEE_F64LE);
      break;
    case H5T_INTEGER:  // widening of integers is exact
      if (H5Tget_sign(type.get()) == H5T_SGN_NONE) return read(std::uint64_t{0}, H5T_NATIVE_UINT64);
      return read(std::int64_t{0}, H5T_NATIVE_INT64);
    case H5T_ENUM:  // h5py's bool
      if (size == 1) {
        std::int8_t value = 0;
        h5::read_attribute(attribute, type.get(), &value, place);
        return std::int64_t{value};
      }
      break;
    default:
      break;
  }
  throw FileError(place.file + ": an attribute of " + place.object + " has a type that dumps do not use");
}

/// The shape as signed numbers; refuses products that overflow and content that the file cannot hold.
std::vector<std::int64_t> checked_shape(hid_t dataset, const Extent& shape, std::size_t element_bytes,
                                        const Place& place) {
  std::vector<std::int64_t> result;
  std::uint64_t total = element_bytes;
  for (const hsize_t dim : shape) {
    if (__builtin_mul_overflow(total, dim, &total) || total > (std::uint64_t{1} << 46)) {
      throw FileError(place.file + ": the shape of " + place.object + " is implausibly large");
    }
    result.push_back(static_cast<std::int64_t>(dim));
  }
  const auto [present, needed] = h5::chunk_counts(dataset, place);
  const hsize_t stored = h5::stored_bytes(dataset);
  if (present != needed || (needed == 0 && stored < total)) {
    throw FileError(place.file + ": " + place.object + " was never written completely (" +
                    std::to_string(stored) + " bytes stored for " + std::to_string(total) + ")");
  }
  return result;
}

}  // namespace

// ---------------------------------------------------------------------------------------------- files

Hdf5File::Hdf5File(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Hdf5File::~Hdf5File() = default;
Hdf5File::Hdf5File(Hdf5File&&) noexcept = default;
Hdf5File& Hdf5File::operator=(Hdf5File&&) noexcept = default;

Hdf5File Hdf5File::create(const std::string& path) {
  return Hdf5File(std::make_unique<Impl>(Impl{path, h5::create_file(path)}));
}

Hdf5File Hdf5File::open(const std::string& path) {
  if (::access(path.c_str(), R_OK) != 0) throw FileError(path + ": cannot open: " + std::strerror(errno));
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) throw FileError(path + ": is no regular file");
  return Hdf5File(std::make_unique<Impl>(Impl{path, h5::open_file(path)}));
}

const std::string& Hdf5File::path() const {
  return impl_->path;
}

Hdf5Group Hdf5File::root() {
  const std::string name = "/";
  return Hdf5Group(std::make_unique<Hdf5Group::Impl>(
      Hdf5Group::Impl{&impl_->path, name, h5::open_group(impl_->file.get(), {impl_->path, name})}));
}

std::int64_t Hdf5File::file_bytes() const {
  return static_cast<std::int64_t>(h5::file_size(impl_->file.get(), {impl_->path, {}}));
}

void Hdf5File::flush() {
  // The library writes the superblock, which states the file's length, and the nodes that lie behind the old
  // length in an order of its own; a process killed in between would leave a file that looks truncated, or an
  // index that points beyond the stated length. Extending the file first, then stating the new length, closes
  // both gaps: whatever is written after that lies within.
  const std::int64_t size = file_bytes();
  if (::truncate(impl_->path.c_str(), size) != 0 || !state_length(impl_->path, size)) {
    throw FileError(impl_->path + ": cannot extend: " + std::strerror(errno));
  }
  h5::flush(impl_->file.get(), {impl_->path, {}});
}

void Hdf5File::close() {
  if (!impl_->file.reset()) h5::fail({impl_->path, {}}, "close");
}

void Hdf5File::discard() noexcept {
  if (impl_->file) h5::close_diverted(impl_->file);
}

// -------------------------------------------------------------------------------------------- reading

bool Hdf5File::exists(const std::string& object) const {
  // The library asks about one link at a time; a missing parent is an error there.
  for (std::size_t at = 1; at < object.size();) {
    const std::size_t end = std::min(object.find('/', at), object.size());
    if (!h5::has_link(impl_->file.get(), object.substr(0, end), {impl_->path, object})) return false;
    at = end + 1;
  }
  return true;
}

std::vector<Child> Hdf5File::children(const std::string& group) const {
  const Place place{impl_->path, group};
  const Handle handle = h5::open_group(impl_->file.get(), place);
  std::vector<Child> result;
  for (std::string& name : h5::link_names(handle.get(), place)) {
    const auto [group_child, address] = h5::group_address(handle.get(), name, place);
    result.push_back({std::move(name), group_child, address});
  }
  return result;
}

std::vector<std::string> Hdf5File::attribute_names(const std::string& object) const {
  const Place place{impl_->path, object};
  return h5::attribute_names(h5::open_object(impl_->file.get(), place).get(), place);
}

std::optional<AttributeValue> Hdf5File::attribute(const std::string& object, const std::string& name) const {
  const Place place{impl_->path, object};
  const Handle handle = h5::open_object(impl_->file.get(), place);
  if (!h5::has_attribute(handle.get(), name, place)) return std::nullopt;
  return read_value(h5::open_attribute(handle.get(), name, place).get(), place);
}

std::string Hdf5File::text(const std::string& object, const std::string& name) const {
  const auto value = attribute(object, name);
  if (!value) throw FileError(impl_->path + ": " + object + " has no attribute '" + name + "'");
  if (const auto* held = std::get_if<std::string>(&*value)) return *held;
  throw FileError(impl_->path + ": attribute '" + name + "' of " + object + " is not text");
}

std::int64_t Hdf5File::integer(const std::string& object, const std::string& name) const {
  const auto value = attribute(object, name);
  if (!value) throw FileError(impl_->path + ": " + object + " has no attribute '" + name + "'");
  if (const auto* held = std::get_if<std::int64_t>(&*value)) return *held;
  if (const auto* held = std::get_if<std::uint64_t>(&*value)) {
    if (*held <= std::uint64_t{INT64_MAX}) return static_cast<std::int64_t>(*held);
    throw FileError(impl_->path + ": attribute '" + name + "' of " + object + " is " + std::to_string(*held) +
                    ", more than an int64 holds");
  }
  throw FileError(impl_->path + ": attribute '" + name + "' of " + object + " is not an integer");
}

DatasetInfo Hdf5File::dataset_info(const std::string& dataset) const {
  const Place place{impl_->path, dataset};
  const Handle handle = h5::open_dataset(impl_->file.get(), place);
  const Handle type = h5::dataset_type(handle.get(), place);
  const Handle space = h5::dataset_space(handle.get(), place);
  DatasetInfo info;
  info.element_bytes = H5Tget_size(type.get());
  info.shape = checked_shape(handle.get(), h5::extent(space.get(), place), info.element_bytes, place);
  info.stored_bytes = static_cast<std::int64_t>(h5::stored_bytes(handle.get()));
  switch (H5Tget_class(type.get())) {
    case H5T_INTEGER:
      info.kind = H5Tget_sign(type.get()) == H5T_SGN_NONE ? DatasetInfo::Kind::unsigned_integer
                                                          : DatasetInfo::Kind::signed_integer;
      break;
    case H5T_FLOAT:
      info.kind = DatasetInfo::Kind::floating;
      break;
    case H5T_STRING:
      info.kind = DatasetInfo::Kind::text;
      break;
    default:
      break;
  }
  return info;
}

DType Hdf5File::stored_dtype(const std::string& dataset) const {
  const Place place{impl_->path, dataset};
  const Handle handle = h5::open_dataset(impl_->file.get(), place);
  const Handle type = h5::dataset_type(handle.get(), place);
  for (const DType dtype : {DType::uint8, DType::bfloat16, DType::int32, DType::float32, DType::float64}) {
    if (H5Tequal(type.get(), memory_type(dtype)) > 0) return dtype;
  }
  throw FileError(impl_->path + ": " + dataset + " has an element type that dumps do not use");
}

Tensor Hdf5File::read(const std::string& dataset, DType dtype) const {
  return read_block(dataset, dtype, {}, {});
}

Tensor Hdf5File::read_rows(const std::string& dataset, DType dtype, std::int64_t first,
                           std::int64_t count) const {
  return read_block(dataset, dtype, {first}, {count});
}

Tensor Hdf5File::read_rows_of(const std::string& dataset, DType dtype, std::int64_t outer, std::int64_t first,
                              std::int64_t count) const {
  const Tensor block = read_block(dataset, dtype, {outer, first}, {1, count});
  Tensor rows(dtype, {block.shape().begin() + 1, block.shape().end()});
  std::ranges::copy(block.bytes(), rows.bytes().begin());
  return rows;
}

/// The ranges of the leading axes; further axes whole.
Tensor Hdf5File::read_block(const std::string& dataset, DType dtype, const std::vector<std::int64_t>& start,
                            const std::vector<std::int64_t>& count) const {
  const Place place{impl_->path, dataset};
  const Handle handle = h5::open_dataset(impl_->file.get(), place);
  const Handle type = h5::dataset_type(handle.get(), place);
  if (H5Tequal(type.get(), memory_type(dtype)) <= 0) {
    throw FileError(impl_->path + ": " + dataset + " is not stored as " + std::string(name(dtype)) +
                    " bits: it holds " + type_text(type.get()) + ", and " + type_text(memory_type(dtype)) +
                    " is expected");
  }
  const Handle space = h5::dataset_space(handle.get(), place);
  const Extent shape = h5::extent(space.get(), place);
  std::vector<std::int64_t> wanted = checked_shape(handle.get(), shape, size_bytes(dtype), place);
  Extent first(shape.size(), 0);
  Extent size = shape;
  for (std::size_t axis = 0; axis < start.size(); ++axis) {
    if (axis >= wanted.size() || start[axis] < 0 || count[axis] < 0 ||
        count[axis] > wanted[axis] - start[axis]) {
      throw FileError(impl_->path + ": " + dataset + " has no rows " + std::to_string(start[axis]) + " to " +
                      std::to_string(start[axis] + count[axis] - 1) + " along axis " + std::to_string(axis));
    }
    wanted[axis] = count[axis];
    first[axis] = static_cast<hsize_t>(start[axis]);
    size[axis] = static_cast<hsize_t>(count[axis]);
  }
  Tensor tensor(dtype, wanted);
  if (tensor.elements() == 0) return tensor;
  if (start.empty()) {
    h5::read_dataset(handle.get(), memory_type(dtype), H5S_ALL, H5S_ALL, tensor.bytes().data(), place);
    return tensor;
  }
  h5::select_rows(space.get(), first, size, place);
  const Handle memory = h5::simple_space(size, place);
  h5::read_dataset(handle.get(), memory_type(dtype), memory.get(), space.get(), tensor.bytes().data(), place);
  return tensor;
}

std::vector<std::string> Hdf5File::read_strings(const std::string& dataset) const {
  const Place place{impl_->path, dataset};
  const Handle handle = h5::open_dataset(impl_->file.get(), place);
  const Handle type = h5::dataset_type(handle.get(), place);
  if (H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) != 0) {
    throw FileError(impl_->path + ": " + dataset + " does not hold fixed-length strings");
  }
  const std::size_t width = H5Tget_size(type.get());
  const Handle space = h5::dataset_space(handle.get(), place);
  const auto shape = checked_shape(handle.get(), h5::extent(space.get(), place), width, place);
  const auto count = static_cast<std::size_t>(Tensor::count(shape));
  std::string bytes(count * width, '\0');
  if (count > 0) h5::read_dataset(handle.get(), type.get(), H5S_ALL, H5S_ALL, bytes.data(), place);
  std::vector<std::string> result;
  for (std::size_t i = 0; i < count; ++i) result.push_back(trimmed(bytes.substr(i * width, width) + '\0'));
  return result;
}

RawDataset Hdf5File::read_raw(const std::string& dataset) const {
  const Place place{impl_->path, dataset};
  const Handle handle = h5::open_dataset(impl_->file.get(), place);
  const Handle type = h5::dataset_type(handle.get(), place);
  if (const auto kind = H5Tget_class(type.get());
      kind != H5T_INTEGER && kind != H5T_FLOAT && kind != H5T_ENUM) {
    throw FileError(impl_->path + ": " + dataset + " does not hold numbers");
  }
  RawDataset raw;
  raw.element_bytes = H5Tget_size(type.get());
  const Handle space = h5::dataset_space(handle.get(), place);
  raw.shape = checked_shape(handle.get(), h5::extent(space.get(), place), raw.element_bytes, place);
  raw.bytes.resize(static_cast<std::size_t>(Tensor::count(raw.shape)) * raw.element_bytes);
  if (!raw.bytes.empty())
    h5::read_dataset(handle.get(), type.get(), H5S_ALL, H5S_ALL, raw.bytes.data(), place);
  return raw;
}

}  // namespace dsv4::io
