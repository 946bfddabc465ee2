#include "compare/meaning.hpp"

#include <algorithm>

#include "compare/packed_row.hpp"
#include "compare/rule.hpp"
#include "model/layout.hpp"

namespace dsv4::compare {
namespace {

std::int32_t int_at(const Tensor& tensor, std::int64_t row) {
  if (tensor.dtype() != DType::int32 || row < 0 || row >= tensor.elements()) return -1;
  return tensor.as<std::int32_t>()[static_cast<std::size_t>(row)];
}

bool is_first_axis(TensorId id, std::string_view axis) {
  return info(id).dims.starts_with(axis);
}

struct EntryTables {
  TensorId request;
  TensorId index;
  TensorId slot;
};

// A pool tensor of a source that leaves out the pool's own tables is explained by those of the finish stage.
EntryTables entry_tables(Stage stage, const std::map<TensorId, Tensor>& tensors) {
  using enum TensorId;
  const bool indexer = stage == Stage::indexer_pool || stage == Stage::indexer_finish;
  const bool pool = stage == Stage::compress_pool || stage == Stage::indexer_pool;
  if (pool && indexer && tensors.contains(indexer_pool_request)) {
    return {indexer_pool_request, indexer_pool_index, indexer_slot};
  }
  if (pool && !indexer && tensors.contains(compress_pool_request)) {
    return {compress_pool_request, compress_pool_index, compress_slot};
  }
  if (indexer) return {indexer_request, indexer_index, indexer_slot};
  return {compress_request, compress_index, compress_slot};
}

}  // namespace

std::vector<std::int64_t> coordinate(const std::vector<std::int64_t>& shape, std::int64_t element) {
  std::vector<std::int64_t> result(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const std::int64_t size = std::max<std::int64_t>(shape[axis], 1);
    result[axis] = element % size;
    element /= size;
  }
  return result;
}

std::vector<std::string> axis_names(std::string_view dims) {
  std::vector<std::string> names;
  while (true) {
    const std::size_t comma = dims.find(',');
    names.emplace_back(dims.substr(0, comma));
    if (comma == std::string_view::npos) return names;
    dims.remove_prefix(comma + 1);
  }
}

MeaningOf::MeaningOf(const SourceInfo& info, const StepObservation& step, int layer)
    : info_(info), step_(step), layer_(layer) {}

std::int64_t MeaningOf::at(TensorId id, std::int64_t row) const {
  const auto& tensors = step_.layers[static_cast<std::size_t>(layer_)].tensors;
  const auto found = tensors.find(id);
  return found == tensors.end() ? -1 : int_at(found->second, row);
}

RowOwner MeaningOf::owner(TensorId id, std::int64_t row) const {
  RowOwner owner;
  if (is_first_axis(id, "token")) {
    owner.request = int_at(step_.batch.request, row);
    owner.position = int_at(step_.batch.position, row);
    if (info(id).stage == Stage::kv_window) owner.slot = int_at(step_.batch.slot, row);
  } else if (is_first_axis(id, "row")) {
    const bool indexer = info(id).stage == Stage::indexer_state;
    const std::int64_t token =
        at(indexer ? TensorId::indexer_state_token : TensorId::compress_state_token, row);
    owner.request = int_at(step_.batch.request, token);
    owner.position = int_at(step_.batch.position, token);
    owner.slot = at(indexer ? TensorId::indexer_state_slot : TensorId::compress_state_slot, row);
  } else {
    const EntryTables tables =
        entry_tables(info(id).stage, step_.layers[static_cast<std::size_t>(layer_)].tensors);
    owner.request = static_cast<std::int32_t>(at(tables.request, row));
    owner.entry = static_cast<std::int32_t>(at(tables.index, row));
    owner.slot = at(tables.slot, row);
  }
  return owner;
}

std::vector<RowOwner> MeaningOf::rows(TensorId id) const {
  const auto& tensors = step_.layers[static_cast<std::size_t>(layer_)].tensors;
  const auto found = tensors.find(id);
  if (found == tensors.end() || found->second.shape().empty()) return {};
  std::vector<RowOwner> owners(static_cast<std::size_t>(found->second.dim(0)));
  for (std::size_t row = 0; row < owners.size(); ++row) {
    owners[row] = owner(id, static_cast<std::int64_t>(row));
  }
  return owners;
}

void MeaningOf::add_entry(Meaning& meaning, std::int64_t entry) const {
  const int ratio_of = ratio(info_.config.layers[static_cast<std::size_t>(layer_)]);
  meaning.entry = entry;
  if (entry < 0 || ratio_of == 0) return;
  meaning.entry_first = entry * ratio_of;
  meaning.entry_last = (entry + 1) * ratio_of - 1;
}

void MeaningOf::add_token(Meaning& meaning, const RowOwner& owner) const {
  meaning.padding = owner.request < 0;
  if (owner.request >= 0 && static_cast<std::size_t>(owner.request) < info_.config.requests.size()) {
    meaning.request = info_.config.requests[static_cast<std::size_t>(owner.request)];
  }
  if (owner.position < 0) return;
  meaning.position = owner.position;
  meaning.position_mod_4 = owner.position % 4;
  meaning.position_mod_128 = owner.position % 128;
  meaning.position_mod_page = owner.position % info_.config.cache.swa_page;
}

void MeaningOf::add_owner(Meaning& meaning, const RowOwner& owner, TensorId id) const {
  const CacheConfig& cache = info_.config.cache;
  add_token(meaning, owner);
  if (owner.entry >= 0) add_entry(meaning, owner.entry);
  if (owner.slot < 0) return;
  meaning.slot = owner.slot;
  const bool csa = info_.config.layers[static_cast<std::size_t>(layer_)] == LayerKind::csa;
  std::int64_t rows = 0;
  switch (info(id).stage) {
    case Stage::kv_window:
      rows = cache.swa_page;
      break;
    case Stage::compress_finish:
    case Stage::compress_pool:
      rows = csa ? cache.c4_page : cache.c128_page;
      break;
    case Stage::indexer_finish:
    case Stage::indexer_pool:
      rows = cache.index_page;
      break;
    case Stage::compress_state:
    case Stage::indexer_state:
      if (csa && cache.c4_state != C4State::ring) rows = layout::kStatePageRowsC4;
      if (!csa && cache.c128_state == C128State::paged) rows = layout::kStatePageRowsC128;
      break;
    default:
      break;
  }
  if (rows == 0) return;
  meaning.page = owner.slot / rows;
  meaning.offset = owner.slot % rows;
}

void MeaningOf::add_byte(Meaning& meaning, std::int64_t row_bytes, std::int64_t byte) const {
  const auto packed = PackedRow::of_row_bytes(row_bytes);
  if (!packed) return;
  const PackedByte where = packed->locate(byte);
  meaning.part = name(where.part);
  if (where.part == PackedPart::codes) {
    meaning.dim = where.first;
    meaning.block = where.first / packed->block;
  } else if (where.part == PackedPart::rope) {
    meaning.dim = kNopeDim + where.first;
  } else if (where.part == PackedPart::scales) {
    meaning.block = where.first;
  }
}

Meaning MeaningOf::element(TensorId id, const Tensor& tensor, std::int64_t element) const {
  const std::vector<std::int64_t> where = coordinate(tensor.shape(), element);
  const std::vector<std::string> axes = axis_names(info(id).dims);
  Meaning meaning;
  if (where.empty()) return meaning;
  add_owner(meaning, owner(id, where[0]), id);
  for (std::size_t axis = 1; axis < std::min(where.size(), axes.size()); ++axis) {
    const std::int64_t index = where[axis];
    if (axes[axis] == "head") {
      meaning.head = index;
    } else if (axes[axis] == "block") {
      meaning.block = index;
    } else if (axes[axis] == "entry") {
      add_entry(meaning, index);
    } else if (axes[axis] == "item" || id == TensorId::selected) {
      meaning.rank = index;
    } else if (axes[axis] == "byte") {
      add_byte(meaning, tensor.dim(1), index);
    } else {
      meaning.dim = index;
    }
  }
  if (meaning.dim && tensor_class(id) == TensorClass::codes) {
    const int block = block_size(id, tensor.dtype());
    meaning.block = *meaning.dim / block;
  }
  return meaning;
}

Meaning MeaningOf::batch_row(std::int64_t row) const {
  Meaning meaning;
  add_token(meaning, {int_at(step_.batch.request, row), int_at(step_.batch.position, row), -1, -1});
  meaning.slot = int_at(step_.batch.slot, row);
  meaning.page = int_at(step_.batch.page, row);
  return meaning;
}

}  // namespace dsv4::compare
