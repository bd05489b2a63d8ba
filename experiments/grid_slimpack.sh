#!/bin/sh
# grid_slimpack.sh [RESULTS [LINEAR]]: runs experiments/grid_slimpack.json and grid_linear.json (or
# takes the results of sweeps of them) and puts their tables into experiments/results/slimpack.txt.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
run() {
    build/slimpack sweep "$1" -o "$2" --quiet >/dev/null || [ $? -eq 1 ]
}
results=${1:-$work/grid.jsonl}
linear=${2:-$work/linear.jsonl}
[ -r "$results" ] || run experiments/grid_slimpack.json "$results"
[ -r "$linear" ] || run experiments/grid_linear.json "$linear"
{
    awk -f experiments/json.awk -f experiments/grid_slimpack.awk "$results"
    printf '\nwith costs linear in tokens (profile linear):\n'
    awk -f experiments/json.awk -f experiments/grid_slimpack.awk "$linear" | sed -n '/^tokens a rank/,$p'
} >experiments/results/slimpack.txt
experiments/readme_tables.sh
