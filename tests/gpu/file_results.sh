#!/bin/sh
# file_results.sh FOLDER: files what run.sh left in FOLDER: the profile into profiles/, everything else
# into experiments/results/GPU/. Refuses results of a machine without a GPU, and of a calibration that
# did not end well; what is there already is replaced.
set -eu
from=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."

if [ ! -s "$from/summary.txt" ]; then
    echo "file_results.sh: $from has no summary.txt" >&2
    exit 2
fi
if ! grep -q '^passed *calibrate' "$from/summary.txt"; then
    echo "file_results.sh: no calibration passed:" >&2
    cat "$from/summary.txt" >&2
    exit 1
fi
profile=$(find "$from" -maxdepth 1 -name '*.json' | head -n 1)
if [ -z "$profile" ] || ! grep -q '"slimpack/profile/1"' "$profile"; then
    echo "file_results.sh: no profile in $from" >&2
    exit 1
fi
gpu=$(basename "$profile" .json)
results=experiments/results/$gpu
mkdir -p "$results"
# Measured numbers go before published ones of the same name.
cp "$profile" "profiles/$gpu.json"
for file in summary.txt environment.txt checklist.jsonl tests.log sanitizer.log calibrate.log; do
    if [ -e "$from/$file" ]; then
        cp "$from/$file" "$results/$file"
    fi
done
echo "profiles/$gpu.json"
echo "$results/"
