#!/usr/bin/env bash
# sanitize.sh PROGRAM [TOOL...]: compute-sanitizer's tools (memcheck racecheck initcheck synccheck) over sanitize.txt,
# two processor cores a run. Prints a line for each run; 77 without a device, 1 if a tool finds anything.
set -uo pipefail
program=$1
shift
[ $# -gt 0 ] || set -- memcheck racecheck initcheck synccheck
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export program here sanitizer logs OMP_NUM_THREADS=2

# run_one "TOOL SCENARIO [ARGUMENTS]"
run_one() {
  local tool scenario arguments log start=$SECONDS status=0
  read -r tool scenario arguments <<<"$1"
  log=$(mktemp -p "$logs")
  # shellcheck disable=SC2086 — arguments are words
  "$sanitizer" --tool "$tool" --error-exitcode 99 "$program" --quiet replay "$here/sanitize/$scenario" --engine cuda \
    --no-expect $arguments >"$log" 2>&1 </dev/null || status=$?
  grep -q 'no CUDA device:' "$log" && touch "$logs/no-device" && return
  printf '%-10s %-50s exit %d, %d s, %s\n' "$tool" "$scenario $arguments" "$status" $((SECONDS - start)) \
    "$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -n 1 | sed 's/=* *//')"
  [ "$status" -eq 0 ] || { touch "$logs/failed"; head -n 40 "$log"; }
}
export -f run_one
for tool; do sed -n "/^[^#]/s/^/$tool /p" "$here/sanitize.txt"; done |
  xargs -P $((($(nproc) + 1) / 2)) -I LINE bash -c 'run_one "$1"' _ LINE
[ ! -e "$logs/no-device" ] || exit 77
[ ! -e "$logs/failed" ]
