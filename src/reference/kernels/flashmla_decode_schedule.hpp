/// How FlashMLA (9241ae3ef9ba) cuts a decode batch into parts, get_decoding_sched_meta. The cut decides bits:
/// the pieces of a request are normalised apart and then combined. docs/kernel-models.md, FlashMLA.
#pragma once

#include <cstdint>
#include <vector>

namespace dsv4::kernels {

/// A range of 64-key blocks of one request that one thread block works off with one online softmax.
struct DecodePiece {
  int request = 0;
  int begin_block = 0;
  int end_block = 0;  ///< exclusive
};

/// Work of one thread block as the kernel's table states it, [num_sm_parts, 8] without the last, unused
/// column.
struct DecodePart {
  int begin_request = 0;
  int end_request = 0;  ///< inclusive
  int begin_block = 0;
  int end_block = 0;  ///< exclusive, of end_request
  int begin_split = 0;
  bool first_is_split = false;
  bool last_is_split = false;
};

struct DecodeSchedule {
  std::vector<DecodePiece> pieces;  ///< of all requests, in order
  std::vector<std::int32_t>
      num_splits;  ///< [requests + 1]: pieces of request i are [num_splits[i], num_splits[i + 1])
  std::vector<DecodePart> parts;  ///< those that have work
};

struct DecodeLengths {
  int requests = 0;
  int topk = 0;
  const std::int32_t* lengths = nullptr;  ///< [requests], null: topk each
  int extra_topk = 0;                     ///< 0: no second cache
  const std::int32_t* extra_lengths = nullptr;
};

/// 64-key blocks of a request: first those of the main list (at least one), then those of the extra list.
int decode_main_blocks(const DecodeLengths& in, int request);
int decode_blocks(const DecodeLengths& in, int request);

/// Parts that the library asks for on a GPU of `multiprocessors`.
int decode_num_sm_parts(int multiprocessors, int query_tokens, int heads);

/// Throws InternalError when the parts cannot hold the work (the library never asks for so few).
DecodeSchedule decode_schedule(const DecodeLengths& in, int num_sm_parts);

}  // namespace dsv4::kernels
