#!/usr/bin/env bash
# check_frozen.sh PROGRAM SOURCE [--write]: 200 random scenarios are simulated and planned; results and plans
# are the bytes whose hashes frozen.txt holds, a line each: number, exit status, hash of the result, hash of
# the plan. A change of code that is to change no answer is held to it; a change that is to change some says so
# in its commit and writes the file anew. Nothing says that a frozen answer is right: other tests do. But for a full
# run (SP_TEST_FULL=1) the twelve that take as long as twice all others together are left out: searches, of which
# others of their strategies stay.
set -u
program=$(realpath "$1")
source=$2
. "$(dirname "$0")/prelude.sh"
frozen=$source/tests/cli/frozen.txt

# The generator is Park and Miller's (minimal standard), whose products are exact in any awk.
scenarios() {
    awk 'function draw(n) { state = (state * 16807) % 2147483647; return int(state / 2147483647 * n) }
    function pick(list,    words, n) { n = split(list, words, " "); return words[1 + draw(n)] }
    function maybe(percent, text) { return draw(100) < percent ? text : "" }
    BEGIN {
        state = 20261128
        split("llama-7b|gpt3-6.7b|{\"layers\":16,\"hidden\":1024,\"ffn\":2816,\"heads\":16,\"vocab\":8000}|" \
              "{\"layers\":8,\"hidden\":1024,\"ffn\":1408,\"heads\":16,\"kv_heads\":8,\"vocab\":8000,\"experts\":8,\"experts_per_token\":2}", model, "|")
        for (i = 1; i <= 200; i++) {
            kind = pick("padded packed sorted flexsp hybrid-dp hybrid-cp zeppelin dynapipe slimpipe slimpack " \
                        "slimpack-symmetric slimpack-zb chunkflow balanced te-cp llama-cp bytescale lpfhp dp-balanced " \
                        "slimpack-zones packed-tuned")
            m = model[1 + draw(4)]
            if (m !~ /^{/) m = "\"" m "\""
            lengths = 100 + draw(900)
            for (k = 1 + draw(13); k > 0; k--) lengths = lengths "," pick("1 2 3 8 100 511 1000 2000 2047 4096 8192 20000")
            s = "{\"model\":" m ",\"parallel\":{\"pp\":" pick("1 2 2 4") ",\"dp\":" pick("1 2 2 4") ",\"cp\":" pick("1 1 2") \
                ",\"tp\":" pick("1 1 2") ",\"zero\":" draw(4) "},\"workload\":{\"lengths\":[" lengths "]," \
                maybe(50, "\"over_length\":\"" pick("split drop truncate") "\",") "\"context\":" pick("4096 8192 32768") "}" \
                ",\"strategy\":{\"kind\":\"" kind "\"},\"network\":{\"detail\":\"" pick("closed closed flows auto") "\"}"
            if (kind !~ /^(slimp|chunk)/)
                s = s maybe(70, ",\"schedule\":{\"kind\":\"" pick("1f1b gpipe interleaved zb-h1 zb-h2 zb-auto zb-v v-min " \
                                                                  "v-half dualpipe-v seq1f1b terapipe") "\"}")
            s = s maybe(40, ",\"cluster\":\"" pick("h800-8 a100-8 b200-8 h100-8") "\"")
            s = s ",\"memory\":{\"limit_gib\":" pick("60 80 200 200") \
                maybe(40, ",\"recompute\":\"" pick("full none attention activation partial-fc1") "\"") \
                maybe(15, ",\"offload_ratio\":" pick("0.5 1")) maybe(15, ",\"model\":\"slimpipe-planner\"") "}"
            print s maybe(40, ",\"stack\":{\"name\":\"" pick("reference cuda nanotron-2025 megatron-core-2025 " \
                                                         "megatron-deepspeed-2022 fsdp-2024") "\"}") "}"
        }
    }'
}

without_times() {
    sed -E 's/"(solver_ms|simulate_ms)": *[0-9.eE+-]+/"\1": 0/; s/, "row_tokens": [0-9]+//; /^  "(error_range|waiting_risk)": \{/,/^  \},?$/d; /^  "(error_range|waiting_risk|not_validated|fit_probability|row_tokens)": /d'
}
hash() {
    sha256sum | cut -c 1-16
}
one() { # NUMBER
    local at=$work/$1
    "$program" simulate "$at.json" --plan "$at.plan" --json --quiet >"$at.out" 2>"$at.err"
    local status=$?
    sed "s|$work/||g" "$at.out" | without_times >"$at.result"
    # Some are planned by `plan`, which answers as simulate does.
    if [ $(($1 % 10)) = 6 ]; then
        rm -f "$at.plan"
        "$program" plan "$at.json" -o "$at.plan" --json --quiet >/dev/null 2>"$at.err"
        status=$?
    fi
    [ -e "$at.plan" ] || : >"$at.plan"
    echo "$1 $status $(sed "s|$work/||g" "$at.err" | cat - "$at.result" | hash) $(without_times <"$at.plan" | hash)"
}
export -f one without_times hash
export program work

step=1
compares_values || step=10
scenarios | awk -v work="$work" '{ file = work "/" NR ".json"; print > file; close(file) }'
longest='26|42|61|84|99|102|105|118|144|145|173|176'
[ "${SP_TEST_FULL:-}" != 1 ] && [ "${3:-}" != --write ] || longest=none
seq 1 "$step" 200 | grep -vxE "$longest" | xargs -P "$(getconf _NPROCESSORS_ONLN)" -I{} bash -c 'one {}' | sort -n >"$work/now"
if [ "${3:-}" = --write ]; then
    cp "$work/now" "$frozen"
    exit 0
fi
if ! awk -v step="$step" 'NR % step == 1 % step' "$frozen" | grep -vE "^($longest) " | diff - "$work/now" >"$work/diff"; then
    complain "$(grep -c '^>' "$work/diff") of 200 answers are others: $(head -8 "$work/diff")"
    number=$(sed -n 's/^> \([0-9]*\) .*/\1/p' "$work/diff" | head -1)
    echo "the first: $(cat "$work/$number.json")"
fi
exit "$failed"
