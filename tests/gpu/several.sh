#!/bin/sh
# several.sh PROGRAMS WORK GPUS: a small plan with all ranks on one GPU, and with a GPU for each by
# NCCL: the same losses, step by step. PROGRAMS holds `execute`; WORK is for results. With 4 GPUs the
# plan has 2 pipeline stages of 2 tensor-parallel ranks, with 2 the stages alone.
#
# Sums between ranks are formed in another order and each is rounded to bf16. The first loss is held
# to be within 2e-4 of fp64's (tests/gpu/support/emulated_plans.h, which says why; the model is that
# of those tests), later ones, which AdamW has made more of, within 1 % of fp32's
# (tests/unit/test_cuda_execute_steps.c): the two are within twice that of each other.
set -u
programs=$1 work=$2 gpus=$3
here=$(dirname "$0")
ranks=2
[ "$gpus" -ge 4 ] && ranks=4
requests=$here/several/$ranks
for way in one several; do
    mkdir -p "$work/$way" || exit 1
done
CUDA_DEVICE_MAX_CONNECTIONS=32 "$programs/execute" "$requests" "$work/one" 60 || exit 1
sh "$here/launch.sh" "$ranks" "$programs/execute" "$requests" "$work/several" 60 || exit 1
losses() { # FILE
    tr ',' '\n' <"$1" | sed -n 's/.*"loss": *\([0-9.e+-]*\).*/\1/p'
}
status=0
for request in "$requests"/*.json; do
    name=$(basename "$request" .json).result.json
    losses "$work/one/$name" >"$work/one/losses"
    losses "$work/several/$name" >"$work/several/losses"
    paste "$work/one/losses" "$work/several/losses" | awk -v name="$name" '
        function distance(a, b) { return a > b ? a - b : b - a }
        { bound = steps++ == 0 ? 4e-4 : 0.02 }
        { if (NF != 2 || distance($1, $2) > bound * $1) { bad++ } print name, "loss", $0 }
        END { exit steps == 0 || bad > 0 }' || status=1
done
exit $status
