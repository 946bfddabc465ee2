#include "peer/peer_file.hpp"

#include <stdexcept>

namespace dsv4::peer {
namespace {

hid_t checked(hid_t id, const std::string& what) {
  if (id < 0) throw std::runtime_error("recorded kernels: cannot open " + what);
  return id;
}

herr_t collect(hid_t, const char* name, const H5L_info_t*, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

}  // namespace

PeerFile::PeerFile(const std::string& name) : path_("data/peer/" + name + ".h5") {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  file_ = checked(H5Fopen(path_.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), path_);
}

PeerFile::~PeerFile() {
  H5Fclose(file_);
}

std::vector<std::string> PeerFile::cases() const {
  std::vector<std::string> names;
  H5Literate(file_, H5_INDEX_NAME, H5_ITER_INC, nullptr, collect, &names);
  std::erase(names, "shared");
  return names;
}

bool PeerFile::has(const std::string& path) const {
  for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    if (H5Lexists(file_, path.substr(0, slash).c_str(), H5P_DEFAULT) <= 0) return false;
  }
  return H5Lexists(file_, path.c_str(), H5P_DEFAULT) > 0;
}

Array PeerFile::read(const std::string& path) const {
  const hid_t dataset = checked(H5Dopen2(file_, path.c_str(), H5P_DEFAULT), path_ + " " + path);
  const hid_t space = H5Dget_space(dataset);
  const hid_t type = H5Dget_type(dataset);
  std::vector<hsize_t> dims(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space)));
  H5Sget_simple_extent_dims(space, dims.data(), nullptr);
  Array array;
  std::size_t count = 1;
  for (const hsize_t dim : dims) {
    array.shape.push_back(static_cast<std::int64_t>(dim));
    count *= dim;
  }
  array.element_bytes = H5Tget_size(type);
  array.bytes.resize(count * array.element_bytes);
  const herr_t status = H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, array.bytes.data());
  H5Tclose(type);
  H5Sclose(space);
  H5Dclose(dataset);
  if (status < 0) throw std::runtime_error("recorded kernels: cannot read " + path_ + " " + path);
  return array;
}

double PeerFile::number(const std::string& group, const std::string& attribute) const {
  const hid_t object = checked(H5Oopen(file_, group.c_str(), H5P_DEFAULT), path_ + " " + group);
  const hid_t id =
      checked(H5Aopen(object, attribute.c_str(), H5P_DEFAULT), group + " attribute " + attribute);
  double value = 0;
  const herr_t status = H5Aread(id, H5T_NATIVE_DOUBLE, &value);
  H5Aclose(id);
  H5Oclose(object);
  if (status < 0) throw std::runtime_error("recorded kernels: attribute " + attribute + " is no number");
  return value;
}

}  // namespace dsv4::peer
