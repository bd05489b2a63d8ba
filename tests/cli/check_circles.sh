#!/bin/sh
# check_circles.sh PROGRAM SOURCE: the files of the product make no circle: none needs a symbol of one that needs it, by
# whatever way round. Reads the symbols of the object files beside the program.
set -eu
build=$(dirname "$1")
source=$2
for part in sim solver backends kernels experiments; do
    find "$build/$part" -name '*.c.o' -print
done | while read -r object; do
    # sim/CMakeFiles/target.dir/cost/profile.c.o is of sim/cost/profile.c, and __ is the folder above.
    file=$(echo "${object#"$build"/}" | sed 's#CMakeFiles/[^/]*\.dir/##; s#[^/]*/__/##; s#\.o$##')
    # Objects of files that are no more may lie about.
    [ ! -e "$source/$file" ] || nm "$object" 2>/dev/null | sed "s#^#$file #"
done | awk '
    NF == 4 && $3 ~ /[TDRBVW]/ { home[$4] = $1 }
    NF == 3 && $2 == "U" { needs[$1 " " $3] }
    END {
        for (need in needs) {
            split(need, part, " ")
            if (part[2] in home && home[part[2]] != part[1]) { print part[1], home[part[2]]; pairs++ }
        }
        if (pairs < 500) { print "circle circle2"; print "circle2 circle" } # the objects were not found
    }' | sort -u | tsort 2>&1 >/dev/null | {
    ! grep . || exit 1
}
