#!/bin/sh
# asymmetry.sh: what backward packs of their own gain over backward packs that mirror the forward
# packs: runs experiments/asymmetry.json (batches of many samples) and asymmetry_few.json (few, and long
# ones), also with a profile whose attention runs backward at a third of its rate, and puts the gains into
# experiments/results/asymmetry.txt.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk '/"backward_/ {backward = 1} backward && /"points"/ {
        out = ""
        while (match($0, /\[[0-9]+, [0-9.]+\]/)) {
            pair = substr($0, RSTART + 1, RLENGTH - 2)
            split(pair, at, ", ")
            out = out substr($0, 1, RSTART) at[1] ", " at[2] / 3 "]"
            $0 = substr($0, RSTART + RLENGTH)
        }
        print out $0
        backward = 0
        next
    }
    {sub(/"name": "h800-burst"/, "\"name\": \"h800-slow-backward\""); print}' profiles/h800-burst.json >"$work/slow.json"
for name in asymmetry asymmetry_few; do
    sed "s|SLOW_BACKWARD|$work/slow.json|" "experiments/$name.json" >"$work/sweep.json"
    build/slimpack sweep "$work/sweep.json" -o "$work/$name.jsonl" --quiet >/dev/null || [ $? -eq 1 ]
done
awk -f experiments/json.awk -f experiments/asymmetry.awk "$work/asymmetry.jsonl" "$work/asymmetry_few.jsonl" | sort | awk -F '\t' '
BEGIN { printf "%-19s %-10s %-10s %8s %6s %11s %9s\n", "attention backward", "recompute", "lengths", "context", "cases", "mean gain", "largest" }
{ printf "%-19s %-10s %-10s %8s %6d %10.3fx %8.3fx\n", $1, $2, $3, $4, $5, $6, $7 }' >experiments/results/asymmetry.txt
experiments/readme_tables.sh
