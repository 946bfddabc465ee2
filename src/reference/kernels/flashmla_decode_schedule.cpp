#include "reference/kernels/flashmla_decode_schedule.hpp"

#include <algorithm>
#include <cstddef>

#include "model/error.hpp"

namespace dsv4::kernels {
namespace {

constexpr int kBlock = 64;
/// What a request costs beside its blocks, in blocks.
constexpr int kFixedOverhead = 5;

int blocks_of(int keys) {
  return (keys + kBlock - 1) / kBlock;
}

int length_of(const std::int32_t* lengths, int request, int topk) {
  return lengths == nullptr ? topk : lengths[request];
}

}  // namespace

int decode_main_blocks(const DecodeLengths& in, int request) {
  return std::max(blocks_of(length_of(in.lengths, request, in.topk)), 1);
}

int decode_blocks(const DecodeLengths& in, int request) {
  const int extra = in.extra_topk == 0 ? 0 : length_of(in.extra_lengths, request, in.extra_topk);
  return decode_main_blocks(in, request) + blocks_of(extra);
}

int decode_num_sm_parts(int multiprocessors, int query_tokens, int heads) {
  return std::max(multiprocessors / query_tokens / (heads / 64), 1);
}

DecodeSchedule decode_schedule(const DecodeLengths& in, int num_sm_parts) {
  require(num_sm_parts > 0, "FlashMLA schedule: no parts");
  int total = 0;
  for (int i = 0; i < in.requests; ++i) total += decode_blocks(in, i) + kFixedOverhead;
  const int payload = (total + num_sm_parts - 1) / num_sm_parts + kFixedOverhead;

  DecodeSchedule schedule;
  schedule.num_splits.push_back(0);
  int request = 0;
  int block = 0;  // first one of `request` that no part has taken
  int split = 0;
  for (int p = 0; p < num_sm_parts && request < in.requests; ++p) {
    DecodePart part;
    part.begin_request = request;
    part.begin_block = block;
    part.begin_split = split;
    int remaining = payload;
    while (request < in.requests) {
      const int all = decode_blocks(in, request);
      const int rest = all - block;
      const bool whole = remaining >= rest + kFixedOverhead;
      const int taken = whole ? rest : remaining - kFixedOverhead;
      if (taken <= 0) break;
      schedule.pieces.push_back({request, block, block + taken});
      const bool is_split = block != 0 || !whole;
      if (request == part.begin_request) part.first_is_split = is_split;
      part.last_is_split = is_split;
      part.end_request = request;
      part.end_block = block + taken;
      if (!whole) {
        block += taken;
        ++split;
        break;
      }
      remaining -= rest + kFixedOverhead;
      schedule.num_splits.push_back(static_cast<std::int32_t>(schedule.pieces.size()));
      ++request;
      block = split = 0;
    }
    // One request on both ends: both flags are the or of the two, which is what one piece sets anyway.
    schedule.parts.push_back(part);
  }
  require(request == in.requests, "FlashMLA schedule: the parts do not hold the work");
  return schedule;
}

}  // namespace dsv4::kernels
