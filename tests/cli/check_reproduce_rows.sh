#!/usr/bin/env bash
# check_reproduce_rows.sh PROGRAM: a row of a table of `reproduce` is one line of 100 columns, with its verdict; names
# that are longer than their place end with "..." there, and are whole with --wide.
set -u
program=$1
. "$(dirname "$0")/prelude.sh"
program=$(realpath "$program")
cd "$work" || exit 1

for figure in chunkflow sampleattention distca; do
    "$program" reproduce "$figure" --json >figure.json 2>/dev/null
    sed -n 's/^ *"\(label\|point\)": "\(.*\)",*$/\2/p' figure.json >labels.txt
    count=$(grep -c . labels.txt)
    [ "$count" -gt 3 ] || complain "$figure: $count labels"
    "$program" reproduce "$figure" --quiet >narrow.txt 2>/dev/null
    "$program" reproduce "$figure" --quiet --wide >wide.txt 2>/dev/null
    awk 'length($0) > 100 { print "longer than 100 columns: " $0 }' narrow.txt >faults.txt
    # Rows stand two columns in, notes and reasons four and more.
    rows() { awk '/^  point  / { on = 1; next } on && !NF { exit } on && /^\.\.\. / { exit } on && /^  [^ ]/' "$1"; }
    rows narrow.txt | grep -vE '  (within|outside)(, fitted)?$' | grep -vE ' +-$| [-+][0-9.e+]+( %)?$' >>faults.txt
    shown=$(rows narrow.txt | grep -c .)
    [ "$shown" -gt 3 ] || complain "$figure: $shown rows"
    expect "$figure: rows with --wide" "$count" "$(rows wide.txt | grep -c .)"
    while IFS= read -r label; do
        rows wide.txt | grep -qF -- "$label  " || complain "$figure: --wide cuts '$label'"
    done <labels.txt
    # What is shown of a name is its beginning.
    rows narrow.txt | sed -nE 's/^  (headline: )?(.*)\.\.\. .*/\2/p' >cut.txt
    while IFS= read -r begun; do
        grep -qF -- "$begun" labels.txt || complain "$figure: '$begun' is the beginning of no name"
    done <cut.txt
    [ -s faults.txt ] && complain "$figure: $(cat faults.txt)"
    cat cut.txt >>all.txt
done
[ -s all.txt ] || complain "no name was cut"
exit "$failed"
