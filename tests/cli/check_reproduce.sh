#!/usr/bin/env bash
# check_reproduce.sh PROGRAM SOURCE: the committed texts of the published figures are what the program says, for
# every figure but flexsp where the build has no GLPK; in a full run (SP_TEST_FULL=1) also for the longest, which decodes
# (the golden cases decode_small and reproduce_decode do too); one thread or two, the same bytes; pictures are whole.
set -euo pipefail
program=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
longest=heterospec
[ "${SP_TEST_FULL:-}" != 1 ] || longest=
names=()
for spec in "$source"/experiments/figures/*.json; do
    name=$(basename "$spec" .json)
    [ "$name" = flexsp ] || [ "$name" = "$longest" ] || names+=("$name")
done
[ "${#names[@]}" -gt 15 ] || { echo "only ${#names[@]} figures"; exit 1; }
status=0
plot=()
command -v gnuplot >/dev/null && plot=(--plot svg)
"$program" reproduce "${names[@]}" --quiet --wide -j 2 -o "$work" "${plot[@]}" >"$work/all" || status=$?
[ "$status" -le 1 ] || { echo "exit $status"; exit 1; }
"$program" reproduce flexsp --quiet -o "$work" "${plot[@]}" >"$work/flexsp" 2>&1 || true
grep -q GLPK "$work/flexsp" || names+=(flexsp)
for name in "${names[@]}"; do
    diff -u "$source/experiments/results/reproduce/$name.txt" "$work/$name.txt"
done
# The exit status says whether a figure is outside its bar.
grep -q '^  outside: ' "$work/all" && expected=1 || expected=0
[ "$status" -eq "$expected" ] || { echo "exit $status for $expected"; exit 1; }
"$program" reproduce wlb_llm zb_v --json -j 1 >"$work/one" || true
"$program" reproduce wlb_llm zb_v --json -j 2 >"$work/two" || true
cmp "$work/one" "$work/two"
"$program" reproduce zb_v >/dev/null
# A program reads from each row's cells how its error counts; a figure names the others of its paper.
"$program" reproduce chunkflow_bubbles --csv --quiet >"$work/rows.csv" || true
[ "$(head -n 1 "$work/rows.csv")" = "table,point,published,computed,error,bar,verdict,error_is,why" ]
[ "$(grep -c ',absolute,' "$work/rows.csv")" = "$(grep -c '"label"' "$source/experiments/figures/chunkflow_bubbles.json")" ]
"$program" reproduce chunkflow_bubbles --quiet --wide >"$work/bubbles" || true
grep -q '^  more of this paper: chunkflow, chunkflow_memory$' "$work/bubbles"
# A picture has all points and bounds, and its texts are whole.
if command -v gnuplot >/dev/null; then
    for name in "${names[@]}"; do
        awk -f "$source/tests/cli/picture.awk" "$work/$name.json" "$work/$name.svg"
    done
    "$program" reproduce zb_v --quiet -o "$work" --plot pdf >/dev/null
    [ "$(head -c 5 "$work/zb_v.pdf")" = %PDF- ] || { echo "zb_v.pdf is no PDF"; exit 1; }
fi
# Papers are found by their names, and a headline that does not come out says why.
for name in slimpack slimpipe zeppelin heterospec sampleattention; do
    awk '/^  headline: / { found++; missed = / outside/; next }
         missed { explained = /^    why: ./; if (!explained) exit 1; missed = 0 }
         END { exit !(found == 1 && !missed) }' "$source/experiments/results/reproduce/$name.txt" || {
        echo "$name: no headline, or no cause of its miss"
        exit 1
    }
done
"$program" reproduce | sed -n '2,6s/ .*//p' | sort | tr '\n' ' ' >"$work/first"
[ "$(cat "$work/first")" = "heterospec sampleattention slimpack slimpipe zeppelin " ] || {
    echo "the list begins with $(cat "$work/first")"
    exit 1
}
# With a name that is not known nothing is started.
"$program" reproduce zb_v zb_tabel5 -o "$work/none" >"$work/said" 2>&1 && { echo "an unknown name is taken"; exit 1; }
[ ! -e "$work/none" ] || { echo "an unknown name has a folder made"; exit 1; }
verdicts=$source/experiments/results/reproduce/verdicts.md
within="$(grep -c '| within: ' "$verdicts") of $(grep -c '| [a-z]*: ' "$verdicts")"
grep -q "reproduce --all.*: $within within their bars" "$source/README.md" || {
    echo "README.md does not say that $within figures are within their bars"
    exit 1
}
echo "${#names[@]} figures"
