#!/usr/bin/env bash
# check_words.sh PROGRAM SOURCE: `help` explains every label, head of a table, heading of the figures and kind of memory or time that commands print for
# people, every key of what they print as JSON, and names of tensors.
set -euo pipefail
program=$1
source=$2
# shellcheck source=tests/cli/prelude.sh
. "$source/tests/cli/prelude.sh"
cd "$work"

mkdir texts documents tables
cp "$source"/tests/cli/inputs/* .
cat >s.json <<'end'
{"model": "llama-3-8b", "cluster": "h100-8", "parallel": {"tp": 2, "pp": 2, "dp": 2}, "memory": {"recompute": "attention"},
 "workload": {"lengths": "prolong", "context": 8192, "samples_per_batch": 16}, "strategy": {"kind": "packed"}}
end
"$program" simulate s.json --plan plan.json --memory-snapshot snapshot.pickle -q >/dev/null
"$program" simulate small.json --plan small_plan.json -q >/dev/null
# NAME ARGS...: what a command prints for people, and as JSON.
ask() {
    local name=$1
    shift
    "$program" "$@" -q --wide >"texts/$name" 2>"$name.errors" || [ $? = 1 ] || complain "$*: $(cat "$name.errors")"
    "$program" "$@" -q --markdown --wide >"tables/$name" 2>/dev/null || [ $? -le 2 ] || complain "$* --markdown"
    "$program" "$@" -q --json >"documents/$name" 2>"$name.errors" || [ $? = 1 ] || complain "$* --json: $(cat "$name.errors")"
}
ask simulate simulate s.json
ask flows simulate s.json --set network.detail=flows --set parallel.zero=3 --set memory.offload_ratio=0.5
ask experts simulate s.json --set model=mixtral-8x7b --set parallel.ep=2
ask compare compare s.json --strategies padded,packed,sorted,slimpack
jq '.parallel.pp = 1' s.json >other.json
ask difference compare s.json other.json
ask lossy compare s.json --strategies packed,balanced
ask schedules compare s.json --schedules 1f1b,zb-h1
ask tune tune llama-3-8b --gpus 8 --context 8K --tokens-per-batch 128K --cluster h100-8 --strategies packed
ask prefill prefill "$source/experiments/prefill.json"
ask decode decode "$source/experiments/decode.json"
ask lengths lengths prolong
ask published validate --published --table h100_nanotron_512
ask measurements validate --measurements t.csv --rows
ask executed validate small.json --backend host
ask run run small_plan.json --backend host
ask rates run small_plan.json --backend host --lr 0.002 --warmup 2
ask proof run small_plan.json --backend host --prove
for log in megatron nanotron trainer; do
    ask "log_$log" validate s.json --log "$source/tests/cli/logs/$log.log"
done
# shellcheck source=tests/cli/make_trace.sh
. "$source/tests/cli/make_trace.sh"
make_trace 0 8 30 >rank0.json
make_trace 1 8 0 >rank1.json
ask traces validate s.json --trace rank0.json rank1.json
ask traced calibrate --from-trace rank0.json rank1.json --profile h100 -o traced.json
ask plan plan s.json -o planned.json
ask check plan --check plan.json
ask fit calibrate --from-measurements t.csv --fit fit.json -o mine.json
ask curve compare small.json --strategies packed,slimpack --memory-curve
ask several lengths prolong wikipedia
ask bubbles validate --published --table zb_table5
ask fits validate --published --table h100_nanotron_fits
ask ratios reproduce zb_table5 h800_memory
ask sweep sweep sweep.json --resume -o rows.jsonl
ask best compare small.json --strategies packed,slimpack --best-layout
ask tight compare s.json --strategies packed --best-layout --set parallel.tp=1 --set parallel.pp=1 --set workload.samples_per_batch=4
ask figures reproduce zb_v
# The points of a figure have labels of their own.
"$program" reproduce slimpipe chunkflow_memory -q --json >documents/headlines || [ $? = 1 ] || complain "no headlines"
ask several_figures reproduce
ask drafts decode "$source/experiments/decode.json" --execute --set decode.sequences=8

# What the lists explain needs no command of its own.
declare -A explained
while IFS= read -r word; do
    explained[$word]=1
done < <(for list in words results; do "$program" help $list | sed -n 's/^\([^ ].*[^ ]\)   *[^ ].*/\1/p'; done)
[ "${#explained[@]}" -ge 200 ] || complain "only ${#explained[@]} words are listed"
explains() { # TEXT
    if [ -z "${explained[$1]:-}" ]; then
        explained[$1]=1
        "$program" help "$1" >/dev/null 2>&1 || explained[$1]=0
    fi
    [ "${explained[$1]}" = 1 ]
}
# Heads of neighbouring columns may be a blank apart: the text is cut into parts that are explained, the longest of
# those that are known to be first.
explains_parts() { # WORD...
    local count known
    [ "$#" -gt 0 ] || return 0
    for known in 1 ''; do
        for ((count = $#; count > 0; count--)); do
            if [ "${explained[${*:1:count}]:-}" = "$known" ] && explains "${*:1:count}" && explains_parts "${@:count+1}"; then
                return 0
            fi
        done
    done
    return 1
}

# Labels stand two columns in, with their text two or more blanks behind; rows are named by settings (tp=2). A head is a line of four cells and more without
# figures. Kinds are words before figures that commas part.
labels='/^  [a-z][^ ]*( [^ ]+)*  +[^ ]/ { sub(/^  /, ""); sub(/  +.*/, ""); if (!/=/) print }'
heads='
{ cells = split($0, cell, /   *|\|/); text = $0 }
cells >= 4 && !/[0-9:,].*[0-9:,]/ { for (c in cell) { gsub(/^ +| +$|--+:?/, "", cell[c]); if (cell[c] != "") print cell[c] } }'
kinds='
/[a-z] [0-9.]+, [a-z]+ [0-9.]+/ {
    text = substr($0, 18)
    sub(/\(.*/, "", text); sub(/^.*: /, "", text)
    n = split(text, part, /, /)
    for (i = 1; i <= n; i++) if (part[i] ~ /^[a-z][a-z ]* [0-9.]+/) { sub(/ [0-9.].*/, "", part[i]); print part[i] }
}'
for text in texts/*; do
    while IFS= read -r label; do
        # shellcheck disable=SC2086
        explains_parts $label || echo "${text#*/}: $label"
    done < <(for rule in "$labels" "$heads" "$kinds"; do awk "$rule" "$text"; done | sort -u)
done >unexplained
# Keys of a document are words, but for paths of a setting or of a profile's constant.
for document in documents/*; do
    while IFS= read -r key; do
        explains "$key" || echo "${document#*/}: $key"
    done < <(grep -o '"[A-Za-z0-9_.^]*":' "$document" | tr -d '":' | grep -v '[a-z]\.[a-z]' | sort -u)
done >>unexplained
# Heads of tables stand above a rule, those of the figures in their list.
{
    awk '/^\|[ -]*---/ { cells = split(head, cell, / *\| */); for (c = 1; c <= cells; c++) if (cell[c] != "") print cell[c] } { head = $0 }' tables/*
    "$program" help results --json | sed -n 's/.*"heading": "\(.*\)".*/\1/p'
} | sort -u >heads
grep -q 'left out: fits TIGHTLY' texts/tight || complain "no faster layout is left out: $(cat texts/tight)"
[ "$(wc -l <heads)" -ge 60 ] || complain "few heads: $(wc -l <heads)"
while IFS= read -r head; do
    explains "$head" || echo "head of a table: $head"
done <heads >>unexplained
for name in "fc1 output" "gradient of the logits" "log-sum-exp" "statistics of the first norm" \
    "keys before their norm" "optimizer states" "backward transients" "no plan avoids" TIGHTLY "recompute none" "left out"; do
    explains "$name" || echo "$name"
done >>unexplained
grep -q '^speed-up: where a row leaves tokens out' texts/lossy || complain "speed-ups over lost tokens are not explained"
! grep -q '^speed-up: where' texts/compare || complain "speed-ups without lost tokens are explained"
# A part that is rounded away is no part.
cat >even.json <<'end'
{"model": "llama-3-8b", "cluster": "h100-8", "parallel": {"tp": 2, "dp": 4}, "schedule": {"microbatch_samples": 2},
 "workload": {"uniform": 8192, "context": 8192, "samples_per_batch": 512}}
end
"$program" simulate even.json -q >even
! grep -q 'avoids 0\.000' even || complain "a gap of 0.000 is told: $(grep gap even)"
[ ! -s unexplained ] || complain "help does not explain:" "$(cat unexplained)"
exit "$failed"
