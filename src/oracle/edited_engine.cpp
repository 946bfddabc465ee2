#include "oracle/edited_engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "oracle/slots.hpp"

namespace dsv4::oracle {
namespace {

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && std::ranges::equal(a.bytes(), b.bytes());
}

}  // namespace

EditedEngine::EditedEngine(std::unique_ptr<Engine> inside, std::shared_ptr<const WeightSource> weights)
    : Engine(inside->config()), inside_(std::move(inside)), weight_source_(std::move(weights)) {
  weights_.resize(config_.layers.size());
  edits_.resize(config_.layers.size());
  told_.resize(config_.layers.size());
  writes_.resize(config_.layers.size());
  for (StageFunction& entry : stages_) {
    entry = [this](const StageCall& call) { inside_->run_stage(plan_, call.layer, call.stage); };
  }
}

void EditedEngine::before(Stage stage, StageHook hook) {
  StageFunction& entry = stages_[static_cast<std::size_t>(stage)];
  entry = [wrapped = entry, hook = std::move(hook)](const StageCall& call) {
    hook(call);
    wrapped(call);
  };
}

void EditedEngine::after(Stage stage, StageHook hook) {
  StageFunction& entry = stages_[static_cast<std::size_t>(stage)];
  entry = [wrapped = entry, hook = std::move(hook)](const StageCall& call) {
    wrapped(call);
    hook(call);
  };
}

void EditedEngine::disguise(Stage stage, TensorId id, Disguise disguise) {
  needs(id);
  StageFunction& entry = stages_[static_cast<std::size_t>(stage)];
  entry = [this, id, wrapped = entry, disguise = std::move(disguise)](const StageCall& call) {
    const Tensor* published = tensor(call.layer, id);
    std::optional<Tensor> shown;
    if (published != nullptr) shown = disguise(call, *published);
    if (!shown || same(*shown, *published)) {
      wrapped(call);
      return;
    }
    fire();
    Tensor kept = *published;
    inside_->set_tensor(call.layer, id, std::move(*shown));
    wrapped(call);
    inside_->set_tensor(call.layer, id, std::move(kept));
  };
}

const Tensor& EditedEngine::input(int layer, TensorId id) const {
  if (const Tensor* found = tensor(layer, id)) return *found;
  throw InternalError(fmt::format("layer {}: {} is not published, which a change of its stages reads", layer, path(id)));
}

void EditedEngine::change(int layer, TensorId id, Tensor value) {
  const Tensor* published = tensor(layer, id);
  if (published == nullptr || same(*published, value)) return;
  fire();
  inside_->set_tensor(layer, id, std::move(value));
}

std::vector<std::byte> EditedEngine::row(int layer, Cache cache, std::int64_t slot) const {
  const CacheShape shape = cache_shape(config_, layer, cache);
  const std::vector<std::byte> unit = read_row(layer, cache, slot / shape.page_rows);
  const std::int64_t at = slot % shape.page_rows;
  const std::int64_t values = shape.row_bytes() - shape.scale_bytes;
  std::vector<std::byte> bytes(unit.begin() + at * values, unit.begin() + (at + 1) * values);
  const auto scales = unit.begin() + shape.page_rows * values + at * shape.scale_bytes;
  bytes.insert(bytes.end(), scales, scales + shape.scale_bytes);
  return bytes;
}

void EditedEngine::edit(int layer, Edit edit) {
  fire();
  const auto at = static_cast<std::size_t>(layer);
  const auto [told, first] = told_[at].try_emplace(edit.stage);
  if (first) {
    std::ranges::copy_if(inside_->writes(layer), std::back_inserter(told->second),
                         [&](const Write& write) { return write.stage == edit.stage; });
  }
  edits_[at].push_back(std::move(edit));
}

void EditedEngine::put(int layer, const Write& row) {
  if (this->row(layer, row.cache, row.slot) == row.bytes) return;
  inside_->apply_writes(layer, {&row, 1});
  edit(layer, {row.stage, row.cache, row.slot, row});
}

void EditedEngine::unwrite(int layer, const Write& write, std::span<const std::byte> before) {
  Write old = write;
  old.bytes.assign(before.begin(), before.end());
  inside_->apply_writes(layer, {&old, 1});
  edit(layer, {write.stage, write.cache, write.slot, std::nullopt});
}

void EditedEngine::overwrite(int layer, Cache cache, std::int64_t slot, std::span<const std::byte> bytes) {
  const std::vector<std::byte> held = row(layer, cache, slot);
  if (std::ranges::equal(held, bytes)) return;
  Write write{Stage{}, cache, slot, -1, -1, {bytes.begin(), bytes.end()}};
  inside_->apply_writes(layer, {&write, 1});
  fire();
}

const LayerWeights& EditedEngine::weights(int layer) {
  auto& kept = weights_.at(static_cast<std::size_t>(layer));
  if (!kept) kept = weight_source_->layer(layer);
  return *kept;
}

void EditedEngine::want(const TensorSet& wanted) {
  Engine::want(wanted);
  inside_->want(wanted | needed_);
}

void EditedEngine::begin_step(const StepPlan& plan) {
  plan_ = plan;
  for (const auto& change : plan_changes_) {
    if (change(plan_)) fire();
  }
  for (auto& edits : edits_) edits.clear();
  for (auto& told : told_) told.clear();
  inside_->begin_step(plan_);
}

void EditedEngine::end_step(const StepPlan& plan) {
  inside_->end_step(plan_);
  for (const auto& hook : end_hooks_) hook(plan);
}

void EditedEngine::set_tensor(int layer, TensorId id, Tensor value) {
  inside_->set_tensor(layer, id, std::move(value));
}

std::span<const Write> EditedEngine::writes(int layer) const {
  const auto at = static_cast<std::size_t>(layer);
  if (edits_[at].empty()) return inside_->writes(layer);
  std::vector<Write>& all = writes_[at];
  all.clear();
  std::set<Stage> taken;
  for (const Write& write : inside_->writes(layer)) {
    const auto told = told_[at].find(write.stage);
    if (told == told_[at].end()) {
      all.push_back(write);
    } else if (taken.insert(write.stage).second) {
      all.insert(all.end(), told->second.begin(), told->second.end());
    }
  }
  for (const Edit& edit : edits_[at]) {
    const auto meant = [&](const Write& write) {
      return write.stage == edit.stage && write.cache == edit.cache && write.slot == edit.slot;
    };
    if (!edit.row) {
      std::erase_if(all, meant);
      continue;
    }
    const auto found = std::ranges::find_if(all, meant);
    if (found == all.end())
      all.push_back(*edit.row);
    else
      *found = *edit.row;
  }
  return all;
}

}  // namespace dsv4::oracle
