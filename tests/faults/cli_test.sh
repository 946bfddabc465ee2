#!/usr/bin/env bash
# cli_test.sh PROGRAM SOURCE: what `replay --inject` and `list faults` say and which exit codes they give.
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
[ $failures -eq 0 ] && echo "all as expected"
exit $((failures > 0))
