#!/usr/bin/env bash
# check_budget.sh PROGRAM SOURCE [--write]: no room has more lines of C and CUDA than tests/budget allows it. A
# room that needs more says in a commit of its own what the lines buy; one that got smaller takes its number down.
set -u
source=$2
. "$(dirname "$0")/prelude.sh"
cd "$source" || exit 1

lines() {
    find sim solver backends kernels experiments tests -name 'build*' -prune -o \
        \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print |
        while IFS= read -r file; do echo "${file%/*} $(wc -l <"$file")"; done |
        awk '{ split($1, part, "/"); room = part[1] (part[2] != "" && part[1] != "kernels" ? "/" part[2] : "")
               lines[room] += $2; all += $2 }
             END { for (room in lines) print room, lines[room]; print "all", all }' | sort
}

lines >"$work/now"
if [ "${3:-}" = --write ]; then
    cp "$work/now" tests/budget
    exit 0
fi
while read -r room now; do
    allowed=$(awk -v room="$room" '$1 == room { print $2 }' tests/budget)
    [ "$now" -le "${allowed:-0}" ] || complain "$room has $now lines, its budget is ${allowed:-0} (tests/budget)"
done <"$work/now"
exit "$failed"
