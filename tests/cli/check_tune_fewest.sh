#!/usr/bin/env bash
# check_tune_fewest.sh PROGRAM: where no point fits, the GPUs that `tune` names are enough and no fewer are, and
# the switches that it names fit, or do not, as it says.
set -u
program=$1
. "$(dirname "$0")/prelude.sh"
cd "$work" || exit 1

cat >model.json <<MODEL
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 12, "hidden_size": 1536,
 "intermediate_size": 4096, "num_attention_heads": 12, "num_key_value_heads": 12, "vocab_size": 32000}
MODEL
fits() { # ARGUMENT...
    "$program" tune "$@" --quiet --json >fits.json 2>/dev/null
}
how_it_fits() { grep -m 1 -o '"fits": "[a-z]*"' fits.json | cut -d '"' -f 4; }
tight=0
# The values of a key in one line each, as text.
values() { # KEY
    tr -d '\n' <nothing.json | grep -o "\"$1\": *\(\[[^]]*\]\|[^,}]*\)" | sed 's/^[^:]*: *//; s/ *$//'
}
# A question, then GPUs that are fewer than those it names, of a cluster of nodes of 8.
question() { # GPUS ARGUMENT..., the last of which states the limit
    gpus=$1
    shift
    about="$gpus GPUs, $*"
    limit=${about##*memory.limit_gib=}
    "$program" tune model.json --gpus "$gpus" "$@" --quiet --json >nothing.json 2>messages
    expect "$about: exit" 1 "$?"
    enough=$(values fewest_gpus)
    well=$(values fewest_gpus_well)
    tightly=
    [ "$well" = "$enough" ] || tightly=" but tightly \(fit_probability 0\.[0-9]+\); ($well do well \(--gpus $well\)|no more that were tried do well);"
    tr -s '\n ' ' ' <messages | grep -qE " $enough GPUs? (is|are) enough \(--gpus $enough\)${tightly:-,} the fewest of 1, 2, 4 or whole nodes of 8: " ||
        complain "$about: other GPUs than $enough are told: $(cat messages)"
    fits model.json --gpus "${enough:-1}" "$@" || complain "$about: $enough GPUs are not enough"
    # The answer at the fewest fits tightly where that is said, and well at those that are told to do well.
    if [ -n "$tightly" ]; then
        expect "$about: $enough GPUs" tight "$(how_it_fits)"
        fits model.json --gpus "$well" "$@"
        expect "$about: $well GPUs" yes "$(how_it_fits)"
        tight=$((tight + 1))
    fi
    for fewer in 1 2 4 $(seq 8 8 $((enough - 1))); do
        [ "$fewer" -lt "$enough" ] && fits model.json --gpus "$fewer" "$@" && complain "$about: $fewer GPUs are enough, $enough are told"
    done
    # Each switch alone, or two of them, with what they lack: fit exactly where that is said.
    mapfile -t sets < <(values set | tr -d '[]"' | tr -s ' ')
    mapfile -t fit < <(values fits)
    mapfile -t lacks < <(values lacks_gib)
    expect "$about: switches" "$(values saves_gib | wc -l)" "${#sets[@]}"
    for i in "${!sets[@]}"; do
        options=()
        for set in ${sets[i]//,/ }; do options+=(--set "$set"); done
        tr -s '\n ' ' ' <messages | grep -qF -- "${options[*]}" || complain "$about: ${options[*]} is not told"
        fits model.json --gpus "$gpus" "$@" "${options[@]}"
        expect "$about ${options[*]}: fits" "${fit[i]}" "$([ $? = 0 ] && echo true || echo false)"
        # With what it still lacks it would fit, and with a hundredth less not.
        [ "${fit[i]}" = false ] || continue
        more() { awk -v limit="$limit" -v lacks="${lacks[i]}" -v share="$1" 'BEGIN { printf "%.5f", limit + share * lacks }'; }
        fits model.json --gpus "$gpus" "${@:1:$#-2}" "${options[@]}" --set "memory.limit_gib=$(more 1.002)" || complain "$about ${options[*]}: lacks more than ${lacks[i]} GiB"
        fits model.json --gpus "$gpus" "${@:1:$#-2}" "${options[@]}" --set "memory.limit_gib=$(more 0.99)" && complain "$about ${options[*]}: lacks less than ${lacks[i]} GiB"
    done
}
named() { # SET...: are told as switches, and no others
    expect "$about: switches by name" "$*" "$(values set | tr -d '[]" ' | paste -sd ' ')"
}
question 1 --context 4K --tokens-per-batch 128K --set memory.limit_gib=1.2
named memory.offload_states=1 stack.moment_bytes=1 stack=megatron-bridge-2025,model.lora_rank=16 \
    stack=trl-2025,model.lora_rank=16,model.frozen_weights=4bit-double
# A stack runs what its row lists: nanotron none of them, TRL all: the loss, two of Adam's, LoRA and QLoRA.
question 1 --context 4K --tokens-per-batch 128K --set stack=nanotron-2025 --set memory.limit_gib=2
named
question 1 --context 4K --tokens-per-batch 128K --set stack=trl-2025 --set memory.limit_gib=2.5
expect "what TRL has" "stack.loss_chunks=8 memory.offload_states=1 stack.moment_bytes=1 model.lora_rank=16 model.lora_rank=16,model.frozen_weights=4bit-double" \
    "$(values set | tr -d '[]" ' | head -n 5 | paste -sd ' ')"
# What is stated is no switch again, and recomputation is one where it was stated.
question 1 --context 4K --tokens-per-batch 128K --set stack=trl-2025 --set model.lora_rank=16 --set memory.recompute=none --set memory.limit_gib=5
values set | grep -q 'memory.recompute=full' || complain "recomputation is no switch: $(values set)"
values set | grep -q 'lora_rank' && complain "LoRA is named beside LoRA"

# Lengths of a file are read anew for each number of GPUs that is asked about.
seq 100 100 4000 >lengths.txt
question 1 --context 4K --tokens-per-batch 128K --lengths lengths.txt --strategies packed --set memory.limit_gib=1.2

# In host memory a node has 12 bytes of a parameter in fp32 (weights, two moments) and a copy of gradient and weight in
# bf16 (2 each); norms, of which ranks of tp hold the same, are less than a thousandth.
question 2 --context 4K --tokens-per-batch 128K --set memory.limit_gib=1.1
values host_gib | head -n 1 | awk '{ p = 2 * 32000 * 1536 + 12 * (4 * 1536 ^ 2 + 3 * 1536 * 4096)
    told = $1 * 2 ^ 30 / (16 * p); exit !(told > 0.999 && told < 1.001) }' || complain "host memory of a node: $(values host_gib)"
[ "$tight" -gt 0 ] || complain "nothing fits tightly"

# A stop before the end of what is tried keeps the nearest so far.
"$program" tune llama-3-70b --gpus 256 --context 8K --set memory.limit_gib=0.2 --time-limit 1 --quiet 2>messages
tr -s '\n ' ' ' <messages >message
grep -q 'error: the time of --time-limit is up' message && grep -q '; 0 of [0-9]* points were not tried' message &&
    ! grep -qE 'error: the nearest that was tried needs [0-9.]+ GiB on a GPU, [0-9.]+ more than the limit of 0.2000: tp ' message &&
    complain "a stop loses the nearest: $(cat message)"
grep -qE 'error: (the time of --time-limit is up|none of)' message || complain "a stop where nothing fits: $(cat message)"
exit "$failed"
