#!/bin/sh
# reproduce.sh [PROGRAM [FOLDER]]: puts every published figure beside what is computed for it, a text for
# each into FOLDER, a table of the verdicts into verdicts.md there, and what papers are known by into
# headlines.txt.
set -eu
cd "$(dirname "$0")/.."
program=${1:-build/slimpack}
folder=${2:-experiments/results/reproduce}
mkdir -p "$folder"
rm -f "$folder"/*.txt
# Status 1 says that a figure is outside its bar.
"$program" reproduce --all --quiet -o "$folder" >/dev/null || [ $? -eq 1 ]
rm -f "$folder"/*.json
awk '
    BEGIN { print "| figure | shows | verdict |"; print "| --- | --- | --- |" }
    FNR == 1 { at = index($0, ": "); name = substr($0, 1, at - 1); title = substr($0, at + 2) }
    /^  (within|outside): / { print "| " name " | " title " | " substr($0, 3) " |" }
' "$folder"/*.txt >"$folder/verdicts.md"
# What papers are known by, and why it does not come out.
"$program" reproduce slimpack slimpipe zeppelin heterospec sampleattention --quiet >"$folder/headlines.txt" || [ $? -eq 1 ]
