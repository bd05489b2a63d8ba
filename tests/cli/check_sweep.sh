#!/usr/bin/env bash
# check_sweep.sh PROGRAM SOURCE: a sweep that is interrupted or run with other numbers of
# threads leaves whole lines in order, and --resume makes the same file of it; so does merge of what
# the processes of a launcher wrote.
set -u
program=$1
. "$(dirname "$0")/prelude.sh"
cd "$work" || exit 1
# Jobs in the background would ignore SIGINT otherwise.
set -m

points=900
cat >s.json <<SPEC
{"schema": "slimpack/sweep/1",
 "base": {"uniform_costs": {"f_ms": 1, "b_ms": 1, "w_ms": 0.9}},
 "grid": {"parallel.pp": [4, 8, 16], "schedule.microbatches": [$(seq -s, 1 300)]}}
SPEC

same_as_reference() { # FILE
    cmp "$1" reference || complain "$1 differs from an uninterrupted run"
}
lines_in() { # FILE
    if [ -f "$1" ]; then wc -l <"$1"; else echo 0; fi
}
# Starts a sweep in the background and sends SIGNAL once FILE has LINES; sets `status`.
run_until() { # SIGNAL LINES FILE OPTION...
    local signal=$1 lines=$2 file=$3
    shift 3
    "$program" sweep s.json -o "$file" --quiet "$@" >/dev/null 2>messages &
    local pid=$!
    while [ "$(lines_in "$file")" -lt "$lines" ] && kill -0 "$pid" 2>/dev/null; do
        sleep 0.005
    done
    kill -"$signal" "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    status=$?
}

"$program" sweep s.json -o one.jsonl --quiet -j 1 >/dev/null || complain "the sweep failed"
cp one.jsonl reference
expect "lines" "$points" "$(lines_in one.jsonl)"
"$program" sweep s.json -o three.jsonl --quiet -j 3 >/dev/null || complain "the sweep failed"
same_as_reference three.jsonl

# As a kill in the middle of a write would leave it; check_sweep_kills.sh kills.
head -n 400 reference >killed.jsonl
printf '{"point":{"parallel.pp":' >>killed.jsonl
summary=$("$program" sweep s.json -o killed.jsonl --quiet --resume --json) ||
    complain "the resumed sweep failed"
same_as_reference killed.jsonl
case $summary in
*"\"resumed\": 400,"*"\"written\": $points,"*) ;;
*) complain "the summary of the resumed sweep: $summary" ;;
esac

# A finished sweep has nothing left to do.
"$program" sweep s.json -o killed.jsonl --quiet --resume >/dev/null || complain "nothing left fails"
same_as_reference killed.jsonl

for signal in INT TERM; do
    rm -f stopped.jsonl
    run_until "$signal" 50 stopped.jsonl -j 2
    expect "status after SIG$signal" $((128 + $(kill -l "$signal"))) "$status"
    expect "last byte after SIG$signal" "$(printf '\n' | od -An -c)" \
        "$(tail -c 1 stopped.jsonl | od -An -c)"
    [ "$(lines_in stopped.jsonl)" -lt "$points" ] || complain "SIG$signal did not stop the sweep"
    "$program" sweep s.json -o stopped.jsonl --quiet --resume >/dev/null ||
        complain "going on after SIG$signal failed"
    same_as_reference stopped.jsonl
done

# Each process of a launcher takes the shard that its variables name, also without --shard. Slurm's
# count is that of the step, whatever a shell keeps of its allocation; mpirun's own place in an
# allocation says nothing.
shards_by() { # LAUNCHER OPTIONS VARIABLE... where @ is the rank
    local launcher=$1 options=$2 rank
    shift 2
    rm -f auto*.jsonl
    for rank in 2 0 1; do
        # shellcheck disable=SC2086
        env "${@//@/$rank}" "$program" sweep s.json -o auto.jsonl --quiet $options >/dev/null 2>messages ||
            complain "rank $rank of $launcher: $(cat messages)"
    done
    "$program" merge s.json auto-*-of-3.jsonl -o auto.jsonl --quiet >/dev/null || complain "merging by $launcher"
    same_as_reference auto.jsonl
}
shards_by "Open MPI" "--shard auto" OMPI_COMM_WORLD_RANK=@ OMPI_COMM_WORLD_SIZE=3 SLURM_PROCID=0 SLURM_NTASKS=1
shards_by "MPICH" "--shard auto" PMI_RANK=@ PMI_SIZE=3 MPI_LOCALNRANKS=3
shards_by "Slurm" "--shard auto" SLURM_PROCID=@ SLURM_NTASKS=3
shards_by "srun" "--shard auto" SLURM_PROCID=@ SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=3 SLURM_JOB_ID=7 SLURM_STEP_ID=0
shards_by "a launcher alone" "" OMPI_COMM_WORLD_RANK=@ OMPI_COMM_WORLD_SIZE=3
expect "files of shards" "auto-1-of-3.jsonl auto-2-of-3.jsonl auto-3-of-3.jsonl auto.jsonl" "$(echo auto*.jsonl)"
env PMI_RANK=1 PMI_SIZE=3 "$program" sweep s.json -o auto.jsonl --quiet --resume >/dev/null || complain "a finished shard"

# mpirun ends all processes where one fails: a shard of no point, or of none that is listed, does not.
env PMI_RANK=999 PMI_SIZE=1000 "$program" sweep s.json -o none.jsonl --quiet >/dev/null || complain "an empty shard"
expect "lines of an empty shard" 0 "$(lines_in none-1000-of-1000.jsonl)"

refused_shard() { # TEXT OPTIONS VARIABLE...
    local text=$1 options=$2
    shift 2
    # shellcheck disable=SC2086
    message=$(env "$@" "$program" sweep s.json -o refused.jsonl --wide $options 2>&1)
    expect "status where $*" 2 "$?"
    case $message in
    "error: $text"*) ;;
    *) complain "$*: $message" ;;
    esac
    expect "files where $*" "refused*" "$(echo refused*)"
}
none="--shard auto: no launcher started this process: OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE (Open MPI), PMI_RANK and"
refused_shard "$none" "--shard auto" NONE=1
refused_shard "$none" "--shard auto" SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=7 # a batch script
refused_shard "environment: PMI_SIZE is not set" "--shard auto" PMI_RANK=0
refused_shard 'environment: OMPI_COMM_WORLD_RANK: expected an integer from 0 to 2, got "3"' "" \
    OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=3
refused_shard 'environment: SLURM_NTASKS: expected an integer from 1 to 65536, got "many"' "--shard auto" \
    SLURM_PROCID=0 SLURM_NTASKS=many
refused_shard "environment: OMPI_COMM_WORLD_RANK says rank 0 of 2, but PMI_RANK says rank 1 of 2" "--shard auto" \
    OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMI_RANK=1 PMI_SIZE=2
refused_shard "--search chooses its own points: no --shard with it, which several processes" "--search 10" \
    PMI_RANK=0 PMI_SIZE=2
message=$(env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 "$program" sweep s.json --dry-run 2>&1 >/dev/null)
case $message in
"warning: OMPI_COMM_WORLD_RANK says that 2 processes share this sweep"*) ;;
*) complain "what a launcher alone is told: $message" ;;
esac

# Two sweeps do not write to one file.
"$program" sweep s.json -o shared.jsonl --quiet -j 1 >/dev/null &
first=$!
while [ "$(lines_in shared.jsonl)" -lt 1 ] && kill -0 "$first" 2>/dev/null; do
    sleep 0.005
done
message=$("$program" sweep s.json -o shared.jsonl --quiet --resume 2>&1)
expect "status of a second sweep on one file" 3 "$?"
expect "message of it" "error: shared.jsonl: another sweep is writing to it" "$message"
wait "$first" || complain "the first of two sweeps failed"
same_as_reference shared.jsonl

# A full disk is an error, and what was written can be gone on with. A file that may not grow past
# 16 KiB stands for a disk that is full in the middle of a line.
if [ -w /dev/full ]; then
    message=$("$program" sweep s.json -o /dev/full --quiet 2>&1)
    expect "status with a full disk" 3 "$?"
    expect "message of it" "error: /dev/full: No space left on device" "$message"
fi
message=$(ulimit -f 16 && "$program" sweep s.json -o full.jsonl --quiet -j 2 2>&1)
expect "status of a sweep that fills a disk" 3 "$?"
expect "message of it" "error: full.jsonl: File too large" "$message"
kept=$(lines_in full.jsonl)
[ "$kept" -gt 0 ] || complain "a full disk left nothing"
cmp full.jsonl <(head -n "$kept" reference) || complain "a full disk left more than whole lines"
"$program" sweep s.json -o full.jsonl --quiet --resume >/dev/null || complain "going on fails"
same_as_reference full.jsonl

# What cannot be written to is told before anything is evaluated.
message=$("$program" sweep s.json -o none/out.jsonl 2>&1)
expect "status of no folder" 3 "$?"
expect "message of no folder" "error: none/out.jsonl: No such file or directory" "$message"
if [ "$(id -u)" != 0 ]; then
    mkdir locked && chmod a-w locked
    message=$("$program" sweep s.json -o locked/out.jsonl 2>&1)
    expect "status of a locked folder" 3 "$?"
    expect "message of a locked folder" "error: locked/out.jsonl: Permission denied" "$message"
fi

message=$("$program" sweep s.json -o none.jsonl --plot none/out.svg 2>&1)
expect "status of no folder for a picture" 3 "$?"
expect "message of no folder for a picture" "error: none/out.svg: No such file or directory" "$message"
[ -e none.jsonl ] && complain "points were evaluated for a picture without a place"

# A picture of which a full disk keeps the first half.
mkdir half
printf '#!/bin/sh\nprintf "<svg> %%0999d" 0 >picture.svg\n' >half/gnuplot && chmod +x half/gnuplot
message=$(PATH=$PWD/half:$PATH "$program" sweep s.json -o full.jsonl --resume --plot half.svg \
    --pareto iteration_ms,bubble_ratio 2>&1 >/dev/null)
expect "status of half a picture" 3 "$?"
expect "message of half a picture" "error: half.svg: not the whole picture could be written" "$message"
if command -v gnuplot >/dev/null; then
    for picture in whole.png whole.svg; do
        "$program" sweep s.json -o full.jsonl --resume --plot "$picture" --pareto iteration_ms,bubble_ratio >/dev/null ||
            complain "no $picture"
    done
fi
# Points of uniform costs have no memory, and where none is listed that alone is the answer.
message=$("$program" sweep s.json -o full.jsonl --resume --plot half.svg --pareto iteration_ms,peak_memory_gib 2>&1 >/dev/null)
expect "status of a picture of nothing" 3 "$?"
expect "message of a picture of nothing" \
    "error: half.svg: nothing to draw: no point that is listed has iteration_ms and peak_memory_gib" "$message"
message=$("$program" sweep s.json -o full.jsonl --resume --where "pp > 99" --plot half.svg 2>&1 >/dev/null)
expect "status of a condition that holds for none, with a picture" 1 "$?"
expect "message of it" "" "$message"

# A condition on results that holds for none: all is kept, and the answer is negative.
message=$("$program" sweep s.json -o full.jsonl --resume --where "pp > 99" 2>&1)
expect "status of a condition that holds for none" 1 "$?"
expect "message of it" "no point that fits has pp > 99" "$(tail -n 1 <<<"$message")"
same_as_reference full.jsonl

# A million million combinations are counted and drawn from, not walked.
cat >many.json <<SPEC
{"schema": "slimpack/sweep/1",
 "base": {"uniform_costs": {"f_ms": 1, "b_ms": 1, "w_ms": 1}},
 "grid": {"uniform_costs.f_ms": [$(seq -s, 1 10000)], "uniform_costs.b_ms": [$(seq -s, 1 10000)],
          "schedule.microbatches": [$(seq -s, 1 1000)], "parallel.pp": [$(seq -s, 1 10)]},
 "where": "microbatches >= pp"}
SPEC
# Of 1000 and 10 values, 9955 = 10 * 1000 - (0 + 1 + ... + 9) pairs.
expect "a large grid" "1,000,000,000,000 combinations, 995,500,000,000 points" \
    "$(timeout 10 "$program" sweep many.json --dry-run | head -n 1)"
timeout 10 "$program" sweep many.json -o many.jsonl --quiet --sample 50 >/dev/null || complain "sampling fails"
expect "lines of a sample" 50 "$(lines_in many.jsonl)"
# The file of a sample is not taken for that of another one, nor the sweep for another.
message=$("$program" sweep many.json -o many.jsonl --resume --sample 60 --wide 2>&1)
expect "status of another sample" 3 "$?"
case $message in
"error: many.jsonl:"*": expected point "*": the file was written with other --sample, --search, --seed, --shard or "*) ;;
*) complain "another sample: $message" ;;
esac
"$program" sweep many.json -o all.jsonl --wide >/dev/null 2>messages
expect "status of too many points" 4 "$?"
grep -q "995500000000 points are more than the 100000000 that are evaluated; --sample N" messages ||
    complain "too many points: $(cat messages)"
expect "a figure without its unit in a condition" \
    "error: --where: character 1: unknown name 'peak_memory' (did you mean 'peak_memory_gib'?)" \
    "$("$program" sweep s.json -o f.jsonl --where "peak_memory < 2" 2>&1)"
expect "no figure in a condition" \
    "error: --where: character 1: 'xylophone' is no figure, and set neither by the grid nor by the base" \
    "$("$program" sweep s.json -o f.jsonl --where "xylophone < 2" --wide 2>&1)"
# What is no figure, or not two of them, is told with what it could be.
expect "one figure for a front" "error: --pareto expects two figures with a comma, such as \
iteration_ms,peak_memory_gib, got 'iteration_ms'" \
    "$("$program" sweep s.json -o f.jsonl --pareto iteration_ms --wide 2>&1)"
expect "a second figure that is unknown" \
    "error: 'peek_memory_gib' is not a figure of a sweep (did you mean 'peak_memory_gib'?)" \
    "$("$program" sweep s.json -o f.jsonl --pareto iteration_ms,peek_memory_gib 2>&1)"
"$program" sweep s.json -o f.jsonl --by time --wide 2>&1 | grep -q "^error: 'time' is not a figure of a sweep (known: iteration_ms, .*)$" ||
    complain "a figure like no other: $("$program" sweep s.json -o f.jsonl --by time --wide 2>&1)"
# A file handle short (0 to 2 and the results file are open) is no property of a point: the sweep
# ends, and goes on where there are more.
cat >files.json <<'SPEC'
{"schema": "slimpack/sweep/1",
 "base": {"model": "llama-7b", "cluster": "h800-8", "workload": {"lengths": [1000, 2000]}},
 "grid": {"parallel.tp": [1, 2], "parallel.pp": [1, 2], "profile": ["h800"]}}
SPEC
"$program" sweep files.json -o files.ref --quiet >/dev/null
(exec 3<&- 4<&- 5<&- 6<&- 7<&- 8<&- 9<&- && ulimit -n 4 && exec "$program" sweep files.json -o files.jsonl --quiet -j 1) >/dev/null 2>messages
expect "status without file handles" 4 "$?"
expect "lines without file handles" 0 "$(lines_in files.jsonl)"
tr -s '\n ' ' ' <messages | grep -q '^error: .*h800.json: Too many open files $' || complain "no file handles: $(cat messages)"
"$program" sweep files.json -o files.jsonl --resume --quiet >/dev/null || complain "going on with handles"
cmp files.jsonl files.ref || complain "lines written for want of file handles stay"

# A value that was edited is no result.
sed -E '2s/"iteration_ms":[0-9]/"iteration_ms":7/' files.ref >files.jsonl
message=$("$program" sweep files.json -o files.jsonl --resume --quiet 2>&1)
expect "status of an edited line" 3 "$?"
case $message in
"error: files.jsonl:2: the line was changed after it was written"*) ;;
*) complain "an edited line: $message" ;;
esac
"$program" merge files.json files.jsonl -o merged.jsonl --quiet >/dev/null 2>&1 && complain "an edited line is merged"
head -n 1 files.ref >files.jsonl
"$program" sweep files.json -o files.jsonl --resume --quiet >/dev/null
cmp files.jsonl files.ref || complain "lines behind an edited one"
# Files of versions that wrote no checks are gone on with.
sed 's/,"check":"[0-9a-f]*"}$/}/' files.ref >files.jsonl
"$program" sweep files.json -o files.jsonl --resume --quiet >/dev/null || complain "lines without checks"

# Tokens are numbers in conditions; another context is another question.
cat >contexts.json <<'SPEC'
{"schema": "slimpack/sweep/1",
 "base": {"model": "llama-7b", "cluster": "h800-8", "workload": {"lengths": [1000, 8000]}},
 "grid": {"workload.context": ["8K", 16384], "parallel.tp": [4, 8]},
 "where": "context <= 16K"}
SPEC
"$program" sweep contexts.json -o contexts.jsonl --quiet >/dev/null || complain "contexts"
listed() { "$program" sweep contexts.json -o contexts.jsonl --resume --quiet --csv --where "$1" --top 9 |
    sed 1d | cut -d, -f1 | sort | uniq -c | tr -s ' \n' ' '; }
expect "context == 8192" " 2 8K " "$(listed 'context == 8192')"
expect "context > 8K" " 2 16384 " "$(listed 'context > 8K')"
expect "context < 128K" " 2 16384 2 8K " "$(listed 'context < 128K')"
expect "one front each" "the Pareto front of iteration_ms and peak_memory_gib, context 8K:
the Pareto front of iteration_ms and peak_memory_gib, context 16384:" \
    "$("$program" sweep contexts.json -o contexts.jsonl --resume --quiet --pareto iteration_ms,peak_memory_gib | grep '^the Pareto')"

# A picture of one axis of numbers, or of one more: a block for each line, with the numbers of the
# CSV in ascending order. Points that do not fit are none, and the line's name counts them.
cat >lines.json <<'SPEC'
{"schema": "slimpack/sweep/1",
 "base": {"model": "llama-7b", "cluster": "h800-8", "workload": {"samples_per_batch": 8}},
 "grid": {"parallel.tp": [8, 4], "workload.context": ["16K", 4096, "8K", "1M"]}}
SPEC
"$program" sweep lines.json -o lines.jsonl --quiet --csv --plot lines.dat >lines.csv || complain "a picture of lines"
tokens_of() { # VALUE
    case $1 in
    *K) echo $((${1%K} * 1024)) ;;
    *M) echo $((${1%M} * 1048576)) ;;
    *) echo "$1" ;;
    esac
}
column_of() { head -n 1 lines.csv | tr ',' '\n' | grep -nx "$1" | cut -d: -f1; }
ms=$(column_of iteration_ms) gib=$(column_of peak_memory_gib) status=$(column_of status)
for tp in 8 4; do
    sed 1d lines.csv | while IFS= read -r row; do
        case $row in
        "$tp",*) ;;
        *) continue ;;
        esac
        value=$(tokens_of "$(cut -d, -f2 <<<"$row")")
        if [ "$(cut -d, -f"$status" <<<"$row")" = ok ]; then
            printf '%d %.9g %.9g\n' "$value" "$(cut -d, -f"$ms" <<<"$row")" "$(cut -d, -f"$gib" <<<"$row")"
        else
            echo "$value NaN NaN"
        fi
    done | sort -n >wanted
    awk -v name="\"tp $tp" 'index($0, name) == 1 {inside = 1; next} /^$/ {inside = 0} inside' lines.dat |
        while read -r value time memory; do
            if [ "$time" = NaN ]; then echo "$value NaN NaN"; else printf '%d %.9g %.9g\n' "$value" "$time" "$memory"; fi
        done >found
    cmp wanted found || complain "line of tp $tp"
done
grep -q '^[0-9]* ok' <<<"$(cut -d, -f"$status" lines.csv | sort | uniq -c | tr -s ' ' | sed 's/^ //')" || complain "no point fits"
expect "a name that counts" "$(sed 1d lines.csv | grep '^8,' | cut -d, -f"$status" | grep -cx ok) of 4 points fit" \
    "$(sed -n 's/^"tp 8 (\(.*\))"$/\1/p' lines.dat)"
expect "values in order" '"4096" "8K" "16K" "1M"' \
    "$(awk '/^$/ {blank++} blank == 2 && NF == 2 {print $2}' lines.dat | paste -sd ' ')"
# Of 100 + 5,000 + 9,000 tokens 14,000 are of samples over 4,096, 9,000 of one over 8K.
cat >over.json <<'SPEC'
{"schema": "slimpack/sweep/1",
 "base": {"model": "llama-7b", "cluster": "h800-8", "parallel": {"tp": 8}, "workload": {"lengths": [100, 5000, 9000]}},
 "grid": {"workload.context": ["16K", 4096, "8K"], "memory.recompute": ["none", "full"]}}
SPEC
"$program" sweep over.json -o over.jsonl --quiet --plot over.dat >/dev/null || complain "a picture of what is dropped"
expect "shares at their values" '"4096\n99.3 %" "8K\n63.8 %" "16K\n0.0 %"' "$(sed -n 's/^ [0-9]* \("[^"]*"\)$/\1/p' over.dat | paste -sd ' ')"
"$program" sweep lines.json -o lines.jsonl --resume --quiet --plot lines.dat | grep -q '^the Pareto' &&
    complain "a front that nobody asked for"
begins() { head -n 1 "$1" | grep -q "$2"; }
"$program" sweep lines.json -o lines.jsonl --resume --quiet --plot front.dat --pareto iteration_ms,peak_memory_gib >/dev/null
begins front.dat '^# the two figures' || complain "--pareto draws no front"
sed 's/"grid": {/&"parallel.dp": [1, 2], /' lines.json >axes3.json
rm front.dat
"$program" sweep axes3.json -o axes3.jsonl --quiet --plot front.dat >/dev/null
begins front.dat '^# the two figures' || complain "three axes draw no front"
# What is no number of tokens is refused before a point is evaluated.
sed 's/"1M"/"16KB"/' lines.json >kb.json
"$program" sweep kb.json -o kb.jsonl --wide >kb.txt 2>&1
expect "exit status of 16KB" 3 "$?"
grep -q '^error: kb.json: grid.workload.context: expected .* got .*16KB' kb.txt && [ ! -e kb.jsonl ] || complain "16KB: $(cat kb.txt)"
# Of one value that --where leaves of an axis, lines are drawn, those of the grid without that axis.
"$program" sweep axes3.json -o axes3.jsonl --resume --quiet --where "dp == 1" --plot where.dat | grep -q '^the Pareto' &&
    complain "a front of points that lines show"
cmp <(sed 1,2d lines.dat) <(sed 1,2d where.dat) || complain "other lines of dp 1"
expect "the title" '"Points that fit, by workload.context and parallel.tp, parallel.dp 1"' "$(sed -n '2s/ "workload.*//p' where.dat)"
"$program" sweep axes3.json -o axes3.jsonl --resume --quiet --where "dp == 1 || tp == 8" --plot front.dat >/dev/null
begins front.dat '^# the two figures' || complain "what is not of one value is no axis"
sed 's/"model": "llama-7b",/& "parallel": {"tp": 8},/; s/"workload.context".*/"strategy.kind": ["packed", "bfd"]}}/; s/"parallel.tp": \[8, 4\]/"parallel.sequence_parallel": [true, false]/' lines.json >words.json
rm front.dat
"$program" sweep words.json -o words.jsonl --quiet --plot front.dat >/dev/null
begins front.dat '^# the two figures' || complain "axes without numbers draw no front"
if command -v gnuplot >/dev/null; then
    for picture in lines.png lines.svg lines.pdf; do
        "$program" sweep lines.json -o lines.jsonl --resume --quiet --plot "$picture" >/dev/null && [ -s "$picture" ] ||
            complain "no $picture"
    done
    "$program" sweep s.json -o full.jsonl --resume --quiet --plot time.svg >/dev/null && [ -s time.svg ] ||
        complain "no picture of times alone"
fi

# Rows of a file that has changed since are not gone on with, in the base or in the grid.
printf '100\n200\n' >lengths.txt
printf '300\n' >other.txt
for spec in '"base": {"model": "llama-7b", "workload": {"lengths": "lengths.txt"}}, "grid": {"parallel.pp": [1, 2]}' \
    '"base": {"model": "llama-7b"}, "grid": {"workload.lengths": ["other.txt", "lengths.txt"]}'; do
    echo "{\"schema\": \"slimpack/sweep/1\", $spec}" >files.json
    rm -f files.jsonl
    "$program" sweep files.json -o files.jsonl --quiet >/dev/null
    "$program" sweep files.json -o files.jsonl --resume --quiet >/dev/null 2>&1
    [ $? -le 1 ] || complain "files as they were: not gone on with"
    echo 400 >>lengths.txt
    message=$("$program" sweep files.json -o files.jsonl --resume --quiet 2>&1 >/dev/null)
    expect "exit status with a file that has changed" 3 "$?"
    case $message in
    *"or a file that it names has changed"*) ;;
    *) complain "a file that has changed: $message" ;;
    esac
done

# Results go on from any working directory, as scenarios are read from any.
printf '100\n200\n' >lengths.txt
echo '{"schema": "slimpack/sweep/1", "base": {"model": "llama-7b", "workload": {"lengths": "lengths.txt"}},
       "grid": {"workload.lengths": ["lengths.txt", "other.txt"]}}' >beside.json
"$program" sweep beside.json -o beside.jsonl --quiet >/dev/null
sed -n 1p beside.jsonl >begun.jsonl
(cd / && "$program" sweep "$work/beside.json" -o "$work/begun.jsonl" --resume --quiet >/dev/null)
cmp beside.jsonl begun.jsonl || complain "results are not gone on with from another directory"
# Degrees that nobody states are those of the point, also of one that is no scenario.
cat >degrees.json <<'SPEC'
{"base": {"model": {"layers": 2, "hidden": 64, "ffn": 128, "heads": 8, "vocab": 100}, "nodes": 2,
          "workload": {"uniform": 64, "samples_per_batch": 16}},
 "grid": {"parallel.tp": [2, 8], "parallel.pp": [1, 4]}}
SPEC
"$program" sweep degrees.json -o degrees.jsonl --quiet >/dev/null || complain "the sweep of degrees failed"
chosen() { "$program" sweep degrees.json -o degrees.jsonl --resume --quiet --csv --where "$1" | tail -n +2 | cut -d, -f 1-3 | paste -sd ' '; }
expect "points of dp 2" "8,1,ok" "$(chosen "dp == 2")"
expect "points of dp 8" "2,1,ok" "$(chosen "parallel.dp == 8 && cp == 1")"
expect "points of pp 4" "2,4,invalid 8,4,invalid" "$(chosen "pp == 4")"

# Points beyond the stack are lines of their own: not evaluated, or with --any-schedule with what
# their stack lacks. Files, shards and merged ones are of one kind.
cat >stack.json <<'SPEC'
{"base": {"model": {"layers": 4, "hidden": 64, "ffn": 128, "heads": 8, "vocab": 100}, "nodes": 1, "stack": "megatron-core-2025",
          "workload": {"uniform": 64, "samples_per_batch": 16}},
 "grid": {"schedule.kind": ["1f1b", "zb-h1"], "parallel.pp": [1, 2], "parallel.tp": [1, 2]}}
SPEC
by_status() { cut -d, -f "$1" | sort | uniq -c | tr -s ' \n' ' '; }
listed() { "$program" sweep stack.json --quiet --csv "$@" | tail -n +2; }
expect "within the stack" " 2 cannot_run 6 ok " "$(listed -o within.jsonl | by_status 4)"
expect "points that it cannot run" "zb-h1,2,1,cannot_run zb-h1,2,2,cannot_run" \
    "$(listed -o within.jsonl --resume --where "status == 'cannot_run'" | cut -d, -f 1-4 | paste -sd ' ')"
expect "the front of points within" 0 \
    "$(listed -o within.jsonl --resume --pareto iteration_ms,bubble_ratio | grep -c '^zb-h1,2')"
grep '"zb-h1","parallel.pp":2' within.jsonl | grep -q '"lacks":"schedule zb-h1"' || complain "what the stack lacks"
expect "beyond the stack" " 8 ok " "$(listed -o beyond.jsonl --any-schedule | by_status 4)"
expect "lines that lack something" 2 "$(grep -c '"lacks":"schedule zb-h1"' beyond.jsonl)"
sed 's/"1f1b", //' stack.json >stated.json
expect "a stated schedule is the stack's" 0 \
    "$("$program" sweep stated.json -o stated.jsonl --quiet --csv | grep -c cannot_run)"
refused() { # MESSAGE ARGUMENT...
    message=$1
    shift
    expect "$message" "error: $message" "$("$program" "$@" --quiet 2>&1)"
}
refused "within.jsonl:7: the file was written without --any-schedule: ask so again, or write another" sweep stack.json -o within.jsonl --resume --any-schedule
refused "beyond.jsonl:7: the file was written with --any-schedule: ask so again, or write another" sweep stack.json -o beyond.jsonl --resume
for i in 1 2; do
    "$program" sweep stack.json --shard $i/2 -o in$i.jsonl --quiet >/dev/null
    "$program" sweep stack.json --shard $i/2 -o over$i.jsonl --any-schedule --quiet >/dev/null
done
"$program" merge stack.json in2.jsonl in1.jsonl -o merged_in.jsonl --quiet >/dev/null || complain "shards within"
cmp merged_in.jsonl within.jsonl || complain "merged within"
"$program" merge stack.json over1.jsonl over2.jsonl -o merged_over.jsonl --quiet >/dev/null || complain "shards beyond"
cmp merged_over.jsonl beyond.jsonl || complain "merged beyond"
"$program" merge stack.json in1.jsonl over2.jsonl -o mixed.jsonl --quiet >/dev/null 2>messages && complain "mixed shards"
grep -q 'over2.jsonl:.: the file was written with --any-schedule' messages || complain "mixed shards: $(cat messages)"

# What points warn of is told by kind, also of those that a file holds already.
cat >warned.json <<'SPEC'
{"base": {"model": {"layers": 2, "hidden": 64, "ffn": 128, "heads": 8, "vocab": 100}, "parallel": {"dp": 2},
          "workload": {"uniform": 64, "samples_per_batch": 16}},
 "grid": {"parallel.zero": [1, 2, 3], "schedule.microbatch_samples": [1, 2]}}
SPEC
zero_of() { "$program" "$@" 2>&1 >/dev/null | grep -o '^.*: zero .: exchanges'; }
expected="warning: 2 of 6 points: zero 2: exchanges"
expect "warnings of points" "$expected" "$(zero_of sweep warned.json -o warned.jsonl)"
head -n 4 warned.jsonl >begun.jsonl
expect "warnings of points that were there" "$expected" "$(zero_of sweep warned.json -o begun.jsonl --resume)"
for i in 1 2; do "$program" sweep warned.json --shard $i/2 -o part$i.jsonl --quiet >/dev/null; done
expect "warnings of shards" "$expected" "$(zero_of merge warned.json part1.jsonl part2.jsonl -o merged.jsonl)"

# A base by its path is the scenario in that file, whose own paths are as from where it lies; results go on with it.
mkdir -p specs jobs/lengths
seq 100 100 3000 >jobs/lengths/own.txt
base='{"model": "llama-7b", "parallel": {"dp": 2}, "workload": {"lengths": "FOLDERlengths/own.txt", "context": 4096}}'
grid='"grid": {"parallel.tp": [1, 2, 4]}'
echo "${base/FOLDER/}" >jobs/job.json
echo "{\"base\": ${base/FOLDER/../jobs/}, $grid}" >specs/inline.json
echo "{\"base\": \"../jobs/job.json\", $grid}" >specs/path.json
echo "{\"base\": \"jobs/job.json\", $grid}" >here.json
for spec in specs/inline specs/path here; do
    "$program" sweep $spec.json -o base.jsonl --quiet >/dev/null 2>messages || complain "$spec: $(cat messages)"
    grep -o '"iteration_ms":[^,]*' base.jsonl >times
    [ -s inline_times ] || cp times inline_times
    expect "$spec: points" 3 "$(wc -l <times)"
    cmp times inline_times || complain "$spec: other times than of the base itself"
    "$program" sweep $spec.json -o base.jsonl --resume --quiet >/dev/null 2>messages || complain "$spec --resume: $(cat messages)"
    rm base.jsonl
done
for bad in nothing.json inline.json; do
    echo "{\"base\": \"$bad\", $grid}" >specs/bad.json
    "$program" sweep specs/bad.json -o base.jsonl --quiet >/dev/null 2>messages
    expect "a base of $bad: exit" 3 "$?"
    grep -qF "specs/bad.json: base: " messages && grep -qF "$bad" messages || complain "a base of $bad: $(cat messages)"
done

# Points are as simulate says of them.
as_simulated() { # SPEC KEY...
    local row settings key
    rm -f points.jsonl
    "$program" sweep "$1" -o points.jsonl --quiet >/dev/null || complain "a sweep of $1 failed"
    sed -n 's/^ "base": \(.*\),$/\1/p' "$1" >base.json
    while IFS= read -r row; do
        mapfile -t settings < <(echo "$row" | sed 's/^{"point":{\([^}]*\)}.*/\1/; s/"//g' | tr , '\n' | sed 's/^\([^:]*\):/--set=\1=/')
        "$program" simulate base.json --quiet --json "${settings[@]}" >result
        for key in "${@:2}"; do
            expect "$key at ${settings[*]}" "$(grep -o "\"$key\": [^,]*" result | head -1 | tr -d ' ')" \
                "$(echo "$row" | grep -o "\"$key\":[^,}]*" | head -1)"
        done
    done <points.jsonl
}
# Where tensors leave a tenth of the memory gaps between blocks may fill that.
cat >fits.json <<SPEC
{"schema": "slimpack/sweep/1",
 "base": {"model": "llama-7b", "cluster": "a100-8", "parallel": {"tp": 4, "cp": 2}, "workload": {"lengths": "wikipedia", "context": 32768, "samples_per_batch": 256, "seed": 2}},
 "grid": {"memory.limit_gib": [36.3, 50]}}
SPEC
as_simulated fits.json fits memory_margin_gib
grep -q '"fits":"tight"' points.jsonl || complain "gaps fill no memory: $(cat points.jsonl)"
# Micro-batches that are stated hold other batches by other strategies and replicas.
cat >rows.json <<SPEC
{"schema": "slimpack/sweep/1",
 "base": {"model": "llama-7b", "cluster": "a100-8", "parallel": {"tp": 8}, "schedule": {"microbatches": 6}, "workload": {"lengths": "wikipedia", "context": 8192, "seed": 2}},
 "grid": {"parallel.dp": [1, 2], "strategy.kind": ["packed", "bfd"]}}
SPEC
as_simulated rows.json tokens_per_s
expect "different batches" 4 "$(grep -o '"tokens_per_s":[^,]*' points.jsonl | sort -u | wc -l)"

# The last line of an answer is a command that gives its first point: however its values are spelled, and wherever the
# base lies.
goes_on() { # SPEC
    local command best
    rm -f go.jsonl && "$program" sweep "$1" -o go.jsonl --json -q >go.json || complain "a sweep of $1 failed"
    "$program" sweep "$1" -o go.jsonl --resume -q >text
    command=$(jq -r .go_on go.json)
    expect "the last line of a sweep of $1" "$command" \
        "$(sed -n '/^go on with: /,$p' text | sed 's/\\$//' | tr -s ' \n' ' ' | sed 's/^go on with: //; s/ $//')"
    best=$(jq '.best[0] | [.iteration_ms, .peak_memory_gib]' go.json)
    expect "what a sweep of $1 goes on with" "$best" \
        "$(eval "'$program' ${command#slimpack } --json -q" | jq '[.iteration_ms, .peak_memory_gib]')"
}
goes_on rows.json
mkdir -p 'a folder'
echo '{"model": "llama-7b", "cluster": "a100-8", "parallel": {"tp": 8}, "workload": {"lengths": "own.txt", "context": 8192, "samples_per_batch": 4}}' >'a folder/base.json'
printf '4000\n700\n8000\n20\n' >'a folder/own.txt'
cat >'a folder/spec.json' <<SPEC
{"base": "base.json", "grid": {"workload.context": ["4K", "8K"], "memory.recompute": [["core_attn", "mlp"]], "stack": [{"name": "megatron-core-2025", "fused_swiglu": false}],
                               "cluster.nic_gbit_per_s": [200.5], "parallel.sequence_parallel": [false], "workload.lengths": ["own.txt"]}}
SPEC
goes_on 'a folder/spec.json'
# A command on several lines does not part names at their blanks; an answer longer than the screen has it, too.
long="a folder with it's blanks and a name that does not fit on a line of the screen beside a command"
mkdir -p "$long" && cp 'a folder/base.json' 'a folder/own.txt' "$long"
echo '{"base": "base.json", "grid": {"workload.context": ["4K", "6K", "8K"], "model": ["llama-7b", "llama-13b", "llama-2-7b"], "parallel.pp": [1, 2, 4]}}' >"$long/spec.json"
goes_on "$long/spec.json"
grep -q 'more lines with --wide' text || complain "nothing was left out: $(cat text)"
expect "a sweep of standard input" null "$("$program" sweep - -o go2.jsonl --json -q <rows.json | jq .go_on)"

exit "$failed"
