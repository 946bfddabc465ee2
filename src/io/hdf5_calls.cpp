#include "io/hdf5_calls.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "model/error.hpp"

namespace dsv4::io::h5 {
namespace {

/// Keeps the description of the innermost error, which H5E_WALK_UPWARD visits first.
herr_t keep_innermost(unsigned depth, const H5E_error2_t* error, void* data) {
  if (depth == 0 && error->desc != nullptr) *static_cast<std::string*>(data) = error->desc;
  return 0;
}

/// "No space left on device" out of "file write failed: time = ..., error message = '...', buf = 0x...".
std::string reason() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &text);
  H5Eclear2(H5E_DEFAULT);
  const std::string marker = "error message = '";
  if (const auto at = text.find(marker); at != std::string::npos) {
    const auto begin = at + marker.size();
    return text.substr(begin, text.find('\'', begin) - begin);
  }
  return text.empty() ? "HDF5 gives no reason" : text;
}

/// Property lists differ only in their class.
Handle properties(hid_t list_class, const Place& place) {
  silence();
  return {check(H5Pcreate(list_class), place, "prepare"), H5Pclose};
}

/// Objects without times: equal content gives equal bytes.
Handle untimed(hid_t list_class, const Place& place) {
  Handle list = properties(list_class, place);
  check(H5Pset_obj_track_times(list.get(), false), place, "prepare");
  return list;
}

struct Link {
  std::string name;
  bool hard;
};

herr_t collect_link(hid_t, const char* name, const H5L_info_t* info, void* data) {
  static_cast<std::vector<Link>*>(data)->push_back({name, info->type == H5L_TYPE_HARD});
  return 0;
}

herr_t collect_attribute(hid_t, const char* name, const H5A_info_t*, void* data) {
  static_cast<std::vector<std::string>*>(data)->emplace_back(name);
  return 0;
}

}  // namespace

void fail(const Place& place, const char* what) {
  const std::string object = place.object.empty() ? "" : " " + place.object;
  throw FileError(place.file + ": cannot " + what + object + ": " + reason());
}

/// Files are closed by their handles. The library's own clean-up at exit would write again to a file whose
/// close failed, on a full disk, and crashes there. Set before main, because it must come before any other
/// call.
[[maybe_unused]] const bool kNoExitHandler = H5dont_atexit() >= 0;

void silence() {
  thread_local bool done = false;
  if (!done) H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  done = true;
}

Handle create_file(const std::string& path) {
  const Place place{path, {}};
  const Handle creation = untimed(H5P_FILE_CREATE, place);
  // A dump has thousands of small groups; small index nodes keep them small.
  check(H5Pset_sym_k(creation.get(), 4, 2), place, "prepare");
  const Handle access = properties(H5P_FILE_ACCESS, place);
  // No buffers for content: a write that fails must fail in H5Dwrite, because a close that fails leaves
  // objects inside the library that crash it at exit.
  check(H5Pset_sieve_buf_size(access.get(), 0), place, "prepare");
  check(H5Pset_cache(access.get(), 0, 0, 0, 0.0), place, "prepare");
  check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST), place, "prepare");
  return {check(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), place, "create"),
          H5Fclose};
}

Handle open_file(const std::string& path) {
  silence();
  return {check(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), {path, {}}, "open"), H5Fclose};
}

void flush(hid_t file, const Place& place) {
  check(H5Fflush(file, H5F_SCOPE_GLOBAL), place, "flush");
}

hsize_t file_size(hid_t file, const Place& place) {
  hsize_t size = 0;
  check(H5Fget_filesize(file, &size), place, "measure");
  return size;
}

void close_diverted(Handle& file) noexcept {
  void* driver = nullptr;
  silence();
  if (H5Fget_vfd_handle(file.get(), H5P_DEFAULT, &driver) >= 0 && driver != nullptr) {
    const int memory = ::memfd_create("diverted", MFD_CLOEXEC);
    if (memory >= 0) {
      ::dup3(memory, *static_cast<const int*>(driver), O_CLOEXEC);
      ::close(memory);
    }
  }
  // A limit on file lengths holds for memory files too.
  rlimit limit{};
  const bool known = ::getrlimit(RLIMIT_FSIZE, &limit) == 0;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  if (known) ::setrlimit(RLIMIT_FSIZE, &raised);
  file.reset();
  if (known) ::setrlimit(RLIMIT_FSIZE, &limit);
}

Handle open_group(hid_t at, const Place& place) {
  silence();
  return {check(H5Gopen2(at, place.object.c_str(), H5P_DEFAULT), place, "open group"), H5Gclose};
}

Handle create_group(hid_t at, const Place& place) {
  const Handle creation = untimed(H5P_GROUP_CREATE, place);
  return {check(H5Gcreate2(at, place.object.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT), place,
                "create group"),
          H5Gclose};
}

Handle create_unlinked_group(hid_t at, const Place& place) {
  const Handle creation = untimed(H5P_GROUP_CREATE, place);
  return {check(H5Gcreate_anon(at, creation.get(), H5P_DEFAULT), place, "create group"), H5Gclose};
}

void link(hid_t at, hid_t object, const std::string& name, const Place& place) {
  check(H5Olink(object, at, name.c_str(), H5P_DEFAULT, H5P_DEFAULT), place, "link");
}

bool has_link(hid_t at, const std::string& name, const Place& place) {
  silence();
  if (check(H5Lexists(at, name.c_str(), H5P_DEFAULT), place, "look up") == 0) return false;
  H5L_info_t info;
  check(H5Lget_info(at, name.c_str(), &info, H5P_DEFAULT), place, "look up");
  if (info.type != H5L_TYPE_HARD) refuse_link({place.file, name});
  return true;
}

void refuse_link(const Place& place) {
  throw FileError(place.file + ": " + place.object +
                  " is a soft or external link; only objects of the file itself are read");
}

Handle open_object(hid_t at, const Place& place) {
  silence();
  return {check(H5Oopen(at, place.object.c_str(), H5P_DEFAULT), place, "open"), H5Oclose};
}

std::vector<std::string> link_names(hid_t group, const Place& place) {
  silence();
  std::vector<Link> links;
  check(H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, nullptr, collect_link, &links), place, "list");
  std::vector<std::string> names;
  for (Link& link : links) {
    if (!link.hard) refuse_link({place.file, place.object + "/" + link.name});
    names.push_back(std::move(link.name));
  }
  std::ranges::sort(names);
  return names;
}

std::pair<bool, std::uint64_t> group_address(hid_t at, const std::string& name, const Place& place) {
  silence();
  H5O_info_t info;
  check(H5Oget_info_by_name2(at, name.c_str(), &info, H5O_INFO_BASIC, H5P_DEFAULT), place, "look at");
  return {info.type == H5O_TYPE_GROUP, info.addr};
}

hid_t unsigned_type(std::size_t bytes) {
  switch (bytes) {
    case 1:
      return H5T_STD_U8LE;
    case 2:
      return H5T_STD_U16LE;
    case 4:
      return H5T_STD_U32LE;
    default:
      return H5T_STD_U64LE;
  }
}

Handle text_type(std::size_t bytes, const Place& place) {
  silence();
  Handle type(check(H5Tcopy(H5T_C_S1), place, "describe text of"), H5Tclose);
  check(H5Tset_size(type.get(), std::max<std::size_t>(bytes, 1)), place, "describe text of");
  check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), place, "describe text of");
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8), place, "describe text of");
  return type;
}

Handle scalar_space(const Place& place) {
  silence();
  return {check(H5Screate(H5S_SCALAR), place, "describe"), H5Sclose};
}

Handle simple_space(const Extent& extent, const Place& place) {
  if (extent.empty()) return scalar_space(place);
  silence();
  const auto rank = static_cast<int>(extent.size());
  return {check(H5Screate_simple(rank, extent.data(), nullptr), place, "describe"), H5Sclose};
}

Extent extent(hid_t space, const Place& place) {
  const int rank = check(H5Sget_simple_extent_ndims(space), place, "read the shape of");
  Extent result(static_cast<std::size_t>(rank));
  if (rank > 0) check(H5Sget_simple_extent_dims(space, result.data(), nullptr), place, "read the shape of");
  return result;
}

void select_rows(hid_t space, const Extent& start, const Extent& count, const Place& place) {
  check(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr), place,
        "select rows of");
}

bool has_attribute(hid_t object, const std::string& name, const Place& place) {
  silence();
  return check(H5Aexists(object, name.c_str()), place, "look for attributes of") > 0;
}

Handle open_attribute(hid_t object, const std::string& name, const Place& place) {
  silence();
  return {check(H5Aopen(object, name.c_str(), H5P_DEFAULT), place, "open an attribute of"), H5Aclose};
}

Handle create_attribute(hid_t object, const std::string& name, hid_t type, hid_t space, const Place& place) {
  silence();
  return {check(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), place,
                "create an attribute of"),
          H5Aclose};
}

void write_attribute(hid_t attribute, hid_t type, const void* data, const Place& place) {
  check(H5Awrite(attribute, type, data), place, "write an attribute of");
}

void read_attribute(hid_t attribute, hid_t type, void* data, const Place& place) {
  check(H5Aread(attribute, type, data), place, "read an attribute of");
}

Handle attribute_type(hid_t attribute, const Place& place) {
  return {check(H5Aget_type(attribute), place, "read an attribute of"), H5Tclose};
}

Handle attribute_space(hid_t attribute, const Place& place) {
  return {check(H5Aget_space(attribute), place, "read an attribute of"), H5Sclose};
}

std::vector<std::string> attribute_names(hid_t object, const Place& place) {
  std::vector<std::string> names;
  check(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, nullptr, collect_attribute, &names), place,
        "list attributes of");
  std::ranges::sort(names);
  return names;
}

Handle create_dataset(hid_t at, hid_t type, hid_t space, const Layout& layout, const Place& place) {
  const Handle creation = untimed(H5P_DATASET_CREATE, place);
  const auto set = [&](herr_t result) { check(result, place, "choose the storage of"); };
  if (layout.chunk.empty()) {
    set(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER));
  } else {
    set(H5Pset_chunk(creation.get(), static_cast<int>(layout.chunk.size()), layout.chunk.data()));
    if (layout.shuffle) set(H5Pset_shuffle(creation.get()));
    if (layout.deflate) set(H5Pset_deflate(creation.get(), 1));
    if (layout.checksum) set(H5Pset_fletcher32(creation.get()));
  }
  return {check(H5Dcreate2(at, place.object.c_str(), type, space, H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                place, "create dataset"),
          H5Dclose};
}

Handle open_dataset(hid_t at, const Place& place) {
  silence();
  return {check(H5Dopen2(at, place.object.c_str(), H5P_DEFAULT), place, "open dataset"), H5Dclose};
}

void write_dataset(hid_t dataset, hid_t type, const void* data, const Place& place) {
  check(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), place, "write dataset");
}

void read_dataset(hid_t dataset, hid_t type, hid_t memory, hid_t selection, void* data, const Place& place) {
  check(H5Dread(dataset, type, memory, selection, H5P_DEFAULT, data), place, "read dataset");
}

Handle dataset_type(hid_t dataset, const Place& place) {
  return {check(H5Dget_type(dataset), place, "read the type of"), H5Tclose};
}

Handle dataset_space(hid_t dataset, const Place& place) {
  return {check(H5Dget_space(dataset), place, "read the shape of"), H5Sclose};
}

hsize_t stored_bytes(hid_t dataset) {
  return H5Dget_storage_size(dataset);
}

std::pair<hsize_t, hsize_t> chunk_counts(hid_t dataset, const Place& place) {
  const Handle creation(check(H5Dget_create_plist(dataset), place, "read the storage of"), H5Pclose);
  if (check(H5Pget_layout(creation.get()), place, "read the storage of") != H5D_CHUNKED) return {0, 0};
  const Handle space = dataset_space(dataset, place);
  const Extent shape = extent(space.get(), place);
  Extent chunk(shape.size());
  check(H5Pget_chunk(creation.get(), static_cast<int>(chunk.size()), chunk.data()), place,
        "read the storage of");
  hsize_t needed = 1;
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    needed *= (shape[axis] + chunk[axis] - 1) / chunk[axis];
  hsize_t present = 0;
  check(H5Dget_num_chunks(dataset, space.get(), &present), place, "count the chunks of");
  return {present, needed};
}

}  // namespace dsv4::io::h5
