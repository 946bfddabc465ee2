/// What a scenario becomes: a run configuration and one StepPlan for each step, with every page already placed.
/// Plans hold no numbers of the model; every engine receives the same ones. Slot arithmetic is not here: an
/// engine computes slots from block tables and state bases by itself.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/geometry.hpp"
#include "model/profile.hpp"
#include "model/stage.hpp"

namespace dsv4 {

enum class C4State : std::uint8_t { ring, paged, page4align };
enum class C128State : std::uint8_t { ring, paged, online };
enum class Allocate : std::uint8_t { sequential, shuffled, lifo };
enum class SwaRelease : std::uint8_t { eager, never };

/// `cache:` of a scenario. Page sizes are entries a page.
struct CacheConfig {
  int swa_page = 64;
  int c4_page = 64;
  int c128_page = 2;
  int index_page = 64;
  C4State c4_state = C4State::ring;
  C128State c128_state = C128State::ring;
  /// Rows of the widest step that may be rolled back: 1 without drafting. Fixes the ring sizes.
  int draft_rows = 1;
  Allocate allocate = Allocate::sequential;
  SwaRelease swa_release = SwaRelease::eager;
  bool poison_freed = false;
  std::optional<std::int64_t> pool_pages;  ///< `pages: {pool: N}`, usable pages of every pool; empty: auto
  std::optional<std::int64_t> pitch;       ///< page pitch in bytes of KV and index pages; empty: natural
  /// `pages: {pool: N, first: F}`: fresh pages are handed out from F on, then 1 .. F - 1. A matter of the plan alone.
  std::optional<std::int32_t> first_page;

  bool operator==(const CacheConfig&) const = default;
};

/// Rows of the state ring a request: 8 (ratio 4) or 128 (ratio 128), doubled when drafting.
constexpr int ring_rows_c4(const CacheConfig& cache) { return cache.draft_rows > 1 ? 16 : 8; }
constexpr int ring_rows_c128(const CacheConfig& cache) { return cache.draft_rows > 1 ? 256 : 128; }
/// Banks of online C128 state a request: the committed one, and one for each row while verifying.
constexpr int online_banks(const CacheConfig& cache) { return cache.draft_rows > 1 ? 1 + cache.draft_rows : 1; }

/// Page pools, shared by all layers of a run (each layer has its own memory, the page numbers are the same).
enum class Pool : std::uint8_t {
  window,       ///< SWA pages
  entries_c4,   ///< compressed pages of CSA layers
  entries_c128, ///< compressed pages of HCA layers
  index,        ///< indexer pages of CSA layers
  state_c4,     ///< state pages of CSA compressors, when paged; 4 rows; also page4align
  state_c128,   ///< state pages of HCA compressors, when paged; 8 rows
  state_index,  ///< state pages of indexer compressors, when paged; 4 rows; also page4align
};
inline constexpr std::size_t kPoolCount = 7;
std::string_view name(Pool pool);
/// The pool behind a cache of a layer. Ring and online state has no pool: its memory is addressed by state base.
Pool pool_of(LayerKind kind, Cache cache);

/// A change of seeded inputs (`seeded:` of a scenario): elements of a tensor set to a value or multiplied by a power of
/// two, in every layer that has the tensor.
struct SeedEdit {
  std::string tensor;              ///< `hidden` or a weight's short name
  std::optional<int> layer;        ///< index in the run's list; empty: all
  std::vector<std::int64_t> rows;  ///< of a matrix; empty: all. Vectors and hidden states have columns only
  std::vector<std::int64_t> columns;
  std::optional<float> value;      ///< what the elements become (FP8 matrices: their codes)
  int scale = 0;                   ///< without a value: exponent of the factor (FP8 matrices: of their block scales)
};

/// Everything about a run that does not change from step to step.
struct RunConfig {
  Geometry geometry;
  Profile profile;
  std::vector<LayerKind> layers;  ///< the run's list of layers; indices into it are layer numbers
  bool chain = false;             ///< feed each layer the RMS-normed sum of its predecessor's input and output
  CacheConfig cache;
  std::uint64_t seed = 0;
  std::vector<SeedEdit> seed_edits;                   ///< applied in order
  std::array<std::int64_t, kPoolCount> pool_pages{};  ///< pages of each pool, null page included
  std::int32_t state_bases = 0;                       ///< requests that ring or online state has room for
  std::vector<std::string> requests;                  ///< names by request index, in order of admission
};

/// For each pool the pages of one request in logical order: item k covers rows (or entries) k*page_size ..;
/// -1 where no page is held (never allocated, or released).
using BlockTables = std::array<std::vector<std::int32_t>, kPoolCount>;

/// One batch row.
struct Row {
  std::int32_t request = -1;   ///< index into RunConfig::requests; -1: padding
  std::int32_t position = -1;  ///< token position within the request; -1: padding
  std::uint64_t content = 0;   ///< content id of the token (docs/numerics.md 20)
};

/// What a restore step leaves alone: a row writes a cache only from these positions on, and an entry is pooled
/// and finished only from these indices on. All 0 in compute steps.
struct KeepFrom {
  std::int32_t window = 0;        ///< position
  std::int32_t state_c4 = 0;      ///< position; CSA compressor state
  std::int32_t state_index = 0;   ///< position; indexer state
  std::int32_t state_c128 = 0;    ///< position; HCA compressor state
  std::int32_t entries_c4 = 0;    ///< entry index; CSA compressed and indexer entries
  std::int32_t entries_c128 = 0;  ///< entry index; HCA compressed entries
};

/// How one request takes part in a step. Its rows are contiguous in StepPlan::rows.
struct RequestStep {
  std::int32_t request = 0;
  std::int32_t first_row = 0;   ///< index of its first batch row
  std::int32_t row_count = 0;
  std::int32_t begin = 0;       ///< position of the first row; in a compute step the length before the step
  std::int32_t end = 0;         ///< begin + row_count
  std::int32_t committed = 0;   ///< length after the step (end, or n + accept for a verify step)
  bool verify = false;          ///< rows may be rolled back: all of them write state
  std::int32_t state_base = 0;  ///< ring and online state: base number
  std::shared_ptr<const BlockTables> tables;  ///< as they are during the step

  /// Restore steps recompute rows of which some caches still hold valid values.
  KeepFrom from;
};

struct PageRef {
  Pool pool;
  std::int32_t page;
};

/// A copy of the first `rows` rows (entries) of page `from` into page `to`, before the step computes.
struct PageCopy {
  Pool pool;
  std::int32_t from;
  std::int32_t to;
  std::int32_t rows;
};

/// A prefix hit: `request` continues after the first `tokens` tokens of `source`.
struct PrefixHit {
  std::int32_t request;
  std::int32_t source;
  std::int32_t tokens;
};

/// Overwrite pages or state bases with a byte, outside any request's live data.
struct Poison {
  std::vector<PageRef> pages;
  std::vector<std::int32_t> state_bases;
  std::uint8_t value = 0xFF;
};

/// An admitted request as it stands after the step.
struct LiveRequest {
  std::int32_t request = 0;
  std::int32_t length = 0;
  std::int32_t state_base = 0;
  std::shared_ptr<const BlockTables> tables;
};

/// Synthetic cache content for the first `tokens` tokens of a request (docs/scenarios.md, fill).
struct Fill {
  std::int32_t request = 0;
  std::int32_t tokens = 0;
};

enum class StepKind : std::uint8_t {
  compute,    ///< rows run through every stage
  restore,    ///< rows run through the stages that change state; the effect is state only
  lifecycle,  ///< no rows: free, preempt, save, evict, poison ...
  fill,       ///< synthetic caches; no rows
  graph,      ///< capture and replay_graph: refused by engines without graphs
};

/// One step, the unit of lockstep. Engines apply, in this order: `copies`; the rows; commit (online banks);
/// `released` pages and bases (poisoned if RunConfig says so); `poison`.
struct StepPlan {
  std::int64_t index = 0;
  StepKind kind = StepKind::compute;
  std::string event;   ///< the event as JSON, with what it caused
  std::string source;  ///< "FILE:LINE" of the event
  std::vector<Row> rows;
  std::vector<RequestStep> requests;   ///< in row order
  std::vector<PageRef> allocated;      ///< handed out for this step
  std::vector<PageCopy> copies;
  std::vector<PageRef> released;       ///< given back at commit (reference count fell to 0)
  std::vector<std::int32_t> released_bases;
  std::vector<PrefixHit> prefix;
  std::optional<Poison> poison;
  std::optional<Fill> fill;
  std::vector<LiveRequest> live;       ///< all admitted requests after the step, in admission order
};

/// A scenario made executable.
struct RunPlan {
  RunConfig config;
  std::vector<StepPlan> steps;
};

/// First live row at committed length n (docs/numerics.md 12.3): window, state, and number of live entries.
constexpr std::int32_t first_live_window(std::int32_t n) { return n > kWindow - 1 ? n - (kWindow - 1) : 0; }
constexpr std::int32_t first_live_state(LayerKind kind, std::int32_t n) {
  if (kind == LayerKind::csa) return n / 4 * 4 - 4 > 0 ? n / 4 * 4 - 4 : 0;
  return n / 128 * 128;
}
constexpr std::int32_t live_entries(LayerKind kind, std::int32_t n) {
  return kind == LayerKind::swa ? 0 : n / ratio(kind);
}

}  // namespace dsv4
