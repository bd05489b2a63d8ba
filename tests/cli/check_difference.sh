#!/usr/bin/env bash
# check_difference.sh PROGRAM SOURCE: `compare A B` says of two scenarios what it says of their results, is the same
# step's figures that simulate prints, turns round with its files, and finds no difference in two equal steps.
set -u
program=$1
. "$(dirname "$0")/prelude.sh"
cd "$work" || exit 1

cat >a.json <<'end'
{"model": "llama-13b", "cluster": "h800-8", "profile": "h800", "parallel": {"tp": 4, "pp": 4, "dp": 2},
 "memory": {"recompute": "full"},
 "workload": {"lengths": "wikipedia", "context": 32768, "samples_per_batch": 64, "batches": 2}}
end
jq '.parallel.pp = 2 | .parallel.dp = 4 | .memory.recompute = "none"' a.json >b.json
cp a.json again.json
for side in a b; do
    "$program" simulate $side.json --json --explain -q >$side.result.json
    "$program" simulate $side.json --json -q >$side.short.json
done
differs() { "$program" compare "$@" --json -q; }

# Figures are those of both results, to the last digit that documents have; times of this machine are none of them.
differs a.json b.json >d.json
for side in a b; do
    jq -r --slurpfile r $side.result.json ".figures[] | .key as \$k | [\$k, .$side, (\$r[0] | getpath(\$k / \".\"))] |
        select(.[1] != .[2] and (.[1] == null or .[2] == null or (.[1] - .[2] | fabs) > 1e-9 * (.[2] | fabs))) | @tsv" d.json >wrong
    [ -s wrong ] && complain "figures of $side.json are not simulate's: $(cat wrong)"
done
expect "settings of two scenarios" 'memory.recompute parallel.dp parallel.pp' \
    "$(jq -r '[.settings[].key] | sort | join(" ")' d.json)"
expect "changes that fall" true "$(jq '[.figures[].change | select(. != null)] | . == (sort | reverse)' d.json)"
expect "the time among them" 1 "$(jq '[.figures[] | select(.key == "iteration_ms")] | length' d.json)"
expect "clocks among them" 0 "$(jq '[.figures[] | select(.key | test("solver|simulate"))] | length' d.json)"

# Every figure of one result that differs is found.
jq -s -r 'def flat: [paths(numbers) as $p | {key: ($p | map(tostring) | join(".")), value: getpath($p)}] | from_entries;
    (.[0] | flat) as $a | (.[1] | flat) as $b | $a | keys[] | select(test("^(iteration_ms|bubble_ratio|mfu|hfu|gap|tokens_per_s|peak_memory_gib|limit.share)$")) |
    select($a[.] != $b[.])' a.result.json b.result.json | sort >differ
jq -r '.figures[].key' d.json | sort >found
expect "figures that are missing" "" "$(comm -23 differ found | tr '\n' ' ')"
[ "$(wc -l <differ)" -ge 6 ] || complain "too few figures differ to test"

differs a.result.json b.result.json >results.json
keys=$(jq -c '[.settings, [.figures[].key]]' d.json)
expect "keys of results" "$keys" "$(jq -c '[.settings, [.figures[].key]]' results.json)"
differs a.json b.result.json >mixed.json
expect "keys of a scenario and a result" "$keys" "$(jq -c '[.settings, [.figures[].key]]' mixed.json)"

# The other way round the sides change places, and changes stay.
differs b.json a.json | jq '(.settings[], .figures[]) |= {key, a: .b, b: .a, change} | {settings, figures}' >back.json
jq '(.settings[], .figures[]) |= {key, a, b, change} | {settings, figures}' d.json >there.json
cmp -s there.json back.json || complain "the other way round: $(diff there.json back.json | head -5)"

# Two equal steps do not differ, and --set is of both.
expect "equal steps" '[[],[]]' "$(differs a.json again.json | jq -c '[.settings, [.figures[].key]]')"
expect "settings behind --set" 'memory.recompute' \
    "$(differs a.json b.json --set parallel.pp=2 --set parallel.dp=4 | jq -r '[.settings[].key] | join(" ")')"

# A result without its scenario tells the settings that it holds, and that there may be others.
expect "settings of short results" 'parallel.dp parallel.pp' \
    "$(differs a.short.json b.short.json | jq -r '[.settings[].key] | sort | join(" ")')"
expect "whether all are known" '[true,false]' \
    "$(jq -n -c --slurpfile d d.json --argjson s "$(differs a.short.json b.short.json)" '[$d[0].all_settings, $s.all_settings]')"
"$program" compare a.short.json b.short.json -q | grep -q 'further settings may differ' || complain "short results hide settings"

# What people see holds the screen; the last line can be typed.
"$program" compare a.json b.json >text 2>/dev/null
[ "$(wc -l <text)" -le 40 ] || complain "$(wc -l <text) lines"
[ "$(wc -L <text)" -le 100 ] || complain "$(wc -L <text) columns"
command=$(sed -n 's/^go on with: slimpack //p' text)
eval "'$program' $command" >/dev/null 2>&1 || complain "go on with: $command: exit $?"
expect "rows of --csv" "$(jq '(.settings | length) + (.figures | length)' d.json)" \
    "$("$program" compare a.json b.json --csv 2>/dev/null | grep -cvE '^$|,A,B')"

refused() { # STATUS TEXT WORD...
    message=$("$program" compare "${@:3}" 2>&1 >/dev/null)
    expect "exit of compare ${*:3}" "$1" "$?"
    [[ $message == *$2* ]] || complain "compare ${*:3}: $message"
}
"$program" plan a.json -o plan.json -q >/dev/null
refused 2 'of two steps' a.json b.json --strategies packed
refused 2 '--set and --lengths change scenarios' a.json b.result.json --set parallel.pp=2
refused 3 'got a plan' a.json plan.json
echo '{"schema": "slimpack/result/1", "iteration_ms": null}' >none.json
refused 3 'iteration_ms: there are no figures' none.json a.json
exit "$failed"
