// Tables of a step in a dump: there and back, edited by a program that knows HDF5 only, and refused when they
// say what cannot be.
#include <hdf5.h>

#include "io/dump_reader.hpp"
#include "io/dump_writer.hpp"
#include "io/sample.hpp"
#include "model/error.hpp"
#include "model/tables.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::io;

namespace {

TableState tables() {
  TableState made;
  made.blocks = sample::tensor<std::int32_t>(DType::int32, {2, 4}, {0, 0, 0, 3, 5, 2, 1, 9});
  made.holders = sample::tensor<std::int32_t>(DType::int32, {2, 3}, {0, 3, 1, 5, 9, 2});
  made.free = Tensor(DType::int32, {0, 2});
  made.bases = sample::tensor<std::int32_t>(DType::int32, {2, 2}, {0, 1, 2, 0});
  return made;
}

std::string written(const sample::Folder& folder) {
  const std::string path = folder / "tables.h5";
  DumpWriter writer(path, sample::source());
  StepObservation first = sample::step(0, 3);
  first.tables = tables();
  writer.write(first);
  writer.write(sample::step(1, 2));
  writer.finish();
  return path;
}

/// Changes one element of a table in the file.
void edit(const std::string& path, const char* table, std::size_t element, std::int32_t value) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  REQUIRE(file >= 0);
  const hid_t set = H5Dopen2(file, (std::string("/state/000000/tables/") + table).c_str(), H5P_DEFAULT);
  REQUIRE(set >= 0);
  std::vector<std::int32_t> values(64);
  REQUIRE(H5Dread(set, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
  values[element] = value;
  REQUIRE(H5Dwrite(set, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
  H5Dclose(set);
  H5Fclose(file);
}

}  // namespace

TEST_CASE("tables come back as they were written, and a step without them has none") {
  const sample::Folder folder;
  DumpReader reader(written(folder), true);
  const StepObservation first = *reader.next();
  REQUIRE(first.tables);
  const TableState expected = tables();
  for (const TableInfo& table : kTables) {
    CHECK(((*first.tables).*table.rows).shape() == (expected.*table.rows).shape());
    const auto a = ((*first.tables).*table.rows).bytes();
    const auto b = (expected.*table.rows).bytes();
    CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
  }
  CHECK_FALSE(reader.next()->tables);
}

TEST_CASE("an edited table reads as edited") {
  const sample::Folder folder;
  const std::string path = written(folder);
  edit(path, "block_tables", 3, 2);
  DumpReader reader(path);
  CHECK(reader.next()->tables->blocks.as<std::int32_t>()[3] == 2);
  DumpReader verifying(path, true);
  CHECK_THROWS_AS(verifying.next(), FileError);
}

TEST_CASE("pools, pages, requests and bases that do not exist are refused") {
  struct Case {
    const char* table;
    std::size_t element;
    std::int32_t value;
  };
  // The sample has 7 pools, 5 window pages, 3 requests and 4 state bases.
  const Case cases[]{{"block_tables", 0, 7}, {"block_tables", 1, 3}, {"block_tables", 2, -1},
                     {"block_tables", 3, 5}, {"holders", 0, -1},     {"holders", 1, 5},
                     {"holders", 2, 5},      {"state_bases", 0, 3},  {"state_bases", 1, 4}};
  for (const Case& one : cases) {
    const sample::Folder folder;
    const std::string path = written(folder);
    edit(path, one.table, one.element, one.value);
    DumpReader reader(path);
    INFO(one.table << " " << one.element);
    CHECK_THROWS_AS(reader.next(), FileError);
  }
}
