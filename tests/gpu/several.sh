#!/bin/sh
# several.sh PROGRAM WORK GPUS: a small plan with all ranks on one GPU, and with a GPU for each by
# NCCL: the same losses, step by step. PROGRAM is slimpack; WORK is for results. With 4 GPUs the
# plan has 2 pipeline stages of 2 tensor-parallel ranks, with 2 the stages alone.
#
# Sums between ranks are formed in another order and each is rounded to bf16. The first loss is held
# to be within 2e-4 of fp64's (tests/gpu/support/emulated_plans.h, which says why; the model is that
# of those tests), later ones, which AdamW has made more of, within 1 % of fp32's
# (tests/unit/test_cuda_execute_steps.c): the two are within twice that of each other.
set -u
program=$1 work=$2 gpus=$3
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
    CUDA_DEVICE_MAX_CONNECTIONS=32 timeout -k 5 60 "$program" "$@" --record "$work/one/$name" || exit 1
    timeout -k 5 60 sh "$here/launch.sh" "$ranks" "$program" "$@" --record "$work/several/$name" ||
        exit 1
    losses "$work/one/$name" >"$work/one/losses"
    losses "$work/several/$name" >"$work/several/losses"
    paste "$work/one/losses" "$work/several/losses" | awk -v name="$name" '
        function distance(a, b) { return a > b ? a - b : b - a }
        { bound = steps++ == 0 ? 4e-4 : 0.02 }
        { if (NF != 2 || distance($1, $2) > bound * $1) { bad++ } print name, "loss", $0 }
        END { exit steps == 0 || bad > 0 }' || status=1
done
exit $status
