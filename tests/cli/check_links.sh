#!/usr/bin/env bash
# check_links.sh PROGRAM SOURCE: every link of a page to a file of the project, and to a section of a page, leads there.
set -euo pipefail
source=$2
cd "$source"

# The anchors of a page's headings, as they are made on the web: lower case, hyphens for blanks, no other marks.
anchors() { # PAGE
    sed -n 's/^##* *//p' "$1" | sed 's/\[\([^]]*\)\]([^)]*)/\1/g' | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9_\n-'
}

failed=0
while IFS= read -r page; do
    while IFS= read -r link; do
        file=${link%%#*}
        target=$page
        [ -z "$file" ] || target=$(dirname "$page")/$file
        if [ ! -e "$target" ]; then
            echo "$page: there is no $file"
            failed=1
        elif [ "$link" != "$file" ] && ! anchors "$target" | grep -qx -e "${link#*#}"; then
            echo "$page: $target has no section #${link#*#}"
            failed=1
        fi
    done < <(sed '/^```/,/^```/d' "$page" | grep -o ']([^)]*)' | sed 's/^](//; s/)$//' | grep -v '^[a-z]*:' | sort -u)
done < <(find . -name '*.md' -not -path './build*' -not -path './.git/*' | sort)
exit "$failed"
