#!/bin/bash
# sweep_ranks.sh [PROGRAM [ROUNDS]]: how much faster two processes or threads sweep experiments/sweep_layouts.json
# than one. The ways take turns, and of each the shortest round (of 5 by default) counts, so that what else runs now
# and then is left out. Efficiency is the time of one over twice that of two.
set -euo pipefail
cd "$(dirname "$0")/.."
program=$(realpath "${1:-build/slimpack}")
rounds=${2:-5}
spec=$PWD/experiments/sweep_layouts.json
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# Open MPI asks for these where root runs it.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
TIMEFORMAT='%R %U %S'

one() { "$program" sweep "$spec" -o one --quiet -j 1; }
shards() {
    "$program" sweep "$spec" -o first --quiet -j 1 --shard 1/2 &
    "$program" sweep "$spec" -o second --quiet -j 1 --shard 2/2
    wait $!
}
threads() { "$program" sweep "$spec" -o two --quiet -j 2; }
ranks() { mpirun -n 2 "$program" sweep "$spec" -o two --quiet -j 1; }
start() { mpirun -n 2 "$program" sweep "$spec" --dry-run; }

for _ in $(seq "$rounds"); do
    for way in one shards threads ranks start; do
        rm -f one two first second
        { time $way >/dev/null 2>&1; } 2>&1 | sed "s/^/$way /"
    done
done | awk '
    !($1 in wall) || $2 < wall[$1] { wall[$1] = $2; cpu[$1] = $3 + $4 }
    END {
        print "                                     time s    CPU s  efficiency"
        row("one", "one process")
        row("shards", "two, on --shard 1/2 and 2/2 alone")
        row("threads", "one process of two threads")
        row("ranks", "two ranks of mpirun")
        row("start", "mpirun -n 2 with --dry-run")
    }
    function row(way, text) {
        printf "%-34s %8.2f %8.2f", text, wall[way], cpu[way]
        print way == "one" || way == "start" ? "" : sprintf("  %10.2f", wall["one"] / 2 / wall[way])
    }'
