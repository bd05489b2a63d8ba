#!/usr/bin/env bash
# check_validation_set.sh PROGRAM SOURCE: the committed set of scenarios, executed by the backend that takes the
# simulator's durations, and what a set that cannot be executed, or is out of its bounds, comes to.
set -u
program=$1
source=$2
. "$(dirname "$0")/prelude.sh"
program=$(all_of "$program")
cd "$source" || exit 1

set=experiments/validate_host.json
validate() { # ARGUMENT...
    "$program" validate "$@" --clock virtual --set profile=host --quiet
}

cases=$(grep -c '^ *{"name": ' "$set")
[ "$cases" -ge 25 ] || complain "only $cases cases"
validate "$set" --backend fake -o "$work/report.json" >"$work/table"
expect "status" 0 "$?"
expect "cases executed" "$cases of $cases cases executed" "$(grep ' cases executed' "$work/table")"
expect "rows without error" "$cases" "$(grep -c ' +0.0 % .* exact$' "$work/table")"
expect "statuses in the report" "$cases" "$(grep -c '"status": "ok"' "$work/report.json")"
expect "schema" 1 "$(grep -c '"schema": "slimpack/validation/1"' "$work/report.json")"

# Every kind of schedule and strategy that the set is there for.
for name in gpipe 1f1b interleaved zb-h1 zb-v seq1f1b terapipe slimpipe chunkflow packflow; do
    grep -q "\"schedule\": \"$name\"" "$work/report.json" || complain "no case with schedule $name"
done
for name in packed padded sorted ffd bfd lpfhp dynapipe chunkflow slimpipe slimpack slimpack-zb; do
    grep -q "\"strategy\": \"$name\"" "$work/report.json" || complain "no case with strategy $name"
done
for part in tp cp pp dp chunks_per_rank; do
    grep -q "\"$part\": [2-9]" "$work/report.json" || complain "no case with $part above 1"
done

# Jitter is an error of every case, and outside tight bounds.
cat >"$work/tight.json" <<'S'
{"schema": "slimpack/validation-set/1", "bounds": {"iteration_time_mape": 1e-6},
 "base": {"cluster": "host", "workload": {"lengths": [16, 24, 8], "context": 32},
          "model": {"layers": 2, "hidden": 16, "ffn": 32, "heads": 2, "vocab": 32}},
 "groups": [{"name": "g", "cases": [{"name": "plain"}]}]}
S
validate "$work/tight.json" --backend fake >"$work/table"
expect "status in bounds" 0 "$?"
validate "$work/tight.json" --backend fake --option jitter=0.2 -o "$work/report.json" >"$work/table"
expect "status out of bounds" 1 "$?"
grep -q 'MISSED' "$work/table" || complain "a bound is missed and nobody says so"
validate "$work/tight.json" --backend fake --option jitter=0.2 --json >"$work/same.json"
cmp "$work/report.json" "$work/same.json" || complain "--json prints another report"

# What the backend refuses has its reason, is counted, and is no success.
cat >"$work/refused.json" <<'S'
{"schema": "slimpack/validation-set/1",
 "base": {"cluster": "host", "workload": {"lengths": [16, 24, 8], "context": 32},
          "model": {"layers": 2, "hidden": 16, "ffn": 32, "heads": 2, "vocab": 32}},
 "groups": [{"name": "g", "cases": [
   {"name": "plain"},
   {"name": "sinks", "set": {"model.attention_sinks": true}}]}]}
S
validate "$work/refused.json" --backend host --steps 1 >"$work/table"
expect "status of a refused case" 1 "$?"
grep -q '^g  *sinks  *cannot execute: .*sinks' "$work/table" || complain "no reason for the refused case"
grep -q '^1 of 2 cases executed, 1 cannot execute$' "$work/table" || complain "the refused case is not counted"

message=$(validate "$set" --backend fake --plot "$work/x.svg" 2>&1 >/dev/null)
expect "status of --plot" 2 "$?"
case $message in
*"--plot draws one scenario"*) ;;
*) complain "message of --plot: '$message'" ;;
esac
exit "$failed"
