/// What bug reports need: version, compiler, instruction sets, libraries.
#pragma once

#include <string>

namespace dsv4::cli {

std::string version_text();

}  // namespace dsv4::cli
