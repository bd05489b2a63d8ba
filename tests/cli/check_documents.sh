#!/usr/bin/env bash
# check_documents.sh PROGRAM SOURCE: samples as long as the context follow it in every command, a
# stated length that does not follow is told, and --lengths puts documents of other lengths in their
# place.
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
*"1 of 2 points: samples are shorter than the context of 4096"*"$advice"*) ;;
*) complain "sweep: samples shorter than the context are not told" ;;
esac

# Samples as long as the context make steps of more tokens, where tokens are not what is stated.
case $(told sweep spec.json -o growing.jsonl) in
*"tokens a step grow with the context"*) ;;
*) complain "sweep: steps that grow are not told" ;;
esac
sed 's/"samples_per_batch": [0-9]*/"tokens_per_batch": 16384/' spec.json >even.json
case $(told sweep even.json -o even.jsonl) in
*"tokens a step grow"*) complain "sweep: told of steps that do not grow" ;;
esac

# --lengths: documents of the file in their context, as many rows as an imported batch counts, and as many tokens a step
# as samples of a stated length had.
seq 10 7 2000 >lengths.txt
for scenario in imported.json stated.json; do
    for option in lengths.txt "- "; do
        "$program" plan "$scenario" --lengths ${option% } -o lengths.json --quiet --json <lengths.txt >plan.out ||
            complain "plan --lengths $option"
        got=$(sed -n 's/^ *"tokens": \([0-9]*\),$/\1/p' plan.out)
        packs=$(jq '.batches[0].forward_packs | length' lengths.json)
        [ "$got" -le $((rows * 2048)) ] || complain "$scenario --lengths: $got tokens of $((rows * 2048))"
        case $scenario in
        imported*) expect "rows of $scenario --lengths" $rows "$packs" ;;
        # One more document would not have fitted.
        *) [ "$got" -gt $(((rows - 1) * 2048)) ] || complain "$scenario --lengths: $got tokens of $((rows * 2048))" ;;
        esac
    done
done
"$program" simulate imported.json --lengths lengths.txt --set workload.samples_per_batch=5 --explain --quiet >explained
grep -q '"samples_per_batch": 5' explained || complain "--lengths with a stated number of samples"
grep -q '"context": 2048' explained || complain "--lengths leaves the context"
# A scenario of documents keeps its number of them.
sed 's/"workload": {/&"lengths": [100, 200], /; s/"samples_per_batch": 8/"samples_per_batch": 3/' imported.json >documents.json
"$program" simulate documents.json --lengths lengths.txt --explain --quiet >explained
grep -q '"samples_per_batch": 3' explained || complain "--lengths changes a number of documents"
"$program" compare imported.json --lengths lengths.txt --schedules 1f1b,gpipe --quiet --json >compared
expect "--lengths in compare as in simulate" \
    "$("$program" simulate imported.json --lengths lengths.txt --quiet --csv | sed -n 's/^iteration_ms,//p' | xargs printf '%.9g')" \
    "$(sed -n 's/^ *"iteration_ms": \([0-9.]*\),$/\1/p' compared | head -n 1 | xargs printf '%.9g')"

refused() { # TEXT EXIT OPTION...
    local text=$1 exit=$2 said
    shift 2
    said=$("$program" "$@" 2>&1 >/dev/null)
    expect "exit status of $*" "$exit" "$?"
    case $(tr -s '\n ' ' ' <<<"$said") in
    *"$text"*) ;;
    *) complain "$*: no '$text' in: $said" ;;
    esac
}
for command in simulate compare "plan -o never.json"; do
    refused "--lengths and --set workload.lengths exclude each other" 2 \
        $command imported.json --lengths lengths.txt --set workload.lengths=longmix
    refused "--lengths and --set workload.uniform exclude each other" 2 \
        $command imported.json --lengths lengths.txt --set workload.uniform=1K
    refused '"nowhere" is neither a built-in length distribution nor a file' 3 $command imported.json --lengths nowhere
done
refused "the plan fixes workload" 2 simulate lengths.json --lengths lengths.txt
refused "--lengths has no use with --stream" 2 plan imported.json --stream --lengths lengths.txt
refused "--lengths has no use with --check" 2 plan --check lengths.json --lengths lengths.txt
echo '[1]' >list.json
refused "expected an object" 3 simulate list.json --lengths lengths.txt

# The plan itself is JSON: --json alone says how it comes to standard output.
refused "the plan itself is JSON, which -o - prints" 2 plan imported.json --json
"$program" plan imported.json -o - --quiet >printed.json
"$program" plan --check printed.json >/dev/null || complain "plan -o - prints no plan"

# A context whose K was forgotten.
hint="the context is 8 tokens; did you mean 8K?"
for command in simulate "compare --strategies packed" "plan -o told.json"; do
    case $(told $command imported.json --set workload.context=8) in
    *"$hint"*) ;;
    *) complain "$command: no hint at a context of 8" ;;
    esac
    case $(told $command imported.json --set workload.context=64) in
    *"did you mean"*) complain "$command: a hint at a context of 64" ;;
    esac
done
sed 's/"1K"/8/' spec.json >short_spec.json
case $(told sweep short_spec.json -o short.jsonl) in
*"$hint"*) ;;
*) complain "sweep: no hint at a context of 8" ;;
esac
case $(told sweep spec.json -o again.jsonl) in
*"did you mean"*) complain "sweep: a hint at contexts of 1K and more" ;;
esac

# One point of one.
"$program" tune llama-7b --gpus 8 --context 2K --schedules 1f1b --set parallel.tp=8 --set memory.recompute=none \
    --set parallel.zero=1 --set schedule.microbatch_samples=1 --quiet >one.txt
grep -q '^1 point: 1 fits$' one.txt || complain "one point that fits: $(grep point: one.txt)"
exit "$failed"
