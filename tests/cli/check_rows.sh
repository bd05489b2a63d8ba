#!/usr/bin/env bash
# check_rows.sh PROGRAM SOURCE: lengths that come to an imported scenario later, by --lengths, --set or a sweep, make
# the step that they make when `import` is told them: as many rows as the launch file counts, whatever the replicas.
# And a model's name in a scenario's place.
set -u
program=$1
. "$(dirname "$0")/prelude.sh"
cd "$work" || exit 1

megatron='torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 1024 --ffn-hidden-size 4096
 --num-attention-heads 16 --seq-length 4096 --max-position-embeddings 4096 --vocab-size 32000 --bf16
 --tensor-model-parallel-size 2'
echo $megatron --micro-batch-size 2 --global-batch-size 64 >rows.sh
echo $megatron --micro-batch-size 1 --global-batch-size 64 --pipeline-model-parallel-size 2 >stages.sh
echo 'accelerate launch --num_processes 8 sft.py --model_name_or_path meta-llama/Meta-Llama-3-8B --bf16 True
 --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --max_length 4096' | tr '\n' ' ' >padded.sh
echo '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}}' >deepspeed.json

step() { # WORD... : samples, tokens, micro-batches and time of a step
    "$program" simulate "$@" --json -q | jq -c '[.batches[0].samples, .batches[0].tokens, .microbatches, .iteration_ms]'
}
for file in rows.sh stages.sh padded.sh deepspeed.json; do
    more=()
    [ $file = deepspeed.json ] && more=(--set model=llama-7b --set workload.context=4K --set parallel.dp=8)
    "$program" import $file "${more[@]}" -o later.json -q >/dev/null || complain "$file is not imported"
    "$program" import $file "${more[@]}" --set workload.lengths=wikipedia -o at_once.json -q >/dev/null
    expected=$(step at_once.json)
    [ -n "$expected" ] || complain "$file: no step"
    expect "$file: --lengths" "$expected" "$(step later.json --lengths wikipedia)"
    expect "$file: --set" "$expected" "$(step later.json --set workload.lengths=wikipedia)"
    echo '{"base": "later.json", "grid": {"workload.lengths": ["wikipedia"]}}' >spec.json
    rm -f points.jsonl
    "$program" sweep spec.json -o points.jsonl -q >/dev/null
    expect "$file: a sweep" "$(jq -c '.[3]' <<<"$expected")" "$(jq .iteration_ms points.jsonl)"
    # A batch that is stated beside the lengths is one of documents.
    expect "$file: a stated batch" 24 \
        "$(step later.json --lengths wikipedia --set workload.samples_per_batch=24 --set schedule.microbatches=null | jq '.[0]')"
done

# Rows stay as many with fewer replicas, documents and all.
"$program" import rows.sh -o later.json -q >/dev/null
expect "rows of two replicas" "$(step later.json --lengths wikipedia | jq -c '.[:3]')" \
    "$(step later.json --lengths wikipedia --set parallel.dp=2 | jq -c '.[:3]')"

# A model's name beside settings is the scenario of that model, in each command that takes one.
echo '{"model": "llama-3-8b"}' >model.json
for command in 'simulate --lengths wikipedia' 'compare --strategies packed,bfd --lengths wikipedia' 'prefill --lengths 32K'; do
    # shellcheck disable=SC2086
    "$program" $command model.json --set parallel.tp=8 --set workload.context=8K -q >of_scenario
    # shellcheck disable=SC2086
    "$program" $command llama-3-8b --set parallel.tp=8 --set workload.context=8K -q >of_model
    [ -s of_model ] || complain "$command of a model: nothing is printed"
    cmp of_scenario of_model || complain "$command of a model: another answer"
done
exit "$failed"
