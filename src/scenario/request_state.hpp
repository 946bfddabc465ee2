/// A request while a run is planned: identity (length, content ids, generations) and device state (pages,
/// base, rows).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/step_plan.hpp"
#include "scenario/held_rows.hpp"
#include "scenario/scenario.hpp"

namespace dsv4::scenario {

/// What a snapshot keeps of a request.
struct Identity {
  std::int32_t length = 0;
  std::vector<std::uint64_t> ids;   ///< content of the committed tokens
  std::vector<std::int32_t> rises;  ///< positions from which on the generation rose by one
  std::int32_t filled = 0;          ///< first tokens whose cache rows are synthetic
};

struct RequestState {
  std::int32_t index = 0;
  std::string name;
  Identity identity;
  std::int32_t base = -1;
  BlockTables tables;
  std::array<std::size_t, kPoolCount> first_held{};  ///< by pool: no page is held below this item
  HeldRows held;
  bool window_evicted = false;
  const Trace* trace = nullptr;      ///< content of the prompt, or null
  std::vector<std::uint64_t> given;  ///< not empty: contents by position, instead of names and generations

  std::int32_t length() const { return identity.length; }
  /// Content id of the token at a position at or above the length (docs/numerics.md 20, content ids).
  std::uint64_t content(std::int32_t position) const;
  /// Commits tokens whose ids are known.
  void commit(std::int32_t position, std::uint64_t id);
  /// Forgets tokens at and above `length`; those that follow are of a new generation.
  void cut(std::int32_t length);

  /// The tables as they are, shared by all plans between two changes.
  std::shared_ptr<const BlockTables> snapshot();
  void tables_changed() { snapshot_.reset(); }

 private:
  std::shared_ptr<const BlockTables> snapshot_;
};

}  // namespace dsv4::scenario
