#!/usr/bin/env bash
# check_tune_commands.sh PROGRAM: what answers of `tune` say to type runs when it is pasted, and does what it says.
set -u
program=$1
. "$(dirname "$0")/prelude.sh"
program=$(realpath "$program")
mkdir "$work/bin" "$work/at work"
ln -s "$program" "$work/bin/slimpack"
PATH=$work/bin:$PATH
cd "$work/at work" || exit 1

cat >"my model.json" <<MODEL
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4, "hidden_size": 512,
 "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 1000}
MODEL
sed -e 's/"llama"/"mixtral"/' -e 's/LlamaFor/MixtralFor/' -e 's/}$/, "num_local_experts": 4, "num_experts_per_tok": 2}/' "my model.json" >experts.json
seq 100 500 9000 >"my -q lengths.txt"
time_of() { grep -m 1 '"iteration_ms"' "$1" | tr -d ' ,'; }
# The lines of a command: those that a shell joins.
go_on() { # FILE
    awk '/^go on with: / { sub(/^go on with: /, ""); on = 1 } on { print; if (!/( \\|&&)$/) exit }' "$1"
}
answers=0
asked() { # ARGUMENT...
    rm -f best.json own.json
    slimpack tune "$@" --quiet >told.txt || complain "$*: exit $?"
    slimpack tune "$@" --quiet --json >told.json
    for wide in "" --wide; do
        [ -z "$wide" ] || slimpack tune "$@" --quiet --wide >told.txt
        go_on told.txt >command.sh
        [ -s command.sh ] || complain "$*: no command"
        [ -n "$wide" ] || awk 'length($0) > 100 { print "longer than 100 columns: " $0 }' command.sh >faults.txt
        [ -s faults.txt ] && complain "$*: $(cat faults.txt)"
        rm -f best.json
        bash -e command.sh >output.txt 2>messages || complain "$*: does not run: $(cat command.sh messages)"
        [ "$(head -c 1 best.json 2>/dev/null)" = "{" ] || complain "$*: no best.json by $(cat command.sh)"
        slimpack simulate best.json --quiet --json >simulated.json
        expect "$*: time of what it leads to $wide" "$(time_of told.json)" "$(time_of simulated.json)"
    done
    # With -o there is a file already.
    slimpack tune "$@" --quiet -o own.json >told.txt
    go_on told.txt >command.sh
    expect "$*: with -o" "slimpack simulate own.json --timeline" "$(cat command.sh)"
    bash -e command.sh >output.txt 2>messages || complain "$*: does not run: $(cat command.sh messages)"
    # Options that it names for this command.
    grep -qF -- "--any-schedule)" told.txt && ! slimpack tune "$@" --any-schedule --quiet >/dev/null 2>&1 && complain "$*: --any-schedule fails"
    grep -qF -- "--set parallel.etp=1" told.txt && ! slimpack tune "$@" --set parallel.etp=1 --quiet >/dev/null 2>&1 && complain "$*: parallel.etp=1 fails"
    answers=$((answers + 1))
}
small=(--context 8K --tokens-per-batch 64K)
asked "my model.json" --gpus 1 "${small[@]}"
asked "my model.json" --gpus 4 "${small[@]}" --emit megatron=launch.sh
asked "my model.json" --gpus 4 "${small[@]}" --emit torchtitan=launch.toml
asked "my model.json" --gpus 2 "${small[@]}" --emit trl=trl.yaml --set model.lora_rank=8 --set model.frozen_weights=4bit-double
asked "my model.json" --gpus 2 --context 9000 --lengths "my -q lengths.txt" --tokens-per-batch 16K --strategies packed,bfd
asked "my model.json" --gpus 2 --context 9000 --set 'workload.lengths=[100, 2000, 8000]' --cluster b200-8
asked "my model.json" --gpus 4 "${small[@]}" --schedules 1f1b,zb-h1 --set parallel.pp=2 --exhaustive --set memory.recompute=none --set parallel.zero=1
asked experts.json --gpus 4 "${small[@]}" --time-limit 1000 --any-schedule --set parallel.zero=1 --set memory.recompute=none --set parallel.pp=2
asked "my model.json" --gpus 2 "${small[@]}" --emit trl=trl.yaml --set stack.loss_chunks=4
# The answer is what its files run: read again, with the lengths of the question, they make its step and need its memory.
figures_of() { grep -m 1 '"iteration_ms"' "$1" | tr -d ' ,' && grep -m 1 '"peak_memory_gib"' "$1" | tr -d ' ,'; }
rounds=0
same() { # FRAMEWORK,... ARGUMENT...
    local files=() emit=() lengths=() dp name
    for name in ${1//,/ }; do
        emit+=(--emit "$name=launch.$name")
        files+=("launch.$name")
    done
    [[ " $* " != *" --lengths "* ]] || lengths=(--set "workload.lengths=my -q lengths.txt")
    slimpack tune "my model.json" --gpus 2 "${@:2}" "${emit[@]}" --quiet --json >told.json || complain "$*: exit $?"
    dp=$(grep -m 1 -o '"dp": [0-9]*' told.json | tr -dc 0-9)
    slimpack import "${files[@]}" --set "model=my model.json" --set cluster=h100-8 --set "parallel.dp=$dp" "${lengths[@]}" -o again.json --quiet >/dev/null ||
        complain "$*: what is emitted is not read"
    slimpack simulate again.json --quiet --json >simulated.json || complain "$*: what is emitted does not run"
    expect "$*: step and memory of what is emitted" "$(figures_of told.json)" "$(figures_of simulated.json)"
    rounds=$((rounds + 1))
}
mixed=(--lengths "my -q lengths.txt" --context 6K --tokens-per-batch 128K)
same megatron "${small[@]}" --strategies packed
same megatron "${mixed[@]}" # which runs bfd, too, but has no argument for it
same megatron "${mixed[@]}" --strategies packed --set parallel.pp=2
same bridge "${mixed[@]}" --strategies packed
same nemo "${mixed[@]}" --strategies packed
same torchtitan "${mixed[@]}" --strategies packed
same nanotron "${mixed[@]}" --strategies packed --set parallel.pp=1
same trl,accelerate "${small[@]}" --strategies packed
same trl,accelerate "${mixed[@]}" # which has best fit, and truncates
same trl,accelerate "${mixed[@]}" --strategies padded
same trl,deepspeed "${mixed[@]}" --strategies concat
expect "rounds" 11 "$rounds"
# Numerics that it keeps of a layout to compare with stand in what it says to type.
cat >"run it.sh" <<'SCRIPT'
torchrun --nproc_per_node 2 pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 8192 \
    --micro-batch-size 1 --global-batch-size 8 --vocab-size 1000 --use-distributed-optimizer --bf16 --accumulate-allreduce-grads-in-fp32
SCRIPT
cat >job.json <<'JOB'
{"schema": "slimpack/scenario/1", "parallel": {"dp": 2},
 "stack": {"name": "megatron-core-2025", "gradient_reduce_dtype": "fp32", "moment_bytes": 2, "no_master_weights": true}}
JOB
kept() { # FILE KEY=VALUE...
    asked "my model.json" --gpus 2 "${small[@]}" --set stack.name=megatron-core-2025 --current "$1"
    slimpack tune "my model.json" --gpus 2 "${small[@]}" --set stack.name=megatron-core-2025 --current "$1" --quiet | go_on /dev/stdin | tr -s '\n \\' ' ' >joined.txt
    for setting in "${@:2}"; do
        grep -qF -- "--set $setting " joined.txt || complain "$1: $setting is not in $(cat joined.txt)"
    done
}
kept "run it.sh" stack.gradient_reduce_dtype=fp32
kept job.json stack.gradient_reduce_dtype=fp32 stack.moment_bytes=2 stack.no_master_weights=true
# A scenario asks as its model would, within its stack and of its work.
"$program" import "run it.sh" -o "my work.json" --quiet || complain "no scenario of the script"
asked "my work.json" --set parallel.zero=1
slimpack tune --current "my work.json" >told.txt 2>&1
grep -qF "slimpack tune 'my work.json' --gpus 2 --context 8192" <(tr -s '\n ' ' ' <told.txt) || complain "names another model: $(cat told.txt)"
# As options alone ask; options come before what it states.
cat >bare.json <<'BARE'
{"schema": "slimpack/scenario/1", "model": "my model.json", "stack": {"name": "megatron-core-2025", "gradient_reduce_dtype": "fp32"},
 "cluster": "b200-8", "parallel": {"tp": 2}, "workload": {"context": 4096, "samples_per_batch": 16}}
BARE
stated=(--set stack.name=megatron-core-2025 --set stack.gradient_reduce_dtype=fp32 --tokens-per-batch 64K --quiet --json)
alone() { slimpack tune "my model.json" --gpus 2 "$@" "${stated[@]}" >alone.json; }
of_scenario() { slimpack tune bare.json --gpus 2 "$@" --quiet --json >told.json && time_of told.json; }
alone --context 4K --cluster b200-8
expect "a scenario asks as options do" "$(time_of alone.json)" "$(of_scenario)"
alone --context 8K --cluster h100-8
expect "options come before a scenario" "$(time_of alone.json)" "$(of_scenario --context 8K --cluster h100-8)"
expect "answers" 12 "$answers"
# The question of a file, where none is asked: of 2 GPUs and 8 rows of 8192 tokens. The model is none that is built in.
slimpack tune --current "run it.sh" 2>&1 | tr -s '\n ' ' ' | grep -o "slimpack import .*it.sh'" >command.sh || complain "no question of a file"
expect "question of a file" "slimpack import 'run it.sh' -o scenario.json && slimpack tune scenario.json --gpus 2 --context 8192 --tokens-per-batch 65536 --current 'run it.sh'" "$(cat command.sh)"
bash -e command.sh >output.txt 2>messages || complain "does not run: $(cat command.sh messages)"
exit "$failed"
