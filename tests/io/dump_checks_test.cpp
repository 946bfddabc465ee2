// What a damaged or hostile dump states about itself is refused, with file and object, before it is used.
#include "io/dump_checks.hpp"

#include <hdf5.h>

#include "io/dump_reader.hpp"
#include "io/dump_writer.hpp"
#include "io/hdf5_file.hpp"
#include "model/error.hpp"
#include "sample.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::io;

namespace {

/// A file opened with the library itself, to change what our writer would not write.
class Raw {
 public:
  explicit Raw(const std::string& path) : file_(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT)) {
    REQUIRE(file_ >= 0);
  }
  ~Raw() { H5Fclose(file_); }
  hid_t get() const { return file_; }

  void set(const char* object, const char* attribute, std::int64_t value) const {
    const hid_t owner = H5Oopen(file_, object, H5P_DEFAULT);
    const hid_t handle = H5Aopen(owner, attribute, H5P_DEFAULT);
    REQUIRE(handle >= 0);
    REQUIRE(H5Awrite(handle, H5T_NATIVE_INT64, &value) >= 0);
    H5Aclose(handle);
    H5Oclose(owner);
  }
  void set_int32(const char* dataset, std::size_t element, std::int32_t value) const {
    const hid_t handle = H5Dopen2(file_, dataset, H5P_DEFAULT);
    const hid_t space = H5Dget_space(handle);
    std::vector<std::int32_t> values(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
    REQUIRE(H5Dread(handle, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
    values.at(element) = value;
    REQUIRE(H5Dwrite(handle, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
    H5Sclose(space);
    H5Dclose(handle);
  }

 private:
  hid_t file_;
};

void write_sample(const std::string& path, const StepObservation& step) {
  DumpWriter writer(path, sample::source());
  writer.write(step);
  writer.finish();
}

/// Reads everything that diff and inspect read.
void read_all(const std::string& path) {
  DumpReader reader(path);
  while (reader.next()) {
  }
  reader.list();
}

std::string refusal(const std::string& path) {
  try {
    read_all(path);
  } catch (const FileError& error) {
    return error.what();
  }
  return "nothing was refused";
}

bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("attributes of /config are held to the limits of a scenario") {
  struct Case {
    const char* attribute;
    std::int64_t value;
    const char* message;
  };
  const Case cases[]{
      {"swa_page", 0, "cache field swa_page: 0"},
      {"c4_page", -1, "cache field c4_page: -1"},
      {"index_page", std::int64_t{1} << 32, "'index_page' is 4294967296 (too large)"},
      {"c128_page", 1 << 17, "cache field c128_page"},
      {"heads", std::int64_t{1} << 62, "'heads' is 4611686018427387904 (too large)"},
      {"heads", (std::int64_t{1} << 32) + 4, "'heads' is 4294967300 (too large)"},
      {"dim", 0, "model field dim: 0"},
      {"yarn_original", std::int64_t{1} << 50, "yarn_original"},
      {"draft_rows", 0, "cache field draft_rows: 0"},
      {"ring_c4", 7, "'ring_c4' is 7"},
      {"pitch", 576, "cache field pitch: 576"},
      {"pitch", -576, "cache field pitch: -576"},
      {"chain", 2, "'chain' is 2"},
      {"bit_exact", -1, "'bit_exact' is -1"},
      {"state_bases", -1, "'state_bases' is -1"},
      {"pages_window", -5, "'pages_window' is -5"},
      {"window", 64, "'window' is 64"},
  };
  const sample::Folder folder;
  const std::string path = folder / "a.h5";
  for (const Case& one : cases) {
    INFO(one.attribute << " " << one.value);
    write_sample(path, sample::step(0, 3));
    Raw(path).set("/config", one.attribute, one.value);
    REQUIRE(contains(refusal(path), "a.h5: /config"));
    REQUIRE(contains(refusal(path), one.message));
  }
  write_sample(path, sample::step(0, 3));
  Raw(path).set("/config/layer_01", "ratio", 5);
  REQUIRE(contains(refusal(path), "unknown ratio 5"));
  write_sample(path, sample::step(0, 3));
  Raw(path).set("/", "complete", 7);
  REQUIRE(contains(refusal(path), "'complete'"));
}

TEST_CASE("batch indices that cannot be are refused with their table") {
  const sample::Folder folder;
  const std::string path = folder / "a.h5";
  struct Case {
    const char* table;
    std::int32_t value;
  };
  const Case cases[]{
      {"request", 3}, {"request", -2}, {"position", -2}, {"position", 1 << 20}, {"slot", 320},
      {"slot", -2},   {"page", 5},     {"page", -2},     {"request", -1},  // position is not -1
      {"prefix", 9},  {"prefix", -1}};
  for (const Case& one : cases) {
    write_sample(path, sample::step(0, 3));
    const std::string table = "/steps/000000/batch/" + std::string(one.table);
    Raw(path).set_int32(table.c_str(), 1, one.value);
    INFO(one.table << " " << one.value);
    REQUIRE(contains(refusal(path), "a.h5: /steps/000000/batch/"));
  }
  StepObservation step = sample::step(0, 3);
  step.batch.prefix = sample::tensor<std::int32_t>(DType::int32, {1, 3}, {1, 0, 0});
  write_sample(path, step);
  REQUIRE(contains(refusal(path), "batch/prefix"));
}

TEST_CASE("shapes, dtypes and index values that contradict catalogue and geometry are refused") {
  const sample::Folder folder;
  const std::string path = folder / "a.h5";
  const auto refused = [&](TensorId id, Tensor tensor) {
    StepObservation step = sample::step(0, 3);
    step.layers[1].tensors[id] = std::move(tensor);
    write_sample(path, step);
    return contains(refusal(path), "a.h5: /steps/000000/layer_01/" + dsv4::path(id));
  };
  REQUIRE(refused(TensorId::q_latent, Tensor(DType::bfloat16, {3, 64})));
  REQUIRE(refused(TensorId::window_scales, Tensor(DType::float8_e8m0fnu, {3, 3})));
  REQUIRE(refused(TensorId::q, Tensor(DType::bfloat16, {3, 512, 4})));
  REQUIRE(refused(TensorId::attention_lse, Tensor(DType::int32, {3, 4})));
  REQUIRE(refused(TensorId::visible, Tensor(DType::float32, {3})));
  REQUIRE(refused(TensorId::selected, sample::tensor<std::int32_t>(DType::int32, {3, 8}, {-2})));
  REQUIRE(refused(TensorId::window_slots, sample::tensor<std::int32_t>(DType::int32, {3, 8}, {320})));
  REQUIRE(refused(TensorId::compress_state_token, sample::tensor<std::int32_t>(DType::int32, {2}, {3})));
  StepObservation step = sample::step(0, 3);
  step.layers[1].tensors[TensorId::compress_request] = Tensor(DType::int32, {2});
  step.layers[1].tensors[TensorId::compress_slot] = Tensor(DType::int32, {1});
  write_sample(path, step);
  REQUIRE(contains(refusal(path), "other tensors of its stage have 2"));
}

TEST_CASE("an event that is no JSON object is refused") {
  const sample::Folder folder;
  for (const std::string& event :
       {std::string("free"), std::string("[1]"), std::string("{\"a\":"), std::string()}) {
    StepObservation step = sample::step(0, 1);
    step.event = event;
    write_sample(folder / "a.h5", step);
    REQUIRE(contains(refusal(folder / "a.h5"), "a.h5: /steps/000000 has an event"));
  }
}

TEST_CASE("soft, external and circular links end in a refusal, not in a loop") {
  const sample::Folder folder;
  const std::string path = folder / "a.h5";
  write_sample(path, sample::step(0, 3));
  {
    H5Lcreate_hard(Raw(path).get(), "/steps/000000", H5L_SAME_LOC, "/steps/000000/again", H5P_DEFAULT,
                   H5P_DEFAULT);
  }
  REQUIRE(contains(refusal(path), "is linked more than once"));
  write_sample(path, sample::step(0, 3));
  { H5Lcreate_soft("/steps", Raw(path).get(), "/steps/000000/soft", H5P_DEFAULT, H5P_DEFAULT); }
  REQUIRE(contains(refusal(path), "/steps/000000/soft is a soft or external link"));
  REQUIRE_THROWS_AS(DumpReader(path).has_object("/steps/000000/soft"), FileError);
  write_sample(path, sample::step(0, 3));
  { H5Lcreate_external("/etc/hostname", "/x", Raw(path).get(), "/outside", H5P_DEFAULT, H5P_DEFAULT); }
  REQUIRE(contains(refusal(path), "/outside is a soft or external link"));
}

TEST_CASE("names are printed as they stand, so control characters are refused") {
  REQUIRE_NOTHROW(check_plain_text("v4-flash, \xC3\xA9", "a.h5", "name"));
  REQUIRE_THROWS_AS(check_plain_text("\x1B[2J", "a.h5", "name"), FileError);
  REQUIRE_THROWS_AS(check_plain_text("", "a.h5", "name"), FileError);
  REQUIRE_THROWS_AS(check_plain_text(std::string(300, 'x'), "a.h5", "name"), FileError);
}

TEST_CASE("what a run was told to keep is stated in its dump") {
  const sample::Folder folder;
  {
    DumpOptions options;
    options.selection = DumpSelection{"1:3", "q.up/q"};
    DumpWriter(folder / "some.h5", sample::source(), options).finish();
  }
  const DumpReader some(folder / "some.h5");
  REQUIRE(some.selection().has_value());
  REQUIRE(some.selection()->steps == "1:3");
  REQUIRE(some.selection()->tensors == "q.up/q");
  { DumpWriter(folder / "any.h5", sample::source()).finish(); }
  REQUIRE_FALSE(DumpReader(folder / "any.h5").selection().has_value());
}
