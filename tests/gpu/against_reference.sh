#!/usr/bin/env bash
# against_reference.sh PROGRAM SCENARIO [ARGS]: the CUDA engine against the reference; 77 when there is no device.
program=$1 scenario=$2
shift 2
status=0
output=$("$program" --quiet replay "$scenario" --engine cuda --against reference "$@" 2>&1) || status=$?
tail -n 40 <<<"$output"
[ $status -eq 4 ] && grep -q 'no CUDA device:' <<<"$output" && exit 77
exit $status
