#include "io/dump_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "model/error.hpp"

namespace dsv4::io {
namespace {

/// The number when `digits` is `width` decimal digits or more without a needless zero, else -1.
std::int64_t padded_number(std::string_view digits, std::size_t width) {
  const bool decimal = std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
  if (!decimal || digits.size() < width || (digits.size() > width && digits.front() == '0')) return -1;
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc() && end == digits.data() + digits.size() ? value : -1;
}

}  // namespace

std::string tool_version() {
  return DSV4_VERSION;
}

std::string step_name(std::int64_t step) {
  return fmt::format("{:06}", step);
}
std::string layer_name(std::int64_t layer) {
  return fmt::format("layer_{:02}", layer);
}

std::int64_t step_number(std::string_view name) {
  return padded_number(name, 6);
}

std::int64_t layer_number(std::string_view name) {
  constexpr std::string_view kPrefix = "layer_";
  return name.starts_with(kPrefix) ? padded_number(name.substr(kPrefix.size()), 2) : -1;
}

Cache snapshot_cache(std::string_view tensor_name) {
  if (tensor_name == "swa_pages") return Cache::window;
  if (tensor_name == "compressed_pages") return Cache::entries;
  if (tensor_name == "indexer_pages") return Cache::index_entries;
  if (tensor_name.starts_with("compress_state_")) return Cache::state;
  if (tensor_name.starts_with("indexer_state_")) return Cache::index_state;
  throw InternalError("state snapshot '" + std::string(tensor_name) + "' belongs to no cache");
}

}  // namespace dsv4::io
