#!/bin/sh
# heterospec.sh [PROGRAM]: what the fits of experiments/figures/heterospec.json, made on HumanEval, predict for each
# of the other data sets, whose rows the fits have not seen: a table into experiments/results/heterospec.md.
set -eu
cd "$(dirname "$0")/.."
program=${1:-build/slimpack}
figure=experiments/figures/heterospec.json
table=experiments/results/heterospec.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Lines "model|data set|--set arguments": the eases of a point stand in this order.
awk '
    /the other four: HeteroSpec over plain"/ {
        split("MT-bench GSM8K Alpaca CNN/DM", sets, " ")
        match($0, /"label": "[^ ]*/)
        model = substr($0, RSTART + 10, RLENGTH - 10)
        line = $0
        sub(/.*"set": \{/, "", line)
        sub(/\}.*/, "", line)
        arguments = ""
        while (match(line, /"[a-z._]+": (\[[^]]*\]|"[^"]*"|[-0-9.]+)/)) {
            pair = substr(line, RSTART, RLENGTH)
            line = substr(line, RSTART + RLENGTH)
            key = pair; sub(/": .*/, "", key); sub(/^"/, "", key)
            value = pair; sub(/^"[^"]*": /, "", value); gsub(/"/, "", value)
            if (key == "decode.text.ease") { gsub(/[][ ]/, "", value); split(value, eases, ",") }
            else { arguments = arguments " --set " key "=" value }
        }
        for (i = 1; i <= 4; i++) { print model "|" sets[i] "|" arguments " --set decode.text.ease=" eases[i] }
    }' "$figure" >"$work/points"
sed -n 's/^  "base": \(.*\),$/\1/p' "$figure" | sed 's/^{/{"model": "llama-13b", /' >"$work/base.json"
{
    echo
    echo "| model | data set | EAGLE-3's tokens a call | HeteroSpec's | verified a call | calls of low entropy | over EAGLE-3 | over plain |"
    echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
    while IFS='|' read -r model set arguments; do
        # shellcheck disable=SC2086 # words of their own
        "$program" decode "$work/base.json" --json --quiet $arguments | awk -v model="$model" -v set="$set" '
            /^  "[a-z_]+": [-0-9.]+,?$/ { key = $1; gsub(/[":]/, "", key); value[key] = $2 + 0 }
            END { printf "| %s | %s | %.2f | %.2f | %.1f | %.0f %% | %.3f | %.2f |\n", model, set,
                value["eagle_tokens_per_call"], value["tokens_per_call"], value["verified_per_call"],
                100 * value["low_entropy_share"], value["speedup_over_eagle"], value["speedup_over_plain"] }'
    done <"$work/points"
    echo
} >"$table"
