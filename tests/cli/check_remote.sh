#!/usr/bin/env bash
# check_remote.sh PROGRAM SOURCE: a set exported as plans, each executed by `slimpack run` as on another machine, and
# read back; and what becomes of results that fail or are not there.
set -u
program=$1
source=$2
. "$(dirname "$0")/prelude.sh"
program=$(all_of "$program")
cd "$source" || exit 1

# As experiments/README.md says: a process for each plan, of at most so many seconds.
execute() { # FOLDER [SECONDS]
    (cd "$1" && xargs -L 1 timeout -k 5 "${2:-60}" "$program" <runs.txt)
}
count_executed() { # FOLDER
    grep -l '"status":"ok"' "$1"/*.result.json | wc -l
}

cat >"$work/set.json" <<'S'
{"schema": "slimpack/validation-set/1",
 "base": {"cluster": "host", "profile": "host", "parallel": {"pp": 2},
          "workload": {"lengths": [16, 24, 8, 32, 5, 11], "context": 32, "order": "file", "samples_per_batch": 3,
                       "batches": 2},
          "model": {"layers": 4, "hidden": 16, "ffn": 32, "heads": 2, "vocab": 32}},
 "groups": [{"name": "g", "cases": [
   {"name": "1F1B, packed"},
   {"name": "slimpack", "set": {"strategy.kind": "slimpack"}},
   {"name": "on the wall", "clock": "wall", "set": {"schedule.kind": "zb-h1"}},
   {"name": "sinks", "set": {"model.attention_sinks": true}}]}]}
S
validate() { # ARGUMENT...
    "$program" validate "$work/set.json" --quiet "$@"
}
validate --backend host --steps 3 --seed 5 --export "$work/requests" >"$work/table"
expect "status of --export" 0 "$?"
expect "requests" "4 of 4 plans in $work/requests" "$(tail -n 1 "$work/table")"
expect "files" "01-1f1b-packed.json 02-slimpack.json 03-on-the-wall.json 04-sinks.json runs.txt" \
    "$(cd "$work/requests" && echo *)"
expect "clocks" "virtual virtual wall virtual" \
    "$(sed -n 's/.*--clock \([a-z]*\) .*/\1/p' "$work/requests/runs.txt" | tr '\n' ' ' | sed 's/ $//')"
expect "arguments" "run 02-slimpack.json --backend host --device 0 --clock virtual --precision fp32 --seed 5 --steps 3 --record 02-slimpack.result.json" \
    "$(sed -n 2p "$work/requests/runs.txt")"
"$program" simulate "$work/requests/02-slimpack.json" --quiet >/dev/null || complain "what is exported is no plan"
validate --backend host --steps 3 --seed 5 --export "$work/again" --json >"$work/export.json"
expect "status of --export --json" 0 "$?"
expect "schema" 1 "$(grep -c '"schema": "slimpack/export/1"' "$work/export.json")"
cmp "$work/requests/02-slimpack.json" "$work/again/02-slimpack.json" || complain "two exports differ"
# A clock on the command line is before that of the set.
validate --backend host --clock virtual --export "$work/virtual" >/dev/null
grep -q '^run 03-on-the-wall.json .*--clock virtual' "$work/virtual/runs.txt" || complain "--clock does not beat the set's"
# A backend that is not built here needs a precision, and no more.
validate --backend remote --export "$work/other" 2>"$work/errors" >/dev/null
expect "status without a precision" 2 "$?"
grep -q "backend 'remote' has no device 0 here: its --precision must be given" "$work/errors" ||
    complain "no word of the precision"
validate --backend remote --precision bf16 --export "$work/other" >/dev/null
expect "status of another backend" 0 "$?"

cp -r "$work/requests" "$work/results"
execute "$work/results" >"$work/lines" 2>"$work/errors"
expect "status of a case that cannot be executed" 123 "$?"
expect "executed" 3 "$(count_executed "$work/results")"
expect "iterations" 3 "$(grep -c '^  iteration  *[0-9.]* ms' "$work/lines")"
grep -q '^error: .*sinks' "$work/errors" || complain "no reason in the line of sinks"
validate --backend host --executed "$work/results" -o "$work/report.json" >"$work/table"
expect "status of --executed" 1 "$?"
expect "rows with exact memory" 3 "$(grep -c ' exact$' "$work/table")"
grep -q '^g  *sinks  *cannot execute: .*sinks' "$work/table" || complain "no reason in the row of sinks"
grep -q '^3 of 4 cases executed, 1 cannot execute$' "$work/table" || complain "no count"
expect "steps in the report" 1 "$(grep -c '"steps": 3' "$work/report.json")"
expect "cases on the wall clock" 1 "$(grep -c '"clock": "wall"' "$work/report.json")"
validate --backend host --executed "$work/results" --json >"$work/same.json"
cmp "$work/report.json" "$work/same.json" || complain "--json prints another report"

# Times of links come from the plan's scenario; what is executed with them is compared as the rest.
validate --backend host --clock virtual --steps 1 --option links=emulated --export "$work/links" >/dev/null
execute "$work/links" >/dev/null 2>&1
expect "executed with links" 3 "$(count_executed "$work/links")"
validate --backend host --executed "$work/links" >"$work/table"
expect "rows with links" 3 "$(grep -c ' exact$' "$work/table")"

# Nothing was executed, and the table says so of every case.
cp -r "$work/requests" "$work/late"
validate --backend host --executed "$work/late" >"$work/table"
expect "status of --executed without results" 70 "$?"
expect "failed rows" 4 "$(grep -c ' failed: .*result.json: No such file' "$work/table")"
# One that is ended from outside leaves a result that says so.
cp -r "$work/requests" "$work/slow"
sed -i '2,$d; s/ --steps 3/ --steps 100000/' "$work/slow/runs.txt"
execute "$work/slow" 1 >/dev/null 2>&1
expect "status of one that takes too long" 123 "$?"
validate --backend host --executed "$work/slow" >"$work/table"
grep -q '^g  *1F1B, packed  *failed: the execution did not end$' "$work/table" || complain "no word of an execution's end"
# A result of another backend, and a broken plan.
sed 's/"backend":"host"/"backend":"remote"/' "$work/results/01-1f1b-packed.result.json" \
    >"$work/late/01-1f1b-packed.result.json"
validate --backend host --executed "$work/late" 2>"$work/errors" >/dev/null
expect "status of another backend's result" 3 "$?"
tr -s '\n ' ' ' <"$work/errors" | grep -q 'request.backend: expected "host", got "remote"' || complain "no word of the backend"
echo '{"schema": "slimpack/plan/1"}' >"$work/virtual/02-slimpack.json"
execute "$work/virtual" >/dev/null 2>"$work/errors"
expect "those behind a broken plan" 2 "$(count_executed "$work/virtual")"
tr -s '\n ' ' ' <"$work/errors" | grep -q 'error: .*expected a plan' || complain "no word of the broken plan"
# A result of another model is no result of this one.
sed 's/"hidden": 16/"hidden": 48/' "$work/set.json" >"$work/wider.json"
"$program" validate "$work/wider.json" --backend host --executed "$work/results" 2>"$work/errors" >/dev/null
expect "status of another model" 3 "$?"
grep -q 'model.hidden: executed with 16, the scenario has 48' "$work/errors" || complain "no word of the model"

# The committed set for one GPU: a plan for every case, none of them large. In a full run: its plans are searched for.
if [ "${SP_TEST_FULL:-}" = 1 ]; then
    mkdir -p "$work/profiles"
    cp profiles/h200.json "$work/profiles/h200-1of4.json"
    SLIMPACK_PROFILE_PATH=$work/profiles "$program" validate experiments/validate_gpu.json --backend cuda \
        --precision bf16 --steps 4 --export "$work/gpu" >"$work/table"
    expect "status of the set for a GPU" 0 "$?"
    count=$(find "$work/gpu" -maxdepth 1 -name '*.json' | wc -l)
    expect "plans for a GPU" "$count of $count" "$(sed -n 's/ plans in .*//p' "$work/table")"
    expect "large plans" "" "$(find "$work/gpu" -maxdepth 1 -size +999k)"
    grep -q -e '--clock wall' "$work/gpu/runs.txt" || complain "no case on the wall clock"
    for name in 1f1b interleaved zb-h1 slimpipe packflow; do
        grep -q "\"kind\": \"$name\"" "$work"/gpu/*.json || complain "no case with $name"
    done
    expect "stacks" "$count" "$(grep -l '"stack": {"name": "cuda"' "$work"/gpu/*.json | wc -l)"
fi

for wrong in "--export $work/x --executed $work/results" "--export $work/x -o $work/r.json" \
    "--export $work/x --repeat 2" "--executed $work/results --steps 3"; do
    # shellcheck disable=SC2086
    validate --backend host $wrong >/dev/null 2>&1
    expect "status of $wrong" 2 "$?"
done
# What a set names by a path is found from where its plans lie.
cp profiles/host.json "$work/own.json"
sed 's/"profile": "host"/"profile": "own.json"/' "$work/set.json" >"$work/own_set.json"
(cd "$work/.." && "$program" validate "$(basename "$work")/own_set.json" --backend host \
    --export "$(basename "$work")/own" --quiet >/dev/null)
expect "status of --export beside the working directory" 0 "$?"
(cd / && "$program" simulate "$work/own/01-1f1b-packed.json" --quiet >/dev/null) || complain "the profile of an exported plan is not found"
"$program" validate experiments/host_small.json --backend host --export "$work/x" 2>"$work/errors" >/dev/null
expect "status of --export of one scenario" 2 "$?"
exit "$failed"
