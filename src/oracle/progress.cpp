#include "oracle/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace dsv4::oracle {
namespace {

constexpr int kBarWidth = 24;

std::string rate_text(double rate) {
  if (rate >= 1e6) return fmt::format("{:.1f}M", rate / 1e6);
  if (rate >= 1e3) return fmt::format("{:.1f}k", rate / 1e3);
  return fmt::format("{:.3g}", rate);
}

std::string time_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

Progress::Progress(std::string title, std::int64_t total, std::string unit, bool enabled)
    : title_(std::move(title)),
      unit_(std::move(unit)),
      total_(total),
      enabled_(enabled),
      terminal_(isatty(STDERR_FILENO) != 0),
      start_(Clock::now()),
      last_(start_) {}

Progress::~Progress() {
  if (drawn_ && terminal_) std::fputs("\r\033[K", stderr);
}

void Progress::advance(std::int64_t count, const std::string& note) {
  done_ += count;
  if (!enabled_) return;
  const Clock::time_point now = Clock::now();
  using namespace std::chrono_literals;
  if (now - last_ < (terminal_ ? (drawn_ ? 100ms : 500ms) : 10s)) return;
  last_ = now;
  print(now, note);
}

void Progress::print(Clock::time_point now, const std::string& note) {
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = static_cast<double>(done_) / seconds;
  std::string line = title_ + " ";
  if (total_ > 0) {
    const double share = std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_));
    const int filled = static_cast<int>(share * kBarWidth);
    if (terminal_) line += "[" + std::string(filled, '#') + std::string(kBarWidth - filled, '.') + "] ";
    line += fmt::format("{:.0f}%, {}/{} {}", share * 100, done_, total_, unit_);
    if (done_ > 0) {
      line += fmt::format(", {}/s, {} left", rate_text(rate),
                          time_text(static_cast<double>(total_ - done_) / rate));
    }
  } else {
    line += fmt::format("{} {}, {}/s", done_, unit_, rate_text(rate));
  }
  if (!note.empty()) line += ", " + note;
  fmt::print(stderr, "{}", terminal_ ? "\r\033[K" + line : line + "\n");
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace dsv4::oracle
