#!/bin/sh
# file_results.sh FOLDER: files what run.sh left in FOLDER: the profile, and that of a partition
# (GPU-1of4.json), into profiles/, everything else into experiments/results/GPU/. Refuses results of
# a machine without a GPU, and of a calibration that did not end well; what is there already is
# replaced. Steps that were executed are compared with what is predicted with those profiles, where
# slimpack is built (SP_PROGRAM, default build/slimpack): experiments/results/GPU/validate_gpu.json
# and .txt. Last, what all thresholds come to (thresholds.sh): thresholds.json and thresholds.txt, which
# experiments/readme_tables.sh shows in README.md.
set -eu
from=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."

if [ ! -s "$from/summary.txt" ]; then
    echo "file_results.sh: $from has no summary.txt" >&2
    exit 2
fi
if ! grep -q '^passed *calibrate ' "$from/summary.txt"; then
    echo "file_results.sh: no calibration passed:" >&2
    cat "$from/summary.txt" >&2
    exit 1
fi
# Other documents stand beside it.
profile=$(find "$from" -maxdepth 1 -name '*.json' ! -name '*-*of*.json' \
    -exec grep -l '"slimpack/profile/1"' {} + | sort | head -n 1)
if [ -z "$profile" ]; then
    echo "file_results.sh: no profile in $from" >&2
    exit 1
fi
gpu=$(basename "$profile" .json)
results=experiments/results/$gpu
mkdir -p "$results"
# Measured numbers go before published ones of the same name.
cp "$profile" "profiles/$gpu.json"
if [ -s "$from/$gpu-1of4.json" ] && grep -q '^passed *calibrate-4 ' "$from/summary.txt"; then
    cp "$from/$gpu-1of4.json" profiles/
    echo "profiles/$gpu-1of4.json"
fi
for file in summary.txt environment.txt checklist.jsonl tests.log; do
    if [ -e "$from/$file" ]; then
        cp "$from/$file" "$results/$file"
    fi
done
echo "profiles/$gpu.json"
echo "$results/"

thresholds() { # [VALIDATION]
    sh tests/gpu/thresholds.sh "$results" "$@" >"$results/thresholds.txt" || [ $? -eq 1 ]
    cat "$results/thresholds.txt"
}

# The set names the profiles of an H200: those of this GPU stand in their place.
compare() { # FOLDER PROGRAM
    mkdir "$1/profiles"
    cp "$profile" "$1/profiles/h200.json"
    partition=$profile
    if [ -s "profiles/$gpu-1of4.json" ]; then
        partition=profiles/$gpu-1of4.json
    else
        echo "no profile of a partition: what ran on one is predicted with that of the whole GPU"
    fi
    cp "$partition" "$1/profiles/h200-1of4.json"
    tar -xzf "$from/executed.tar.gz" -C "$1"
    SLIMPACK_PROFILE_PATH=$1/profiles "$2" validate experiments/validate_gpu.json --backend cuda \
        --executed "$1/executed" -o "$results/validate_gpu.json" --quiet
}
if [ -e "$from/executed.tar.gz" ]; then
    program=${SP_PROGRAM:-build/slimpack}
    if [ ! -x "$program" ]; then
        thresholds
        echo "executed.tar.gz stays in $from: build slimpack ($program) and file it again"
        exit 0
    fi
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    status=0
    compare "$work" "$program" >"$results/validate_gpu.txt" 2>&1 || status=$?
    cat "$results/validate_gpu.txt"
    # 1 is an answer as well: a bound that is missed, or a case that was not executed.
    [ "$status" -le 1 ]
    thresholds "$results/validate_gpu.json"
else
    thresholds
fi
