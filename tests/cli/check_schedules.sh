#!/usr/bin/env bash
# check_schedules.sh PROGRAM SOURCE: every schedule takes as long in `compare --schedules` as where a
# scenario names it, and runs as many chunks.
set -u
program=$1
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
unset SLIMPACK_PROFILE_PATH

schedules="gpipe 1f1b interleaved zb-h1 zb-h2 zb-auto zb-v v-half v-min dualpipe-v terapipe seq1f1b
    slimpipe chunkflow packflow"

# Iteration time, status and last rank's units, by what runs it; an error's words where it does not.
compared() { # SCENARIO
    "$program" compare "$1" --schedules "$(echo $schedules | tr ' ' ,)" --json --quiet |
        awk '/^ *"schedule":/ { name = $2; gsub(/[",]/, "", name) }
             /^      "iteration_ms":/ { time = $2; sub(/,/, "", time) }
             /^ *"activation_units_peak":/ { units = $2 }
             /^    }/ { print name, time, units; units = "" }' | sort
}
named() { # SCENARIO
    for kind in $schedules; do
        "$program" simulate "$1" --set "schedule.kind=$kind" --json --quiet 2>messages >result
        [ $? -le 1 ] || echo null >result
        awk -v name="$kind" 'BEGIN { time = "null" }
             /^  "iteration_ms":/ { time = $2; sub(/,/, "", time) }
             /^ *"activation_units_peak":/ { units = $2 }
             END { print name, time, units }' result
    done | sort
}

check() { # SCENARIO RUNNING: so many of the schedules run it
    compared "$1" >one
    named "$1" >other
    if ! cmp -s one other; then
        echo "$1: compare and simulate differ"
        diff one other
        failed=1
    fi
    running=$(grep -vc ' null' other)
    if [ "$running" -lt "$2" ]; then
        echo "$1: $running schedules run"
        failed=1
    fi
}

cat >uniform.json <<'SCENARIO'
{"uniform_costs": {"f_ms": 3, "b_ms": 4, "w_ms": 2, "p2p_ms": 0.5}, "parallel": {"pp": 4},
 "schedule": {"microbatches": 16}}
SCENARIO
cat >model.json <<'SCENARIO'
{"model": "llama-7b", "cluster": "h800-8", "parallel": {"tp": 2, "pp": 4},
 "workload": {"uniform": 4096, "samples_per_batch": 16}}
SCENARIO
# 28 layers make no eight equal stages.
cat >odd.json <<'SCENARIO'
{"model": {"layers": 28, "hidden": 1024, "ffn": 2048, "heads": 8, "vocab": 1000}, "cluster": "h800-8",
 "parallel": {"pp": 4}, "workload": {"uniform": 1024, "samples_per_batch": 8}}
SCENARIO
cat >alone.json <<'SCENARIO'
{"uniform_costs": {"f_ms": 1, "b_ms": 1, "w_ms": 1}, "schedule": {"microbatches": 4}}
SCENARIO
check uniform.json 14
check model.json 14
check odd.json 8
check alone.json 8

# Interleaving runs two chunks where the layers make as many stages, one where they do not.
chunks() { # SCENARIO
    "$program" simulate "$1" --set schedule.kind=interleaved --explain --json --quiet 2>messages |
        sed -n 's/.*"chunks_per_rank": *\([0-9]*\).*/\1/p' | head -1
}
for case in uniform:2 model:2 odd:1 alone:1; do
    found=$(chunks "${case%:*}.json")
    if [ "$found" != "${case#*:}" ]; then
        echo "${case%:*}.json: expected ${case#*:} chunks, got '$found'"
        failed=1
    fi
done

# The figure of compare has a bar for each row, as long as its step, and marks the fastest; a schedule that
# cannot be run has none. 28 layers make no eight equal stages of interleaving with two chunks.
"$program" compare odd.json --schedules 1f1b,zb-h1,zb-v --json --quiet >rows.json 2>messages
"$program" compare odd.json --schedules 1f1b,zb-h1,zb-v --quiet --plot rows.dat >/dev/null 2>messages
awk -F '[ ",:]+' '
    FNR == 1 { file++ }
    file == 1 && $2 == "schedule" && !($3 in ms) { name = $3 }
    file == 1 && $2 == "iteration_ms" && name != "" && !(name in ms) { ms[name] = $3 }
    file == 2 && /^[0-9]/ {
        drawn++
        if ($4 == "fastest") marked = $2
        if (ms[$2] == "null" ? $3 != "NaN" : ($3 - ms[$2]) ^ 2 > 1e-12 * ms[$2] ^ 2) print $2 ": drawn as " $3 ", computed " ms[$2]
        if (ms[$2] != "null" && (least == "" || ms[$2] + 0 < ms[least] + 0)) least = $2
    }
    END { if (drawn != 3) print drawn " rows of 3"; if (marked == "" || marked != least) print "marked " marked ", the fastest is " least }
' rows.json rows.dat >faults
[ ! -s faults ] || { cat faults; failed=1; }
# What the table says of tokens that are left out stands at the bar, too.
printf '{"model": "llama-7b", "cluster": "h100-8", "workload": {"lengths": [100, 9000, 300, 700], "context": 4096, "over_length": "truncate"}}' >lossy.json
"$program" compare lossy.json --strategies packed,balanced --quiet --csv --plot notes.dat >notes.csv 2>messages
note=$(grep -oE '[0-9.]+ % of tokens [a-z ]+' notes.csv | tail -n 1)
[ -n "$note" ] && grep -q ", $note" notes.dat || { echo "notes.dat: no '$note'"; failed=1; }
if command -v gnuplot >/dev/null; then
    "$program" compare odd.json --schedules 1f1b,zb-h1,zb-v --quiet --plot rows.svg >/dev/null 2>messages
    for text in 1f1b zb-h1 zb-v "fastest that fits"; do
        grep -q ">$text<" rows.svg || { echo "rows.svg: no '$text'"; failed=1; }
    done
fi
exit $failed
