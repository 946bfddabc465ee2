#include "cli/probe_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>

#include "io/atomic_file.hpp"
#include "model/error.hpp"

namespace dsv4::cli {
namespace {

using gpu::probe::RecordedFunction;
using gpu::probe::RecordedTile;

void write_whole(const std::string& path, const std::string& text) {
  io::AtomicFile file(path);
  file.write(text);
  file.finish();
}

std::string functions_text(const gpu::probe::Report& report) {
  std::string text =
      "# function NAME ARGUMENTS CASES, then a line a case: arguments and result as float bits\n";
  for (const RecordedFunction& f : report.functions) {
    const auto width = static_cast<std::size_t>(f.arguments) + 1;
    text += fmt::format("function {} {} {}\n", f.function, f.arguments, f.words.size() / width);
    for (std::size_t i = 0; i < f.words.size(); ++i)
      text += fmt::format("{:08x}{}", f.words[i], i % width + 1 == width ? '\n' : ' ');
  }
  return text;
}

template <class T>
void append_rows(std::string& text, const char* name, std::span<const T> values, int columns, int digits) {
  const auto width = static_cast<std::size_t>(columns);
  for (std::size_t row = 0; row < values.size() / width; ++row) {
    text += name;
    text += ' ';
    for (std::size_t i = 0; i < width; ++i) text += fmt::format("{:0{}x}", values[row * width + i], digits);
    text += '\n';
  }
}

std::string matrices_text(const gpu::probe::Report& report) {
  std::string text =
      "# tile M N K DIGITS INSTRUCTION; DATA, then rows of a [M][K] and b [N][K], codes of DIGITS "
      "hexadecimal\n"
      "# digits, and of c and d = c + a b^T [M][N], float bits\n";
  for (const RecordedTile& tile : report.tiles) {
    const int digits = tile.instruction.find("e4m3") != std::string::npos ? 2 : 4;
    text +=
        fmt::format("tile {} {} {} {} {}; {}\n", tile.m, tile.n, tile.k, digits, tile.instruction, tile.data);
    append_rows<std::uint16_t>(text, "a", tile.a, tile.k, digits);
    append_rows<std::uint16_t>(text, "b", tile.b, tile.k, digits);
    append_rows<std::uint32_t>(text, "c", tile.c, tile.n, 8);
    append_rows<std::uint32_t>(text, "d", tile.d, tile.n, 8);
  }
  return text;
}

std::string device_text(const gpu::probe::Report& report) {
  std::string text =
      fmt::format("{}, compute {}.{}, driver {}, CUDA {}.{}\n", report.gpu, report.major, report.minor,
                  driver_version(), report.driver_cuda / 1000, report.driver_cuda % 1000 / 10);
  for (const gpu::probe::Line& line : report.lines)
    text += fmt::format("{}; {}; inputs {}; mismatches {}\n", line.function, line.inputs, line.count,
                        line.mismatches);
  for (const gpu::probe::Fit& fit : report.fits) {
    text += fmt::format(
        "{}; best rule: K {} a step (0: composed), F {}, OF {}; outputs {}; mismatches {}; rivals {}\n",
        fit.instruction, fit.step, fit.fraction_bits, fit.output_fraction_bits, fit.outputs, fit.mismatches,
        fit.rivals);
  }
  return text;
}

}  // namespace

std::string driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  ...": the first word that begins with digits
  // and a point.
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = text.find_first_not_of(" \n", at);
    if (begin == std::string::npos) break;
    const std::size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const std::size_t digits = word.find_first_not_of("0123456789");
    if (digits != std::string::npos && digits > 0 && word[digits] == '.') return word;
    at = end;
  }
  return {};
}

void write_recorded(const gpu::probe::Report& report, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw FileError(fmt::format("{}: cannot make the folder: {}", folder, error.message()));
  const std::filesystem::path base(folder);
  write_whole((base / "functions.txt").string(), functions_text(report));
  write_whole((base / "matrices.txt").string(), matrices_text(report));
  write_whole((base / "device.txt").string(), device_text(report));
}

}  // namespace dsv4::cli
