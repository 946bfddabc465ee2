# Shared by the scripts here: quiet steps with time, whose output is shown only when they fail.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
mkdir -p build/log

# Tests take many short steps: waiting threads must not spin.
export OMP_WAIT_POLICY=passive

# step NAME COMMAND...: runs it with its output in build/log, prints one line.
step() {
  local title=$1 log start status=0
  shift
  log=build/log/$(tr -c 'a-z0-9\n' '-' <<<"${title,,}").txt
  start=$SECONDS
  if [ -t 1 ]; then printf '%-58s ...\r' "$title"; fi
  "$@" >"$log" 2>&1 || status=$?
  if [ $status -ne 0 ]; then
    printf '%-58s FAILED after %d s (%s)\n' "$title" $((SECONDS - start)) "$log"
    tail -n 60 "$log"
    exit 1
  fi
  printf '%-58s %4d s\n' "$title" $((SECONDS - start))
}

# ctest_step NAME BUILD_DIR ARGS...: a step whose last lines, ctest's count of tests, are shown.
ctest_step() {
  local title=$1 dir=$2 log skipped
  shift 2
  log=build/log/$(tr -c 'a-z0-9\n' '-' <<<"${title,,}").txt
  step "$title" ctest --test-dir "$dir" --output-on-failure --no-tests=error -j "$(nproc)" "$@"
  sed -n 's/^[0-9]*% tests passed/    &/p' "$log"
  skipped=$(grep -c '\*\*\*Skipped' "$log" || true)
  [ "$skipped" -eq 0 ] || echo "    $skipped skipped: $(sed -n 's/^\t *[0-9]* - \(.*\) (Skipped)$/\1/p' "$log" | tr '\n' ' ')"
}

# configure PRESET [ARGS...], build PRESET [TARGETS...]
configure() { cmake --preset "$1" "${@:2}" -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache; }
build() { cmake --build "build/$1" --target "${@:2}"; }
