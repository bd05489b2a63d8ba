#!/usr/bin/env bash
# check_atlas.sh PROGRAM SOURCE: the tables and figures of experiments/atlas.md are those of the committed residuals,
# a residual that changes is noticed, and the program's answers become the rows that are committed.
set -euo pipefail
program=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$source/experiments/atlas.sh" --check
"$source/experiments/readme_tables.sh" --check

mkdir "$work/experiments"
cp -R "$source/plots" "$work"
cp -R "$source/experiments/"{atlas.sh,*.awk,published,results} "$work/experiments"
rows=$work/experiments/results/atlas/validation.tsv
awk -F'\t' -v OFS='\t' '$2 == "h100_dgxc" && $1 == "R" && !n++ {$6 *= 1.5; $7 = 0.5} {print}' \
    "$source/experiments/results/atlas/validation.tsv" >"$rows"
if "$work/experiments/atlas.sh" --check >"$work/difference"; then
    echo "a changed residual is not noticed"
    exit 1
fi
grep -q '^+| h100_dgxc, .*| 1.5' "$work/difference"

# Names, layouts and measured values, without what is predicted.
said() { awk -F'\t' -v OFS='\t' '$1 == "R" && $2 == "a100_selene" {$6 = $7 = $8 = $9 = ""; print}' "$1"; }
"$program" validate --published --table a100_selene --json --quiet >"$work/selene.json"
awk -f "$source/experiments/atlas_rows.awk" "$work/selene.json" >"$work/selene.tsv"
[ "$(said "$work/selene.tsv" | wc -l)" -eq 4 ]
diff <(said "$work/selene.tsv") <(said "$source/experiments/results/atlas/validation.tsv")
