/// `probe --record`: what a device returned, as text that tests read. Formats in docs/hopper.md 6.
#pragma once

#include <string>

#include "gpu/probe/probe.hpp"

namespace dsv4::cli {

/// Writes functions.txt, matrices.txt and device.txt into `folder`, which is made when missing; each file
/// appears whole. Throws FileError.
void write_recorded(const gpu::probe::Report& report, const std::string& folder);

/// The driver's own version, "580.159.04"; empty when it does not tell.
std::string driver_version();

}  // namespace dsv4::cli
