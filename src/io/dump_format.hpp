/// Names of a dump: the objects and attributes of schema dsv4-dump/1 (docs/dump-format.md), in one place for
/// writer, reader and tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/stage.hpp"

namespace dsv4::io {

inline constexpr std::string_view kSchema = "dsv4-dump/1";

/// Version of this program, as `tool_version` states it.
std::string tool_version();

/// "000017"
std::string step_name(std::int64_t step);
/// "layer_02"
std::string layer_name(std::int64_t layer);
/// Inverses; -1 when the name has another form.
std::int64_t step_number(std::string_view name);
std::int64_t layer_number(std::string_view name);

/// The float64 values before the last rounding (wide engine) lie beside a tensor under its name and this
/// suffix.
inline constexpr std::string_view kUnroundedSuffix = ".unrounded";

/// Cache group that holds a state snapshot: "swa_pages" -> window, "compress_state_kv" -> state, and so on.
/// Throws InternalError for a name that belongs to none.
Cache snapshot_cache(std::string_view tensor_name);

/// What a dump was asked to hold, as /config states it. Only with it can a reader tell what is missing from
/// what was left out.
struct DumpSelection {
  std::string steps;    ///< "all", or FIRST:END, half-open
  std::string tensors;  ///< "all", or "stage/tensor,..."
};

/// An attribute must stay below 64 KiB in the earliest file format; a longer event is a dataset of this name.
inline constexpr std::size_t kMaxAttributeBytes = 60000;
inline constexpr std::string_view kEventDataset = "event";

}  // namespace dsv4::io
