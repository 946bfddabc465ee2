#include "oracle/fill.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "arith/bf16.hpp"
#include "arith/e2m1.hpp"
#include "arith/e4m3.hpp"
#include "arith/f16.hpp"
#include "model/layout.hpp"
#include "model/seeded.hpp"
#include "oracle/slots.hpp"

namespace dsv4::oracle {
namespace {

constexpr std::size_t kBatchRows = 4096;  // rows handed over at once; bounds memory

/// Appends elements of one row, taking stream elements in order.
class RowWriter {
 public:
  RowWriter(const SeededStream& stream, std::vector<std::byte>& bytes) : stream_(stream), bytes_(bytes) {}

  void codes_e4m3(int count) {
    for (int i = 0; i < count; ++i) byte(arith::f32_to_e4m3(scaled(0x1p-8F)));
  }
  void codes_e2m1_packed(int count) {
    for (int i = 0; i < count; i += 2) {
      const unsigned low = arith::f32_to_e2m1(scaled(0x1p-8F));
      const unsigned high = arith::f32_to_e2m1(scaled(0x1p-8F));
      byte(static_cast<std::uint8_t>(low | high << 4));
    }
  }
  void bf16(int count) {
    for (int i = 0; i < count; ++i) raw(arith::f32_to_bf16(scaled(0x1p-7F)));
  }
  void f16(int count) {
    for (int i = 0; i < count; ++i) raw(arith::f32_to_f16(scaled(0x1p-7F)));
  }
  void f32(int count, float factor) {
    for (int i = 0; i < count; ++i) raw(scaled(factor));
  }
  void f32_above_one(int count) {
    for (int i = 0; i < count; ++i) raw(1.0F + std::fabs(scaled(0x1p-7F)));
  }
  void scale_bytes(int count) {
    for (int i = 0; i < count; ++i) byte(static_cast<std::uint8_t>(127 + exponent()));
  }
  void scale_f32() { raw(std::ldexp(1.0F, exponent())); }
  void byte(std::uint8_t value) { bytes_.push_back(static_cast<std::byte>(value)); }

 private:
  float scaled(float factor) { return static_cast<float>(stream_.u(next_++)) * factor; }
  int exponent() { return static_cast<int>(stream_.word(next_++) % 3) - 1; }
  template <class T>
  void raw(T value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }

  const SeededStream& stream_;
  std::vector<std::byte>& bytes_;
  std::uint32_t next_ = 0;
};

std::vector<std::byte> row_bytes(const CacheShape& shape, Cache cache, const Profile& profile,
                                 const SeededStream& stream) {
  std::vector<std::byte> bytes;
  bytes.reserve(static_cast<std::size_t>(shape.row_bytes()));
  RowWriter row(stream, bytes);
  if (shape.online) {
    row.f32(shape.channels, 0x1p-8F);
    row.f32_above_one(shape.channels);
    row.f32(shape.channels, 0x1p-7F);
  } else if (shape.channels > 0) {
    row.f32(shape.channels, 0x1p-7F);
    row.f32(shape.channels, 0x1p-8F);
  } else if (shape.scale_bytes == 0) {
    const bool f16 = cache == Cache::index_entries ? profile.get<IndexCache>() == IndexCache::f16
                                                   : profile.get<KvCache>() == KvCache::f16;
    const int count = shape.value_bytes / 2;
    f16 ? row.f16(count) : row.bf16(count);
  } else if (cache != Cache::index_entries) {
    row.codes_e4m3(kNopeDim);
    row.bf16(kRopeDim);
    row.scale_bytes(layout::kKvScales);
    row.byte(0);
  } else if (shape.value_bytes == layout::kIndexFp4ValueBytes) {
    row.codes_e2m1_packed(kIndexDim);
    row.scale_bytes(layout::kIndexFp4ScaleBytes);
  } else {
    row.codes_e4m3(kIndexDim);
    row.scale_f32();
  }
  return bytes;
}

struct Range {
  std::int32_t begin;
  std::int32_t end;
  std::int32_t tokens_a_row;
  Stage stage;
};

Range live_range(LayerKind kind, Cache cache, const CacheShape& shape, std::int32_t n) {
  switch (cache) {
    case Cache::window:
      return {first_live_window(n), n, 1, Stage::kv_window};
    case Cache::entries:
      return {0, live_entries(kind, n), ratio(kind), Stage::compress_finish};
    case Cache::index_entries:
      return {0, live_entries(kind, n), ratio(kind), Stage::indexer_finish};
    case Cache::state:
      // online: one row, of the last token, while a group is open
      return {shape.online && n % ratio(kind) != 0 ? n - 1 : first_live_state(kind, n), n, 1,
              Stage::compress_state};
    case Cache::index_state:
      return {first_live_state(kind, n), n, 1, Stage::indexer_state};
  }
  throw InternalError("unknown cache");
}

}  // namespace

void apply_fill(Engine& engine, const StepPlan& plan) {
  require(plan.fill.has_value(), "a fill step without a fill");
  const RunConfig& config = engine.config();
  const auto live = std::ranges::find(plan.live, plan.fill->request, &LiveRequest::request);
  require(live != plan.live.end(), "fill of a request that is not live");
  const std::string& request = config.requests.at(static_cast<std::size_t>(plan.fill->request));

  for (int layer = 0; layer < static_cast<int>(config.layers.size()); ++layer) {
    const LayerKind kind = config.layers[static_cast<std::size_t>(layer)];
    for (std::size_t c = 0; c < kCacheCount; ++c) {
      const auto cache = static_cast<Cache>(c);
      if (!has_cache(kind, cache)) continue;
      const CacheShape shape = cache_shape(config, layer, cache);
      const Range range = live_range(kind, cache, shape, plan.fill->tokens);
      const std::string stream_name = "fill/" + std::to_string(layer) + "/" + std::string(name(cache));
      std::vector<Write> batch;
      for (std::int32_t index = range.begin; index < range.end; ++index) {
        const std::int64_t last_token = std::int64_t{index + 1} * range.tokens_a_row - 1;
        const SeededStream stream(config.seed, stream_name, content_id(request, last_token, 0));
        const std::int64_t slot = slot_of(shape, *live->tables, live->state_base, index);
        require(slot >= 0, "fill of a row whose page is not held");
        batch.push_back({range.stage, cache, slot, plan.fill->request, index,
                         row_bytes(shape, cache, config.profile, stream)});
        if (batch.size() == kBatchRows) {
          engine.apply_writes(layer, batch);
          batch.clear();
        }
      }
      if (!batch.empty()) engine.apply_writes(layer, batch);
    }
  }
}

}  // namespace dsv4::oracle
