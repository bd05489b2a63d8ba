#!/bin/sh
# readme_tables.sh [--check]: puts the committed results into the pages below between
# their markers `<!-- result FILE -->` and `<!-- end -->`; with --check it only says whether they differ.
# `<!-- result FILE N -->` takes the first N lines and says that there are more.
# `<!-- results PATTERN -->` takes every file that there is of a pattern, and says where there is none.
# Results written as Markdown link to sections of the atlas from where they lie; pages link from where they are.
set -eu
cd "$(dirname "$0")/.."
new=$(mktemp)
trap 'rm -f "$new"' EXIT
for page in README.md experiments/guide.md experiments/RESULTS.md experiments/zoo.md experiments/atlas.md backends/cuda/README.md; do
    awk -v page="$page" '
        # A result that is Markdown needs no fence.
        /^<!-- result / {
            fence = $3 ~ /\.md$/ ? "" : "```"
            print
            print fence (fence != "" ? "text" : "")
            most = $4 ~ /^[0-9]+$/ ? $4 : 0
            for (at = 1; (getline line < $3) > 0; at++) {
                if (most > 0 && at > most) {
                    print "..."
                    break
                }
                # A benchmark of one JSON line reads better with a key a line.
                if ($3 ~ /\.json$/) {
                    gsub(/^\{|\}$/, "", line)
                    gsub(/, "/, "\n\"", line)
                    gsub(/"/, "", line)
                }
                gsub(/\]\(\.\.\/\.\.\/atlas\.md#/, page == "experiments/guide.md" ? "](atlas.md#" : "](#", line)
                gsub(/\]\(\.\.\/\.\.\/published\//, "](published/", line)
                print line
            }
            close($3)
            print fence
            skipping = 1
            next
        }
        /^<!-- results / {
            print
            print "```text"
            files = 0
            list = "ls " $3 " 2>/dev/null"
            while ((list | getline file) > 0) {
                if (files++) { print "" }
                while ((getline line < file) > 0) { print line }
                close(file)
            }
            close(list)
            if (files == 0) { print "none measured" }
            print "```"
            skipping = 1
            next
        }
        /^<!-- end -->/ { skipping = 0 }
        !skipping { print }
    ' "$page" >"$new"
    if [ "${1:-}" = --check ]; then
        diff -u "$page" "$new"
    else
        cat "$new" >"$page"
    fi
done
