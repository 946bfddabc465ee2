#include "oracle/faults/bytes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "arith/e4m3.hpp"
#include "model/layout.hpp"
#include "oracle/faults/compressor_form.hpp"

namespace dsv4::oracle::faults {
namespace {

using enum TensorId;

template <class Number>
Number parsed(std::string_view flip, std::string_view what, std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw UsageError(fmt::format(
        "fault 'bitflip:{}': the {} is '{}', but must be a whole number of at least 0", flip, what, text));
  }
  return value;
}

/// The tensors that are parts of a cache's rows, and where in Write::bytes they begin.
struct Carried {
  TensorId id;
  Cache cache;
  int part;  ///< of equal f32 parts; -1: the row itself
};
constexpr Carried kCarried[]{
    {window_page_bytes, Cache::window, -1},         {compress_page_bytes, Cache::entries, -1},
    {indexer_page_bytes, Cache::index_entries, -1}, {compress_state_kv, Cache::state, 0},
    {compress_state_score, Cache::state, 1},        {compress_state_max, Cache::state, 0},
    {compress_state_sum, Cache::state, 1},          {indexer_state_kv, Cache::index_state, 0},
    {indexer_state_score, Cache::index_state, 1}};

/// The write whose bytes are row `row` of a tensor.
std::optional<Write> write_of(const FaultyEngine& subject, const StageCall& call, const Carried& carried,
                              std::int64_t row) {
  std::int64_t at = 0;
  for (const Write& write : subject.writes(call.layer)) {
    if (write.stage != call.stage || write.cache != carried.cache) continue;
    std::int64_t own = at++;
    if (carried.id == window_page_bytes) {
      const RequestStep* request = share_of(call.plan, write.request);
      own = request == nullptr ? -1 : request->first_row + (write.index - request->begin);
    }
    if (own == row) return write;
  }
  return std::nullopt;
}

/// Element and bit where none are given.
struct Place {
  std::int64_t element = -1;
  int bit = 0;
};

Place place_of(const BitFlip& flip, const Tensor& tensor, const StepPlan& plan) {
  Place place{flip.element.value_or(-1), flip.bit.value_or(0)};
  if (place.element >= 0 || tensor.elements() == 0) return place;
  const std::int64_t width = tensor.row_elements();
  const bool tokens = info(flip.tensor).dims.starts_with("token");
  for (std::int64_t row = tensor.dim(0) - 1; row >= 0; --row) {
    if (tokens && plan.rows[static_cast<std::size_t>(row)].request < 0) continue;
    if (tensor.dtype() != DType::int32) {
      if (width > 0) return {row * width, place.bit};
      continue;
    }
    // Clearing a bit keeps an index, a slot or a count within what it was; of zeros the last one is set.
    for (std::int64_t i = 0; i < width; ++i) {
      const std::int32_t value = tensor.as<std::int32_t>()[static_cast<std::size_t>(row * width + i)];
      if (value == 0 && place.element < 0) place.element = row * width + i;
      if (value <= 0) continue;
      int lowest = 0;
      while ((value >> lowest & 1) == 0) ++lowest;
      return {row * width + i, flip.bit.value_or(lowest)};
    }
  }
  return place;
}

void flip_published(FaultyEngine& subject, const StageCall& call, const BitFlip& flip) {
  const Tensor* published = subject.tensor(call.layer, flip.tensor);
  if (published == nullptr) return;
  const Place place = place_of(flip, *published, call.plan);
  const auto size = static_cast<std::int64_t>(size_bytes(published->dtype()));
  if (place.element < 0 || place.element >= published->elements() || place.bit >= 8 * size) return;
  Tensor changed = *published;
  const auto at = static_cast<std::size_t>(place.element * size + place.bit / 8);
  changed.bytes()[at] ^= std::byte{1} << place.bit % 8;
  for (const Carried& carried : kCarried) {
    if (carried.id != flip.tensor) continue;
    const std::int64_t row = place.element / changed.row_elements();
    std::optional<Write> write = write_of(subject, call, carried, row);
    if (!write) continue;
    const std::int64_t row_bytes = changed.row_elements() * size;
    // Online rows hold max, sum, kv: kv is the last part there, the first one elsewhere.
    const bool online =
        carried.id == compress_state_kv && static_cast<std::int64_t>(write->bytes.size()) == 3 * row_bytes;
    const std::int64_t first = carried.part < 0 ? 0 : (online ? 2 : carried.part) * row_bytes;
    std::ranges::copy(changed.bytes().subspan(static_cast<std::size_t>(row * row_bytes),
                                              static_cast<std::size_t>(row_bytes)),
                      write->bytes.begin() + first);
    subject.put(call.layer, *write);
  }
  subject.change(call.layer, flip.tensor, std::move(changed));
}

/// Changes the packed bytes of the index rows that a step finishes, in the tensor and in memory.
template <class Repack>
void repack_index(FaultyEngine& subject, const StageCall& call, const Repack& repack) {
  if (subject.config().profile.get<IndexCache>() != IndexCache::fp4) return;
  Tensor bytes = subject.input(call.layer, indexer_page_bytes);
  const std::int64_t width = bytes.row_elements();
  const auto told = subject.writes(call.layer);
  const std::vector<Write> writes(told.begin(), told.end());
  std::int64_t row = 0;
  for (Write write : writes) {
    if (write.stage != Stage::indexer_finish) continue;
    repack(std::span(write.bytes));
    std::ranges::copy(write.bytes, bytes.bytes().begin() + row++ * width);
    subject.put(call.layer, write);
  }
  subject.change(call.layer, indexer_page_bytes, std::move(bytes));
}

/// The code of half the value, if there is one.
std::optional<std::uint8_t> halved(std::uint8_t code) {
  const float half = arith::e4m3_to_f32(code) / 2;
  const std::uint8_t result = arith::f32_to_e4m3(half);
  if (arith::e4m3_to_f32(result) != half) return std::nullopt;
  return result;
}

}  // namespace

BitFlip parse_bit_flip(std::string_view text) {
  std::string_view rest = text;
  const auto next = [&rest] {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    const std::string_view part = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return part;
  };
  const std::string_view tensor = next();
  std::vector<std::string> names;
  for (const TensorInfo& info : tensor_catalogue()) names.push_back(path(info.id));
  const auto found = std::ranges::find(names, tensor);
  if (found == names.end()) {
    throw UsageError(fmt::format("fault 'bitflip:{}': no tensor '{}'; nearest: {}", text, tensor,
                                 joined(nearest_names(tensor, names))));
  }
  BitFlip flip{tensor_catalogue()[static_cast<std::size_t>(found - names.begin())].id, {}, {}};
  if (!rest.empty()) flip.element = parsed<std::int64_t>(text, "element", next());
  if (!rest.empty()) flip.bit = parsed<int>(text, "bit", next());
  if (!rest.empty()) throw UsageError(fmt::format("fault 'bitflip:{}': expected TENSOR:element:bit", text));
  const auto bits = static_cast<int>(8 * size_bytes(info(flip.tensor).dtype));
  if (flip.bit && *flip.bit >= bits) {
    throw UsageError(
        fmt::format("fault 'bitflip:{}': bit {} of an element of {} bits", text, *flip.bit, bits));
  }
  return flip;
}

void flip_bit(FaultyEngine& subject, const BitFlip& flip) {
  subject.needs(flip.tensor);
  subject.after(info(flip.tensor).stage,
                [&subject, flip](const StageCall& call) { flip_published(subject, call, flip); });
}

void nibbles_swapped(FaultyEngine& subject, const Parameters&) {
  subject.after(Stage::indexer_finish, [&subject](const StageCall& call) {
    repack_index(subject, call, [](std::span<std::byte> row) {
      for (std::byte& pair : row.first(layout::kIndexFp4ValueBytes)) pair = pair << 4 | pair >> 4;
    });
  });
}

void scale_group_shifted(FaultyEngine& subject, const Parameters&) {
  subject.after(Stage::indexer_finish, [&subject](const StageCall& call) {
    repack_index(subject, call, [](std::span<std::byte> row) {
      const auto scales = row.subspan(layout::kIndexFp4ValueBytes);
      std::rotate(scales.begin(), scales.end() - 1, scales.end());
    });
  });
}

void scale_doubled(FaultyEngine& subject, const Parameters&) {
  subject.after(Stage::kv_window, [&subject](const StageCall& call) {
    Tensor codes = subject.input(call.layer, window_codes);
    Tensor scales = subject.input(call.layer, window_scales);
    Tensor bytes = subject.input(call.layer, window_page_bytes);
    const auto told = subject.writes(call.layer);
    const std::vector<Write> writes(told.begin(), told.end());
    for (Write write : writes) {
      const RequestStep* request = share_of(call.plan, write.request);
      if (write.stage != Stage::kv_window || request == nullptr) continue;
      const std::int64_t token = request->first_row + (write.index - request->begin);
      const auto code_row = tensor_row<std::uint8_t>(codes, token);
      const auto scale_row = tensor_row<std::uint8_t>(scales, token);
      for (std::size_t block = 0; block < scale_row.size(); ++block) {
        const auto part = code_row.subspan(block * layout::kKvBlock, layout::kKvBlock);
        const bool exact =
            std::ranges::all_of(part, [](std::uint8_t code) { return halved(code).has_value(); });
        if (!exact || scale_row[block] >= 254) continue;
        for (std::uint8_t& code : part) code = *halved(code);
        ++scale_row[block];
      }
      std::memcpy(write.bytes.data(), code_row.data(), code_row.size());
      std::memcpy(write.bytes.data() + layout::kKvValueBytes, scale_row.data(), scale_row.size());
      std::ranges::copy(write.bytes, bytes.bytes().begin() + token * layout::kKvRowBytes);
      subject.put(call.layer, write);
    }
    subject.change(call.layer, window_codes, std::move(codes));
    subject.change(call.layer, window_scales, std::move(scales));
    subject.change(call.layer, window_page_bytes, std::move(bytes));
  });
}

}  // namespace dsv4::oracle::faults
