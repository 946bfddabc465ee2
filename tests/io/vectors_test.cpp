// JSON vectors: hex spelled by hand, round trip, the schema on disk, and refusals.
#include "io/vectors.hpp"

#include <cstdlib>
#include <filesystem>

#include "model/error.hpp"
#include "sample.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::io;

namespace {

VectorFile quantiser_vectors() {
  VectorFile file;
  file.schema = "quant_block_v1.json";
  file.algorithm = "block quantiser, e4m3 with ue8m0 scale";
  file.spec_revision = "1";
  file.notes = {
      {"TieToEven", {"EDGE_CASE", "a value exactly between two codes"}},
      {"ScaleCarry", {"MISSING_STEP", "amax / 448 just above a power of two: the scale rounds up"}}};
  VectorGroup group{"QuantBlock", {{"block", 2}}, {{"format", "float8_e4m3fn"}}, {}};
  group.tests.push_back(
      {1, "zeros", {}, {{"input", "0000000000000000"}, {"codes", "0000"}, {"scale", "69"}}, "valid"});
  group.tests.push_back({2,
                         "1.0625",
                         {"TieToEven"},
                         {{"input", "3f88000043e00000"}, {"codes", "387e"}, {"scale", "7f"}},
                         "valid"});
  file.groups.push_back(group);
  return file;
}

std::string refusal(const std::string& path) {
  try {
    read_vectors(path);
  } catch (const FileError& error) {
    return error.what();
  }
  return "accepted";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("hex has the most significant digit of each element first") {
  const std::uint16_t halves[]{0x3F80, 0x0001};
  REQUIRE(to_hex<std::uint16_t>(halves) == "3f800001");
  REQUIRE(from_hex<std::uint16_t>("3f800001") == std::vector<std::uint16_t>{0x3F80, 0x0001});
  const std::uint8_t bytes[]{0x00, 0xFE, 0x7F};
  REQUIRE(to_hex<std::uint8_t>(bytes) == "00fe7f");
  REQUIRE(from_hex<std::uint8_t>("00fe7f") == std::vector<std::uint8_t>{0x00, 0xFE, 0x7F});
  const std::uint32_t words[]{0xDEADBEEF};
  REQUIRE(to_hex<std::uint32_t>(words) == "deadbeef");
  REQUIRE(from_hex<std::uint32_t>("deadbeef00000001") == std::vector<std::uint32_t>{0xDEADBEEF, 1});
  REQUIRE(from_hex<std::uint32_t>("").empty());
  REQUIRE_THROWS_AS(from_hex<std::uint16_t>("3f8"), FileError);
  REQUIRE_THROWS_AS(from_hex<std::uint8_t>("0G"), FileError);
  REQUIRE_THROWS_AS(from_hex<std::uint8_t>("0A"), FileError);
}

TEST_CASE("vectors come back, and the same content gives the same bytes") {
  const sample::Folder folder;
  write_vectors(folder / "a.json", quantiser_vectors());
  write_vectors(folder / "b.json", quantiser_vectors());
  REQUIRE(sample::bytes_of(folder / "a.json") == sample::bytes_of(folder / "b.json"));
  const VectorFile read = read_vectors(folder / "a.json");
  const VectorFile wrote = quantiser_vectors();
  REQUIRE(read.schema == wrote.schema);
  REQUIRE(read.algorithm == wrote.algorithm);
  REQUIRE(read.spec_revision == wrote.spec_revision);
  REQUIRE(read.test_count() == 2);
  REQUIRE(read.notes.at("TieToEven").bug_type == "EDGE_CASE");
  REQUIRE(read.groups.size() == 1);
  REQUIRE(read.groups[0].type == "QuantBlock");
  REQUIRE(read.groups[0].parameters == wrote.groups[0].parameters);
  REQUIRE(read.groups[0].labels == wrote.groups[0].labels);
  const VectorCase& test = read.groups[0].tests[1];
  REQUIRE(test.tc_id == 2);
  REQUIRE(test.flags == std::vector<std::string>{"TieToEven"});
  REQUIRE(test.fields == wrote.groups[0].tests[1].fields);
  REQUIRE(test.field("scale") == "7f");
  REQUIRE_THROWS_AS(test.field("missing"), FileError);
}

TEST_CASE("vectors that contradict themselves are refused") {
  const sample::Folder folder;
  write_vectors(folder / "a.json", quantiser_vectors());
  const std::string whole = sample::bytes_of(folder / "a.json");
  const std::string path = folder / "bad.json";
  struct Change {
    const char* from;
    const char* to;
    const char* reason;
  };
  for (const Change& change :
       std::vector<Change>{{"\"numberOfTests\": 2", "\"numberOfTests\": 3", "states 3 tests"},
                           {"\"tcId\": 2", "\"tcId\": 1", "tcId 1 follows 1"},
                           {"\"flags\": []", "\"flags\": [\"New\"]", "'New', which has no note"},
                           {"\"schema\"", "\"shema\"", "unknown key 'shema'"},
                           {"\"result\"", "\"results\"", "has no 'result'"},
                           {"\"codes\": \"0000\"", "\"codes\": 0", "'codes' that is not text"},
                           {"\"testGroups\": [", "\"testGroups\": [[", "not JSON"}}) {
    sample::put_bytes(path, replaced(whole, change.from, change.to));
    const std::string message = refusal(path);
    INFO(message);
    REQUIRE(message.find(change.reason) != std::string::npos);
    REQUIRE(message.find(path) == 0);
  }
  VectorFile wrong = quantiser_vectors();
  wrong.groups[0].tests[0].flags = {"Unknown"};
  REQUIRE_THROWS_AS(write_vectors(folder / "c.json", wrong), InternalError);
  REQUIRE_FALSE(std::filesystem::exists(folder / "c.json"));
  REQUIRE(refusal(folder / "none.json").find("cannot open") != std::string::npos);
}
