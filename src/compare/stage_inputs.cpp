#include "compare/stage_inputs.hpp"

#include <array>

namespace dsv4::compare {
namespace {

using enum TensorId;

constexpr TensorId kHidden[]{hidden};
constexpr TensorId kQuantisedHidden[]{hidden, hidden_codes, hidden_scales};
constexpr TensorId kLatent[]{q_latent};
constexpr TensorId kCompressRows[]{compress_kv, compress_score};
constexpr TensorId kCompressPool[]{compress_kv, compress_score};
constexpr TensorId kCompressFinish[]{compress_pooled};
constexpr TensorId kIndexerRows[]{indexer_kv, indexer_score_raw};
constexpr TensorId kIndexerFinish[]{indexer_pooled};
constexpr TensorId kIndexerQuery[]{q_latent, hidden};
constexpr TensorId kIndexerScore[]{query_codes, query_scales, query_weights, indexer_page_bytes,
                                   indexer_slot};
constexpr TensorId kIndexerSelect[]{scores, visible};
constexpr TensorId kLists[]{selected, selected_count};
constexpr TensorId kCore[]{q,
                           window_slots,
                           window_length,
                           compressed_slots,
                           compressed_length,
                           window_page_bytes,
                           compress_page_bytes,
                           compress_slot};
constexpr TensorId kOutput[]{attention_out};

constexpr Cache kState[]{Cache::state};
constexpr Cache kIndexState[]{Cache::index_state};
constexpr Cache kIndexEntries[]{Cache::index_entries};
constexpr Cache kAttended[]{Cache::window, Cache::entries};

constexpr std::array<StageInputs, kStageCount> kInputs{{
    {Stage::layer_input, {}, {}},
    {Stage::q_down, kQuantisedHidden, {}},
    {Stage::q_up, kLatent, {}},
    {Stage::kv_window, kQuantisedHidden, {}},
    {Stage::compress_project, kHidden, {}},
    {Stage::compress_state, kCompressRows, kState},
    {Stage::compress_pool, kCompressPool, kState},
    {Stage::compress_finish, kCompressFinish, {}},
    {Stage::indexer_project, kHidden, {}},
    {Stage::indexer_state, kIndexerRows, kIndexState},
    {Stage::indexer_pool, kIndexerRows, kIndexState},
    {Stage::indexer_finish, kIndexerFinish, {}},
    {Stage::indexer_query, kIndexerQuery, {}},
    {Stage::indexer_score, kIndexerScore, kIndexEntries},
    {Stage::indexer_select, kIndexerSelect, {}},
    {Stage::attention_lists, kLists, {}},
    {Stage::attention_core, kCore, kAttended},
    {Stage::output_project, kOutput, {}},
}};

constexpr TensorId kQuantisedWindow[]{window_codes, window_rope, window_scales};
constexpr TensorId kQuantisedEntry[]{compress_codes, compress_rope, compress_scales};
constexpr TensorId kQuantisedIndex[]{indexer_codes, indexer_scales};
constexpr TensorId kQuantisedLatent[]{o_latent, o_latent_codes, o_latent_scales};
constexpr TensorId kWindowRows[]{window_page_bytes};
constexpr TensorId kEntryRows[]{compress_page_bytes, compress_slot};
constexpr TensorId kIndexRows[]{indexer_page_bytes, indexer_slot};
constexpr TensorId kStateRows[]{compress_state_kv, compress_state_score, compress_state_max,
                                compress_state_sum, compress_state_slot};
constexpr TensorId kIndexStateRows[]{indexer_state_kv, indexer_state_score, indexer_state_slot};

template <TensorId... ids>
constexpr TensorId kOnly[]{ids...};

}  // namespace

std::span<const TensorId> made_from(TensorId id) {
  switch (id) {
    case hidden_codes:
    case hidden_scales:
      return kOnly<hidden>;
    case q_normed:
      return kOnly<q_raw>;
    case TensorId::q:
      return kOnly<q_raw, q_normed>;
    case window_kv:
      return kOnly<window_normed>;
    case window_codes:
    case window_rope:
    case window_scales:
      return kOnly<window_kv>;
    case window_page_bytes:
      return kQuantisedWindow;
    case compress_codes:
    case compress_rope:
    case compress_scales:
      return kOnly<compress_entry>;
    case compress_page_bytes:
      return kQuantisedEntry;
    case indexer_codes:
    case indexer_scales:
      return kOnly<indexer_entry>;
    case indexer_page_bytes:
      return kQuantisedIndex;
    case query_codes:
    case query_scales:
      return kOnly<query_entry>;
    case selected_count:
      return kOnly<selected>;
    case window_slots:
      return kOnly<window_logical>;
    case compressed_slots:
      return kOnly<compressed_logical>;
    case o_latent:
      return kOnly<o_rot>;
    case o_latent_codes:
    case o_latent_scales:
      return kOnly<o_latent>;
    case hidden_out:
      return kQuantisedLatent;
    default:
      return {};
  }
}

std::span<const TensorId> rows_written(Cache cache) {
  switch (cache) {
    case Cache::window:
      return kWindowRows;
    case Cache::entries:
      return kEntryRows;
    case Cache::index_entries:
      return kIndexRows;
    case Cache::state:
      return kStateRows;
    case Cache::index_state:
      return kIndexStateRows;
  }
  throw InternalError("unknown cache");
}

const StageInputs& stage_inputs(Stage stage) {
  return kInputs[static_cast<std::size_t>(stage)];
}

}  // namespace dsv4::compare
