/// The stage functions of the wide engine, one file each, named as the stages (docs/numerics.md 11 to 16).
/// Each takes its inputs from published tensors and caches, so that replaced tensors and rows are what it
/// computes with.
#pragma once

#include "model/inputs.hpp"
#include "model/step_plan.hpp"
#include "wide/input_store.hpp"
#include "wide/layer.hpp"

namespace dsv4::wide {

/// `previous` is the layer below in a chained run, else null.
void layer_input(Layer& layer, const StepPlan& plan, const HiddenSource& source, const Layer* previous,
                 const InputStore& store);
void q_down(Layer& layer);
void q_up(Layer& layer);
void kv_window(Layer& layer, const StepPlan& plan);
void compress_project(Layer& layer, bool indexer);
void compress_pool(Layer& layer, const StepPlan& plan, bool indexer);
void compress_state(Layer& layer, const StepPlan& plan, bool indexer);
void compress_finish(Layer& layer, const StepPlan& plan, bool indexer);
void indexer_query(Layer& layer);
void indexer_score(Layer& layer, const StepPlan& plan);
void indexer_select(Layer& layer);
void attention_lists(Layer& layer, const StepPlan& plan);
void attention_core(Layer& layer);
void output_project(Layer& layer);

}  // namespace dsv4::wide
