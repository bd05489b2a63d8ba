#!/bin/sh
# evidence.sh PROGRAM          recomputes what the program says of its own errors, which is needed after
#                              any change of a profile, a published table or the model of time: the
#                              `errors` of fitted profiles, sim/cost/error_ranges.inc, which is compiled
#                              in, and experiments/results/evidence.md. Build anew afterwards.
# evidence.sh --check PROGRAM  says whether the ranges are those of the program, profiles and tables
set -eu
check=
[ "${1:-}" != --check ] || { check=1 && shift; }
case ${1:-} in
'') echo "usage: evidence.sh [--check] PROGRAM" >&2 && exit 2 ;;
/*) program=$1 ;;
*) program=$PWD/$1 ;;
esac
cd "$(dirname "$0")/.."
published=experiments/published
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A specification's tables, and the file of each.
tables_of() { awk '/^  "tables"/ { on = 1 } on { while (match($0, /"[a-z0-9_]+": \{"weight/)) { print substr($0, RSTART + 1, RLENGTH - 12); $0 = substr($0, RSTART + RLENGTH) } }' "$1"; }
file_of() { [ -e "$published/$1.csv" ] && echo "$published/$1.csv" || echo "$published/$1.json"; }

# The errors of rows that were left out, into the profile, and for the coverage of intervals.
if [ -z "$check" ]; then
    for spec in "$published"/fit_*.json; do
        grep -Eq '"folds"|"leave_out_tables"' "$spec" || continue
        from=$(for table in $(tables_of "$spec"); do printf ',%s' "$(file_of "$table")"; done)
        profile=profiles/$(sed -n 's/^  "name": "\(.*\)",$/\1/p' "$spec").json
        "$program" calibrate --from-measurements "${from#,}" --fit "$spec" --bootstrap 0 --no-ablation --quiet --json \
            -o "$work/fitted.json" >"$work/fit.json"
        awk '/^  "errors": \[/ { on = 1 } FNR == NR { if (on) { errors = errors $0 "\n" } }
             FNR == NR && /^  \],?$/ { on = 0 } FNR < NR && !done { done = 1; on = 0 }
             FNR < NR && /^  "errors": \[/ { printf "%s", errors; on = 1 }
             FNR < NR && !on { print } FNR < NR && /^  \],?$/ { on = 0 }' "$work/fitted.json" "$profile" >"$work/profile.json"
        cp "$work/profile.json" "$profile"
        awk -f experiments/evidence_rows.awk "$spec" "$work/fit.json" >>"$work/left_out.tsv"
    done
fi

# Every table of times, predicted by every profile of its GPU.
for map in $(grep -lE '"is": "(iteration_ms|tokens_per_s)"' "$published"/*.json); do
    table=$(basename "$map" .json)
    gpu=$(sed -n 's/^    "profile": "\([^"-]*\).*/\1/p' "$map")
    for profile in $(cd profiles && ls "$gpu"*.json); do
        case $profile in
        "$gpu.json" | "$gpu"-*.json) ;;
        *) continue ;;
        esac
        case $profile in *-burst.json | *-prefill.json | *-varlen.json) continue ;; esac
        # Status 1: outside of a bound, which is of the table's own profile.
        "$program" validate --published --table "$table" --profile "${profile%.json}" --json --quiet >"$work/validation.json" || [ $? -eq 1 ]
        awk -v own="$(grep -c "^    \"profile\": \"${profile%.json}\"" "$map")" -f experiments/evidence_rows.awk "$work/validation.json"
    done
done | LC_ALL=C sort -t '	' -k3,3g -k2,2 >"$work/rows.tsv"

LC_ALL=C awk -F '\t' -v out="$work" -f experiments/evidence.awk "$work/rows.tsv"
if [ -n "$check" ]; then
    diff -u sim/cost/error_ranges.inc "$work/error_ranges.inc" && exit
    echo "experiments/evidence.sh PROGRAM puts the ranges of these profiles and tables there" >&2
    exit 1
fi
cp "$work/error_ranges.inc" sim/cost
{
    awk -F '\t' -f experiments/evidence_intervals.awk "$work/left_out.tsv" "$work/rows.tsv"
    echo
    cat "$work/ranges.md"
} >experiments/results/evidence.md
