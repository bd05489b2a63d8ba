#!/usr/bin/env bash
# check_settings.sh PROGRAM SOURCE: experiments/SCENARIO.md is what the program says of its settings, a page that
# differs is noticed, every key, section and list has a page of its own, values may be written as people write them, and
# the largest value of every number ends in an answer or a refusal.
set -euo pipefail
program=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$source/experiments/settings_page.sh" --check "$program"

mkdir "$work/experiments"
cp "$source/experiments/settings_page.sh" "$work/experiments"
sed 's/^| `parallel.pp` |/| `parallel.qq` |/' "$source/experiments/SCENARIO.md" >"$work/experiments/SCENARIO.md"
if "$work/experiments/settings_page.sh" --check "$program" >"$work/difference"; then
    echo "a changed page is not noticed"
    exit 1
fi
grep -q '^+| `parallel.pp`' "$work/difference"

failed=0
for key in $("$program" help settings | sed -n 's/^\([a-z][a-z0-9_.]*\)  .*/\1/p'); do
    "$program" help "$key" | grep "^$key: " >/dev/null || { echo "no page of '$key'"; failed=1; }
    grep -q "^| \`$key\` |" "$source/experiments/SCENARIO.md" || { echo "'$key' is not in SCENARIO.md"; failed=1; }
done
for topic in settings models clusters strategies schedules stacks profiles distributions parallel memory model; do
    [ "$("$program" help "$topic" | wc -l)" -gt 3 ] || { echo "nothing on '$topic'"; failed=1; }
done

# Tokens in binary thousands, a model in another spelling, and dp from the nodes.
echo '{"model": "LLaMA2_13B", "cluster": "h800-8", "nodes": 2, "parallel": {"tp": 4}, "workload": {"lengths": [9, 7]}}' \
    >"$work/s.json"
"$program" simulate "$work/s.json" --set workload.context=128K --explain --quiet >"$work/resolved"
for line in '"context": 131072' '"name": "llama-2-13b"' '"dp": 4'; do
    grep -q "$line" "$work/resolved" || { echo "no line $line in the resolved scenario"; failed=1; }
done

# The parts of a config.json that are left out are said, on the screen, in the result and in the resolved document.
echo '{"model_type": "mistral3", "vision_config": {"model_type": "pixtral"}, "image_token_index": 10,
       "text_config": {"model_type": "mistral", "hidden_size": 1024, "intermediate_size": 2816, "vocab_size": 1024,
                       "num_attention_heads": 16, "num_hidden_layers": 4, "sliding_window": null, "alibi": true}}' \
    >"$work/sees.json"
echo '{"model": "sees.json", "workload": {"uniform": 1024}}' >"$work/s.json"
"$program" simulate "$work/s.json" --explain --wide >"$work/resolved" 2>"$work/err"
"$program" simulate "$work/s.json" --json --quiet >"$work/result"
for file in err result; do
    for words in 'beside the text model: vision_config is left out' 'passed over, whatever they change: alibi'; do
        grep -q "$words" "$work/$file" || { echo "'$words' is not said ($file)"; failed=1; }
    done
done
grep -q '"ignored_parts": "vision_config"' "$work/resolved" || { echo "the resolved model has all parts"; failed=1; }

# A resolved document states the cut of layers that was searched, and gives the figures of the search.
cut=0
for kind in packed slimpack slimpack-zb chunkflow; do
    echo '{"model": {"layers": 30, "hidden": 2048, "ffn": 5632, "heads": 16, "vocab": 64000}, "cluster": "h100-8",
           "parallel": {"pp": 4, "stage_layers": "auto"}, "strategy": {"kind": "'$kind'"},
           "workload": {"lengths": "longmix", "context": 8192, "samples_per_batch": 16}}' >"$work/auto.json"
    "$program" simulate "$work/auto.json" --explain --quiet | sed -n '1,/^}/p' >"$work/pinned.json"
    ! grep -q '"stage_layers": \[' "$work/pinned.json" || cut=$((cut + 1))
    for document in auto pinned; do
        "$program" simulate "$work/$document.json" --json --quiet |
            sed 's/"\(solver_ms\|simulate_ms\)": *[0-9.e-]*/"\1": 0/g' >"$work/of_$document"
    done
    cmp -s "$work/of_auto" "$work/of_pinned" || { echo "$kind: the resolved document has other figures"; failed=1; }
done
[ "$cut" -ge 3 ] || { echo "layers were cut in $cut documents"; failed=1; }

# The status and the first error of a simulation with a setting.
ends() { # SCENARIO SETTING...
    local scenario=$1 status=0
    shift
    timeout 60 "$program" simulate "$scenario" --quiet "${@/#/--set=}" >"$work/out" 2>"$work/err" || status=$?
    case $status in 0 | 1 | 3 | 4) ;; *) return 1 ;; esac
    ! grep -qwi 'nan\|-nan\|inf' "$work/out"
}
echo '{"model": "llama-7b", "cluster": "h800-8", "parallel": {"tp": 2, "pp": 2, "dp": 2},
       "workload": {"lengths": [5000, 300, 7000, 20, 900, 4000, 8192, 1], "context": 8192}}' >"$work/usual"
# So many batches and samples are a matter of minutes and of memory, not of sums.
sed -n 's/^| `\([a-z0-9_.]*\)` | an* \(integer\|number\) from [-0-9.e+]* to \([0-9.e+]*\)[ ;].*/\1=\3/p' \
    "$source/experiments/SCENARIO.md" |
    grep -v '^prefill\|^decode\|^uniform_costs\|^workload.batches\|^workload.[a-z]*_per_batch' >"$work/largest"
[ "$(wc -l <"$work/largest")" -gt 60 ] || { echo "few numbers in SCENARIO.md"; failed=1; }
while read -r setting; do
    ends "$work/usual" "$setting" || { echo "$setting: $(cat "$work/err")"; failed=1; }
done <"$work/largest"

# Bytes of so many layers pass what sums of them have room for: refused with the pack, not lost in differences.
echo '{"model": {"layers": 1024, "hidden": 65536, "heads": 32, "ffn": 11008, "vocab": 32000}, "cluster": "h800-8",
       "parallel": {"tp": 2}, "workload": {"lengths": [50000000], "context": 50000000}}' >"$work/deep"
for setting in strategy.kind=slimpack strategy.kind=slimpack-zb strategy.kind=chunkflow schedule.kind=slimpipe \
    schedule.kind=seq1f1b; do
    for pp in 1 4; do
        ends "$work/deep" "$setting" "parallel.pp=$pp" cluster.peak_tflops=1e9 cluster.hbm_gb_per_s=1e9 ||
            { echo "deep, $setting, pp $pp: $(cat "$work/err")"; failed=1; }
    done
done
ends "$work/deep" strategy.kind=chunkflow cluster.peak_tflops=1e9 cluster.hbm_gb_per_s=1e9
grep -q '^error: a pack of 4224 tokens takes longer, or holds more, than is simulated (lower' "$work/err" ||
    { echo "chunks of a deep model: $(cat "$work/err")"; failed=1; }
ends "$work/deep" schedule.kind=gpipe model.hidden=16384 workload.lengths=[500000] workload.context=500000 \
    workload.samples_per_batch=20000 cluster.peak_tflops=1e9 cluster.hbm_gb_per_s=1e9 || true
grep -q '^error: the packs of data-parallel rank 0 hold more bytes than are counted' "$work/err" ||
    { echo "many samples of a deep model: $(cat "$work/err")"; failed=1; }
exit "$failed"
