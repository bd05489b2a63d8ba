#!/usr/bin/env bash
# check_logs.sh PROGRAM SOURCE: what `simulate` finds of a step, written as each framework would log it, is found
# without error by `validate --log`, and no warning tells of another job; a log of another job is warned of.
set -u
program=$1
. "$(dirname "$0")/prelude.sh"
cd "$work" || exit 1
unset SLIMPACK_PROFILE_PATH

cat >s.json <<'end'
{"model": "llama-3-8b", "cluster": "h100-8", "profile": "h100", "parallel": {"tp": 2, "pp": 2, "dp": 2},
 "workload": {"uniform": 4096, "context": 4096, "samples_per_batch": 64}}
end
"$program" simulate s.json --json --quiet >result.json || complain "no result"
figure() { # KEY
    sed -n "s/^  \"$1\": \([0-9.e+-]*\),*\$/\1/p" result.json | head -1
}
ms=$(figure iteration_ms) tokens=$(figure tokens_per_gpu_s) tflops=$(figure tflops_per_gpu)
allocated=$(figure peak_memory_allocator_gib) reserved=$(figure peak_memory_reserved_gib)
for value in "$ms" "$tokens" "$tflops" "$allocated" "$reserved"; do
    [ -n "$value" ] || complain "a figure of the result is missing"
done

write() { # FORM: twenty steps, of which the first takes longer
    awk -v form="$1" -v ms="$ms" -v tokens="$tokens" -v tflops="$tflops" -v allocated="$allocated" -v reserved="$reserved" '
    function human(x,    i, sizes) {
        split(" K M B T", sizes, " "); i = 0
        x = sprintf("%.3g", x) + 0
        while (x >= 1000) { x /= 1000; i++ }
        return sprintf("%g", x) sizes[i]
    }
    BEGIN {
        for (i = 1; i <= 20; i++) {
            t = i == 1 ? 7 * ms : ms; v = ms / t
            if (form == "megatron") printf " iteration %8d/ 100 | elapsed time per iteration (ms): %.1f | throughput per GPU (TFLOP/s/GPU): %.1f | global batch size: %5d |\n", i, t, tflops * v, 64
            if (form == "nanotron") printf "iteration: %d / 100 | consumed_tokens: 1M | elapsed_time_per_iteration_ms: %s | tokens_per_sec: %s | tokens_per_sec_per_gpu: %s | model_tflops_per_gpu: %s\n", i, human(t), human(8 * tokens * v), human(tokens * v), human(tflops * v)
            if (form == "torchtitan") printf "step: %2d  loss:  7.0  memory: %5.2fGiB(40.00%%)  tps: %d  tflops: %.2f  mfu: 40.00%%\n", i, reserved, tokens * v, tflops * v
            if (form == "nemo") printf "global_batch_size: 64 | global_step: %d | peak_memory_usage: %.0f | train_step_timing in s: %.4f\n", i, reserved * 1073741824, t / 1000
            if (form == "bridge") printf "Step Time : %.2fs GPU utilization: %.1fMODEL_TFLOP/s/GPU\n", t / 1000, tflops * v
            if (form == "deepspeed") printf "epoch=0/micro_step=1/global_step=%d, RunningAvgSamplesPerSec=1.0, CurrSamplesPerSec=%.9g, MemAllocated=6.01GB, MaxMemAllocated=%.2fGB\n", i, 64000 / t, allocated
        }
        # Of a rank that is neither the first nor the last, so that it stands for the largest.
        if (form == "megatron") printf "[Rank 3] (after 20 iterations) memory (MB) | allocated: 1.0 | max allocated: %.4f | reserved: 1.0 | max reserved: %.4f\n", allocated * 1024, reserved * 1024
        if (form == "bridge") printf "[Rank 3] (after 20 iterations) memory (GB) | mem-max-allocated-gigabytes: %.4f | mem-max-reserved-gigabytes: %.4f\n", allocated * 1.073741824, reserved * 1.073741824
    }'
}

errors() { # FILE: sizes of all errors in the document
    sed -n 's/^ *"\(iteration_time\|tokens_per_gpu_s\|tflops_per_gpu\|peak_memory_mape\|error\)": \(-\{0,1\}[0-9][0-9.e+-]*\),*$/\2/p' "$1"
}
for form in megatron nanotron torchtitan nemo bridge deepspeed; do
    write $form >$form.log
    "$program" validate s.json --log $form.log --json --quiet >$form.json || complain "$form: no comparison"
    sed -n '/^  "error": {/,/^  },/p; /^  "memory": \[/,/^  \],/p' $form.json >$form.errors
    count=$(errors $form.errors | wc -l)
    [ "$count" -ge 2 ] || complain "$form: $count errors: $(cat $form.errors)"
    errors $form.errors | awk -v form=$form '{ if ($1 * $1 > 0.005 * 0.005) print form ": an error of " $1 }' >far
    [ ! -s far ] || complain "$(cat far)"
    sed -n '/^  "warnings": \[/,$p' $form.json | grep -q 'log' && complain "$form: $(sed -n '/^  "warnings": \[/,$p' $form.json)"
    grep -q '"kept_steps": 1[78]' $form.json || complain "$form: $(grep kept_steps $form.json)"
done

# Logs of other jobs: another batch, another number of GPUs, another model.
warns() { # LOG TEXT SETTING...
    local log=$1 text=$2
    shift 2
    "$program" validate s.json --log "$log" "$@" >/dev/null 2>warned || complain "$log $*: no comparison"
    tr -s '\n ' ' ' <warned | grep -q "$text" || complain "$log $*: no warning of '$text': $(cat warned)"
}
warns megatron.log 'a logged step has 64 samples, one of the scenario 32' --set workload.samples_per_batch=32
warns nanotron.log 'a logged step has about [0-9]* tokens, one of the scenario 131072' --set workload.samples_per_batch=32
warns nanotron.log 'the log is of about 8 GPUs, the scenario has 16' --set parallel.dp=4
warns megatron.log 'the log counts .* TFLOP a GPU and step' --set model=llama-2-7b --set workload.samples_per_batch=128

# What a log says of its job, in the words of each framework, is held against the scenario: nothing is told of one
# that is the same, and of each other the log's and the scenario's.
mesh='using world size: %d, data-parallel size: %d, context-parallel size: 1, tensor-model-parallel size: %d, pipeline-model-parallel size: 2'
# shellcheck disable=SC2059
{ printf "$mesh\n" 8 2 2; echo '  Number of parameters in billions: 8.03'; cat megatron.log; } >own.log
"$program" validate s.json --log own.log --quiet >/dev/null 2>warned || complain "own.log: no comparison"
grep -q 'log says' warned && complain "a log of this job is told to be of another: $(cat warned)"
# shellcheck disable=SC2059
{ printf "$mesh\n" 64 8 4; cat megatron.log; } >other.log
warns other.log 'the log says that it is of 64 GPUs, the scenario has 8: errors are those of another job'
warns other.log 'the log says tp 4, dp 8, the scenario has tp 2, dp 2: errors are those of another layout'
{ echo '  world_size ...................................... 16'; echo '  decoder_world_size .. 5'; cat megatron.log; } >arguments.log
warns arguments.log 'of 16 GPUs, the scenario has 8'
{ echo '[titan] 2026-01-01 - root - INFO - Model llama3 70B size: 70,553,706,496 total parameters'; cat torchtitan.log; } >larger.log
warns larger.log "the log says 70.55 billion parameters, the scenario's model has 8.03"
{ echo '  Number of trainable parameters = 41,943,040'; cat deepspeed.log; } >adapters.log
warns adapters.log "the log says 0.04194 billion parameters, the scenario's model has 8.03"

# A rank's own peak, where all lines are of the first one.
sed 's/\[Rank 3\]/[Rank 0]/' megatron.log >first.log
"$program" validate s.json --log first.log --quiet >first.txt || complain "first.log: no comparison"
[ "$(grep -c 'first rank' first.txt)" = 2 ] || complain "the first rank's peaks are not told: $(cat first.txt)"

# The verdict: the times of a step that is slower or faster by a factor are told, whether the range that simulate tells
# has them, and a command that goes on; of FLOPs, which pairs the log counts and what the other count would be.
least=$(jq .error_range.least result.json) most=$(jq .error_range.most result.json)
verdict() { # FACTOR EXPECTED WORDS COMMAND
    awk -v ms="$ms" -v factor="$1" 'BEGIN { for (i = 1; i <= 20; i++) printf "iteration %d/ 100 | elapsed time per iteration (ms): %.3f |\n", i, factor * ms }' >timed.log
    "$program" validate s.json --log timed.log -q >verdict.txt
    expect "$1 times as long: as expected" "$2" "$("$program" validate s.json --log timed.log -q --json | jq .as_expected)"
    tr -s '\n ' ' ' <verdict.txt | grep -qF "verdict: the logged step takes $3 than predicted, $([ "$2" = true ] && echo within || echo outside) the range" ||
        complain "$1 times as long: $(cat verdict.txt)"
    sed 's/ \\$//' verdict.txt | tr -s '\n ' ' ' | grep -qF "go on with: slimpack $4" || complain "$1 times as long goes on with: $(tail -3 verdict.txt)"
    [ "$(wc -l <verdict.txt)" -le 40 ] && [ "$(wc -L <verdict.txt)" -le 100 ] || complain "$1 times as long: more than a screen"
}
fit='calibrate --from-measurements s.json --log timed.log --fit FIT.json -o mine.json'
verdict 1.1 true '10.0 % longer' "$fit"
verdict 0.95 true '5.0 % less' "$fit"
verdict "$(jq -n "$most * 1.001")" false "$(jq -n "$most * 1.001 - 1" | awk '{ printf "%.1f", 100 * $1 }') % longer" 'validate s.json --trace FILE'
verdict "$(jq -n "$most * 0.999")" true "$(jq -n "$most * 0.999 - 1" | awk '{ printf "%.1f", 100 * $1 }') % longer" "$fit"
verdict "$(jq -n "$least * 0.999")" false "$(jq -n "1 - $least * 0.999" | awk '{ printf "%.1f", 100 * $1 }') % less" 'validate s.json --trace FILE'
# A peak that is further off says so, though the time be as expected.
for factor in 1.2 1.3 0.7; do
    awk -v ms="$ms" -v mib="$(jq -n "$allocated * 1024 * $factor")" 'BEGIN { for (i = 1; i <= 20; i++) printf "iteration %d/ 100 | elapsed time per iteration (ms): %.3f |\n", i, ms
        printf "[Rank 3] (after 20 iterations) memory (MB) | allocated: 1.0 | max allocated: %.4f |\n", mib }' >peak.log
    told=$("$program" validate s.json --log peak.log -q | tr -s '\n ' ' ' | grep -o 'its peak memory is [0-9]* % [a-z]*\|go on with: slimpack [a-z]*' | tr '\n' ',')
    case $factor in
    1.2) expect "a peak as expected" 'go on with: slimpack calibrate,' "$told" ;;
    1.3) expect "a higher peak" 'its peak memory is 30 % higher,go on with: slimpack validate,' "$told" ;;
    *) expect "a lower peak" 'its peak memory is 30 % lower,go on with: slimpack validate,' "$told" ;;
    esac
done

causal=$(figure tflops_per_gpu_causal)
counts() { # COUNT OWN WORDS OTHER
    awk -v ms="$ms" -v tflops="$2" 'BEGIN { for (i = 1; i <= 20; i++) printf "iteration %d/ 100 | elapsed time per iteration (ms): %.1f | throughput per GPU (TFLOP/s/GPU): %.1f |\n", i, ms, tflops }' >counted.log
    expect "FLOPs of $1 pairs" "\"$1\"" "$("$program" validate s.json --log counted.log -q --json | jq .flops_count)"
    "$program" validate s.json --log counted.log -q | tr -s '\n ' ' ' |
        grep -q "FLOPs: the log seems to count $3.* its step has $(printf %.1f "$4")[0-9.]* TFLOP" || complain "FLOPs of $1 pairs: $("$program" validate s.json --log counted.log -q)"
}
counts all "$tflops" 'all pairs of attention, as Megatron-LM did before January 2026' "$causal"
counts causal "$causal" 'causal pairs of attention, as Megatron-LM does since January 2026' "$tflops"

# The command that calibrates runs with a FIT as its help has it.
echo '{"schema": "slimpack/fit/1", "name": "mine", "profile": "h100", "tables": {"s": {"weight": 1}}, "bootstrap": 0,
 "constants": {"attention.scale": {"unit": "", "start": 1, "least": 0.3, "most": 1.2}}}' >FIT.json
awk -v ms="$ms" 'BEGIN { for (i = 1; i <= 20; i++) printf "iteration %d/ 100 | elapsed time per iteration (ms): %.3f |\n", i, 1.02 * ms }' >timed.log
eval "'$program' $fit" >fitted.txt 2>&1 || complain "$fit: $(cat fitted.txt)"
exit "$failed"
