#!/bin/sh
# check_channels.sh MODEL FOLDER: the model checker spin goes through every order in which messages between
# pipeline ranks can be put and done (channels.pml): none ends with ranks that wait for each other or with
# ends of a message that mean different packs. What is known to stop ranks is found: communicators that take
# turns, and a GPU with room for one kernel alone. Exit status 77 where there is no spin.
set -eu
model=$1
folder=$2
if ! command -v spin >/dev/null; then
    echo "SKIPPED: no model checker spin (Debian: spin)"
    exit 77
fi
rm -rf "$folder"
mkdir -p "$folder"
cd "$folder"
# search TEXT OPTION...: whether every end is a good one; the search is a whole one.
search() {
    text=$1
    shift
    rm -f pan*
    spin "$@" -a "$model" >translated 2>&1 || { cat translated; exit 1; }
    "${CC:-cc}" -w -DSAFETY -o pan pan.c
    ./pan -m100000 >found 2>&1
    if grep -q "max search depth too small\|out of memory" found || ! grep -q "errors: [01]$" found; then
        cat found
        exit 1
    fi
    echo "$text: $(grep -o 'errors: .*' found), $(sed -n 's/^ *\([0-9]*\) states, stored.*/\1 states/p' found)"
    grep -q "errors: 0$" found
}
must_find() { # FAULT TEXT OPTION...
    fault=$1
    shift
    if search "$@" || ! grep -q "$fault" found; then
        echo "$1: not found: $fault"
        exit 1
    fi
}
search "3 ranks, 3 packs"
search "2 ranks, 4 packs" -DP=2 -DM=4
search "3 ranks, room for 2 kernels" -DSLOTS=2
must_find "invalid end state" "2 ranks whose communicators take turns" -DP=2 -DTURNS=1
must_find "invalid end state" "3 ranks whose communicators take turns" -DTURNS=1
must_find "invalid end state" "room for 1 kernel" -DSLOTS=1
must_find "assertion violated" "a rank with another plan" -DSWAPPED=1
