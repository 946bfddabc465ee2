/// RunConfig as the attributes of /config and /config/layer_LL, and back (docs/dump-format.md, config).
#pragma once

#include "io/dump_format.hpp"
#include "io/hdf5_file.hpp"
#include "model/observation.hpp"

namespace dsv4::io {

/// Creates /config, /config/layer_LL and /requests under the root.
void write_config(Hdf5Group& root, const SourceInfo& source, const std::optional<DumpSelection>& selection,
                  const StorageOptions& options);

/// Reads them into source.config and source.bit_exact; the profile's name, seed and engine are root
/// attributes and already there. Attributes that later versions add are ignored; a missing one is a
/// FileError, except those of the second table of docs/dump-format.md, which foreign files may leave out.
/// Whatever is there is held to the limits of a scenario (model/config_check.hpp): FileError.
void read_config(const Hdf5File& file, SourceInfo& source);

/// What the writer chose to keep; empty where the file does not say.
std::optional<DumpSelection> read_selection(const Hdf5File& file);

}  // namespace dsv4::io
