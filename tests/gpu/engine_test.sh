#!/usr/bin/env bash
# engine_test.sh PROGRAM SCENARIOS CASE: what users do with the CUDA engine besides comparing it; 77 without a device.
set -euo pipefail
program=$1 scenarios=$2 case=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "$case: $1" >&2; cat out err >&2 2>/dev/null || true; exit 1; }

# expect STATUS ARGS...: output in `out` and `err`.
expect() {
  local wanted=$1 status=0
  shift
  "$program" --quiet "$@" > out 2> err || status=$?
  [ $status -eq 4 ] && grep -q 'no CUDA device:' err && exit 77
  [ $status -eq "$wanted" ] || fail "exit $status instead of $wanted: $*"
}
contains() { grep -q -- "$2" "$1" || fail "$1 lacks '$2'"; }

# The engine as follower, and as leader of one that is not exact in bits, on either side.
feed() {
  for scenario in mixed-batch online-c128 chain; do
    expect 0 replay "$scenarios/$scenario.yaml" --engine cuda --against reference --feed reference --no-expect
    expect 0 replay "$scenarios/$scenario.yaml" --engine cuda --against wide --feed reference --no-expect
    expect 0 replay "$scenarios/$scenario.yaml" --engine wide --against cuda --feed reference --no-expect
  done
  # Another softmax on one side: fed, every difference is introduced where it is seen; else most are inherited.
  local other=(replay "$scenarios/mixed-batch.yaml" --engine cuda --set softmax=online64_bf16_p --against reference
    --against-profile canonical --rules bits --continue --no-expect)
  expect 1 "${other[@]}" --feed reference
  contains out 'introduced here, not inherited'
  contains out '[1-9][0-9]* failed here, 0 downstream'
  expect 1 "${other[@]}" --feed independent
  contains out '[1-9][0-9]* failed here, [1-9][0-9]* downstream'
  expect 4 replay "$scenarios/chain.yaml" --engine cuda --against reference --feed reference --graph --no-expect
  contains err 'runs through a captured graph'
}

# Every cache byte before and after every step.
writes() {
  for scenario in padding state-forms online-c128 fp4-index verify-window graph-replay; do
    expect 0 replay "$scenarios/$scenario.yaml" --engine cuda --check-writes --no-expect
    expect 0 replay "$scenarios/$scenario.yaml" --engine cuda --check-writes --no-expect --graph
  done
}

# A dump of either engine stands in for it.
dumps() {
  expect 0 replay "$scenarios/mixed-batch.yaml" --engine cuda --dump cuda.h5 --no-expect
  expect 0 replay "$scenarios/mixed-batch.yaml" --against cuda.h5 --no-expect
  expect 0 replay "$scenarios/mixed-batch.yaml" --dump reference.h5 --no-expect
  expect 0 replay "$scenarios/mixed-batch.yaml" --engine cuda --against reference.h5 --no-expect
  expect 0 replay "$scenarios/mixed-batch.yaml" --engine cuda --against reference.h5 --feed reference --no-expect
  expect 0 diff cuda.h5 reference.h5
  # Only some steps and tensors: what is not asked for is not copied, what is asked for stays the same.
  expect 0 replay "$scenarios/mixed-batch.yaml" --engine cuda --dump part.h5 --steps 1:3 --stages 'compress.*' --no-expect
  expect 0 diff part.h5 reference.h5 --steps 1:3 --stages 'compress.*'
  expect 0 replay "$scenarios/mixed-batch.yaml" --engine cuda --checkpoint 1:state.h5 --no-expect
  expect 0 replay --resume state.h5 --engine cuda --against reference.h5 --no-expect
}

# Devices by number.
devices() {
  expect 0 list devices
  [ -s out ] || exit 77
  contains out '^0 '
  expect 0 replay "$scenarios/padding.yaml" --engine cuda --device 0 --no-expect
  expect 4 replay "$scenarios/padding.yaml" --engine cuda --device 4096 --no-expect
  contains err 'no CUDA device 4096; there are: 0 ('
  expect 2 replay "$scenarios/padding.yaml" --device 1 --no-expect
  expect 2 replay "$scenarios/padding.yaml" --graph --no-expect
}

# Graphs on the subject's side, on the other side, and on neither.
graphs() {
  expect 0 replay "$scenarios/graph-replay.yaml" --engine cuda
  expect 0 replay "$scenarios/graph-replay.yaml" --against cuda --no-expect
  expect 0 replay "$scenarios/graph-replay.yaml" --engine cuda --against cuda --no-expect
  expect 4 replay "$scenarios/graph-replay.yaml" --no-expect
  contains err "engine 'reference' has no graphs"
  # Without graphs and with them, the same observation: shapes, values, digests.
  expect 0 replay "$scenarios/decode-growth.yaml" --engine cuda --dump eager.h5 --no-expect
  expect 0 replay "$scenarios/decode-growth.yaml" --engine cuda --graph --against eager.h5 --no-expect
  expect 0 golden verify --engine cuda --graph
}

"$case"
