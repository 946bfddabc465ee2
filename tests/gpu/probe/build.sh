#!/bin/sh
# Builds the probe beside this file's sources: ./build.sh [OUTPUT]. Needs nvcc 12.8 or newer.
set -e
here=$(cd "$(dirname "$0")" && pwd)
exec "${NVCC:-nvcc}" -std=c++20 -O3 --fmad=false --ftz=false --prec-div=true --prec-sqrt=true \
  -gencode arch=compute_90,code=sm_90 -I"$here/../../../src" \
  -Xcompiler -O3,-march=x86-64-v3,-fopenmp,-ffp-contract=off,-fno-math-errno,-fno-trapping-math \
  "$here/probe.cu" -o "${1:-$here/probe}"
