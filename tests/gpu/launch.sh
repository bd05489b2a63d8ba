#!/bin/sh
# launch.sh N COMMAND...: starts COMMAND N times as the processes of one run on this machine, as
# torchrun --no-python --nproc-per-node N does. Exit status: that of the first process in their
# order that failed; the others learn of a failure from it.
set -u
n=$1
shift
export WORLD_SIZE="$n" LOCAL_WORLD_SIZE="$n"
export SLIMPACK_RUN_ID="${SLIMPACK_RUN_ID:-launch $$}"
started=
# shellcheck disable=SC2086
trap 'kill $started 2>/dev/null; exit 143' INT TERM
rank=0
while [ "$rank" -lt "$n" ]; do
    RANK=$rank LOCAL_RANK=$rank "$@" &
    started="$started $!"
    rank=$((rank + 1))
done
status=0
for process in $started; do
    wait "$process" || { own=$? && [ "$status" -ne 0 ] || status=$own; }
done
exit "$status"
