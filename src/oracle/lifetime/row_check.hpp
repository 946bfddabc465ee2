/// What is wrong with one row that is read, written or kept: the allocator's word (PageLedger) against the
/// stamp of its slot (ShadowMap). One place for all three, so that kinds mean the same.
#pragma once

#include <cstdint>
#include <string>

#include "oracle/lifetime/page_ledger.hpp"
#include "oracle/lifetime/shadow_map.hpp"
#include "oracle/lifetime/token_contents.hpp"

namespace dsv4::oracle {

enum class RowFault : std::uint8_t {
  none,
  outside,    ///< no page is held for it, the null page, or no slot of the cache
  freed,      ///< nobody holds the page or state base
  foreign,    ///< another request holds it, this one does not
  unwritten,  ///< nothing was written there since it was handed out
  stale,      ///< another position, or another token at that position
};
std::string_view name(RowFault fault);

/// The row that should be there.
struct WantedRow {
  std::int32_t request = -1;
  std::int32_t index = -1;
  std::uint64_t content = 0;
};

class RowCheck {
 public:
  /// All must outlive the check.
  RowCheck(const RunConfig& config, const PageLedger& ledger, const TokenContents& contents)
      : config_(config), ledger_(ledger), contents_(contents) {}

  WantedRow wanted(LayerKind kind, Cache cache, std::int32_t request, std::int32_t index) const;
  /// Where the request's table (state base) puts a row; -1: nowhere. Online state: bank 0.
  std::int64_t slot(const CacheShape& shape, std::int32_t request, std::int32_t index, int bank = 0) const;

  /// `slot` as it was named by whoever reads.
  RowFault row(const CacheShadow& shadow, const WantedRow& wanted, std::int64_t slot) const;
  /// Whether the page or base of a slot may be touched by a request at all.
  RowFault place(const CacheShadow& shadow, std::int32_t request, std::int64_t slot) const;

  /// "page 3, offset 5, which ..." for a message.
  std::string place_text(const CacheShadow& shadow, std::int64_t slot) const;
  /// What is known of the page or base: held since, given back in, by whom.
  std::string state_text(const CacheShadow& shadow, std::int64_t slot) const;
  std::string holder_text(const CacheShadow& shadow, std::int64_t slot) const;
  /// "b, position 70, in step 2 (kv.window)"; "nobody".
  std::string writer_text(const CacheShadow& shadow, Cache cache, std::int64_t slot) const;
  std::string request_name(std::int32_t request) const;

 private:
  std::int64_t slots(const CacheShape& shape) const;

  const RunConfig& config_;
  const PageLedger& ledger_;
  const TokenContents& contents_;
};

/// The stage that writes a cache.
Stage writer_of(Cache cache);
bool holds_entries(Cache cache);

}  // namespace dsv4::oracle
