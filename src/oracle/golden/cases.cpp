#include "oracle/golden/cases.hpp"

#include <fmt/format.h>

#include "model/error.hpp"
#include "oracle/selection.hpp"

namespace dsv4::oracle::golden {
namespace {

constexpr std::int32_t kLast = kPrefill + kDecode - 1;

std::string single_layer(const char* profile, const char* kind) {
  return fmt::format(R"(name: golden-{0}-{1}
model: {{preset: tiny, layers: [{1}]}}
profile: {0}
seed: 20260101
steps:
  - prefill: {{request: a, tokens: {2}}}
  - decode: {{requests: [a], repeat: {3}}}
)",
                     profile, kind, kPrefill, kDecode);
}

/// All layer kinds on top of each other; chunks, mixed batches, padding, drafting with rejection, rewind,
/// re-use.
std::string stack(const char* profile, const char* name, const char* cache) {
  return fmt::format(R"(name: golden-{1}
model: {{preset: tiny, layers: [swa, csa, hca], chain: true}}
profile: {0}
seed: 20260102
cache: {{{2}allocate: shuffled, poison_freed: true}}
steps:
  - prefill: {{request: a, tokens: 37}}
  - batch:
      - prefill: {{request: b, tokens: 131}}
      - decode: {{requests: [a]}}
      - pad: 3
  - prefill: {{request: a, tokens: 95}}
  - verify: {{request: a, rows: 4, accept: 1}}
  - decode: {{requests: [b, a], repeat: 2}}
  - rewind: {{request: a, to: 120}}
  - prefill: {{request: a, tokens: 11}}
  - free: b
  - prefill: {{request: c, tokens: 9}}
  - preempt: a
  - resume: {{request: a, chunk: 64}}
  - decode: {{requests: [a, c]}}
)",
                     profile, name, cache);
}

std::vector<Case> make_cases() {
  std::vector<Case> list;
  for (const char* profile : {"canonical", "official"}) {
    for (const char* kind : {"swa", "csa", "hca"}) {
      list.push_back({fmt::format("{}-{}", profile, kind), single_layer(profile, kind), true});
    }
  }
  list.push_back({"canonical-stack-ring", stack("canonical", "canonical-stack-ring", ""), false});
  list.push_back({"canonical-stack-paged",
                  stack("canonical", "canonical-stack-paged", "c4_state: paged, c128_state: paged, "),
                  false});
  list.push_back(
      {"canonical-stack-aligned-online",
       stack("canonical", "canonical-stack-aligned-online", "c4_state: page4align, c128_state: online, "),
       false});
  list.push_back({"official-stack-ring", stack("official", "official-stack-ring", ""), false});
  return list;
}

}  // namespace

const std::vector<Case>& cases() {
  static const std::vector<Case> list = make_cases();
  return list;
}

std::vector<Case> cases_of_profile(const std::string& profile) {
  profile_named(profile);
  std::vector<Case> list;
  for (const char* kind : {"swa", "csa", "hca"}) {
    list.push_back({fmt::format("{}-{}", profile, kind), single_layer(profile.c_str(), kind), true});
  }
  return list;
}

std::vector<Case> cases_matching(const std::string& glob, const std::vector<Case>& all) {
  std::vector<Case> chosen;
  std::string known;
  for (const Case& one : all) {
    if (glob_match(glob, one.name)) chosen.push_back(one);
    known += (known.empty() ? "" : ", ") + one.name;
  }
  if (chosen.empty()) throw UsageError("no golden case matches '" + glob + "' (cases: " + known + ")");
  return chosen;
}

std::vector<Case> cases_matching(const std::string& glob) {
  return cases_matching(glob, cases());
}

bool keeps_token(LayerKind kind, TensorId id, std::int32_t position) {
  using enum TensorId;
  const bool telling = position == 0 || position == 3 || position == 7 || position == kWindow - 1 ||
                       position == kWindow || position == kLast;
  switch (id) {
    case window_page_bytes:
      return true;
    case hidden:
    case compress_kv:
    case compress_score:
    case indexer_kv:
    case indexer_score_raw:
      if (kind == LayerKind::hca) return position < kWindow || position == kLast;
      return telling || (kind == LayerKind::csa && (position < 8 || position > kLast - 8));
    default:
      return telling;
  }
}

bool keeps_entry(LayerKind kind, TensorId id, std::int32_t index) {
  if (info(id).dtype == DType::int32 || info(id).dtype == DType::uint8) return true;
  return kind == LayerKind::hca || index < 2 || index >= kLast / 4 - 1;
}

}  // namespace dsv4::oracle::golden
