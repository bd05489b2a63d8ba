#!/usr/bin/env bash
# check_unlike_steps.sh PROGRAM: a step like logged ones has their error; one whose cluster, schedule,
# micro-batch or stack is another one has none but the range of others as far away, and is told why.
set -euo pipefail
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
complain() { echo "$*" >&2 && exit 1; }
# A logged step of NVIDIA's recipes: Llama 3 70B on 64 H100.
cat >"$work/step.json" <<'JSON'
{"model": {"layers": 80, "hidden": 8192, "ffn": 28672, "heads": 64, "kv_heads": 8, "vocab": 128256, "activation": "swiglu",
           "norm": "rmsnorm", "positional": "rope", "tied_embeddings": false, "bias": false},
 "cluster": {"name": "h100-8"}, "stack": "megatron-core-2025",
 "parallel": {"tp": 4, "cp": 2, "pp": 4, "dp": 2, "zero": 1, "chunks_per_rank": 5},
 "schedule": {"kind": "interleaved", "microbatch_samples": 1},
 "workload": {"uniform": 8192, "context": 8192, "samples_per_batch": 128}, "strategy": {"kind": "packed"}}
JSON
answer() { # PATH=VALUE...
    local set=()
    for setting; do set+=(--set "$setting"); done
    "$program" simulate "$work/step.json" "${set[@]}" --json --quiet >"$work/answer.json" || [ $? -eq 1 ]
}

# Alike, too: rates of a cluster of another name that differ by less than a tenth.
like=0
while read -r settings; do
    answer $settings
    grep -q '"error": {' "$work/answer.json" || complain "'$settings' is like logged steps, but has no error"
    grep -q '"error_range": null' "$work/answer.json" || complain "'$settings' has a range beside its error"
    like=$((like + 1))
done <<'LIKE'
parallel.dp=2
parallel.dp=4 workload.samples_per_batch=256
workload.samples_per_batch=256
cluster.nvlink_gb_per_s=420
cluster.peak_tflops=1000
cluster.nic_gbit_per_s=380
cluster={"name":"mine","gpu":"H100","profile":"h100","gpus_per_node":8,"peak_tflops":989,"hbm_gb_per_s":3300,"memory_gib":80,"nvlink_gb_per_s":450,"nics_per_node":8,"nic_gbit_per_s":400}
LIKE
[ "$like" -eq 7 ]

# What differs, and the settings that make it differ.
unlike=0
while read -r trait settings; do
    answer $settings
    grep -q '"error": null' "$work/answer.json" || complain "'$settings' is unlike logged steps, but has their error"
    grep -q "\"not_validated\": \"no logged step has .*$trait " "$work/answer.json" || complain "'$settings' is not told to differ in $trait"
    grep -q '"error_range": {' "$work/answer.json" || complain "'$settings' has no range"
    unlike=$((unlike + 1))
done <<'UNLIKE'
nvlink_gb_per_s cluster.nvlink_gb_per_s=50
nvlink_gb_per_s cluster.nvlink_gb_per_s=900
nic_gbit_per_s cluster.nic_gbit_per_s=10
nic_gbit_per_s cluster.nic_gbit_per_s=200
nics_per_node cluster.nics_per_node=1
hbm_gb_per_s cluster.hbm_gb_per_s=1000
hbm_gb_per_s cluster.hbm_gb_per_s=4800
peak_tflops cluster.peak_tflops=300
peak_tflops cluster.peak_tflops=850
memory_gib cluster.memory_gib=141
gpus_per_node cluster.gpus_per_node=4
microbatch schedule.microbatch_samples=2
schedule schedule.kind=zb-h1 parallel.chunks_per_rank=1
schedule schedule.kind=zb-v parallel.chunks_per_rank=2
chunks parallel.chunks_per_rank=10
bubble schedule.kind=1f1b parallel.chunks_per_rank=1 workload.samples_per_batch=8
microbatches_per_stage workload.samples_per_batch=16
microbatches_per_stage workload.samples_per_batch=1024
stack stack={"name":"megatron-core-2025","hide_forward_gather":false}
stack stack=megatron-core-2024 profile=h100
recompute memory.recompute=full
context workload.uniform=32768 workload.context=32768
UNLIKE
[ "$unlike" -eq 22 ]

# It is said in words, too.
"$program" simulate "$work/step.json" --set cluster.nvlink_gb_per_s=50 --quiet | tr -s ' \n' ' ' >"$work/answer.txt"
grep -Eq 'error not validated: no logged step has nvlink_gb_per_s 50 \(logged: 450\); the nearest logged: h100_dgxc_2025\. By [0-9]+ other logged steps, of [0-9]+ sources, that differed as much from those that their profile was fitted to, 8 in 10 take [0-9.]+ to [0-9.]+ times the predicted time; besides, [0-9]+ % of the [0-9]+ steps on [0-9]+ nodes of one source waited long ' \
    "$work/answer.txt" || complain "the range is not told: $(cat "$work/answer.txt")"
