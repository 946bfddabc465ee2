/// What an observation holds: which steps, which tensors, whether snapshots of the caches.
///
/// Built from the command line's `--steps a:b`, `--stages GLOB`, `--tensors GLOB`. A glob knows `*` and `?`;
/// several are separated by commas. A glob that matches no name is a UsageError that lists the names.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/dump_reader.hpp"
#include "model/engine.hpp"

namespace dsv4::oracle {

/// True if `text` matches `pattern`, in which `*` stands for any run of characters and `?` for one.
bool glob_match(std::string_view pattern, std::string_view text);

struct Selection {
  TensorSet tensors = TensorSet().set();
  std::int64_t first_step = 0;  ///< half-open range of steps
  std::int64_t end_step = std::numeric_limits<std::int64_t>::max();
  bool state_digests = true;
  bool snapshots = false;  ///< whole caches as tensors

  bool has_step(std::int64_t step) const { return step >= first_step && step < end_step; }
  bool has_tensor(TensorId id) const { return tensors.test(static_cast<std::size_t>(id)); }
};

/// `stages` match stage names ("compress.*"); `tensors` match "stage/tensor" or the tensor's own name, or
/// "state" for snapshots of the caches; `steps` is "a:b", "a:", ":b" or "a" (that step alone). Empty:
/// everything but snapshots.
Selection parse_selection(std::span<const std::string> stages, std::span<const std::string> tensors,
                          std::string_view steps);

/// Throws UsageError when no step from `first` on and below `end`, or no stage of any layer, is selected: the
/// command would do nothing and say that all is well.
void require_match(const Selection& selection, const std::vector<LayerKind>& layers, std::int64_t first,
                   std::int64_t end);

/// A selection as a dump states it, for a run of `steps` steps that begins at step `first`.
io::DumpSelection stated(const Selection& selection, std::int64_t first, std::int64_t steps);
/// What a dump states that it was asked to hold; throws FileError for words that no run of ours writes.
std::optional<Selection> stated_selection(const io::DumpReader& dump);

/// True when engines of the two sides publish the same tensors of one run: equally exact, with the same
/// profile axes and state forms.
bool same_kind(const SourceInfo& a, const SourceInfo& b);

}  // namespace dsv4::oracle
