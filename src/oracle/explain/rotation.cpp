#include "oracle/explain/rotation.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "oracle/faults/math.hpp"

namespace dsv4::oracle::explain {
namespace {

using faults::Angles;
using faults::Pairing;

struct Rotated {
  TensorId result;
  TensorId source;
  bool inverse;
};
constexpr Rotated kRotated[]{{TensorId::q, TensorId::q_normed, false},
                             {TensorId::window_kv, TensorId::window_normed, false},
                             {TensorId::o_rot, TensorId::attention_out, true}};

/// How a rotation is done.
struct Way {
  const char* name = "";
  const char* sentence = "";
  Pairing pairing = Pairing::neighbours;
  bool other_sign = false;
  bool none = false;
  bool other_base = false;
  int shift = 0;           ///< of the position
  bool from_step = false;  ///< positions are counted from the first row of the step
  bool first_lanes = false;
};
constexpr Way kWays[]{
    {.name = "rope_half_split",
     .sentence =
         "RoPE pairs lane i with lane i + 32 where neighbours are meant (half-split instead of interleaved)",
     .pairing = Pairing::halves},
    {.name = "rope_sign",
     .sentence = "RoPE turns the other way: the sine has the other sign",
     .other_sign = true},
    {.name = "rope_missing",
     .sentence = "RoPE is missing: the rows are as they were before the rotation",
     .none = true},
    {.name = "rope_base",
     .sentence = "RoPE has the base of the other kind of layer (window-only against compressed)",
     .other_base = true},
    {.name = "rope_position", .sentence = "RoPE rotates to the next position, one too far", .shift = 1},
    {.name = "rope_position", .sentence = "RoPE rotates to the position before, one too little", .shift = -1},
    {.name = "rope_position",
     .sentence = "RoPE counts positions from the first row of the step, not of the request",
     .from_step = true},
    {.name = "rope_lanes",
     .sentence = "RoPE rotates the first 64 lanes instead of the last 64",
     .first_lanes = true},
};

/// A row as `way` rotates it.
class Rotator {
 public:
  Rotator(const RunConfig& config, int layer, bool inverse)
      : geometry_(config.geometry),
        yarn_(config.layers.at(static_cast<std::size_t>(layer)) != LayerKind::swa),
        inverse_(inverse) {}

  void rotate(std::span<std::uint16_t> row, const Way& way, std::int64_t position) {
    if (way.none) return;
    const std::size_t first = way.first_lanes ? 0 : row.size() - kRopeDim;
    faults::rotate(row.subspan(first, kRopeDim), angles(yarn_ != way.other_base, position),
                   inverse_ != way.other_sign, way.pairing);
  }

 private:
  const Angles& angles(bool yarn, std::int64_t position) {
    const auto [found, added] = angles_.try_emplace({yarn, position});
    if (added) found->second = faults::angles_at(geometry_, yarn, position);
    return found->second;
  }

  const Geometry& geometry_;
  bool yarn_;
  bool inverse_;
  std::map<std::pair<bool, std::int64_t>, Angles> angles_;
};

/// Position of each row of a batch as a way counts them; below 0: it says nothing.
std::vector<std::int64_t> positions_of(const BatchTables& batch, const Way& way) {
  const auto request = batch.request.as<std::int32_t>();
  const auto position = batch.position.as<std::int32_t>();
  std::vector<std::int64_t> result;
  std::map<std::int32_t, std::int64_t> first;
  for (std::size_t row = 0; row < request.size(); ++row) {
    const std::int64_t own = position[row];
    if (request[row] < 0) {
      result.push_back(-1);
    } else if (way.from_step) {
      result.push_back(own - first.try_emplace(request[row], own).first->second);
    } else {
      result.push_back(own + way.shift);
    }
  }
  return result;
}

}  // namespace

std::vector<compare::Reading> rotation_readings(const RunConfig& config, const StepObservation& reference,
                                                int layer, TensorId id, const Tensor& subject, double least) {
  const auto pair = std::ranges::find(kRotated, id, &Rotated::result);
  if (pair == std::end(kRotated)) return {};
  const auto& tensors = reference.layers.at(static_cast<std::size_t>(layer)).tensors;
  if (!tensors.contains(id) || !tensors.contains(pair->source)) return {};
  const Tensor& right = tensors.at(id);
  const Tensor& source = tensors.at(pair->source);
  if (right.shape() != subject.shape() || right.shape() != source.shape() ||
      subject.dtype() != DType::bfloat16 || right.dtype() != DType::bfloat16 ||
      source.dtype() != DType::bfloat16 || right.elements() == 0) {
    return {};
  }
  const auto width = static_cast<std::size_t>(right.shape().back());
  const auto a = right.as<std::uint16_t>();
  const auto b = subject.as<std::uint16_t>();
  const auto before = source.as<std::uint16_t>();
  const std::size_t units = a.size() / width;
  const std::size_t units_a_row = units / static_cast<std::size_t>(right.dim(0));
  Rotator rotator(config, layer, pair->inverse);
  std::vector<std::uint16_t> row(width);
  const auto rotated = [&](std::size_t unit, const Way& way, std::int64_t position) {
    std::ranges::copy(before.subspan(unit * width, width), row.begin());
    rotator.rotate(row, way, position);
  };
  std::int64_t differing = 0;
  std::vector<std::size_t> touched;
  const std::vector<std::int64_t> own = positions_of(reference.batch, Way{});
  if (own.size() != static_cast<std::size_t>(right.dim(0))) return {};
  for (std::size_t unit = 0; unit < units; ++unit) {
    if (own[unit / units_a_row] < 0) continue;
    std::int64_t here = 0;
    for (std::size_t i = unit * width; i < (unit + 1) * width; ++i) here += a[i] != b[i] ? 1 : 0;
    if (here == 0) continue;
    differing += here;
    touched.push_back(unit);
    rotated(unit, Way{}, own[unit / units_a_row]);
    if (!std::ranges::equal(row, a.subspan(unit * width, width))) return {};
  }
  std::vector<compare::Reading> found;
  for (const Way& way : kWays) {
    const std::vector<std::int64_t> positions = positions_of(reference.batch, way);
    compare::Reading reading{way.name, way.sentence, 0, 0, differing};
    for (const std::size_t unit : touched) {
      const std::int64_t position = positions[unit / units_a_row];
      if (position < 0) continue;
      rotated(unit, way, position);
      for (std::size_t i = 0; i < width; ++i) {
        const std::size_t at = unit * width + i;
        if (a[at] != b[at])
          reading.explained += row[i] == b[at] ? 1 : 0;
        else
          reading.against += row[i] != b[at] ? 1 : 0;
      }
    }
    if (reading.share() >= least) found.push_back(std::move(reading));
  }
  std::ranges::stable_sort(found, std::greater<>(), &compare::Reading::share);
  return found;
}

}  // namespace dsv4::oracle::explain
