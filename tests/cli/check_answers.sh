#!/usr/bin/env bash
# check_answers.sh PROGRAM SOURCE: every prediction is told with its error, or with the reason why it
# has none, and with the memory that it leaves; steps that fit tightly are warned of and not picked.
set -u
program=$1
plain=$1 # as people see it
. "$(dirname "$0")/prelude.sh"
program=$(all_of "$program")
cd "$work" || exit 1
unset SLIMPACK_PROFILE_PATH

# The first value of a key in indented JSON, without quotes.
value() { # FILE KEY
    sed -n "s/^ *\"$2\": \(.*[^,]\),*\$/\1/p" "$1" | head -1 | tr -d '"'
}

cat >logged.json <<'PROFILE'
{"schema": "slimpack/profile/1", "name": "logged", "gpu": "H100",
 "gemm_model": {"tflops": 400, "level": "fitted", "source": "round numbers"},
 "attention": {
   "forward_causal": {"level": "fitted", "source": "round numbers", "points": [[1024, 400]]},
   "backward_causal": {"level": "fitted", "source": "round numbers", "points": [[1024, 400]]}},
 "memory": {"gb_per_s": 2000, "level": "fitted", "source": "round numbers"},
 "kernel": {"us": 0, "level": "fitted", "source": "round numbers"},
 "links": {"nvlink_gb_per_s": 200, "nvlink_latency_us": 4, "nic_efficiency": 0.8, "nic_latency_us": 10,
   "level": "fitted", "source": "round numbers"},
 "optimizer": {"bytes_per_parameter": 16, "level": "fitted", "source": "round numbers"},
 "errors": [
   {"scope": "all steps", "steps": 607, "median": 0.03, "p90": 0.081, "bias": -0.01, "source": "made",
    "when": {"gpus": [2, 64], "context": [4096, 8192], "cluster": "h100-8", "lengths": "uniform"}},
   {"scope": "steps on one node", "steps": 40, "median": 0.012, "p90": 0.02, "bias": 0.001, "source": "made",
    "when": {"gpus": [2, 8], "context": [4096, 8192], "cluster": "h100-8", "lengths": "uniform"}}]}
PROFILE
cat >s.json <<'SCENARIO'
{"model": "llama-7b", "cluster": "h100-8", "profile": "./logged.json", "parallel": {"tp": 2, "pp": 2},
 "workload": {"uniform": 4096, "context": 4096, "samples_per_batch": 8}}
SCENARIO
# Words of a text that is wrapped, from `error` to the next entry.
error_of() {
    "$program" simulate s.json --quiet "$@" >text || [ $? -eq 1 ] || complain "simulate $* failed"
    sed -n '/^  error /,/^  bubble /p' text | sed '$d' | tr -s ' \n' ' ' | sed 's/^ error //; s/\. By [0-9]* other logged steps.*//; s/ $//'
}

expect "the most specific record" \
    "±1.2 % in the median, 6.6 % for nine in ten, on 40 logged steps like this (steps on one node)" "$(error_of)"
expect "a record of more GPUs" \
    "±3.0 % in the median, 12.9 % for nine in ten, on 607 logged steps like this (all steps)" \
    "$(error_of --set parallel.dp=4)"
expect "no record" \
    "not validated: no logged step has gpus 128 (logged: 2 to 64), lengths mixed (logged: uniform); the nearest logged: all steps" \
    "$(error_of --set parallel.dp=32 --set workload.uniform=2048 --set workload.samples_per_batch=512)"
expect "a profile without records" "not validated: profile h200 (assumed) has no record of logged steps" \
    "$(error_of --set profile=h200)"

# compare and sweep say it too, each row for itself.
cat >like.json <<'SCENARIO'
{"model": "llama-3-8b", "cluster": "h100-8", "parallel": {"cp": 2, "dp": 8},
 "workload": {"uniform": 8192, "context": 8192, "samples_per_batch": 64}}
SCENARIO
"$program" compare like.json --schedules 1f1b,zb-h1 --quiet >text || complain "compare of schedules failed"
grep -q '^times of zb-h1$' text || complain "one error for all schedules: $(cat text)"
# What a row warns of is told, whichever row it is, of a memory curve too.
for how in "" --memory-curve; do
    # shellcheck disable=SC2086
    "$program" compare s.json --strategies packed,slimpack --set memory.offload_ratio=0.5 \
        --set memory.limit_gib=80 $how >/dev/null 2>text || complain "compare $how with offloading failed"
    expect "warnings of rows $how" "warning: offloading: copies run at an assumed host link rate of 50 GB/s
warning: 1 of 2 rows: memory.offload_ratio 0.5 takes nothing off the peak: without copies and their buffers it is no higher" \
        "$(grep 'offload' text)"
done
"$program" compare s.json --strategies packed,ffd --quiet >text || complain "compare failed"
grep -q '^times ±1.2 % in the median' text || complain "compare tells no error: $(cat text)"
"$program" compare s.json --strategies packed --json >rows.json || complain "compare --json failed"
expect "median of a row" 0.012 "$(value rows.json median)"

# Throughput in the words of the field: tokens/s/GPU, then FLOPs by both counts, each labelled.
"$program" simulate s.json --quiet >text || complain "simulate failed"
grep -A2 -E '^  throughput +[0-9.]+ K tokens/s/GPU  \([0-9.]+ K tokens/s\)$' text |
    grep -A1 -E '^ +[0-9.]+ TFLOP/s/GPU, MFU [0-9.]+ %  \(of all pairs, as Megatron-LM counted before 2026\)$' |
    grep -qE '^ +[0-9.]+ TFLOP/s/GPU, MFU [0-9.]+ %  \(of causal pairs, as Megatron-LM counts since\)$' ||
    complain "simulate does not tell throughput: $(cat text)"
# Memory: what the limit leaves of the GPU is named, and what PyTorch's allocator would have.
grep -qE '^  peak memory +[0-9.]+ GiB of 77.00, fits' text &&
    grep -qE '^ +of 80.00 GiB, 3.00 are kept for the CUDA context \(1.0\), NCCL \(1.5\), cuBLAS and fragmentation \(0.5\)$' text &&
    grep -qE "^ +PyTorch's allocator: allocated [0-9.]+ GiB, reserved [0-9.]+ GiB$" text ||
    complain "simulate does not tell memory: $(cat text)"
"$program" simulate s.json --quiet --set memory.reserve_gib=5 >text || complain "simulate failed"
grep -qE '^ +of 80.00 GiB, 5.00 are kept for the CUDA context, NCCL, cuBLAS and fragmentation$' text ||
    complain "simulate does not tell a stated reserve: $(cat text)"
"$program" simulate s.json --quiet --set memory.limit_gib=60 >text || complain "simulate failed"
grep -q 'are kept for' text && complain "a stated limit has a reserve: $(cat text)"
"$program" compare s.json --strategies packed --quiet >text || complain "compare failed"
grep -q '^strategy .* tokens/s/GPU   limit MFU full .* TFLOP/s/GPU MFU causal ' text ||
    complain "compare does not tell throughput: $(cat text)"

# A scenario and its plan agree.
"$program" simulate s.json --json --plan plan.json --quiet >of_scenario.json || complain "no plan"
"$program" simulate plan.json --json --quiet >of_plan.json || complain "the plan cannot be simulated"
for key in median p90 bias steps scope not_validated fits memory_margin_gib tflops_per_gpu mfu_full_attention; do
    expect "$key of the plan" "$(value of_scenario.json $key)" "$(value of_plan.json $key)"
done

# With a limit barely above the peak a step fits tightly, with one below it is out of memory.
limited() { # FACTOR: peak to limit
    "$program" simulate s.json --json --quiet --set "memory.limit_gib=$(awk "BEGIN {print $peak * $1}")" >limited.json
    echo "$? $(value limited.json fits) $(value limited.json oom) $(grep -o 'memory is [a-z ]*' limited.json)"
}
peak=$(value of_scenario.json peak_memory_gib)
expect "a wide limit" "0 yes false " "$(limited 1.3)"
expect "a limit 14 % above the peak" "0 yes false memory is nearly full" "$(limited 1.14)"
expect "a limit 5 % above the peak" "0 tight false memory is tight" "$(limited 1.05)"
expect "a limit below the peak" "1 no true " "$(limited 0.99)"
"$program" simulate s.json --quiet --set "memory.limit_gib=$(awk "BEGIN {print $peak * 1.05}")" >text
grep -q 'fits TIGHTLY (margin ' text || complain "no word of a tight step: $(cat text)"
"$program" compare s.json --strategies packed --quiet --set "memory.limit_gib=$(awk "BEGIN {print $peak * 1.05}")" >text
grep -q '^packed .* tight, runs with probability 0\.[0-9]*$' text || complain "compare does not say that a row is tight: $(cat text)"

# Of blocks beyond the limit no log tells how likely the step runs.
reserved=$(value of_scenario.json peak_memory_reserved_gib)
"$program" compare s.json --strategies packed --quiet --set "memory.limit_gib=$(awk "BEGIN {print ($peak + $reserved) / 2}")" >text
grep -q '^packed .* tight, may run out of memory$' text || complain "compare tells how likely it runs: $(cat text)"

# A step whose peak is within a tenth of the limit and whose blocks are not: one word and one margin
# for it in every command, and the layout that is best is never slower than the stated one.
cat >near.json <<SCENARIO
{"model": "llama-3-8b", "cluster": "h100-8", "parallel": {"dp": 16},
 "workload": {"uniform": 8192, "samples_per_batch": 16}}
SCENARIO
"$program" simulate near.json --json --quiet >simulated.json
"$program" compare near.json --strategies packed --json --quiet >compared.json
"$program" compare near.json --strategies packed --best-layout --json --quiet >best.json
echo "{\"base\": $(cat near.json), \"grid\": {\"parallel.zero\": [1]}}" >sweep.json
"$program" sweep sweep.json -o near.jsonl --json --quiet >swept.json
expect "a peak near the limit" yes "$(value simulated.json fits)"
for key in fits memory_margin_gib peak_memory_reserved_gib; do
    in_digits() { LC_ALL=C printf '%.8s' "$(value "$1" $key)"; }
    expect "$key of compare" "$(in_digits simulated.json)" "$(in_digits compared.json)"
    expect "$key of sweep" "$(in_digits simulated.json)" "$(in_digits swept.json)"
done
awk -v best="$(value best.json iteration_ms)" -v stated="$(value best.json stated_layout_ms)" \
    -v runs="$(value best.json fit_probability)" -v stated_runs="$(value simulated.json fit_probability)" \
    'function chance(p) { return p < 0.95 ? p / 0.95 : 1 } BEGIN {exit !(best > 0 && best / chance(runs) <= stated / chance(stated_runs))}' || complain "the best layout is slower than the stated one, with their risks"
# With less memory that layout is tight: it is left out, and the row says so.
less=$(awk "BEGIN {print 1.005 * $(value simulated.json peak_memory_reserved_gib)}")
"$program" compare near.json --strategies packed --best-layout --quiet --set "memory.limit_gib=$less" >text
grep -qE '^[a-z-]+: [0-9.]+ ms left out: fits TIGHTLY \(margin [0-9.]+ GiB by what PyTorch reserves\); tp 1, cp 1, pp 1, dp 16' text ||
    complain "no word of a faster layout that fits tightly: $(cat text)"

# Every strategy at its best layout fits as simulate says of that layout: where the blocks of the
# fastest do not fit, although its bytes are far below the limit, the next one is tried.
uneven='"model": {"layers": 8, "hidden": 512, "ffn": 1024, "heads": 8, "vocab": 1000}, "cluster": "h800-8",
 "workload": {"lengths": [2900, 310, 12000, 800, 5100, 270, 1400, 7300], "order": "file"}, "memory": {"limit_gib": 1.6}'
echo "{$uneven, \"parallel\": {\"dp\": 2}}" >uneven.json
rows=packed,bytescale,chunkflow
[ "${SP_TEST_FULL:-}" != 1 ] || rows=packed,bytescale,slimpack # of a search, half of the time of all of this
compares_values || rows=packed
"$program" compare uneven.json --strategies $rows --best-layout --csv >rows.csv 2>text
# Columns of the layout by the groups of their settings; a strategy that brings its order chooses its chunks.
declare -A group=([recompute]=memory [cp_overlap]=stack [rank_tokens]=strategy [chunk_tokens]=strategy)
for name in tp cp pp dp ep etp zero chunks_per_rank; do group[$name]=parallel; done
for name in slices group exchange retained_chunks microbatch_samples; do group[$name]=schedule; done
IFS=, read -ra names <rows.csv
for row in $(echo $rows | tr , ' '); do
    declare -A of=()
    IFS=, read -ra cells < <(grep "^$row," rows.csv)
    settings=()
    for i in "${!names[@]}"; do
        name=${names[i]}
        of[$name]=${cells[i]:-}
        if [ -n "${group[$name]:-}" ] && [ -n "${cells[i]}" ] && [ "$row $name" != "slimpack chunks_per_rank" ]; then
            settings+=(--set "${group[$name]}.$name=${cells[i]}")
        fi
    done
    [ "$row" = slimpack ] || [ "$row" = chunkflow ] || settings+=(--set "schedule.kind=${of[schedule]}")
    "$program" simulate uneven.json --set strategy.kind=$row "${settings[@]}" --json --quiet >simulated.json
    expect "fits of $row at ${settings[*]}" yes "$(value simulated.json fits)"
    expect "time, margin and schedule of $row at ${settings[*]}" "${of[iteration_ms]} ${of[memory_margin_gib]} ${of[schedule]}" \
        "$(for key in iteration_ms memory_margin_gib schedule; do value simulated.json $key; done | paste -sd ' ')"
done
! compares_values || grep -qE 'left out: (fits TIGHTLY|may not fit|runs with probability)' text || complain "no strategy has a faster layout with more risk: $(cat text)"

# Passes that are written by hand exchange keys and values in their own way, also at best layouts.
"$program" compare uneven.json --strategies packed,slimpack --best-layout --quiet --set memory.limit_gib=8 \
    --set stack=reference --set strategy.time_limit_ms=50 >text || complain "no best layout of an explicit stack: $(cat text)"
code=0
"$program" simulate uneven.json --set stack=cuda --set stack.cp_overlap=a2a >text 2>&1 || code=$?
expect "status of all-to-all in an explicit stack" 3 "$code"

# The fastest point of a sweep becomes tight: another one is picked, and it is still listed.
sweep() { # LIMIT FILE: the best points, as JSON
    cat >sweep.json <<SPEC
{"schema": "slimpack/sweep/1",
 "base": {"model": "llama-7b", "cluster": "h100-8", "profile": "./logged.json", "memory": {"limit_gib": $1},
          "parallel": {"tp": 4}, "workload": {"uniform": 4096, "context": 4096, "samples_per_batch": 8}},
 "grid": {"schedule.microbatch_samples": [1, 2, 4]}}
SPEC
    rm -f results.jsonl
    "$program" sweep sweep.json -o results.jsonl --json --quiet >"$2" || complain "the sweep failed"
    sed -n 's/^ *"fits": "\([a-z]*\)",*$/\1/p' "$2" | tr '\n' ' '
}
expect "points with room" "yes yes yes " "$(sweep 1000 wide.json)"
expect "error of the best point" 0.012 "$(value wide.json median_error)"
fastest=$(value wide.json schedule.microbatch_samples)
peak=$(value wide.json peak_memory_gib)
expect "points, the fastest tight" "yes yes tight " "$(sweep "$(awk "BEGIN {print $peak * 1.02}")" narrow.json)"
[ "$(value narrow.json schedule.microbatch_samples)" != "$fastest" ] || complain "a tight step is picked"
expect "ok points" 3 "$(value narrow.json ok)"

# Whatever the limit: what is picked fits well wherever any point does, and is the fastest of those;
# where none does, the summary says in words that its first point is tight, and by how much.
cat >all.json <<SPEC
{"schema": "slimpack/sweep/1",
 "base": {"model": "llama-7b", "cluster": "h100-8", "profile": "./logged.json", "memory": {"limit_gib": LIMIT},
          "workload": {"uniform": 4096, "context": 4096, "samples_per_batch": 8}},
 "grid": {"parallel.tp": [1, 2, 4], "parallel.pp": [1, 2, 4], "schedule.microbatch_samples": [1, 2, 4],
          "memory.recompute": ["none", "full"]}}
SPEC
fastest_of() { # FITS: tokens/s of the line of results.jsonl that fits so and is fastest with its risk
    grep "\"status\":\"ok\".*\"fits\":\"$1\"" results.jsonl |
        sed 's/.*"tokens_per_s":\([0-9.e+]*\).*"fit_probability":\([0-9.e+-]*\).*/\1 \2/' |
        awk '{ chance = $2 < 0.95 ? $2 / 0.95 : 1; printf "%.17g %s\n", $1 * chance, $1 }' | sort -rg | head -1 | cut -d' ' -f2
}
seen=
limits="$(seq 7 0.5 13) 20 40 80"
compares_values || limits="7 80"
for limit in $limits; do
    sed "s/LIMIT/$limit/" all.json >sweep.json
    rm -f results.jsonl
    "$program" sweep sweep.json -o results.jsonl --json --quiet >best.json
    first=$(value best.json fits)
    expected=yes
    [ -n "$(fastest_of yes)" ] || expected=tight
    [ -n "$(fastest_of $expected)" ] || expected=
    seen="$seen$expected "
    expect "first point with a limit of $limit GiB" "$expected" "$first"
    expect "its speed" "$(fastest_of "${expected:-none}")" "$(value best.json tokens_per_s)"
    order=$(sed -n 's/^ *"fits": "\([a-z]*\)",*$/\1/p' best.json | uniq | tr '\n' ' ')
    case $order in
    "" | "yes " | "tight " | "yes tight ") ;;
    *) complain "tight points before others with a limit of $limit GiB: $order" ;;
    esac
    "$program" sweep sweep.json -o results.jsonl --resume --quiet >text 2>/dev/null
    said=$(grep -cE '^no point fits well: the first (fits TIGHTLY, with a margin of [0-9.]+|may not fit, with a margin of -[0-9.]+) GiB' text)
    expect "word of a tight pick with a limit of $limit GiB" "$([ "$expected" = tight ] && echo 1 || echo 0)" "$said"
done
! compares_values || case $seen in
*tight*yes*) ;;
*) complain "no limit at which all that fits is tight, or none at which a point fits well: $seen" ;;
esac

# A strategy that combines two others is no slower than either, without an exchange stated and with one.
cat >zones.json <<'SCENARIO'
{"model": "llama-7b", "cluster": "h800-8", "nodes": 1, "parallel": {"dp": 8},
 "workload": {"lengths": "wikipedia", "context": 65536, "tokens_per_batch": 131072, "seed": 9},
 "strategy": {"rank_tokens": 16384}, "memory": {"limit_gib": 400}}
SCENARIO
for stated in stack.name=ours stack.cp_overlap=attention; do
    compares_values || break
    "$program" compare zones.json --strategies slimpack,zeppelin,slimpack-zones --set "$stated" >compared 2>&1
    awk '$1 == "slimpack" || $1 == "zeppelin" { other[$1] = $2 } $1 == "slimpack-zones" { own = $2 }
         END { exit !(own > 0 && own <= other["slimpack"] && own <= other["zeppelin"]) }' compared ||
        complain "with $stated slower than its parts: $(cat compared)"
done

# What it has chosen for a job stands in the plan, too.
"$program" simulate zones.json --set strategy.kind=slimpack-zones --plan zones.plan --json >first 2>/dev/null
"$program" simulate zones.plan --json >again 2>/dev/null
expect "the time of its plan" "$(value first iteration_ms)" "$(value again iteration_ms)"
# `help` knows every label and heading of a result and of a comparison.
"$program" simulate s.json --quiet --set parallel.dp=2 >text || complain "simulate failed"
sed -n 's/^  \([a-z][a-z ]*[a-z]\)   *[^ ].*/\1/p' text >words
grep -q '^iteration$' words || complain "no labels: $(cat text)"
"$program" compare s.json --quiet --strategies packed,sorted >text || complain "compare failed"
for heading in "iteration ms" speed-up tokens/s/GPU TFLOP/s/GPU "MFU full" "MFU causal" bubble "peak GiB" margin imbalance gap \
    packs "solver ms" status; do
    grep -q "^strategy.* $heading " text || [ "$heading" = status ] || complain "compare has no '$heading'"
    echo "$heading" >>words
done
printf '%s\n' "busy ms" "span ms" units waiting gain "scenario ms" "longest stage" "last rank" rows chunks front extrapolated worst tight measured fitted >>words
while read -r word; do
    "$program" help "$word" >text 2>&1 || complain "help '$word': $(cat text)"
done <words

# The command that counts the tokens of documents in words is one that runs: with a tokenizer that makes a token of
# each word, of a message one more. What it writes is read as lengths.
if command -v python3 >/dev/null; then
    mkdir counted && cd counted || exit 1
    cat >transformers.py <<'end'
class AutoTokenizer:
    @staticmethod
    def from_pretrained(name):
        assert name == "MODEL", name
        return AutoTokenizer()

    def __call__(self, text):
        return type("Encoded", (), {"input_ids": text.split()})()

    def apply_chat_template(self, messages, return_dict):
        assert return_dict is False
        return [word for message in messages for word in ("<>", *message["content"].split())]
end
    echo '{"id": 7, "text": "one two three"}' >text.jsonl
    echo '{"prompt": "one two", "completion": " three"}' >parts.jsonl
    echo '{"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": ""}]}' >chat.jsonl
    echo '[{"text": "one two three"}]' >array.json
    for file in text.jsonl parts.jsonl chat.jsonl array.json; do
        "$program" lengths $file 2>told && complain "$file has no lengths"
        tr -s '\n ' ' ' <told | sed "s/.* by 'python3 /python3 /; s/' and give lengths.txt.*//" >count.sh
        PYTHONPATH=. sh count.sh || complain "$file: $(cat told)"
        expect "tokens of $file" 3 "$(cat lengths.txt)"
        "$program" lengths lengths.txt >/dev/null || complain "$file: what is counted is not read"
        rm lengths.txt
    done
    cd ..
fi

# A scenario that names its stack is answered by what that runs, and a line says what others would
# add; without a stack, with --wide and for programs all are shown.
mkdir stacked && cd stacked || exit 1
echo '{"model": "llama-7b", "cluster": "h100-8", "parallel": {"dp": 8},
 "workload": {"lengths": [900, 310, 4000, 800, 2100, 270, 1400, 3300], "samples_per_batch": 32}}' >s.json
rows_of() { # ARGUMENT...: names of the rows that people see
    "$plain" compare s.json --quiet "$@" >text || complain "compare $* failed"
    sed -n '/^strategy /,/with --wide/p' text | sed '1d;$d' | sed -nE 's/^([a-z][-a-z]*) +[^ ].*/\1/p' | sort
}
"$program" compare s.json --set stack=megatron-core-2025 --quiet --json >all.json || complain "no comparison as JSON"
# "NAME STATUS TOKENS/S BEYOND"
tr -d '",' <all.json | awk '$1 == "tokens_per_s:" {rate = $2} $1 == "strategy:" {name = $2} $1 == "status:" {status = $2}
    $1 == "beyond_stack:" {beyond = 1} /^    }/ {print name, status, rate, beyond + 0; beyond = 0}' >all
expect "rows of a stack" "$(awk '$4 == 0 {print $1}' all | sort)" "$(rows_of --set stack=megatron-core-2025)"
said=$(tr -s ' \n' ' ' <text | grep -oE 'beyond the stack: [0-9]+ strategies of [0-9]+ are shown; of the others [a-z-]+ would be fastest')
expect "what others would add" "beyond the stack: $(grep -c ' 0$' all) strategies of $(wc -l <all) are shown" "${said%;*}"
best=$(echo "$said" | sed -E 's/.* others (.*) would.*/\1/')
grep -qE "^$best ok .* 1\$" all || complain "the stack runs the fastest of the others, '$best'"
"$plain" compare s.json --quiet >text
! grep -q '^beyond the stack' text || complain "a scenario without a stack is held to one: $(cat text)"
"$program" compare s.json --quiet --wide --set stack=megatron-core-2025 >text
! grep -q '^beyond the stack' text || complain "--wide does not show all: $(cat text)"

# Files of two frameworks that launch one job are written at once and read back as one.
"$program" simulate s.json --quiet --set stack=trl-2025 --set parallel.zero=3 --set workload.uniform=4096 \
    --set workload.lengths=null --emit trl=sft.yaml --emit accelerate=accelerate.yaml >text || complain "two files are not written"
"$program" import sft.yaml accelerate.yaml --quiet -o again.json >text || complain "two files are not read"
expect "what two files say" "8 3 trl-2025 bfd" \
    "$(value again.json dp) $(value again.json zero) $(value again.json name) $(value again.json kind)"
cd ..
exit "$failed"
