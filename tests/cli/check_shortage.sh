#!/usr/bin/env bash
# check_shortage.sh PROGRAM SOURCE: a sample that fits nowhere is named with what it would have
# needed, by every command that says "out of memory"; a limit of that figure is enough.
set -u
program=$1
. "$(dirname "$0")/prelude.sh"
program=$(all_of "$program")
cd "$work" || exit 1

cat >s.json <<'END'
{"model": "llama-7b", "cluster": "h800-8", "parallel": {"tp": 4, "dp": 4},
 "memory": {"limit_gib": 40},
 "workload": {"lengths": [500, 65536, 300, 40], "order": "file", "samples_per_batch": 4}}
END

text=$("$program" simulate s.json 2>notes)
expect "status of simulate" 1 "$?"
case $text in
*"OUT OF MEMORY"*) ;;
*) complain "the result is not printed" ;;
esac
line=$(grep 'alone needs' notes)
case $line in
"warning: sample 1 of 65536 tokens alone needs "*" GiB on a rank (states "*"), "*" more than the limit of 40.00; the peak fits with memory.recompute full ("*"); context parallelism over "*" data-parallel ranks would need "*) ;;
*) complain "the warning: $line" ;;
esac
need=$(echo "$line" | sed -E 's/.*alone needs ([0-9.]+) GiB.*/\1/')
less=$(awk "BEGIN { print 0.99 * $need }")

alone() { # LIMIT
    "$program" simulate s.json --quiet --set "memory.limit_gib=$1" --set 'workload.lengths=[65536]' \
        --set workload.samples_per_batch=1 >/dev/null
    echo $?
}
expect "with the stated limit" 0 "$(alone "$need")"
expect "with one per cent less" 1 "$(alone "$less")"

# Where no plan can be made --json holds the answer all the same: figures null, why not in words.
cat >none.json <<'END'
{"model": {"layers": 4, "hidden": 1024, "ffn": 4096, "heads": 8, "vocab": 1000}, "cluster": "h800-8",
 "strategy": {"kind": "dynapipe"}, "memory": {"limit_gib": 0.25}, "workload": {"lengths": [100]}}
END
no_plan() { # SCHEMA MEMBER ARGUMENT...
    local schema=$1 member=$2
    shift 2
    "$program" "$@" --json >none.out 2>/dev/null
    expect "status of $1 without a plan" 1 "$?"
    for text in "\"schema\": \"slimpack/$schema/1\"" "\"$member\": null" '"status": "infeasible"' '"reason": "none.json: memory.limit_gib: sample 0 '; do
        grep -qF "$text" none.out || complain "$1 without a plan lacks $text: $(cat none.out)"
    done
}
no_plan result iteration_ms simulate none.json
"$program" report none.out -o none.html 2>messages
expect "status of a report of a step without a plan" 3 "$?"
grep -q '^error: none.out: holds no figures to show (infeasible): none.json: memory.limit_gib: ' messages || complain "report: $(cat messages)"
no_plan plan-summary plan plan none.json -o none.plan
no_plan validation measured validate none.json --backend fake

# Settings that are named are enough.
"$program" simulate s.json --quiet --set memory.recompute=full --set 'workload.lengths=[65536]' \
    --set workload.samples_per_batch=1 >/dev/null
expect "with recomputation" 0 "$?"

# The same words in every answer.
words=${line#warning: }
"$program" simulate s.json --json >result.json 2>/dev/null
expect "status of simulate --json" 1 "$?"
grep -qF "\"$words\"" result.json || complain "no such line in warnings"
"$program" compare s.json --strategies packed,dynapipe,bytescale --json >rows.json 2>/dev/null
expect "status of compare" 0 "$?"
grep -qF "\"reason\": \"$words\"" rows.json || complain "no such reason in compare"
expect "reasons of dynapipe" 1 "$(grep -c '"reason": ".*memory.limit_gib: sample 1 of 65536 tokens alone needs' rows.json)"
"$program" compare s.json --strategies packed,dynapipe >/dev/null 2>&1
expect "status of compare without a row that fits" 1 "$?"
"$program" simulate s.json --set strategy.kind=dynapipe >/dev/null 2>infeasible
expect "status of an infeasible strategy" 1 "$?"
grep -q 'error: .*memory.limit_gib: sample 1 of 65536 tokens alone needs' infeasible ||
    complain "no reason: $(cat infeasible)"
grep -q '; the peak fits with memory.recompute full (' infeasible || complain "no settings: $(cat infeasible)"
"$program" simulate s.json --quiet --set strategy.kind=dynapipe --set memory.recompute=full >/dev/null
expect "dynapipe with the settings that it names" 0 "$?"

# Over ranks that hold it together.
ranks=$(echo "$line" | sed -E 's/.* over ([0-9]+) data-parallel.*/\1/')
wide=$(echo "$line" | sed -E 's/.* would need ([0-9.]+)$/\1/')
"$program" simulate s.json --quiet --set strategy.kind=bytescale --set "strategy.rank_tokens=$((65536 / ranks))" \
    --set "memory.limit_gib=$wide" --set 'workload.lengths=[65536]' \
    --set workload.samples_per_batch=1 >/dev/null
expect "merged ranks with the stated limit" 0 "$?"

# A stream names settings with the first line that lacks memory, for any number of threads, whether it has a plan or not.
for kind in packed dynapipe; do
    compares_values || [ "$kind" = packed ] || break
    for threads in 1 3; do
        printf '[500,300]\n[500,65536]\n[65536,30]\n[9]\n' | "$program" plan s.json --stream --quiet -j "$threads" \
            --set "strategy.kind=$kind" | sed -n 's/.*"reason":"\([^"]*\)".*/\1/p' >"reasons$threads"
    done
    cmp reasons1 reasons3 || complain "$kind: reasons depend on the threads"
    expect "$kind: lines with a reason" 2 "$(grep -c 'of 65536 tokens alone needs' reasons1)"
    expect "$kind: lines with settings" 1 "$(grep -c 'fits with memory.recompute full (' reasons1)"
    sed -n 1p reasons1 | grep -q 'fits with' || complain "$kind: the settings are not of the first line"
done

# Memory curves are the pages' as well (check_report.sh).
compares_values || exit "$failed"
# With less and less memory until nothing fits: never faster than with all of it, and within the limit.
# Of a strategy that searches the next curve says as much, but in a full run.
other=dynapipe
[ "${SP_TEST_FULL:-}" != 1 ] || other=slimpack
"$program" compare s.json --set memory.limit_gib=200 --memory-curve --strategies packed,$other --json >curve.json 2>/dev/null
expect "status of --memory-curve" 0 "$?"
tr -d ' \n' <curve.json | sed 's/{"limit_gib":/\n/g' | awk -F'[,:}]' '
    NR == 1 { next }
    { fits = 0
      limit = $1
      for (i = 2; i < NF; i++) {
          if ($i == "\"iteration_ms\"" && $(i + 1) != "null") {
              fits++
          }
          if ($i == "\"peak_memory_gib\"" && $(i - 1) != "null" && $(i + 1) > limit) {
              print "peak of " $(i + 1) " GiB in " limit
          }
          if ($i == "\"speedup\"" && $(i + 1) != "null" && $(i + 1) > 1.0001) {
              print "faster with " limit " GiB"
          }
      }
      if (NR == 2 && fits != 2) { print fits " strategies fit in all memory" } }
    END { if (fits != 0) { print "the curve ends where " fits " fit" } }' >curve.txt
[ -s curve.txt ] && complain "--memory-curve: $(cat curve.txt)"

# More memory is never worse: well before tightly, then by time. What was made for less memory is within that limit.
# A row that is tight says so, by its margin, which is less than a tenth of the limit.
samples=64 from=8.268
[ "${SP_TEST_FULL:-}" != 1 ] || samples=512 from=31.54
"$program" compare "$2/experiments/demo.json" --memory-curve --strategies slimpack-zb --set memory.limit_gib=$from \
    --set workload.batches=1 --set workload.samples_per_batch=$samples --json >curve.json 2>/dev/null
expect "status of --memory-curve" 0 "$?"
tr -d ' ",' <curve.json | awk -F: '
    function worth() { return how == "yes" ? 0 : how == "tight" ? 1 : 2 }
    $1 == "limit_gib" { limit = $2; point++; s = 0 }
    $1 == "status" { s++; status = $2 }
    $1 == "iteration_ms" { ms = $2 }
    $1 == "peak_memory_gib" { peak = $2 }
    $1 == "fits" { how = $2 }
    $1 == "memory_margin_gib" { margin = $2 }
    $1 == "made_for_gib" {
        row = "row " s " in " limit " GiB"
        if ((status == "ok") != (worth() < 2)) print row ": " status ", fits " how
        if (status == "ok" && (peak > $2 || $2 > limit)) print row ": peak " peak ", made for " $2
        if (how == "tight" && ++tight && margin >= 0.1 * limit) print row ": not tight"
        if (point > 1 && (worth_of[s] > worth() || worth_of[s] == worth() && worth() < 2 && ms_of[s] > ms)) print row ": better than with more"
        worth_of[s] = worth()
        ms_of[s] = ms
    }
    END { if (!tight || point < 5) print "nothing to check" }' >curve.txt
[ -s curve.txt ] && complain "--memory-curve: $(cat curve.txt)"
exit "$failed"
