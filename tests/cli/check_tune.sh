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
exit "$failed"
