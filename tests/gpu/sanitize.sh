#!/usr/bin/env bash
# sanitize.sh PROGRAM [TOOL...]: compute-sanitizer's tools (memcheck racecheck initcheck synccheck) over sanitize.txt.
# Prints a line for each run; 77 without a device, 1 if a tool finds anything.
set -uo pipefail
program=$1
shift
tools=("$@")
[ ${#tools[@]} -gt 0 ] || tools=(memcheck racecheck initcheck synccheck)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
for tool in "${tools[@]}"; do
  while read -r scenario arguments; do
    case $scenario in '' | '#'*) continue ;; esac
    start=$SECONDS status=0
    # shellcheck disable=SC2086 — arguments are words
    "$sanitizer" --tool "$tool" --error-exitcode 99 "$program" --quiet replay "$here/sanitize/$scenario" --engine cuda \
      --no-expect $arguments > "$log" 2>&1 < /dev/null || status=$?
    grep -q 'no CUDA device:' "$log" && exit 77
    printf '%-10s %-50s exit %d, %d s, %s\n' "$tool" "$scenario $arguments" "$status" $((SECONDS - start)) \
      "$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -n 1 | sed 's/=* *//')"
    if [ "$status" -ne 0 ]; then
      failed=1
      head -n 40 "$log"
    fi
  done < "$here/sanitize.txt"
done
exit $failed
