#!/usr/bin/env bash
# check_evidence.sh PROGRAM SOURCE: what the program says of steps that are unlike logged ones is what its
# profiles and the published tables give as they are (in a full run, SP_TEST_FULL=1, as every table is predicted by
# several profiles); and it holds on sources that were left out.
set -euo pipefail
[ "${SP_TEST_FULL:-}" != 1 ] || "$2/experiments/evidence.sh" --check "$1"

# Which tables have experts or FP8 is what their rows come to: the first names a model that has experts.
for of in 'qwen3_overlap true false' 'h100_dgxc_fp8 false true' 'h100_dgxc false false' 'moe_fp8 true true'; do
    read -r table experts fp8 <<<"$of"
    "$1" validate --published --table "$table" --json --quiet | grep -A 1 '^      "experts": '"$experts" | grep -q '"fp8": '"$fp8" || { echo "$table is not said to have experts $experts, fp8 $fp8" && exit 1; }
done

page=$2/experiments/results/evidence.md
percents() { # LINE: the numbers with a percent sign
    grep -F "| $1 |" "$page" | grep -oE '[0-9]+ %' | tr -d ' %' | tr '\n' ' '
}
p90=$(percents 'all steps')
[ "$p90" -ge 88 ] && [ "$p90" -le 94 ]
# What is promised holds for 8 in 10 steps of all sources together, and more in the mean over them and without the one
# that waits.
while read -r least_within least_narrow which; do
    read -r within narrow <<<"$(percents "$which")"
    [ "$within" -ge "$least_within" ] && [ "$narrow" -ge "$least_narrow" ] || { echo "$which: $within % within, $narrow % narrow" && exit 1; }
done <<'BARS'
80 50 of profiles with records, all steps
90 50 of profiles with records, but the source that waits
90 50 of profiles with records, mean of sources
80 0 no record, all steps
BARS
