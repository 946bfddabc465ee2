#!/usr/bin/env bash
# Runs the program as a user does and checks exit codes, what goes to stdout and stderr, and the files it leaves.
# Usage: cli_test.sh PROGRAM JSON_CHECK SOURCE_FOLDER CASE [LIBRARY]
set -u
program=$1 json_check=$2 source=$3 case=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# expect CODE ARGS...: runs the program, keeps its streams in out and err.
expect() {
  local code=$1 got
  shift
  "$program" "$@" >out 2>err
  got=$?
  if [ "$got" -ne "$code" ]; then
    fail "exit $got instead of $code: $*"
    sed 's/^/    /' out err | head -n 20
  fi
}
contains() { grep -q -- "$2" "$1" || { fail "$1 has no '$2'"; head -n 20 "$1" | sed 's/^/    /'; }; }
lacks() { ! grep -q -- "$2" "$1" || fail "$1 has '$2'"; }
is_empty() { [ ! -s "$1" ] || { fail "$1 is not empty"; head -n 5 "$1" | sed 's/^/    /'; }; }
json_lines() {
  "$json_check" records "$1" "$source"/data/schema/{report,records}.schema.json ||
    fail "$1 is no JSON Lines of records that data/schema describes"
}
json_file() { "$json_check" file "$1" || fail "$1 is no JSON"; }

cat >small.yaml <<'YAML'
model: {preset: tiny, layers: [swa, csa, hca]}
seed: 5
steps:
  - prefill: {request: a, tokens: 11}
  - batch: [{prefill: {request: b, tokens: 4}}, {decode: {requests: [a]}}, {pad: 1}]
  - decode: {requests: [a, b], repeat: 2}
YAML

usage() {
  expect 0 --help
  contains out 'Examples'
  is_empty err
  expect 0 --version
  contains out 'HDF5'
  contains out 'instruction set'
  expect 0 replay --help
  contains out 'Examples'
  expect 2
  is_empty out
  expect 2 repaly small.yaml
  contains err "unknown command 'repaly' (did you mean replay?"
  expect 2 --json golden exprot
  contains err "did you mean export?"
  expect 2 replay small.yaml --no-such-option
  is_empty out
  expect 3 replay absent.yaml
  contains err absent.yaml
  expect 2 replay small.yaml --engine none
  contains err reference
  expect 2 replay small.yaml --stages 'attention'
  contains err attention.core
  expect 2 replay small.yaml --profile none
  expect 2 replay small.yaml --set softmax=none
  expect 2 replay small.yaml --feed reference
  expect 2 replay small.yaml --steps 3:2
  expect 2 replay small.yaml --isa v9
  printf 'model: {preset: tiny, layers: [swa]}\nsteps:\n  - prefil: {request: a, tokens: 1}\n' >bad.yaml
  expect 2 replay bad.yaml
  contains err 'bad.yaml:3'
  # What a full disk swallows was not said.
  local arguments
  for arguments in --version --help 'list tensors' '--json list tensors' 'list engines' 'replay small.yaml'; do
    # shellcheck disable=SC2086
    "$program" $arguments >/dev/full 2>err
    [ $? -eq 3 ] || fail "no exit 3 with a full stdout: $arguments"
    contains err 'dsv4-oracle: '
  done
  if ! "$program" --version | grep -q '^engines:.*cuda'; then
    expect 4 replay small.yaml --engine cuda
    contains err cuda
    [ "$(wc -l <err)" -eq 1 ] || fail "more than one sentence about a missing engine"
  fi
}

plan() {
  expect 0 replay small.yaml --check
  contains out prefill
  is_empty err
  expect 0 --json replay small.yaml --check
  json_lines out
  [ "$(grep -c '"type":"plan_step"' out)" -eq 4 ] || fail "four steps expected"
  for what in stages tensors profiles models scenarios coverage engines faults; do
    expect 0 list $what
    [ -s out ] || fail "list $what is empty"
    expect 0 list $what --json
    json_lines out
  done
  expect 1 list --coverage small.yaml
  contains out 'not reached: '
  expect 1 --json list --coverage small.yaml
  json_lines out
  contains out '"name":"window.first_token","seen":"plan"'
  expect 2 list
  expect 2 list nothing
  expect 2 list tensors stages
}

dumps() {
  expect 0 replay small.yaml --dump a.h5
  [ -f a.h5 ] && [ ! -e a.h5.partial ] || fail "a.h5 is not in place"
  expect 0 replay small.yaml --dump b.h5 --threads 1
  cmp a.h5 b.h5 || fail "threads change the dump"
  expect 0 replay small.yaml --dump b.h5 --threads 2
  cmp a.h5 b.h5 || fail "threads change the dump"
  for isa in v2 v3 v4; do
    "$program" --version | grep -q "runs.* $isa" || continue
    expect 0 replay small.yaml --dump b.h5 --isa $isa
    cmp a.h5 b.h5 || fail "--isa $isa changes the dump"
  done
  expect 0 replay small.yaml --dump plain.h5 --no-compress
  expect 0 diff a.h5 plain.h5
  contains out compared
  expect 0 diff a.h5 plain.h5 --json
  json_lines out
  is_empty err
  expect 0 diff a.h5 plain.h5 --align token
  expect 0 inspect a.h5
  contains out 'tiny\|canonical'
  expect 0 inspect a.h5 --step 1 --json
  json_lines out
  expect 0 inspect a.h5 --verify
  expect 0 inspect a.h5 /steps/000000/layer_01/q.up/q --at 3,1,17
  contains out 0x
  expect 2 inspect a.h5 /steps/000000/layer_01/q.up/q --at 3,1
  expect 2 inspect a.h5 /steps/000000/layer_01/q.up/qq
  contains err '/steps/000000/layer_01/q.up/q,'
  expect 2 inspect a.h5 --at 3,1
  contains err PATH
  expect 2 inspect a.h5 --slot 3
  expect 2 inspect a.h5 --step 0 --verify
  expect 3 inspect small.yaml
  expect 0 replay small.yaml --dump some.h5 --stages 'compress.*' --steps 1:3
  expect 0 inspect some.h5
  expect 0 diff a.h5 some.h5 --stages 'compress.*'
  expect 2 diff a.h5 some.h5 --stages q.up
  contains err 'nothing was compared'
  expect 2 replay small.yaml --dump c.h5 --max-dump 1K
  [ ! -e c.h5 ] || fail "a refused dump exists"
  expect 3 replay small.yaml --dump no/such/folder/c.h5
  head -c 3000 a.h5 >cut.h5
  expect 3 diff a.h5 cut.h5
  contains err cut.h5
}

against() {
  expect 0 replay small.yaml --against wide --feed reference
  contains out 'attention.core'
  expect 0 replay small.yaml --against wide --feed reference --json
  json_lines out
  expect 0 replay small.yaml --against reference
  expect 0 replay small.yaml --dump a.h5
  expect 0 replay small.yaml --against a.h5
  expect 0 replay small.yaml --against a.h5 --feed reference
  # What would change nothing is refused: a dump has its own profile, and without a comparison nothing has rules.
  expect 2 replay small.yaml --against a.h5 --against-profile official
  contains err 'a.h5 has its own'
  for option in '--against-profile official' '--rules values' '--rule q.up/.*=ulp:1'; do
    expect 2 replay small.yaml $option
    contains err 'needs --against'
  done
  expect 2 replay small.yaml --check --model-kernels
  contains err "profile 'canonical' has no kernel models"
  expect 2 replay small.yaml --seed -1
  expect 1 replay small.yaml --against a.h5 --seed 6
  contains out 'layer.input'
  contains out 'dsv4-oracle replay'
  expect 0 replay small.yaml --stats --json
  json_lines out
  contains out '"type":"stats"'
  expect 0 replay small.yaml --against reference --times --json
  json_lines out
  contains out '"type":"times"'
  contains out '"reference.stages":'
  expect 0 replay small.yaml --times
  contains out '^time  subject.stages '
}

resume() {
  expect 0 replay small.yaml --dump whole.h5 --checkpoint 1:state.h5
  expect 0 replay small.yaml --resume state.h5 --dump rest.h5
  expect 0 diff whole.h5 rest.h5 --steps 2:4
  expect 0 replay --resume state.h5
  expect 2 replay small.yaml --resume state.h5 --seed 9
  expect 3 replay small.yaml --resume whole.h5
  expect 2 replay small.yaml --checkpoint 9:state.h5
}

# Kernel models, and the cache rows of profiles without a quantiser.
models() {
  expect 0 replay small.yaml --profile sglang-fp8 --dump plain.h5
  expect 0 replay small.yaml --profile sglang-fp8 --model-kernels --dump models.h5
  expect 0 inspect models.h5
  contains out 'reference+kernel-models'
  expect 0 replay small.yaml --profile sglang-fp8 --model-kernels --against wide --rules hopper-exact --feed reference
  # 32 index heads, so that there are kernels for the scores.
  sed 's/preset: tiny/preset: tiny, index_heads: 32/' small.yaml >heads.yaml
  for profile in vllm-fp8 vllm-mxfp4 sglang-fp8 sglang-fp4; do
    expect 0 replay heads.yaml --profile $profile --model-kernels --against wide --feed reference
  done
  expect 0 replay small.yaml --profile sglang-fp8 --model-kernels --against models.h5 --rules hopper-exact
  expect 1 replay small.yaml --profile sglang-fp8 --model-kernels --against plain.h5 --feed reference --rules hopper-exact
  contains out 'DIFFERS at step 0, layer 0, stage attention.core'
  contains out 'rule bits'
  expect 0 diff models.h5 models.h5 --rules hopper-exact --json
  json_lines out
  contains out '"set":"hopper-exact"'
  expect 0 diff plain.h5 models.h5 --stages 'compress.*,indexer.*'
  contains out 'rules values'
  expect 1 diff plain.h5 models.h5 --stages 'compress.*' --rules hopper-exact
  expect 2 diff plain.h5 plain.h5 --rules hopper-exact
  contains err 'neither side'
  expect 2 replay small.yaml --model-kernels
  contains err 'has no kernel models'
  expect 2 replay small.yaml --profile vllm-fp8 --set kv_cache=e4m3_scale_floor --model-kernels
  contains err 'kv_cache = e4m3_scale_floor, but the kernels of vllm-fp8 compute e4m3_amax_floor'
  # A checkpoint knows which models were in use.
  expect 0 replay small.yaml --profile vllm-fp8 --model-kernels --checkpoint 1:models-state.h5 --dump vllm.h5
  expect 0 replay small.yaml --profile vllm-fp8 --model-kernels --resume models-state.h5 --against vllm.h5 --rules bits
  expect 2 replay small.yaml --profile vllm-fp8 --resume models-state.h5
  contains err 'was written with q.down=vllm_qk_rmsnorm; .*this run is without kernel models'
  expect 0 list kernels --json
  json_lines out
  expect 0 list kernels --markdown
  while IFS= read -r line; do
    grep -qxF -- "$line" "$source/docs/kernel-models.md" || fail "docs/kernel-models.md has no line '$line'"
  done <out
  expect 0 --quiet shrink small.yaml --profile vllm-fp8 --model-kernels --against reference --rules bits --time 5 -o small-models.yaml
  contains out 'normed'
  expect 2 shrink small.yaml --profile vllm-fp8 --model-kernels --pair sequential
  contains err "not with 'sequential'"
  expect 0 --quiet shrink --help
  expect 2 --quiet fuzz --seed 3 --count 1 --pair ring:paged --model-kernels
  contains out 'refused'
  for profile in transformers ggml; do
    expect 0 replay small.yaml --profile $profile --dump half.h5
    for cache in window entries index_entries; do
      expect 0 inspect half.h5 --step 0 --layer 1 --cache $cache --slot 64
      contains out 'float16'
      expect 0 --json inspect half.h5 --step 0 --layer 1 --cache $cache --slot 64
      json_lines out
    done
  done
}

expectations() {
  { cat small.yaml; echo 'expect: {covers: [compress.overlap_first_window, batch.padding], same_as: sequential}'; } >good.yaml
  expect 0 replay good.yaml
  { cat small.yaml; echo 'expect: {covers: [page.reused]}'; } >missed.yaml
  expect 1 replay missed.yaml
  contains out page.reused
  expect 0 replay missed.yaml --no-expect
  expect 1 replay missed.yaml --check
  expect 0 replay good.yaml --check
  cat >sweep.yaml <<'YAML'
model: {preset: tiny, layers: [csa]}
sweep: {n: [3, 4, 9]}
steps:
  - prefill: {request: a, tokens: ${n}}
  - decode: {requests: [a], repeat: 2}
expect: {same_as: sequential}
YAML
  expect 0 replay sweep.yaml --dump sweep.h5
  for n in 3 4 9; do [ -f sweep-n$n.h5 ] || fail "no dump of n=$n"; done
  expect 0 replay sweep.yaml --only 'n=4'
  expect 2 replay sweep.yaml --only 'n=5'
}

# The hexadecimal bytes of a little-endian f32 as grep -P wants them.
element() {
  local hex
  expect 0 inspect a.h5 "$1" --at "$2"
  hex=$(grep -o '0x[0-9a-f]*' out | head -n 1)
  printf '\\x%s\\x%s\\x%s\\x%s' "${hex:8:2}" "${hex:6:2}" "${hex:4:2}" "${hex:2:2}"
}

one_bit() {
  local tensor=/steps/000001/layer_01/indexer.query/weights row offset byte
  expect 0 replay small.yaml --dump a.h5 --no-compress
  row=$(element $tensor 2,0)$(element $tensor 2,1)$(element $tensor 2,2)$(element $tensor 2,3)
  offset=$(LC_ALL=C grep -obUaP "$row" a.h5 | cut -d: -f1)
  [ "$(wc -w <<<"$offset")" -eq 1 ] || { fail "row 2 of $tensor is not in the file just once"; return; }
  cp a.h5 b.h5
  byte=$(od -An -tu1 -j $((offset + 4)) -N 1 b.h5)
  printf "\\x$(printf %x $((byte ^ 1)))" | dd of=b.h5 bs=1 seek=$((offset + 4)) conv=notrunc status=none
  expect 3 inspect b.h5 --verify
  contains err indexer.query
  expect 1 diff a.h5 b.h5
  contains out 'step 1'
  contains out 'indexer.query'
  contains out weights
  expect 1 diff a.h5 b.h5 --json
  json_lines out
  contains out '"coordinate":\[2,1\]'
}

golden() {
  expect 0 golden list
  expect 0 golden export --format json --output vectors
  for kind in convert quant_block top_k ring_index; do json_file vectors/$kind.json; done
  expect 0 golden export --format safetensors --case canonical-swa --output vectors
  [ -f vectors/canonical-swa.safetensors ] && json_file vectors/manifest.json
  expect 0 golden export --weights --case canonical-swa --output weights
  cat >from_file.yaml <<YAML
model: {preset: tiny, layers: [swa]}
seed: 20260101
weights: weights/canonical-swa.weights.safetensors
steps:
  - prefill: {request: a, tokens: 9}
YAML
  sed '/^weights/d' from_file.yaml >seeded.yaml
  expect 0 replay seeded.yaml --dump seeded.h5
  expect 0 replay from_file.yaml --against seeded.h5
  expect 0 golden generate --case canonical-swa --data golden
  expect 0 golden verify --case canonical-swa --data golden
  sed -i 's/\(q.up.q bfloat16 [0-9,]* \)./\1x/' golden/canonical-swa.digests
  expect 1 golden verify --case canonical-swa --data golden
  contains out 'q.up/q'
  expect 2 golden verify --case none
  expect 3 golden verify --case canonical-swa --data nowhere
}

trace() {
  expect 0 import-trace "$source/data/traces/mooncake-conversation-1000.jsonl" --requests 3 --scale 256 -o trace.yaml
  is_empty out
  expect 0 replay trace.yaml --check
  expect 3 import-trace absent.jsonl
  echo '{"timestamp": 1' >bad.jsonl
  expect 3 import-trace bad.jsonl
  contains err 'bad.jsonl:1'
}

# Nothing that is read, foreign or no file is written, and that is known before the run.
outputs() {
  local head="model: {preset: tiny, layers: [swa]}"
  expect 0 replay small.yaml --dump a.h5 --checkpoint 1:state.h5
  cp a.h5 a.kept
  cp small.yaml small.kept
  mkdir folder
  echo notes >notes.txt
  local refused
  for refused in '3 --dump folder' '3 --dump /dev/null' '3 --dump notes.txt' '3 --checkpoint 1:folder' \
                 '3 --checkpoint 1:notes.txt' '3 --checkpoint 1:/dev/null' '3 --checkpoint 1:no/folder/x.h5' \
                 '2 --dump small.yaml' '2 --against a.h5 --dump a.h5' '2 --against a.h5 --checkpoint 1:./a.h5' \
                 '2 --resume state.h5 --dump state.h5' '2 --dump b.h5 --checkpoint 1:b.h5' \
                 '2 --checkpoint 1:x.h5 --checkpoint 2:x.h5' '2 --checkpoint 1:x.h5 --checkpoint 1:y.h5'; do
    # shellcheck disable=SC2086
    expect ${refused%% *} replay small.yaml ${refused#* }
    is_empty out
  done
  cmp -s a.h5 a.kept && cmp -s small.yaml small.kept && [ "$(cat notes.txt)" = notes ] || fail "an input changed"
  ls | grep -q partial && fail "a .partial is left: $(ls | grep partial)"
  printf '%s\nhidden: hidden.h5\nsteps: [{prefill: {request: a, tokens: 1}}]\n' "$head" >hidden.yaml
  cp a.h5 hidden.h5
  expect 2 replay hidden.yaml --dump hidden.h5
  expect 0 replay small.yaml --dump a.h5
  cmp -s a.h5 a.kept || fail "an older dump is not replaced"

  printf '%s\nsweep: {n: [1, -1]}\nsteps: [{prefill: {request: a, tokens: 1}}]\nseed: ${n * n}\n' "$head" >sweep.yaml
  expect 0 replay sweep.yaml --dump s.h5
  [ -f s-n1.h5 ] && [ -f s-n-1.h5 ] || fail "two runs of a sweep share a dump"

  cp "$source/data/traces/mooncake-conversation-1000.jsonl" trace.jsonl
  expect 2 import-trace trace.jsonl -o trace.jsonl --requests 1 --scale 256
  expect 3 import-trace trace.jsonl -o folder --requests 1 --scale 256
  cmp -s trace.jsonl "$source/data/traces/mooncake-conversation-1000.jsonl" || fail "a trace was overwritten"
  expect 3 import-trace trace.jsonl -o a.h5 --requests 1 --scale 256

  expect 2 golden export --case nope -o new
  expect 2 golden generate --case nope --data new
  [ ! -e new ] || fail "a folder is left"
  expect 3 golden export --format json -o notes.txt
  mkdir -p vectors/convert.json
  expect 3 golden export --format json -o vectors
  [ "$(ls vectors)" = convert.json ] || fail "an export that was refused wrote: $(ls vectors)"
  ls -R | grep -q partial && fail "a .partial is left"
}

# What would do nothing is refused; what is missing fails.
nothing() {
  expect 2 replay small.yaml --steps 99:100
  contains err '0:4'
  expect 2 replay small.yaml --steps 4
  expect 2 replay small.yaml --steps 99:100 --check
  printf 'model: {preset: tiny, layers: [swa]}\nsteps: [{prefill: {request: a, tokens: 1}}]\n' >swa.yaml
  expect 2 replay swa.yaml --stages 'indexer.*'
  contains err swa
  expect 2 replay small.yaml --tensors compress.state/max
  contains err 'published nothing'
  expect 0 replay small.yaml --dump a.h5 --checkpoint 1:state.h5
  expect 2 replay small.yaml --resume state.h5 --checkpoint 0:x.h5
  expect 2 replay small.yaml --resume state.h5 --steps 0:2

  # A whole dump that lacks a step of the same run; one that was told to leave it out.
  sed 's/repeat: 2/repeat: 1/' small.yaml >short.yaml
  expect 0 replay short.yaml --dump short.h5
  expect 1 diff a.h5 short.h5
  contains out 'step 3 is not in the subject'
  expect 1 diff short.h5 a.h5
  contains out 'step 3 is not in the reference'
  expect 1 replay small.yaml --against short.h5
  expect 1 replay short.yaml --against a.h5
  contains out 'step 3 is not in the subject'
  expect 0 replay small.yaml --dump some.h5 --steps 0:3
  expect 0 diff a.h5 some.h5
  contains out 'only a.h5 holds this step'
  expect 0 replay small.yaml --against some.h5
  expect 0 replay small.yaml --dump few.h5 --stages 'q.*'
  expect 0 diff a.h5 few.h5
  expect 0 diff a.h5 few.h5 --align token
}

inputs() {
  expect 3 replay /dev/zero
  expect 3 replay .
  expect 3 inspect /dev/null
  expect 3 diff /dev/zero a.h5
  printf 'steps: [{prefill: {request: a, tokens: 1}}]\ndescription: \xff\n' >latin.yaml
  expect 2 replay latin.yaml
  contains err 'latin.yaml:2:1: byte 0xff'
}

# Fast-math start-up code of a preloaded library.
environment() {
  "$program" --version >/dev/null || fail "does not run"
  LD_PRELOAD=$5 "$program" --version >out 2>err
  [ $? -eq 5 ] || fail "runs although subnormals are flushed"
  contains err 'floating-point environment'
}

long_run() {
  cat >long.yaml <<'YAML'
model: {preset: tiny, layers: [swa, csa, hca]}
steps:
  - prefill: {request: a, tokens: 40}
  - decode: {requests: [a], repeat: 4000}
YAML
}

# Killed at any moment: what is there is readable, nothing has the final name.
killed() {
  long_run
  "$program" replay long.yaml --dump killed.h5 >out 2>err &
  local pid=$!
  for _ in $(seq 100); do [ -s killed.h5.partial ] && break; sleep 0.1; done
  sleep 1
  kill -KILL $pid
  wait $pid 2>/dev/null
  [ ! -e killed.h5 ] || fail "a killed run left a file under the final name"
  expect 0 inspect killed.h5.partial
  contains out PARTIAL

  "$program" replay long.yaml --dump stopped.h5 >out 2>err &
  pid=$!
  for _ in $(seq 100); do [ -s stopped.h5.partial ] && break; sleep 0.1; done
  sleep 1
  kill -INT $pid
  wait $pid
  [ $? -eq 130 ] || fail "an interrupted run does not exit with 130"
  [ -f stopped.h5.partial ] && [ ! -e stopped.h5 ] || fail "an interrupted run has no .partial"
  expect 0 diff killed.h5.partial stopped.h5.partial
}

full_disk() {
  # A limit on the size of files, set while the program runs, stands in for a full disk.
  long_run
  (trap '' XFSZ; exec "$program" replay long.yaml --dump full.h5 --no-compress) >out 2>err &
  local pid=$! code
  for _ in $(seq 100); do [ -s full.h5.partial ] && break; sleep 0.1; done
  prlimit --pid $pid --fsize=6000000:6000000
  wait $pid
  code=$?
  [ $code -eq 3 ] || { fail "exit $code instead of 3 on a full disk"; sed 's/^/    /' out err; }
  contains err full.h5
  [ ! -e full.h5 ] || fail "a dump that did not fit has the final name"
  expect 0 inspect full.h5.partial
  contains out PARTIAL
}

recorded() {
  expect 3 recorded verify small.yaml --data records
  expect 2 recorded generate small.yaml --data records --engine wide
  contains err 'exact in bits'
  expect 2 recorded generate small.yaml --data records --detail other
  expect 2 recorded generate small.yaml --data records --about driver
  expect 0 recorded generate small.yaml --data records --detail small --about 'driver=1.2 beta'
  contains records/small.digests '^about device cpu$'
  contains records/small.digests '^about driver 1.2 beta$'
  contains records/small.digests '^run small official '
  cp records/small.digests first
  expect 0 recorded generate small.yaml --data records --detail small --about 'driver=1.2 beta' --threads 1
  cmp -s first records/small.digests || fail "a record does not repeat byte for byte"
  expect 0 recorded list --data records
  contains out 'driver 1.2 beta'
  expect 0 recorded verify small.yaml --data records
  contains out '^8 steps of 2 runs compared, 0 differ, 0 stale$'
  expect 0 --json recorded verify small.yaml --data records
  json_lines out

  # One digit of a tensor and of its step.
  sed -E -e 's|^(000001 layer_01/q.up/q .*)(.)$|\1x\2|' -e 's/x[0-8a-f]$/9/; s/x9$/0/' \
      -e '0,/^step 1 /s/^(step 1 .*)(.{4})$/\1abcd/' first >records/small.digests
  expect 1 recorded verify small.yaml --data records
  contains out '^DIFFERS: small canonical: 1 of 4 steps, first step 1:'
  contains out 'layer_01/q.up/q bfloat16 6,.*: recorded'
  contains out 'dsv4-oracle replay small.yaml --profile canonical --engine reference --against reference --steps 1:2'
  expect 1 --json recorded verify small.yaml --data records
  json_lines out

  # Another plan; another name; a run that went; a file that went. None is passed over.
  cp first records/small.digests
  cp small.yaml kept.yaml
  sed 's/tokens: 11/tokens: 12/' kept.yaml >small.yaml
  expect 1 recorded verify small.yaml --data records
  contains out '^stale: small canonical: its plan has changed'
  contains out '^0 steps of 0 runs compared, 0 differ, 2 stale$'
  { echo 'profile: canonical'; cat kept.yaml; } >small.yaml
  expect 1 recorded verify small.yaml --data records
  contains out '^stale: small official: recorded, but no run any more'
  contains out '^4 steps of 1 runs compared, 0 differ, 1 stale$'
  cp kept.yaml new.yaml
  expect 1 recorded verify new.yaml --data records
  contains out '^stale: new canonical: not recorded'
  cp kept.yaml small.yaml
  expect 1 recorded verify --data records
  contains out '^stale: small: recorded in records/small.digests, but no scenario any more'
  contains out '^stale: mixed-batch canonical: not recorded'
  head -n 3 first >records/small.digests
  expect 3 recorded verify small.yaml --data records
}

shrink() {
  local mixed=$source/scenarios/mixed-batch.yaml
  expect 0 shrink "$mixed" --against reference --inject pool-halves-swapped --output small-pool.yaml
  contains out '^compress.pool/pooled diverged: '
  contains out '^4 steps, .* -> 1 step, 4 rows, .* scenarios tried: small-pool.yaml$'
  [ "$(head -n 3 small-pool.yaml | grep -c '^# ')" -eq 3 ] || fail "small-pool.yaml does not say what it is"
  [ "$(grep -c '^  - ' small-pool.yaml)" -eq 1 ] || fail "small-pool.yaml is not one step"
  # The command in the file shows it again; what is smallest stays.
  local command
  command=$(sed -n 's/^# dsv4-oracle //p' small-pool.yaml)
  # shellcheck disable=SC2086
  expect 1 $command
  contains out 'stage compress.pool, tensor pooled '
  expect 0 --json shrink small-pool.yaml --against reference --inject pool-halves-swapped --output again.yaml
  json_lines out
  diff <(grep -v '^#' small-pool.yaml) <(grep -v '^#' again.yaml) >/dev/null || fail "a smallest scenario was changed"
  # Nothing to shrink; nothing to compare with; a dump; no file is left.
  rm -f again.yaml
  expect 2 shrink small-pool.yaml --against reference --output again.yaml
  contains err 'nothing diverges'
  expect 2 shrink small.yaml --output again.yaml
  contains err 'needs --against'
  expect 2 shrink small.yaml --against run.h5 --output again.yaml
  expect 2 shrink small.yaml --pair ring:reference --output again.yaml
  [ ! -e again.yaml ] || fail "a scenario was saved although nothing was shrunk"
  expect 2 shrink small.yaml --pair ring:paged --output small.yaml
  contains err small.yaml
}

fuzz() {
  expect 0 --quiet fuzz --seed 3 --count 2 --pair ring:paged
  contains out '^2 scenarios in .* 0 diverged$'
  contains out '^coverage [0-9]* of '
  [ ! -e fuzz-failures ] || fail "a folder for failures was made"
  expect 0 --json --quiet fuzz --seed 3 --count 2 --pair sequential
  json_lines out
  # A wrong engine is found; the same seed finds the same.
  local round
  for round in one two; do
    expect 1 --quiet fuzz --seed 3 --count 6 --pair reference:reference --inject window-width --out $round
    contains out ' on reference:reference: attention.lists/'
  done
  diff -r one two | grep '^[<>]' | grep -v '^[<>] #' && fail "the same seed found something else"
  expect 1 --json --quiet fuzz --seed 3 --count 6 --pair reference:reference --inject window-width --out one
  json_lines out
  for option in --count --seed --first; do expect 2 fuzz --pair ring:paged $option -1; done
  expect 2 fuzz --pair ring --count 1
  contains err 'page4align'
  if ! "$program" --version | grep -q '^engines:.*cuda'; then
    expect 4 fuzz --pair reference:cuda --count 1
    contains err 'pair reference:cuda is skipped'
  fi
}

# Byte `offset` of a tensor in a safetensors file becomes another one, or a text in its header another of the same
# length.
flip_byte() {  # FILE TENSOR OFFSET
  local header start at value
  header=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
  start=$(head -c $((8 + header)) "$1" | tail -c +9 | grep -o "\"$2\":{[^}]*}" | sed 's/.*"data_offsets":\[\([0-9]*\),.*/\1/')
  at=$((8 + header + start + $3))
  value=$(od -An -t u1 -j "$at" -N 1 "$1" | tr -d ' ')
  printf "\\x$(printf %x $((value ^ 1)))" | dd of="$1" bs=1 seek="$at" conv=notrunc status=none
}
edit_header() { sed -i "s|$2|$3|" "$1"; }  # FILE OLD NEW

check_results() {
  local tie_vectors=$5 vectors=vectors one=results/canonical-csa.safetensors
  expect 0 --quiet golden export --format safetensors --output vectors --case 'canonical-*'
  cp -r vectors results && rm results/manifest.json
  expect 0 check vectors --with results
  contains out '^attention.core '
  contains out '0 fail; 0 outputs missing$'
  lacks out DIVERGED
  expect 0 --json check vectors --with results --rules values
  json_lines out
  # One bit: where it is, and what it means.
  flip_byte $one 000000/kv.window/codes $((2 * 448 + 17))
  expect 1 check vectors --with results
  contains out 'step 0, kv.window/codes .*ordering_only  FAILS, 1 of [0-9]* elements differ'
  contains out 'first at \[7, 17\] (request a, position 7 .*block 0, .*): expected .* found .*, 1 step of the format apart'
  contains out ' 1 fail; 0 outputs missing$'
  expect 1 --json check vectors --with results
  json_lines out
  contains out '"tensor":"codes","verdict":"ordering_only".*"coordinate":\[7,17\]'
  expect 0 check vectors --with results --rule 'kv.window/codes=ulp:1'
  expect 0 check vectors --with results --case canonical-hca
  # A case without results: its outputs are listed.
  mv results/canonical-hca.safetensors . && cp vectors/canonical-csa.safetensors $one
  expect 0 check vectors --with results --verbose
  contains out 'canonical-hca step 0, compress.pool/pooled$'
  lacks out 'canonical-csa step 0, compress.pool/pooled$'
  lacks out 'layer.input/hidden$'
  expect 2 check vectors --with results --case canonical-hca
  contains out 'NOTHING WAS COMPARED'
  # Refused: another name, dtype, shape, case; damaged vectors.
  edit_header $one '"000000/kv.window/codes":{' '"000000/kv.window/codex":{'
  expect 3 check vectors --with results
  contains err "'000000/kv.window/codex' is no tensor of canonical-csa (nearest: 000000/kv.window/codes"
  cp vectors/canonical-csa.safetensors $one
  edit_header $one '\("000000/kv.window/codes":{[^}]*\)F8_E4M3' '\1F8_E8M0'
  expect 3 check vectors --with results
  contains err 'canonical-csa.safetensors: 000000/kv.window/codes is F8_E8M0, the vectors have float8_e4m3fn'
  cp vectors/canonical-csa.safetensors $one
  # bf16 may come as 16-bit integers without a sign; any other format is named beside that of the vectors.
  edit_header $one '\("000000/q.up/q":{[^}]*\)"BF16"' '\1"U16" '
  expect 0 check vectors --with results --case canonical-csa
  contains out '154 tensors compared'
  cp vectors/canonical-csa.safetensors $one
  edit_header $one '\("000000/q.up/q":{[^}]*\)"BF16"' '\1"I16" '
  expect 3 check vectors --with results
  contains err '000000/q.up/q is I16, the vectors have bfloat16'
  cp vectors/canonical-csa.safetensors $one
  edit_header $one '\("000000/kv.window/codes":{[^}]*"shape":\[\)\([0-9]\),448' '\1448,\2'
  expect 3 check vectors --with results
  contains err '000000/kv.window/codes has the shape \[448, '
  cp vectors/canonical-csa.safetensors results/canonical-cas.safetensors
  edit_header results/canonical-cas.safetensors '"case":"canonical-csa"' '"case":"canonical-cas"'
  expect 3 check vectors --with results
  contains err "'canonical-cas' is no case of the vectors (nearest: canonical-csa"
  expect 3 check vectors --with absent
  flip_byte vectors/canonical-swa.safetensors 000000/kv.window/codes 5
  expect 3 check vectors/canonical-swa.safetensors --with canonical-hca.safetensors
  contains err 'kv.window/codes is damaged'
  # A manifest that says nothing sensible is a damaged file, whatever its JSON holds.
  local edit
  for edit in 's/"rows": *\[[0-9, ]*\]/"rows":"all"/' 's/"schema": *"[^"]*"/"schema":7/' 's/"file": *"[^"]*"/"file":3/'; do
    rm -rf odd && cp -r vectors odd
    tr -d '\n' <vectors/manifest.json | sed "$edit" >odd/manifest.json
    expect 3 check odd --with results
    contains err 'odd/manifest.json: is no manifest of golden vectors'
  done
  # A tie at the cut.
  "$tie_vectors" tie.h5 other.h5 || fail "cli_tie_vectors"
  expect 1 check tie.h5 --with other.h5
  contains out 'indexer.select/selected .*tie_swap  FAILS'
  expect 0 check tie.h5 --with other.h5 --rules values
  contains out 'indexer.select/selected .*tie_swap, '
  # Tables of single operations.
  expect 0 --quiet golden export --format json --output tables
  mkdir answers && cp tables/*.json answers
  expect 0 check tables --with answers
  sed -i '0,/"codes": "../s//"codes": "7e/' answers/quant_block.json
  expect 1 check tables --with answers
  contains out 'QuantBlock/codes .*FAILS, 1 of 64 elements differ'
  rm answers/top_k.json
  expect 1 check tables --with answers --verbose
  contains out 'top_k step [0-9]*, TopK/a tie at the cut$'
  # An output that is left out is missing; another field, another table, and options that name tensors are refused.
  cp tables/*.json answers && sed -i '0,/"descending": "[0-9a-f]*", */s///' answers/top_k.json
  expect 0 check tables --with answers --verbose
  contains out 'top_k step 1, TopK/descending$'
  contains out '; 0 fail; 1 outputs missing$'
  cp tables/*.json answers && sed -i '0,/"descending"/s//"falling"/' answers/top_k.json
  expect 3 check tables --with answers
  contains err 'answers/top_k.json: test 1, falling is no field of the vectors'
  cp tables/*.json answers && sed -i '0,/"descending": "./s//"descending": "x/' answers/top_k.json
  expect 3 check tables --with answers
  contains err "answers/top_k.json: test 1, descending: 'x' is no lower-case hex digit"
  expect 2 check tables --with answers --rule 'q.up/.*=ulp:1'
  expect 2 check tables --with answers --case 'bottom*'
  contains err "no table of tables matches 'bottom\*'"
  rm answers/top_k.json && mkdir answers/top_k.json
  expect 3 check tables --with answers
  contains err 'answers/top_k.json: is a folder'
  # What an export would leave unheard is refused before anything is written.
  for edit in '--format json --profile vllm-fp8' '--format json --profile vllm-fp8 --model-kernels' '--format json --weights' \
    '--weights --profile vllm-fp8 --model-kernels' '--engine wide' '--engine wide --profile vllm-fp8'; do
    expect 2 --quiet golden export $edit --output unheard
    [ ! -e unheard ] || fail "golden export $edit wrote something"
  done
  expect 0 --quiet golden export --engine wide --profile exact --output unheard --case '*-swa'
  # Vectors by kernel models: their own results have their bits, the profile's have not.
  expect 0 --quiet golden export --profile vllm-fp8 --model-kernels --output models --case '*-swa'
  expect 0 --quiet golden export --profile vllm-fp8 --output plain --case '*-swa'
  expect 0 check models --with models --rules hopper-exact
  contains out 'vllm-fp8-swa, profile vllm-fp8 with kernel models: rules hopper-exact'
  expect 1 check models --with plain --rules hopper-exact
  expect 2 check plain --with models --rules hopper-exact
  contains err 'computed without kernel models'
  # The example of docs/check.md.
  if /usr/bin/python3 -c 'import numpy, h5py' 2>/dev/null; then
    expect 0 --quiet golden export --case 'official-*' --output vectors5
    PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 "$source/notebooks_export/check_example.py" vectors5 results5 ||
      fail "check_example.py"
    expect 0 check vectors5 --with results5
    contains out '^kv.window  *18  *18 '
    /usr/bin/python3 -c "
import h5py
with h5py.File('results5/official-swa.h5', 'a') as file:
    step = file['steps/000000']
    step['q.up/q'] = h5py.File('vectors5/official-swa.h5')['steps/000000/q.up/q'][:].astype('float32')"
    expect 3 check vectors5 --with results5
    contains err 'q.up/q is not stored as bfloat16 bits: it holds float32, and uint16 is expected'
  else
    echo "the Python example is skipped: /usr/bin/python3 has no numpy or no h5py"
  fi
}

if ! declare -F "$case" >/dev/null; then echo "no case $case"; exit 1; fi
$case "$@"
[ $failures -eq 0 ] && echo "$case: ok"
exit $((failures > 0))
