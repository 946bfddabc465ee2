/// The public catalogue of stages, tensors and caches: the names that dumps, reports, rules and golden vectors
/// use. Adding a tensor is one line here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "model/geometry.hpp"
#include "model/tensor.hpp"

namespace dsv4 {

/// Stages in the order in which reports and dumps list them.
enum class Stage : std::uint8_t {
  layer_input,
  q_down,
  q_up,
  kv_window,
  compress_project,
  compress_state,
  compress_pool,
  compress_finish,
  indexer_project,
  indexer_state,
  indexer_pool,
  indexer_finish,
  indexer_query,
  indexer_score,
  indexer_select,
  attention_lists,
  attention_core,
  output_project,
};
inline constexpr std::size_t kStageCount = 18;

/// For example "compress.pool".
std::string_view name(Stage stage);
/// Inverse of name(); empty if unknown.
std::optional<Stage> stage_named(std::string_view name);

/// Stages of a layer in execution order. `*.pool` runs before `*.state`, because pooling reads the state as it
/// was before the step (docs/numerics.md 12.4). `restore` keeps only the stages that change state.
std::span<const Stage> execution_order(LayerKind kind, bool restore);

enum class Role : std::uint8_t { input, intermediate, output, state };
std::string_view name(Role role);

// X(identifier, stage, tensor name, dtype, dims, role): dtype is the canonical one; index codes and scales
// follow the axis index_cache, so a Tensor's own dtype is what counts.
#define DSV4_TENSORS(X)                                                                                  \
  X(hidden, layer_input, "hidden", bfloat16, "token,dim", input)                                         \
  X(hidden_codes, layer_input, "codes", float8_e4m3fn, "token,dim", intermediate)                        \
  X(hidden_scales, layer_input, "scales", float8_e8m0fnu, "token,block", intermediate)                   \
  X(q_latent, q_down, "q_latent", bfloat16, "token,rank", output)                                        \
  X(q_raw, q_up, "raw", bfloat16, "token,head,dim", intermediate)                                        \
  X(q_normed, q_up, "normed", bfloat16, "token,head,dim", intermediate)                                  \
  X(q, q_up, "q", bfloat16, "token,head,dim", output)                                                    \
  X(window_normed, kv_window, "normed", bfloat16, "token,dim", intermediate)                             \
  X(window_kv, kv_window, "kv", bfloat16, "token,dim", output)                                           \
  X(window_codes, kv_window, "codes", float8_e4m3fn, "token,dim", output)                                \
  X(window_rope, kv_window, "rope", bfloat16, "token,dim", output)                                       \
  X(window_scales, kv_window, "scales", float8_e8m0fnu, "token,block", output)                           \
  X(window_page_bytes, kv_window, "page_bytes", uint8, "token,byte", output)                             \
  X(compress_kv, compress_project, "kv", float32, "token,channel", output)                               \
  X(compress_score, compress_project, "score", float32, "token,channel", output)                         \
  X(compress_state_kv, compress_state, "kv", float32, "row,channel", output)                             \
  X(compress_state_score, compress_state, "score", float32, "row,channel", output)                       \
  X(compress_state_max, compress_state, "max", float32, "row,channel", output)                           \
  X(compress_state_sum, compress_state, "sum", float32, "row,channel", output)                           \
  X(compress_state_slot, compress_state, "slot", int32, "row", output)                                   \
  X(compress_state_token, compress_state, "token", int32, "row", output)                                 \
  X(compress_pooled, compress_pool, "pooled", float32, "entry,dim", output)                              \
  X(compress_pool_request, compress_pool, "request", int32, "entry", intermediate)                       \
  X(compress_pool_index, compress_pool, "index", int32, "entry", intermediate)                           \
  X(compress_request, compress_finish, "request", int32, "entry", output)                                \
  X(compress_index, compress_finish, "index", int32, "entry", output)                                    \
  X(compress_slot, compress_finish, "slot", int32, "entry", output)                                      \
  X(compress_entry, compress_finish, "entry", bfloat16, "entry,dim", output)                             \
  X(compress_codes, compress_finish, "codes", float8_e4m3fn, "entry,dim", output)                        \
  X(compress_rope, compress_finish, "rope", bfloat16, "entry,dim", output)                               \
  X(compress_scales, compress_finish, "scales", float8_e8m0fnu, "entry,block", output)                   \
  X(compress_page_bytes, compress_finish, "page_bytes", uint8, "entry,byte", output)                     \
  X(indexer_kv, indexer_project, "kv", float32, "token,channel", output)                                 \
  X(indexer_score_raw, indexer_project, "score", float32, "token,channel", output)                       \
  X(indexer_state_kv, indexer_state, "kv", float32, "row,channel", output)                               \
  X(indexer_state_score, indexer_state, "score", float32, "row,channel", output)                         \
  X(indexer_state_slot, indexer_state, "slot", int32, "row", output)                                     \
  X(indexer_state_token, indexer_state, "token", int32, "row", output)                                   \
  X(indexer_pooled, indexer_pool, "pooled", float32, "entry,dim", output)                                \
  X(indexer_pool_request, indexer_pool, "request", int32, "entry", intermediate)                         \
  X(indexer_pool_index, indexer_pool, "index", int32, "entry", intermediate)                             \
  X(indexer_request, indexer_finish, "request", int32, "entry", output)                                  \
  X(indexer_index, indexer_finish, "index", int32, "entry", output)                                      \
  X(indexer_slot, indexer_finish, "slot", int32, "entry", output)                                        \
  X(indexer_entry, indexer_finish, "entry", bfloat16, "entry,dim", output)                               \
  X(indexer_codes, indexer_finish, "codes", float8_e4m3fn, "entry,dim", output)                          \
  X(indexer_scales, indexer_finish, "scales", float32, "entry,block", output)                            \
  X(indexer_page_bytes, indexer_finish, "page_bytes", uint8, "entry,byte", output)                       \
  X(query_entry, indexer_query, "entry", bfloat16, "token,head,dim", intermediate)                       \
  X(query_codes, indexer_query, "codes", float8_e4m3fn, "token,head,dim", output)                        \
  X(query_scales, indexer_query, "scales", float32, "token,head,block", output)                          \
  X(query_weights, indexer_query, "weights", float32, "token,head", output)                              \
  X(scores, indexer_score, "scores", float32, "token,entry", output)                                     \
  X(visible, indexer_score, "visible", int32, "token", output)                                           \
  X(selected, indexer_select, "selected", int32, "token,rank", output)                                   \
  X(selected_count, indexer_select, "count", int32, "token", output)                                     \
  X(window_slots, attention_lists, "window", int32, "token,item", output)                                \
  X(compressed_slots, attention_lists, "compressed", int32, "token,item", output)                        \
  X(window_length, attention_lists, "window_length", int32, "token", output)                             \
  X(compressed_length, attention_lists, "compressed_length", int32, "token", output)                     \
  X(window_logical, attention_lists, "window_logical", int32, "token,item", intermediate)                \
  X(compressed_logical, attention_lists, "compressed_logical", int32, "token,item", intermediate)        \
  X(attention_out, attention_core, "out", bfloat16, "token,head,dim", output)                            \
  X(attention_lse, attention_core, "lse", float32, "token,head", output)                                 \
  X(o_rot, output_project, "o_rot", bfloat16, "token,head,dim", output)                                  \
  X(o_latent, output_project, "o_latent", bfloat16, "token,channel", output)                             \
  X(o_latent_codes, output_project, "latent_codes", float8_e4m3fn, "token,channel", intermediate)        \
  X(o_latent_scales, output_project, "latent_scales", float8_e8m0fnu, "token,block", intermediate)       \
  X(hidden_out, output_project, "hidden_out", bfloat16, "token,dim", output)

/// Identifiers of the tensors that stages publish.
enum class TensorId : std::uint8_t {
#define DSV4_X(id, stage, tensor, dtype, dims, role) id,
  DSV4_TENSORS(DSV4_X)
#undef DSV4_X
};

struct TensorInfo {
  TensorId id;
  Stage stage;
  std::string_view name;  ///< within the stage
  DType dtype;
  std::string_view dims;  ///< comma separated axis names; the first is token, row or entry
  Role role;
};

/// All tensors, indexed by TensorId, grouped by stage in report order.
std::span<const TensorInfo> tensor_catalogue();
inline const TensorInfo& info(TensorId id) { return tensor_catalogue()[static_cast<std::size_t>(id)]; }
inline std::size_t tensor_count() { return tensor_catalogue().size(); }
/// By stage and tensor name; empty if there is none.
std::optional<TensorId> tensor_named(Stage stage, std::string_view name);
/// "q.up/raw"
std::string path(TensorId id);

/// The caches of a layer.
enum class Cache : std::uint8_t {
  window,         ///< SWA pages, every layer
  entries,        ///< compressed KV pages, CSA and HCA
  index_entries,  ///< indexer pages, CSA
  state,          ///< compressor state, CSA and HCA
  index_state,    ///< indexer's compressor state, CSA
};
inline constexpr std::size_t kCacheCount = 5;
/// "window", "entries", "index_entries", "state", "index_state": names under /state/NNNNNN/layer_LL.
std::string_view name(Cache cache);
bool has_cache(LayerKind kind, Cache cache);

}  // namespace dsv4
