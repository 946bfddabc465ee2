#!/bin/sh
# The digest of src/arith from every compiler and instruction set found here must be one and the same.
# Usage: portable_digest.sh SOURCE_DIR CXX
set -eu
root=$1
cxx=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags="-std=c++20 -I$root/src -ffp-contract=off -fno-fast-math -fno-math-errno -fno-trapping-math"
source=$root/tests/arith/portable_digest.cpp
first=
builds=0
failed=0

# try NAME RUNNER COMPILER FLAGS...
try() {
  name=$1
  runner=$2
  shift 2
  # shellcheck disable=SC2086
  "$@" $flags "$source" -o "$work/digest"
  line=$($runner "$work/digest")
  echo "$line  $name"
  [ -n "$first" ] || first=$line
  [ "$line" = "$first" ] || failed=1
  builds=$((builds + 1))
}

try "$cxx -O2" "" "$cxx" -O2
try "$cxx -O0" "" "$cxx" -O0
if [ "$(uname -m)" = x86_64 ]; then
  if grep -qw avx2 /proc/cpuinfo; then try "$cxx -O3 x86-64-v3" "" "$cxx" -O3 -march=x86-64-v3; fi
  if grep -qw avx512bw /proc/cpuinfo; then try "$cxx -O3 x86-64-v4" "" "$cxx" -O3 -march=x86-64-v4; fi
fi
if command -v clang++ >/dev/null; then try "clang++ -O2" "" clang++ -O2; else echo "no clang++: left out"; fi
if command -v aarch64-linux-gnu-g++ >/dev/null && command -v qemu-aarch64 >/dev/null; then
  try "aarch64-linux-gnu-g++ -O2, qemu" qemu-aarch64 aarch64-linux-gnu-g++ -O2 -static
else
  echo "no aarch64-linux-gnu-g++ with qemu-aarch64: left out"
fi
[ "$builds" -ge 2 ] || { echo "nothing to compare"; exit 1; }
exit $failed
