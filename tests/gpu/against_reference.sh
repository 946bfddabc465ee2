#!/usr/bin/env bash
# against_reference.sh PROGRAM SCENARIO: the CUDA engine against the reference; 77 when there is no device.
status=0
output=$("$1" --quiet replay "$2" --engine cuda --against reference 2>&1) || status=$?
tail -n 40 <<<"$output"
[ $status -eq 4 ] && grep -q 'no CUDA device:' <<<"$output" && exit 77
exit $status
