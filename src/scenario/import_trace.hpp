/// A serving trace (JSON lines of the Mooncake form) as a scenario: first come, first served, each step
/// decodes every running request and fills up with prefill chunks (docs/scenarios.md, imported traces).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dsv4::scenario {

struct TraceOptions {
  std::int32_t max_batch_tokens = 2048;  ///< rows of a step
  std::int32_t max_running = 8;          ///< requests that run at the same time
  std::int32_t scale = 1;  ///< divides lengths and the block of 512 tokens; a power of two up to 512
  std::int32_t limit = 0;  ///< first lines of the trace to use; 0: all
  std::string preset = "tiny";
  std::vector<std::string> layers{"swa", "csa", "hca"};
  std::string profile = "canonical";
  std::string name;  ///< of the scenario; empty: from the file's stem
};

/// The scenario's YAML. Throws FileError "FILE:LINE: ..." for a file or line that cannot be used, UsageError
/// for options out of range.
std::string import_trace(const std::string& path, const TraceOptions& options);
/// The same from text; `file_name` is for messages.
std::string import_trace_text(std::string_view text, const std::string& file_name,
                              const TraceOptions& options);

}  // namespace dsv4::scenario
