#!/bin/sh
# update_results.sh: runs what README.md shows and puts the outputs into experiments/results and from
# there into README.md. Needs the release build with its benchmarks.
set -eu
cd "$(dirname "$0")/.."
build/slimpack compare experiments/demo.json --strategies packed,padded,sorted,ffd --quiet >experiments/results/demo.txt
build/bench/engine >experiments/results/engine.json
build/bench/schedules >experiments/results/schedules.jsonl
build/bench/sweep >experiments/results/sweep.json
experiments/readme_tables.sh
