// What a killed run and a full disk leave behind: every finished step readable, nothing under the final name.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>

#include "io/dump_reader.hpp"
#include "io/dump_writer.hpp"
#include "model/error.hpp"
#include "sample.hpp"
#include "support/catch.hpp"

using namespace dsv4;
using namespace dsv4::io;
namespace fs = std::filesystem;

namespace {

/// Small and large steps take turns, so that chunked and contiguous data are cut alike.
StepObservation step_of_run(std::int64_t number) {
  return sample::step(number, number % 3 == 2 ? 300 : 5);
}

/// The partial file holds steps 0 .. n-1 of the run above, all intact; returns n.
std::int64_t intact_steps(const std::string& partial) {
  DumpReader reader(partial, true);
  REQUIRE_FALSE(reader.info().complete);
  REQUIRE(reader.info().config.requests == sample::source().config.requests);
  std::int64_t number = 0;
  while (const auto step = reader.next()) {
    const StepObservation expected = step_of_run(number);
    REQUIRE(step->step == number);
    REQUIRE(step->event == expected.event);
    for (std::size_t layer = 0; layer < 3; ++layer) {
      REQUIRE(step->layers[layer].state_digests == expected.layers[layer].state_digests);
      REQUIRE(step->layers[layer].tensors.size() == expected.layers[layer].tensors.size());
      for (const auto& [id, tensor] : expected.layers[layer].tensors) {
        REQUIRE(std::ranges::equal(tensor.bytes(), step->layers[layer].tensors.at(id).bytes()));
      }
    }
    ++number;
  }
  return number;
}

/// A soft limit on the length of files, without the signal that comes with it.
class FileLimit {
 public:
  explicit FileLimit(std::int64_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limited = old_;
    limited.rlim_cur = static_cast<rlim_t>(bytes);
    ::setrlimit(RLIMIT_FSIZE, &limited);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit old_{};
  void (*handler_)(int);
};

/// Writes until a step fails; returns how many were written and the message.
std::pair<std::int64_t, std::string> write_until_full(DumpWriter& writer) {
  try {
    for (std::int64_t number = 0;; ++number) writer.write(step_of_run(number));
  } catch (const FileError& error) {
    return {writer.steps(), error.what()};
  }
}

}  // namespace

TEST_CASE("a run killed at any moment leaves every finished step") {
  const sample::Folder folder;
  std::int64_t killed_within = 0;
  for (int round = 0; round < 24; ++round) {
    const std::string path = folder / ("run" + std::to_string(round) + ".h5");
    int report[2];
    REQUIRE(::pipe(report) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      DumpWriter writer(path, sample::source());
      for (std::int64_t number = 0;; ++number) {
        [[maybe_unused]] const auto sent = ::write(report[1], "!", 1);
        writer.write(step_of_run(number));
      }
    }
    ::close(report[1]);
    // The child says "!" before each step. Let it begin a few, then kill it somewhere inside one.
    std::int64_t begun = 0;
    char mark = 0;
    while (begun < 2 + round % 4 && ::read(report[0], &mark, 1) == 1) ++begun;
    ::usleep(static_cast<useconds_t>(700 * round));
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    while (::read(report[0], &mark, 1) == 1) ++begun;
    ::close(report[0]);

    REQUIRE_FALSE(fs::exists(path));
    const std::int64_t whole = intact_steps(path + ".partial");
    INFO("round " << round << ": " << begun << " begun, " << whole << " whole");
    REQUIRE((whole == begun - 1 || whole == begun));
    killed_within += whole == begun - 1;
  }
  REQUIRE(killed_within > 0);
}

TEST_CASE("a limit hit in the middle of a step cuts the file back to the last one") {
  const sample::Folder folder;
  std::int64_t most = 0;
  for (std::int64_t limit = 400'000; limit < 14'000'000; limit += 454'545) {
    const std::string path = folder / "a.h5";
    {
      DumpWriter writer(path, sample::source(), {.compress = false, .reserve = false});
      const FileLimit small(limit);
      const auto [written, message] = write_until_full(writer);
      INFO(message);
      REQUIRE(message.find("File too large") != std::string::npos);
      REQUIRE(message.find(path + ".partial") != std::string::npos);
      REQUIRE_THROWS_AS(writer.write(step_of_run(99)), InternalError);
      REQUIRE(fs::file_size(path + ".partial") == static_cast<std::uintmax_t>(writer.bytes()));
      most = std::max(most, written);
      REQUIRE(intact_steps(path + ".partial") == written);
    }
    REQUIRE_FALSE(fs::exists(path));
    REQUIRE(DumpReader(path + ".partial").steps().size() < 99);
  }
  REQUIRE(most >= 3);
}

TEST_CASE("a limit that the next step would break is said before it is begun") {
  const sample::Folder folder;
  const std::string path = folder / "a.h5";
  DumpWriter writer(path, sample::source());
  const FileLimit small(3'000'000);
  const auto [written, message] = write_until_full(writer);
  REQUIRE(message.find("may not grow by") != std::string::npos);
  REQUIRE(written >= 1);
  REQUIRE(intact_steps(path + ".partial") == written);
}

TEST_CASE("a disk that refuses a write is a FileError with its reason") {
  const sample::Folder folder;
  const std::string path = folder / "a.h5";
  DumpWriter writer(path, sample::source());
  writer.write(step_of_run(0));
  // Point the library's descriptor at /dev/full: every write now says "no space".
  int descriptor = -1;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (fs::read_symlink(entry, ignored) == path + ".partial")
      descriptor = std::stoi(entry.path().filename());
  }
  REQUIRE(descriptor >= 0);
  const int full = ::open("/dev/full", O_RDWR);
  REQUIRE(::dup2(full, descriptor) == descriptor);
  ::close(full);
  try {
    writer.write(step_of_run(1));
    FAIL("a full disk was not noticed");
  } catch (const FileError& error) {
    REQUIRE(std::string(error.what()).find("No space left on device") != std::string::npos);
  }
  REQUIRE(intact_steps(path + ".partial") == 1);
}

TEST_CASE("a dump that cannot even begin leaves nothing") {
  const sample::Folder folder;
  SourceInfo source = sample::source();
  source.scenario = std::string(3'000'000, 's');
  {
    const FileLimit small(1'000'000);
    REQUIRE_THROWS_AS(DumpWriter(folder / "a.h5", source, {.compress = false}), FileError);
  }
  REQUIRE_FALSE(fs::exists(folder / "a.h5"));
  REQUIRE_FALSE(fs::exists(folder / "a.h5.partial"));
}

TEST_CASE("a file system without room is said before a step is begun") {
  const sample::Folder folder;
  const std::string mounted = folder / "small";
  fs::create_directories(mounted);
  if (::mount("tmpfs", mounted.c_str(), "tmpfs", 0, "size=6m") != 0) {
    WARN("mounting is not allowed here; the limits above stand for a full disk");
    return;
  }
  std::string message;
  std::int64_t written = 0;
  std::int64_t intact = -1;
  bool final_name = true;
  {
    DumpWriter writer(mounted + "/a.h5", sample::source(), {.compress = false});
    std::tie(written, message) = write_until_full(writer);
    intact = intact_steps(mounted + "/a.h5.partial");
    final_name = fs::exists(mounted + "/a.h5");
  }
  REQUIRE(::umount(mounted.c_str()) == 0);
  INFO(message);
  REQUIRE(message.find("no room for the") != std::string::npos);
  REQUIRE(written >= 2);
  REQUIRE(intact == written);
  REQUIRE_FALSE(final_name);
}
