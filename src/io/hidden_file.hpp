/// Hidden states from HDF5: `/hidden/<request>` [tokens, D] uint16 with attribute dtype = bfloat16, the same
/// rows for every layer that reads inputs, or [layers, tokens, D] with rows of its own for each layer.
#pragma once

#include <memory>
#include <string>

#include "model/inputs.hpp"

namespace dsv4::io {

/// Checks that every request of the run has a dataset of the right width now; rows are read on demand (safe
/// to call from several threads). A row beyond the end is a FileError naming request and position.
std::shared_ptr<const HiddenSource> file_hidden(const RunConfig& config, const std::string& path);

}  // namespace dsv4::io
