#!/bin/sh
# check_registers.sh SOURCE NVCC: compiles the kernels for each architecture and reads what the
# assembler (ptxas -v) says of each: none keeps registers in memory, and none has more registers than
# a block of 512 threads can have of the 65536 of an SM. The block sizes are in the kernels' launch bounds.
set -eu
source=$1
nvcc=$2
most=128
fail() {
    echo "$*" >&2
    exit 1
}
for architecture in 80 90 100; do
    for file in "$source"/kernels/*.cu; do
        text=$("$nvcc" -std=c++17 -O3 -I"$source" -arch=sm_$architecture -cubin -o /dev/null \
            -Xptxas=-v "$file" 2>&1) || fail "$file, sm_$architecture: $text"
        found=$(printf '%s\n' "$text" | awk -v most=$most '
            /Compiling entry function/ { name = $0; sub(/.*function ./, "", name); sub(/. for.*/, "", name) }
            /bytes spill stores/ {
                kernels++
                if ($0 !~ / 0 bytes spill stores, 0 bytes spill loads/) { print name ": " $0; bad = 1 }
            }
            /Used [0-9]+ registers/ {
                used = $0; sub(/.*Used /, "", used); sub(/ .*/, "", used)
                counted++
                if (used + 0 > most) { print name ": " used " registers"; bad = 1 }
                if (used + 0 > largest) largest = used + 0
            }
            END {
                if (counted == 0 || kernels < counted) { print "no kernel was seen"; bad = 1 }
                print counted " kernels, at most " largest " registers"
                exit bad
            }') || fail "$(basename "$file"), sm_$architecture: $found"
        echo "$(basename "$file"), sm_$architecture: $found"
    done
done
