#!/bin/sh
# validate_host.sh [STEPS]: how well the CPU executor's steps are predicted on this machine. Measures a profile
# for each model of experiments/validate_host.json, predicts and executes the set on the virtual clock (STEPS of
# each case, 6 unless given: one to warm up, and of the others the one of median time), and puts the outcome into
# experiments/results and README.md. Takes about six minutes; nothing else should run meanwhile.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for model in llama gpt; do
    build/slimpack calibrate --backend host --model "experiments/models/small_$model.json" -o "$work/host-$model.json"
done
# Status 1 is an answer as well: a case that is not executed, or a bound that is missed.
SLIMPACK_PROFILE_PATH=$work build/slimpack validate experiments/validate_host.json --backend host --clock virtual \
    --steps "${1:-6}" -o "$work/report.json" --quiet >"$work/table.txt" || [ $? -eq 1 ]
mv "$work/report.json" experiments/results/validate_host.json
mv "$work/table.txt" experiments/results/validate_host.txt
experiments/readme_tables.sh
