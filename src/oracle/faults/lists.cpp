#include "oracle/faults/lists.hpp"

#include <algorithm>

#include "oracle/faults/compressor_form.hpp"
#include "oracle/slots.hpp"

namespace dsv4::oracle::faults {
namespace {

using enum TensorId;

/// Puts another slot in place of every valid one of a list.
template <class Translate>
void translate(FaultyEngine& subject, int layer, TensorId id, const Translate& translated) {
  if (subject.tensor(layer, id) == nullptr) return;
  Tensor list = subject.input(layer, id);
  for (std::int32_t& slot : list.as<std::int32_t>()) {
    if (slot >= 0) slot = translated(slot);
  }
  subject.change(layer, id, std::move(list));
}

struct ListOf {
  TensorId slots;
  Cache cache;
};
constexpr ListOf kListsOf[]{{window_slots, Cache::window}, {compressed_slots, Cache::entries}};

}  // namespace

void window_width(FaultyEngine& subject, const Parameters& parameters) {
  const auto width = static_cast<std::int32_t>(parameters.number("width"));
  subject.needs(window_logical);
  subject.after(Stage::attention_lists, [&subject, width](const StageCall& call) {
    Tensor slots = subject.input(call.layer, window_slots);
    Tensor logical = subject.input(call.layer, window_logical);
    Tensor length = subject.input(call.layer, window_length);
    for (const RequestStep& request : call.plan.requests) {
      for (std::int32_t i = 0; i < request.row_count; ++i) {
        const std::int32_t position = request.begin + i;
        const std::int64_t token = request.first_row + i;
        const auto slot_row = tensor_row<std::int32_t>(slots, token);
        const auto logical_row = tensor_row<std::int32_t>(logical, token);
        std::ranges::fill(slot_row, -1);
        std::ranges::fill(logical_row, -1);
        // The list has room for 128: a wider window begins earlier and loses its newest key.
        std::int32_t item = 0;
        for (std::int32_t p = std::max(0, position - width + 1); p <= position && item < kWindow; ++p) {
          const std::int64_t slot = slot_in(subject.config(), call.layer, Cache::window, request, p);
          slot_row[static_cast<std::size_t>(item)] = static_cast<std::int32_t>(slot);
          logical_row[static_cast<std::size_t>(item++)] = p;
        }
        length.as<std::int32_t>()[static_cast<std::size_t>(token)] = item;
      }
    }
    subject.change(call.layer, window_slots, std::move(slots));
    subject.change(call.layer, window_logical, std::move(logical));
    subject.change(call.layer, window_length, std::move(length));
  });
}

void address_wraps(FaultyEngine& subject, const Parameters& parameters) {
  const std::int64_t wrap = parameters.number("wrap");
  subject.after(Stage::attention_lists, [&subject, wrap](const StageCall& call) {
    for (const ListOf& list : kListsOf) {
      if (!has_cache(subject.kind(call.layer), list.cache)) continue;
      const CacheShape shape = cache_shape(subject.config(), call.layer, list.cache);
      const auto pitch = static_cast<std::int64_t>(subject.read_row(call.layer, list.cache, 0).size());
      translate(subject, call.layer, list.slots, [&](std::int32_t slot) {
        const std::int64_t byte = slot / shape.page_rows * pitch % wrap;
        const std::int64_t row =
            std::min<std::int64_t>(byte % pitch / shape.value_bytes, shape.page_rows - 1);
        const std::int64_t offset = (row + slot % shape.page_rows) % shape.page_rows;
        return static_cast<std::int32_t>(byte / pitch * shape.page_rows + offset);
      });
    }
  });
}

void page_size_assumed(FaultyEngine& subject, const Parameters& parameters) {
  const std::int64_t rows = parameters.number("rows");
  subject.after(Stage::attention_lists, [&subject, rows](const StageCall& call) {
    for (const ListOf& list : kListsOf) {
      if (!has_cache(subject.kind(call.layer), list.cache)) continue;
      const CacheShape shape = cache_shape(subject.config(), call.layer, list.cache);
      const std::int64_t slots = physical_rows(subject.config(), shape) * shape.page_rows;
      translate(subject, call.layer, list.slots, [&](std::int32_t slot) {
        const std::int64_t other = slot / shape.page_rows * rows + slot % shape.page_rows;
        return static_cast<std::int32_t>(std::min(other, slots - 1));
      });
    }
  });
}

void list_stride(FaultyEngine& subject, const Parameters& parameters) {
  const auto by = static_cast<std::size_t>(parameters.number("by"));
  subject.after(Stage::attention_lists, [&subject, by](const StageCall& call) {
    const Tensor built = subject.input(call.layer, window_slots);
    Tensor read = built;
    const auto width = static_cast<std::size_t>(built.dim(1));
    const auto from = built.as<std::int32_t>();
    const auto to = read.as<std::int32_t>();
    for (std::size_t token = 0; token < call.plan.rows.size(); ++token) {
      if (call.plan.rows[token].request < 0) continue;
      for (std::size_t item = 0; item < width; ++item) {
        const std::size_t at = token * (width - std::min(by, width)) + item;
        to[token * width + item] = from[at];
      }
    }
    subject.change(call.layer, window_slots, std::move(read));
  });
}

}  // namespace dsv4::oracle::faults
