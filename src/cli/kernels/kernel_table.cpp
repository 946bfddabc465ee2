#include "cli/kernels/kernel_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/kernels/stage_models.hpp"

namespace dsv4::cli {
namespace {

using enum TensorId;

bool always(const RunConfig& /*config*/, LayerKind /*kind*/) {
  return true;
}
bool online(const RunConfig& config, LayerKind kind) {
  return kind == LayerKind::hca && config.cache.c128_state == C128State::online;
}
bool not_online(const RunConfig& config, LayerKind kind) {
  return !online(config, kind);
}
bool scores_fp8(const RunConfig& config, LayerKind /*kind*/) {
  const int heads = config.geometry.index_heads;
  return config.profile.get<IndexCache>() == IndexCache::fp8 && (heads == 32 || heads == 64);
}
bool heads_fit(const RunConfig& config, LayerKind /*kind*/) {
  return config.geometry.heads <= 128;
}

constexpr std::string_view kScoresWhen = "FP8 index rows, 32 or 64 index heads";
constexpr std::string_view kScoresRemark = "the paged kernel of decode computes the same bits";
constexpr std::string_view kHeadsWhen = "at most 128 heads";
constexpr std::string_view kAttentionRemark =
    "one row of a request, and rows that are verified: decode, in one launch, cut for 132 multiprocessors; "
    "rows of chunks: prefill, compressed entries first, then the window. Heads are padded to 64 or 128. "
    "Inferred: which rows of a batch are decoded, their order in it";
constexpr std::string_view kRowsWhen = "ring or paged state";

std::vector<StageModel> make_table() {
  namespace m = dsv4::cli::kernel_stages;
  return {
      {"vllm-",
       Stage::q_down,
       "vllm_qk_rmsnorm",
       "",
       "behind the profile's wq_a",
       {},
       {},
       {},
       always,
       m::vllm_query_latent},
      {"vllm-",
       Stage::q_up,
       "vllm_qnorm_rope_kv_insert",
       "",
       "behind the profile's wq_b",
       {{q, q_raw}},
       {},
       {q_raw},
       always,
       m::vllm_query},
      {"vllm-",
       Stage::kv_window,
       "vllm_qk_rmsnorm, vllm_qnorm_rope_kv_insert",
       "",
       "behind the profile's wkv",
       {{window_kv, window_normed},
        {window_codes, window_normed},
        {window_rope, window_normed},
        {window_scales, window_normed},
        {window_page_bytes, window_normed}},
       {},
       {},
       always,
       m::vllm_window},
      {"vllm-",
       Stage::compress_pool,
       "vllm_compress_norm_rope_insert",
       kRowsWhen,
       "ratio 128: the kernel of one stage",
       {{compress_pooled}},
       {},
       {},
       not_online,
       m::vllm_pool},
      {"vllm-",
       Stage::compress_finish,
       "vllm_compress_norm_rope_insert",
       "",
       "the second half of the same kernel, from the published pooled rows",
       {{compress_entry}, {compress_codes}, {compress_rope}, {compress_scales}, {compress_page_bytes}},
       {},
       {},
       always,
       m::vllm_finish},
      {"vllm-",
       Stage::indexer_pool,
       "vllm_compress_norm_rope_insert",
       "",
       "",
       {{indexer_pooled}},
       {},
       {},
       always,
       m::vllm_pool},
      {"vllm-",
       Stage::indexer_finish,
       "vllm_compress_norm_rope_insert",
       "",
       "FP8 or MXFP4 rows",
       {{indexer_entry}, {indexer_codes}, {indexer_scales}, {indexer_page_bytes}},
       {},
       {},
       always,
       m::vllm_finish},
      {"vllm-",
       Stage::indexer_query,
       "vllm_indexer_query",
       "",
       "behind the profile's wq_b and weights_proj; FP8 or MXFP4 rows",
       {{query_codes, query_entry}, {query_scales, query_entry}},
       {query_weights},
       {},
       always,
       m::vllm_index_query},
      {"vllm-",
       Stage::indexer_score,
       "deepgemm_mqa_logits",
       kScoresWhen,
       kScoresRemark,
       {{scores}},
       {scores},
       {},
       scores_fp8,
       m::deepgemm_scores},
      {"vllm-",
       Stage::attention_core,
       "flashmla_sparse_decode, flashmla_sparse_prefill",
       kHeadsWhen,
       kAttentionRemark,
       {{attention_out}, {attention_lse}},
       {attention_out},
       {},
       heads_fit,
       m::vllm_attention},
      {"vllm-",
       Stage::output_project,
       "vllm_inv_rope_fp8_quant, deepgemm_fp8_einsum",
       "",
       "wo_b stays the profile's; the einsum is read from its source, no launch of it was recorded",
       {{o_rot}, {o_latent}},
       {o_latent},
       {},
       always,
       m::vllm_output},

      {"sglang-",
       Stage::compress_pool,
       "sglang_c4, sglang_c128",
       kRowsWhen,
       "the bias is in the state rows; the kernels add it when they read, which is the same number",
       {{compress_pooled}},
       {},
       {},
       not_online,
       m::sglang_pool},
      {"sglang-",
       Stage::compress_pool,
       "sglang_c128_online",
       "online state",
       "inferred: rows that are verified run token by token",
       {{compress_pooled}},
       {},
       {},
       online,
       m::sglang_online_pool,
       true},
      {"sglang-",
       Stage::compress_state,
       "sglang_c128_online",
       "online state",
       "the cache holds the kernel's mean; published is the weighted sum, the mean times the sum",
       {{compress_state_max}, {compress_state_sum}},
       {},
       {},
       online,
       m::sglang_online_state,
       true},
      {"sglang-",
       Stage::compress_finish,
       "sglang_norm_rope_store",
       "",
       "",
       {{compress_entry}, {compress_codes}, {compress_rope}, {compress_scales}, {compress_page_bytes}},
       {},
       {},
       always,
       m::sglang_finish},
      {"sglang-",
       Stage::indexer_pool,
       "sglang_c4",
       "",
       "",
       {{indexer_pooled}},
       {},
       {},
       always,
       m::sglang_pool},
      {"sglang-",
       Stage::indexer_finish,
       "sglang_norm_rope_store",
       "",
       "FP8 or FP4 rows",
       {{indexer_entry}, {indexer_codes}, {indexer_scales}, {indexer_page_bytes}},
       {},
       {},
       always,
       m::sglang_finish},
      {"sglang-",
       Stage::indexer_score,
       "deepgemm_mqa_logits",
       kScoresWhen,
       kScoresRemark,
       {{scores}},
       {scores},
       {},
       scores_fp8,
       m::deepgemm_scores},
      {"sglang-",
       Stage::attention_core,
       "flashmla_sparse_decode, flashmla_sparse_prefill",
       kHeadsWhen,
       kAttentionRemark,
       {{attention_out}, {attention_lse}},
       {attention_out},
       {},
       heads_fit,
       m::sglang_attention},
      {"sglang-",
       Stage::output_project,
       "deepgemm_fp8_einsum",
       "",
       "the rotation and wo_b stay the profile's; the einsum is read from its source, no launch of it was "
       "recorded",
       {{o_latent, o_rot}},
       {o_latent},
       {},
       always,
       m::sglang_output},
  };
}

/// "vllm-fp8, vllm-mxfp4"
std::string profiles_of(const StageModel& model) {
  std::string names;
  for (const std::string_view name : profile_names()) {
    if (name.starts_with(model.profiles)) names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

}  // namespace

std::span<const StageModel> stage_models() {
  static const std::vector<StageModel> table = make_table();
  return table;
}

std::vector<const StageModel*> stage_models_of(const RunConfig& config, LayerKind kind) {
  std::vector<const StageModel*> chosen;
  const auto order = execution_order(kind, false);
  for (const StageModel& model : stage_models()) {
    if (config.profile.name.starts_with(model.profiles) && model.applies(config, kind) &&
        std::ranges::find(order, model.stage) != order.end()) {
      chosen.push_back(&model);
    }
  }
  return chosen;
}

std::string kernel_models_text(const RunConfig& config) {
  std::vector<const StageModel*> used;
  for (const LayerKind kind : config.layers) {
    for (const StageModel* const model : stage_models_of(config, kind)) {
      if (std::ranges::find(used, model) == used.end()) used.push_back(model);
    }
  }
  std::ranges::sort(used);  // the order of the table
  std::string text;
  for (const StageModel* const model : used)
    text += fmt::format("{}{}={}", text.empty() ? "" : "; ", name(model->stage), model->models);
  return text;
}

void print_kernel_table(bool json, bool markdown) {
  if (markdown) {
    fmt::print("| profiles | stage | models | when | |\n| --- | --- | --- | --- | --- |\n");
  }
  std::string_view group;
  for (const StageModel& model : stage_models()) {
    if (json) {
      nlohmann::ordered_json exact = nlohmann::ordered_json::array();
      for (const ExactTensor& tensor : model.exact) exact.push_back(path(tensor.id));
      fmt::print("{}\n", nlohmann::ordered_json{{"type", "kernel_model"},
                                                {"profiles", profiles_of(model)},
                                                {"stage", name(model.stage)},
                                                {"models", model.models},
                                                {"when", model.condition},
                                                {"remark", model.remark},
                                                {"exact", exact}}
                             .dump());
    } else if (markdown) {
      std::string models;
      for (const char c : model.models) models += c == ',' ? "`," : c == ' ' ? " `" : std::string(1, c);
      fmt::print("| {} | `{}` | `{}` | {} | {} |\n", model.profiles == group ? "" : profiles_of(model),
                 name(model.stage), models, model.condition.empty() ? "always" : model.condition,
                 model.remark);
    } else {
      if (model.profiles != group) fmt::print("{}{}\n", group.empty() ? "" : "\n", profiles_of(model));
      fmt::print("  {:<16} {:<46} {}\n", name(model.stage), model.models, model.condition);
    }
    group = model.profiles;
  }
}

}  // namespace dsv4::cli
