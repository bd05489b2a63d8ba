#!/bin/sh
# run_golden.sh PROGRAM FILE [CASE]: golden cases of the command line, all of FILE or one. FILE is text in
# sections, each begun by a line with @@:
#   @@ case NAME      begins a case
#   @@ args           the arguments, one per line
#   @@ each           further arguments, as a shell takes them: the command runs once for each line, all with one
#                     exit status, and what they print stands one behind the other
#   @@ stdin          standard input (default: empty)
#   @@ file PATH      a file in the empty folder in which the program runs
#   @@ printf PATH    likewise, of bytes that printf's %b writes
#   @@ exit STATUS    expected (default 0)
#   @@ stdout         expected (default: nothing), as
#   @@ stderr
# With SP_GOLDEN_REWRITE=1 and no CASE the expectations are rewritten; read the difference before keeping it.
set -eu
program=$1 file=$2 only=${3:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset SLIMPACK_PROFILE_PATH

# A folder for each case: 001.NAME with args, stdin, exit, stdout, stderr, run/PATH and, as it stood before
# the expectations, head.
mkdir "$work/cases"
awk -v root="$work/cases" -v only="$only" '
    function open(name) { out = folder "/" name; printf "" >out }
    $1 == "@@" && $2 == "case" {
        wanted = only == "" || $3 == only
        if (wanted) {
            folder = sprintf("%s/%03d.%s", root, ++count, $3)
            system("mkdir -p \"" folder "/run\"")
        }
        out = ""
    }
    !wanted { next }
    $1 == "@@" {
        expectation = $2 == "exit" || $2 == "stdout" || $2 == "stderr"
        if (!expectation) print >(folder "/head")
        if (out != "") close(out)
        out = ""
        if ($2 == "exit") { open("exit"); print $3 >out; close(out); out = "" }
        else if ($2 == "file" || $2 == "printf") {
            path = substr($0, length("@@ " $2 " ") + 1)
            if (path ~ /\//) { parent = path; sub(/\/[^\/]*$/, "", parent); system("mkdir -p \"" folder "/run/" parent "\"") }
            open("run/" path)
            if ($2 == "printf") print path >(folder "/printf")
        } else if ($2 != "case") open($2)
        next
    }
    { if (!expectation) print >(folder "/head"); print >out }
' "$file"

failed=0
for case in "$work"/cases/*; do
    [ -d "$case" ] || { echo "$file: no case '$only'" >&2 && exit 1; }
    if [ -f "$case/printf" ]; then
        while IFS= read -r path; do
            # shellcheck disable=SC2059
            printf '%b' "$(cat "$case/run/$path")" >"$case/bytes" && mv "$case/bytes" "$case/run/$path"
        done <"$case/printf"
    fi
    set --
    while IFS= read -r line || [ -n "$line" ]; do
        set -- "$@" "$line"
    done <"$case/args"
    input=/dev/null
    [ ! -f "$case/stdin" ] || input=$case/stdin
    status=0
    if [ -f "$case/each" ]; then
        : >"$work/stdout"
        : >"$work/stderr"
        while IFS= read -r line; do
            status=0
            # shellcheck disable=SC2294
            (cd "$case/run" && eval "LC_ALL=C \"\$program\" \"\$@\" $line" <"$input" >>"$work/stdout" 2>>"$work/stderr") || status=$?
            echo "$status"
        done <"$case/each" | sort -u >"$work/exit"
    else
        (cd "$case/run" && LC_ALL=C "$program" "$@" <"$input" >"$work/stdout" 2>"$work/stderr") || status=$?
        echo "$status" >"$work/exit"
    fi
    if [ "${SP_GOLDEN_REWRITE:-0}" = 1 ]; then
        cat "$case/head"
        [ "$(cat "$work/exit")" = 0 ] || echo "@@ exit $(tr '\n' ' ' <"$work/exit" | sed 's/ $//')"
        for part in stdout stderr; do
            [ ! -s "$work/$part" ] || { echo "@@ $part" && cat "$work/$part"; }
        done
        continue
    fi
    [ -f "$case/exit" ] || echo 0 >"$case/exit"
    for part in exit stdout stderr; do
        [ -f "$case/$part" ] || : >"$case/$part"
        if ! diff -u "$case/$part" "$work/$part"; then
            echo "${case##*/}: $part is not as expected (- expected, + found)"
            failed=1
        fi
    done
done >"$work/said"
if [ "${SP_GOLDEN_REWRITE:-0}" = 1 ]; then
    [ -z "$only" ] || { echo "all cases of a file are rewritten" && exit 2; }
    cp "$work/said" "$file"
else
    cat "$work/said"
fi
exit "$failed"
