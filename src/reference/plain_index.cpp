#include "reference/plain_index.hpp"

#include <vector>

#include "reference/block_quantizer.hpp"
#include "reference/profile_rows.hpp"
#include "reference/sums.hpp"

namespace dsv4::reference {
namespace {

std::vector<float> query_values(const StageContext& context) {
  const Tensor& rows = context.input(TensorId::query_codes);
  std::vector<float> values(static_cast<std::size_t>(rows.elements()));
  if (rows.dtype() == DType::float32) {
    const auto f32 = rows.as<float>();
    values.assign(f32.begin(), f32.end());
  } else {
    widen_bf16(rows.as<std::uint16_t>().data(), rows.elements(), values.data());
  }
  return values;
}

std::vector<float> key_values(const StageContext& context, const RequestStep& request) {
  const RowStore& store = context.state.caches.at(Cache::index_entries);
  const bool f16 = context.profile().get<IndexCache>() == IndexCache::f16;
  const Slots slots = context.slots(request);
  const std::int32_t count = request.end / ratio(context.kind());
  std::vector<float> keys(static_cast<std::size_t>(count) * kIndexDim);
  for (std::int32_t j = 0; j < count; ++j) {
    load_plain(store.values(slots.at(Cache::index_entries, j)), kIndexDim, f16, keys.data() + j * kIndexDim);
  }
  return keys;
}

}  // namespace

void plain_index_scores(StageContext& context, Tensor visible, std::int64_t width) {
  const int heads = context.geometry().index_heads;
  const std::vector<float> queries = query_values(context);
  const float* const weights = context.input(TensorId::query_weights).as<float>().data();
  Tensor scores(DType::float32, {context.tokens(), width});
  for (const RequestStep& request : context.plan.requests) {
    const std::vector<float> keys = key_values(context, request);
#pragma omp parallel for schedule(dynamic) if (request.row_count > 1)
    for (std::int64_t row = request.first_row; row < request.first_row + request.row_count; ++row) {
      std::vector<float> t(static_cast<std::size_t>(heads));
      const std::int32_t count = visible.as<std::int32_t>()[static_cast<std::size_t>(row)];
      for (std::int32_t j = 0; j < count; ++j) {
        for (int h = 0; h < heads; ++h) {
          const float dot =
              dot32(queries.data() + (row * heads + h) * kIndexDim, keys.data() + j * kIndexDim, kIndexDim);
          t[static_cast<std::size_t>(h)] = dot > 0.0F ? dot : 0.0F;
        }
        scores.as<float>()[static_cast<std::size_t>(row * width + j)] =
            dot32(t.data(), weights + row * heads, heads);
      }
    }
  }
  context.publish(TensorId::scores, std::move(scores));
  context.publish(TensorId::visible, std::move(visible));
}

}  // namespace dsv4::reference
