// Dumps: round trips, identical bytes, the storage rules, foreign and damaged files.
#include <fcntl.h>
#include <hdf5.h>
#include <xxhash.h>

#include <array>
#include <filesystem>

#include "io/dump_format.hpp"
#include "io/dump_reader.hpp"
#include "io/dump_writer.hpp"
#include "io/hdf5_file.hpp"
#include "model/error.hpp"
#include "sample.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::io;
namespace fs = std::filesystem;

namespace {

void require_equal(const Tensor& a, const Tensor& b) {
  REQUIRE(a.dtype() == b.dtype());
  REQUIRE(a.shape() == b.shape());
  REQUIRE(std::ranges::equal(a.bytes(), b.bytes()));
}

void require_equal(const StepObservation& a, const StepObservation& b) {
  REQUIRE(a.step == b.step);
  REQUIRE(a.event == b.event);
  require_equal(a.batch.request, b.batch.request);
  require_equal(a.batch.position, b.batch.position);
  require_equal(a.batch.slot, b.batch.slot);
  require_equal(a.batch.page, b.batch.page);
  require_equal(a.batch.prefix, b.batch.prefix);
  REQUIRE(a.layers.size() == b.layers.size());
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    const LayerObservation& x = a.layers[i];
    const LayerObservation& y = b.layers[i];
    REQUIRE(x.tensors.size() == y.tensors.size());
    for (const auto& [id, tensor] : x.tensors) require_equal(tensor, y.tensors.at(id));
    REQUIRE(x.unrounded.size() == y.unrounded.size());
    for (const auto& [id, tensor] : x.unrounded) require_equal(tensor, y.unrounded.at(id));
    REQUIRE(x.state_digests == y.state_digests);
    REQUIRE(x.state_tensors.size() == y.state_tensors.size());
    for (const auto& [name, tensor] : x.state_tensors) require_equal(tensor, y.state_tensors.at(name));
  }
}

void write_sample(const std::string& path, const std::vector<StepObservation>& steps,
                  DumpOptions options = {}) {
  DumpWriter writer(path, sample::source(), options);
  for (const StepObservation& step : steps) writer.write(step);
  writer.finish();
}

/// The message of the FileError that `action` must throw.
template <class Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const FileError& error) {
    return error.what();
  }
  FAIL("nothing was refused");
  return {};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string hex128(XXH128_hash_t hash) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

}  // namespace

TEST_CASE("a dump gives back every step, tensor and setting") {
  const sample::Folder folder;
  const std::vector<StepObservation> steps{sample::step(0, 3), sample::step(1, 600), sample::step(17, 0)};
  for (const bool compress : {true, false}) {
    const std::string path = folder / (compress ? "a.h5" : "b.h5");
    write_sample(path, steps, {.compress = compress});
    REQUIRE_FALSE(fs::exists(path + ".partial"));
    DumpReader reader(path, true);
    for (const StepObservation& step : steps) {
      const auto read = reader.next();
      REQUIRE(read.has_value());
      require_equal(step, *read);
    }
    REQUIRE_FALSE(reader.next().has_value());
    REQUIRE(reader.steps() == std::vector<std::int64_t>{0, 1, 17});
    require_equal(steps[1], reader.read_step(1));
    reader.seek(17);
    REQUIRE(reader.next()->step == 17);
    reader.verify();

    const SourceInfo wrote = sample::source();
    const SourceInfo& info = reader.info();
    REQUIRE(info.engine == wrote.engine);
    REQUIRE(info.device == wrote.device);
    REQUIRE(info.complete);
    REQUIRE(info.bit_exact);
    REQUIRE(info.scenario == wrote.scenario);
    REQUIRE(info.config.geometry == wrote.config.geometry);
    REQUIRE(info.config.profile == wrote.config.profile);
    REQUIRE(info.config.layers == wrote.config.layers);
    REQUIRE(info.config.chain == wrote.config.chain);
    REQUIRE(info.config.cache.c4_state == wrote.config.cache.c4_state);
    REQUIRE(info.config.cache.c128_state == wrote.config.cache.c128_state);
    REQUIRE(info.config.cache.draft_rows == wrote.config.cache.draft_rows);
    REQUIRE(info.config.cache.allocate == wrote.config.cache.allocate);
    REQUIRE(info.config.cache.swa_release == wrote.config.cache.swa_release);
    REQUIRE(info.config.cache.poison_freed);
    REQUIRE(info.config.cache.pitch == wrote.config.cache.pitch);
    REQUIRE(info.config.seed == wrote.config.seed);
    REQUIRE(info.config.pool_pages == wrote.config.pool_pages);
    REQUIRE(info.config.requests == wrote.config.requests);
  }
}

TEST_CASE("a selection leaves tensors unread and a missing tensor is said") {
  const sample::Folder folder;
  const std::string path = folder / "a.h5";
  write_sample(path, {sample::step(0, 3)});
  DumpReader reader(path);
  reader.want(TensorSet().set(static_cast<std::size_t>(TensorId::q)));
  reader.want_unrounded(false);
  reader.want_state_tensors(false);
  const StepObservation step = *reader.next();
  for (const LayerObservation& layer : step.layers) {
    REQUIRE(layer.tensors.size() == 1);
    REQUIRE(layer.unrounded.empty());
    REQUIRE(layer.state_tensors.empty());
  }
  require_equal(*reader.read_tensor(0, 1, TensorId::q), sample::step(0, 3).layers[1].tensors.at(TensorId::q));
  REQUIRE_FALSE(reader.read_tensor(0, 0, TensorId::scores).has_value());
  REQUIRE(contains(refusal([&] { reader.read_step(9); }), "/steps/000009 is missing"));
}

TEST_CASE("equal content gives equal bytes, other content other bytes") {
  const sample::Folder folder;
  const std::vector<StepObservation> steps{sample::step(0, 3), sample::step(1, 600)};
  write_sample(folder / "a.h5", steps);
  write_sample(folder / "b.h5", steps);
  REQUIRE(sample::bytes_of(folder / "a.h5") == sample::bytes_of(folder / "b.h5"));

  std::vector<StepObservation> changed = steps;
  changed[1].layers[2].tensors[TensorId::q].bytes()[12345] ^= std::byte{1};
  write_sample(folder / "c.h5", changed);
  REQUIRE(sample::bytes_of(folder / "a.h5") != sample::bytes_of(folder / "c.h5"));
}

TEST_CASE("NaN is stored and digested in its canonical form") {
  const sample::Folder folder;
  StepObservation step = sample::step(0, 2);
  step.layers[0].tensors[TensorId::q_latent] =
      sample::tensor<std::uint16_t>(DType::bfloat16, {2, 128}, {0xFFFF, 0x7F81, 0x7F80, 0x3F80});
  step.layers[0].tensors[TensorId::attention_lse] =
      sample::tensor<std::uint32_t>(DType::float32, {2, 4}, {0xFFC00001U, 0x7F800001U, 0xFF800000U, 1U});
  write_sample(folder / "a.h5", {step});
  const DumpReader reader(folder / "a.h5", true);
  const LayerObservation layer = reader.read_step(0).layers[0];
  const auto latent = layer.tensors.at(TensorId::q_latent).as<std::uint16_t>();
  REQUIRE(std::vector(latent.begin(), latent.begin() + 4) ==
          std::vector<std::uint16_t>{0x7FC0, 0x7FC0, 0x7F80, 0x3F80});
  const auto lse = layer.tensors.at(TensorId::attention_lse).as<std::uint32_t>();
  REQUIRE(std::vector(lse.begin(), lse.begin() + 4) ==
          std::vector<std::uint32_t>{0x7FC00000U, 0x7FC00000U, 0xFF800000U, 1U});
  // The bytes spelled out by hand, little endian, hashed by the library itself.
  const std::array<unsigned char, 8> once{0xC0, 0x7F, 0xC0, 0x7F, 0x80, 0x7F, 0x80, 0x3F};
  std::array<unsigned char, 512> canonical{};
  for (std::size_t i = 0; i < canonical.size(); ++i) canonical[i] = once[i % once.size()];
  REQUIRE(reader.entry("/steps/000000/layer_00/q.down/q_latent").digest ==
          hex128(XXH3_128bits(canonical.data(), canonical.size())));
}

TEST_CASE("datasets follow the storage rules") {
  const sample::Folder folder;
  const std::string path = folder / "a.h5";
  write_sample(path, {sample::step(0, 600)});
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  REQUIRE(file >= 0);
  struct Expect {
    const char* object;
    hid_t type;
    H5D_layout_t layout;
    std::vector<hsize_t> chunk;
    std::vector<H5Z_filter_t> filters;
  };
  const std::vector<Expect> expectations{
      // 600 x 4 x 512 bf16: rows of 4 KiB, 64 of them are 256 KiB
      {"/steps/000000/layer_00/q.up/q",
       H5T_STD_U16LE,
       H5D_CHUNKED,
       {64, 4, 512},
       {H5Z_FILTER_SHUFFLE, H5Z_FILTER_DEFLATE, H5Z_FILTER_FLETCHER32}},
      // one byte an element: no shuffle; 262144 / 448 = 585 rows
      {"/steps/000000/layer_00/kv.window/codes",
       H5T_STD_U8LE,
       H5D_CHUNKED,
       {585, 448},
       {H5Z_FILTER_DEFLATE, H5Z_FILTER_FLETCHER32}},
      {"/steps/000000/layer_00/kv.window/scales", H5T_STD_U8LE, H5D_CONTIGUOUS, {}, {}},
      {"/steps/000000/layer_01/indexer.score/scores", H5T_IEEE_F32LE, H5D_CONTIGUOUS, {}, {}},
      {"/steps/000000/batch/request", H5T_STD_I32LE, H5D_CONTIGUOUS, {}, {}},
  };
  for (const Expect& expect : expectations) {
    INFO(expect.object);
    const hid_t dataset = H5Dopen2(file, expect.object, H5P_DEFAULT);
    REQUIRE(dataset >= 0);
    const hid_t type = H5Dget_type(dataset);
    const hid_t creation = H5Dget_create_plist(dataset);
    REQUIRE(H5Tequal(type, expect.type) > 0);
    REQUIRE(H5Pget_layout(creation) == expect.layout);
    std::vector<hsize_t> chunk(expect.chunk.size());
    if (!chunk.empty()) H5Pget_chunk(creation, static_cast<int>(chunk.size()), chunk.data());
    REQUIRE(chunk == expect.chunk);
    std::vector<H5Z_filter_t> filters;
    for (unsigned i = 0; i < static_cast<unsigned>(H5Pget_nfilters(creation)); ++i) {
      unsigned flags = 0;
      std::size_t count = 1;
      unsigned level = 99;
      filters.push_back(H5Pget_filter2(creation, i, &flags, &count, &level, 0, nullptr, nullptr));
      if (filters.back() == H5Z_FILTER_DEFLATE) REQUIRE(level == 1);
    }
    REQUIRE(filters == expect.filters);
    H5O_info_t info;
    H5Oget_info2(dataset, &info, H5O_INFO_TIME);
    REQUIRE(info.mtime == 0);
    H5Pclose(creation);
    H5Tclose(type);
    H5Dclose(dataset);
  }
  const hid_t attribute =
      H5Aopen_by_name(file, "/steps/000000/layer_00/q.up/q", "dims", H5P_DEFAULT, H5P_DEFAULT);
  const hid_t text = H5Aget_type(attribute);
  REQUIRE(H5Tis_variable_str(text) == 0);
  REQUIRE(H5Tget_size(text) == std::string("token,head,dim").size());
  H5Tclose(text);
  H5Aclose(attribute);
  H5Fclose(file);

  const Hdf5File again = Hdf5File::open(path);
  REQUIRE(again.attribute_names("/") == std::vector<std::string>{"complete", "device", "engine", "profile",
                                                                 "schema", "seed", "tool_version"});
  REQUIRE(again.attribute_names("/steps/000000/layer_00/q.up/q") ==
          std::vector<std::string>{"digest", "dims", "dtype", "role"});
}

TEST_CASE("an event longer than an attribute may be survives") {
  const sample::Folder folder;
  StepObservation step = sample::step(0, 1);
  step.event = "{\"long\":\"" + std::string(200000, 'x') + "end\"}";
  write_sample(folder / "a.h5", {step});
  REQUIRE(DumpReader(folder / "a.h5").read_step(0).event == step.event);
}

TEST_CASE("the estimate bounds what a step adds") {
  const sample::Folder folder;
  for (const bool compress : {true, false}) {
    DumpWriter writer(folder / "a.h5", sample::source(), {.compress = compress});
    std::int64_t before = writer.bytes();
    for (const std::int64_t tokens : {0, 1, 40, 600, 601, 2000}) {
      const StepObservation step = sample::step(writer.steps(), tokens);
      writer.write(step);
      INFO(tokens << " tokens");
      REQUIRE(writer.bytes() - before <= estimate_bytes(step));
      before = writer.bytes();
    }
  }
}

TEST_CASE("the cap and missing space are said before anything is written") {
  const sample::Folder folder;
  const std::string path = folder / "a.h5";
  {
    DumpWriter writer(path, sample::source(), {.max_bytes = 2'000'000});
    writer.write(sample::step(0, 3));
    REQUIRE(contains(refusal([&] { writer.write(sample::step(1, 2000)); }), "the cap is 2000000 bytes"));
  }
  REQUIRE_FALSE(fs::exists(path));
  const DumpReader partial(path + ".partial", true);
  REQUIRE_FALSE(partial.info().complete);
  require_equal(partial.read_step(0), sample::step(0, 3));
  REQUIRE(partial.steps().size() == 1);
  require_free_space(path, 1);
  REQUIRE(contains(refusal([&] { require_free_space(path, std::int64_t{1} << 60); }), "free"));
  REQUIRE(
      contains(refusal([&] { require_free_space("/nonexistent-folder/x", 1); }), "/nonexistent-folder/x"));
}

TEST_CASE("an unwritable place and an unwanted overwrite are refused") {
  const sample::Folder folder;
  REQUIRE(contains(refusal([&] { DumpWriter("/nonexistent-folder/a.h5", sample::source()); }),
                   "/nonexistent-folder/a.h5.partial: cannot create: No such file or directory"));
  write_sample(folder / "a.h5", {});
  REQUIRE(contains(refusal([&] { DumpWriter(folder / "a.h5", sample::source(), {.overwrite = false}); }),
                   "exists"));
}

TEST_CASE("foreign files are refused with the reason") {
  const sample::Folder folder;
  REQUIRE(contains(refusal([&] { DumpReader(folder / "none.h5"); }), "none.h5: cannot open: No such file"));
  sample::put_bytes(folder / "text.h5", "this is no HDF5 file at all, only some text\n");
  REQUIRE(contains(refusal([&] { DumpReader(folder / "text.h5"); }), "text.h5: cannot open: "));
  sample::put_bytes(folder / "empty.h5", "");
  REQUIRE(contains(refusal([&] { DumpReader(folder / "empty.h5"); }), "empty.h5: cannot open: "));
  { Hdf5File::create(folder / "plain.h5").flush(); }
  REQUIRE(contains(refusal([&] { DumpReader(folder / "plain.h5"); }), "not a dump"));
  {
    Hdf5File other = Hdf5File::create(folder / "other.h5");
    other.root().set("schema", std::string("dsv4-dump/2"));
  }
  REQUIRE(contains(refusal([&] { DumpReader(folder / "other.h5"); }), "schema is 'dsv4-dump/2'"));
}

TEST_CASE("a truncated file is refused at any length, or was whole") {
  const sample::Folder folder;
  write_sample(folder / "a.h5", {sample::step(0, 3), sample::step(1, 40)});
  const std::string whole = sample::bytes_of(folder / "a.h5");
  const std::string path = folder / "cut.h5";
  const std::size_t stride = whole.size() / 97;
  for (std::size_t length = 0; length < whole.size(); length += stride) {
    sample::put_bytes(path, whole.substr(0, length));
    INFO(length << " of " << whole.size());
    REQUIRE_THROWS_AS(DumpReader(path), FileError);
  }
  sample::put_bytes(path, whole.substr(0, whole.size() - 1));
  REQUIRE(contains(refusal([&] { DumpReader reader(path); }), "truncated"));
}

TEST_CASE("a changed bit in any tensor's content is found by its digest") {
  const sample::Folder folder;
  const StepObservation step = sample::step(0, 5);
  write_sample(folder / "a.h5", {step}, {.compress = false});
  const std::string whole = sample::bytes_of(folder / "a.h5");
  for (const TensorId id : {TensorId::hidden, TensorId::q, TensorId::window_codes}) {
    const auto bytes = step.layers[0].tensors.at(id).bytes();
    const std::size_t at = whole.find(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    REQUIRE(at != std::string::npos);
    std::string damaged = whole;
    damaged[at + bytes.size() / 2] ^= 4;
    sample::put_bytes(folder / "b.h5", damaged);
    DumpReader trusting(folder / "b.h5");
    REQUIRE(trusting.next().has_value());
    REQUIRE(contains(refusal([&] { trusting.verify(); }), path(id)));
    DumpReader checking(folder / "b.h5", true);
    REQUIRE(contains(refusal([&] { checking.next(); }), path(id)));
  }
}

TEST_CASE("damage inside a compressed chunk is found by HDF5's own checksum") {
  const sample::Folder folder;
  write_sample(folder / "a.h5", {sample::step(0, 600)});
  const hid_t raw = H5Fopen((folder / "a.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t dataset = H5Dopen2(raw, "/steps/000000/layer_00/q.up/q", H5P_DEFAULT);
  haddr_t address = 0;
  hsize_t size = 0;
  hsize_t offset[3];
  unsigned mask = 0;
  const hid_t space = H5Dget_space(dataset);
  REQUIRE(H5Dget_chunk_info(dataset, space, 2, offset, &mask, &address, &size) >= 0);
  H5Sclose(space);
  H5Dclose(dataset);
  H5Fclose(raw);
  std::string damaged = sample::bytes_of(folder / "a.h5");
  damaged[address + size / 2] ^= 1;
  sample::put_bytes(folder / "b.h5", damaged);
  DumpReader reader(folder / "b.h5");
  REQUIRE(contains(refusal([&] { reader.next(); }), "cannot read dataset /steps/000000/layer_00/q.up/q"));
}

TEST_CASE("content that contradicts the catalogue is refused") {
  const sample::Folder folder;
  StepObservation step = sample::step(0, 3);
  step.layers[0].tensors[TensorId::q_latent] = Tensor(DType::bfloat16, {4, 128});
  write_sample(folder / "rows.h5", {step});
  REQUIRE(contains(refusal([&] { DumpReader(folder / "rows.h5").read_step(0); }),
                   "q.down/q_latent has 4 rows, the batch of its step has 3"));
  step.layers[0].tensors[TensorId::q_latent] = Tensor(DType::bfloat16, {3, 64, 2});
  write_sample(folder / "rank.h5", {step});
  REQUIRE(contains(refusal([&] { DumpReader(folder / "rank.h5").read_step(0); }), "has 3 axes"));
}

TEST_CASE("names of steps and layers read back") {
  REQUIRE(step_name(17) == "000017");
  REQUIRE(step_name(1234567) == "1234567");
  REQUIRE(step_number("000017") == 17);
  REQUIRE(step_number("1234567") == 1234567);
  for (const char* bad : {"17", "", "0000017", "00001x", "-00017", "99999999999999999999"}) {
    REQUIRE(step_number(bad) == -1);
  }
  REQUIRE(layer_name(2) == "layer_02");
  REQUIRE(layer_number("layer_02") == 2);
  REQUIRE(layer_number("layer_102") == 102);
  for (const char* bad : {"layer_2", "layer_", "layers_02", "layer_002"}) REQUIRE(layer_number(bad) == -1);
}
