/// Looking into a dump by cache address: what a page or a slot holds after a step. A whole-page snapshot is
/// used where the dump has one; otherwise the last row that the dump saw written to the slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/decode.hpp"
#include "io/dump_reader.hpp"

namespace dsv4::io {

/// One row of a page cache or of compressor state.
struct SlotContent {
  std::string source;              ///< object and row that it comes from
  std::int64_t written_step = -1;  ///< step of the write; -1: from a snapshot
  std::vector<std::byte> row;      ///< page caches: value bytes then scale bytes
  std::optional<KvRow> kv;         ///< window and entries
  std::optional<IndexRow> index;   ///< index_entries
  std::vector<float> plain;        ///< either, where the profile keeps no codes
  /// state and index_state: channel values by tensor, for example "kv" and "score".
  std::vector<std::pair<std::string, std::vector<float>>> state;
};

/// Rows a page of this cache; throws UsageError for compressor state, which has other addresses.
int page_rows(const RunConfig& config, int layer, Cache cache);

/// Throws UsageError when the layer has no such cache or the slot is negative, FileError when the dump holds
/// neither a snapshot nor a write of the slot up to the step.
SlotContent inspect_slot(const DumpReader& dump, std::int64_t step, int layer, Cache cache,
                         std::int64_t slot);

/// Bytes of a whole page after the step, from its snapshot; FileError without one.
std::vector<std::byte> inspect_page(const DumpReader& dump, std::int64_t step, int layer, Cache cache,
                                    std::int64_t page);

}  // namespace dsv4::io
