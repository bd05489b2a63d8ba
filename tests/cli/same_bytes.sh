#!/usr/bin/env bash
# same_bytes.sh SOURCE: builds the program with gcc and clang, without optimisation and with -O2,
# and compares what the four print, byte by byte, but for the two measured times.
set -euo pipefail
source=$1
clang=$(command -v clang || command -v clang-14 || true)
if [ -z "$clang" ] || ! command -v gcc >/dev/null; then
    echo "gcc and clang are both needed"
    exit 77
fi
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
}

first=
for compiler in gcc "$clang"; do
    for level in -O0 -O2; do
        name=$(basename "$compiler")$level
        if ! build "$compiler" "$level" "$work/$name" >"$work/log" 2>&1; then
            cat "$work/log"
            exit 1
        fi
        if ! outputs "$work/$name/slimpack" >"$work/out"; then
            echo "$name: the program failed"
            exit 1
        fi
        sed -E 's/"(solver_ms|simulate_ms)": *[0-9.eE+-]+/"\1": 0/' "$work/out" >"$work/$name.out"
        if [ -z "$first" ]; then
            first=$name
        elif ! cmp "$work/$first.out" "$work/$name.out"; then
            diff "$work/$first.out" "$work/$name.out" | head -20
            echo "$first and $name print different bytes"
            exit 1
        fi
    done
done
echo "$(wc -c <"$work/$first.out") bytes, the same from all four"
