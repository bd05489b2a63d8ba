#!/bin/sh
# check_image.sh PLUGIN NVCC: the plug-in holds nothing of CUDA's but one image of kernels, which has code
# for 8.0, 9.0 and 10.0 and PTX. Each of these has every kernel that a launcher names, and no other; the
# PTX becomes code for devices that are newer, by the assembler that stands in for the driver's.
set -eu
plugin=$1
nvcc=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() {
    echo "$*" >&2
    exit 1
}
if readelf -d "$plugin" | grep NEEDED | grep -iE 'cuda|cudnn|nccl|cublas|stdc'; then
    fail "the plug-in needs a library of CUDA or C++"
fi
nm "$plugin" >"$folder/symbols"
if grep -E ' _*cuda[A-Z]| cu[A-Z][a-z]' "$folder/symbols"; then
    fail "the plug-in holds or calls functions of CUDA"
fi
sed -n 's/.* [bd] _ZL[0-9]*\(.*\)_entry$/\1/p' "$folder/symbols" | sort >"$folder/launched"
[ "$(wc -l <"$folder/launched")" -gt 50 ] || fail "launchers name too few kernels"

# Each part of the image has a header: its kind (1: PTX, 2: ELF), the bytes of the header and those behind
# it, and the architecture in its eighth word.
objcopy -O binary --only-section=.nv_fatbin "$plugin" "$folder/image"
od -An -v -tu4 -w4 "$folder/image" | awk '
    { word[NR - 1] = $1 }
    END {
        if (word[0] != 3126193488) { print "no image"; exit }
        for (at = 4; at * 4 < 16 + word[2]; at += (word[at + 1] + word[at + 2]) / 4) {
            print word[at] % 65536 == 1 ? "ptx" : "elf", word[at + 7], at * 4 + word[at + 1], word[at + 2]
        }
    }' >"$folder/parts"
[ "$(cut -d' ' -f1,2 "$folder/parts" | sort | tr '\n' ' ')" = "elf 100 elf 80 elf 90 ptx 90 " ] ||
    fail "the image holds: $(cat "$folder/parts")"
while read -r kind architecture begin bytes; do
    tail -c +$((begin + 1)) "$folder/image" | head -c "$bytes" >"$folder/$kind$architecture"
done <"$folder/parts"
for architecture in 80 90 100; do
    readelf -SW "$folder/elf$architecture" 2>/dev/null | sed -n 's/.* \.text\.\([^ ]*\) .*/\1/p' | sort >"$folder/found"
    diff "$folder/launched" "$folder/found" || fail "sm_$architecture has not the kernels that are launched"
done
tr -d '\000' <"$folder/ptx90" >"$folder/code.ptx"
sed -n 's/.*\.entry \([a-z0-9_]*\).*/\1/p' "$folder/code.ptx" | sort >"$folder/found"
diff "$folder/launched" "$folder/found" || fail "the PTX has not the kernels that are launched"
for architecture in 103 120; do
    "$(dirname "$nvcc")/ptxas" -arch="sm_$architecture" -o "$folder/code" "$folder/code.ptx" ||
        fail "the PTX does not become code for sm_$architecture"
done
# Code that the image has is not taken for devices before it.
if "$(dirname "$nvcc")/ptxas" -arch=sm_80 -o "$folder/code" "$folder/code.ptx" 2>/dev/null; then
    fail "PTX of 9.0 became code for sm_80: nothing was looked at"
fi
echo "$(wc -l <"$folder/launched") kernels in $(cut -d' ' -f1,2 "$folder/parts" | tr '\n' ',')"
