#!/usr/bin/env bash
# check_reproduce.sh PROGRAM SOURCE: the committed texts of the published figures are what the program says, for
# every figure but flexsp where the build has no GLPK; in a full run (SP_TEST_FULL=1) also for the longest, which decodes
# (the golden cases decode_small and reproduce_decode do too); one thread or two, the same bytes.
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
"$program" reproduce "${names[@]}" --quiet --wide -j 2 -o "$work" >"$work/all" || status=$?
[ "$status" -le 1 ] || { echo "exit $status"; exit 1; }
"$program" reproduce flexsp --quiet -o "$work" >"$work/flexsp" 2>&1 || true
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
# A picture says what it shows, and its labels, the last one too, are whole.
if command -v gnuplot >/dev/null; then
    "$program" reproduce zb_table5 zb_v --quiet -o "$work" --plot svg >/dev/null
    "$program" reproduce zb_table5 zb_v --quiet -o "$work" --plot dat >/dev/null
    for name in zb_table5 zb_v; do
        label=$(tail -n 1 "$work/$name.dat" | cut -d '"' -f 2)
        grep -q ">$name<" "$work/$name.svg" || { echo "$name.svg: no title"; exit 1; }
        grep -q ">$label<" "$work/$name.svg" || { echo "$name.svg: no $label"; exit 1; }
    done
fi
verdicts=$source/experiments/results/reproduce/verdicts.md
within="$(grep -c '| within: ' "$verdicts") of $(grep -c '| [a-z]*: ' "$verdicts")"
grep -q "reproduce --all.*: $within within their bars" "$source/README.md" || {
    echo "README.md does not say that $within figures are within their bars"
    exit 1
}
echo "${#names[@]} figures"
