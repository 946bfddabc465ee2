/// Memory of one cache of the wide engine: pages of rows, the value bytes of all rows of a page first, their
/// scale bytes behind (docs/numerics.md 12, page layouts). A ring is a memory whose pages hold one row each.
///
/// Pages appear when they are first written; until then they read as poison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dsv4::wide {

class RowMemory {
 public:
  struct Shape {
    std::string what;  ///< for messages: "window rows"
    std::int64_t pages = 0;
    std::int64_t page_rows = 1;
    std::int64_t value_bytes = 0;  ///< a row
    std::int64_t scale_bytes = 0;  ///< a row
    std::int64_t pitch = 0;        ///< bytes a page, at least page_rows * (value_bytes + scale_bytes)
  };

  RowMemory() = default;
  explicit RowMemory(Shape shape);

  const Shape& shape() const { return shape_; }
  std::size_t row_bytes() const { return static_cast<std::size_t>(shape_.value_bytes + shape_.scale_bytes); }

  /// A row as in Write::bytes: value bytes, then scale bytes. Throws InternalError outside the memory.
  std::vector<std::byte> row(std::int64_t slot) const;
  void set_row(std::int64_t slot, std::span<const std::byte> bytes);

  /// A page, pitch included.
  std::vector<std::byte> page(std::int64_t number) const;
  void set_page(std::int64_t number, std::span<const std::byte> bytes);
  void fill_page(std::int64_t number, std::uint8_t value);
  /// The first `rows` rows of one page to another.
  void copy_rows(std::int64_t from, std::int64_t to, std::int64_t rows);

 private:
  std::vector<std::byte>& touched(std::int64_t number);
  void check_page(std::int64_t number) const;

  Shape shape_;
  std::vector<std::vector<std::byte>> pages_;  ///< empty: never written
};

}  // namespace dsv4::wide
