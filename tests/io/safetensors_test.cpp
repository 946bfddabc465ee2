// safetensors: files made by hand byte for byte, our files read by another program, and everything refusable.
#include "io/safetensors.hpp"

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "model/error.hpp"
#include "sample.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::io;

namespace {

std::string file_of(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

std::string refusal(const std::string& path) {
  try {
    const SafetensorsFile file(path);
  } catch (const FileError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a file spelled out by hand is read") {
  const sample::Folder folder;
  const std::string path = folder / "a.safetensors";
  sample::put_bytes(
      path, file_of(R"({"__metadata__":{"k":"v"},"b":{"dtype":"F8_E4M3","shape":[3],)"
                    R"("data_offsets":[8,11]},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                    R"("none":{"dtype":"I64","shape":[0,5],"data_offsets":[11,11]}})",
                    std::string("\0\0\x80\x3F\0\0\0\xC0\x38\x7E\x01", 11)));
  const SafetensorsFile file(path);
  REQUIRE(file.metadata() == std::map<std::string, std::string>{{"k", "v"}});
  REQUIRE(file.tensors().size() == 3);
  const Tensor a = to_tensor(*file.find("a"));
  REQUIRE(a.dtype() == DType::float32);
  REQUIRE(a.shape() == std::vector<std::int64_t>{1, 2});
  REQUIRE(a.as<float>()[0] == 1.0F);
  REQUIRE(a.as<float>()[1] == -2.0F);
  REQUIRE(to_tensor(*file.find("b")).as<std::uint8_t>()[1] == 0x7E);
  REQUIRE(file.find("c") == nullptr);
  REQUIRE_THROWS_AS(to_tensor(*file.find("none")), FileError);
}

TEST_CASE("what is written is sorted, padded and read back, by us and by another program") {
  const sample::Folder folder;
  const std::string path = folder / "out.safetensors";
  const Tensor codes = sample::noise<std::uint8_t>(DType::float8_e4m3fn, {5, 7}, 1);
  const Tensor scales = sample::noise<std::uint8_t>(DType::float8_e8m0fnu, {3}, 2);
  const Tensor wide = sample::noise<std::uint32_t>(DType::float32, {2, 2}, 3);
  const Tensor half = sample::noise<std::uint16_t>(DType::bfloat16, {4}, 4);
  const Tensor list = sample::noise<std::uint32_t>(DType::int32, {0}, 5);
  const std::vector<std::pair<std::string, const Tensor*>> tensors{
      {"z", &codes}, {"a", &scales}, {"m.b", &wide}, {"m.a", &half}, {"none", &list}};
  std::vector<StOutput> outputs;
  for (const auto& [name, tensor] : tensors) {
    outputs.push_back({name, safetensors_dtype(tensor->dtype()), tensor->shape(), tensor->bytes()});
  }
  write_safetensors(path, outputs, {{"case", "one \"quoted\""}});
  REQUIRE_FALSE(std::filesystem::exists(path + ".partial"));
  const SafetensorsFile file(path);
  REQUIRE(file.metadata().at("case") == "one \"quoted\"");
  for (const auto& [name, tensor] : tensors) {
    const Tensor read = to_tensor(*file.find(name));
    REQUIRE(read.dtype() == tensor->dtype());
    REQUIRE(read.shape() == tensor->shape());
    REQUIRE(std::ranges::equal(read.bytes(), tensor->bytes()));
  }
  // Python's own struct and json: header length, order of names, padding, offsets without holes, content.
  const auto hex = [](const Tensor& tensor) {
    std::string text;
    for (const std::byte byte : tensor.bytes()) {
      text += "0123456789abcdef"[std::to_integer<int>(byte) >> 4];
      text += "0123456789abcdef"[std::to_integer<int>(byte) & 15];
    }
    return text;
  };
  const std::string script =
      "import json, struct, sys\n"
      "raw = open('" +
      path +
      "', 'rb').read()\n"
      "n = struct.unpack('<Q', raw[:8])[0]\n"
      "assert n % 8 == 0, n\n"
      "head = json.loads(raw[8:8 + n])\n"
      "data = raw[8 + n:]\n"
      "assert head.pop('__metadata__') == {'case': 'one \"quoted\"'}\n"
      "assert list(head) == ['a', 'm.a', 'm.b', 'none', 'z'], list(head)\n"
      "at = 0\n"
      "for name, t in head.items():\n"
      "    assert t['data_offsets'][0] == at, name\n"
      "    at = t['data_offsets'][1]\n"
      "assert at == len(data)\n"
      "def check(name, dtype, shape, text):\n"
      "    t = head[name]\n"
      "    assert (t['dtype'], t['shape']) == (dtype, shape), t\n"
      "    assert data[t['data_offsets'][0]:t['data_offsets'][1]].hex() == text, name\n"
      "check('z', 'F8_E4M3', [5, 7], '" +
      hex(codes) +
      "')\n"
      "check('a', 'F8_E8M0', [3], '" +
      hex(scales) +
      "')\n"
      "check('m.b', 'F32', [2, 2], '" +
      hex(wide) +
      "')\n"
      "check('m.a', 'BF16', [4], '" +
      hex(half) +
      "')\n"
      "check('none', 'I32', [0], '')\n";
  sample::put_bytes(folder / "check.py", script);
  REQUIRE(std::system(("/usr/bin/python3 " + (folder / "check.py")).c_str()) == 0);
}

TEST_CASE("a file written by another program is read") {
  const sample::Folder folder;
  const std::string path = folder / "py.safetensors";
  sample::put_bytes(
      folder / "write.py",
      "import json, struct\n"
      "head = json.dumps({'x': {'dtype': 'BF16', 'shape': [2], 'data_offsets': [0, 4]},\n"
      "                   'y': {'dtype': 'U8', 'shape': [2, 1], 'data_offsets': [4, 6]}}).encode()\n"
      "open('" +
          path +
          "', 'wb').write(struct.pack('<Q', len(head)) + head +\n"
          "    struct.pack('<HH', 0x3f80, 0xc000) + bytes([7, 255]))\n");
  REQUIRE(std::system(("/usr/bin/python3 " + (folder / "write.py")).c_str()) == 0);
  const SafetensorsFile file(path);
  REQUIRE(to_tensor(*file.find("x")).as<std::uint16_t>()[1] == 0xC000);
  REQUIRE(to_tensor(*file.find("y")).as<std::uint8_t>()[1] == 255);
}

TEST_CASE("broken files are refused with the reason") {
  const sample::Folder folder;
  const std::string path = folder / "bad.safetensors";
  struct Broken {
    std::string header;
    std::string data;
    const char* reason;
  };
  const std::string four(4, 'x');
  const std::vector<Broken> cases{
      {"{", "", "header is not JSON"},
      {"[]", "", "not a JSON object"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       four, "names 'a' twice"},
      {R"({"a":{"dtype":"U8","dtype":"I8","shape":[4],"data_offsets":[0,4]}})", four, "names 'dtype' twice"},
      {R"({"a":{"dtype":"F8_E5M3","shape":[4],"data_offsets":[0,4]}})", four, "unknown dtype 'F8_E5M3'"},
      {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", four, "overflows"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}})", four, "overflows"},
      {R"({"a":{"dtype":"U8","shape":[-4],"data_offsets":[0,4]}})", four, "no natural number: -4"},
      {R"({"a":{"dtype":"U8","shape":[4.0],"data_offsets":[0,4]}})", four, "no natural number"},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,4]}})", four,
       "has 4 bytes, its shape and dtype need 3"},
      {R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]}})", four, "lies at bytes 0 to 5 of 4"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", four, "lies at bytes 4 to 0 of 4"},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
       four, "'b' begins at byte 2, inside another one that ends at 3"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
       four, "behind a hole"},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", four,
       "4 bytes of data, the header describes 3"},
      {R"({"a":{"dtype":"U8","shape":[4]}})", four, "exactly dtype, shape and data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"extra":1}})", four, "exactly dtype, shape"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0]}})", four, "exactly dtype, shape"},
      {R"({"__metadata__":{"k":1}})", "", "metadata 'k' is not text"},
  };
  for (const Broken& broken : cases) {
    sample::put_bytes(path, file_of(broken.header, broken.data));
    const std::string message = refusal(path);
    INFO(broken.header << " -> " << message);
    REQUIRE(message.find(broken.reason) != std::string::npos);
    REQUIRE(message.find(path) == 0);
  }
  REQUIRE(refusal(folder / "none").find("cannot open: No such file") != std::string::npos);
  REQUIRE(refusal(folder / ".").find("not a regular file") != std::string::npos);
}

TEST_CASE("a file cut anywhere is refused") {
  const sample::Folder folder;
  const Tensor tensor = sample::noise<std::uint8_t>(DType::uint8, {40}, 1);
  write_safetensors(folder / "a", {{"t", StDType::u8, {40}, tensor.bytes()}}, {});
  const std::string whole = sample::bytes_of(folder / "a");
  REQUIRE(refusal(folder / "a") == "accepted");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    sample::put_bytes(folder / "cut", whole.substr(0, length));
    REQUIRE(refusal(folder / "cut") != "accepted");
  }
  std::string huge = whole;
  std::memset(huge.data(), 0xFF, 8);
  sample::put_bytes(folder / "cut", huge);
  REQUIRE(refusal(folder / "cut").find("header of 18446744073709551615 bytes") != std::string::npos);
}

TEST_CASE("a file that cannot be written leaves nothing") {
  const Tensor tensor(DType::uint8, {4});
  REQUIRE_THROWS_AS(write_safetensors("/nonexistent-folder/x", {{"t", StDType::u8, {4}, tensor.bytes()}}, {}),
                    FileError);
  REQUIRE_THROWS_AS(write_safetensors("/dev/full/x", {}, {}), FileError);
  const sample::Folder folder;
  REQUIRE_THROWS_AS(
      write_safetensors(folder / "twice",
                        {{"t", StDType::u8, {4}, tensor.bytes()}, {"t", StDType::u8, {4}, tensor.bytes()}},
                        {}),
      InternalError);
  REQUIRE_FALSE(std::filesystem::exists(folder / "twice"));
}
