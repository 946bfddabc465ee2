#!/usr/bin/env bash
# cli_test.sh PROGRAM SOURCE [JSON_CHECK]: what `replay --inject`, `list faults` and `explain` say and which exit codes
# they give.
set -u
program=$1 scenarios=$2/tests/faults/scenarios
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
# expect CODE TEXT ARGS...: the exit code, and a text on either stream.
expect() {
  local code=$1 text=$2 got
  shift 2
  "$program" --quiet "$@" >"$work/out" 2>"$work/err"
  got=$?
  [ "$got" -eq "$code" ] || fail "exit $got instead of $code: $*"
  cat "$work/out" "$work/err" | grep -qF -- "$text" || { fail "no '$text': $*"; head -n 30 "$work/out" "$work/err"; }
}
against() { expect "$1" "$2" replay "$scenarios/$3.yaml" --against reference --inject "$4" "${@:5}"; }

against 1 'stage compress.pool, tensor pooled' csa-8 pool-halves-swapped
against 1 'stage compress.pool, tensor pooled' csa-8 pool-halves-swapped --feed reference
against 1 "request 'a', position 0" verify-4-accept-1 rollback-leaves-rows
against 1 'null page' idle-rows padding-writes-slot-zero
against 1 'stage q.up, tensor q ' swa-2 bitflip:q.up/q:5:9
# The engine refuses a count of 17 entries where there is one: what differed before is said first.
against 5 'stage indexer.score, tensor visible' csa-4 bitflip:indexer.score/visible:3:4
against 0 '' swa-8 scale-doubled --rules values
against 2 'changed nothing' swa-2 pool-halves-swapped
against 2 'nearest: pool-halves-swapped' csa-8 pool-halfs-swapped
against 2 "no parameter 'wdth'; nearest: width" swa-2 window-width:wdth=3
against 2 'bitflip' swa-2 bitflip:q.up/p
expect 2 'engines: reference, cuda' replay "$scenarios/swa-2.yaml" --engine wide --against reference --inject window-width
expect 2 'canonical arithmetic' replay "$scenarios/swa-2.yaml" --against reference --profile official --inject sink-in-every-split
# A dump of a wrong run is told from a right one.
expect 0 '' replay "$scenarios/csa-8.yaml" --inject pool-halves-swapped --dump "$work/wrong.h5"
expect 0 '' replay "$scenarios/csa-8.yaml" --dump "$work/right.h5"
expect 1 'stage compress.pool, tensor pooled' diff "$work/right.h5" "$work/wrong.h5"
expect 0 'stale-input' list faults
expect 0 '"type":"fault"' --json list faults
expect 2 '--markdown' list stages --markdown
"$program" list faults --markdown | cmp - "$2/docs/faults.md" || fail "docs/faults.md is not 'list faults --markdown'"

# What explain says, and its exit codes.
explain() {
  local other=(--against reference)
  [[ " $* " != *' --against '* ]] || other=()
  expect "$1" "$2" explain "$scenarios/$3.yaml" "${other[@]}" "${@:4}"
}
explain 1 'fault `pool-halves-swapped` reproduces all' csa-8 --inject pool-halves-swapped
explain 1 'variation `scale-doubled`, which is no fault' swa-8 --inject scale-doubled
explain 1 '`hadamard-dropped-on-both` and `index_rotation=none` reproduce all' csa-4 --inject hadamard-dropped-on-both
explain 1 'bit 3 is flipped' swa-2 --inject bitflip:kv.window/codes:17:3
explain 1 'profile `vllm-fp8` reproduces all' csa-4 --profile vllm-fp8 --against-profile canonical
explain 1 'kernel models `vllm-fp8 with --model-kernels` reproduces all' csa-8 --profile vllm-fp8 --model-kernels
explain 1 'axis `pooled_rounding=f32`' csa-4 --set pooled_rounding=f32 --against-profile canonical
explain 1 'candidates were not tried for want of time' csa-8 --inject pool-halves-swapped --time 0.000001
explain 1 'as nothing that was tried does' csa-8 --inject pool-halves-swapped --time 0.000001
explain 1 'no more than 1 thing differs in the whole run' idle-rows --inject padding-writes-slot-zero
explain 0 'Nothing differs' csa-8
explain 1 'of step 0 within their rules' csa-8 --inject pool-halves-swapped --rules values
explain 0 'Nothing differs' swa-8 --inject scale-doubled --rules values
expect 1 'fault `pool-halves-swapped` reproduces all' explain "$work/wrong.h5"
expect 0 'Nothing differs' explain "$work/right.h5"
expect 1 'fault `pool-halves-swapped` reproduces all' explain "$scenarios/csa-8.yaml" --against "$work/wrong.h5"
expect 1 '"outcome":"explained"' --json explain "$work/wrong.h5"
expect 1 '"reproduces":"everything"' --json explain "$work/wrong.h5"
expect 1 '"name":"one_bit"' --json explain "$scenarios/swa-2.yaml" --against reference --inject bitflip:q.up/q:5:9
explain 2 'changed nothing' swa-2 --inject pool-halves-swapped
expect 2 'needs --against' explain "$scenarios/csa-8.yaml"
expect 2 'does not promise bits' explain "$scenarios/csa-8.yaml" --against wide
expect 2 'unknown engine' explain "$scenarios/csa-8.yaml" --against nobody
expect 2 'explained by itself' explain "$work/wrong.h5" --against reference
expect 2 'explained by itself' explain "$work/wrong.h5" --against-profile official
expect 2 'explained by itself' explain "$work/wrong.h5" --model v4-flash
expect 2 "for the engine 'cuda'" explain "$work/wrong.h5" --graph
# Nothing is compared with a side that was not asked for.
explain 2 'one side must be the reference' csa-8 --against "$work/right.h5" --inject pool-halves-swapped
explain 2 'one side must be the reference' csa-8 --against wide --profile vllm-fp8 --model-kernels
explain 2 'has its own' csa-8 --against "$work/right.h5" --against-profile official
expect 2 'other layers' explain "$scenarios/swa-2.yaml" --against "$work/wrong.h5"
expect 3 'none.h5' explain "$work/none.h5"
expect 3 'none.yaml: does not exist' explain "$work/none.yaml"
expect 0 'Nothing differs' explain future-tokens --against reference --stages q.up --steps 0:1
# Where the first difference is, in a list, in a page and in a packed row.
explain 1 'window, request a, position 1, rank 1: 0x00000041 against 0x00000043' swa-2 \
  --inject bitflip:attention.lists/window:129:1
explain 1 'page_bytes, request a, position 1, codes, dim 16, slot 65, page 1, offset 1: ' swa-2 \
  --inject bitflip:kv.window/page_bytes:600:1
expect 0 'Examples' explain --help
if [ -n "${3:-}" ]; then
  "$program" --json explain "$work/wrong.h5" >"$work/lines"
  "$3" records "$work/lines" "$2"/data/schema/{report,records}.schema.json || fail 'records of explain'
  "$program" --json explain "$scenarios/swa-2.yaml" --against reference --inject bitflip:q.up/q:5:9 >"$work/lines"
  "$3" records "$work/lines" "$2"/data/schema/{report,records}.schema.json || fail 'readings of explain'
fi
[ $failures -eq 0 ] && echo "all as expected"
exit $((failures > 0))
