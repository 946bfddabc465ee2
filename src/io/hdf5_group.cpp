#include <algorithm>

#include "io/hdf5_file.hpp"
#include "io/hdf5_file_impl.hpp"
#include "model/error.hpp"

namespace dsv4::io {
namespace {

using h5::Extent;
using h5::Handle;
using h5::Place;

/// Chunks of whole rows, as many as 256 KiB hold.
Extent chunk_shape(const Extent& shape, std::size_t element_bytes) {
  Extent chunk = shape;
  hsize_t row_bytes = element_bytes;
  for (std::size_t axis = 1; axis < shape.size(); ++axis) row_bytes *= shape[axis];
  chunk[0] = std::clamp<hsize_t>(kMaxChunkBytes / row_bytes, 1, shape[0]);
  return chunk;
}

h5::Layout storage(const Extent& shape, std::size_t bytes, std::size_t element_bytes, bool compress) {
  if (bytes < kContiguousBelow || shape.empty()) return {};
  return {chunk_shape(shape, element_bytes), compress && element_bytes > 1, compress, true};
}

void set_on(hid_t object, const std::string& name, const AttributeValue& value, const Place& place) {
  const Handle space = h5::scalar_space(place);
  const auto write = [&](hid_t type, const void* data) {
    h5::write_attribute(h5::create_attribute(object, name, type, space.get(), place).get(), type, data,
                        place);
  };
  if (const auto* text = std::get_if<std::string>(&value)) {
    const Handle type = h5::text_type(text->size(), place);
    write(type.get(), text->c_str());
  } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    write(H5T_STD_I64LE, integer);
  } else if (const auto* natural = std::get_if<std::uint64_t>(&value)) {
    write(H5T_STD_U64LE, natural);
  } else if (const auto* single = std::get_if<float>(&value)) {
    write(H5T_IEEE_F32LE, single);
  } else {
    write(H5T_IEEE_F64LE, &std::get<double>(value));
  }
}

}  // namespace

Hdf5Group::Hdf5Group(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Hdf5Group::~Hdf5Group() = default;
Hdf5Group::Hdf5Group(Hdf5Group&&) noexcept = default;
Hdf5Group& Hdf5Group::operator=(Hdf5Group&&) noexcept = default;

Hdf5Group Hdf5Group::create_group(const std::string& name) {
  Handle handle = h5::create_group(impl_->group.get(), {*impl_->file, name});
  return Hdf5Group(std::make_unique<Impl>(Impl{impl_->file, name, std::move(handle)}));
}

Hdf5Group Hdf5Group::create_unlinked_group(const std::string& name) {
  Handle handle = h5::create_unlinked_group(impl_->group.get(), {*impl_->file, name});
  return Hdf5Group(std::make_unique<Impl>(Impl{impl_->file, name, std::move(handle)}));
}

void Hdf5Group::link(const Hdf5Group& unlinked, const std::string& name) {
  h5::link(impl_->group.get(), unlinked.impl_->group.get(), name, {*impl_->file, name});
}

void Hdf5Group::set(const std::string& attribute, const AttributeValue& value) {
  set_on(impl_->group.get(), attribute, value, {*impl_->file, impl_->name});
}

void Hdf5Group::overwrite(const std::string& attribute, std::int64_t value) {
  const Place place{*impl_->file, impl_->name};
  h5::write_attribute(h5::open_attribute(impl_->group.get(), attribute, place).get(), H5T_STD_I64LE, &value,
                      place);
}

void Hdf5Group::write(const std::string& name, const Tensor& tensor, const Attributes& attributes,
                      const StorageOptions& options) {
  const Place place{*impl_->file, name};
  const Extent shape(tensor.shape().begin(), tensor.shape().end());
  const hid_t type = memory_type(tensor.dtype());
  const h5::Layout layout =
      storage(shape, tensor.bytes().size(), size_bytes(tensor.dtype()), options.compress);
  const Handle space = h5::simple_space(shape, place);
  const Handle dataset = h5::create_dataset(impl_->group.get(), type, space.get(), layout, place);
  for (const auto& [key, value] : attributes) set_on(dataset.get(), key, value, place);
  if (tensor.elements() > 0) h5::write_dataset(dataset.get(), type, tensor.bytes().data(), place);
}

void Hdf5Group::write_strings(const std::string& name, const std::vector<std::string>& values,
                              const StorageOptions& options) {
  const Place place{*impl_->file, name};
  std::size_t width = 1;
  for (const std::string& value : values) width = std::max(width, value.size());
  std::string bytes;
  for (std::string value : values) {
    value.resize(width, '\0');
    bytes += value;
  }
  const Extent shape{values.size()};
  const Handle type = h5::text_type(width, place);
  const Handle space = h5::simple_space(shape, place);
  const Handle dataset = h5::create_dataset(impl_->group.get(), type.get(), space.get(),
                                            storage(shape, bytes.size(), width, options.compress), place);
  if (!values.empty()) h5::write_dataset(dataset.get(), type.get(), bytes.data(), place);
}

}  // namespace dsv4::io
