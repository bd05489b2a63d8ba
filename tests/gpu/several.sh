#!/bin/sh
# several.sh launch N COMMAND...: starts COMMAND N times as the processes of one run on this machine, as
# torchrun --no-python --nproc-per-node N does. The first that fails ends all; the exit status is its
# own.
#
# several.sh compare PROGRAM WORK: a small plan with all ranks on one GPU, and with a GPU for each by
# NCCL: the same losses, step by step. PROGRAM is slimpack; WORK is for results. With 4 GPUs the plan
# has 2 pipeline stages of 2 tensor-parallel ranks, with 2 the stages alone, with 1 there is nothing to
# compare (exit status 77).
#
# Sums between ranks are formed in another order and each is rounded to bf16. The first loss is held
# to be within 2e-4 of fp64's (tests/gpu/support/emulated_plans.h, which says why; the model is that
# of those tests), later ones, which AdamW has made more of, within 1 % of fp32's
# (tests/unit/test_cuda_execute_steps.c): the two are within twice that of each other.
set -u

# A rank's process in a shell of its own, which ends it when the launcher says so and tells the launcher
# when it fails.
run_rank() { # RANK COMMAND...
    export RANK="$1" LOCAL_RANK="$1"
    shift
    trap 'kill "$!" 2>/dev/null; exit 143' TERM
    "$@" &
    wait "$!"
    own=$?
    [ "$own" -eq 0 ] && exit 0
    echo "$own" >>"$failed"
    kill -TERM $$
    exit "$own"
}

end_all() {
    trap '' INT TERM
    # A shell that was just started may miss the first.
    for _ in 1 2 3; do
        # shellcheck disable=SC2086
        kill $started 2>/dev/null
        sleep 0.2
    done
    wait
    own=$(head -n 1 "$failed")
    rm -f "$failed"
    exit "${own:-143}"
}

launch() { # N COMMAND...
    n=$1
    shift
    export WORLD_SIZE="$n" LOCAL_WORLD_SIZE="$n"
    export SLIMPACK_RUN_ID="${SLIMPACK_RUN_ID:-launch $$}"
    failed=$(mktemp) || exit 1
    started='' stopped=''
    trap 'stopped=1' INT TERM # one that fails at once waits for those that are still to be started
    rank=0
    while [ "$rank" -lt "$n" ]; do
        run_rank "$rank" "$@" &
        started="$started $!"
        rank=$((rank + 1))
    done
    trap end_all INT TERM
    [ -z "$stopped" ] || end_all
    wait
    [ ! -s "$failed" ] || end_all
    rm -f "$failed"
    exit 0
}

compare() { # PROGRAM WORK
    program=$1 work=$2
    gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
    if [ "$gpus" -lt 2 ]; then
        echo "SKIPPED: ranks with a GPU each need two or more, here are $gpus"
        exit 77
    fi
    here=$(dirname "$0")
    ranks=2
    [ "$gpus" -ge 4 ] && ranks=4
    for way in one several; do
        mkdir -p "$work/$way" || exit 1
    done
    losses() { # FILE
        tr ',' '\n' <"$1" | sed -n 's/.*"loss": *\([0-9.e+-]*\).*/\1/p'
    }
    status=0
    for plan in "$here/several/$ranks"/*.json; do
        name=$(basename "$plan" .json).result.json
        set -- run "$plan" --backend cuda --clock wall --precision bf16 --steps 3 --option cudnn=off \
            --option partition=off --quiet
        timeout -k 5 60 "$program" "$@" --record "$work/one/$name" || exit 1
        timeout -k 5 60 sh "$0" launch "$ranks" "$program" "$@" --record "$work/several/$name" ||
            exit 1
        losses "$work/one/$name" >"$work/one/losses"
        losses "$work/several/$name" >"$work/several/losses"
        paste "$work/one/losses" "$work/several/losses" | awk -v name="$name" '
            function distance(a, b) { return a > b ? a - b : b - a }
            { bound = steps++ == 0 ? 4e-4 : 0.02 }
            { if (NF != 2 || distance($1, $2) > bound * $1) { bad++ } print name, "loss", $0 }
            END { exit steps == 0 || bad > 0 }' || status=1
    done
    exit "$status"
}

case ${1:-} in
launch | compare) "$@" ;;
*) echo "usage: several.sh launch N COMMAND... | compare PROGRAM WORK" >&2 && exit 2 ;;
esac
