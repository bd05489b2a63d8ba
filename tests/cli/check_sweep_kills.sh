#!/usr/bin/env bash
# check_sweep_kills.sh PROGRAM SOURCE [CYCLES]: sweeps that are killed at random moments, with any
# number of threads, whole, in shards, as a sample and as a search lose no point and repeat none once
# they are gone on with. The seed is fixed; where a kill strikes is not.
set -u
program=$1
cycles=${3:-12}
. "$(dirname "$0")/prelude.sh"
cd "$work" || exit 1
RANDOM=2026

cat >s.json <<'SPEC'
{"schema": "slimpack/sweep/1",
 "base": {"model": "llama-7b", "cluster": "h100-8",
          "workload": {"uniform": 2048, "samples_per_batch": 64}},
 "grid": {"parallel.tp": [1, 2, 4, 8], "parallel.pp": [1, 2, 4, 8], "parallel.dp": [1, 2, 4, 8],
          "parallel.zero": [0, 1, 2], "schedule.microbatch_samples": [1, 2],
          "memory.recompute": ["none", "attention", "full"]},
 "where": "tp * pp * dp == 16"}
SPEC
"$program" sweep s.json -o whole --quiet -j 2 >/dev/null 2>&1 || exit 1
"$program" sweep s.json -o sample --quiet --sample 90 --seed 4 >/dev/null 2>&1 || complain "the sample failed"
"$program" sweep s.json -o search --quiet --search 120 --seed 4 >/dev/null 2>&1 || complain "the search failed"
# But for the base of the grid, which the first line of each file holds, and the check behind it.
points_of() { # FILE
    sed 's/,"check":"[0-9a-f]*"}$//; s/,"settings":{.*}$//' "$1"
}
points_of whole >whole.points
for file in sample search; do
    points_of "$file" | grep -Fxvf whole.points && complain "a $file has lines that the sweep has not"
    expect "lines of a $file with the base of the grid" "1:1" "$(grep -n '"settings":' "$file" | cut -d: -f1 | paste -sd,):$(grep -c '"settings":' "$file")"
done

# By another program, because a child of this shell that is ended before it has become the program
# ends as this shell does, and takes the folder with it: end_soon SIGNAL MILLISECONDS OPTION...
end_soon() {
    local signal=$1 after
    after=$(printf '0.%03d' "$(($2 + 1))")
    shift 2
    timeout --foreground --preserve-status -s "$signal" "$after" "$program" "$@"
}

# Runs and kills until a run ends by itself: run_killed FILE OPTION...
run_killed() {
    local file=$1 resume=
    shift
    while true; do
        # shellcheck disable=SC2086
        end_soon KILL "$((RANDOM % 100))" \
            sweep s.json -o "$file" --quiet -j $((RANDOM % 4 + 1)) "$@" $resume >/dev/null 2>messages
        local status=$?
        [ "$status" = 137 ] || break
        kills=$((kills + 1))
        resume=--resume
        [ -s "$file" ] || resume=
        [ "$kills" -lt "$most" ] || break
    done
    if [ "$status" != 0 ]; then
        # shellcheck disable=SC2086
        "$program" sweep s.json -o "$file" --quiet "$@" $resume >/dev/null 2>messages ||
            complain "going on with $file failed: $(cat messages)"
    fi
}
kills=0
while [ "$kills" -lt "$cycles" ]; do
    rm -f k k1 k2 k3 merged
    most=$((kills + 1 + cycles / 8))
    case $((RANDOM % 4)) in
    0)
        run_killed k
        cmp k whole || complain "a killed sweep"
        ;;
    1)
        run_killed k --sample 90 --seed 4
        cmp k sample || complain "a killed sample"
        ;;
    2)
        run_killed k --search 120 --seed 4
        cmp k search || complain "a killed search"
        ;;
    3)
        for i in 1 2 3; do
            run_killed "k$i" --shard "$i/3"
        done
        "$program" merge s.json k3 k1 k2 -o merged >/dev/null || complain "merging failed"
        cmp merged whole || complain "killed shards"
        ;;
    esac
done

# What does not belong together is not merged, and nothing is left of it.
for i in 1 2; do
    "$program" sweep s.json -o "h$i" --quiet --shard "$i/2" >/dev/null 2>&1 || complain "shard $i"
done
refused() { # WHAT TEXT FILE...
    local what=$1 text=$2
    shift 2
    "$program" merge s.json "$@" -o refused >/dev/null 2>messages
    [ $? = 3 ] || complain "$what: not refused"
    grep -qF -- "$text" messages || complain "$what: $(cat messages)"
    [ ! -e refused ] || complain "$what: left a file"
    rm -f refused
}
refused "one shard of two" "shard 2 of 2 is missing" h1
refused "the other shard of two" "shard 1 of 2 is missing" h2
refused "a shard twice" "shard 1 of 2 is there twice: h1 and h1" h1 h1
refused "a shard and a whole" "h1 is shard 1 of 2, but whole is shard 1 of 1" h1 whole
for i in 1 2 3; do
    "$program" sweep s.json -o "t$i" --quiet --shard "$i/3" >/dev/null 2>&1 || complain "shard $i"
done
refused "two shards of three" "shard 2 of 3 is missing" t3 t1
refused "one twice and one missing" "shard 3 of 3 is there twice: t3 and t3" t3 t1 t3
refused "one too many" "shard 2 of 3 is there twice: t2 and t2" t3 t1 t2 t2
head -n 10 h2 >h3
refused "an unfinished shard" "h3:11: a point is missing" h1 h3
"$program" merge s.json h2 h1 -o both >/dev/null || complain "merging two shards failed"
"$program" merge s.json <(cat h2) - -o piped <h1 >/dev/null || complain "merging shards from pipes failed"
cmp both piped || complain "shards from pipes"
cmp both whole || complain "two shards differ from the whole"
# What is merged is whole or not there, whenever the merge is ended.
for _ in $(seq 20); do
    rm -f half
    end_soon TERM "$((RANDOM % 50))" merge s.json h2 h1 -o half >/dev/null 2>&1
    [ ! -e half ] || cmp -s half whole || complain "a part of what was merged"
done
expect "parts of what was merged" 0 "$(ls -A | grep -c part)"
expect "merging into a file that holds something" "error: both: exists and holds $(stat -c %s both) bytes (remove it first)" \
    "$("$program" merge s.json h2 h1 -o both 2>&1)"
exit "$failed"
