#include "io/safetensors.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "model/error.hpp"

namespace dsv4::io {
namespace {

using Json = nlohmann::json;

/// The format's own limit on the header.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::uint64_t kLengthBytes = 8;

struct TypeRow {
  StDType type;
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array<TypeRow, 16> kTypes{{{StDType::f8_e4m3, "F8_E4M3", 1},
                                          {StDType::f8_e5m2, "F8_E5M2", 1},
                                          {StDType::f8_e8m0, "F8_E8M0", 1},
                                          {StDType::bf16, "BF16", 2},
                                          {StDType::f16, "F16", 2},
                                          {StDType::f32, "F32", 4},
                                          {StDType::f64, "F64", 8},
                                          {StDType::i8, "I8", 1},
                                          {StDType::i16, "I16", 2},
                                          {StDType::i32, "I32", 4},
                                          {StDType::i64, "I64", 8},
                                          {StDType::u8, "U8", 1},
                                          {StDType::u16, "U16", 2},
                                          {StDType::u32, "U32", 4},
                                          {StDType::u64, "U64", 8},
                                          {StDType::boolean, "BOOL", 1}}};

const TypeRow* type_row(std::string_view spelling) {
  const auto found = std::ranges::find(kTypes, spelling, &TypeRow::name);
  return found == kTypes.end() ? nullptr : &*found;
}

const TypeRow& type_row(StDType type) {
  const auto found = std::ranges::find(kTypes, type, &TypeRow::type);
  require(found != kTypes.end(), "a safetensors type without a row");
  return *found;
}

/// Maps a whole file read-only.
class Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) throw FileError(path + ": cannot open: " + std::strerror(errno));
    struct stat about {};
    if (::fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) {
      ::close(file);
      throw FileError(path + ": not a regular file");
    }
    size_ = static_cast<std::size_t>(about.st_size);
    if (size_ > 0) data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    const int error = errno;
    ::close(file);
    if (data_ == MAP_FAILED) throw FileError(path + ": cannot map: " + std::strerror(error));
  }
  ~Mapping() {
    if (data_ != nullptr && data_ != MAP_FAILED) ::munmap(data_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Parses JSON and refuses repeated keys, which the parser alone would silently merge.
Json parse_header(const std::string& path, std::string_view text) {
  std::vector<std::set<std::string>> open;
  std::string repeated;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second) {
      repeated = value.get<std::string>();
    }
    return true;
  };
  Json header;
  try {
    header = Json::parse(text, watch);
  } catch (const Json::exception& error) {
    throw FileError(path + ": header is not JSON: " + error.what());
  }
  if (!repeated.empty()) throw FileError(path + ": header names '" + repeated + "' twice");
  if (!header.is_object()) throw FileError(path + ": header is not a JSON object");
  return header;
}

/// A non-negative integer of the header.
std::uint64_t natural(const std::string& path, const std::string& tensor, const Json& value,
                      const char* what) {
  if (!value.is_number_unsigned()) {
    throw FileError(fmt::format("{}: tensor '{}' has a {} that is no natural number: {}", path, tensor, what,
                                value.dump()));
  }
  return value.get<std::uint64_t>();
}

StTensor parse_tensor(const std::string& path, const std::string& name, const Json& entry,
                      std::span<const std::byte> data, std::uint64_t& begin, std::uint64_t& end) {
  const auto refuse = [&](const std::string& why) {
    throw FileError(path + ": tensor '" + name + "' " + why);
  };
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry["shape"].is_array() || !entry.contains("data_offsets") ||
      !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2) {
    refuse("is not described by exactly dtype, shape and data_offsets");
  }
  StTensor tensor;
  tensor.name = name;
  tensor.dtype_text = entry["dtype"].get<std::string>();
  const TypeRow* type = type_row(tensor.dtype_text);
  if (type == nullptr) refuse("has the unknown dtype '" + tensor.dtype_text + "'");
  tensor.dtype = type->type;
  std::uint64_t needed = type->bytes;
  for (const Json& dim : entry["shape"]) {
    const std::uint64_t length = natural(path, name, dim, "dimension");
    if (length > INT64_MAX || __builtin_mul_overflow(needed, length, &needed))
      refuse("has a shape that overflows");
    tensor.shape.push_back(static_cast<std::int64_t>(length));
  }
  begin = natural(path, name, entry["data_offsets"][0], "data offset");
  end = natural(path, name, entry["data_offsets"][1], "data offset");
  if (begin > end || end > data.size()) {
    refuse(fmt::format("lies at bytes {} to {} of {} bytes of data", begin, end, data.size()));
  }
  if (end - begin != needed) {
    refuse(fmt::format("has {} bytes, its shape and dtype need {}", end - begin, needed));
  }
  tensor.bytes = data.subspan(begin, needed);
  return tensor;
}

}  // namespace

std::string_view name(StDType dtype) {
  return dtype == StDType::other ? std::string_view("other") : type_row(dtype).name;
}

struct SafetensorsFile::Impl {
  std::string path;
  Mapping mapping;
  std::map<std::string, StTensor, std::less<>> tensors{};
  std::map<std::string, std::string> metadata{};

  explicit Impl(const std::string& file) : path(file), mapping(file) {}
  void parse();
};

void SafetensorsFile::Impl::parse() {
  const auto bytes = mapping.bytes();
  if (bytes.size() < kLengthBytes) {
    throw FileError(fmt::format("{}: not safetensors: {} bytes", path, bytes.size()));
  }
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), kLengthBytes);
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - kLengthBytes) {
    throw FileError(fmt::format("{}: not safetensors or truncated: header of {} bytes in a file of {}", path,
                                header_bytes, bytes.size()));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, header_bytes);
  const Json header = parse_header(path, text);
  const auto data = bytes.subspan(kLengthBytes + header_bytes);
  std::vector<std::pair<std::pair<std::uint64_t, std::uint64_t>, std::string>> ranges;
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") {
      if (!entry.is_object()) throw FileError(path + ": __metadata__ is not an object");
      for (const auto& [name, value] : entry.items()) {
        if (!value.is_string()) throw FileError(path + ": metadata '" + name + "' is not text");
        metadata[name] = value.get<std::string>();
      }
      continue;
    }
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    tensors.emplace(key, parse_tensor(path, key, entry, data, begin, end));
    ranges.push_back({{begin, end}, key});
  }
  // In order, every byte belongs to exactly one tensor.
  std::ranges::sort(ranges);
  std::uint64_t covered = 0;
  for (const auto& [range, name] : ranges) {
    if (range.first != covered) {
      throw FileError(fmt::format("{}: tensor '{}' begins at byte {}, {} another one that ends at {}", path,
                                  name, range.first, range.first < covered ? "inside" : "behind a hole after",
                                  covered));
    }
    covered = range.second;
  }
  if (covered != data.size()) {
    throw FileError(fmt::format("{}: {} bytes of data, the header describes {}", path, data.size(), covered));
  }
}

SafetensorsFile::SafetensorsFile(const std::string& path) : impl_(std::make_unique<Impl>(path)) {
  impl_->parse();
}
SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

const std::string& SafetensorsFile::path() const {
  return impl_->path;
}
const std::map<std::string, StTensor, std::less<>>& SafetensorsFile::tensors() const {
  return impl_->tensors;
}
const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return impl_->metadata;
}

const StTensor* SafetensorsFile::find(std::string_view tensor_name) const {
  const auto found = impl_->tensors.find(tensor_name);
  return found == impl_->tensors.end() ? nullptr : &found->second;
}

StDType safetensors_dtype(DType dtype) {
  switch (dtype) {
    case DType::float4_e2m1fn:
    case DType::uint8:
      return StDType::u8;
    case DType::float8_e4m3fn:
      return StDType::f8_e4m3;
    case DType::float8_e8m0fnu:
      return StDType::f8_e8m0;
    case DType::bfloat16:
      return StDType::bf16;
    case DType::float32:
      return StDType::f32;
    case DType::float64:
      return StDType::f64;
    case DType::int32:
      return StDType::i32;
  }
  throw InternalError("a dtype that safetensors cannot name");
}

DType tensor_dtype(StDType dtype) {
  switch (dtype) {
    case StDType::f8_e4m3:
      return DType::float8_e4m3fn;
    case StDType::f8_e8m0:
      return DType::float8_e8m0fnu;
    case StDType::bf16:
      return DType::bfloat16;
    case StDType::f32:
      return DType::float32;
    case StDType::f64:
      return DType::float64;
    case StDType::i32:
      return DType::int32;
    case StDType::u8:
      return DType::uint8;
    default:
      throw FileError("safetensors dtype " + std::string(name(dtype)) + " has no counterpart here");
  }
}

Tensor to_tensor(const StTensor& tensor) {
  Tensor result(tensor_dtype(tensor.dtype), tensor.shape);
  std::ranges::copy(tensor.bytes, result.bytes().begin());
  return result;
}

}  // namespace dsv4::io
