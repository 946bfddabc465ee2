#!/usr/bin/env bash
# against_reference.sh PROGRAM SCENARIO: the CUDA engine against the reference; 77 when there is no device.
status=0
"$1" --quiet replay "$2" --engine cuda --against reference || status=$?
[ $status -eq 4 ] && exit 77
exit $status
