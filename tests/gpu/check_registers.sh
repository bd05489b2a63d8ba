#!/bin/sh
# check_registers.sh SOURCE NVCC: compiles the kernels for each architecture and reads what the assembler
# (ptxas -v) and the sections of the code say of each. None keeps registers in memory. None has more registers
# than a block of 512 threads can have of the 65536 of an SM; the block sizes are in the kernels' launch bounds.
# None is longer than half of the 128 KiB of instructions that an SM keeps, as Jia et al. measured on Volta
# (2018, arXiv 1804.06826; assumed of later ones), so that a second one has room: 4096 of 16 bytes, which an
# instruction is from Volta on. A kernel that breaks each of these is found.
set -eu
source=$1
nvcc=$2
most=128
longest=4096
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() {
    echo "$*" >&2
    exit 1
}
# check FILE ARCHITECTURE: one line of what was found.
check() {
    "$nvcc" -std=c++17 -O3 -I"$source" -arch="sm_$2" -cubin -o "$folder/code" -Xptxas=-v "$1" \
        >"$folder/said" 2>&1 || { cat "$folder/said"; return 1; }
    size -A -d "$folder/code" >"$folder/sections" 2>/dev/null
    awk -v most=$most -v longest=$longest '
        FNR == 1 { part++ }
        part == 1 && $1 ~ /^\.text\./ {
            sections++
            name = substr($1, 7); length_ = $2 / 16
            if (length_ > longest) { print name ": too long, " length_ " instructions"; bad = 1 }
            if (length_ > largest_length) largest_length = length_
        }
        part == 2 && /Compiling entry function/ { name = $0; sub(/.*function ./, "", name); sub(/. for.*/, "", name) }
        part == 2 && /bytes spill stores/ {
            kernels++
            if ($0 !~ / 0 bytes spill stores, 0 bytes spill loads/) { print name ": " $0; bad = 1 }
        }
        part == 2 && /Used [0-9]+ registers/ {
            used = $0; sub(/.*Used /, "", used); sub(/ .*/, "", used)
            counted++
            if (used + 0 > most) { print name ": too many registers, " used; bad = 1 }
            if (used + 0 > largest) largest = used + 0
        }
        END {
            if (counted == 0 || kernels < counted || sections != counted) { print "not every kernel was seen"; bad = 1 }
            print counted " kernels, at most " largest " registers and " largest_length " instructions"
            exit bad
        }' "$folder/sections" "$folder/said"
}
for architecture in 80 90 100; do
    for file in "$source"/kernels/*.cu; do
        found=$(check "$file" $architecture) || fail "$(basename "$file"), sm_$architecture: $found"
        echo "$(basename "$file"), sm_$architecture: $found"
    done
done

# must_find TEXT MACRO: a kernel of 160 sums, with too little room for registers, too much, or all unrolled.
must_find() {
    printf '%s\n' "#define $2" '
#ifdef SPILLS
#define BOUNDS __launch_bounds__(1024, 2)
#else
#define BOUNDS __launch_bounds__(128, 1)
#endif
__global__ void BOUNDS sums(const float *x, float *y, int n)
{
    float sum[160] = {};
    for (int i = 0; i < n; i++) {
#pragma unroll
        for (int k = 0; k < 160; k++) {
#ifdef LONG
#pragma unroll
            for (int j = 0; j < 160; j++) {
                y[k * n + i + j] = x[j * n + k];
            }
#else
            sum[k] += x[i * 160 + k] * x[i];
#endif
        }
    }
#pragma unroll
    for (int k = 0; k < 160; k++) {
        y[k] = sum[k];
    }
}' >"$folder/planted.cu"
    found=$(check "$folder/planted.cu" 90) && fail "not found: $1: $found"
    case $found in
    *"$1"*) ;;
    *) fail "not found: $1: $found" ;;
    esac
}
must_find "bytes spill stores" SPILLS
must_find "too many registers" REGISTERS
must_find "too long" LONG
