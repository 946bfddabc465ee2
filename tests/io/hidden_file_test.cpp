// Hidden states from HDF5: rows come back, what is missing is named.
#include "io/hidden_file.hpp"

#include "io/hdf5_file.hpp"
#include "model/error.hpp"
#include "sample.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::io;

namespace {

RunConfig run() {
  RunConfig config;
  config.geometry = geometry_preset("tiny");
  config.layers = {LayerKind::swa, LayerKind::csa};
  config.requests = {"a", "b"};
  return config;
}

void write(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& requests,
           const std::string& dtype = "bfloat16") {
  Hdf5File file = Hdf5File::create(path);
  Hdf5Group root = file.root();
  Hdf5Group hidden = root.create_group("hidden");
  for (const auto& [name, tensor] : requests) hidden.write(name, tensor, {{"dtype", dtype}}, {});
}

std::vector<std::uint16_t> row(const HiddenSource& source, int layer, std::int32_t request,
                               std::int32_t position) {
  std::vector<std::uint16_t> out(256);
  source.hidden(layer, Row{request, position, 0}, out);
  return out;
}

template <class Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const FileError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("rows of hidden states are read in any order, for every layer") {
  const sample::Folder folder;
  const Tensor a = sample::noise<std::uint16_t>(DType::bfloat16, {200, 256}, 1);
  const Tensor b = sample::noise<std::uint16_t>(DType::bfloat16, {2, 3, 256}, 2);  // a row set a layer
  write(folder / "h.h5", {{"a", a}, {"b", b}});
  const auto source = file_hidden(run(), folder / "h.h5");
  for (const std::int32_t position : {0, 199, 63, 64, 65, 128, 1}) {
    const auto expected = a.as<std::uint16_t>().subspan(static_cast<std::size_t>(position) * 256, 256);
    for (const int layer : {0, 1}) REQUIRE(std::ranges::equal(row(*source, layer, 0, position), expected));
  }
  for (const int layer : {1, 0}) {
    for (const std::int32_t position : {2, 0}) {
      const auto at = static_cast<std::size_t>(layer * 3 + position) * 256;
      REQUIRE(std::ranges::equal(row(*source, layer, 1, position), b.as<std::uint16_t>().subspan(at, 256)));
    }
  }
  REQUIRE(refusal([&] { row(*source, 0, 1, 3); }).find("request 'b' needs the hidden state of position 3") !=
          std::string::npos);
  REQUIRE(refusal([&] { row(*source, 0, 0, 200); }).find("/hidden/a has 200 rows") != std::string::npos);
}

TEST_CASE("a file of hidden states that does not fit the run is refused") {
  const sample::Folder folder;
  const Tensor good(DType::bfloat16, {4, 256});
  const std::string path = folder / "h.h5";
  write(path, {{"a", good}});
  REQUIRE(refusal([&] { file_hidden(run(), path); }).find("there is no /hidden/b for request 'b'") !=
          std::string::npos);
  write(path, {{"a", good}, {"b", Tensor(DType::bfloat16, {4, 128})}});
  REQUIRE(refusal([&] {
            file_hidden(run(), path);
          }).find("/hidden/b has shape [4, 128], expected [tokens, 256] or [2, tokens, 256]") !=
          std::string::npos);
  write(path, {{"a", good}, {"b", Tensor(DType::bfloat16, {3, 4, 256})}});
  REQUIRE(refusal([&] { file_hidden(run(), path); }).find("has shape [3, 4, 256]") != std::string::npos);
  write(path, {{"a", good}, {"b", good}}, "float16");
  REQUIRE(refusal([&] { file_hidden(run(), path); }).find("has dtype 'float16'") != std::string::npos);
  write(path, {{"a", good}, {"b", Tensor(DType::float32, {4, 256})}});
  const auto source = file_hidden(run(), path);
  REQUIRE(refusal([&] { row(*source, 0, 1, 0); }).find("is not stored as bfloat16 bits") !=
          std::string::npos);
  sample::put_bytes(folder / "text.h5", "no HDF5");
  REQUIRE(refusal([&] { file_hidden(run(), folder / "text.h5"); }).find("cannot open") != std::string::npos);
}
