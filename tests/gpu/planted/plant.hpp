/// Puts the copy of a kernel with a fault in it into a CUDA engine.
#pragma once

#include <string_view>

#include "model/engine.hpp"

namespace dsv4::gpu {

/// `kernel`: compress_pool, indexer_score or output_project.
void plant(Engine& engine, std::string_view kernel);

}  // namespace dsv4::gpu
