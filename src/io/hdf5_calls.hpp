/// The HDF5 C calls that src/io uses, each wrapped once: checked, with a FileError that names file, object
/// and the library's innermost reason. Internal to src/io; the only headers that see HDF5 types include this
/// one.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dsv4::io::h5 {

/// What an error message names.
struct Place {
  const std::string& file;
  const std::string& object;
};

/// Throws FileError "FILE: cannot WHAT OBJECT: REASON" with the reason on top of HDF5's error stack.
[[noreturn]] void fail(const Place& place, const char* what);

/// HDF5 prints errors by itself unless told otherwise, thread by thread; every call below does this first.
void silence();

/// Checks a return value of any HDF5 call (negative: failed).
template <class Result>
Result check(Result result, const Place& place, const char* what) {
  if (result < 0) fail(place, what);
  return result;
}

/// An identifier with the call that closes it.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Close close) : id_(id), close_(close) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      id_ = std::exchange(other.id_, -1);
      close_ = other.close_;
    }
    return *this;
  }
  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
  /// Closes and says whether that worked.
  bool reset() {
    if (id_ < 0) return true;
    silence();
    return close_(std::exchange(id_, -1)) >= 0;
  }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

using Extent = std::vector<hsize_t>;

// Files.
Handle create_file(const std::string& path);
Handle open_file(const std::string& path);
void flush(hid_t file, const Place& place);
hsize_t file_size(hid_t file, const Place& place);
/// Closes a file after a failure: its descriptor is turned away from the disk first, so that what the library
/// still writes is lost instead of failing once more.
void close_diverted(Handle& file) noexcept;

// Groups and links.
Handle open_group(hid_t at, const Place& place);
Handle create_group(hid_t at, const Place& place);
Handle create_unlinked_group(hid_t at, const Place& place);
void link(hid_t at, hid_t object, const std::string& name, const Place& place);
/// Throws FileError for a soft or external link.
bool has_link(hid_t at, const std::string& name, const Place& place);
[[noreturn]] void refuse_link(const Place& place);
Handle open_object(hid_t at, const Place& place);
/// Names of the links of a group, ascending; throws FileError for a soft or external link.
std::vector<std::string> link_names(hid_t group, const Place& place);
/// Whether an object is a group, and where in the file it lies.
std::pair<bool, std::uint64_t> group_address(hid_t at, const std::string& name, const Place& place);

// Types and spaces.
/// A little-endian IEEE or integer type; the caller does not close it.
hid_t unsigned_type(std::size_t bytes);
Handle text_type(std::size_t bytes, const Place& place);
Handle scalar_space(const Place& place);
Handle simple_space(const Extent& extent, const Place& place);
Extent extent(hid_t space, const Place& place);
void select_rows(hid_t space, const Extent& start, const Extent& count, const Place& place);

// Attributes.
bool has_attribute(hid_t object, const std::string& name, const Place& place);
Handle open_attribute(hid_t object, const std::string& name, const Place& place);
Handle create_attribute(hid_t object, const std::string& name, hid_t type, hid_t space, const Place& place);
void write_attribute(hid_t attribute, hid_t type, const void* data, const Place& place);
void read_attribute(hid_t attribute, hid_t type, void* data, const Place& place);
Handle attribute_type(hid_t attribute, const Place& place);
Handle attribute_space(hid_t attribute, const Place& place);
std::vector<std::string> attribute_names(hid_t object, const Place& place);

// Datasets.
struct Layout {
  Extent chunk;  ///< empty: contiguous
  bool shuffle = false;
  bool deflate = false;   ///< level 1
  bool checksum = false;  ///< Fletcher32
};
Handle create_dataset(hid_t at, hid_t type, hid_t space, const Layout& layout, const Place& place);
Handle open_dataset(hid_t at, const Place& place);
void write_dataset(hid_t dataset, hid_t type, const void* data, const Place& place);
void read_dataset(hid_t dataset, hid_t type, hid_t memory, hid_t selection, void* data, const Place& place);
Handle dataset_type(hid_t dataset, const Place& place);
Handle dataset_space(hid_t dataset, const Place& place);
hsize_t stored_bytes(hid_t dataset);
/// Chunks that exist in the file, and those that the extent needs; equal (0, 0) for other layouts.
std::pair<hsize_t, hsize_t> chunk_counts(hid_t dataset, const Place& place);

}  // namespace dsv4::io::h5
