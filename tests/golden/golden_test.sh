#!/usr/bin/env bash
# Golden data is small, and generating it again, with one thread or on another instruction set, gives the same files.
# Usage: golden_test.sh PROGRAM GOLDEN_FOLDER
set -euo pipefail
program=$1 stored=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

bytes=$(cat "$stored"/* | wc -c)
[ "$bytes" -lt $((4 << 20)) ] || { echo "golden data takes $bytes bytes"; exit 1; }

"$program" --quiet golden generate --data "$work/a" --case '*-csa' --threads 1 >/dev/null
"$program" --quiet golden generate --data "$work/b" --case '*-csa' --isa v3 --threads 2 >/dev/null
for file in "$work"/a/*; do
  name=$(basename "$file")
  cmp "$file" "$work/b/$name"
  case $name in *.digests) cmp "$file" "$stored/$name" ;; esac
done
echo "$bytes bytes; generated twice alike"
