#!/bin/sh
# execute_plans.sh PROGRAM FOLDER [SECONDS [SECONDS-OF-ONE]]: executes the plans that `slimpack validate SET --export
# FOLDER` wrote, as FOLDER/runs.txt says, one process of PROGRAM (slimpack) each, so that one that crashes or takes too
# long (default: all together 3600 s, one of them 120 s) does not keep those behind it. NAME.result.json of each stays
# in FOLDER, for `slimpack validate SET --executed FOLDER`. Prints a line for each. Exit status: 0 all were executed, 1
# some were not.
set -u
program=$(realpath "$1")
cd "$2" || exit 1
# Profiles that the plans name and the tree may not have.
if [ -d profiles ]; then
    export SLIMPACK_PROFILE_PATH="$PWD/profiles${SLIMPACK_PROFILE_PATH:+:$SLIMPACK_PROFILE_PATH}"
fi
end=$(($(date +%s) + ${3:-3600}))
one=${4:-120}
count=0
good=0
while read -r command plan arguments; do
    name=${plan%.json}
    count=$((count + 1))
    left=$((end - $(date +%s)))
    if [ "$left" -le 0 ]; then
        echo "$name: not executed: the time is spent"
        continue
    fi
    [ "$left" -gt "$one" ] && left=$one
    # shellcheck disable=SC2086
    timeout -k 5 "$left" "$program" "$command" "$plan" $arguments --quiet >"$name.txt" 2>&1 </dev/null
    status=$?
    case $status in
    0 | 1)
        good=$((good + 1))
        echo "$name: $(sed -n 's/^  iteration  */iteration /p' "$name.txt")"
        ;;
    124 | 137) echo "$name: ended after $left s" ;;
    *) echo "$name: status $status: $(grep -m 1 '^error: ' "$name.txt")" ;;
    esac
    rm -f "$name.txt"
done <runs.txt
echo "$good of $count plans executed"
[ "$good" -eq "$count" ]
