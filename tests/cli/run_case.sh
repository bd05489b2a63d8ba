#!/bin/sh
# run_case.sh PROGRAM CASE: one golden case of the command line. CASE is a folder with
#   args     the arguments, one per line (required)
#   stdin    standard input (default: empty)
#   files/   copied into the empty folder in which the program runs
#   stdout, stderr, exit   what is expected; a missing stdout or stderr stands for nothing, a
#                          missing exit for 0
# With SP_GOLDEN_REWRITE=1 the expectations are rewritten; read the difference before keeping it.
set -eu
program=$1 case=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/run"
if [ -d "$case/files" ]; then
    cp -R "$case/files/." "$work/run"
fi

set --
while IFS= read -r line || [ -n "$line" ]; do
    set -- "$@" "$line"
done <"$case/args"

input=/dev/null
if [ -f "$case/stdin" ]; then
    input=$case/stdin
fi
unset SLIMPACK_PROFILE_PATH
status=0
(cd "$work/run" && LC_ALL=C "$program" "$@" <"$input" >"$work/stdout" 2>"$work/stderr") || status=$?
echo "$status" >"$work/exit"

if [ "${SP_GOLDEN_REWRITE:-0}" = 1 ]; then
    for part in stdout stderr; do
        if [ -s "$work/$part" ]; then
            cp "$work/$part" "$case/$part"
        else
            rm -f "$case/$part"
        fi
    done
    cp "$work/exit" "$case/exit"
    exit 0
fi

: >"$work/nothing"
echo 0 >"$work/zero"
failed=0
for part in exit stdout stderr; do
    expected=$case/$part
    if [ ! -f "$expected" ]; then
        expected=$work/nothing
        if [ "$part" = exit ]; then
            expected=$work/zero
        fi
    fi
    if ! diff -u "$expected" "$work/$part"; then
        echo "$part is not as expected (- expected, + found)"
        failed=1
    fi
done
exit "$failed"
