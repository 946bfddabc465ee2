#include <fmt/format.h>
#include <omp.h>

#include <array>
#include <charconv>

#include "cli/command.hpp"
#include "model/error.hpp"
#include "reference/simd/isa.hpp"

namespace dsv4::cli {

void add_compute_options(CLI::App& command, ComputeOptions& options) {
  command.add_option("--threads", options.threads, "Threads to compute with (results do not depend on it)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  command.add_option("--isa", options.isa, "Instruction set: v2, v3 or v4 (results do not depend on it)")
      ->type_name("NAME");
  command.add_option("--device", options.engine.device, "Number of the device, for the engine cuda")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  command.add_flag("--graph", options.engine.graphs,
                   "Engine cuda: steps of one row a request run through captured graphs");
}

void apply(const ComputeOptions& options) {
  if (options.threads > 0) omp_set_num_threads(options.threads);
  if (!options.isa.empty()) reference::select_isa(reference::isa_from_name(options.isa));
}

std::int64_t parse_size(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(end, text.data() + text.size());
  int shift = -1;
  if (unit.empty() || unit == "B") shift = 0;
  if (unit == "K" || unit == "KiB") shift = 10;
  if (unit == "M" || unit == "MiB") shift = 20;
  if (unit == "G" || unit == "GiB") shift = 30;
  if (unit == "T" || unit == "TiB") shift = 40;
  if (error != std::errc() || shift < 0 || value < 0 || value > (std::int64_t{1} << 62 >> shift)) {
    throw UsageError("size '" + text + "': expected bytes, or a number with K, M, G or T, for example 4G");
  }
  return value << shift;
}

std::string size_text(std::int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string shell_quoted(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,%@";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace dsv4::cli
