/// The stage functions of the reference engine, one file each (src/reference/<stage>.cpp). Each reads
/// published tensors, weights and caches, and publishes its tensors (src/model/stage.hpp lists them with
/// dtypes and dims).
#pragma once

#include "reference/stage_context.hpp"

namespace dsv4::reference {

void layer_input(StageContext& context);  ///< sections 11, 16 (chain)
void q_down(StageContext& context);       ///< section 11
void q_up(StageContext& context);         ///< section 11
void kv_window(StageContext& context);    ///< section 11

/// Sections 12.1 to 12.7; the indexer's are the same with d = 128 (its stage names select it).
void compress_project(StageContext& context, Stage stage);
void compress_state(StageContext& context, Stage stage);
void compress_pool(StageContext& context, Stage stage);
void compress_finish(StageContext& context, Stage stage);

void indexer_query(StageContext& context);    ///< section 13
void indexer_score(StageContext& context);    ///< section 13
void indexer_select(StageContext& context);   ///< section 13
void attention_lists(StageContext& context);  ///< section 14
void attention_core(StageContext& context);   ///< section 15
void output_project(StageContext& context);   ///< section 16

}  // namespace dsv4::reference
