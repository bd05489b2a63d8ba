#!/usr/bin/env bash
# check_demo_table.sh PROGRAM SOURCE: the outputs that README.md and the guide show are what the program says, but for the time
# that the solver took.
set -euo pipefail
program=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
without_solver_time() {
    awk '/solver ms/ {at = index($0, " solver ms")}
         at == 0 {print; next}
         {print substr($0, 1, at - 1) substr($0, at + 10)}' "$1"
}
cd "$source"
"$program" compare experiments/demo.json --quiet \
    --strategies packed,packed-tuned,ffd,balanced,chunkflow,slimpipe,slimpack,slimpack-zb >"$work/now.txt"
diff <(without_solver_time experiments/results/demo.txt) <(without_solver_time "$work/now.txt")
"$program" simulate experiments/demo.json --set strategy.kind=slimpack --set workload.batches=1 --quiet |
    diff experiments/results/step.txt -
"$program" compare experiments/zoo.json --schedules 1f1b,zb-h1,zb-v,slimpipe --quiet |
    diff experiments/results/zoo_four.txt -
"$program" tune llama-3-70b --gpus 256 --context 32K --quiet | diff experiments/results/tune_70b.txt -
