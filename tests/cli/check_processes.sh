#!/usr/bin/env bash
# check_processes.sh PROGRAM SOURCE: commands that a launcher starts several times. The first process prints and writes
# files; the others do the same work and say nothing but what goes wrong.
set -u
program=$1
source=$2
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$source" || exit 1
export SLIMPACK_BACKEND_PATH
SLIMPACK_BACKEND_PATH=$(dirname "$program")/tests/plugins
[ -e "$SLIMPACK_BACKEND_PATH/libslimpack-backend-of_two.so" ] ||
    { echo "SKIPPED: no $SLIMPACK_BACKEND_PATH/libslimpack-backend-of_two.so" && exit 77; }

expect() { # WHAT EXPECTED FOUND
    [ "$2" = "$3" ] || { echo "$1: expected '$2', got '$3'" && failed=1; }
}
# process RANK NAME ARGUMENT...: output in NAME.RANK, errors in NAME.RANK.errors.
process() {
    local rank=$1 name=$2
    shift 2
    SAMPLE_RANK=$rank "$program" "$@" >"$work/$name.$rank" 2>"$work/$name.$rank.errors"
    expect "$name of process $rank" "$status" "$?"
}

cat >"$work/uniform.json" <<'S2'
{"schema": "slimpack/scenario/1", "uniform_costs": {"f_ms": 1, "b_ms": 2}, "parallel": {"pp": 2},
 "schedule": {"kind": "1f1b", "microbatches": 4}}
S2
"$program" plan "$work/uniform.json" -o "$work/plan.json" >"$work/plan" 2>&1 || { cat "$work/plan" && exit 1; }
status=0
for rank in 0 1; do
    process $rank run run "$work/plan.json" --backend of_two --timeline -o "$work/result.$rank" \
        --trace "$work/trace.$rank"
    process $rank json run "$work/plan.json" --backend of_two --json
    process $rank validate validate "$work/uniform.json" --backend of_two -o "$work/validation.$rank"
done
for name in run json validate; do
    [ -s "$work/$name.0" ] || { echo "$name: the first process says nothing" && failed=1; }
    expect "output of the other, $name" "" "$(cat "$work/$name.1" "$work/$name.1.errors")"
done
for name in result trace validation; do
    [ -s "$work/$name.0" ] || { echo "$name: not written" && failed=1; }
    [ ! -e "$work/$name.1" ] || { echo "$name: written twice" && failed=1; }
done
status=2
for rank in 0 1; do
    process $rank wrong run "$work/plan.json" --backend of_two --option no=thing
done
expect "error of the first" "error: " "$(cut -c 1-7 "$work/wrong.0.errors")"
expect "error of the other" "process 1: $(tr -s '\n ' ' ' <"$work/wrong.0.errors")" "$(tr -s '\n ' ' ' <"$work/wrong.1.errors")"

cat >"$work/set.json" <<'S2'
{"schema": "slimpack/validation-set/1",
 "base": {"uniform_costs": {"f_ms": 1, "b_ms": 2}, "parallel": {"pp": 2}, "schedule": {"microbatches": 4}},
 "groups": [{"name": "g", "cases": [{"name": "c"}]}]}
S2
process 0 set validate "$work/set.json" --backend of_two
grep -q "sets are executed by one process, this run has 2" "$work/set.0.errors" ||
    { echo "a set: $(cat "$work/set.0.errors" "$work/set.0")" && failed=1; }
exit $failed
