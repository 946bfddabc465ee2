#include "wide/row_memory.hpp"

#include <algorithm>

#include "model/error.hpp"
#include "model/layout.hpp"

namespace dsv4::wide {
namespace {

constexpr auto kPoisonByte = static_cast<std::byte>(layout::kPoison);

}  // namespace

RowMemory::RowMemory(Shape shape) : shape_(std::move(shape)), pages_(static_cast<std::size_t>(shape_.pages)) {
  const std::int64_t used = shape_.page_rows * (shape_.value_bytes + shape_.scale_bytes);
  if (shape_.pitch < used) {
    throw UsageError("cache pitch " + std::to_string(shape_.pitch) + " is less than the " +
                     std::to_string(used) + " bytes of a page of " + shape_.what);
  }
}

void RowMemory::check_page(std::int64_t number) const {
  if (number < 0 || number >= shape_.pages) {
    throw InternalError(shape_.what + ": page " + std::to_string(number) + " of " +
                        std::to_string(shape_.pages));
  }
}

std::vector<std::byte>& RowMemory::touched(std::int64_t number) {
  check_page(number);
  auto& bytes = pages_[static_cast<std::size_t>(number)];
  if (bytes.empty()) bytes.assign(static_cast<std::size_t>(shape_.pitch), kPoisonByte);
  return bytes;
}

std::vector<std::byte> RowMemory::row(std::int64_t slot) const {
  const std::int64_t number = slot / shape_.page_rows;
  check_page(slot < 0 ? -1 : number);
  const auto& bytes = pages_[static_cast<std::size_t>(number)];
  if (bytes.empty()) return std::vector<std::byte>(row_bytes(), kPoisonByte);
  const std::int64_t offset = slot % shape_.page_rows;
  const auto values = bytes.begin() + offset * shape_.value_bytes;
  const auto scales = bytes.begin() + shape_.page_rows * shape_.value_bytes + offset * shape_.scale_bytes;
  std::vector<std::byte> row(values, values + shape_.value_bytes);
  row.insert(row.end(), scales, scales + shape_.scale_bytes);
  return row;
}

void RowMemory::set_row(std::int64_t slot, std::span<const std::byte> row) {
  require(row.size() == row_bytes(), "a cache row of another size");
  auto& bytes = touched(slot < 0 ? -1 : slot / shape_.page_rows);
  const std::int64_t offset = slot % shape_.page_rows;
  const auto middle = row.begin() + shape_.value_bytes;
  std::copy(row.begin(), middle, bytes.begin() + offset * shape_.value_bytes);
  std::copy(middle, row.end(),
            bytes.begin() + shape_.page_rows * shape_.value_bytes + offset * shape_.scale_bytes);
}

std::vector<std::byte> RowMemory::page(std::int64_t number) const {
  check_page(number);
  const auto& bytes = pages_[static_cast<std::size_t>(number)];
  return bytes.empty() ? std::vector<std::byte>(static_cast<std::size_t>(shape_.pitch), kPoisonByte) : bytes;
}

void RowMemory::set_page(std::int64_t number, std::span<const std::byte> page) {
  require(std::ssize(page) == shape_.pitch, "a cache page of another size");
  std::copy(page.begin(), page.end(), touched(number).begin());
}

void RowMemory::fill_page(std::int64_t number, std::uint8_t value) {
  auto& bytes = touched(number);
  std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(value));
}

void RowMemory::copy_rows(std::int64_t from, std::int64_t to, std::int64_t rows) {
  for (std::int64_t i = 0; i < rows; ++i) {
    set_row(to * shape_.page_rows + i, row(from * shape_.page_rows + i));
  }
}

}  // namespace dsv4::wide
