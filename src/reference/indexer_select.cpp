#include <fmt/format.h>

#include "model/error.hpp"
#include "reference/select.hpp"
#include "reference/stages.hpp"

namespace dsv4::reference {

void indexer_select(StageContext& context) {
  const std::int64_t tokens = context.tokens();
  const std::int64_t topk = context.geometry().index_topk;
  const Tensor& scores = context.input(TensorId::scores);
  const auto values = scores.as<float>();
  const auto visible = context.input(TensorId::visible).as<std::int32_t>();
  const std::int64_t width = scores.dim(1);
  for (std::int64_t token = 0; token < tokens; ++token) {
    if (!context.padding(token) && visible[static_cast<std::size_t>(token)] > width) {
      throw InternalError(fmt::format("step {} layer {}: row {} sees {} entries, scores have {}",
                                      context.plan.index, context.layer, token,
                                      visible[static_cast<std::size_t>(token)], width));
    }
  }
  Tensor selected(DType::int32, {tokens, topk});
  Tensor count(DType::int32, {tokens});
  const auto lists = selected.as<std::int32_t>();
  const auto counts = count.as<std::int32_t>();
  const SelectOrder order = context.profile().get<SelectOrder>();
#pragma omp parallel for schedule(dynamic, 4) if (tokens > 1)
  for (std::int64_t token = 0; token < tokens; ++token) {
    if (context.padding(token)) continue;
    const auto at = static_cast<std::size_t>(token);
    counts[at] = select_top(
        values.subspan(at * static_cast<std::size_t>(width), static_cast<std::size_t>(visible[at])), order,
        lists.subspan(at * static_cast<std::size_t>(topk), static_cast<std::size_t>(topk)));
  }
  context.publish(TensorId::selected, std::move(selected));
  context.publish(TensorId::selected_count, std::move(count));
}

}  // namespace dsv4::reference
