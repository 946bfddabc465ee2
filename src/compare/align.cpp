#include "compare/align.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "compare/layer_comparer.hpp"
#include "compare/meaning.hpp"
#include "compare/rule.hpp"
#include "model/error.hpp"

namespace dsv4::compare {
namespace {

using Key = std::pair<std::string, std::int32_t>;  ///< request key; position, or index of an entry

struct Place {
  std::size_t step = 0;
  std::int64_t row = 0;
};
using Places = std::map<Key, Place>;  ///< last occurrence

struct Run {
  std::vector<StepObservation> steps;
  std::vector<std::vector<std::string>> keys;  ///< by step
};

enum class Axis : std::uint8_t { token, entry, row };
Axis axis_of(TensorId id) {
  const std::string_view dims = info(id).dims;
  return dims.starts_with("token") ? Axis::token : dims.starts_with("row") ? Axis::row : Axis::entry;
}

// Where rows lie and which batch row they came from depends on the order of allocation and on the batch.
bool is_physical(TensorId id) {
  switch (id) {
    case TensorId::window_slots:
    case TensorId::compressed_slots:
    case TensorId::compress_slot:
    case TensorId::indexer_slot:
    case TensorId::compress_state_slot:
    case TensorId::indexer_state_slot:
    case TensorId::compress_state_token:
    case TensorId::indexer_state_token:
      return true;
    default:
      return false;
  }
}

// These tensors are the keys themselves.
bool is_key(TensorId id) {
  switch (id) {
    case TensorId::compress_pool_request:
    case TensorId::compress_pool_index:
    case TensorId::compress_request:
    case TensorId::compress_index:
    case TensorId::indexer_pool_request:
    case TensorId::indexer_pool_index:
    case TensorId::indexer_request:
    case TensorId::indexer_index:
      return true;
    default:
      return false;
  }
}

Places places_of(const SourceInfo& info, const Run& run, int layer, TensorId id) {
  Places places;
  for (std::size_t step = 0; step < run.steps.size(); ++step) {
    const std::vector<RowOwner> owners = MeaningOf(info, run.steps[step], layer).rows(id);
    for (std::size_t row = 0; row < owners.size(); ++row) {
      const RowOwner& owner = owners[row];
      if (owner.request < 0 || static_cast<std::size_t>(owner.request) >= run.keys[step].size()) continue;
      const std::int32_t index = axis_of(id) == Axis::entry ? owner.entry : owner.position;
      if (index < 0) continue;
      places[{run.keys[step][static_cast<std::size_t>(owner.request)], index}] = {
          step, static_cast<std::int64_t>(row)};
    }
  }
  return places;
}

using TensorMap = std::map<TensorId, Tensor> LayerObservation::*;

const Tensor* find(const Run& run, std::size_t step, int layer, TensorMap map, TensorId id) {
  const auto& tensors = run.steps[step].layers[static_cast<std::size_t>(layer)].*map;
  const auto found = tensors.find(id);
  return found == tensors.end() ? nullptr : &found->second;
}

// Width of the last axis; lists and scores are as wide as the widest row of their step.
std::int64_t width_of(const Run& run, int layer, TensorMap map, TensorId id) {
  std::int64_t width = 0;
  for (std::size_t step = 0; step < run.steps.size(); ++step) {
    const Tensor* tensor = find(run, step, layer, map, id);
    if (tensor != nullptr && tensor->shape().size() > 1) width = std::max(width, tensor->shape().back());
  }
  return width;
}

// The rows named by `keys` in that order; a row that is missing, or narrower than `width`, is filled: -1 in
// lists, zero bytes else.
std::optional<Tensor> gather(const Run& run, int layer, TensorMap map, TensorId id,
                             const std::vector<Key>& keys, const Places& places, std::int64_t width) {
  const Tensor* sample = nullptr;
  for (const auto& [key, place] : places) {
    if ((sample = find(run, place.step, layer, map, id)) != nullptr) break;
  }
  if (sample == nullptr) return std::nullopt;
  std::vector<std::int64_t> shape = sample->shape();
  shape[0] = static_cast<std::int64_t>(keys.size());
  if (shape.size() > 1) shape.back() = width;
  Tensor result(sample->dtype(), shape);
  const std::size_t element = size_bytes(result.dtype());
  if (result.dtype() == DType::int32 && shape.size() > 1) std::ranges::fill(result.as<std::int32_t>(), -1);
  const std::size_t row_bytes = static_cast<std::size_t>(result.row_elements()) * element;
  const std::size_t line = shape.size() > 1 ? static_cast<std::size_t>(width) * element : element;
  for (std::size_t row = 0; row < keys.size(); ++row) {
    const auto place = places.find(keys[row]);
    if (place == places.end()) continue;
    const Tensor* from = find(run, place->second.step, layer, map, id);
    if (from == nullptr) continue;
    const std::size_t from_row = static_cast<std::size_t>(from->row_elements()) * element;
    const std::size_t from_line =
        from->shape().size() > 1 ? static_cast<std::size_t>(from->shape().back()) * element : element;
    if (from_line == 0) continue;
    const std::byte* source = from->bytes().data() + static_cast<std::size_t>(place->second.row) * from_row;
    std::byte* target = result.bytes().data() + row * row_bytes;
    for (std::size_t at = 0; at * from_line < from_row; ++at) {
      std::memcpy(target + at * line, source + at * from_line, std::min(line, from_line));
    }
  }
  return result;
}

std::vector<Key> common_keys(const Places& a, const Places& b) {
  std::vector<Key> keys;
  for (const auto& [key, place] : a) {
    if (b.contains(key)) keys.push_back(key);
  }
  return keys;
}

std::string only(const Places& mine, const Places& other, std::string_view side, bool entries) {
  std::int64_t count = 0;
  const Key* first = nullptr;
  for (const auto& [key, place] : mine) {
    if (other.contains(key)) continue;
    if (count++ == 0) first = &key;
  }
  if (count == 0) return "";
  return fmt::format("{} rows only in the {}, first request {} {} {}", count, side, first->first,
                     entries ? "entry" : "position", first->second);
}

}  // namespace

std::vector<std::string> request_keys(const std::vector<std::string>& requests) {
  std::map<std::string, int> seen;
  std::vector<std::string> keys;
  for (const std::string& request : requests) {
    const int occurrence = ++seen[request];
    keys.push_back(occurrence == 1 ? request : fmt::format("{}#{}", request, occurrence));
  }
  return keys;
}

struct TokenAligner::Index {
  std::array<Run, 2> runs;
  Totals totals;
};

TokenAligner::TokenAligner(const SourceInfo& reference, const SourceInfo& subject, Rules rules, Due due)
    : reference_(reference),
      subject_(subject),
      rules_(std::move(rules)),
      due_(std::move(due)),
      index_(std::make_unique<Index>()) {}

TokenAligner::~TokenAligner() = default;

void TokenAligner::add(Side side, StepObservation observation, const std::vector<std::string>& keys) {
  Run& run = index_->runs[static_cast<std::size_t>(side)];
  if (observation.layers.size() != reference_.config.layers.size()) {
    if (observation.layers.empty()) observation.layers.resize(reference_.config.layers.size());
    require(observation.layers.size() == reference_.config.layers.size(),
            "a step with another number of layers");
  }
  run.steps.push_back(std::move(observation));
  run.keys.push_back(keys);
}

const Totals& TokenAligner::totals() const {
  return index_->totals;
}

namespace {

// Puts both runs into the form of one step each, row for row.
class Aligned {
 public:
  Aligned(const SourceInfo& reference, const SourceInfo& subject, const std::array<Run, 2>& runs,
          const Due& due)
      : infos_{&reference, &subject}, runs_(runs), due_(due) {
    for (int layer = 0; layer < static_cast<int>(reference.config.layers.size()); ++layer) {
      for (const TensorId id : comparison_order(reference.config.layers[static_cast<std::size_t>(layer)])) {
        find_places(layer, id);
      }
    }
    tokens_.assign(token_set_.begin(), token_set_.end());
    requests_.assign(request_set_.begin(), request_set_.end());
    for (StepObservation& side : sides_) {
      side.step = -1;
      side.event = "aligned by token";
      side.layers.resize(reference.config.layers.size());
      fill_batch(side.batch);
    }
    for (auto& [where, places] : places_) add_tensor(where.first, where.second, places);
    add_tables();
  }

  StepObservation& side(Side which) { return sides_[static_cast<std::size_t>(which)]; }
  const std::vector<std::string>& requests() const { return requests_; }
  std::vector<Skip>& skips() { return skips_; }
  std::vector<Finding>& findings() { return findings_; }
  bool judged(int layer, TensorId id, std::int64_t row) const {
    if (axis_of(id) != Axis::token) return true;
    const auto found = places_.find({layer, id});
    if (found == places_.end()) return true;
    const Key& key = tokens_[static_cast<std::size_t>(row)];
    return found->second[0].contains(key) && found->second[1].contains(key);
  }

 private:
  using Both = std::array<Places, 2>;

  void find_places(int layer, TensorId id) {
    Both both{places_of(*infos_[0], runs_[0], layer, id), places_of(*infos_[1], runs_[1], layer, id)};
    if (both[0].empty() && both[1].empty()) return;
    Skip skip{Skip::Kind::skipped,        -1, layer, std::string(name(info(id).stage)),
              std::string(info(id).name), ""};
    if (is_physical(id) || is_key(id)) {
      skip.reason = is_key(id) ? "key of the alignment" : "physical place, depends on the batch";
      skips_.push_back(std::move(skip));
      return;
    }
    if (both[0].empty() || both[1].empty()) {
      const std::size_t absent = both[0].empty() ? 0 : 1;
      if (!holds(absent, layer, id) && due_ && due_(absent == 0, -1, id)) {
        findings_.push_back(missing(absent == 0, -1, layer, path(id)));
        return;
      }
      skip.kind = Skip::Kind::not_produced;
      skip.reason = both[0].empty() ? "not produced by the reference" : "not produced by the subject";
      skips_.push_back(std::move(skip));
      return;
    }
    for (int side = 0; side < 2; ++side) {
      const auto mine = static_cast<std::size_t>(side);
      skip.reason =
          only(both[mine], both[1 - mine], side == 0 ? "reference" : "subject", axis_of(id) == Axis::entry);
      if (skip.reason.empty()) continue;
      // Which rows a step leaves in the state depends on where it ends.
      if (axis_of(id) != Axis::row) skip.kind = Skip::Kind::not_produced;
      skips_.push_back(skip);
    }
    for (const Key& key : common_keys(both[0], both[1])) {
      request_set_.insert(key.first);
      if (axis_of(id) != Axis::entry) token_set_.insert(key);
    }
    places_.emplace(std::pair{layer, id}, std::move(both));
  }

  bool holds(std::size_t side, int layer, TensorId id) const {
    for (std::size_t step = 0; step < runs_[side].steps.size(); ++step) {
      if (find(runs_[side], step, layer, &LayerObservation::tensors, id) != nullptr) return true;
    }
    return false;
  }

  std::int32_t request_index(const std::string& key) const {
    return static_cast<std::int32_t>(std::ranges::lower_bound(requests_, key) - requests_.begin());
  }

  void fill_batch(BatchTables& batch) const {
    const auto count = static_cast<std::int64_t>(tokens_.size());
    batch.request = Tensor(DType::int32, {count});
    batch.position = Tensor(DType::int32, {count});
    for (std::size_t row = 0; row < tokens_.size(); ++row) {
      batch.request.as<std::int32_t>()[row] = request_index(tokens_[row].first);
      batch.position.as<std::int32_t>()[row] = tokens_[row].second;
    }
  }

  std::vector<Key> keys_of(TensorId id, const Both& places) const {
    return axis_of(id) == Axis::token ? tokens_ : common_keys(places[0], places[1]);
  }

  void add_tensor(int layer, TensorId id, const Both& places) {
    const std::vector<Key> keys = keys_of(id, places);
    for (const TensorMap map :
         {&LayerObservation::tensors, &LayerObservation::unrounded, &LayerObservation::bounds}) {
      const std::int64_t width =
          std::max(width_of(runs_[0], layer, map, id), width_of(runs_[1], layer, map, id));
      for (std::size_t side = 0; side < 2; ++side) {
        std::optional<Tensor> tensor = gather(runs_[side], layer, map, id, keys, places[side], width);
        if (tensor) (sides_[side].layers[static_cast<std::size_t>(layer)].*map)[id] = std::move(*tensor);
      }
    }
  }

  // Tables that say what the rows of entry and state tensors are; both sides get the same ones, and they are
  // left out of the comparison.
  void add_tables() {
    struct Table {
      Stage stage;
      TensorId request;
      TensorId index;
    };
    using enum TensorId;
    constexpr Table kEntries[]{{Stage::compress_pool, compress_pool_request, compress_pool_index},
                               {Stage::indexer_pool, indexer_pool_request, indexer_pool_index},
                               {Stage::compress_finish, compress_request, compress_index},
                               {Stage::indexer_finish, indexer_request, indexer_index}};
    constexpr std::pair<TensorId, TensorId> kStates[]{{compress_state_kv, compress_state_token},
                                                      {indexer_state_kv, indexer_state_token}};
    for (const auto& [where, places] : places_) {
      const auto [layer, id] = where;
      const std::vector<Key> keys = keys_of(id, places);
      const auto count = static_cast<std::int64_t>(keys.size());
      for (const Table& table : kEntries) {
        if (table.stage != info(id).stage) continue;
        Tensor request(DType::int32, {count});
        Tensor index(DType::int32, {count});
        for (std::size_t row = 0; row < keys.size(); ++row) {
          request.as<std::int32_t>()[row] = request_index(keys[row].first);
          index.as<std::int32_t>()[row] = keys[row].second;
        }
        for (StepObservation& side : sides_) {
          side.layers[static_cast<std::size_t>(layer)].tensors[table.request] = request;
          side.layers[static_cast<std::size_t>(layer)].tensors[table.index] = index;
        }
      }
      for (const auto& [rows, token] : kStates) {
        if (rows != id) continue;
        Tensor tokens(DType::int32, {count});
        for (std::size_t row = 0; row < keys.size(); ++row) {
          tokens.as<std::int32_t>()[row] =
              static_cast<std::int32_t>(std::ranges::lower_bound(tokens_, keys[row]) - tokens_.begin());
        }
        for (StepObservation& side : sides_)
          side.layers[static_cast<std::size_t>(layer)].tensors[token] = tokens;
      }
    }
  }

  std::array<const SourceInfo*, 2> infos_;
  const std::array<Run, 2>& runs_;
  const Due& due_;
  std::map<std::pair<int, TensorId>, Both> places_;
  std::set<Key> token_set_;
  std::set<std::string> request_set_;
  std::vector<Key> tokens_;
  std::vector<std::string> requests_;
  std::array<StepObservation, 2> sides_;
  std::vector<Skip> skips_;
  std::vector<Finding> findings_;
};

}  // namespace

StepComparison TokenAligner::compare() {
  Aligned aligned(reference_, subject_, index_->runs, due_);
  SourceInfo reference = reference_;
  SourceInfo subject = subject_;
  reference.config.requests = aligned.requests();
  subject.config.requests = aligned.requests();
  StepObservation& left = aligned.side(Side::reference);
  StepObservation& right = aligned.side(Side::subject);
  if (final_state_) {
    const auto take = [this](Side side, StepObservation& to) {
      const Run& run = index_->runs[static_cast<std::size_t>(side)];
      if (run.steps.empty()) return;
      for (std::size_t layer = 0; layer < to.layers.size(); ++layer) {
        to.layers[layer].state_digests = run.steps.back().layers[layer].state_digests;
      }
    };
    take(Side::reference, left);
    take(Side::subject, right);
  }
  CompareOptions options;
  options.wanted = [](int, TensorId id) { return !is_key(id) && !is_physical(id); };
  options.judged_row = [&aligned](int layer, TensorId id, std::int64_t row) {
    return aligned.judged(layer, id, row);
  };
  Comparator comparator(reference, subject, rules_, options);
  StepComparison result = comparator.compare(left, right);
  // The batch is the alignment's own; the tables beside the rows are its keys. Neither was compared.
  std::erase_if(result.comparisons, [](const Comparison& comparison) { return comparison.stage == "batch"; });
  std::erase_if(result.skips, [](const Skip& skip) { return skip.stage != "state"; });
  std::ranges::move(aligned.skips(), std::back_inserter(result.skips));
  std::ranges::move(aligned.findings(), std::back_inserter(result.findings));
  index_->totals = Totals{};
  index_->totals.add(result);
  return result;
}

StepComparison compare_by_token(ObservationSource& reference, ObservationSource& subject, const Rules& rules,
                                Totals* totals, const Due& due) {
  TokenAligner aligner(reference.info(), subject.info(), rules, due);
  const std::vector<std::string> reference_keys = request_keys(reference.info().config.requests);
  const std::vector<std::string> subject_keys = request_keys(subject.info().config.requests);
  while (std::optional<StepObservation> step = reference.next()) {
    aligner.add(Side::reference, std::move(*step), reference_keys);
  }
  while (std::optional<StepObservation> step = subject.next()) {
    aligner.add(Side::subject, std::move(*step), subject_keys);
  }
  StepComparison result = aligner.compare();
  if (totals != nullptr) *totals = aligner.totals();
  return result;
}

}  // namespace dsv4::compare
