/// Progress on stderr: a bar with rate and time left when stderr is a terminal, else a line every 10 seconds.
/// Nothing is printed by a run shorter than half a second.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace dsv4::oracle {

class Progress {
 public:
  /// `unit` names what is counted ("tokens"); `total` 0: unknown.
  Progress(std::string title, std::int64_t total, std::string unit, bool enabled = true);
  /// Wipes the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `note` is short: the step's number, for example.
  void advance(std::int64_t count, const std::string& note = "");

 private:
  using Clock = std::chrono::steady_clock;
  void print(Clock::time_point now, const std::string& note);

  std::string title_;
  std::string unit_;
  std::int64_t total_;
  std::int64_t done_ = 0;
  bool enabled_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_;
  Clock::time_point last_;
};

}  // namespace dsv4::oracle
