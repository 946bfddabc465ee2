// Readings of where elements lie.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "compare/reading_scan.hpp"
#include "model/geometry.hpp"

namespace dsv4::compare {
namespace {

constexpr std::int64_t kMostShift = 512;
constexpr std::int64_t kMostRows = 128;

/// A part of the last axis, in which elements of `size` bytes or elements lie.
struct Segment {
  std::int64_t first, length, size;
  std::string name;
};

std::vector<Segment> segments_of(const ReadingScan& scan) {
  const std::int64_t width = scan.width();
  if (const auto& packed = scan.input().packed) {
    if (packed->rows != 1) return {};
    const std::int64_t values = packed->value_bytes;
    if (packed->kind == PackedRow::Kind::kv)
      return {{0, values, 1, "the values"},
              {0, kNopeDim, 1, "the codes"},
              {kNopeDim, 2 * kRopeDim, 2, "the RoPE part"},
              {values, packed->scale_bytes - 1, 1, "the scales"}};
    std::vector<Segment> parts{{0, values, 1, "the codes"}};
    if (packed->kind == PackedRow::Kind::index_fp4)
      parts.push_back({values, packed->scale_bytes, 1, "the scales"});
    return parts;
  }
  std::vector<Segment> parts{{0, width, 1, "each row"}};
  const std::int64_t rotated = scan.input().rotated;
  if (rotated > 0 && rotated < width) {
    parts.push_back({0, width - rotated, 1, "the lanes that are not rotated"});
    parts.push_back({width - rotated, rotated, 1, "the rotated lanes"});
  } else if (width == kIndexDim) {
    parts.push_back({0, width / 2, 1, "the first half of each row"});
    parts.push_back({width / 2, width / 2, 1, "the second half of each row"});
  }
  return parts;
}

/// Elements of a segment moved within it: `source` maps the index in the segment, below 0 where nothing is
/// said.
template <class Source>
Reading moved(const ReadingScan& scan, const Segment& part, std::string name, std::string sentence,
              const Source& source) {
  const std::int64_t count = part.length / part.size;
  return scan.count(std::move(name), std::move(sentence), scan.taken_from([&, count](std::int64_t element) {
    const std::int64_t at = element % scan.width() - part.first;
    if (at < 0 || at >= part.length) return std::int64_t{-1};
    const std::int64_t from = source(at / part.size, count);
    if (from < 0 || from >= count) return std::int64_t{-1};
    return element - at + from * part.size + at % part.size;
  }),
                    true);
}

void within_rows(const ReadingScan& scan, std::vector<Reading>& out) {
  for (const Segment& part : segments_of(scan)) {
    const std::int64_t count = part.length / part.size;
    if (count % 2 == 0 && count >= 4) {
      const std::int64_t half = count / 2;
      out.push_back(
          moved(scan, part, "halves_swapped",
                fmt::format("the two halves of {} are exchanged ({} elements each)", part.name, half),
                [half](std::int64_t i, std::int64_t n) { return (i + half) % n; }));
      out.push_back(
          moved(scan, part, "pairs_as_halves",
                fmt::format("{} are ordered as two halves, even lanes before odd ones, where pairs of "
                            "neighbours are meant",
                            part.name),
                [half](std::int64_t i, std::int64_t) { return i < half ? 2 * i : 2 * (i - half) + 1; }));
      out.push_back(
          moved(scan, part, "halves_as_pairs",
                fmt::format("{} are interleaved, lane i beside lane i + {}, where they stay as they are",
                            part.name, half),
                [half](std::int64_t i, std::int64_t) { return i % 2 == 0 ? i / 2 : half + i / 2; }));
      out.push_back(moved(scan, part, "neighbours_swapped",
                          fmt::format("neighbouring elements of {} are exchanged", part.name),
                          [](std::int64_t i, std::int64_t) { return i ^ 1; }));
      out.push_back(moved(scan, part, "reversed", fmt::format("{} is reversed", part.name),
                          [](std::int64_t i, std::int64_t n) { return n - 1 - i; }));
    }
    for (std::int64_t by = 1; by < std::min(count, kMostShift); ++by) {
      for (const std::int64_t shift : {by, -by}) {
        out.push_back(moved(scan, part, "shifted_block",
                            fmt::format("{} is shifted by {:+} elements", part.name, shift),
                            [shift](std::int64_t i, std::int64_t) { return i - shift; }));
        out.push_back(
            moved(scan, part, "shifted_block",
                  fmt::format("{} is turned by {:+} elements, the last to the first place", part.name, shift),
                  [shift](std::int64_t i, std::int64_t n) { return (i - shift + n) % n; }));
        if (out.back().explained == 0) out.pop_back();
        if (out.back().explained == 0) out.pop_back();
      }
    }
  }
}

/// Rows of the first axis, or heads within them, that hold what belongs to others `by` further on.
void between_rows(const ReadingScan& scan, std::vector<Reading>& out) {
  if (scan.input().reference->shape().size() < 2 || (scan.input().packed && scan.input().packed->rows > 1))
    return;
  for (std::int64_t by = 1; by < std::min(scan.rows(), kMostRows); ++by) {
    for (const std::int64_t shift : {by, -by}) {
      Reading one =
          scan.count("neighbouring_row", fmt::format("row i holds what belongs to row i{:+}", shift),
                     scan.taken_from([&](std::int64_t element) {
                       const std::int64_t row = element / scan.row_width() + shift;
                       return row < 0 || row >= scan.rows() ? -1 : element + shift * scan.row_width();
                     }),
                     true);
      if (one.explained > 0) out.push_back(std::move(one));
    }
  }
}

void between_heads(const ReadingScan& scan, std::vector<Reading>& out) {
  const auto& shape = scan.input().reference->shape();
  if (shape.size() != 3 || shape[1] < 2) return;
  const std::int64_t heads = shape[1];
  const std::int64_t width = shape[2];
  for (std::int64_t by = 1; by < std::min<std::int64_t>(heads, 8); ++by) {
    for (const std::int64_t shift : {by, -by}) {
      Reading one =
          scan.count("neighbouring_head", fmt::format("head h holds what belongs to head h{:+}", shift),
                     scan.taken_from([&](std::int64_t element) {
                       const std::int64_t head = element / width % heads + shift;
                       return head < 0 || head >= heads ? -1 : element + shift * width;
                     }),
                     true);
      if (one.explained > 0) out.push_back(std::move(one));
    }
  }
  out.push_back(scan.count("transposed_heads", "heads and lanes are transposed",
                           scan.taken_from([&](std::int64_t element) {
                             const std::int64_t row = element / (heads * width);
                             const std::int64_t flat = element % (heads * width);
                             return row * heads * width + flat % heads * width + flat / heads;
                           }),
                           true));
  if (shape[0] > 1) {
    out.push_back(scan.count("transposed_heads", "tokens and heads are transposed",
                             scan.taken_from([&](std::int64_t element) {
                               const std::int64_t unit = element / width;
                               return (unit % shape[0] * heads + unit / shape[0]) * width + element % width;
                             }),
                             true));
  }
  for (std::int64_t groups = 2; groups < heads; ++groups) {
    if (heads % groups != 0) continue;
    out.push_back(scan.count("transposed_heads",
                             fmt::format("heads are ordered as if {} groups were interleaved", groups),
                             scan.taken_from([&, groups](std::int64_t element) {
                               const std::int64_t head = element / width % heads;
                               const std::int64_t from = head % groups * (heads / groups) + head / groups;
                               return element + (from - head) * width;
                             }),
                             true));
  }
}

/// Slots of pages that hold what belongs to neighbouring slots.
void between_slots(const ReadingScan& scan, std::vector<Reading>& out) {
  if (!scan.input().packed || scan.input().packed->rows < 2) return;
  const PackedRow& page = *scan.input().packed;
  const std::int64_t values = page.rows * page.value_bytes;
  for (const std::int64_t shift : {-1, 1, -2, 2}) {
    const auto from = [&](std::int64_t element) {
      const std::int64_t byte = element % scan.width();
      const bool value = byte < values;
      const std::int64_t size = value ? page.value_bytes : page.scale_bytes;
      const std::int64_t base = value ? 0 : values;
      if (byte >= values + page.rows * page.scale_bytes) return std::int64_t{-1};
      const std::int64_t slot = element / scan.width() * page.rows + (byte - base) / size + shift;
      if (slot < 0 || slot >= scan.rows() * page.rows) return std::int64_t{-1};
      return slot / page.rows * scan.width() + base + slot % page.rows * size + (byte - base) % size;
    };
    // A slot that holds its neighbour's row: what lies in the slot that the row came from says nothing.
    out.push_back(scan.count(
        "neighbouring_slot", fmt::format("slot i holds what belongs to slot i{:+}", shift),
        [&, from](std::int64_t element) {
          const std::int64_t source = from(element);
          if (source < 0 || scan.seen(element) == scan.right(element)) return Said::nothing;
          return scan.right(source) == scan.seen(element) ? Said::yes : Said::no;
        },
        true));
  }
}

void previous_step(const ReadingScan& scan, std::vector<Reading>& out) {
  const Tensor* const before = scan.input().previous;
  if (before == nullptr || before->dtype() != scan.dtype() || before->row_elements() != scan.row_width() ||
      before->shape().size() != scan.input().reference->shape().size()) {
    return;
  }
  const std::int64_t rows = before->dim(0);
  const auto held = [&](std::int64_t lag) {
    return [&scan, before, rows, lag](std::int64_t element) {
      const std::int64_t row = element / scan.row_width() + lag;
      if (row < 0 || row >= rows) return Said::nothing;
      return scan.bits(*before, element + lag * scan.row_width()) == scan.seen(element) ? Said::yes
                                                                                        : Said::no;
    };
  };
  out.push_back(scan.count("previous_step", "the rows are those of the step before", held(0), true));
  if (rows != scan.rows())
    out.push_back(scan.count("previous_step", "the rows are the last ones of the step before",
                             held(rows - scan.rows()), true));
}

void other_order(const ReadingScan& scan, std::vector<Reading>& out) {
  std::set<std::int64_t> same;
  const auto sorted = [&](const Tensor& tensor, std::int64_t unit) {
    std::vector<std::uint64_t> values;
    for (std::int64_t i = unit * scan.width(); i < (unit + 1) * scan.width(); ++i)
      values.push_back(scan.bits(tensor, i));
    std::ranges::sort(values);
    return values;
  };
  std::int64_t last = -1;
  for (const std::int64_t element : scan.differing()) {
    const std::int64_t unit = element / scan.width();
    if (unit == std::exchange(last, unit)) continue;
    if (sorted(*scan.input().reference, unit) == sorted(*scan.input().subject, unit)) same.insert(unit);
  }
  out.push_back(scan.count(
      "other_order", "a row holds the same elements in another order",
      [&](std::int64_t element) {
        if (scan.right(element) == scan.seen(element)) return Said::nothing;
        return same.contains(element / scan.width()) ? Said::yes : Said::no;
      },
      true));
}

void rows_elsewhere(const ReadingScan& scan, std::vector<Reading>& out) {
  if (scan.rows() < 2 || scan.input().reference->shape().size() < 2) return;
  const auto content = [&](const Tensor& tensor, std::int64_t row) {
    std::vector<std::uint64_t> values;
    for (std::int64_t i = row * scan.row_width(); i < (row + 1) * scan.row_width(); ++i)
      values.push_back(scan.bits(tensor, i));
    return values;
  };
  std::map<std::vector<std::uint64_t>, std::int64_t> known;
  for (std::int64_t row = 0; row < std::min<std::int64_t>(scan.rows(), 1024); ++row)
    known.emplace(content(*scan.input().reference, row), row);
  std::map<std::int64_t, std::int64_t> from;
  std::int64_t last = -1;
  for (const std::int64_t element : scan.differing()) {
    const std::int64_t row = element / scan.row_width();
    if (row == std::exchange(last, row)) continue;
    const auto found = known.find(content(*scan.input().subject, row));
    if (found != known.end()) from.emplace(row, found->second);
  }
  if (from.empty()) return;
  std::string pairs;
  for (const auto& [row, source] : from) {
    if (pairs.size() > 40) {
      pairs += " ...";
      break;
    }
    pairs += fmt::format("{}{} holds {}", pairs.empty() ? "" : ", ", row, source);
  }
  out.push_back(scan.count(
      "rows_elsewhere", fmt::format("rows hold what belongs to other rows: {}", pairs),
      [&](std::int64_t element) {
        if (scan.right(element) == scan.seen(element)) return Said::nothing;
        return from.contains(element / scan.row_width()) ? Said::yes : Said::no;
      },
      true));
}

}  // namespace

void read_places(const ReadingScan& scan, std::vector<Reading>& out) {
  previous_step(scan, out);
  between_slots(scan, out);
  between_rows(scan, out);
  between_heads(scan, out);
  within_rows(scan, out);
  rows_elsewhere(scan, out);
  other_order(scan, out);
}

}  // namespace dsv4::compare
