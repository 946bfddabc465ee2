#include "model/config_check.hpp"

#include <algorithm>
#include <string_view>

#include "model/error.hpp"
#include "model/layout.hpp"

namespace dsv4 {
namespace {

void check_range(std::string_view field, std::int64_t value, std::int64_t largest) {
  if (value >= 1 && value <= largest) return;
  throw UsageError("cache field " + std::string(field) + ": " + std::to_string(value) + " (must be 1 to " +
                   std::to_string(largest) + ")");
}

}  // namespace

std::string pitch_fault(const CacheConfig& cache, std::int64_t pitch) {
  const int widest = std::max({cache.swa_page, cache.c4_page, cache.c128_page});
  const std::int64_t natural =
      std::max(layout::kv_page_bytes(widest), layout::index_page_bytes(cache.index_page, false));
  if (pitch < natural) return "must be at least " + std::to_string(natural) + ", the largest page";
  if (pitch > kMaxPitch) return "must be at most " + std::to_string(kMaxPitch);
  if (pitch % layout::kKvPageAlign != 0) {
    return "must be a multiple of " + std::to_string(layout::kKvPageAlign);
  }
  return {};
}

void check(const CacheConfig& cache) {
  check_range("swa_page", cache.swa_page, kMaxPageRows);
  check_range("c4_page", cache.c4_page, kMaxPageRows);
  check_range("c128_page", cache.c128_page, kMaxPageRows);
  check_range("index_page", cache.index_page, kMaxPageRows);
  check_range("draft_rows", cache.draft_rows, kMaxDraftRows);
  if (cache.pool_pages) check_range("pages", *cache.pool_pages, kMaxPoolPages);
  if (!cache.pitch) return;
  if (const std::string fault = pitch_fault(cache, *cache.pitch); !fault.empty()) {
    throw UsageError("cache field pitch: " + std::to_string(*cache.pitch) + " (" + fault + ")");
  }
}

std::string drafting_fault(const CacheConfig& cache, const std::vector<LayerKind>& layers) {
  const auto fault = [&](std::string_view what, int ring, int pool_window) -> std::string {
    const int widest = ring - pool_window + 1;
    if (cache.draft_rows <= widest) return {};
    return std::to_string(cache.draft_rows) + " rows to verify do not fit the " + std::string(what) +
           " ring of " + std::to_string(ring) + " rows: at most " + std::to_string(widest) +
           " (R - pool window + 1)";
  };
  const auto has = [&](LayerKind kind) { return std::ranges::count(layers, kind) > 0; };
  std::string found;
  if (has(LayerKind::csa) && cache.c4_state == C4State::ring) found = fault("C4", ring_rows_c4(cache), 8);
  if (found.empty() && has(LayerKind::hca) && cache.c128_state == C128State::ring) {
    found = fault("C128", ring_rows_c128(cache), 128);
  }
  return found;
}

}  // namespace dsv4
