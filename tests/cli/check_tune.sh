#!/usr/bin/env bash
# check_tune.sh PROGRAM: the answer of `tune` is the fastest of an exhaustive search, simulates to
# what was told, and is the same for any number of threads.
set -u
program=$1
. "$(dirname "$0")/prelude.sh"
program=$(all_of "$program")
cd "$work" || exit 1

# The number or text behind a key, of the first object that has it.
value() { # KEY FILE
    grep -o "\"$1\": [^,}]*" "$2" | head -n 1 | cut -d ' ' -f 2-
}
timeless() {
    sed -E -e 's/"(solver_ms|simulate_ms)": [0-9.eE+-]+/"\1": 0/g' -e '/^  "go_on": /d' "$1"
}

cat >model.json <<MODEL
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4, "hidden_size": 512,
 "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 1000}
MODEL
seq 100 500 9000 >lengths.txt
# Of larger layers the GPU takes longer than their launches, and what packs save shows.
large=(--set model.hidden=4096 --set model.ffn=11008)

# Searches of all points take a third of the time with one way to share states, but for a full run (SP_TEST_FULL=1).
few="--set parallel.zero=1"
[ "${SP_TEST_FULL:-}" != 1 ] || few=
for question in "--context 8K --tokens-per-batch 64K" "--context 9000 --lengths lengths.txt --tokens-per-batch 16K $few"; do
    compares_values || [ "$question" = "--context 8K --tokens-per-batch 64K" ] || break
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
        front { if (n++ && ($1 < ms || $2 > gib)) print "not a front:", $0; ms = $1; gib = $2 }
        END { if (n < 2) print "no front" }' >front.txt
    [ -s front.txt ] && complain "$question: $(cat front.txt)"
done
# A strategy that leaves tokens out is compared for as many tokens, with its share: its step alone would be faster.
# Recomputation and sharding are stated: else points that are taken to be slower are left out, and the cost is a range.
lossy() { "$program" tune model.json --gpus 2 --context 9000 --lengths lengths.txt --tokens-per-batch 32K --strategies packed,balanced --set memory.recompute=none --set parallel.zero=1 "${large[@]}" --quiet "$@"; }
lossy >lossy.txt
lossy --json >lossy.json
stated=$("$program" tune model.json --gpus 2 --context 9000 --set workload.lengths=lengths.txt --tokens-per-batch 32K --strategies packed,balanced --set memory.recompute=none --set parallel.zero=1 "${large[@]}" --quiet)
expect "lengths that --set states" "$(head -n 1 lossy.txt)" "$(head -n 1 <<<"$stated")"
head -n 1 lossy.txt | grep -q ', packed: ' || complain "$(head -n 1 lossy.txt)"
grep -qE '^  strategy +packed best, balanced \+[0-9.]+ % \([0-9.]+ % of tokens left out\)$' lossy.txt || complain "no share: $(grep '^  strategy ' lossy.txt)"
grep -oE 'balanced that [a-z 0-9.]*costs -?[0-9.]+ %[^;]*' lossy.txt | grep -vE 'costs [0-9.]+ % for as many tokens \([0-9.]+ % of tokens left out\)' && complain "a finding compares unequal work"
tr -d ' \n' <lossy.json | sed -n 's/.*"strategy":\[{\([^}]*\)},{\([^}]*\)}\].*/\1 \2/p' | tr -d '"' | awk '{
    for (i = 1; i <= 2; i++) { split($i, pair, ","); for (k in pair) { split(pair[k], part, ":"); of[i, part[1]] = part[2] } }
    whole = of[2, "iteration_ms"] / (1 - of[2, "left_out_share"]) / of[1, "iteration_ms"] - 1
    if (!(of[2, "iteration_ms"] < of[1, "iteration_ms"] && of[1, "left_out_share"] == 0 && sprintf("+%.1f", 100 * whole) == substr(of[2, "cost"], 1, length(sprintf("+%.1f", 100 * whole))))) print "cost", of[2, "cost"], "for", 100 * whole }' >cost.txt
[ -s cost.txt ] && complain "$(cat cost.txt)"

# So it reads without --wide, on a screen of 100 columns and 40 lines.
if compares_values; then
    plain=$(dirname "$program")/plain
    ln -s "$(sed -n 's/^exec "\([^"]*\)" "$command".*/\1/p' "$program")" "$plain"
    (program=$plain && lossy) >plain.txt
    head -n 1 plain.txt | grep -q ', packed: ' || complain "without --wide: $(head -n 1 plain.txt)"
    grep -q '^what another choice costs' plain.txt && complain "choices are told without --wide"
    tr -s '\n ' ' ' <plain.txt | grep -qE 'balanced that surely fits costs [0-9.]+ % for as many tokens \([0-9.]+ % of tokens left out\)' || complain "no share without --wide: $(cat plain.txt)"
    awk 'length($0) > 100 { print "longer than 100 columns: " $0 } END { if (NR > 40) print NR " lines" }' plain.txt >wide.txt
    [ -s wide.txt ] && complain "$(cat wide.txt)"
fi

# With lengths best fit is asked of stacks whose row lists it, and of no other.
with_bfd=0
for stack in trl-2025 internevo-2024 megatron-core-2025 fsdp-2024; do
    compares_values || break
    runs=$("$program" help "$stack" | tr -s '\n ' ' ' | sed -n 's/.*; strategies: \([^;]*\);.*/ \1 /p')
    asks=$("$program" tune model.json --gpus 2 --context 9000 --lengths lengths.txt --tokens-per-batch 32K --set stack=$stack --set memory.recompute=full --quiet --json |
        awk '/"choices": / { on = 1 } on && /"strategy": / { here = 1 } here && /"value": "bfd"/ { print "bfd"; exit } here && /\]/ { exit }')
    case $runs in *" bfd "*) expect "best fit of $stack" bfd "$asks" && with_bfd=$((with_bfd + 1)) ;; *) expect "best fit of $stack" "" "$asks" ;; esac
done
! compares_values || [ "$with_bfd" = 3 ] || complain "best fit is of $with_bfd stacks"

# Where the answer hardly runs what another stack would add is a time, no percents; in a document both are by the time
# that is to be expected (0.95 over the chance where that is less, of a hundredth at least).
sed 's/"num_hidden_layers": 4/"num_hidden_layers": 8/' model.json >deep.json
scarce() { "$program" tune deep.json --gpus 4 --context 8K --tokens-per-batch 128K --quiet --set parallel.pp=4 --set memory.recompute=none --set schedule.microbatch_samples=1 --set memory.limit_gib="$1" "${@:2}"; }
if compares_values; then
    scarce 1.2 | grep -qE '^the answer hardly runs; a stack with v-half would take [0-9.]+ ms \(to search among such: --any-schedule\): tp 1, cp 1, pp 4, ' || complain "an answer that hardly runs: $(scarce 1.2 | grep 'a stack with')"
    scarce 1.2 | grep -q 'would train .* faster' && complain "percents beside an answer that hardly runs"
    for limit in 1.2 1.25 2; do
        scarce $limit --json | awk 'function expected() { return ms * (chance == "" || chance >= 0.95 ? 1 : 0.95 / (chance > 0.01 ? chance : 0.01)) }
            /"iteration_ms": / { gsub(/[^0-9.]/, ""); ms = $0 + 0; chance = "" }
            /"fit_probability": / { gsub(/[^0-9.e-]/, ""); chance = $0 + 0; if (!answer) answer = expected() }
            /"added_percent": / { sub(/.*: /, ""); n++; want = 100 * (answer / expected() - 1)
                if ($0 - want > 1e-6 * (1 + want) || want - $0 > 1e-6 * (1 + want)) print "added_percent " $0 ", but " want }
            END { if (!n) print "nothing beyond the stack" }' >added.txt
        [ -s added.txt ] && complain "with $limit GiB: $(cat added.txt)"
    done
fi

# The first line tells the error or that it is not known, and no number of other steps; the choices of --json are those that are printed; the
# command to go on with leads to the answer.
asked() { "$program" tune model.json --gpus "${gpus:-8}" --context 8K --tokens-per-batch 256K --quiet "$@"; }
asked >told.txt
asked --json >told.json
head -n 1 told.txt | grep -qE ': [0-9.]+ m?s per step, [0-9.]+( [KM])? tokens/s/GPU \(error not known\), ' || complain "no error: $(head -n 1 told.txt)"
# Eight GPUs train the tokens of a step in its time: both figures have three digits.
head -n 1 told.txt | sed -E 's/.*: ([0-9.]+) (m?s) per step, ([0-9.]+) ?([KM]?) tokens.*/\1 \2 \3 \4/' |
    awk '{ s = $1 / ($2 == "ms" ? 1e3 : 1); rate = $3 * ($4 == "M" ? 1e6 : $4 == "K" ? 1e3 : 1); share = 8 * rate * s / (256 * 1024)
           exit !(share > 0.98 && share < 1.02) }' || complain "not the tokens of a step: $(head -n 1 told.txt)"
within=$(head -n 1 told.txt | sed -n -e 's/.*the next \([0-9]*\) are within it.*/\1/p' -e 's/.*the 2nd is within it.*/1/p')
expect "points within the error" "${within:-0}" "$(value within_error told.json)"
# Where steps like it were logged the error is known, and so many points lie within it.
if compares_values; then
    logged() { "$program" tune llama-3-8b --gpus 16 --context 8K --tokens-per-batch 512K --quiet --set parallel.cp=2 --set parallel.pp=1 --set memory.recompute=none --set parallel.zero=1 --top 1000 "$@"; }
    logged --json >logged.json
    median=$(value median logged.json)
    within=$(awk '/"top": / { on = 1 } /"front": / { on = 0 } on && /"iteration_ms"|"fit_probability"|"fits"/' logged.json | tr -d '",' |
        awk -v median="$median" '$1 == "iteration_ms:" { ms = $2 } $1 == "fit_probability:" && $2 < 0.95 { ms *= 0.95 / $2 } $1 == "fits:" { if (!n++) { most = ms * (1 + median); fits = $2 } else if (ms <= most && $2 == fits) within++ } END { print within + 0 }')
    [ "$within" -gt 0 ] || complain "no point within the error"
    expect "points within the error" "$within" "$(value within_error logged.json)"
    logged | head -n 1 | grep -qE " per step, [0-9.]+( [KM])? tokens/s/GPU ±[0-9.]+ % \((the 2nd is|the next $within are) within it\), " || complain "the error: $(logged | head -n 1)"
fi
awk '/^what another choice costs/ { on = 1; next } on && !NF { exit } on && !/: / { sub(/^ +[a-z_]+ +/, ""); gsub(/, /, "\n"); print }' told.txt | sort >printed.txt
awk '/"choices": / { on = 1 } on && /\[/ { n = 0; rows = "" }
    on && /"value"/ { sub(/.*: /, ""); gsub(/[",]/, ""); choice = $0 }
    on && /"cost"/ { sub(/.*"cost": /, ""); gsub(/[",]/, ""); rows = rows choice " " $0 "\n"; n++ }
    on && /\]/ { if (n > 1) printf "%s", rows; n = 0 }' told.json | sort >listed.txt
[ -s listed.txt ] && cmp printed.txt listed.txt >/dev/null || complain "choices of --json are others: $(diff printed.txt listed.txt | head -n 5)"
go_on=$(sed -n 's/^go on with: slimpack \(.*\) && slimpack simulate best.json --timeline$/\1/p' told.txt)
eval "\"\$program\" $go_on --quiet --json" >again.json || complain "the command to go on with: $go_on"
expect "time of the command to go on with" "$(value iteration_ms told.json)" "$(value iteration_ms again.json)"
"$program" simulate best.json --quiet --json >simulated.json
expect "time of its scenario" "$(value iteration_ms told.json)" "$(value iteration_ms simulated.json)"
"$program" tune model.json --gpus 8 --lengths wikipedia --wide 2>&1 | grep -q "^error: 'tune' needs --context N also with --lengths: " ||
    complain "lengths without a context: $("$program" tune model.json --gpus 8 --lengths wikipedia --wide 2>&1)"
# Standard output is read once: the command to go on with writes a file.
asked -o - --set memory.recompute=full 2>streamed.txt >streamed.json
go_on=$(tr -s '\\\n ' ' ' <streamed.txt | sed -n 's/.*go on with: slimpack \(.*\) -o best.json && slimpack simulate best.json --timeline .*/\1/p')
rm -f best.json
{ eval "\"\$program\" ${go_on:-none} --quiet -o best.json" && "$program" simulate best.json --timeline -q; } >/dev/null || complain "the command to go on with of -o -: $(grep '^go on' -A 3 streamed.txt)"
# What does not divide is not said to need memory.
gpus=3 asked --any-schedule | grep -qE '^  pp +1 .*, 3 does not go together$' || complain "three stages of four layers: $(gpus=3 asked | grep '^  pp ')"

sed -e 's/"llama"/"mixtral"/' -e 's/LlamaFor/MixtralFor/' -e 's/}$/, "num_local_experts": 4, "num_experts_per_tok": 2}/' model.json >experts.json
"$program" tune experts.json --gpus 2 --context 8K --tokens-per-batch 64K --quiet | grep -q '^experts are split over the tp ranks' || complain "experts are not told of"

# A remedy holds: with so much more memory some step is as much faster.
expect_faster() { # MS SHARE MEMORY: tune lists a step of MS less SHARE % at most
    asked --json --top 1000 --set "memory.limit_gib=$3" | awk '/"top": / { on = 1 } /"front": / { on = 0 } on && /"iteration_ms"/' |
        awk -F '[:,]' -v ms="$1" -v share="$2" '$2 <= ms * (1 - (share - 0.06) / 100) { found = 1 } END { exit !found }' ||
        complain "with $3 GiB no step takes $2 % less than $1 ms"
}
if compares_values; then
    limit=$(awk -v gib="$(value peak_memory_gib told.json)" 'BEGIN { printf "%.4f", 0.9 * gib }')
    asked --set "memory.limit_gib=$limit" >short.txt
    asked --json --set "memory.limit_gib=$limit" >short.json
    remedy=$(sed -n 's/^  memory: at least \([0-9.]*\) GiB more a GPU would save \([0-9.]*\) %: .*/\1 \2/p' short.txt)
    [ -n "$remedy" ] || complain "no memory that would help: $(sed -n '/^what limits/,/^$/p' short.txt)"
    expect_faster "$(value iteration_ms short.json)" "${remedy#* }" "$(awk -v limit="$limit" -v more="${remedy% *}" 'BEGIN { print limit + more + 0.0006 }')"
    # A remedy that fits costs what the choice costs.
    remedy=$(sed -n 's/^  what packs take over pure work.*: rows 1 that surely fits costs \([0-9.]*\) %$/\1/p' told.txt)
    asked --json --set schedule.microbatch_samples=1 >one_row.json
    expect "what rows of one sample cost" "$remedy" "$(awk -v ms="$(value iteration_ms told.json)" -v other="$(value iteration_ms one_row.json)" 'BEGIN { printf "%.1f", 100 * (other / ms - 1) }')"
fi

# What may not run is dearer than it looks: no cost is below zero, and costs of findings are those of the choices. The front is of plain times.
if compares_values; then
    risky() { "$program" tune llama-3-8b --gpus 8 --context 8K --tokens-per-batch 512K --quiet --set stack=megatron-deepspeed-2022 --top 1000 "$@"; }
    risky >risky.txt
    risky --json >risky.json
    grep -q 'costs -' risky.txt risky.json && complain "a cost below zero: $(grep 'costs -' risky.txt)"
    costs=$(sed -n 's/.*: rows 2 .*; rows 2 that runs with probability 0[.][0-9]* costs \([0-9.]*\) %$/\1/p' risky.txt)
    grep -qE "^  rows .*2 (.* to |[+])${costs:-none} %" risky.txt || complain "rows 2 cost ${costs:-nothing}: $(grep '^  rows ' risky.txt)"
    front=$(awk '/"top": / { on = 1 } /"front": / { print least; on = 0; front = 1 }
        (on || front) && /"iteration_ms"/ { gsub(/[^0-9.]/, ""); ms = $0 + 0; if (front) { print ms; exit } }
        on && /"fits": "yes"/ && (!least || ms < least) { least = ms }' risky.json)
    expect "the fastest is on the front" "${front%%$'\n'*}" "${front##*$'\n'}"
    [ "${front%%$'\n'*}" != "$(awk '/"top": / { on = 1 } on && /"iteration_ms"/ { gsub(/[^0-9.]/, ""); print $0 + 0; exit }' risky.json)" ] || complain "no faster point that may not run"
    # What is faster than the answer and may not run is said, with how much faster it is.
    expect "what was passed over" "$(awk '/"top": / { on = 1 } /"front": / { exit }
        on && /"iteration_ms"/ { gsub(/[^0-9.]/, ""); ms = $0 + 0; first = first ? first : ms }
        on && /"memory_margin_gib": [0-9]/ && (!least || ms < least) { least = ms }
        END { printf "%.1f", 100 * (first / least - 1) }' risky.json)" \
        "$(sed -n 's/^passed over: .* is \([0-9.]*\) % faster .*, but runs with probability 0[.][0-9]*$/\1/p' risky.txt)"
    # Programs get the point: with its settings it takes so much less time.
    sed -n '/^  "passed_over": {/,/^  }/p' risky.json >passed.json
    read -ra settings < <(sed -n '/"point": {/,/}/s/^ *"\([a-z_.]*\)": "*\([^",{]*\)"*,*$/--set \1=\2/p' passed.json | paste -sd ' ')
    risky "${settings[@]}" --strategies "$(value strategy passed.json | tr -d '"')" --json >there.json
    expect "what is passed over, in its place" "$(value iteration_ms passed.json)" "$(value iteration_ms there.json)"
    awk -v ms="$(value iteration_ms risky.json)" -v passed="$(value iteration_ms passed.json)" -v told="$(value faster_percent passed.json)" \
        'BEGIN { want = 100 * (ms / passed - 1); exit !(told > 0.05 && told - want < 1e-6 && want - told < 1e-6) }' || complain "faster_percent: $(cat passed.json)"
fi

# Where nothing fits: what the nearest lacks makes it fit, and less does not; the GPUs are enough (fewer are not: check_tune_fewest.sh).
asked --set memory.limit_gib=0.14 >nothing.txt 2>&1
expect "exit where nothing fits" 1 "$?"
lacks=$(sed -n 's/^error: none of .* points fits; the nearest needs [0-9.]* GiB on a GPU, \([0-9.]*\) more than the limit of 0.1400: .*/\1/p' nothing.txt)
enough=$(sed -n 's/^error: \([0-9]*\) GPUs* [ai][rs]e* enough (.*/\1/p' nothing.txt)
with() { # SIGN: with what is lacking and a little more, or less
    asked --set "memory.limit_gib=$(awk -v lacks="$lacks" -v sign="$1" 'BEGIN { print 0.14 + lacks + sign * 0.0006 }')" >/dev/null 2>&1
}
with 1 || complain "does not fit with what was lacking: $(cat nothing.txt)"
with -1 && complain "fits with less than was lacking: $(cat nothing.txt)"
# Of a stack without tensor parallelism the GPUs that are enough have none either.
asked --set memory.limit_gib=0.14 --set stack=trl-2025 2>&1 | tr '\n' ' ' | tr -s ' ' | grep -qE 'GPUs? (are|is) enough \(--gpus [0-9]+\), the fewest of .*: tp 1, cp [0-9]+, pp 1, |on up to [0-9]+ GPUs none' ||
    complain "GPUs enough for a layout that TRL does not run: $(asked --set memory.limit_gib=0.14 --set stack=trl-2025 2>&1)"
# What is written for a framework is searched within its stack, where none is stated.
for written in deepspeed:hf-trainer trl:trl-2025 torchtitan:fsdp2-2025 bridge:megatron-bridge-2025; do
    asked --emit "${written%:*}" --json --strategies packed | grep -q "\"stack\": \"${written#*:}\"" ||
        complain "--emit ${written%:*}: not within ${written#*:}"
done
asked --emit trl --set stack.loss_chunks=8 --json --strategies packed | grep -q '"stack": "trl-2025"' || complain "--emit trl beside a setting of the stack"
asked --emit trl --set stack=fsdp2-2025 --strategies packed | tr '\n' ' ' | tr -s ' ' | grep -q 'stack fsdp2-2025' || complain "--emit took the place of a stated stack"
on_gpus() { gpus=$1 asked --set memory.limit_gib=0.14 >/dev/null 2>&1; }
on_gpus "${enough:-1}" || complain "so many GPUs are not enough: $(cat nothing.txt)"

# The answer is printed before a file does not take it, and what goes to stderr comes behind it where both are one pipe.
two() { "$program" tune model.json --gpus 2 --context 32K --tokens-per-batch 64K "$@"; }
two -o /dev/full 2>&1 | cat >full.txt
expect "exit of a full disk" 3 "${PIPESTATUS[0]}"
head -n 1 full.txt | grep -q '^fastest: ' || complain "no answer before the error: $(head -n 1 full.txt)"
tail -n 1 full.txt | grep -q '^error: /dev/full: ' || complain "no error behind the answer: $(tail -n 1 full.txt)"
sed '1,/^go on with: /d' full.txt | grep -q '^warning: ' || complain "warnings stand inside the answer: $(grep -n '^warning: \|^go on' full.txt)"

# A reader that is gone takes no file with it, nor does a file that cannot be written take the document.
two --quiet -o read.json --emit megatron=read.sh | true
expect "exit without a reader" "141 0" "${PIPESTATUS[*]}"
"$program" simulate read.json --quiet >/dev/null || complain "a reader that was gone took the scenario with it"
grep -q '^torchrun ' read.sh || complain "a reader that was gone took the launch file with it"
two --json --emit megatron=/dev/full >emitted.json 2>messages
expect "exit of a launch file on a full disk" 3 "$?"
grep -q '"iteration_ms": [0-9]' emitted.json && grep -q '^error: /dev/full: ' messages || complain "no document beside a full disk: $(head -c 200 emitted.json messages)"
"$program" compare read.json --best-layout --strategies packed --json --emit megatron=/dev/full >emitted.json 2>messages
expect "exit of a comparison's launch file on a full disk" 3 "$?"
grep -q '"iteration_ms": [0-9]' emitted.json && grep -q '^error: /dev/full: ' messages || complain "no comparison beside a full disk: $(head -c 200 emitted.json messages)"

# Progress tells the best so far, on a terminal.
if command -v script >/dev/null; then
    script -qec "\"$program\" tune model.json --gpus 16 --context 8K --tokens-per-batch 1M --exhaustive" /dev/null >terminal.txt 2>&1 </dev/null
    grep -q ' s left, best [0-9.e-]* s' terminal.txt || complain "no best so far: $(tr '\r' '\n' <terminal.txt | grep -m 1 'trying layouts')"
fi

"$program" tune model.json --gpus 2 --context 8K --tokens-per-batch 64K --quiet --current parallel.tp=2 | head -n 1 |
    grep -qE '; [0-9.]+ times as fast as the current layout \([0-9.]+ m?s\)' || complain "the current layout is not compared with"

# What the user runs is also taken from a launch file or a scenario: its time is that of the imported scenario.
cat >train.sh <<'END'
torchrun --nproc_per_node 4 pretrain_gpt.py --num-layers 4 --hidden-size 512 --ffn-hidden-size 1024 --num-attention-heads 8 \
    --seq-length 8192 --max-position-embeddings 8192 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 \
    --micro-batch-size 1 --global-batch-size 8 --vocab-size 1000 --bf16
END
"$program" import train.sh -o imported.json --quiet >/dev/null 2>&1 || complain "the launch file is not read"
imported=$("$program" simulate imported.json --set model=model.json --json --quiet | sed -n 's/^  "iteration_ms": \([0-9.]*\),/\1/p')
for file in train.sh imported.json; do
    "$program" tune model.json --gpus 4 --context 8K --tokens-per-batch 64K --quiet --json --current $file >current.json
    expect "the time of $file" "$imported" "$(sed -n 's/^  "current_ms": \([0-9.]*\),*$/\1/p' current.json)"
done
# What of the file's kernels and exchanges is not the answer's is named, with the time of its layout on the answer's stack.
stack=$(grep -o '"--current: its stack is not the answer.s ([^)]*no hide_forward_gather[^)]*no fused_cross_entropy[^)]*): with the answer.s its layout takes [0-9.]* ms, ' current.json)
expect "stacks that are told to differ" 1 "$(grep -c '"--current: its stack is not' current.json)"
sed -e '/^  "stack": {/,/^  },*$/d' -e '/^    "attention": /d' imported.json >restacked.json
restacked=$("$program" simulate restacked.json --set model=model.json --set stack.gradient_reduce_dtype=fp32 --json --quiet | sed -n 's/^  "iteration_ms": \([0-9.]*\),/\1/p')
expect "the time of the layout on the answer's stack" "$(printf '%.1f' "$restacked")" "$(sed -n 's/.* takes \([0-9.]*\) ms, $/\1/p' <<<"$stack")"
"$program" tune model.json --gpus 4 --context 8K --tokens-per-batch 64K --quiet --json --current parallel.tp=2 | grep -q 'its stack is not' && complain "the answer's stack is told to be another"
# Numbers have six digits: a bucket of DeepSpeed's 5e8 numbers of two bytes is 1e9 / 2^20 MiB.
"$program" tune model.json --gpus 4 --context 8K --tokens-per-batch 64K --quiet --json --set stack=trl-2025 --current stack=fsdp-2024 |
    grep -q ', bucket_mib 0 instead of 953.674)' || complain "the sizes of buckets are told otherwise"
# A scenario is compared with within its own stack, which the command to go on with states; --set asks for another.
echo '{"model": "model.json", "cluster": "h100-8", "stack": "fsdp-2024", "parallel": {"dp": 4, "zero": 3},
 "workload": {"uniform": 8192, "context": 8192, "samples_per_batch": 8}}' >sharded.json
for asked in fsdp-2024 trl-2025; do
    "$program" tune model.json --gpus 4 --context 8K --tokens-per-batch 64K --quiet --current sharded.json $([ $asked = fsdp-2024 ] || echo --set stack=$asked) >text
    tr -s ' \n' ' ' <text | grep -qE "stack $asked .* --set stack(.name)?=$asked" || complain "the stack of the answer is not $asked: $(cat text)"
done
# Of other work that the file states the layout is timed on the answer's, which is told: half the tokens take less time.
# So many micro-batches as the work makes, whatever a file accumulates.
echo '{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 3, "zero_optimization": {"stage": 1}, "bf16": {"enabled": true}}' >accumulates.json
"$program" tune model.json --gpus 2 --context 8K --tokens-per-batch 64K --lengths wikipedia --set stack=hf-trainer --quiet --current accumulates.json | tr '\n' ' ' | grep -qE 'as the *current *layout' ||
    complain "a file that accumulates: $("$program" tune model.json --gpus 2 --context 8K --tokens-per-batch 64K --lengths wikipedia --set stack=hf-trainer --quiet --current accumulates.json 2>&1 | head -n 4)"
# The numerics of a file are the answer's: Megatron-LM sums gradients in FP32 unless it is told otherwise. The
# command to go on with and the arguments that are written state them, and --set asks for others.
kept='the answer keeps its stack.gradient_reduce_dtype fp32'
grep -q -- "--current: $kept" current.json || complain "numerics that are kept are not told"
"$program" tune model.json --gpus 4 --context 8K --tokens-per-batch 64K --quiet --current train.sh -o kept.json --emit megatron=kept.sh >/dev/null 2>&1
grep -q '"gradient_reduce_dtype": "fp32"' kept.json || complain "the answer has other sums of gradients than the file"
grep -q -- '--accumulate-allreduce-grads-in-fp32' kept.sh && ! grep -q -- '--grad-reduce-in-bf16' kept.sh || complain "written: $(grep -- grad kept.sh)"
"$program" tune model.json --gpus 4 --context 8K --tokens-per-batch 64K --current train.sh --set stack.gradient_reduce_dtype=bf16 --json >stated.json 2>/dev/null
grep -q "$kept" stated.json && complain "numerics that --set states are not kept"
"$program" tune model.json --gpus 4 --context 8K --tokens-per-batch 64K --quiet --json --current train.sh 2>/dev/null |
    grep -q 'slimpack tune .*--set stack.gradient_reduce_dtype=fp32' || complain "the command to go on with has other numerics"
# What to change in a launch file is said, and the file that is so changed takes the time of the answer.
"$program" tune model.json --gpus 4 --context 8K --tokens-per-batch 64K --quiet --wide --current train.sh >changes.txt 2>/dev/null
changed=$(tr '\\\n' '  ' <train.sh)
while IFS= read -r change; do
    read -r name value arrow new <<<"${change:2}"
    case $change in
        +*) changed="$changed $name $value" ;;
        -*) changed=$(sed "s/ $name\( $value\)\? / /" <<<"$changed ") ;;
        *) changed=$(sed "s/ $name $value / $name $new /" <<<"$changed ") ;;
    esac
done < <(sed -n '/^what to change in train.sh for it:$/,/^go on with/s/^  //p' changes.txt)
echo "$changed" >changed.sh
"$program" import changed.sh -o changed.json --quiet >/dev/null 2>&1 || complain "the changed launch file is not read: $changed"
expect "the time of the changed file" "$(sed -n 's/^    "iteration_ms": \([0-9.]*\),*$/\1/p' current.json)" \
    "$("$program" simulate changed.json --set model=model.json --json --quiet | sed -n 's/^  "iteration_ms": \([0-9.]*\),/\1/p')"
"$program" tune model.json --gpus 4 --context 8K --tokens-per-batch 64K --quiet --json --current train.sh 2>/dev/null >changes.json
expect "changes of a document" "$(grep -c '^  [ +-] --' changes.txt)" "$(grep -o '"argument": ' changes.json | wc -l)"
# So it is said of several files, each with what it has, and of a scenario that was imported as of a file that it is written as.
echo '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, "bf16": {"enabled": true}}' >ds.json
printf 'max_length: 8192\npacking: true\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 2\ngradient_checkpointing: true\nbf16: true\n' >sft.yaml
"$program" tune model.json --gpus 4 --context 8K --tokens-per-batch 64K --set memory.recompute=none --set parallel.zero=2 --set schedule.microbatch_samples=1 \
    --set parallel.tp=1 --set parallel.cp=1 --quiet --current sft.yaml --current ds.json 2>/dev/null | sed -n '/^what to change in/,/^pack/p' | sed '$d' >several.txt
tr -s ' \n' ' ' <several.txt | grep -q "^what to change in sft.yaml for it: gradient_checkpointing: true -> false trl has no argument for .*parallel.zero 2 (set by zero_stage of accelerate's file .* what to change in ds.json for it: zero_optimization.stage: 3 -> 2 " ||
    complain "changes of two files: $(cat several.txt)"
"$program" import train.sh --set model=model.json -o whole.json --quiet >/dev/null
"$program" tune whole.json --set parallel.tp=1 --quiet 2>/dev/null | tr -s ' \n' ' ' >imported.txt
"$program" tune model.json --gpus 4 --context 8K --tokens-per-batch 64K --set parallel.tp=1 --quiet --current train.sh 2>/dev/null | tr -s ' \n' ' ' >of_file.txt
expect "changes of a scenario" "$(grep -o 'what to change in train.sh for it:.* pack rows' of_file.txt | cut -d : -f 2-)" \
    "$(grep -o 'what to change in a launch file of Megatron-LM for it:.* pack rows' imported.txt | cut -d : -f 2-)"
# A launch file is written for the step and the answer that one to compare with is compared by. What it cannot ask for and
# would be faster is said with how much that costs it: so much as the answer among such.
drawn=(tune model.json --gpus 4 --context 8K --lengths wikipedia --set stack.gradient_reduce_dtype=bf16 "${large[@]}" --quiet)
"$program" "${drawn[@]}" --tokens-per-batch 256K --emit megatron=written.sh >written.txt
"$program" "${drawn[@]}" --tokens-per-batch 256K --json --emit megatron=written.sh >written.json
"$program" "${drawn[@]}" --tokens-per-batch 256K --json --current train.sh >compared.json 2>/dev/null
for key in tokens_per_step iteration_ms strategy; do
    expect "$key of --emit and --current" "$(value $key written.json)" "$(value $key compared.json)"
done
expect "rows that are written" "--global-batch-size 32" "$(grep -o -- '--global-batch-size [0-9]*' written.sh)"
"$program" "${drawn[@]}" --tokens-per-batch "$(value tokens_per_step written.json | cut -d . -f 1)" --set stack.name=megatron-core-2025 --strategies bfd --json >said.json
faster=$(awk -v all="$(value tokens_per_s said.json)" -v said="$(value tokens_per_s written.json)" 'BEGIN { printf "%.1f", 100 * (all / said - 1) }')
grep -qF "of what the launch file cannot ask for, bfd would train $faster % faster (--strategies bfd): " <(tr -s ' \n' ' ' <written.txt) ||
    complain "what a launch file costs: not $faster %: $(grep -A 1 'cannot ask for' written.txt)"
other() { "$program" tune model.json --gpus 4 --context 8K "$@" --json --current train.sh 2>/dev/null >other.json; }
grep -qE "\"--current: the file's (steps|context)" current.json && complain "the same work is told to be another: $(grep '"--current' current.json)"
other --tokens-per-batch 128K
expect "what is told of other tokens" 1 "$(grep -c '"--current: the file.s steps have 65.54 K tokens, its layout is timed with 131.07 K .*--tokens-per-batch 65536 ' other.json)"
awk -v whole="$(value current_ms other.json)" -v half="$imported" 'BEGIN {exit !(whole > 1.5 * half && whole < 2.5 * half)}' || complain "twice the tokens: $(value current_ms other.json) ms, $imported of half"
"$program" tune model.json --gpus 4 --context 4K --tokens-per-batch 64K --set model.layers=8 --json --current train.sh 2>/dev/null >other.json
expect "what is told of another model and context" 2 "$(grep -cE "\"--current: the file's (model of 4 layers|context is 8192)" other.json)"
# A layout that has no plan leaves the answer; one that is none is told before the search.
"$program" tune model.json --gpus 4 --context 8K --tokens-per-batch 64K --quiet --current parallel.pp=2 --current parallel.chunks_per_rank=2 \
    --current schedule.kind=interleaved --current schedule.microbatch_samples=8 >current.txt || complain "no answer beside a layout without a plan"
grep -q '^fastest: .*no time of the current layout: --current: schedule' current.txt || complain "no reason: $(head -1 current.txt)"
"$program" tune model.json --gpus 4 --context 8K --tokens-per-batch 64K --current parallel.pp=2 --current parallel.chunks_per_rank=3 >current.txt 2>&1
expect "exit of a layout that is none" 3 "$?"
grep -q '^error: --current: parallel.pp: ' current.txt || complain "a layout that is none: $(cat current.txt)"
"$program" tune model.json --gpus 4 --context 8K --tokens-per-batch 64K --quiet --current missing.sh >/dev/null 2>&1
expect "exit of a current file that is not there" 3 "$?"
for current in parallel.tp tp; do
    "$program" tune model.json --gpus 4 --context 8K --quiet --current $current 2>current.txt
    expect "exit of a setting without a value" 2 "$?"
    grep -q "^error: --current $current: expected parallel.tp=VALUE, or a file$" current.txt || complain "a setting without a value: $(cat current.txt)"
done
"$program" tune model.json --gpus 4 --context 8K --quiet --current model.json 2>current.txt
expect "exit of a current file without a layout" 3 "$?"
grep -q '^error: model.json: states no layout ' current.txt || complain "a file without a layout: $(cat current.txt)"

# What --set states stays: the degrees make the GPUs all the same, and what is found is the best that a search of all
# points finds there.
wide() { "$program" tune model.json --gpus 4 --context 8K --tokens-per-batch 64K --quiet "$@"; }
# Rows of the list: time, memory, strategy, tp, cp, pp, dp, zero, recompute, schedule.
points() { sed -n 's/^top,//p' | tr , ' '; }
wide --exhaustive --top 1000 --csv | points >free.txt
column() { # NAME: its number
    case $1 in tp) echo 4 ;; pp) echo 6 ;; dp) echo 7 ;; zero) echo 8 ;; recompute) echo 9 ;; kind) echo 10 ;; esac
}
for set in parallel.tp=2 parallel.dp=2 parallel.pp=4 parallel.zero=3 memory.recompute=full schedule.kind=zb-h1; do
    compares_values || [ "$set" = parallel.tp=2 ] || break
    key=${set%=*}
    at=$(column "${key##*.}")
    wide --set $set --exhaustive --top 1000 --csv | points >pinned.txt
    awk -v at="$at" -v is="${set#*=}" '$at != is || $4 * $5 * $6 * $7 != 4' pinned.txt >wrong.txt
    [ -s wrong.txt ] && complain "--set $set: $(head -n 1 wrong.txt)"
    # Without a pipeline one schedule stands for all, unless it is stated.
    [ "$key" = schedule.kind ] && continue
    best=$(awk -v at="$at" -v is="${set#*=}" '$at == is { print $1; exit }' free.txt)
    expect "--set $set" "$best" "$(head -n 1 pinned.txt | awk '{ print $1 }')"
done
expect "--set strategy.kind" slimpipe "$(wide --set strategy.kind=slimpipe --top 1 --csv | points | awk '{ print $3 }')"
expect "a schedule that is not searched" gpipe "$(wide --set schedule.kind=gpipe --top 1 --csv | points | awk '{ print $10 }')"
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
"$program" tune model.json --gpus 2 --context 8K --tokens-per-batch 100 --quiet 2>&1 | grep -q "holds no sample of the 8192 tokens" || complain "a batch below one sample was made one"
refused "context and --set workload.context exclude" 2 --set workload.context=4K
refused "strategies and --set strategy.kind exclude" 2 --strategies packed --set strategy.kind=packed

# The answer's memory comes before what is said of the current layout, whose time that is null has a reason.
wide --current memory.limit_gib=0.01 >current.txt
head -n 1 current.txt | grep -q ' of 77 GiB ([0-9.]* reserved); no time of the current layout: out of memory$' || complain "$(head -n 1 current.txt)"
wide --current memory.limit_gib=0.01 --json >current.json
wide --current memory.offload_ratio=0.5 --json | grep -q '"--current: nothing is offloaded: ' || complain "a document does not hold what the current layout warns of"
expect "a time that is null" null "$(value current_ms current.json)"
expect "its reason" '"out of memory"' "$(value current_reason current.json)"

# More ranks than samples are left out where they are no faster, not the fastest: trying all finds no other.
if compares_values; then
    few() { "$program" tune model.json --gpus 32 --context 8K --tokens-per-batch 24K --quiet --json "$@" >few.json; value iteration_ms few.json; }
    expect "with 3 samples for up to 32 ranks" "$(few --exhaustive)" "$(few)"
fi

# What does not fit is an answer for programs, too.
"$program" tune model.json --gpus 2 --context 8K --set memory.limit_gib=0.01 --quiet --json >none.json 2>messages
expect "status where nothing fits" 1 "$?"
for member in '"schema": "slimpack/tune/1"' '"answer": null' '"status": "infeasible"' '"gpus": 2' '"reason": "none of '; do
    grep -qF "$member" none.json || complain "what does not fit lacks $member: $(cat none.json)"
done

# Ctrl-C: what is known by then. Jobs in the background would ignore it otherwise.
set -m
stop_after() { # SECONDS ARGUMENT...
    seconds=$1
    shift
    "$program" "$@" --quiet >stopped.txt 2>messages &
    pid=$!
    sleep "$seconds"
    kill -INT "$pid"
    wait "$pid"
}
stop_after 1 tune llama-3-8b --gpus 256 --context 32K --lengths wikipedia --exhaustive --set jitter.gpu_cv=0
expect "status of a tune that is stopped" 130 "$?"
grep -q '^stopped by a signal before all points were tried: the fastest so far$' stopped.txt ||
    tr -s '\n ' ' ' <messages | grep -q 'error: stopped by a signal before a point that fits was found; [0-9]* of [0-9]* points were not tried' || complain "a tune that is stopped: $(head -n 2 stopped.txt messages)"
cat >many.json <<'END'
{"model": "llama-7b", "cluster": "h800-8", "parallel": {"tp": 8, "pp": 2, "dp": 2},
 "workload": {"lengths": "wikipedia", "context": 65536, "samples_per_batch": 512, "batches": 64}}
END
stop_after 1 compare many.json --strategies packed,flexsp,slimpack-zb
expect "status of a comparison that is stopped" 130 "$?"
grep -qE '^packed ' stopped.txt && grep -qE '^slimpack-zb +stopped: ' stopped.txt && grep -q '^stopped: [0-9] of 3 strategies complete' stopped.txt || complain "a comparison that is stopped: $(cat stopped.txt messages)"
# A time limit ends it, too: flexsp alone takes many times as long here, and leaves the others their part.
timeout 120 "$program" compare many.json --best-layout --strategies flexsp,packed,bfd --set workload.batches=1 --time-limit 6 --quiet >stopped.txt 2>messages
expect "status of a comparison whose time is up" 0 "$?"
head -n 1 stopped.txt | grep -qE '^stopped: (0 of 3 strategies complete, 3|1 of 3 strategies complete, 2|2 of 3 strategies complete, 1) in part' && grep -qE '^packed .* ok[ ,;]' stopped.txt && grep -qE '^bfd .* ok[ ,;]' stopped.txt ||
    complain "a comparison whose time is up: $(cat stopped.txt messages)"

# Without a list a comparison is with a baseline that can be run, not with rows padded to the context.
cat >small.json <<'END'
{"model": "llama-7b", "cluster": "h800-8", "parallel": {"tp": 8},
 "workload": {"lengths": [900, 300, 200, 4000, 1200, 700], "context": 8192}}
END
"$program" compare small.json --quiet --json >compared.json
expect "baseline without a list" '"packed" false "packed" 1.0' \
    "$(for key in baseline baseline_oom strategy speedup; do value $key compared.json; done | paste -sd ' ')"
"$program" compare small.json --quiet --strategies padded,packed --json | grep -q '"baseline": "padded"' || complain "the first of a list is the baseline"
"$program" compare small.json --quiet --strategies padded,packed --set memory.limit_gib=1 | grep -q '^speed-up: over padded, which runs out of memory' || complain "a baseline without memory"
exit "$failed"
