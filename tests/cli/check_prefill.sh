#!/usr/bin/env bash
# check_prefill.sh PROGRAM SOURCE: prompts of the shipped scenario, what of them is executed and drawn, and
# a crossover that is where the table says.
set -u
program=$1
source=$2
. "$(dirname "$0")/prelude.sh"
cd "$work" || exit 1

# The first lines answer: when, and how much sooner than by dense attention.
"$program" prefill "$source/experiments/prefill.json" --trace trace.json >first.txt || complain "the shipped scenario"
sed -n 4,5p first.txt | tr '\n' ' ' | grep -E '^  first token +[0-9.]+ ms   dense +[0-9.]+ ms; speed-up [0-9.]+x $' >/dev/null || complain "the first lines: $(sed -n 4,5p first.txt)"
[ "$(head -c 1 trace.json)" = "{" ] || complain "no trace"
"$program" prefill "$source/experiments/prefill.json" --timeline | grep -F '0-9 forward' >/dev/null || complain "no timeline"

# From the crossover on nothing is lost, 256 tokens before something is.
at=$(sed -n 's/^  crossover .* from \([0-9]*\) tokens on$/\1/p' first.txt)
"$program" prefill "$source/experiments/prefill.json" --lengths "$((at - 256)),$at" --quiet --json | tr -d ' \n' >rows.json
gains=$(grep -o '"attention":"sample"[^}]*"speedup":[0-9.]*' rows.json | sed 's/.*"speedup"://' | awk '{ printf "%d", ($1 >= 1) }')
[ "$gains" = 01 ] || complain "the crossover at $at: $gains"

# What is executed keeps no more than the sampled queries say, and its output errs within the bound.
"$program" prefill "$source/experiments/prefill.json" --set 'workload.lengths=[600]' --execute 2 --quiet --json >executed.json || complain "--execute"
awk -F'[:,]' '{ gsub(/[" ]/, "", $1); of[$1] = $2 + 0 }
    END { exit !(of["heads"] == 2 && of["cra"] > 0 && of["cra"] <= of["cra_of_sampled"] + 1e-5 && of["output_error"] <= of["output_error_bound"] + 1e-3) }' executed.json ||
    complain "what was executed: $(grep -A 12 executed executed.json)"
"$program" prefill "$source/experiments/prefill.json" --set 'workload.lengths=[600]' --execute 1 --quiet | grep -F 'executed       1 head of 600 tokens' >/dev/null || complain "the text of --execute"
# Where the setting has the prompt read densely, the model keeps all pairs, and says so.
for dense in prefill.alpha=1 prefill.dense_below=8000; do
    "$program" prefill "$source/experiments/prefill.json" --set 'workload.lengths=[600]' --set $dense --execute 1 --quiet >dense.txt
    grep -F '(100.0 in the model above)' dense.txt >/dev/null || complain "what $dense keeps"
    grep -F "the longest prompt's last chunk is read with dense attention" dense.txt >/dev/null || complain "$dense does not say dense"
done
exit "$failed"
