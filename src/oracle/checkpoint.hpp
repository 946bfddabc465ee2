/// A run's device state in a file, so that a long replay continues bit for bit where it stopped
/// (docs/scenarios.md, checkpoints). Schema "dsv4-checkpoint/1", HDF5:
///   root attributes            schema, engine, next_step, seed, scenario_file, every profile axis as `axis.<name>`,
///                              and kernel_models where models of kernels compute stages
///   /scenario                  the scenario's text, uint8
///   /layer_LL/<cache>/rows     int32 [n]: pages or state rows whose bytes are not all fresh (0xFF)
///   /layer_LL/<cache>/bytes    uint8 [n, unit]
///   /layer_LL/inputs/content   uint8 [n, 8] little endian, /layer_LL/inputs/hidden bf16 [n, dim]: chained runs
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "model/engine.hpp"

namespace dsv4::oracle {

struct CheckpointInfo {
  std::string engine;
  std::int64_t next_step = 0;  ///< the first step that is not in the state
  std::uint64_t seed = 0;
  std::string scenario;       ///< text
  std::string scenario_file;  ///< as it was given
  std::map<std::string, std::string> axes;
  std::string kernel_models;  ///< stages and what computed them instead of the engine; empty: nothing
};

/// Writes `path` by way of `path`.partial. Throws SubjectError for an engine without byte-exact caches,
/// FileError.
void write_checkpoint(const std::string& path, const Engine& engine, std::int64_t next_step,
                      const std::string& scenario, const std::string& scenario_file,
                      const std::string& kernel_models = "");

/// Throws FileError for a file of another kind.
CheckpointInfo read_checkpoint(const std::string& path);

/// Puts the state into a fresh engine. Throws FileError where the file does not fit its caches.
void restore_checkpoint(const std::string& path, Engine& engine);

}  // namespace dsv4::oracle
