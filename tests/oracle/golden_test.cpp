#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "oracle/golden/export.hpp"
#include "oracle/golden/files.hpp"
#include "oracle/golden/vectors.hpp"
#include "oracle/support.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::oracle;

namespace {

struct Folder {
  std::string path = "/tmp/dsv4_golden_test_" + std::to_string(getpid());
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

const io::VectorCase& find_case(const io::VectorGroup& group, const std::string& comment) {
  for (const io::VectorCase& test : group.tests) {
    if (test.comment == comment) return test;
  }
  throw InternalError("no such vector");
}

}  // namespace

TEST_CASE("golden files repeat byte for byte, and a changed one is found") {
  Folder folder;
  const golden::Case one = golden::cases_matching("canonical-swa").front();
  const golden::Record record = golden::record(one, "reference", test::reference_factory());
  golden::write_files(folder.path, record);
  const std::string digests = folder.path + "/canonical-swa.digests";
  const std::string rows = folder.path + "/canonical-swa.h5";
  const std::string first_digests = file_text(digests);
  const std::string first_rows = file_text(rows);
  golden::write_files(folder.path, golden::record(one, "reference", test::reference_factory()));
  CHECK(file_text(digests) == first_digests);
  CHECK(file_text(rows) == first_rows);

  golden::Verification result = golden::verify_files(folder.path, record);
  CHECK(result.mismatches.empty());
  CHECK(result.compared > 100);

  std::string changed = first_digests;
  const std::size_t line = changed.find("000001 layer_00/q.up/q ");
  REQUIRE(line != std::string::npos);
  char& digit = changed[changed.find('\n', line) - 1];
  digit = digit == '0' ? '1' : '0';
  std::ofstream(digests, std::ios::binary) << changed;
  result = golden::verify_files(folder.path, record);
  REQUIRE(result.mismatches.size() == 1);
  CHECK(result.mismatches[0].place.find("000001 layer_00/q.up/q") != std::string::npos);

  std::filesystem::remove(rows);
  CHECK_THROWS_AS(golden::verify_files(folder.path, record), FileError);
}

TEST_CASE("an engine with a fault fails the golden data at that stage") {
  Folder folder;
  const golden::Case one = golden::cases_matching("canonical-swa").front();
  golden::write_files(folder.path, golden::record(one, "reference", test::reference_factory()));
  const EngineFactory broken = [](const std::string& name, const RunConfig& config,
                                  std::shared_ptr<const WeightSource> weights,
                                  std::shared_ptr<const HiddenSource> hidden) {
    auto engine = test::reference_factory()(name, config, std::move(weights), std::move(hidden));
    test::break_stage(*engine, Stage::output_project, TensorId::hidden_out);
    return engine;
  };
  const golden::Verification result =
      golden::verify_files(folder.path, golden::record(one, "reference", broken));
  CHECK_FALSE(result.mismatches.empty());
  for (const golden::Mismatch& mismatch : result.mismatches) {
    const bool here = mismatch.place.find("hidden_out") != std::string::npos ||
                      mismatch.place.find("step ") != std::string::npos;
    CHECK(here);
  }
}

TEST_CASE("every row-keeping case has the inputs and outputs of each of its stages") {
  for (const char* kind : {"swa", "csa", "hca"}) {
    const golden::Case one = golden::cases_matching(std::string("canonical-") + kind).front();
    const golden::Record record = golden::record(one, "reference", test::reference_factory());
    for (const Stage stage : execution_order(record.config.layers.front(), false)) {
      const bool found = std::ranges::any_of(
          record.kept, [&](const golden::KeptTensor& k) { return k.stage == name(stage); });
      CHECK(found);
    }
  }
  CHECK_THROWS_AS(golden::cases_matching("none"), UsageError);
}

TEST_CASE("vectors hold values known by hand") {
  const auto files = golden::vector_files();
  REQUIRE(files.size() == 4);
  const io::VectorFile& convert = files[0].second;
  // 1.0625 lies between 1 (0x38) and 1.125 (0x39): even wins. 464 and above saturate at 0x7e. -1.75 -> -2
  // (0xc).
  CHECK(find_case(convert.groups[1], "1.0625, between two e4m3 codes").field("output") == "38");
  CHECK(find_case(convert.groups[1], "464, would round to 480").field("output") == "7e");
  CHECK(find_case(convert.groups[1], "NaN").field("output") == "7f");
  CHECK(find_case(convert.groups[2], "-1.75").field("output") == "0c");
  CHECK(find_case(convert.groups[2], "2.5, between 2 and 3 of e2m1").field("output") == "04");
  CHECK(find_case(convert.groups[0], "1 + 2^-8, between two bf16 values").field("output") == "3f80");
  CHECK(find_case(convert.groups[0], "1 + 3 * 2^-8").field("output") == "3f82");
  CHECK(find_case(convert.groups[0], "largest f32").field("output") == "7f80");

  const io::VectorFile& quant = files[1].second;
  CHECK(find_case(quant.groups[0], "largest magnitude exactly M: scale 2^0").field("scale") == "7f");
  CHECK(find_case(quant.groups[0], "one bf16 step above M: the next exponent").field("scale") == "80");
  CHECK(find_case(quant.groups[0], "all zero: the scale of the floor").field("scale") == "69");  // 2^-22
  CHECK(find_case(quant.groups[2], "all zero: the scale of the floor").field("scale") == "01");  // 2^-126
  CHECK(find_case(quant.groups[0], "an infinity: scale byte 254").field("scale") == "fe");

  const io::VectorFile& top = files[2].second;
  const io::VectorGroup& group = top.groups[0];
  CHECK(find_case(group, "a tie at the cut").field("ascending") == "00000000000000010000000200000003");
  CHECK(find_case(group, "a tie at the cut").field("descending") == "00000003000000010000000000000002");
  CHECK(find_case(group, "zeros of both signs at the cut").field("descending") == "000000030000000000000001");
  CHECK(find_case(group, "-inf before NaN").field("descending") == "000000020000000100000004");
  CHECK(find_case(group, "fewer than k").field("count") == "2");
}
