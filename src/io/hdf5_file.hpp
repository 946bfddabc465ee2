/// HDF5 behind one door: each C call wrapped once, every failure a FileError that names file, object and
/// HDF5's own reason, the library's own printing off, handles closed by scope. No HDF5 type appears here.
///
/// Objects are created without times, strings have fixed length, files use the earliest format, so equal
/// calls give equal bytes. Numbers are stored and read through identical memory types: nothing is converted.
/// Not thread safe (the library is not); callers serialise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "model/tensor.hpp"

namespace dsv4::io {

/// Scalar attribute value. Integers are stored as int64 or uint64, reals as float64 or float32, text as a
/// fixed-length UTF-8 string.
using AttributeValue = std::variant<std::int64_t, std::uint64_t, float, double, std::string>;
using Attributes = std::vector<std::pair<std::string, AttributeValue>>;

/// How a dataset is stored: contiguous below 64 KiB, else chunks of whole rows with Fletcher32 and, when
/// `compress`, shuffle (elements of more than one byte) and gzip 1.
struct StorageOptions {
  bool compress = true;
};

struct DatasetInfo {
  std::vector<std::int64_t> shape;
  std::size_t element_bytes = 0;
  enum class Kind { unsigned_integer, signed_integer, floating, text, other } kind = Kind::other;
  std::int64_t stored_bytes = 0;
};

/// Content of a dataset of any fixed-size type, as it lies in the file.
struct RawDataset {
  std::vector<std::int64_t> shape;
  std::size_t element_bytes = 0;
  std::vector<std::byte> bytes;
};

struct Child {
  std::string name;
  bool is_group = false;
  std::uint64_t address = 0;  ///< of the object in the file; equal for two links to one object
};

class Hdf5Group;

class Hdf5File {
 public:
  static Hdf5File create(const std::string& path);  ///< truncates
  static Hdf5File open(const std::string& path);    ///< read only
  ~Hdf5File();
  Hdf5File(Hdf5File&&) noexcept;
  Hdf5File& operator=(Hdf5File&&) noexcept;

  const std::string& path() const;
  Hdf5Group root();

  /// Everything is on its way to the disk when this returns.
  void flush();
  /// Closes now; errors that a destructor would have to swallow are thrown.
  void close();
  /// Closes without another write to the disk, after a failure. A close that fails would keep the file open
  /// inside the library, and exit would write to it again.
  void discard() noexcept;
  std::int64_t file_bytes() const;

  // Reading, by absolute path.
  bool exists(const std::string& object) const;  ///< throws FileError for a soft or external link
  std::vector<Child> children(const std::string& group) const;  ///< sorted by name
  std::vector<std::string> attribute_names(const std::string& object) const;
  std::optional<AttributeValue> attribute(const std::string& object, const std::string& name) const;
  /// Throws FileError when absent or of another kind.
  std::string text(const std::string& object, const std::string& name) const;
  std::int64_t integer(const std::string& object, const std::string& name) const;
  DatasetInfo dataset_info(const std::string& dataset) const;
  /// Raw bits as `dtype`, whose width (and float or integer class) must be that of the stored type.
  Tensor read(const std::string& dataset, DType dtype) const;
  /// Rows [first, first + count) of the first axis.
  Tensor read_rows(const std::string& dataset, DType dtype, std::int64_t first, std::int64_t count) const;
  /// Rows [first, first + count) of the second axis at `outer` of the first: [count, ...].
  Tensor read_rows_of(const std::string& dataset, DType dtype, std::int64_t outer, std::int64_t first,
                      std::int64_t count) const;
  /// The dtype that the stored type itself suggests: uint8, int32, bfloat16 for uint16, float32, float64.
  DType stored_dtype(const std::string& dataset) const;
  std::vector<std::string> read_strings(const std::string& dataset) const;
  /// Bits of any numeric dataset, also of types that dumps do not use (recorded kernels: uint32, uint64).
  RawDataset read_raw(const std::string& dataset) const;

 private:
  friend class Hdf5Group;
  Tensor read_block(const std::string& dataset, DType dtype, const std::vector<std::int64_t>& start,
                    const std::vector<std::int64_t>& count) const;
  struct Impl;
  explicit Hdf5File(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// An open group that can be written. Must not outlive its file.
class Hdf5Group {
 public:
  ~Hdf5Group();
  Hdf5Group(Hdf5Group&&) noexcept;
  Hdf5Group& operator=(Hdf5Group&&) noexcept;

  Hdf5Group create_group(const std::string& name);
  /// A group without a link: invisible in the file until link() gives it a name.
  Hdf5Group create_unlinked_group(const std::string& name);
  void link(const Hdf5Group& unlinked, const std::string& name);
  void write(const std::string& name, const Tensor& tensor, const Attributes& attributes,
             const StorageOptions& options);
  void write_strings(const std::string& name, const std::vector<std::string>& values,
                     const StorageOptions& options);
  void set(const std::string& attribute, const AttributeValue& value);
  /// Replaces the value of an existing integer attribute.
  void overwrite(const std::string& attribute, std::int64_t value);

 private:
  friend class Hdf5File;
  struct Impl;
  explicit Hdf5Group(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dsv4::io
