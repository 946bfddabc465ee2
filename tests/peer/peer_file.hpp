/// Reads recorded kernels (data/peer/*.h5): raw bits in unsigned integers, the real type in attribute
/// `dtype`.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace dsv4::peer {

/// A dataset: shape and bits.
struct Array {
  std::vector<std::int64_t> shape;
  std::size_t element_bytes = 0;
  std::vector<std::byte> bytes;

  std::int64_t dim(std::size_t axis) const { return shape.at(axis); }
  std::int64_t elements() const { return static_cast<std::int64_t>(bytes.size() / element_bytes); }
  std::int64_t row() const { return elements() / shape.at(0); }

  /// The bits as T; throws when the width differs.
  template <class T>
  const T* as() const {
    if (sizeof(T) != element_bytes) throw std::runtime_error("recorded array read with another width");
    return reinterpret_cast<const T*>(bytes.data());
  }
};

class PeerFile {
 public:
  /// `name` without folder and ending, for example "vllm_k_cache".
  explicit PeerFile(const std::string& name);
  ~PeerFile();
  PeerFile(const PeerFile&) = delete;
  PeerFile& operator=(const PeerFile&) = delete;

  /// Groups of the file but `shared`.
  std::vector<std::string> cases() const;
  Array read(const std::string& path) const;
  bool has(const std::string& path) const;
  double number(const std::string& group, const std::string& attribute) const;

 private:
  std::string path_;
  hid_t file_ = -1;
};

}  // namespace dsv4::peer
