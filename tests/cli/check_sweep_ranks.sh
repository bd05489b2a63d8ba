#!/usr/bin/env bash
# check_sweep_ranks.sh PROGRAM SOURCE: a sweep by several processes of MPI writes the lines of one
# process, also where a rank is killed, and goes on where rank 0 was.
set -u
program=$1
. "$(dirname "$0")/prelude.sh"
cd "$work" || exit 1
# Open MPI asks for these where root runs more ranks than there are cores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
# MPI's own memory is not looked at.
export ASAN_OPTIONS=detect_leaks=0

cat >s.json <<SPEC
{"schema": "slimpack/sweep/1",
 "base": {"uniform_costs": {"f_ms": 1, "b_ms": 1, "w_ms": 0.9}},
 "grid": {"parallel.pp": [8, 16], "schedule.microbatches": [$(seq -s, 301 480)]}}
SPEC

command -v mpirun >/dev/null || { echo "no mpirun"; exit 77; }
mpirun -n 2 "$program" sweep s.json --dry-run >dry 2>&1 ||
    { grep -q "needs MPI" dry && echo "built without MPI" && exit 77; }
[ "$(grep -c combinations dry)" = 1 ] || complain "ranks say: $(cat dry)"

"$program" sweep s.json -o alone --quiet -j 2 >/dev/null || complain "the sweep failed"

# Kills rank $1 of three as soon as there are lines; mpirun's status is not that of the sweep then.
kill_rank() {
    rm -f ranks pid.*
    # shellcheck disable=SC2016
    timeout 60 mpirun --enable-recovery -n 3 sh -c 'echo $$ >pid.$OMPI_COMM_WORLD_RANK; exec "$@"' sh \
        "$program" sweep s.json -o ranks -j 1 --quiet >/dev/null 2>messages &
    local run=$!
    while [ ! -s ranks ] && kill -0 "$run" 2>/dev/null; do
        sleep 0.01
    done
    kill -KILL "$(cat "pid.$1")" || complain "rank $1 was not there to be killed"
    wait "$run"
}
kill_rank 2
cmp ranks alone || complain "a killed rank: $(cat messages)"
kill_rank 0
grep -q "rank 0 is gone; --resume goes on" messages || complain "a killed rank 0: $(cat messages)"
cmp ranks <(head -c "$(stat -c %s ranks)" alone) || complain "a killed rank 0 left other lines"
timeout 60 mpirun -n 2 "$program" sweep s.json -o ranks -j 1 --quiet --resume >/dev/null 2>messages ||
    complain "going on: $(cat messages)"
cmp ranks alone || complain "a killed rank 0, and what went on"

# What is wrong is said once, and mpirun's status is that of the program.
timeout 60 mpirun -n 2 "$program" sweep none.json -o none --quiet >/dev/null 2>messages
[ $? = 3 ] || complain "status of a missing grid"
[ "$(grep -c "none.json: No such file" messages)" = 1 ] || complain "ranks say: $(cat messages)"
exit "$failed"
