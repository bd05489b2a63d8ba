#!/usr/bin/env bash
# same_bytes.sh SOURCE [PROGRAM...]: compares what the programs print, byte by byte, but for the two
# measured times. Without programs it builds four: with gcc and clang, without optimisation and with
# -O2.
set -euo pipefail
source=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$source"

build() { # COMPILER LEVEL FOLDER
    cmake -S . -B "$3" -DCMAKE_C_COMPILER="$1" -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS="$2" \
        -DSP_TESTS=OFF -DSP_BENCH=OFF &&
        cmake --build "$3" --target slimpack --parallel 2
}

outputs() { # PROGRAM: everything it prints
    local program=$1 scenario
    "$program" lengths wikipedia --json || return 1
    "$program" lengths wikipedia --samples 20000 --seed 7 || return 1
    for scenario in tests/cli/scenarios/*.json; do
        [ -f "$scenario" ] || continue
        echo "== $scenario"
        # Status 1, out of memory, is an answer to compare too.
        "$program" simulate "$scenario" --json --quiet || [ $? -eq 1 ] || return 1
    done
    infer "$program"
}

# Prompts and generated text: every attention and method, chunks, ranks, batches, and an ease that is searched for.
infer() { # PROGRAM
    local settings
    while read -r settings; do
        echo "== prefill $settings"
        # shellcheck disable=SC2086 # words of their own
        "$1" prefill experiments/prefill.json --json --quiet $settings || [ $? -eq 1 ] || return 1
    done <<'SETTINGS'
--lengths 4K,96K,1M --alphas 0.8,0.95
--set prefill.attention=sample --set parallel.tp=4 --set workload.lengths=[20000,100000]
--set prefill.attention=minference --set parallel.pp=4 --set prefill.chunk_tokens=8K
--set prefill.attention=xattention --set parallel.cp=2
--set prefill.attention=flexprefill --set prefill.together=true --set workload.lengths=[3000,9000]
SETTINGS
    while read -r settings; do
        echo "== decode $settings"
        # shellcheck disable=SC2086
        "$1" decode experiments/decode.json --json --quiet $settings || [ $? -eq 1 ] || return 1
    done <<'SETTINGS'
--set decode.method=plain --set parallel.tp=2
--set decode.method=eagle --set decode.text.tokens_per_call=5 --set parallel.pp=2
--set decode.batch_policy=bucket --set decode.graphs=2 --set decode.text.training_tokens_per_call=4
--set decode.batch_policy=pad --set decode.draft_gpus=own --set decode.draft=llama-3-8b --set model=llama-3-70b --set parallel.tp=4
SETTINGS
}

build_four() {
    local clang compiler level name
    clang=$(command -v clang || command -v clang-14 || true)
    if [ -z "$clang" ] || ! command -v gcc >/dev/null; then
        echo "gcc and clang are both needed"
        exit 77
    fi
    for compiler in gcc "$clang"; do
        for level in -O0 -O2; do
            name=$(basename "$compiler")$level
            if ! build "$compiler" "$level" "$work/$name" >"$work/log" 2>&1; then
                cat "$work/log"
                exit 1
            fi
            programs+=("$work/$name/slimpack")
        done
    done
}

programs=("$@")
[ $# -gt 0 ] || build_four
for program in "${programs[@]}"; do
    if ! outputs "$program" >"$work/out"; then
        echo "$program: the program failed"
        exit 1
    fi
    sed -E 's/"(solver_ms|simulate_ms)": *[0-9.eE+-]+/"\1": 0/' "$work/out" >"$work/now"
    if [ ! -f "$work/first" ]; then
        mv "$work/now" "$work/first"
    elif ! cmp "$work/first" "$work/now"; then
        diff "$work/first" "$work/now" | head -20
        echo "${programs[0]} and $program print different bytes"
        exit 1
    fi
done
echo "$(wc -c <"$work/first") bytes, the same from all ${#programs[@]}"
