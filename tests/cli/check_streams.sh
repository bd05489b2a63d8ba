#!/usr/bin/env bash
# Standard output that is full or closed is an error; a reader that stops early is not.
set -u
program=$1
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expect() { # WHAT EXPECTED FOUND
    if [ "$2" != "$3" ]; then
        echo "$1: expected '$2', got '$3'"
        failed=1
    fi
}

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
exit "$failed"
