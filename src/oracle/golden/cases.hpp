/// The golden cases: small scripted runs whose every published tensor is pinned by digest, and whose most
/// telling rows are kept as data for other implementations (docs/dump-format.md, golden data).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/stage.hpp"

namespace dsv4::oracle::golden {

struct Case {
  std::string name;      ///< also the stem of its files
  std::string scenario;  ///< YAML
  bool keeps_rows;       ///< single-layer cases of one request keep rows
};

const std::vector<Case>& cases();
/// The single-layer cases of another profile, which no file of this repository holds: PROFILE-swa, -csa, -hca.
/// Throws UsageError for a name that is no profile.
std::vector<Case> cases_of_profile(const std::string& profile);
/// Cases whose name matches a glob; throws UsageError that lists the names when there is none.
std::vector<Case> cases_matching(const std::string& glob);
std::vector<Case> cases_matching(const std::string& glob, const std::vector<Case>& all);

/// Tokens of a row-keeping case: a prefill of kPrefill, then kDecode single tokens.
inline constexpr std::int32_t kPrefill = 130;
inline constexpr std::int32_t kDecode = 2;

/// Whether the row of a token position (entry index) is kept. Kept are the first window, closing rows, a row
/// past the window and the last row; of `project` every row that a kept pooling reads; packed rows (the
/// caches that attention and scores read) all.
bool keeps_token(LayerKind kind, TensorId id, std::int32_t position);
bool keeps_entry(LayerKind kind, TensorId id, std::int32_t index);

}  // namespace dsv4::oracle::golden
