#!/usr/bin/env bash
# check_execution.sh PROGRAM SOURCE: plans that are executed. The fake backend takes the simulator's durations, so
# that what it measures is what was predicted; the host backend trains, holds what the saved-tensor table says,
# and finds one loss whichever way a batch was packed.
set -u
program=$1
source=$2
. "$(dirname "$0")/prelude.sh"
cd "$work" || exit 1

figures() { # FILE: what both results of a plan state of time and memory
    sed '/"execution":/,$d' "$1" | grep -E '"(iteration_ms|bubble_ratio|bubble_ratio_longest_stage|tokens_per_s|peak_memory_gib|activations|logits|busy_ms|span_ms|peak_gib|microbatches)":'
}
losses() {
    sed -n 's/^ *"loss": \([^ ]*\)$/\1/p' "$1"
}

# The committed scenario, with a narrower model.
scenario=$work/host_small.json
sed 's/"hidden": 256, "ffn": 688/"hidden": 64, "ffn": 176/' "$source/experiments/host_small.json" >"$scenario"
expect "narrower models" 1 "$(grep -c '"hidden": 64,' "$scenario")"
"$program" plan "$scenario" -o plan.json --quiet >/dev/null || complain "plan fails"

# ---- fake: executed as predicted ----

"$program" simulate plan.json --json --quiet >predicted.json || complain "simulate fails"
"$program" run plan.json --backend fake --json >measured.json || complain "run fails"
figures predicted.json >predicted
figures measured.json >measured
[ "$(wc -l <predicted)" -ge 20 ] || complain "too few figures to compare"
diff predicted measured || complain "the fake backend measures other figures than were predicted"
expect "level" 1 "$(grep -c '"level": "measured"' measured.json)"

"$program" run plan.json --backend fake -o kept.json --timeline --trace trace.json >text || complain "run -o fails"
actions() {
    grep -oE '"[FBIW][0-9.]+"' "$1" | sort
}
cmp <(actions plan.json) <(actions kept.json) || complain "the measured timeline has other actions than the plan"
expect "timeline in the terminal" 4 "$(grep -c '^dp0 pp[0-3] ' text)"
grep -q '"traceEvents"' trace.json || complain "no trace"

validate() { # OPTION...
    "$program" validate "$scenario" --clock virtual --quiet "$@"
}
validate --backend fake --json >exact.json || complain "validate fails"
for key in iteration_time bubble_ratio_abs peak_memory_mape; do
    expect "error $key" 0.0 "$(sed -n "s/^ *\"$key\": \([^,]*\),*$/\1/p" exact.json)"
done
expect "ranks without error" 4 "$(grep -c '"busy_time": 0.0' exact.json)"
expect "schema" 1 "$(grep -c '"schema": "slimpack/validation/1"' exact.json)"
validate --backend fake -o kept.json >text || complain "validate -o fails"
hide_times() {
    sed -E 's/"(solver_ms|simulate_ms)": [0-9.eE+-]+/"\1": 0/' "$1"
}
cmp <(hide_times exact.json) <(hide_times kept.json) || complain "the report on disk is another one"
expect "categories that differ" 0 "$(grep -c 'differs' text)"

# What a plan lost is said of it wherever it is evaluated.
"$program" plan "$scenario" --set workload.context=100 -o lost.json --quiet >/dev/null
"$program" simulate lost.json --json --quiet >lost.simulate
"$program" run lost.json --backend fake --json --quiet >lost.run
validate --backend fake --set workload.context=100 --json >lost.validate
for command in simulate run validate; do
    expect "$command: over_length_share" 0.8125 "$(sed -n 's/^ *"over_length_share": \([^,]*\),*$/\1/p' lost.$command | head -n 1)"
    expect "$command: warnings" 1 "$(sed -n '/^  "warnings": /,/\]/p' lost.$command | grep -c 'samples longer than the context, dropped: 16')"
done
"$program" run lost.json --backend fake --quiet >lost.run
validate --backend fake --set workload.context=100 >lost.validate
for command in run validate; do
    expect "$command: lossy" "  lossy          81.2 % of tokens over the context, dropped" "$(grep lossy lost.$command)"
done

# Jitter is an error, the same one for the same seed.
validate --backend fake --option jitter=0.2 -o one.json >/dev/null || complain "jitter fails"
validate --backend fake --option jitter=0.2 -o same.json >/dev/null
validate --backend fake --option jitter=0.2 --seed 2 -o other.json >/dev/null
cmp <(hide_times one.json) <(hide_times same.json) || complain "one seed, two runs"
cmp -s <(hide_times one.json) <(hide_times other.json) && complain "the seed has no effect"
grep -q '"iteration_time": 0.0,' one.json && complain "jitter makes no error"

# ---- failures: the rank, the action, the reason, the exit status ----

fails() { # STATUS MESSAGE ARGUMENT...
    local status=$1 expected=$2 message
    shift 2
    message=$("$program" "$@" 2>&1 >/dev/null)
    expect "status of $*" "$status" "$?"
    case $message in
    *"$expected"*) ;;
    *) complain "message of $*: expected '$expected', got '$message'" ;;
    esac
}
fails 3 "unknown backend 'hots' (did you mean 'host'? known: " run plan.json --backend hots
fails 3 "expected a plan" run "$scenario" --backend fake
fails 2 "--backend NAME" run plan.json
fails 2 "--clock: expected one of virtual, wall, got 'sundial'" run plan.json --backend fake --clock sundial
fails 2 "--option expects KEY=VALUE" run plan.json --backend fake --option jitter
fails 2 "--batch 1: the last of 1 is 0" run plan.json --backend fake --batch 1
fails 2 "device" run plan.json --backend fake --device 7
fails 70 "dp 0 pp 1: F2" run plan.json --backend fake --option fail=F2@0.1
fails 1 "dp 0 pp 1: F2" run plan.json --backend host --option exhaust=F2@0.1
fails 4 "dp 0 pp 2: B1" run plan.json --backend fake --option stall=B1@0.2
fails 2 "--backend needs SCENARIO" validate --backend fake
fails 2 "needs --backend NAME" validate "$scenario"
fails 2 "need --backend" validate --published --steps 3
fails 2 "exclude each other" validate "$scenario" --backend fake --published
fails 3 "No such file" validate "$scenario" --backend fake -o nowhere/report.json

# ---- host: what no machine has room for is refused before anything is taken ----

cat >large.json <<'END'
{"model": "llama-3-70b", "cluster": "h100-8", "parallel": {"tp": 8, "pp": 10, "dp": 32, "zero": 0},
 "workload": {"lengths": [100], "order": "file", "samples_per_batch": 32, "context": 8192}}
END
"$program" plan large.json -o large.plan --quiet >/dev/null || complain "plan of a large model fails"
for command in "run large.plan" "validate large.json"; do
    # shellcheck disable=SC2086
    fails 4 "backend 'host': all 2560 ranks of the plan with a model of 80 layers need at least " $command --backend host
done
"$program" run large.plan --backend host --wide 2>&1 >/dev/null |
    grep -qE ' at least [0-9]{5}\.[0-9]{2} GiB on this machine, [0-9]+\.[0-9]{2} are free; execute a small model \(experiments/host_small\.json is one\), fewer layers \(model\.layers\) or fewer ranks \(parallel\.dp\)$' ||
    complain "the refusal does not say how much is needed and what to do"

cat >wide.json <<'END'
{"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 262144, "intermediate_size": 1048576, "num_attention_heads": 1024,
 "num_key_value_heads": 1024, "vocab_size": 1000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu"}
END
fails 4 "backend 'host': a calibration with this model's widths needs at least " calibrate --backend host --model wide.json -o wide.profile

# ---- host: it trains ----

validate --backend host --steps 2 -o host.json >text || complain "validate on the host fails"
for category in parameters gradients optimizer activations logits; do
    expect "$category" 1 "$(grep -cE "^  $category .* equal on every rank$" text)"
done
expect "losses" 2 "$(losses host.json | wc -l)"

# Tokens are drawn evenly of 512: before training the loss is near ln 512 = 6.238.
run_loss() { # NAME OPTION...
    local name=$1
    shift
    validate --backend host --steps 1 --precision fp64 --json "$@" >"$name.json" || complain "$name fails"
    losses "$name.json"
}
packed=$(run_loss packed)
awk -v loss="$packed" 'BEGIN {exit !(loss > 5.9 && loss < 7.2)}' || complain "loss of the first step: '$packed'"
for strategy in sorted slimpack; do
    other=$(run_loss "$strategy" --set "strategy.kind=$strategy" --set schedule.kind=null)
    awk -v a="$packed" -v b="$other" 'BEGIN {d = a - b; if (d < 0) d = -d; exit !(b > 0 && d <= 1e-10 * a)}' ||
        complain "loss of packed $packed, of $strategy '$other'"
done

# ---- the picture ----

validate --backend fake --plot both.dat >/dev/null || complain "--plot of data fails"
expect "timelines in the data" 2 "$(grep -c '^# index 0: row' both.dat)"
if command -v gnuplot >/dev/null; then
    validate --backend fake --plot both.svg >/dev/null || complain "--plot fails"
    grep -q '<svg' both.svg || complain "no picture"
fi
exit "$failed"
