#include "oracle/faults/catalogue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "oracle/faults/attention.hpp"
#include "oracle/faults/compressor_form.hpp"
#include "oracle/faults/finish.hpp"
#include "oracle/faults/index.hpp"
#include "oracle/faults/lifecycle.hpp"
#include "oracle/faults/lists.hpp"
#include "oracle/faults/pool.hpp"
#include "oracle/faults/selection.hpp"
#include "oracle/faults/state.hpp"

namespace dsv4::oracle::faults {
namespace {

constexpr std::array<std::string_view, 2> kEngines{"reference", "cuda"};

constexpr ParameterInfo kCompressorOnly[]{kCompressor};
constexpr ParameterInfo kKeep[]{{"keep", "4", "", 1, 4096, "rows that are written"}, kCompressor};
constexpr ParameterInfo kElsewhere[]{
    {"position", "index", "index|last", 0, 0, "the entry's index, or its last token"}, kCompressor};
constexpr ParameterInfo kRowsOf[]{kRows};
constexpr ParameterInfo kCapacity[]{{"capacity", "2048", "", 0, 1 << 24, "candidates that are kept"}};
constexpr ParameterInfo kWidth[]{{"width", "127", "", 1, 4096, "keys"}};
constexpr ParameterInfo kWrap[]{{"wrap", "4294967296", "", 1, INT64_MAX, "bytes"}};
constexpr ParameterInfo kAssumed[]{{"rows", "16", "", 1, 4096, "rows that a page is taken to have"}};
constexpr ParameterInfo kLane[]{{"as", "zero", "zero|last", 0, 0, "slot 0, or the last valid slot"}};
constexpr ParameterInfo kSplits[]{{"splits", "4", "", 2, 128, "parts of the list"}};
constexpr ParameterInfo kStride[]{{"by", "1", "", 1, 127, "items"}};
constexpr ParameterInfo kConsumer[]{{"consumer", "attention.core",
                                     "attention.core|output.project|compress.finish|indexer.select", 0, 0,
                                     "the stage that reads too early"}};
constexpr ParameterInfo kStep[]{{"step", "1", "", 0, INT64_MAX, "when"}};

constexpr FaultInfo kCatalogue[]{
    {.name = "verify-keeps-last-rows",
     .number = "MU01",
     .family = Family::state,
     .field = "The write planner keeps only the last rows of a verify step; output is right until the next "
              "group closes.",
     .reported = "compress.state",
     .scenario = "verify-5-accept-2",
     .example = "",
     .install = state_keeps_last_rows,
     .parameters = kKeep},
    {.name = "rollback-leaves-rows",
     .number = "MU02",
     .family = Family::lifecycle,
     .field = "A rollback leaves rejected rows in the state ring, over rows that are still live.",
     .reported = "state",
     .scenario = "verify-4-accept-1",
     .example = "",
     .install = rollback_leaves_rows,
     .by_effect = true},
    {.name = "rollback-commits-last-bank",
     .number = "MU02",
     .family = Family::lifecycle,
     .field = "Online state: the commit of a verify step takes the bank behind its last row.",
     .reported = "state",
     .scenario = "online-verify",
     .example = "",
     .install = rollback_commits_last_bank},
    {.name = "pool-halves-swapped",
     .number = "MU03",
     .family = Family::pool,
     .field = "The overlap's halves are swapped: the previous group by its second half of columns.",
     .reported = "compress.pool",
     .scenario = "csa-8",
     .example = "",
     .install = pool_halves_swapped,
     .parameters = kCompressorOnly,
     .recomputes = true},
    {.name = "pool-decode-ignores-previous",
     .number = "MU04",
     .family = Family::pool,
     .field = "In decode a closing group is pooled without the previous one; prefill is clean.",
     .reported = "compress.pool",
     .scenario = "csa-8-decode-4",
     .example = "",
     .install = pool_decode_ignores_previous,
     .parameters = kCompressorOnly,
     .recomputes = true},
    {.name = "pool-absent-group-scores-zero",
     .number = "MU05",
     .family = Family::pool,
     .field = "The absent group before entry 0 enters the softmax with score 0 instead of -inf.",
     .reported = "compress.pool",
     .scenario = "csa-4",
     .example = "",
     .install = pool_absent_group_scores_zero,
     .parameters = kCompressorOnly,
     .recomputes = true},
    {.name = "state-bias-from-chunk",
     .number = "MU06",
     .family = Family::state,
     .field = "The slot bias is indexed from the start of the chunk; clean for chunks that are multiples of "
              "the ratio.",
     .reported = "compress.state",
     .scenario = "csa-5-then-3",
     .example = "",
     .install = state_bias_from_chunk,
     .parameters = kCompressorOnly,
     .recomputes = true},
    {.name = "state-in-bf16",
     .number = "MU07",
     .family = Family::state,
     .field = "Compressor state is kept in bf16 instead of f32, which looks like rounding.",
     .reported = "compress.state",
     .scenario = "hca-8",
     .example = "",
     .install = state_in_bf16,
     .parameters = kCompressorOnly},
    {.name = "state-next-slot",
     .number = "",
     .family = Family::state,
     .field = "Ring rows are written one slot further on.",
     .reported = "compress.state",
     .scenario = "csa-4",
     .example = "",
     .install = state_next_slot,
     .parameters = kCompressorOnly},
    {.name = "pool-closes-late",
     .number = "MU08",
     .family = Family::pool,
     .field = "A group of 128 closes one token late; the window still covers it, so output is nearly equal.",
     .reported = "compress.pool",
     .scenario = "hca-128",
     .example = "",
     .install = pool_closes_late},
    {.name = "entry-rotated-elsewhere",
     .number = "MU09",
     .family = Family::finish,
     .field = "A compressed row is rotated at its index, or at its last token, instead of its first token.",
     .reported = "compress.finish",
     .scenario = "csa-8",
     .example = "",
     .install = entry_rotated_elsewhere,
     .parameters = kElsewhere,
     .recomputes = true},
    {.name = "one-rotary-base",
     .number = "MU10",
     .family = Family::attention,
     .field = "One rotary base serves all layers: window-only layers rotate as compressed ones do.",
     .reported = "q.up",
     .scenario = "swa-2",
     .example = "",
     .install = one_rotary_base,
     .recomputes = true},
    {.name = "output-rotated-forward",
     .number = "MU11",
     .family = Family::attention,
     .field = "The output is rotated forward instead of back; position 0 is clean.",
     .reported = "output.project",
     .scenario = "swa-2",
     .example = "",
     .install = output_rotated_forward,
     .recomputes = true},
    {.name = "output-rotated-first-lanes",
     .number = "MU11",
     .family = Family::attention,
     .field = "The output is rotated in the first 64 lanes instead of the last 64.",
     .reported = "output.project",
     .scenario = "swa-2",
     .example = "",
     .install = output_rotated_first_lanes,
     .recomputes = true},
    {.name = "query-half-split",
     .number = "MU12",
     .family = Family::finish,
     .field = "The index query rotates lane i with lane i + 32; the main path is clean.",
     .reported = "indexer.query",
     .scenario = "csa-4",
     .example = "",
     .install = query_half_split,
     .recomputes = true},
    {.name = "hadamard-dropped-on-key",
     .number = "MU13",
     .family = Family::finish,
     .field = "The Hadamard rotation is missing on the stored index key only.",
     .reported = "indexer.finish",
     .scenario = "csa-4",
     .example = "",
     .install = hadamard_dropped_on_key,
     .recomputes = true},
    {.name = "hadamard-dropped-on-both",
     .number = "MU14",
     .family = Family::finish,
     .field = "The Hadamard rotation is missing on index key and query: other bytes, scores equal but for "
              "quantisation.",
     .reported = "indexer.finish",
     .scenario = "csa-4",
     .example = "",
     .install = hadamard_dropped_on_both,
     .recomputes = true},
    {.name = "score-relu-after-sum",
     .number = "MU15",
     .family = Family::index,
     .field = "ReLU is taken of the sum over heads instead of each head; selections may coincide.",
     .reported = "indexer.score",
     .scenario = "csa-4",
     .example = "",
     .install = score_relu_after_sum,
     .recomputes = true},
    {.name = "score-without-weight-factor",
     .number = "MU16",
     .family = Family::index,
     .field = "The factor of the head weights is missing: the ranking is the same, the values are not.",
     .reported = "indexer.score",
     .scenario = "csa-4",
     .example = "",
     .install = score_without_weight_factor,
     .recomputes = true},
    {.name = "quantise-unrounded-scale",
     .number = "MU17",
     .family = Family::finish,
     .field = "Values are quantised with the unrounded scale, the rounded one is stored: up to 2x off.",
     .reported = "kv.window",
     .scenario = "swa-2",
     .example = "",
     .install = quantise_unrounded_scale,
     .parameters = kRowsOf,
     .recomputes = true},
    {.name = "quantise-scale-rounded-down",
     .number = "MU18",
     .family = Family::finish,
     .field = "The scale's exponent is rounded down; saturation hides it for small values.",
     .reported = "kv.window",
     .scenario = "swa-2",
     .example = "",
     .install = quantise_scale_rounded_down,
     .parameters = kRowsOf,
     .recomputes = true},
    {.name = "quantise-without-clamp",
     .number = "MU19",
     .family = Family::finish,
     .field = "A cast without clamp makes NaN of what does not fit; the scale is rounded down so that "
              "something does not.",
     .reported = "kv.window",
     .scenario = "swa-2",
     .example = "",
     .install = quantise_without_clamp,
     .parameters = kRowsOf,
     .by_effect = true,
     .recomputes = true},
    {.name = "nibbles-swapped",
     .number = "MU20",
     .family = Family::bytes,
     .field = "FP4 index rows: the two codes of a byte are exchanged; symmetric patterns hide it.",
     .reported = "indexer.finish",
     .scenario = "csa-fp4-4",
     .example = "",
     .install = nibbles_swapped},
    {.name = "scale-group-shifted",
     .number = "MU20",
     .family = Family::bytes,
     .field = "FP4 index rows: each scale lies in the next group's place.",
     .reported = "indexer.finish",
     .scenario = "csa-fp4-4",
     .example = "",
     .install = scale_group_shifted},
    {.name = "selection-drops-candidates",
     .number = "MU21",
     .family = Family::selection,
     .field = "Top-k drops candidates when the buffer of the threshold's bucket is full.",
     .reported = "indexer.select",
     .scenario = "csa-48",
     .example = "capacity=2",
     .install = selection_drops_candidates,
     .parameters = kCapacity},
    {.name = "visible-of-last-verify-row",
     .number = "MU22",
     .family = Family::index,
     .field = "All rows of a verify step take the visible count of its last row.",
     .reported = "indexer.score",
     .scenario = "verify-across-group",
     .example = "",
     .install = visible_of_last_verify_row,
     .recomputes = true},
    {.name = "visible-one-too-many",
     .number = "MU23",
     .family = Family::index,
     .field = "The visible count is p / ratio + 1: an entry that is not closed yet is scored.",
     .reported = "indexer.score",
     .scenario = "csa-6",
     .example = "",
     .install = visible_one_too_many,
     .recomputes = true},
    {.name = "window-width",
     .number = "MU24",
     .family = Family::lists,
     .field = "The window holds 127 or 129 keys.",
     .reported = "attention.lists",
     .scenario = "swa-129",
     .example = "",
     .install = window_width,
     .parameters = kWidth},
    {.name = "address-wraps",
     .number = "MU25",
     .family = Family::lists,
     .field = "Page times page bytes is computed in 32 bits: high pages alias low ones.",
     .reported = "attention.lists",
     .scenario = "swa-129",
     .example = "wrap=65536",
     .install = address_wraps,
     .parameters = kWrap,
     .by_effect = true},
    {.name = "page-size-assumed",
     .number = "MU25",
     .family = Family::lists,
     .field = "One page size is assumed where another is in use.",
     .reported = "attention.lists",
     .scenario = "swa-2",
     .example = "",
     .install = page_size_assumed,
     .parameters = kAssumed},
    {.name = "invalid-lane-read",
     .number = "MU26",
     .family = Family::attention,
     .field = "A lane without a key is read, as slot 0 or as the last valid slot.",
     .reported = "attention.core",
     .scenario = "swa-2",
     .example = "",
     .install = invalid_lane_read,
     .parameters = kLane},
    {.name = "sink-in-every-split",
     .number = "MU27",
     .family = Family::attention,
     .field = "The sink is added in every split of the keys; one split is clean.",
     .reported = "attention.core",
     .scenario = "swa-8",
     .example = "",
     .install = sink_in_every_split,
     .parameters = kSplits,
     .by_effect = true,
     .recomputes = true},
    {.name = "merge-in-base-two",
     .number = "MU27",
     .family = Family::attention,
     .field = "Splits are merged as if their maxima were logarithms to base two.",
     .reported = "attention.core",
     .scenario = "swa-8",
     .example = "",
     .install = merge_in_base_two,
     .parameters = kSplits,
     .by_effect = true,
     .recomputes = true},
    {.name = "padding-writes-slot-zero",
     .number = "MU28",
     .family = Family::lifecycle,
     .field = "Padding rows are written to slot 0; the damage appears steps later in another request.",
     .reported = "writes",
     .scenario = "idle-rows",
     .example = "",
     .install = padding_writes_slot_zero},
    {.name = "list-stride",
     .number = "MU29",
     .family = Family::lists,
     .field = "The builder of the lists and a captured consumer disagree about the stride of a row.",
     .reported = "attention.lists",
     .scenario = "two-requests",
     .example = "",
     .install = list_stride,
     .parameters = kStride,
     .by_effect = true},
    {.name = "stale-input",
     .number = "MU30",
     .family = Family::attention,
     .field = "A stage reads its input before it is written: it sees the previous step's.",
     .reported = "attention.core",
     .scenario = "swa-decode-2",
     .example = "",
     .install = stale_input,
     .parameters = kConsumer,
     .by_effect = true},
    {.name = "page-freed-early",
     .number = "",
     .family = Family::lifecycle,
     .field = "A page is freed and overwritten while a row in it is still in some window.",
     .reported = "state",
     .scenario = "swa-decode-2",
     .example = "",
     .install = page_freed_early,
     .parameters = kStep,
     .by_effect = true},
    {.name = "stale-block-table",
     .number = "",
     .family = Family::lifecycle,
     .field = "After preemption and resume a request keeps its old block table.",
     .reported = "state",
     .scenario = "swa-resume",
     .example = "",
     .install = stale_block_table},
    {.name = "attention-in-another-order",
     .number = "NC1",
     .family = Family::attention,
     .field = "The sums over keys are made in parts, in another order.",
     .reported = "attention.core",
     .scenario = "swa-8",
     .example = "splits=2",
     .install = attention_in_another_order,
     .parameters = kSplits,
     .recomputes = true,
     .verdict = "ordering_only"},
    {.name = "selection-in-another-order",
     .number = "NC2",
     .family = Family::selection,
     .field = "Selected indices are returned in another order.",
     .reported = "indexer.select",
     .scenario = "csa-8",
     .example = "",
     .install = selection_in_another_order,
     .verdict = "value_equal"},
    {.name = "selection-other-tie",
     .number = "NC3",
     .family = Family::selection,
     .field = "Another valid choice inside an exact tie at the cut.",
     .reported = "indexer.select",
     .scenario = "csa-tie",
     .example = "",
     .install = selection_other_tie,
     .verdict = "tie_swap"},
    {.name = "scale-doubled",
     .number = "NC4",
     .family = Family::bytes,
     .field = "Scales are doubled and codes halved exactly: the same dequantised values.",
     .reported = "kv.window",
     .scenario = "swa-8",
     .example = "",
     .install = scale_doubled,
     .verdict = "value_equal"},
    {.name = "restore-recomputes-window",
     .number = "NC5",
     .family = Family::lifecycle,
     .field = "A restore computes window rows again that are still there.",
     .reported = "state",
     .scenario = "rewind",
     .example = "",
     .install = restore_recomputes_window,
     .verdict = "value_equal"},
};

void check_profile(const FaultInfo& fault, const Profile& profile) {
  for (const AxisInfo& axis : axes()) {
    if (axis.axis == Axis::index_cache || profile.value(axis.axis) == axis.values.front()) continue;
    throw UsageError(fmt::format("fault '{}' computes in canonical arithmetic, but this run has {} = {}",
                                 fault.name, axis.name, profile.value(axis.axis)));
  }
}

std::string engine_list() {
  return joined(std::vector<std::string>(kEngines.begin(), kEngines.end()));
}

std::string parameter_words(const FaultInfo& fault) {
  std::string words;
  for (const ParameterInfo& parameter : fault.parameters) {
    if (parameter.standard == parameter.choices) continue;
    words += (words.empty() ? "" : ", ") +
             fmt::format("`{}={}`{}", parameter.name, parameter.standard,
                         parameter.choices.empty() ? "" : fmt::format(" ({})", parameter.choices));
  }
  std::string escaped;
  for (const char c : words) escaped += c == '|' ? std::string(" or ") : std::string(1, c);
  return escaped;
}

}  // namespace

std::string_view name(Family family) {
  constexpr std::array<std::string_view, 9> kNames{"state",     "pool",  "finish",    "bytes",    "index",
                                                   "selection", "lists", "attention", "lifecycle"};
  return kNames[static_cast<std::size_t>(family)];
}

std::span<const FaultInfo> catalogue() {
  return kCatalogue;
}
std::span<const std::string_view> engines() {
  return kEngines;
}

Injection parse_injection(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view fault = text.substr(0, colon);
  const std::string_view rest = text.substr(std::min(colon + 1, text.size()));
  Injection injection;
  injection.text = text;
  if (fault == "bitflip") {
    injection.flip = parse_bit_flip(rest);
    return injection;
  }
  const auto found = std::ranges::find(kCatalogue, fault, &FaultInfo::name);
  if (found == std::end(kCatalogue)) {
    std::vector<std::string> names{"bitflip"};
    for (const FaultInfo& info : kCatalogue) names.emplace_back(info.name);
    throw UsageError(
        fmt::format("unknown fault '{}'; nearest: {}", fault, joined(nearest_names(fault, names))));
  }
  injection.fault = found;
  injection.parameters = Parameters(fault, found->parameters, rest);
  return injection;
}

std::unique_ptr<FaultyEngine> inject(std::unique_ptr<Engine> engine,
                                     std::shared_ptr<const WeightSource> weights,
                                     const Injection& injection) {
  const EngineInfo info = engine->info();
  if (std::ranges::find(kEngines, info.name) == kEngines.end()) {
    throw UsageError(fmt::format("fault '{}' cannot be put into engine '{}'; engines: {}", injection.text,
                                 info.name, engine_list()));
  }
  if (injection.fault != nullptr && injection.fault->recomputes)
    check_profile(*injection.fault, engine->config().profile);
  auto subject = std::make_unique<FaultyEngine>(std::move(engine), std::move(weights));
  if (injection.fault == nullptr)
    flip_bit(*subject, injection.flip);
  else
    injection.fault->install(*subject, injection.parameters);
  return subject;
}

std::string markdown() {
  std::string text = R"(# Faults

`dsv4-oracle replay SCENARIO --against reference --inject NAME[:key=value,...]` makes the engine under test wrong in
one way. A fault replaces an entry of the stage table, changes the plan that the engine is given, or acts when an
event is over; no stage knows of it. What it puts in place of a stage's result is right but for the fault.

Every fault applies to the engines )" +
                     engine_list() +
                     R"(. *By effect* marks faults whose mechanism our engines do not have (splits, graphs,
streams, 32-bit addresses): what they would cause is put in instead. A fault that changes nothing in a run ends it
with exit code 2. *Reported first* names the stage; `state` is the comparison of live rows after an event,
`writes` a finding of the write-set check. Scenarios lie in `tests/faults/scenarios`.

| fault | number | what goes wrong | reported first | smallest scenario | parameters | |
| --- | --- | --- | --- | --- | --- | --- |
)";
  const auto row = [&](const FaultInfo& fault) {
    text += fmt::format("| `{}` | {} | {} | {} | {}{} | {} | {} |\n", fault.name, fault.number, fault.field,
                        fault.verdict.empty() ? std::string(fault.reported)
                                              : fmt::format("`{}` at {}", fault.verdict, fault.reported),
                        fault.scenario, fault.example.empty() ? "" : fmt::format(" with `{}`", fault.example),
                        parameter_words(fault), fault.by_effect ? "by effect" : "");
  };
  for (const FaultInfo& fault : kCatalogue) {
    if (fault.verdict.empty()) row(fault);
  }
  text +=
      R"(| `bitflip:TENSOR[:element[:bit]]` | | One bit of a published tensor, by default in its last row; the row of a cache that it carries changes too. | the tensor's stage | any that publishes it | | |

## Variations that are no faults

They differ in bits, so they fail under `--rules bits`; under `--rules values` they must pass with the verdict named.

| variation | number | what differs | verdict | smallest scenario | parameters | |
| --- | --- | --- | --- | --- | --- | --- |
)";
  for (const FaultInfo& fault : kCatalogue) {
    if (!fault.verdict.empty()) row(fault);
  }
  return text;
}

}  // namespace dsv4::oracle::faults
