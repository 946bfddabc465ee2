#include "reference/row_store.hpp"

#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "model/error.hpp"
#include "model/layout.hpp"

namespace dsv4::reference {
namespace {

std::uint64_t total_bytes(const std::string& what, const RowShape& shape) {
  if (shape.units < 0 || shape.pitch < std::int64_t{shape.unit_rows} * shape.row_bytes()) {
    throw InternalError(fmt::format("{}: {} units of {} rows do not fit a pitch of {} bytes", what,
                                    shape.units, shape.unit_rows, shape.pitch));
  }
  // Published slots are int32.
  if (shape.units > std::numeric_limits<std::int32_t>::max() / shape.unit_rows ||
      (shape.units > 0 && shape.pitch > std::numeric_limits<std::int64_t>::max() / shape.units)) {
    throw UsageError(
        fmt::format("{}: {} pages of {} rows at a pitch of {} bytes are more than slots can address", what,
                    shape.units, shape.unit_rows, shape.pitch));
  }
  return static_cast<std::uint64_t>(shape.units) * static_cast<std::uint64_t>(shape.pitch);
}

}  // namespace

RowStore::RowStore(std::string what, const RowShape& shape)
    : what_(std::move(what)), shape_(shape), memory_(total_bytes(what_, shape)) {}

std::int64_t RowStore::unit_of(std::int64_t slot) const {
  if (slot < 0 || slot >= shape_.slots()) {
    throw InternalError(fmt::format("{}: slot {} lies outside its {} slots ({} units of {} rows)", what_,
                                    slot, shape_.slots(), shape_.units, shape_.unit_rows));
  }
  return slot / shape_.unit_rows;
}

void RowStore::check_unit(std::int64_t unit, bool writes) const {
  if (unit < 0 || unit >= shape_.units) {
    throw InternalError(fmt::format("{}: unit {} lies outside its {} units", what_, unit, shape_.units));
  }
  if (writes && shape_.null_unit && unit == layout::kNullPage) {
    throw InternalError(fmt::format("{}: a write to the null page", what_));
  }
}

std::uint64_t RowStore::value_offset(std::int64_t slot) const {
  const std::int64_t row = slot % shape_.unit_rows;
  return static_cast<std::uint64_t>(unit_of(slot)) * static_cast<std::uint64_t>(shape_.pitch) +
         static_cast<std::uint64_t>(row * shape_.value_bytes);
}

std::uint64_t RowStore::scale_offset(std::int64_t slot) const {
  const std::int64_t row = slot % shape_.unit_rows;
  return static_cast<std::uint64_t>(unit_of(slot)) * static_cast<std::uint64_t>(shape_.pitch) +
         static_cast<std::uint64_t>(shape_.unit_rows) * static_cast<std::uint64_t>(shape_.value_bytes) +
         static_cast<std::uint64_t>(row * shape_.scale_bytes);
}

const std::byte* RowStore::values(std::int64_t slot) const {
  return memory_.data() + value_offset(slot);
}
const std::byte* RowStore::scales(std::int64_t slot) const {
  return memory_.data() + scale_offset(slot);
}

void RowStore::read(std::int64_t slot, std::span<std::byte> row) const {
  require(std::ssize(row) == shape_.row_bytes(), "a row read into a buffer of another size");
  std::memcpy(row.data(), values(slot), static_cast<std::size_t>(shape_.value_bytes));
  std::memcpy(row.data() + shape_.value_bytes, scales(slot), static_cast<std::size_t>(shape_.scale_bytes));
}

void RowStore::write(std::int64_t slot, std::span<const std::byte> row) {
  if (std::ssize(row) != shape_.row_bytes()) {
    throw InternalError(fmt::format("{}: a row of {} bytes for slot {}, whose rows have {}", what_,
                                    row.size(), slot, shape_.row_bytes()));
  }
  check_unit(unit_of(slot), true);
  std::memcpy(memory_.data() + value_offset(slot), row.data(), static_cast<std::size_t>(shape_.value_bytes));
  std::memcpy(memory_.data() + scale_offset(slot), row.data() + shape_.value_bytes,
              static_cast<std::size_t>(shape_.scale_bytes));
}

std::vector<std::byte> RowStore::read_unit(std::int64_t unit) const {
  check_unit(unit, false);
  const std::byte* first = memory_.data() + unit * shape_.pitch;
  return {first, first + shape_.pitch};
}

void RowStore::write_unit(std::int64_t unit, std::span<const std::byte> bytes) {
  check_unit(unit, false);
  if (std::ssize(bytes) != shape_.pitch) {
    throw InternalError(
        fmt::format("{}: {} bytes for unit {}, which has {}", what_, bytes.size(), unit, shape_.pitch));
  }
  std::memcpy(memory_.data() + unit * shape_.pitch, bytes.data(), bytes.size());
}

void RowStore::fill_unit(std::int64_t unit, std::uint8_t value) {
  check_unit(unit, true);
  const auto offset = static_cast<std::uint64_t>(unit * shape_.pitch);
  if (value == layout::kPoison) {
    memory_.reset(offset, static_cast<std::uint64_t>(shape_.pitch));
  } else {
    std::memset(memory_.data() + offset, value, static_cast<std::size_t>(shape_.pitch));
  }
}

void RowStore::copy_rows(std::int64_t from, std::int64_t to, int rows) {
  check_unit(from, false);
  check_unit(to, true);
  if (rows < 0 || rows > shape_.unit_rows) {
    throw InternalError(
        fmt::format("{}: a copy of {} rows of unit {}, which has {}", what_, rows, from, shape_.unit_rows));
  }
  std::vector<std::byte> row(static_cast<std::size_t>(shape_.row_bytes()));
  for (int index = 0; index < rows; ++index) {
    read(from * shape_.unit_rows + index, row);
    write(to * shape_.unit_rows + index, row);
  }
}

}  // namespace dsv4::reference
