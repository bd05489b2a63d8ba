#!/usr/bin/env bash
# Standard output that is full or closed is an error; a reader that stops early is not. No name of the
# user's steers a terminal.
set -u
program=$1
. "$(dirname "$0")/prelude.sh"

if [ -w /dev/full ]; then
    message=$("$program" help 2>&1 >/dev/full)
    expect "exit status with a full disk" 3 "$?"
    expect "message with a full disk" \
        "error: cannot write to standard output: No space left on device" "$message"
fi

# So is any other output, with its name and the cause, once.
echo '{"model": "llama-7b", "parallel": {"tp": 4}, "workload": {"uniform": 512, "samples_per_batch": 1}}' >"$work/s.json"
for output in --plan --trace --graphml --topology --memory-snapshot; do
    [ -w /dev/full ] || continue
    message=$("$program" simulate "$work/s.json" "$output" /dev/full --quiet 2>&1 >/dev/null)
    expect "exit status of $output to a full disk" 3 "$?"
    case $message in
    "error: /dev/full: "*"No space left on device") expect "lines of $output" 1 "$(wc -l <<<"$message")" ;;
    *) expect "message of $output to a full disk" "error: /dev/full: No space left on device" "$message" ;;
    esac
done

message=$("$program" help 2>&1 >&-)
expect "exit status with stdout closed" 3 "$?"
expect "message with stdout closed" "error: cannot write to standard output: Bad file descriptor" \
    "$message"

"$program" help <&- >/dev/null 2>&-
expect "exit status with stdin and stderr closed" 0 "$?"

# 141 = 128 + SIGPIPE; by the time the program writes, its reader is gone.
late_writer() {
    {
        sleep 0.3
        "$program" help
        echo "$?" >"$work/status"
    } | true
    cat "$work/status"
}
expect "exit status with a reader that stops" 141 "$(late_writer 2>/dev/null)"
expect "the same where the parent ignores SIGPIPE" 141 \
    "$(trap '' PIPE && late_writer 2>/dev/null)"
# Names that steer a terminal are written so that they do not, by every command and on both streams.
expect_calm() { # WORD... : no control byte but the ends of lines, and no line of a name's
    "$program" "$@" >"$work/told" 2>&1
    LC_ALL=C tr -d '\n' <"$work/told" | LC_ALL=C grep -q '[[:cntrl:]]' && complain "$*: a control byte"
    grep -q '^FAKE' "$work/told" && complain "$*: a name's own line"
    true
}
esc=$(printf '\033')
# Nor does JSON, which writes such characters by their number: C1, DEL, and those that turn the direction of writing.
printf '{"model": {"name": "a\\u009b5m\\u007f\\u202e\\u2028\\u00e9", "layers": 4, "hidden": 256, "ffn": 512, "heads": 4, "vocab": 1000}}' >"$work/c1.json"
for option in --json --explain; do
    "$program" simulate "$work/c1.json" --set workload.uniform=512 $option >"$work/told" 2>/dev/null
    grep -q '"name": "a\\u009b5m\\u007f\\u202e\\u2028é"' "$work/told" || complain "$option: $(grep -a '"name"' "$work/told" | cat -v)"
done
name='m\u001b]0;title\u0007\u001b[2J\nFAKE  iteration 1 ms'
cat >"$work/names.json" <<END
{"schema": "slimpack/scenario/1",
 "model": {"name": "$name", "layers": 4, "hidden": 256, "ffn": 512, "heads": 4, "vocab": 1000},
 "cluster": {"name": "c\u001b[31m", "gpu": "g\u009b5m\nFAKE", "peak_tflops": 100, "memory_gib": 80, "hbm_gb_per_s": 1000,
             "nvlink_gb_per_s": 100, "nic_gbit_per_s": 100, "gpus_per_node": 2},
 "profile": "h100", "parallel": {"pp": 2, "dp": 2}, "workload": {"lengths": [100, 200, 300, 50]}}
END
(
    cd "$work" || exit 1
    for command in simulate "simulate --explain" compare "plan -o plan.json" "plan --check plan.json --quiet" prefill decode; do
        # shellcheck disable=SC2086
        expect_calm $command names.json
    done
    expect_calm plan --check plan.json
    expect_calm run plan.json --backend fake
    "$program" simulate names.json --json >result.json 2>/dev/null
    expect_calm report result.json -o "page${esc}[2J.html"
    "$program" simulate names.json --json >/dev/null 2>told
    expect_calm simulate "no${esc}[2J
FAKE.json"
    expect_calm simulate names.json --set "paralel${esc}.tp=2"
    expect_calm simulate names.json --set "model=no${esc}[2J"
    expect_calm simulate names.json --set "strategy.kind=no${esc}
FAKE"
    expect_calm simulate names.json "--trac${esc}e" x
    expect_calm simulate names.json --trace "none${esc}/x.json"
    expect_calm simulate names.json "-$esc"
    expect_calm "com${esc}mand"
    expect_calm help "top${esc}ic"
    printf '{"base": {"uniform_costs": {"f_ms": 1, "b_ms": 1}}, "grid": {"strategy.kind": ["packed", "p\\u001b[2J\\nFAKE"]}}' >spec.json
    expect_calm sweep spec.json -o lines.jsonl
    expect_calm sweep spec.json -o lines.jsonl --resume --csv
    printf 'tokens\n5\n\033[2J\nFAKE\n' >lengths.csv
    expect_calm lengths lengths.csv
    expect_calm lengths lengths.csv --column "to${esc}kens"
    printf 'na\033me,iteration_ms\nx\033[2J,5\n' >table.csv
    expect_calm validate --measurements table.csv
    printf '{"columns": {"na\\u001bme": "label"}}' >table.json
    expect_calm validate --measurements table.csv
    printf '{"\033": 1}' >raw.json
    expect_calm simulate raw.json
    printf '{"uniform_costs": {"f_ms": 1, "b_ms": 1, "x\\u001b[2J": 1}}' >unknown.json
    expect_calm simulate unknown.json
    expect_calm tune "mo${esc}del" --gpus 8 --context 2K
    expect_calm tune llama-7b --gpus 8 --context 2K --lengths "len${esc}"
    expect_calm reproduce "fig${esc}"
    exit "$failed"
) || failed=1
exit "$failed"
