#!/bin/sh
# grid_slimpack.sh: compares strategies on experiments/grid_slimpack.json at other models, layouts, contexts, batches and
# seeds, and puts the tables into experiments/results/slimpack.txt. Sweeps leave out the gaps that they show.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rows() { # STRATEGIES PROFILE MODEL CONTEXT SAMPLES SEED TP DP: a line for each strategy
    { build/slimpack compare experiments/grid_slimpack.json --strategies "$1" --json --quiet --set "profile=$2" \
        --set "model=$3" --set "workload.context=$4" --set "workload.samples_per_batch=$5" --set "workload.seed=$6" \
        --set "parallel.tp=$7" --set "parallel.dp=$8" || [ $? -eq 1 ]; } |
        tr -d '\n' | sed 's/"strategy":/\n&/g' |
        sed "1d; s|^|{\"model\": \"$3\", \"context\": $4, \"samples\": $5, \"seed\": $6, \"tp\": $7, \"dp\": $8, |"
    echo
}
grid() { # STRATEGIES PROFILE MODELS CONTEXTS SAMPLES
    for model in $3; do for context in $4; do for samples in $5; do for seed in 1 2; do for layout in "4 4" "8 2" "8 4"; do
        # shellcheck disable=SC2086
        rows "$1" "$2" "$model" "$context" "$samples" "$seed" $layout
    done; done; done; done; done
}
all=packed,packed-tuned,ffd,balanced,dynapipe,chunkflow,slimpipe,hybrid-cp,flexsp,slimpack-symmetric,slimpack,slimpack-zb
grid $all h800-burst "llama-13b llama-70b" "65536 131072 262144" "512 1024 2048" >"$work/grid.jsonl"
grid slimpack,slimpack-zb linear llama-13b "65536 131072" "512 1024" >"$work/linear.jsonl"
{
    awk -f experiments/json.awk -f experiments/grid_slimpack.awk "$work/grid.jsonl"
    printf '\nwith costs linear in tokens (profile linear):\n'
    awk -f experiments/json.awk -f experiments/grid_slimpack.awk "$work/linear.jsonl" | sed -n '/^tokens a rank/,$p'
} >experiments/results/slimpack.txt
experiments/readme_tables.sh
