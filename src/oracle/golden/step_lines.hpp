/// A step as text: one line for each batch table, tensor and cache, each with a digest of its content.
///
///   000000 layer_00/q.up/q bfloat16 130,4,512 <digest>
///   000000 layer_00/state/window <digest>          live rows after the step
///   000000 layer_00/writes 14 <digest>             rows that the step wrote, where asked for
#pragma once

#include <string>
#include <vector>

#include "model/observation.hpp"

namespace dsv4::oracle::golden {

/// Lines in a fixed order: batch tables, then layer by layer tensors and caches.
std::vector<std::string> step_lines(const StepObservation& step);

/// One line for each layer that wrote anything. Rows count once, in the order of cache, slot and owner, with
/// what was written last: the order of writing is the engine's own.
std::vector<std::string> write_lines(const StepObservation& step);

/// Digest of lines, each ended by a newline.
std::string digest_of_lines(const std::vector<std::string>& lines);

}  // namespace dsv4::oracle::golden
