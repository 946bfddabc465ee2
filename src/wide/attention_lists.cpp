/// attention.lists: the keys of each token as physical slots, with their logical indices (docs/numerics.md
/// 14).
#include <algorithm>

#include "wide/stages.hpp"

namespace dsv4::wide {
namespace {

/// A [token, item] table of int32, -1 where nothing is set.
class ListTable {
 public:
  ListTable(std::int64_t tokens, std::int64_t width)
      : width_(width), items_(static_cast<std::size_t>(tokens * width), -1) {}
  std::int32_t& at(std::int64_t token, std::int64_t item) {
    return items_[static_cast<std::size_t>(token * width_ + item)];
  }
  void publish(Layer& layer, TensorId id, std::int64_t tokens) const {
    layer.publish_integers(id, {tokens, width_}, items_);
  }

 private:
  std::int64_t width_;
  std::vector<std::int32_t> items_;
};

void window_lists(Layer& layer, const StepPlan& plan, std::int64_t tokens) {
  ListTable slots(tokens, kWindow);
  ListTable logical(tokens, kWindow);
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(tokens), -1);
  for (std::size_t i = 0; i < layer.rows().size(); ++i) {
    const RequestStep& step = layer.step_of(plan, i);
    const int token = layer.rows()[i];
    const std::int32_t last = layer.position(i);
    const std::int32_t length = std::min(last + 1, kWindow);
    const std::int32_t first = last + 1 - length;
    lengths[static_cast<std::size_t>(token)] = length;
    for (std::int32_t item = 0; item < length; ++item) {
      const std::int32_t key =
          layer.axis<ListOrder>() == ListOrder::newest_first ? last - item : first + item;
      logical.at(token, item) = key;
      slots.at(token, item) =
          static_cast<std::int32_t>(layer.caches.slot(Cache::window, {*step.tables, step.state_base}, key));
    }
  }
  slots.publish(layer, TensorId::window_slots, tokens);
  logical.publish(layer, TensorId::window_logical, tokens);
  layer.publish_integers(TensorId::window_length, {tokens}, lengths);
}

/// Entries that a token attends: the selection (CSA), or all that are complete (HCA).
std::vector<std::int32_t> entries_of(const Layer& layer, std::size_t i) {
  std::vector<std::int32_t> entries;
  if (layer.kind == LayerKind::hca) {
    for (std::int32_t j = 0; (j + 1) * ratio(layer.kind) <= layer.position(i) + 1; ++j) entries.push_back(j);
    return entries;
  }
  const auto token = static_cast<std::size_t>(layer.rows()[i]);
  const auto selected = layer.integers(TensorId::selected);
  const auto width = static_cast<std::size_t>(layer.tensor(TensorId::selected)->dim(1));
  const auto count = static_cast<std::size_t>(layer.integers(TensorId::selected_count)[token]);
  const auto row = selected.subspan(token * width, count);
  return {row.begin(), row.end()};
}

void compressed_lists(Layer& layer, const StepPlan& plan, std::int64_t tokens) {
  std::vector<std::vector<std::int32_t>> entries(layer.rows().size());
  std::size_t width = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i] = entries_of(layer, i);
    width = std::max(width, entries[i].size());
  }
  ListTable slots(tokens, static_cast<std::int64_t>(width));
  ListTable logical(tokens, static_cast<std::int64_t>(width));
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(tokens), -1);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const RequestStep& step = layer.step_of(plan, i);
    const int token = layer.rows()[i];
    lengths[static_cast<std::size_t>(token)] = static_cast<std::int32_t>(entries[i].size());
    for (std::size_t item = 0; item < entries[i].size(); ++item) {
      const std::int32_t entry = entries[i][item];
      logical.at(token, static_cast<std::int64_t>(item)) = entry;
      slots.at(token, static_cast<std::int64_t>(item)) = static_cast<std::int32_t>(
          layer.caches.slot(Cache::entries, {*step.tables, step.state_base}, entry));
    }
  }
  slots.publish(layer, TensorId::compressed_slots, tokens);
  logical.publish(layer, TensorId::compressed_logical, tokens);
  layer.publish_integers(TensorId::compressed_length, {tokens}, lengths);
}

}  // namespace

void attention_lists(Layer& layer, const StepPlan& plan) {
  const std::int64_t tokens = std::ssize(plan.rows);
  window_lists(layer, plan, tokens);
  if (has_compressor(layer.kind)) compressed_lists(layer, plan, tokens);
}

}  // namespace dsv4::wide
