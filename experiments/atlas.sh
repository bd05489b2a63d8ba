#!/bin/sh
# atlas.sh PROGRAM   predicts every published step and puts residuals, tables and figures into
#                    experiments/results/atlas, and from there into experiments/atlas.md
# atlas.sh --check   says whether tables and figures are those of the committed residuals
set -eu
case ${1:-} in
'') echo "usage: atlas.sh PROGRAM | --check" >&2 && exit 2 ;;
/* | --check) ;;
*/*) set -- "$PWD/$1" ;;
esac
cd "$(dirname "$0")/.."
committed=experiments/results/atlas
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "$1" != --check ]; then
    # Status 1: a table is outside its bound, which the page says too.
    "$1" validate --published --json --quiet >"$work/validation.json" || [ $? -eq 1 ]
    awk -f experiments/atlas_rows.awk "$work/validation.json" >"$committed/validation.tsv"
fi

mkdir "$work/new"
awk -v out="$work/new" -f experiments/json.awk -f experiments/atlas.awk part=kfold FS='|' experiments/results/fits.txt \
    part=log FS=, experiments/published/h100_nanotron.csv part=rows FS='\t' "$committed/validation.tsv"
for figure in time memory; do
    if command -v gnuplot >/dev/null; then
        gnuplot -e "datafile='$work/new/$figure.dat'; outfile='$work/new/$figure.svg'" plots/atlas.gp
    fi
    rm "$work/new/$figure.dat"
done

if [ "$1" != --check ]; then
    cp "$work/new/"* "$committed"
    experiments/readme_tables.sh
    exit
fi
# Other versions of gnuplot draw other bytes; they say who drew.
drawn_by() { grep -o 'Produced by GNUPLOT[^<]*' "$1"; }
for file in "$committed"/*.md "$committed"/*.svg; do
    new=$work/new/${file##*/}
    case $file in
    *.svg) [ -e "$new" ] && [ "$(drawn_by "$new")" = "$(drawn_by "$file")" ] || continue ;;
    esac
    diff -u "$file" "$new"
done
