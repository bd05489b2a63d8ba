#!/usr/bin/env bash
# check_documents.sh PROGRAM SOURCE: samples as long as the context follow it in every command, a
# stated length that does not follow is told.
set -u
program=$1
. "$(dirname "$0")/prelude.sh"
cd "$work" || exit 1

rows=8
cat >train.sh <<SH
torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py --num-layers 4 --hidden-size 512 \
  --num-attention-heads 8 --seq-length 2048 --max-position-embeddings 32768 --vocab-size 32000 \
  --tensor-model-parallel-size 2 --micro-batch-size 1 --global-batch-size $rows --bf16
SH
"$program" import train.sh --set cluster=h100-8 -o imported.json --quiet >/dev/null || complain import
"$program" tune llama-7b --gpus 8 --context 2K --tokens-per-batch $((rows * 2048)) --set nodes=1 \
    --schedules 1f1b -o tuned.json --quiet >/dev/null || complain tune

# Tokens of a step are rows times the context, whatever the context is changed to.
for scenario in imported.json tuned.json; do
    for context in 1K 2K 4K; do
        want=$((rows * ${context%K} * 1024))
        "$program" plan "$scenario" --set "workload.context=$context" -o plan.json --quiet --json >plan.out ||
            complain "plan $scenario $context"
        expect "plan of $scenario with $context" "$want" \
            "$(sed -n 's/^ *"tokens": \([0-9]*\),$/\1/p' plan.out)"
        "$program" simulate "$scenario" --set "workload.context=$context" --quiet --json >simulated
        "$program" compare "$scenario" --set "workload.context=$context" --strategies packed --quiet --json >compared
        expect "compare as simulate, $scenario $context" "$(grep -m1 '"iteration_ms"' simulated | tr -d ' ')" \
            "$(grep -m1 '"iteration_ms"' compared | tr -d ' ')"
    done
done
printf '{"schema": "slimpack/sweep/1", "base": %s, "grid": {"workload.context": ["1K", "2K", "4K"]}}\n' \
    "$(cat imported.json)" >spec.json
"$program" sweep spec.json -o points.jsonl --quiet --csv >points.csv || complain sweep
ms() { "$program" simulate imported.json --set "workload.context=$1" --quiet --csv |
    sed -n 's/^iteration_ms,//p'; }
column=$(head -n 1 points.csv | tr ',' '\n' | grep -n '^iteration_ms$' | cut -d: -f1)
expect "a sweep's points as simulate has them" "$(for c in 1K 2K 4K; do ms $c; done | xargs printf '%.9g\n')" \
    "$(sed 1d points.csv | cut -d, -f"$column" | xargs printf '%.9g\n')"

# A length that is stated stays, which is told, and null takes it back.
sed 's/"workload": {/&"uniform": 2048, /' imported.json >stated.json
told() { # OPTION...
    "$program" "$@" 2>&1 >/dev/null | tr -s '\n ' ' '
}
advice="without workload.uniform (or with null)"
for command in simulate "compare --strategies packed" "plan -o told.json"; do
    case $(told $command stated.json --set workload.context=4K) in
    *"shorter than the context of 4096: workload.uniform says 2048 tokens; $advice"*) ;;
    *) complain "$command: samples shorter than the context are not told" ;;
    esac
    case $(told $command stated.json --set workload.context=4K --set workload.uniform=null) in
    *workload.uniform*) complain "$command: told of no stated length" ;;
    esac
    case $(told $command stated.json --set workload.context=1K) in
    *"2048 tokens are more than the context of 1024; $advice"*) ;;
    *) complain "$command: samples longer than the context" ;;
    esac
done
sed 's/"workload": {/&"uniform": 2048, /' spec.json >stated_spec.json
case $(told sweep stated_spec.json -o stated.jsonl) in
*"1 of 3 points: samples are shorter than the context of 4096"*"$advice"*) ;;
*) complain "sweep: samples shorter than the context are not told" ;;
esac

exit "$failed"
