#include "cli/version.hpp"

#include <fmt/format.h>
#include <hdf5.h>

#include "cli/engines.hpp"
#include "io/dump_format.hpp"
#include "reference/simd/isa.hpp"

namespace dsv4::cli {
namespace {

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

std::string isas() {
  std::string text;
  for (const reference::Isa isa : reference::available_isas())
    text += " " + std::string(reference::name(isa));
  return fmt::format("{} (this machine runs{})", reference::name(reference::best_isa()), text);
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

std::string version_text() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  H5get_libversion(&major, &minor, &release);
#ifdef DSV4_CUDA_VERSION
  const std::string cuda = DSV4_CUDA_VERSION;
#else
  const std::string cuda = "not compiled in";
#endif
  return fmt::format(
      "dsv4-oracle {}\ncompiler: {}\ninstruction set: {}\nHDF5: {}.{}.{}\nCUDA: {}\nengines: {}",
      io::tool_version(), compiler(), isas(), major, minor, release, cuda, joined(engine_names()));
}

}  // namespace dsv4::cli
