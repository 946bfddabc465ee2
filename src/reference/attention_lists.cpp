#include <fmt/format.h>

#include <algorithm>

#include "model/error.hpp"
#include "reference/stages.hpp"

namespace dsv4::reference {
namespace {

/// Slots and logical indices of one kind of key, [tokens, width], -1 where there is none, and lengths
/// [tokens].
struct Lists {
  Lists(std::int64_t tokens, std::int64_t items)
      : width(items),
        slots(DType::int32, {tokens, items}),
        logical(DType::int32, {tokens, items}),
        length(DType::int32, {tokens}) {
    std::ranges::fill(slots.as<std::int32_t>(), -1);
    std::ranges::fill(logical.as<std::int32_t>(), -1);
  }

  void set(std::int64_t token, std::int64_t item, std::int64_t slot, std::int32_t index) {
    const auto at = static_cast<std::size_t>(token * width + item);
    slots.as<std::int32_t>()[at] = static_cast<std::int32_t>(slot);
    logical.as<std::int32_t>()[at] = index;
  }
  void set_length(std::int64_t token, std::int32_t items) {
    length.as<std::int32_t>()[static_cast<std::size_t>(token)] = items;
  }

  std::int64_t width;
  Tensor slots, logical, length;
};

/// Item i is position max(0, p - W + 1) + i, as far as p; with list_order newest_first position p - i.
void window_list(const StageContext& context, const RequestStep& request, Lists& lists) {
  const Slots slots = context.slots(request);
  const bool newest_first = context.profile().get<ListOrder>() == ListOrder::newest_first;
  for (std::int32_t p = request.begin; p < request.end; ++p) {
    const std::int64_t token = request.first_row + (p - request.begin);
    const std::int32_t first = std::max(0, p - kWindow + 1);
    for (std::int32_t key = first; key <= p; ++key)
      lists.set(token, newest_first ? p - key : key - first, slots.at(Cache::window, key), key);
    lists.set_length(token, p - first + 1);
  }
}

/// The selected entries (CSA, in the order of the selection) or every visible entry (HCA, ascending).
Lists compressed_lists(const StageContext& context) {
  const std::int64_t tokens = context.tokens();
  const bool csa = context.kind() == LayerKind::csa;
  const Tensor* selected = csa ? &context.input(TensorId::selected) : nullptr;
  const Tensor* counts = csa ? &context.input(TensorId::selected_count) : nullptr;
  const auto length = [&](std::int64_t token) {
    if (context.padding(token)) return 0;
    if (csa) return counts->as<std::int32_t>()[static_cast<std::size_t>(token)];
    return (context.position(token) + 1) / ratio(context.kind());
  };
  std::int32_t width = 0;
  for (std::int64_t token = 0; token < tokens; ++token) width = std::max(width, length(token));
  if (csa && width > selected->dim(1)) {
    throw InternalError(fmt::format("step {} layer {}: a count of {} for {} selected entries",
                                    context.plan.index, context.layer, width, selected->dim(1)));
  }
  Lists lists(tokens, width);
  for (const RequestStep& request : context.plan.requests) {
    const Slots slots = context.slots(request);
    for (std::int64_t token = request.first_row; token < request.first_row + request.row_count; ++token) {
      const std::int32_t items = length(token);
      for (std::int32_t item = 0; item < items; ++item) {
        const std::int32_t entry =
            csa ? selected->as<std::int32_t>()[static_cast<std::size_t>(token * selected->dim(1) + item)]
                : item;
        lists.set(token, item, slots.at(Cache::entries, entry), entry);
      }
      lists.set_length(token, items);
    }
  }
  return lists;
}

}  // namespace

void attention_lists(StageContext& context) {
  Lists window(context.tokens(), kWindow);
  for (const RequestStep& request : context.plan.requests) window_list(context, request, window);
  context.publish(TensorId::window_slots, std::move(window.slots));
  context.publish(TensorId::window_length, std::move(window.length));
  context.publish(TensorId::window_logical, std::move(window.logical));
  if (context.kind() == LayerKind::swa) return;
  Lists compressed = compressed_lists(context);
  context.publish(TensorId::compressed_slots, std::move(compressed.slots));
  context.publish(TensorId::compressed_length, std::move(compressed.length));
  context.publish(TensorId::compressed_logical, std::move(compressed.logical));
}

}  // namespace dsv4::reference
