#!/bin/sh
# private_names.sh SOURCE: a name that begins with sp_i_ is used only in the top folder whose headers declare it.
set -eu
cd "$1"
find sim solver backends experiments kernels -name '*.[ch]' -print | sort | xargs awk '
    { top = FILENAME; sub(/\/.*/, "", top) }
    {
        line = $0
        sub(/\/\/.*/, "", line)
        while (match(line, /sp_i_[a-z0-9_]+/)) {
            name = substr(line, RSTART, RLENGTH)
            before = substr(line, 1, RSTART - 1)
            line = substr(line, RSTART + RLENGTH)
            if (!((top, name) in used)) { used[top, name] = FILENAME ":" FNR; uses[++n] = top SUBSEP name }
            # A prototype, the end of a typedef, or a tag.
            declares = (line ~ /^\(/ && before ~ /^[a-z]/) || (before ~ /^} $/ && line ~ /^;/) || before ~ /^(typedef )?(struct|enum) $/
            if (FILENAME ~ /\.h$/ && declares) { declared[top, name] = 1; known[name] = 1 }
        }
    }
    END {
        for (i = 1; i <= n; i++) {
            split(uses[i], use, SUBSEP)
            if ((use[2] in known) && !((use[1], use[2]) in declared)) {
                print used[use[1], use[2]] ": " use[2] " is private to another top folder"
                found = 1
            }
        }
        print n " private names"
        exit found
    }'
