#!/bin/sh
# file_results.sh FOLDER: files what run.sh left in FOLDER: the profile, and that of a partition
# (GPU-1of4.json), into profiles/, everything else into experiments/results/GPU/. Refuses results of
# a machine without a GPU, and of a calibration that did not end well; what is there already is
# replaced. Steps that were executed are compared with what is predicted with those profiles, where
# slimpack is built (SP_PROGRAM, default build/slimpack): experiments/results/GPU/validate_gpu.json
# and .txt. Last, what all thresholds come to: thresholds.json and thresholds.txt, which
# experiments/readme_tables.sh shows in README.md.
#
# file_results.sh --thresholds FOLDER [VALIDATION]: the acceptance thresholds that a GPU is to reach, of what
# run.sh left in FOLDER (summary.txt, checklist.jsonl, tests.log) and, where steps were compared with
# their prediction, of `slimpack validate -o VALIDATION`. Writes FOLDER/thresholds.json
# (slimpack/gpu-thresholds/1) and prints a line for each: holds, missed, reported (one that is another
# GPU's), or not run with the reason. Exit status: 0 none was missed, 1 one was.
set -eu

look_at_thresholds() { # FOLDER [VALIDATION]
folder=$1
validation=${2:-}
: >"$folder/thresholds.json"

gpu=$(sed -n 's/.*"check":"versions".*"gpu": *"\([^"]*\)".*/\1/p' "$folder/checklist.jsonl" | head -n 1)
cat "$folder/checklist.jsonl" "$folder/tests.log" 2>/dev/null | awk -v gpu="$gpu" -v json="$folder/thresholds.json" \
    -v summary="$folder/summary.txt" -v validation="$validation" '
# The number or text of a key of a line; "" where it is not there.
function get(line, key,   at, rest) {
    at = index(line, "\"" key "\":")
    if (at == 0) { return "" }
    rest = substr(line, at + length(key) + 3)
    sub(/^ *"?/, "", rest)
    sub(/["},].*/, "", rest)
    return rest
}
function note(name, value) { seen[name]++; return value + 0 }
function most(name, value, what) {
    value = note(name, value)
    if (seen[name] == 1 || value > of[name]) { of[name] = value; where[name] = what }
}
function least(name, value, what) {
    value = note(name, value)
    if (seen[name] == 1 || value < of[name]) { of[name] = value; where[name] = what }
}
# What the summary says of a part that left nothing, or of one that failed.
function reason(part,   line, found) {
    found = "no word of " part
    while ((getline line < summary) > 0) {
        if (index(line, " " part " ") > 0) { found = line }
    }
    close(summary)
    gsub(/ +/, " ", found)
    return found
}
function failed(part) { return reason(part) ~ /^failed / }
function print_threshold(state, name, text, value, sign, bound, more) {
    gsub(/[\\"]/, "", more)
    printf "%-9s %-19s %-46s %9s %s %-6s%s\n", state, name, text, value == "" ? "-" : sprintf("%.4f", value),
        sign, bound, more == "" ? "" : "  " more
    printf "%s\n  {\"name\": \"%s\", \"text\": \"%s\", \"state\": \"%s\", \"value\": %s, \"relation\": \"%s\", \"bound\": %s, \"detail\": \"%s\"}",
        (printed++ ? "," : ""), name, text, state, value == "" ? "null" : sprintf("%.6g", value), sign, bound, more >>json
    missed += state == "missed"
}
# `part` is that which measures it: where it failed the threshold is missed, whatever it printed before.
function threshold(name, text, sign, bound, part,   good) {
    if (!seen[name]) {
        print_threshold(failed(part) ? "missed" : "not run", name, text, "", sign, bound, reason(part))
        return
    }
    good = sign == "<=" ? of[name] <= bound : of[name] >= bound
    if (good && failed(part)) { where[name] = reason(part); good = 0 }
    print_threshold(good ? "holds" : "missed", name, text, of[name], sign, bound, where[name])
}
/"gradients":/ { most("gradients", get($0, "share"), get($0, "gradients") ": " get($0, "tensor")) }
/"attention_error":/ { most("attention_accuracy", get($0, "attention_error"), "") }
/"check":"attention"/ && get($0, "partitions") == 1 && get($0, "backward") == "false" { rate = get($0, "tflops") }
/"products":/ {
    least("products", get($0, "ratio"), get($0, "kind") " " get($0, "tokens") " x " get($0, "in") " x " get($0, "out"))
    executor_us += get($0, "times") * get($0, "executor_us")
    alone_us += get($0, "times") * get($0, "alone_us")
}
/"gaps":/ && get($0, "pp") == 4 { most("gaps", get($0, "share"), get($0, "gaps") ", rank " get($0, "rank")) }
/"bench": "cuda_kernels"/ && get($0, "limit") == "copy" { least("copy_share", get($0, "ratio"), get($0, "kernel")) }
END {
    printf "{\"schema\": \"slimpack/gpu-thresholds/1\", \"gpu\": \"%s\", \"thresholds\": [", gpu >json
    print "GPU: " (gpu == "" ? "none" : gpu)
    threshold("gradients", "distance from fp64, of what bf16 explains", "<=", 1, "gradients_test")
    threshold("attention_accuracy", "relative error against fp64", "<=", 0.01, "attention_test")
    # cuDNN 9.19 on an H200: causal, forward, 8192 tokens, batch 1, 64 query and 8 key heads of 128, bf16:
    # github.com/NVIDIA/cudnn-frontend, benchmark/sdpa_benchmark_training/results/h200_919_only_cudnn.
    published = 644
    if (rate == "") {
        print_threshold("not run", "attention_rate", "forward, causal, 8192, over cuDNN on an H200", "", ">=", 0.9, reason("checklist"))
    } else {
        state = gpu !~ /H200/ ? "reported" : rate >= 0.9 * published ? "holds" : "missed"
        print_threshold(state, "attention_rate", "forward, causal, 8192, over cuDNN on an H200", rate / published, ">=", 0.9,
            rate " of " published " TFLOP/s" (state == "reported" ? ", which are those of another GPU" : ""))
    }
    if (seen["products"]) { where["products"] = where["products"] sprintf("; all together %.3f", alone_us / executor_us) }
    threshold("products", "rate in the executor over cuBLASLt alone", ">=", 0.9, "products")
    threshold("gaps", "idle between actions, of a step in 4 partitions", "<=", 0.02, "gaps")
    while (validation != "" && (getline line < validation) > 0) { report = report line }
    sub(/.*"summary":/, "", report)
    compared = get(report, "compared")
    executing = reason("execute") ~ /^no word/ ? "wall" : "execute"
    split("bubble_ratio_abs iteration_time_mape peak_memory_mape", keys, " ")
    split("bubble iteration_time peak_memory", names, " ")
    split("predicted against measured|mean error of predicted steps|mean error of predicted ranks", texts, "|")
    split("0.02 0.05 0.016", bounds, " ")
    for (i = 1; i <= 3; i++) {
        value = get(report, keys[i])
        if (value ~ /[0-9]/ && compared > 0) {
            most(names[i], value, compared " cases compared")
            threshold(names[i], texts[i], "<=", bounds[i], executing)
        } else if (reason(executing) ~ /^passed /) {
            print_threshold("not run", names[i], texts[i], "", "<=", bounds[i], "file_results.sh compares what was executed")
        } else {
            threshold(names[i], texts[i], "<=", bounds[i], executing)
        }
    }
    threshold("copy_share", "kernels bound by memory, over a copy", ">=", 0.8, "kernels")
    # A program that took too long has no findings, and is not clean either.
    while ((getline line < summary) > 0) {
        if (line !~ /^(passed|failed) *sanitizer /) { continue }
        checked++
        late += line ~ /over its limit/
        sick += line ~ /^failed/ && line !~ /over its limit/
    }
    close(summary)
    more = checked > 0 ? checked " programs" (late ? ", " late " of them over their limit" : "") : reason("sanitizer")
    state = sick ? "missed" : checked && !late ? "holds" : "not run"
    print_threshold(state, "sanitizer", "programs with findings of compute-sanitizer", checked ? sick + 0 : "", "<=", 0, more)
    printf "\n]}\n" >>json
    exit missed > 0
}'
}
if [ "$1" = --thresholds ]; then
    shift
    look_at_thresholds "$@"
    exit
fi

from=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."

if [ ! -s "$from/summary.txt" ]; then
    echo "file_results.sh: $from has no summary.txt" >&2
    exit 2
fi
if ! grep -q '^passed *calibrate ' "$from/summary.txt"; then
    echo "file_results.sh: no calibration passed:" >&2
    cat "$from/summary.txt" >&2
    exit 1
fi
# Other documents stand beside it.
profile=$(find "$from" -maxdepth 1 -name '*.json' ! -name '*-*of*.json' \
    -exec grep -l '"slimpack/profile/1"' {} + | sort | head -n 1)
if [ -z "$profile" ]; then
    echo "file_results.sh: no profile in $from" >&2
    exit 1
fi
gpu=$(basename "$profile" .json)
results=experiments/results/$gpu
mkdir -p "$results"
# Measured numbers go before published ones of the same name.
cp "$profile" "profiles/$gpu.json"
if [ -s "$from/$gpu-1of4.json" ] && grep -q '^passed *calibrate-4 ' "$from/summary.txt"; then
    cp "$from/$gpu-1of4.json" profiles/
    echo "profiles/$gpu-1of4.json"
fi
for file in summary.txt environment.txt checklist.jsonl tests.log; do
    if [ -e "$from/$file" ]; then
        cp "$from/$file" "$results/$file"
    fi
done
echo "profiles/$gpu.json"
echo "$results/"

thresholds() { # [VALIDATION]
    sh tests/gpu/file_results.sh --thresholds "$results" "$@" >"$results/thresholds.txt" || [ $? -eq 1 ]
    cat "$results/thresholds.txt"
}

# The set names the profiles of an H200: those of this GPU stand in their place.
compare() { # FOLDER PROGRAM
    mkdir "$1/profiles"
    cp "$profile" "$1/profiles/h200.json"
    partition=$profile
    if [ -s "profiles/$gpu-1of4.json" ]; then
        partition=profiles/$gpu-1of4.json
    else
        echo "no profile of a partition: what ran on one is predicted with that of the whole GPU"
    fi
    cp "$partition" "$1/profiles/h200-1of4.json"
    tar -xzf "$from/executed.tar.gz" -C "$1"
    SLIMPACK_PROFILE_PATH=$1/profiles "$2" validate experiments/validate_gpu.json --backend cuda \
        --executed "$1/executed" -o "$results/validate_gpu.json" --quiet --wide
}
if [ -e "$from/executed.tar.gz" ]; then
    program=${SP_PROGRAM:-build/slimpack}
    if [ ! -x "$program" ]; then
        thresholds
        echo "executed.tar.gz stays in $from: build slimpack ($program) and file it again"
        exit 0
    fi
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    status=0
    compare "$work" "$program" >"$results/validate_gpu.txt" 2>&1 || status=$?
    cat "$results/validate_gpu.txt"
    # 1 is an answer as well: a bound that is missed, or a case that was not executed.
    [ "$status" -le 1 ]
    thresholds "$results/validate_gpu.json"
else
    thresholds
fi
