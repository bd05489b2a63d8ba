#!/usr/bin/env bash
# check_tune_step.sh PROGRAM: the step that `tune` takes where nobody states one is that of what is done, and is told
# with the option that changes it, as are lengths that it takes more than once.
set -u
program=$1
. "$(dirname "$0")/prelude.sh"
program=$(realpath "$program")
cd "$work" || exit 1

cat >model.json <<MODEL
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 256,
 "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1000}
MODEL
few=1000
seq 10 10 "$few" >few.txt # 10 * 100 * 101 / 2 tokens
total=50500
step() { # GPUS TOKENS REASON TIMES ARGUMENT...
    gpus=$1 tokens=$2 reason=$3 times=$4
    shift 4
    about="$gpus GPUs $*"
    "$program" tune model.json --gpus "$gpus" "$@" --strategies packed --set memory.recompute=none --json 2>/dev/null >step.json
    awk -v key='"tokens_per_step":' -v want="$tokens" '$1 == key { found = $2 + 0 } END { exit !(found <= want && found > 0.95 * want) }' step.json ||
        complain "$about: $(grep tokens_per_step step.json), expected $tokens"
    expect "$about: why" "$reason" "$(sed -n 's/^    "tokens_chosen": "*\([^",]*\)"*,$/\1/p' step.json)"
    over=$(sed -n 's/^    "lengths_times_over": \(.*\)$/\1/p' step.json)
    [ "$times" = null ] || over=$(awk -v over="$over" -v times="$times" 'BEGIN { print (over <= times && over > 0.95 * times ? times : over) }')
    expect "$about: times over" "$times" "$over"
    "$program" tune model.json --gpus "$gpus" "$@" --strategies packed --set memory.recompute=none --quiet | tr -s '\n ' ' ' >step.txt
    told=$(grep -o ' tokens a step ([^)]*; --tokens-per-batch)' step.txt)
    case $reason:$times in
    null:null) expect "$about: on the screen" "" "$told" ;;
    null:*) grep -qE "\(the lengths [0-9.]+ times over; --" <<<"$told" || complain "$about: the screen says '$told'" ;;
    *:null) grep -qF "($reason; --" <<<"$told" || complain "$about: the screen says '$told'" ;;
    *) grep -qE "\($reason, the lengths [0-9.]+ times over; --" <<<"$told" || complain "$about: the screen says '$told'" ;;
    esac
}
# Pretraining: 4 M tokens, or 16 samples.
step 8 4194304 assumed null --context 4K
step 2 8388608 assumed null --context 512K --set parallel.cp=2
# So many that ranks of any number that divides the GPUs have as many; stated ones are told what is next to them.
step 3 $((129 * 4096)) "assumed for fine-tuning: 128 rows" null --context 4K --set stack=trl-2025
step 24 $((1032 * 4096)) assumed null --context 4K
"$program" tune model.json --gpus 24 --context 4K --tokens-per-batch 2050K --set parallel.tp=1 --set parallel.pp=1 --quiet 2>&1 | tr -s "\n " " " |
    grep -qF "24 GPUs divide 512 rows: --tokens-per-batch 2064384 (504 rows)" || complain "512 rows over 8 and 24 ranks"
# A launch file has its own.
printf 'torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --hidden-size 256 --num-attention-heads 4 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 48 --bf16\n' >train.sh
step 8 $((48 * 4096)) "as --current has it" null --context 4K --current train.sh
step 1 $((16 * 4096)) "assumed for adapters: 16 rows" null --context 4K --set stack=hf-trainer --set model.lora_rank=8
step 32 $((32 * 4096)) "assumed: a row for each GPU" null --context 4K --set stack=megatron-bridge-2025 --set model.lora_rank=8
# Never more than pretraining takes.
step 2048 4194304 assumed null --context 4K --set stack=megatron-bridge-2025 --set model.lora_rank=8 --set parallel.tp=1 --set parallel.pp=1 --set parallel.cp=2
# Few lengths once, whatever the stack; samples above the context are not among them.
step 1 $total "all lengths once" null --context 4K --lengths few.txt
step 1 $total "all lengths once" null --context 4K --set workload.lengths=few.txt --set stack=trl-2025
step 1 $((10 * 50 * 51 / 2)) "all lengths once" null --context 500 --lengths few.txt
# More than once: by the step that is stated, or where GPUs need it.
step 1 $((3 * total)) null 3 --context 4K --lengths few.txt --tokens-per-batch $((3 * total))
step 1 $((total / 2)) null null --context 4K --lengths few.txt --tokens-per-batch $((total / 2))
step 16 $((16 * 4096)) "assumed: a row for each GPU" "$(awk -v total=$total 'BEGIN { print 16 * 4096 / total }')" --context 4K --lengths few.txt
# A distribution has no end.
step 1 $((128 * 4096)) "assumed for fine-tuning: 128 rows" null --context 4K --lengths wikipedia --set stack=trl-2025
# The scenario that is written has the step that is told.
"$program" tune model.json --gpus 1 --context 4K --lengths few.txt -o best.json --json --quiet >step.json
expect "tokens of the file that is written" "$total" "$(tr -d ' ' <best.json | sed -n 's/^"tokens_per_batch":\([0-9]*\),*$/\1/p')"
"$program" simulate best.json --quiet --json >simulated.json || complain "the file does not simulate"
time_of() { grep -m 1 '"iteration_ms"' "$1" | tr -d ' ,'; }
expect "time of the file that is written" "$(time_of step.json)" "$(time_of simulated.json)"
exit "$failed"
