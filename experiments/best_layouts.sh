#!/bin/sh
# best_layouts.sh [NAME...]: every strategy at its own best layout and schedule, whatever the stack runs, on the
# settings below (all, or those named), into experiments/results/best_layout_NAME.txt. Takes minutes for each.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
strategies=packed-tuned,dynapipe,hybrid-cp,bytescale,zeppelin,chunkflow,slimpipe,slimpack,slimpack-zb
setting() { # NAME MODEL CLUSTER NODES LENGTHS CONTEXT SAMPLES STACK
    cat >"$work/$1.json" <<SCENARIO
{"schema": "slimpack/scenario/1", "model": "$2", "cluster": "$3", "nodes": $4, "parallel": {"tp": 8, "dp": $4}, "stack": "$8",
 "workload": {"lengths": "$5", "context": $6, "samples_per_batch": $7, "batches": 1, "seed": 1}}
SCENARIO
}
demo() { # NAME STACK
    sed "s/\"batches\": 4/\"batches\": 1/; s/\"profile\"/\"stack\": \"$2\", &/" experiments/demo.json >"$work/$1.json"
}
demo 13b ours
demo 13b_overlap megatron-core-2025
setting 70b llama-70b h800-8 32 prolong 131072 512 ours
setting 8b llama-3-8b h100-8 8 longmix 32768 1024 ours
setting 8b_overlap llama-3-8b h100-8 8 longmix 32768 1024 megatron-core-2025
# Settings that the search was not developed on.
setting unseen_7b llama-2-7b a100-8 8 wikipedia 65536 512 megatron-core-2024
setting unseen_13b llama-2-13b h100-8 4 prolong 65536 256 megatron-core-2025
setting unseen_70b llama-3-70b h100-8 64 longmix 131072 1024 ours
for name in ${*:-13b 13b_overlap 70b 8b 8b_overlap unseen_7b unseen_13b unseen_70b}; do
    build/slimpack compare "$work/$name.json" --best-layout --any-schedule --strategies "$strategies" --quiet --wide >"$work/table"
    mv "$work/table" "experiments/results/best_layout_$name.txt"
done
