#!/usr/bin/env bash
# check_screens.sh PROGRAM SOURCE: what each command prints for people is no wider than 100 columns and, with its
# warnings, no longer than 40 lines: over the examples of experiments/README.md and more of each command. --wide and --csv
# have all columns and rows, --markdown the columns of the screen, JSON all warnings. Help is as long as it is, no wider.
set -u
program=$1
source=$2
# shellcheck source=tests/cli/prelude.sh
. "$source/tests/cli/prelude.sh"
export LC_ALL=C.UTF-8 COLUMNS=60 # of no terminal: it says nothing
cd "$work" || exit 1
pages_folder
cp "$source"/tests/cli/inputs/* .
"$program" plan small.json -o small_plan.json -q >/dev/null || complain "no plan of small.json"

widest() { awk '{ if (length($0) > most) most = length($0) } END { print most + 0 }' "$@"; }
declare -A measured
fits() { # LINES WORD... : a command, which may say no
    local most=$1 command=$2
    shift
    "$program" "$@" >out 2>err </dev/null || [ $? = 1 ] || complain "$*: $(cat err)"
    local lines
    lines=$(cat out err | wc -l)
    [ "$lines" -gt 0 ] || complain "$*: nothing is printed"
    [ "$lines" -le "$most" ] || complain "$*: $lines lines"
    [ "$(widest out err)" -le 100 ] || complain "$*: $(widest out err) columns: $(awk 'length($0) > 100' out err | head -n 1)"
    ! grep -n ' $' out || complain "$*: blanks at the end of a line"
    measured[$command]=1
}

# ---- the examples of the page, but for programs ----

ran=0
while IFS= read -r line; do
    # Of several commands each; those for programs and what takes minutes stand below, smaller.
    while IFS= read -r command; do
        command=${command#"${command%%[! ]*}"}
        case $command in
        *--json* | *' report '* | mpirun* | echo* | experiments/* | *calibrate* | *--published* | *merge*) continue ;;
        build/slimpack*) ;;
        *) continue ;;
        esac
        # shellcheck disable=SC2086
        fits 40 ${command#build/slimpack }
        ran=$((ran + 1))
    done < <(printf '%s\n' "$line" | sed 's/ && /\n/g')
done < <(awk '/^```sh/ {code = 1; next} /^```/ {code = 0} code && /^build\/slimpack/' "$source/experiments/README.md")
[ "$ran" -ge 10 ] || complain "only $ran examples"

# ---- more of each command ----

fits 40 lengths
fits 40 lengths wikipedia prolong
fits 40 compare experiments/demo.json --set workload.samples_per_batch=8 --memory-curve --strategies padded,packed,bfd,ffd,sorted,dp-balanced
fits 40 simulate experiments/demo.json --set parallel.pp=20 --set nodes=20 --set parallel.dp=1 --set workload.samples_per_batch=64 --timeline --critical-path
fits 40 plan experiments/demo.json -o many.json --set workload.batches=50 --set workload.samples_per_batch=8
fits 40 plan --check many.json
fits 40 prefill experiments/prefill.json
fits 40 prefill experiments/prefill.json --lengths 16K,32K,64K,128K,256K,512K,1M --alphas 0.8,0.95
fits 40 decode experiments/decode.json
fits 40 sweep experiments/sweep_layouts.json --sample 40 -o few.jsonl --pareto iteration_ms,peak_memory_gib
fits 40 reproduce
fits 40 reproduce slimpipe_memory zb_v zb_v_speedup dualpipe
fits 40 validate --published --table a100_single_node --rows
[ "${SP_TEST_FULL:-}" != 1 ] || fits 40 validate --published
fits 40 run small_plan.json --backend host --steps 20
fits 40 measure set.json --backend host --minutes 1 --steps 2 -o measured.json
for shard in 1 2; do fits 40 sweep sweep.json --shard $shard/2 -o pair-$shard.jsonl; done
fits 40 merge sweep.json pair-1.jsonl pair-2.jsonl -o pair.jsonl
fits 40 calibrate --from-measurements t.csv --fit fit.json -o mine.json
fits 40 validate --measurements t.csv --rows
fits 40 validate experiments/demo.json --log "$source/tests/cli/logs/nanotron.log"
fits 40 compare experiments/demo.json experiments/host_small.json
"$program" simulate experiments/demo.json --set workload.batches=1 --json -q >r.json
fits 40 report r.json -o page.html
cat >set.json <<'end'
{"schema": "slimpack/validation-set/1",
 "base": {"model": {"layers": 2, "hidden": 32, "ffn": 64, "heads": 2, "kv_heads": 2, "vocab": 64}, "cluster": "host",
          "workload": {"uniform": 16, "context": 16, "samples_per_batch": 4}},
 "groups": [{"name": "a", "cases": [{"name": "one", "set": {}}, {"name": "two", "set": {"parallel.pp": 2}}]}]}
end
fits 40 validate set.json --backend host --steps 1
# ---- memory that runs out: told first and whole ----

echo '{"model": "mixtral-8x7b", "cluster": "h100-8", "nodes": 1, "parallel": {"tp": 4},
       "workload": {"context": "1K", "lengths": "wikipedia", "samples_per_batch": 63, "batches": 2}}' >oom.json
for command in simulate 'compare --strategies packed,bfd'; do
    # shellcheck disable=SC2086
    fits 40 $command oom.json
    tr -s '\n ' ' ' <err >one_line
    grep -q '^warning: \(packed: \)\?sample [0-9]* of [^;]* alone needs [0-9.]* GiB on a rank .*; the peak fits with parallel.tp 8 [^.]*([0-9.]*),.* are more warning: .* more.* with --wide $' one_line ||
        complain "$command: memory is not first, or is cut: $(cat one_line)"
    # shellcheck disable=SC2086
    "$program" $command oom.json --wide 2>&1 >/dev/null | sed -n 1p | tr -s '\n ' ' ' >first
    cmp -s -n "$(($(wc -c <first) - 1))" first one_line || complain "$command: --wide has other words: $(cat first)"
done

# ---- help: as long as it is ----

fits 1000 help
for topic in $("$program" help | sed -n 's/^  \([a-z]*\)  *[a-z].*/\1/p') settings models model_types clusters strategies \
    schedules stacks profiles distributions results words parallel.pp margin; do
    fits 1000 help "$topic"
done
"$program" --help >out
for command in $("$program" help | sed -n 's/^  \([a-z]*\)  *[a-z].*/\1/p'); do
    [ -n "${measured[$command]:-}" ] || complain "no screen of '$command' was measured"
    "$program" help "$command" | grep -q -e '--wide' || [ "$command" = help ] || complain "$command: no --wide"
done

# ---- all of it ----

compare=(compare experiments/demo.json --set workload.samples_per_batch=8 --set workload.batches=1)
fits 40 "${compare[@]}"
mv out short
mv err short.err
"$program" "${compare[@]}" --wide >wide 2>wide.err
# Tables alone, and what people are told beside them.
"$program" "${compare[@]}" --csv >table.csv 2>told
"$program" "${compare[@]}" --markdown >table.md 2>told.md
"$program" "${compare[@]}" --markdown --wide -q >all.md
"$program" "${compare[@]}" --json -q >table.json
strategies=$(grep -c '"strategy":' table.json)
expect "rows of --csv" "$((strategies + 1))" "$(wc -l <table.csv)"
expect "rows of --markdown" "$((strategies + 2))" "$(wc -l <table.md)"
expect "rows that are the fastest" "1 1 1" "$(grep -c fastest short) $(grep -c fastest table.csv) $(grep -c fastest table.md)"
grep -q '^\.\.\. [0-9]* more rows with --wide, and columns: ' short || complain "nothing tells of rows and columns left out"
for head in "iteration ms" speed-up "peak GiB" "MFU causal" "solver ms" status; do
    grep -q "$head" wide || complain "--wide has no column '$head'"
    head -n 1 all.md | grep -q "| $head |" || complain "--markdown --wide has no column '$head'"
done
# Markdown has the columns that the screen chose, of which no heading is a part of another's.
heads_of() { # FILE: of the table of rows, as lines
    sed -n 's/ *| */\n/g; s/^\n//p; q' "$1" | sed '/^$/d'
}
heads_of table.md >heads.md
heads_of all.md >heads.all
heading=$(grep '^strategy  *iteration ms' short)
while read -r head; do
    case " $heading " in
    *[" "]"$head"[" "]*) grep -qx "$head" heads.md || complain "--markdown lacks the column '$head'" ;;
    *) grep -qx "$head" heads.md && complain "--markdown has the column '$head', which the screen left out" ;;
    esac
done <heads.all
[ "$(wc -l <heads.md)" -lt "$(wc -l <heads.all)" ] || complain "--markdown leaves no column out"
expect "cells of a row of --markdown" "$(head -n 1 table.md | tr -cd '|' | wc -c)" "$(tail -n 1 table.md | tr -cd '|' | wc -c)"
grep -q '^with --wide also .*solver ms' told.md || complain "--markdown names no column left out"
# The fastest of all comes behind the baseline, as the JSON has it.
fastest=$(awk -F: '/"strategy":/ {gsub(/[ ",]/, "", $2); name = $2} /"status": "oom"/ {out[name] = 1}
    /"speedup":/ {speed[name] = $2 + 0} END {for (n in speed) if (!(n in out) && speed[n] > most) {most = speed[n]; best = n} print best}' table.json)
expect "the fastest" "$fastest" "$(awk '/fastest/ {print $1}' short)"
# Every number of the CSV is that of the JSON.
expect "iteration_ms of --csv" "$(awk -F'[:,]' '/^      "iteration_ms": [0-9]/ {printf "%.6f\n", $2}' table.json | sort)" \
    "$(cut -d, -f2 table.csv | sed 1d | awk 'NF {printf "%.6f\n", $1}' | sort)"
"$program" lengths wikipedia --csv -q | awk -F, 'NF == 0 {tables++} tables == 1 && $2 + 0 > 0 {print $2 "," $3}' >counts.csv
"$program" lengths wikipedia --json -q | awk -F'[:,]' '/"upto":/ {upto = $2 + 0} /"samples":/ {print upto "," $2 + 0}' >counts.json
[ "$(wc -l <counts.csv)" -ge 10 ] && cmp counts.json counts.csv || complain "lengths --csv: other counts"
# Of a figure that is published as it is, and of one that is a bound.
"$program" reproduce zb_table5 zb_v --csv -q | awk -F, '/^zb/ {print $4}' >computed.csv
"$program" reproduce zb_table5 zb_v --json -q | sed -n 's/^ *"computed": \(.*\),$/\1/p' >computed.json
[ "$(wc -l <computed.csv)" -ge 10 ] && cmp computed.json computed.csv || complain "reproduce --csv: other figures"
"$program" run small_plan.json --backend host --prove --csv -q >tensors.csv
"$program" run small_plan.json --backend host --prove --json -q >tensors.json
sed -n 's;^ \{10\}"name": "\(gradients/\)\{0,1\}\(.*\)".*;\2;p' tensors.json >tensors
[ "$(wc -l <tensors)" -gt 10 ] && sed 1d tensors.csv | cut -d, -f 1 | cmp tensors - || complain "run --prove --csv: other tensors"
few=$(grep -c '^warning: ' short.err)
[ "$few" -le 3 ] || complain "$few warnings"
expect "warnings told to be more" "$(($(grep -c '^warning: ' wide.err) - few))" "$(sed -n 's/^warnings: \([0-9]*\) more.*/\1/p' short.err)"
[ "$(widest wide)" -gt 100 ] || complain "--wide is no wider"
# The first table has every number of the JSON that is in no list, under its keys; times of this machine differ.
flat() { # PREFIX < JSON: KEY,NUMBER
    awk -v prefix="$1" '
        { depth = match($0, /[^ ]/) }
        list > 0 { if (depth == list) list = 0; next }
        match($0, /"[^"]*": /) {
            key[depth] = substr($0, RSTART + 1, RLENGTH - 4)
            value = substr($0, RSTART + RLENGTH)
            if (value == "[") list = depth
            path = prefix
            for (d = 3; d <= depth; d += 2) path = path (d > 3 ? "." : "") key[d]
            if (value ~ /^-?[0-9]/) printf "%s,%.10g\n", path, value
        }' | grep -v -e solver_ms -e simulate_ms
}
same_figures() { # LEAST WORD...
    local least=$1
    shift
    "$program" "$@" --json -q 2>err | flat "" >figures.json
    "$program" "$@" --csv -q 2>err | awk -F, 'NF == 0 {exit} NR > 1 {printf "%s,%.10g\n", $(NF - 1), $NF}' |
        grep -v -e solver_ms -e simulate_ms >figures.csv
    [ "$(wc -l <figures.csv)" -ge "$least" ] && cmp figures.json figures.csv || complain "$* --csv: other figures than --json"
    "$program" "$@" --markdown -q 2>err | sed '/^[^|]/d; /^$/d' | sed -n '3,$s/^| \([a-z][^ ]*\) |.*/\1/p' | grep -v -e solver_ms -e simulate_ms |
        head -n "$(wc -l <figures.csv)" | cmp - <(cut -d, -f 1 figures.csv) || complain "$* --markdown: other figures than --csv"
}
same_figures 60 simulate experiments/demo.json --train-tokens 1T
same_figures 60 simulate experiments/host_small.json --set workload.batches=2
same_figures 40 decode experiments/decode.json
same_figures 20 prefill experiments/prefill.json
same_figures 15 lengths wikipedia
same_figures 60 validate experiments/demo.json --log "$source/tests/cli/logs/nanotron.log"
expect "figures of --csv" "figure,value" "$("$program" run small_plan.json --backend host --csv -q | head -n 1)"
expect "figures of --csv" "figure,value" "$("$program" validate experiments/host_small.json --backend host --steps 1 --csv -q | head -n 1)"
expect "rows of the list of lengths" "$("$program" lengths --json | grep -c '"name":')" "$("$program" lengths --csv | sed 1d | wc -l)"
"$program" "${compare[@]}" --csv -q >quiet.csv # times of the solver stand in column 14
cmp <(cut -d, -f 1-13 quiet.csv) <(cut -d, -f 1-13 table.csv) || complain "--csv: another table with -q"
grep -q 'llama-13b on' told || complain "--csv: nothing is told on standard error"
for both in "--csv --markdown" "--csv --json" "--markdown --json"; do
    # shellcheck disable=SC2086
    "$program" "${compare[@]}" $both >out 2>err
    expect "exit of $both" 2 $?
done
"$program" plan experiments/host_small.json --csv -o - >out 2>err
expect "exit of --csv -o -" 2 $?
# Two tables of one command part by their names.
"$program" tune llama-7b --gpus 2 --context 2K --strategies packed --csv -q >tune.csv
expect "heads of a table in two parts" 1 "$(grep -c '^table,' tune.csv)"
grep -q '^top,' tune.csv && grep -q '^front,' tune.csv || complain "tune --csv: not both tables"
expect "columns of every row" 1 "$(awk -F, '{print NF}' tune.csv | sort -u | wc -l)"
expect "rows of a list" "$("$program" reproduce --json | grep -c '"name":')" "$("$program" reproduce --csv | sed 1d | wc -l)"

# ---- a terminal ----

if command -v script >/dev/null; then
    for columns in 60 80 140; do
        COLUMNS=$columns script -qec "$program simulate experiments/zoo.json -q" typescript </dev/null | tr -d '\r' >out
        [ "$(widest out)" -le "$columns" ] || complain "a terminal of $columns columns: $(widest out)"
        COLUMNS=$columns script -qec "$program compare experiments/zoo.json --schedules 1f1b,zb-v -q" typescript </dev/null | tr -d '\r' >out.$columns
    done
    grep -q "last rank" out.140 && ! grep -q "^schedule.*last rank" out.60 || complain "a table does not follow the terminal"
fi
exit "$failed"
