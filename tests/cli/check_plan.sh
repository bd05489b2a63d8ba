#!/usr/bin/env bash
# check_plan.sh PROGRAM SOURCE: the plan of a scenario, checked and changed; a stream of batches gives the
# same bytes with any number of threads, answers at once, and ends as its input and output do.
set -u
program=$1
source=$2
. "$(dirname "$0")/prelude.sh"
cd "$work" || exit 1

scenario=$source/experiments/demo.json

# One plan, whichever command writes it.
"$program" plan "$scenario" -o plan.json --quiet >/dev/null || complain "plan fails"
"$program" simulate "$scenario" --plan simulated.json --quiet >/dev/null || complain "simulate fails"
cmp plan.json simulated.json || complain "plan and simulate --plan write different plans"
"$program" plan --check plan.json --quiet >/dev/null || complain "the plan breaks a rule"
for key in predicted_ms lower_bound_ms; do
    expect "batches with $key" 4 "$(grep -c "\"$key\": [0-9]" plan.json)"
done

# Whoever reads a plan refuses one that is not of its scenario.
sed '0,/"context": [0-9]*/s//"context": 100/' plan.json >other.json
for command in "plan --check" simulate "run --backend fake"; do
    # shellcheck disable=SC2086
    message=$("$program" $command other.json --quiet 2>&1 >/dev/null)
    expect "status of $command with another context" 3 "$?"
    case $message in
    *other.json:\ batches\[0\].samples\[*"more than the context of 100"*) ;;
    *) complain "$command with another context: $message" ;;
    esac
done

# A rule broken by hand is found and named.
sed -E '0,/"F0", /s///' plan.json >broken.json
message=$("$program" plan --check broken.json 2>&1 >/dev/null)
expect "status of a broken plan" 3 "$?"
case $message in
*broken.json:\ batches\[0\]*) ;;
*) complain "message of a broken plan: $message" ;;
esac

# 200 batches of 1 to 400 samples, the same on every machine.
awk 'BEGIN {
    x = 1
    for (b = 0; b < 200; b++) {
        x = (x * 16807) % 2147483647
        n = (b % 10 == 0) ? 400 : 1 + x % 20
        for (s = 0; s < n; s++) {
            x = (x * 16807) % 2147483647
            printf("%s%d", (s ? ", " : "["), 1 + x % 30000)
        }
        print "]"
    }
}' >batches
stream() { # OPTION...
    "$program" plan "$scenario" --stream --quiet "$@"
}
stream -j 1 --ahead 1 <batches >one || complain "the stream fails"
stream -j 2 <batches >two || complain "the stream fails with two threads"
stream -j 3 --ahead 100 <batches >three || complain "the stream fails with three threads"
expect "answers" 200 "$(wc -l <one)"
cmp one two || complain "one and two threads answer differently"
cmp one three || complain "one and three threads answer differently"
sed -n 11p one >line.json
"$program" plan --check line.json --quiet >/dev/null || complain "an answer breaks a rule"

# A line that is no batch is answered by its reason, and the lines around it as they are without it.
{
    head -n 7 batches
    echo '[1, 2'
    tail -n 20 batches
} >bad
message=$(stream -j 2 <bad 2>&1 >answers)
expect "status of a bad line" 3 "$?"
expect "message of a bad line" \
    "error: standard input:8:6: expected ',' or ']', got the end of the line" "$message"
cmp <(sed 8d answers) <(head -n 7 one && tail -n 20 one) || complain "other answers around a bad line"
expect "answer to a bad line" \
    "{\"schema\":\"slimpack/plan/1\",\"batches\":[],\"status\":\"invalid\",\"reason\":\"${message#error: }\"}" \
    "$(sed -n 8p answers)"
expect "a line of the terminal for each of ten bad lines alone" "10 1" \
    "$(yes x | head -n 12 | "$program" plan "$scenario" --stream 2>&1 >/dev/null | awk '/^error: / { e++ } /^warning: no batch: 12 of 12 lines/ { w++ } END { print e, w }')"

mkfifo pipe

# A client that sends a line only after it has the answer to the last one.
mkfifo answered
stream -j 2 <pipe >answered &
pid=$!
exec 8>pipe 7<answered
for n in 1 2 3; do
    sed -n "${n}p" batches >&8
    IFS= read -r -t 20 answer <&7 || complain "no answer to line $n"
    expect "answer to line $n" "$(sed -n "${n}p" one)" "$answer"
done
echo '[1, ' >&8
IFS= read -r -t 20 answer <&7 || complain "no answer to a bad line while the input is open"
exec 8>&- 7<&-
wait "$pid"
expect "status of a bad line on an open input" 3 "$?"

# A last line without newline counts; half a line is an error.
printf '[5]\n[6]' | stream >answers || complain "a last line without newline fails"
expect "answers with a last line without newline" 2 "$(wc -l <answers)"
expect "answers to nothing" "0 0" "$(stream </dev/null | wc -l) ${PIPESTATUS[0]}"

# Ten megabytes in one line, wrong at their very end.
awk 'BEGIN {printf "[7"; for (i = 0; i < 5000000; i++) printf ",9"; print "x]"}' >long
message=$(stream <long 2>&1 >/dev/null)
expect "status of a long bad line" 3 "$?"
expect "message of a long bad line" \
    "error: standard input:1:10000002: expected a length from 1 to 2147483647, got '9x'" "$message"

# A reader that stops ends the stream quietly: 141 = 128 + SIGPIPE.
{
    stream -j 2 <batches
    echo "$?" >status
} 2>/dev/null | head -n 1 >/dev/null
expect "status with a reader that stops" 141 "$(cat status)"
if [ -w /dev/full ]; then
    message=$(stream <batches 2>&1 >/dev/full)
    expect "status with a full disk" 3 "$?"
    expect "message with a full disk" \
        "error: cannot write to standard output: No space left on device" "$message"
fi

# No room for a batch is an answer, and the exit status says so.
echo '[100]' | stream --set memory.limit_gib=0.5 >answers
expect "status without room" 1 "$?"
expect "answers without room" 1 "$(wc -l <answers)"
grep -q '"reason":"sample 0 of 100 tokens alone needs 2.5788 GiB' answers || complain "no reason without room: $(tail -c 300 answers)"
printf '[100]\n[200]\n' | "$program" plan "$scenario" --stream --set memory.limit_gib=0.5 -j 1 2>notes >/dev/null
expect "lines of settings without room" 1 "$(grep -c '^warning: line 1: the step does not fit either with ' notes)"
expect "settings without room" 1 "$(grep -c 'fit either with' notes)"
# So is a batch that the context has no place for, and the lines after it are answered.
printf '[5]\n[100000000]\n[6]\n' | stream >answers
expect "status of a batch without a plan" 1 "$?"
expect "answers with a batch without a plan" 3 "$(wc -l <answers)"
sed -n 2p answers | grep -q '"batches":\[\],"reason":".*longer than the context' ||
    complain "the reason of a batch without a plan: $(sed -n 2p answers)"
cmp <(sed '2d' answers) <(printf '[5]\n[6]\n' | stream) || complain "other answers around a batch without a plan"

# ---- paths in what is written are those from where it lies ----

mkdir -p here/data here/out
seq 100 7 3000 >here/data/lengths.txt
cp "$source/profiles/h100.json" here/data/own.json
cat >here/s.json <<'END'
{"model": "llama-3-8b", "cluster": "h100-8", "profile": "data/own.json", "parallel": {"tp": 2, "pp": 2},
 "workload": {"lengths": "data/lengths.txt", "samples_per_batch": 16, "context": 4096}}
END
(cd here && "$program" plan s.json -o out/plan.json --quiet >/dev/null &&
    "$program" tune llama-3-8b --gpus 8 --context 4K --lengths data/lengths.txt --set profile=data/own.json --strategies slimpack \
        --set workload.tokens_per_batch=65536 -o out/best.json >/dev/null 2>&1) || complain "no plan or no answer of tune"
for file in plan best; do
    "$program" simulate here/out/$file.json --json --quiet >from_above.json || complain "$file cannot be read from above"
    (cd here/out && "$program" simulate $file.json --json --quiet) >from_beside.json || complain "$file cannot be read from beside"
    cmp from_above.json from_beside.json >/dev/null || expect "$file.json from two folders" "$(grep '"iteration_ms"' from_above.json | head -1)" "$(grep '"iteration_ms"' from_beside.json | head -1)"
    grep -q '"\.\./data/own\.json"' here/out/$file.json || complain "$file.json does not name the profile beside it"
done
grep -q '"group"' here/out/best.json && complain "tune writes a group of a schedule that does not interleave"

# How long rows are by the strategy's choice stands in plan, result, table and line: no row is longer, and a plan that is
# read again says the same.
cat >rows.json <<'SPEC'
{"model": "llama-7b", "cluster": "h800-8", "nodes": 2, "parallel": {"tp": 2, "pp": 4},
 "workload": {"lengths": "wikipedia", "context": 131072, "samples_per_batch": 512}, "memory": {"recompute": "full"},
 "strategy": {"kind": "packed-tuned"}}
SPEC
"$program" plan rows.json -o rows.plan --quiet >/dev/null 2>&1 || complain "no plan of chosen rows"
chosen=$(sed -n 's/.*"row_tokens": \([0-9]*\).*/\1/p' rows.plan)
longest=$(sed -n '/"forward_packs"/,/"backward_packs"\|"stages"/p' rows.plan | grep '"slices"' |
    awk '{sum = 0; while (match($0, /"tokens": [0-9]+/)) {sum += substr($0, RSTART + 10, RLENGTH - 10); $0 = substr($0, RSTART + RLENGTH)}
          most = sum > most ? sum : most} END {print most}')
[ "${longest:-0}" -gt 0 ] && [ "$longest" -le "${chosen:-0}" ] || complain "rows of $longest tokens where $chosen were chosen"
[ "$chosen" -lt 131072 ] || complain "the context was chosen"
of_result() { "$program" "$@" --json --quiet 2>/dev/null | sed -n 's/.*"row_tokens": \([0-9]*\).*/\1/p'; }
expect "chosen rows of a result" "$chosen" "$(of_result simulate rows.json)"
expect "chosen rows of a plan" "$chosen" "$(of_result simulate rows.plan)"
expect "chosen rows of a comparison" "$chosen" "$(of_result compare rows.json --strategies packed,packed-tuned)"
expect "no chosen rows of packed" "" "$(of_result simulate rows.json --set strategy.kind=packed)"
"$program" compare rows.json --strategies packed,packed-tuned --quiet --wide 2>/dev/null | grep -q 'row tokens' || complain "no column of chosen rows"
printf '{"base": %s, "grid": {"strategy.kind": ["packed-tuned"]}}\n' "$(cat rows.json)" >rows.sweep
expect "chosen rows of a sweep" "$chosen" "$("$program" sweep rows.sweep -o rows.jsonl --quiet --json | sed -n 's/.*"row_tokens": \([0-9]*\).*/\1/p')"
expect "chosen rows of a sweep's file" "$chosen" "$("$program" sweep rows.sweep -o rows.jsonl --resume --quiet | sed -n 's/.*rows of \([0-9]*\).*/\1/p')"
again() { "$program" sweep rows.sweep -o rows.jsonl --resume --quiet --csv "$@" 2>&1; }
expect "chosen rows of a sweep's CSV" "$chosen" "$(again | awk -F, 'NR == 1 {for (i = 1; i <= NF; i++) if ($i == "row_tokens") at = i} NR == 2 {print $at}')"
expect "lines of a condition on chosen rows" "2 1" "$(again --where "row_tokens == $chosen" | wc -l) $(again --where "row_tokens > $chosen" | wc -l)"
again --where 'row_tokens < 1' | grep -q 'row_tokens' || complain "a condition that no chosen rows meet is not refused"
expect "wide table of chosen rows" "$chosen" "$("$program" sweep rows.sweep -o rows.jsonl --resume --quiet --wide | awk '/row tokens/ {getline; for (i = 1; i <= NF; i++) if ($i == '"$chosen"') print $i}')"
# tune has them in its columns and in what it asks of the loader.
asked() { "$program" tune llama-7b --cluster h800-8 --gpus 16 --context 128K --lengths wikipedia --tokens-per-batch 4M --strategies packed-tuned \
    --set parallel.tp=2 --set parallel.pp=4 --set parallel.dp=2 --set memory.recompute=full "$@" 2>/dev/null; }
asked --csv >rows.csv
of_tune=$(awk -F, 'NR == 1 {for (i = 1; i <= NF; i++) if ($i == "row_tokens") at = i} NR == 2 {print $at}' rows.csv)
[ "${of_tune:-131072}" -lt 131072 ] || complain "tune's CSV has no chosen rows: $(head -2 rows.csv)"
expect "chosen rows that tune asks for" "pack rows to $of_tune tokens (--seq-length)" "$(asked | sed -n '/^pack rows/s/,//p')"
expect "chosen rows of tune's JSON" "$of_tune" "$(asked --json | sed -n '/"top"/,/\]/s/.*"row_tokens": \([0-9]*\).*/\1/p' | head -1)"

exit "$failed"
