/// golden_digests FOLDER: computes the golden cases by the reference and compares them with the files of the folder. Builds
/// by other compilers and with other options need this and not the whole program. Prints every difference; exit 0 or 1,
/// 2 on an error.
#include <fmt/core.h>

#include <cstdio>
#include <exception>

#include "oracle/golden/cases.hpp"
#include "oracle/golden/files.hpp"
#include "oracle/golden/record.hpp"
#include "reference/engine.hpp"

int main(int argc, char** argv) try {
  namespace golden = dsv4::oracle::golden;
  if (argc != 2) {
    fmt::print(stderr, "usage: golden_digests FOLDER\n");
    return 2;
  }
  const auto reference = [](const std::string&, const dsv4::RunConfig& config, auto weights, auto hidden) {
    return dsv4::reference::make_reference_engine(config, std::move(weights), std::move(hidden));
  };
  std::int64_t compared = 0;
  std::size_t different = 0;
  for (const golden::Case& one : golden::cases()) {
    const golden::Verification result = golden::verify_files(argv[1], golden::record(one, "reference", reference));
    compared += result.compared;
    different += result.mismatches.size();
    for (const golden::Mismatch& at : result.mismatches)
      fmt::print("{}: expected {}, found {}\n", at.place, at.expected, at.found);
  }
  fmt::print("{} compared, {} differ\n", compared, different);
  return compared > 0 && different == 0 ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "golden_digests: {}\n", error.what());
  return 2;
}
