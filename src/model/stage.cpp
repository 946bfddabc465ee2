#include "model/stage.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace dsv4 {
namespace {

constexpr std::array<std::string_view, kStageCount> kStageNames{
    "layer.input",     "q.down",         "q.up",           "kv.window",     "compress.project", "compress.state",
    "compress.pool",   "compress.finish", "indexer.project", "indexer.state", "indexer.pool",     "indexer.finish",
    "indexer.query",   "indexer.score",  "indexer.select", "attention.lists", "attention.core", "output.project"};

constexpr TensorInfo kCatalogue[]{
#define DSV4_X(id, stage, tensor, dtype, dims, role) \
  {TensorId::id, Stage::stage, tensor, DType::dtype, dims, Role::role},
    DSV4_TENSORS(DSV4_X)
#undef DSV4_X
};

using enum Stage;
constexpr Stage kSwa[]{layer_input, q_down, q_up, kv_window, attention_lists, attention_core, output_project};
constexpr Stage kCsa[]{layer_input,     q_down,          q_up,            kv_window,     compress_project,
                       compress_pool,   compress_state,  compress_finish, indexer_project, indexer_pool,
                       indexer_state,   indexer_finish,  indexer_query,   indexer_score, indexer_select,
                       attention_lists, attention_core,  output_project};
constexpr Stage kHca[]{layer_input,    q_down,          q_up,            kv_window,      compress_project, compress_pool,
                       compress_state, compress_finish, attention_lists, attention_core, output_project};
constexpr Stage kSwaRestore[]{layer_input, kv_window};
constexpr Stage kCsaRestore[]{layer_input,     kv_window,       compress_project, compress_pool, compress_state,
                              compress_finish, indexer_project, indexer_pool,     indexer_state, indexer_finish};
constexpr Stage kHcaRestore[]{layer_input,   kv_window,      compress_project,
                              compress_pool, compress_state, compress_finish};

}  // namespace

std::string_view name(Stage stage) { return kStageNames[static_cast<std::size_t>(stage)]; }

std::optional<Stage> stage_named(std::string_view name) {
  const auto found = std::ranges::find(kStageNames, name);
  if (found == kStageNames.end()) return std::nullopt;
  return static_cast<Stage>(found - kStageNames.begin());
}

std::span<const Stage> execution_order(LayerKind kind, bool restore) {
  switch (kind) {
    case LayerKind::swa:
      return restore ? std::span<const Stage>(kSwaRestore) : kSwa;
    case LayerKind::csa:
      return restore ? std::span<const Stage>(kCsaRestore) : kCsa;
    case LayerKind::hca:
      return restore ? std::span<const Stage>(kHcaRestore) : kHca;
  }
  throw InternalError("unknown layer kind");
}

std::string_view name(Role role) {
  constexpr std::array<std::string_view, 4> kNames{"input", "intermediate", "output", "state"};
  return kNames[static_cast<std::size_t>(role)];
}

std::span<const TensorInfo> tensor_catalogue() { return kCatalogue; }

std::optional<TensorId> tensor_named(Stage stage, std::string_view name) {
  for (const TensorInfo& tensor : kCatalogue) {
    if (tensor.stage == stage && tensor.name == name) return tensor.id;
  }
  return std::nullopt;
}

std::string path(TensorId id) { return std::string(name(info(id).stage)) + "/" + std::string(info(id).name); }

std::string_view name(Cache cache) {
  constexpr std::array<std::string_view, kCacheCount> kNames{"window", "entries", "index_entries", "state",
                                                             "index_state"};
  return kNames[static_cast<std::size_t>(cache)];
}

bool has_cache(LayerKind kind, Cache cache) {
  switch (cache) {
    case Cache::window:
      return true;
    case Cache::entries:
    case Cache::state:
      return has_compressor(kind);
    case Cache::index_entries:
    case Cache::index_state:
      return has_indexer(kind);
  }
  return false;
}

}  // namespace dsv4
