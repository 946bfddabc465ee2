// What a command may write to: nothing that is read, that is no file, or that somebody else's program wrote.
#include "io/output_path.hpp"

#include <sys/stat.h>

#include <filesystem>

#include "io/atomic_hdf5.hpp"
#include "io/dump_writer.hpp"
#include "model/error.hpp"
#include "sample.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::io;
namespace fs = std::filesystem;

namespace {

void writes(const std::string& path, OutputKind kind) {
  OutputPaths().writes(path, kind);
}

}  // namespace

TEST_CASE("a new name, an empty file and an older result of the same kind may be written") {
  const sample::Folder folder;
  writes(folder / "new.h5", OutputKind::hdf5);
  sample::put_bytes(folder / "empty.h5", "");
  writes(folder / "empty.h5", OutputKind::hdf5);
  { DumpWriter(folder / "dump.h5", sample::source()).finish(); }
  writes(folder / "dump.h5", OutputKind::hdf5);
  write_hdf5(folder / "state.h5",
             [](Hdf5Group& root) { root.set("schema", std::string("dsv4-checkpoint/1")); });
  writes(folder / "state.h5", OutputKind::hdf5);
  sample::put_bytes(folder / "a.yaml", "steps: []\n");
  writes(folder / "a.yaml", OutputKind::text);
  REQUIRE_FALSE(fs::exists(folder / "new.h5"));
}

TEST_CASE("what is no regular file is refused, and so is its .partial") {
  const sample::Folder folder;
  fs::create_directory(folder / "folder");
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  for (const std::string& path : {folder / "folder", folder / "pipe", std::string("/dev/null")}) {
    INFO(path);
    REQUIRE_THROWS_AS(writes(path, OutputKind::hdf5), FileError);
    REQUIRE_THROWS_AS(writes(path, OutputKind::text), FileError);
  }
  fs::create_directory(folder / "a.h5.partial");
  REQUIRE_THROWS_AS(writes(folder / "a.h5", OutputKind::hdf5), FileError);
  REQUIRE_THROWS_AS(writes(folder / "none/a.h5", OutputKind::hdf5), FileError);
  REQUIRE_THROWS_AS(writes(folder / "", OutputKind::hdf5), FileError);
}

TEST_CASE("a foreign file is not overwritten") {
  const sample::Folder folder;
  sample::put_bytes(folder / "notes.txt", "notes of somebody\n");
  REQUIRE_THROWS_AS(writes(folder / "notes.txt", OutputKind::hdf5), FileError);
  REQUIRE_THROWS_AS(writes(folder / "notes.txt", OutputKind::safetensors), FileError);
  write_hdf5(folder / "other.h5", [](Hdf5Group& root) { root.set("schema", std::string("theirs/1")); });
  REQUIRE_THROWS_AS(writes(folder / "other.h5", OutputKind::hdf5), FileError);
  REQUIRE_THROWS_AS(writes(folder / "other.h5", OutputKind::text), FileError);
}

TEST_CASE("an input is no target, by whatever name, and no target is written twice") {
  const sample::Folder folder;
  { DumpWriter(folder / "run.h5", sample::source()).finish(); }
  fs::create_symlink(folder / "run.h5", folder / "link.h5");
  fs::create_hard_link(folder / "run.h5", folder / "same.h5");
  fs::copy_file(folder / "run.h5", folder / "next.h5.partial");
  OutputPaths paths;
  paths.reads(folder / "run.h5");
  paths.reads(folder / "next.h5.partial");
  paths.reads("");
  for (const char* name : {"run.h5", "link.h5", "same.h5", "./run.h5", "next.h5"}) {
    INFO(name);
    REQUIRE_THROWS_AS(paths.writes(folder / name, OutputKind::hdf5), UsageError);
  }
  paths.writes(folder / "out.h5", OutputKind::hdf5);
  REQUIRE_THROWS_AS(paths.writes(folder / "out.h5", OutputKind::hdf5), UsageError);
  REQUIRE_THROWS_AS(paths.writes(folder / "out.h5.partial", OutputKind::hdf5), UsageError);

  OutputPaths whole_folder;
  whole_folder.reads(folder / "");
  REQUIRE_THROWS_AS(whole_folder.writes(folder / "run.h5", OutputKind::hdf5), UsageError);
}

TEST_CASE("a folder to write to is there or can be made") {
  const sample::Folder folder;
  OutputPaths::writes_folder(folder / "");
  OutputPaths::writes_folder(folder / "new/deeper");
  REQUIRE_FALSE(fs::exists(folder / "new"));
  sample::put_bytes(folder / "file", "x");
  REQUIRE_THROWS_AS(OutputPaths::writes_folder(folder / "file"), FileError);
}

TEST_CASE("an HDF5 file that could not be filled leaves nothing") {
  const sample::Folder folder;
  const auto fill = [](Hdf5Group& root) {
    root.create_group("begun");
    throw FileError("disk full");
  };
  REQUIRE_THROWS_AS(write_hdf5(folder / "a.h5", fill), FileError);
  REQUIRE_FALSE(fs::exists(folder / "a.h5"));
  REQUIRE_FALSE(fs::exists(folder / "a.h5.partial"));
}
