/// Decoding cache rows of a dump: from a snapshot of the whole cache where the dump holds one, else from the
/// rows that the step wrote.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "io/dump_reader.hpp"

namespace dsv4::cli {

struct RowQuery {
  int layer = 0;
  std::string cache;                 ///< "window", "entries" or "index_entries"
  std::optional<std::int64_t> slot;  ///< one row
  std::optional<std::int64_t> page;  ///< every row of a page
};

/// Throws UsageError when the dump does not hold the row.
void print_row(const io::DumpReader& reader, std::int64_t step, const RowQuery& query, bool json);

}  // namespace dsv4::cli
