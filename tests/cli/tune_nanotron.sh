#!/usr/bin/env bash
# tune_nanotron.sh PROGRAM: on the cells of the grid that nanotron's authors measured
# (experiments/published/h100_nanotron.json: models, GPUs, 4096 tokens, a global batch of 256 rows)
# `tune` answers what trying every point does.
set -u
program=$1
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

model() { # NAME LAYERS HIDDEN FFN HEADS KV_HEADS
    cat >"$1.json" <<MODEL
{"model_type": "llama", "num_hidden_layers": $2, "hidden_size": $3, "intermediate_size": $4, "num_attention_heads": $5,
 "num_key_value_heads": $6, "vocab_size": 131072, "tie_word_embeddings": true}
MODEL
}
model 1B 16 2048 8192 32 32
model 8B 32 4096 14336 32 32
model 80B 80 8192 28672 64 64
for cell in "1B 8" "1B 32" "1B 128" "8B 8" "8B 32" "8B 128" "80B 64" "80B 256"; do
    read -r name gpus <<<"$cell"
    tune() {
        "$program" tune "$name.json" --gpus "$gpus" --context 4096 --tokens-per-batch 1M --quiet \
            --set stack=nanotron-2025 "$@"
    }
    tune -o picked.json >picked.txt
    status=$?
    tune --exhaustive -o tried.json >tried.txt
    [ "$status" = "$?" ] || { echo "$cell: exit status $status, but not by trying all"; failed=1; }
    [ "$status" = 1 ] && { echo "$cell: nothing fits"; continue; }
    cmp picked.json tried.json || { echo "$cell: another pick by trying all"; failed=1; }
    echo "$cell: $(head -n 1 picked.txt)"
    sed -n 's/ points: .*/ points/p' tried.txt
done
exit "$failed"
