#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cli/kernels/stage_models.hpp"
#include "reference/kernels/flashmla_sparse_decode.hpp"
#include "reference/kernels/flashmla_sparse_prefill.hpp"
#include "reference/kernels/vllm_k_cache.hpp"

namespace dsv4::cli::kernel_stages {
namespace {

/// Of an H200: the cut of a decode batch depends on it.
constexpr int kMultiprocessors = 132;

/// Pages that a step reads, one behind the other; slots are counted anew.
class PackedPages {
 public:
  PackedPages(const KernelCall& call, Cache cache) : rows_(call, cache) {}

  std::int32_t index(std::int32_t slot) {
    if (slot < 0) return -1;
    const std::int64_t page = slot / rows_.page_rows();
    const auto [found, added] = numbers_.try_emplace(page, static_cast<std::int32_t>(numbers_.size()));
    if (added) {
      const std::vector<std::byte> bytes = rows_.whole_page(page);
      stride_ = std::ssize(bytes);
      const auto* const first = reinterpret_cast<const std::uint8_t*>(bytes.data());
      bytes_.insert(bytes_.end(), first, first + bytes.size());
    }
    return static_cast<std::int32_t>(found->second * rows_.page_rows() + slot % rows_.page_rows());
  }
  /// Of every row in these pages, used or not.
  std::int64_t rows() const { return std::ssize(numbers_) * rows_.page_rows(); }

  kernels::FlashmlaPagedKeys keys() const {
    kernels::FlashmlaPagedKeys keys;
    keys.bytes = bytes_.data();
    keys.pages = std::ssize(numbers_);
    keys.page_rows = rows_.page_rows();
    keys.page_stride = stride_;
    return keys;
  }
  /// All rows as bf16 [rows, 512], appended.
  void gather(std::vector<std::uint16_t>& out) const {
    if (numbers_.empty()) return;
    const auto length = static_cast<std::int32_t>(rows());
    std::vector<std::int32_t> table(numbers_.size());
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<std::int32_t>(i);
    kernels::VllmGather gather;
    gather.seq_lens = {&length, 1};
    gather.block_table = table;
    gather.table_width = std::ssize(table);
    gather.out_rows = length;
    const std::size_t before = out.size();
    out.resize(before + static_cast<std::size_t>(length) * kHeadDim);
    kernels::vllm_dequantize_and_gather_k(gather, kernels::main_pages(rows_.page_rows(), stride_), bytes_,
                                          std::span(out).subspan(before));
  }

 private:
  CacheRows rows_;
  std::int64_t stride_ = 0;
  std::map<std::int64_t, std::int32_t> numbers_;
  std::vector<std::uint8_t> bytes_;
};

/// One published list, [tokens, width] slots with a length a token; none in window-only layers.
struct List {
  const Tensor* slots = nullptr;
  const Tensor* lengths = nullptr;

  std::span<const std::int32_t> of(std::int64_t token) const {
    if (slots == nullptr) return {};
    const std::int64_t n = lengths->as<std::int32_t>()[static_cast<std::size_t>(token)];
    return slots->as<std::int32_t>().subspan(
        static_cast<std::size_t>(token * slots->dim(1)),
        static_cast<std::size_t>(std::clamp<std::int64_t>(n, 0, slots->dim(1))));
  }
};

/// A step's attention: lists in, rows of out and lse.
struct Attention {
  const KernelCall& call;
  int heads;
  int padded_heads;
  float scale;
  std::vector<float> sink;
  List window, compressed;
  Tensor out, lse;

  explicit Attention(const KernelCall& of)
      : call(of),
        heads(of.geometry().heads),
        padded_heads(of.geometry().heads <= 64 ? 64 : 128),
        scale(static_cast<float>(1 / std::sqrt(double{kHeadDim}))),
        sink(of.weights().attn_sink),
        window{&of.input(TensorId::window_slots), &of.input(TensorId::window_length)},
        out(DType::bfloat16, {of.tokens(), heads, kHeadDim}),
        lse(DType::float32, {of.tokens(), heads}) {
    // Heads that fill a tile up have queries of zero and no sink.
    sink.resize(static_cast<std::size_t>(padded_heads), -std::numeric_limits<float>::infinity());
    if (has_compressor(of.kind()))
      compressed = {&of.input(TensorId::compressed_slots), &of.input(TensorId::compressed_length)};
  }

  std::vector<std::uint16_t> queries(const std::vector<std::int64_t>& tokens) const {
    const auto q = call.input(TensorId::q).as<std::uint16_t>();
    const std::int64_t row = std::int64_t{heads} * kHeadDim;
    std::vector<std::uint16_t> rows(tokens.size() * static_cast<std::size_t>(padded_heads) * kHeadDim);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::copy_n(q.begin() + tokens[i] * row, row,
                  rows.begin() + static_cast<std::ptrdiff_t>(i) * padded_heads * kHeadDim);
    }
    return rows;
  }
  void keep(const std::vector<std::int64_t>& tokens, const std::uint16_t* rows, const float* logs) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto from = static_cast<std::int64_t>(i) * padded_heads;
      std::copy_n(rows + from * kHeadDim, std::int64_t{heads} * kHeadDim,
                  out.as<std::uint16_t>().data() + tokens[i] * heads * kHeadDim);
      std::copy_n(logs + from, heads, lse.as<float>().data() + tokens[i] * heads);
    }
  }
};

/// Every token is a request of its own to the kernel. `least`: entries that an empty list is taken for.
void decode(Attention& step, const std::vector<std::int64_t>& tokens, int least) {
  if (tokens.empty()) return;
  const KernelCall& call = step.call;
  PackedPages window(call, Cache::window);
  std::vector<std::int32_t> window_indices;
  std::vector<std::int32_t> window_lengths;
  for (const std::int64_t token : tokens) {
    const auto list = step.window.of(token);
    for (const std::int32_t slot : list) window_indices.push_back(window.index(slot));
    window_indices.resize(window_lengths.size() * kWindow + kWindow, -1);
    window_lengths.push_back(static_cast<std::int32_t>(list.size()));
  }
  kernels::FlashmlaSparseDecode in;
  in.batch = static_cast<int>(tokens.size());
  in.heads = step.padded_heads;
  in.live_heads = step.heads;
  in.softmax_scale = step.scale;
  in.sink = step.sink.data();
  in.num_sm_parts = kernels::decode_num_sm_parts(kMultiprocessors, 1, step.padded_heads);
  in.window = window.keys();
  in.window.indices = window_indices.data();
  in.window.topk = kWindow;
  in.window.lengths = window_lengths.data();

  std::vector<std::int32_t> extra_indices;
  std::vector<std::int32_t> extra_lengths;
  std::optional<PackedPages> entries;
  if (step.compressed.slots != nullptr) {
    entries.emplace(call, Cache::entries);
    const auto width = std::max<std::int64_t>(step.compressed.slots->dim(1), least);
    for (const std::int64_t token : tokens) {
      const auto list = step.compressed.of(token);
      for (const std::int32_t slot : list) extra_indices.push_back(entries->index(slot));
      extra_lengths.push_back(std::max(static_cast<std::int32_t>(list.size()), least));
      extra_indices.resize(extra_lengths.size() * static_cast<std::size_t>(width), -1);
    }
    in.extra = entries->keys();
    in.extra.indices = extra_indices.data();
    in.extra.topk = static_cast<int>(width);
    in.extra.lengths = extra_lengths.data();
  }
  const std::vector<std::uint16_t> q = step.queries(tokens);
  in.q = q.data();
  const kernels::FlashmlaSparseDecodeResult result = kernels::flashmla_sparse_decode(in);
  step.keep(tokens, result.out.data(), result.lse.data());
}

/// Rows are widened to bf16 first; the compressed entries come first in a list.
void prefill(Attention& step, const std::vector<std::int64_t>& tokens) {
  if (tokens.empty()) return;
  PackedPages window(step.call, Cache::window);
  std::optional<PackedPages> entries;
  if (step.compressed.slots != nullptr) entries.emplace(step.call, Cache::entries);
  std::vector<std::vector<std::int32_t>> window_lists;
  std::vector<std::vector<std::int32_t>> entry_lists;
  std::size_t longest = 1;
  for (const std::int64_t token : tokens) {
    window_lists.emplace_back();
    entry_lists.emplace_back();
    for (const std::int32_t slot : step.window.of(token)) window_lists.back().push_back(window.index(slot));
    for (const std::int32_t slot : step.compressed.of(token))
      entry_lists.back().push_back(entries->index(slot));
    longest = std::max(longest, window_lists.back().size() + entry_lists.back().size());
  }
  constexpr std::size_t kPair = 2 * kernels::kFlashBlock;
  const std::size_t topk = (longest + kPair - 1) / kPair * kPair;
  std::vector<std::uint16_t> rows;
  if (entries) entries->gather(rows);
  const auto first_window = static_cast<std::int32_t>(rows.size() / kHeadDim);
  window.gather(rows);
  std::vector<std::int32_t> indices;
  std::vector<std::int32_t> lengths;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    indices.insert(indices.end(), entry_lists[i].begin(), entry_lists[i].end());
    for (const std::int32_t index : window_lists[i]) indices.push_back(index < 0 ? -1 : first_window + index);
    lengths.push_back(static_cast<std::int32_t>(window_lists[i].size() + entry_lists[i].size()));
    indices.resize((i + 1) * topk, -1);
  }
  const std::vector<std::uint16_t> q = step.queries(tokens);
  kernels::FlashmlaSparsePrefill in;
  in.tokens = std::ssize(tokens);
  in.keys = std::ssize(rows) / kHeadDim;
  in.heads = step.padded_heads;
  in.live_heads = step.heads;
  in.topk = static_cast<int>(topk);
  in.softmax_scale = step.scale;
  in.q = q.data();
  in.kv = rows.data();
  in.indices = indices.data();
  in.topk_lengths = lengths.data();
  in.sink = step.sink.data();
  const std::size_t heads = tokens.size() * static_cast<std::size_t>(step.padded_heads);
  std::vector<std::uint16_t> out(heads * kHeadDim);
  std::vector<float> max_logits(heads);
  std::vector<float> lse(heads);
  kernels::flashmla_sparse_prefill(in, {out.data(), max_logits.data(), lse.data()});
  step.keep(tokens, out.data(), lse.data());
}

/// One row of a request, or rows that are verified, go to the decode kernel, in one launch; the rows of
/// chunks to the prefill kernel.
void attention(const KernelCall& call, int least) {
  Attention step(call);
  std::vector<std::int64_t> decoding;
  std::vector<std::int64_t> prefilling;
  for (const RequestStep& request : call.plan().requests) {
    std::vector<std::int64_t>& tokens = request.row_count == 1 || request.verify ? decoding : prefilling;
    for (std::int32_t i = 0; i < request.row_count; ++i) tokens.push_back(request.first_row + i);
  }
  decode(step, decoding, least);
  prefill(step, prefilling);
  call.publish(TensorId::attention_out, std::move(step.out));
  call.publish(TensorId::attention_lse, std::move(step.lse));
}

}  // namespace

void vllm_attention(const KernelCall& call) {
  attention(call, 0);
}

/// Lengths of compressed lists are at least 1 here: an empty one is a block of no key.
void sglang_attention(const KernelCall& call) {
  attention(call, 1);
}

}  // namespace dsv4::cli::kernel_stages
