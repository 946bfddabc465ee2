#!/usr/bin/env bash
# probe.sh PROGRAM: this GPU conforms to docs/hopper.md; 77 when there is no device or it is no Hopper.
# probe.sh PROGRAM none: without a device, or without CUDA in the build, the program says so and exits 4.
program=$1
if [ "$2" = none ]; then
  status=0
  output=$(CUDA_VISIBLE_DEVICES='' "$program" probe 2>&1) || status=$?
  echo "exit $status: $output"
  [ $status -eq 4 ] && grep -qE 'probe: (no CUDA device|this program was built without CUDA)' <<<"$output"
  exit
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0
output=$("$program" probe --record "$folder/evidence" 2>&1) || status=$?
echo "$output"
[ $status -eq 4 ] && grep -q 'no CUDA device' <<<"$output" && exit 77
[ $status -eq 1 ] && grep -q 'no WGMMA' <<<"$output" && exit 77
[ $status -eq 0 ] || exit "$status"
grep -q '^conforms: ' <<<"$output" || exit 1
for file in device functions matrices; do [ -s "$folder/evidence/$file.txt" ] || exit 1; done
