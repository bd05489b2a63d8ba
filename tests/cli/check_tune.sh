#!/usr/bin/env bash
# check_tune.sh PROGRAM: the answer of `tune` is the fastest of an exhaustive search, simulates to
# what was told, and is the same for any number of threads.
set -u
program=$1
. "$(dirname "$0")/prelude.sh"
cd "$work" || exit 1

# The number or text behind a key, of the first object that has it.
value() { # KEY FILE
    grep -o "\"$1\": [^,}]*" "$2" | head -n 1 | cut -d ' ' -f 2-
}
timeless() {
    sed -E 's/"(solver_ms|simulate_ms)": [0-9.eE+-]+/"\1": 0/g' "$1"
}

cat >model.json <<MODEL
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4, "hidden_size": 512,
 "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 1000}
MODEL
seq 100 500 9000 >lengths.txt

for question in "--context 8K --tokens-per-batch 64K" "--context 9000 --lengths lengths.txt --tokens-per-batch 32K"; do
    # shellcheck disable=SC2086
    tune() { "$program" tune model.json --gpus 2 $question --quiet --json "$@"; }
    tune -j 1 -o best.json >one.json || complain "$question: exit $?"
    tune -j 3 >three.json
    tune --exhaustive >all.json
    timeless one.json >one.txt
    timeless three.json >three.txt
    cmp one.txt three.txt || complain "$question: depends on the threads"
    [ "$(value iteration_ms one.json)" = "$(value iteration_ms all.json)" ] ||
        complain "$question: $(value iteration_ms one.json) ms, but $(value iteration_ms all.json) by trying all"
    "$program" simulate best.json --quiet --json >simulated.json || complain "$question: does not simulate"
    [ "$(value iteration_ms one.json)" = "$(value iteration_ms simulated.json)" ] ||
        complain "$question: $(value iteration_ms one.json) ms, but $(value iteration_ms simulated.json) when simulated"
    # Along the front time rises and memory falls.
    "$program" tune model.json --gpus 2 $question --quiet | awk '
        /^the front/ { front = 1; getline; next }
        front && !NF { exit }
        front { if (n++ && ($1 < ms || $6 > gib)) print "not a front:", $0; ms = $1; gib = $6 }
        END { if (n < 2) print "no front" }' >front.txt
    [ -s front.txt ] && complain "$question: $(cat front.txt)"
done
"$program" tune model.json --gpus 2 --context 8K --tokens-per-batch 64K --quiet --current parallel.tp=2 | head -n 1 |
    grep -q 'x what you name as current' || complain "the current layout is not compared with"

# What --set states stays: the degrees make the GPUs all the same, and what is found is the best that a search of all
# points finds there.
wide() { "$program" tune model.json --gpus 4 --context 8K --tokens-per-batch 64K --quiet "$@"; }
points() { awk '/^iteration ms|^ +iteration ms/ { rows = 1; next } rows && !NF { exit } rows'; }
wide --exhaustive --top 1000 | points >free.txt
column() { # NAME: its number among the words of a row, in which the K of tokens and the % of the MFU are words
    case $1 in tp) echo 9 ;; pp) echo 11 ;; dp) echo 12 ;; zero) echo 13 ;; recompute) echo 14 ;; kind) echo 15 ;; esac
}
for set in parallel.tp=2 parallel.dp=2 parallel.pp=4 parallel.zero=3 memory.recompute=full schedule.kind=zb-h1; do
    key=${set%=*}
    at=$(column "${key##*.}")
    wide --set $set --exhaustive --top 1000 | points >pinned.txt
    awk -v at="$at" -v is="${set#*=}" '$at != is || $9 * $10 * $11 * $12 != 4' pinned.txt >wrong.txt
    [ -s wrong.txt ] && complain "--set $set: $(head -n 1 wrong.txt)"
    # Without a pipeline one schedule stands for all, unless it is stated.
    [ "$key" = schedule.kind ] && continue
    best=$(awk -v at="$at" -v is="${set#*=}" '$at == is { print $1; exit }' free.txt)
    expect "--set $set" "$best" "$(head -n 1 pinned.txt | awk '{ print $1 }')"
done
expect "--set strategy.kind" slimpipe "$(wide --set strategy.kind=slimpipe --top 1 | points | awk '{ print $8 }')"
expect "a schedule that is not searched" gpipe "$(wide --set schedule.kind=gpipe --top 1 | points | awk '{ print $15 }')"
refused() { # ABOUT STATUS ARGUMENT...
    about=$1 exit_status=$2
    shift 2
    wide "$@" >refused.txt 2>&1
    expect "exit of $*" "$exit_status" "$?"
    grep -qe "$about" refused.txt || complain "$*: $(cat refused.txt)"
}
refused "do not divide the 4 GPUs" 2 --set parallel.tp=3
refused "no layout of 4 GPUs" 1 --set parallel.tp=1 --set parallel.cp=1 --set parallel.pp=1 --set parallel.dp=2
refused "none of .* points fits: .*layers_per_chunk" 1 --set parallel.layers_per_chunk=3
refused "make 2 GPUs, --gpus is 4" 2 --current parallel.dp=2
refused "do not divide the 4 GPUs" 2 --current parallel.tp=3
refused "tokens-per-batch and --set workload.samples_per_batch exclude" 2 --set workload.samples_per_batch=8
refused "context and --set workload.context exclude" 2 --set workload.context=4K
refused "strategies and --set strategy.kind exclude" 2 --strategies packed --set strategy.kind=packed

# The answer's memory comes before what is said of the current layout, whose time that is null has a reason.
wide --current memory.limit_gib=0.01 >current.txt
head -n 1 current.txt | grep -q ' of 77 GiB; the current one: out of memory$' || complain "$(head -n 1 current.txt)"
wide --current memory.limit_gib=0.01 --json >current.json
expect "a time that is null" null "$(value current_ms current.json)"
expect "its reason" '"out of memory"' "$(value current_reason current.json)"
exit "$failed"
