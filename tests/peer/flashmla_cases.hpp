/// Recorded cases of FlashMLA's kernels as inputs of the models, with the memory that these point into.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "peer/peer_file.hpp"
#include "reference/kernels/flashmla_sparse_decode.hpp"
#include "reference/kernels/flashmla_sparse_prefill.hpp"

namespace dsv4::peer {

using kernels::FlashmlaPagedKeys;
using kernels::FlashmlaSparseDecode;
using kernels::FlashmlaSparsePrefill;

inline Array read_if_there(const PeerFile& file, const std::string& path) {
  return file.has(path) ? file.read(path) : Array{{}, 1, {}};
}

template <class T>
const T* pointer(const Array& array) {
  return array.bytes.empty() ? nullptr : array.as<T>();
}

/// A paged cache of a recorded case; `prefix` is "" for the window and "extra_" for the second cache.
struct Keys {
  Array bytes, indices, lengths;
  FlashmlaPagedKeys in;

  Keys(const PeerFile& file, const std::string& name, const std::string& prefix)
      : bytes(read_if_there(file, name + "/in/" + prefix + "kv_cache")),
        indices(read_if_there(file, name + "/in/" + prefix + "indices")),
        lengths(read_if_there(file, name + "/in/" + prefix + "topk_length")) {
    if (bytes.bytes.empty()) return;
    in.bytes = bytes.as<std::uint8_t>();
    in.pages = bytes.dim(0);
    in.page_rows = static_cast<std::int64_t>(file.number(name, prefix + "page_size"));
    in.page_stride = bytes.dim(1);
    in.indices = indices.as<std::int32_t>();
    in.topk = static_cast<int>(indices.dim(2));
    in.lengths = pointer<std::int32_t>(lengths);
  }
};

struct DecodeCase {
  Array q, sink;
  Keys window, extra;
  FlashmlaSparseDecode in;

  DecodeCase(const PeerFile& file, const std::string& name)
      : q(file.read(name + "/in/q")),
        sink(read_if_there(file, name + "/in/attn_sink")),
        window(file, name, ""),
        extra(file, name, "extra_") {
    in.batch = static_cast<int>(q.dim(0));
    in.queries = static_cast<int>(q.dim(1));
    in.heads = static_cast<int>(q.dim(2));
    in.softmax_scale = static_cast<float>(file.number(name, "sm_scale"));
    in.q = q.as<std::uint16_t>();
    in.window = window.in;
    in.extra = extra.in;
    in.sink = pointer<float>(sink);
    in.num_sm_parts = static_cast<int>(file.number(name, "num_sm_parts"));
  }
};

struct PrefillCase {
  Array q, kv, indices, lengths, sink;
  FlashmlaSparsePrefill in;

  PrefillCase(const PeerFile& file, const std::string& name)
      : q(file.read(name + "/in/q")),
        kv(file.read(name + "/in/kv")),
        indices(file.read(name + "/in/indices")),
        lengths(read_if_there(file, name + "/in/topk_length")),
        sink(read_if_there(file, name + "/in/attn_sink")) {
    in.tokens = q.dim(0);
    in.heads = static_cast<int>(q.dim(1));
    in.keys = kv.dim(0);
    in.topk = static_cast<int>(indices.dim(2));
    in.softmax_scale = static_cast<float>(file.number(name, "sm_scale"));
    in.q = q.as<std::uint16_t>();
    in.kv = kv.as<std::uint16_t>();
    in.indices = indices.as<std::int32_t>();
    in.topk_lengths = pointer<std::int32_t>(lengths);
    in.sink = pointer<float>(sink);
  }
};

struct PrefillResult {
  std::vector<std::uint16_t> out;
  std::vector<float> max_logits, lse;

  explicit PrefillResult(const FlashmlaSparsePrefill& in)
      : out(static_cast<std::size_t>(in.tokens * in.heads * kernels::kFlashDim)),
        max_logits(static_cast<std::size_t>(in.tokens * in.heads)),
        lse(max_logits.size()) {
    kernels::flashmla_sparse_prefill(in, {out.data(), max_logits.data(), lse.data()});
  }
};

}  // namespace dsv4::peer
