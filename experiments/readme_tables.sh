#!/bin/sh
# readme_tables.sh [--check]: puts the committed results into README.md between its markers
# `<!-- result FILE -->` and `<!-- end -->`; with --check it only says whether they differ.
set -eu
cd "$(dirname "$0")/.."
new=$(mktemp)
trap 'rm -f "$new"' EXIT
awk '
    /^<!-- result / {
        print
        print "```text"
        while ((getline line < $3) > 0) {
            # One JSON line of a benchmark reads better with a key a line.
            if (line ~ /^\{/) {
                gsub(/^\{|\}$/, "", line)
                gsub(/, "/, "\n\"", line)
                gsub(/"/, "", line)
            }
            print line
        }
        close($3)
        print "```"
        skipping = 1
        next
    }
    /^<!-- end -->/ { skipping = 0 }
    !skipping { print }
' README.md >"$new"
if [ "${1:-}" = --check ]; then
    diff -u README.md "$new"
else
    cat "$new" >README.md
fi
