/// Scalar and block vectors for other implementations: conversions, the block quantiser with ties, carries
/// and the floor, selection with ties, ring and page addresses. Values come from src/arith and literal loops
/// here.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "io/vectors.hpp"

namespace dsv4::oracle::golden {

/// File stems with their content: "convert", "quant_block", "top_k", "ring_index".
std::vector<std::pair<std::string, io::VectorFile>> vector_files();

}  // namespace dsv4::oracle::golden
