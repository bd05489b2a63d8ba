#!/bin/sh
# evidence.sh PROGRAM          recomputes what the program says of its own errors, which is needed after
#                              any change of a profile, a published table or the model of time: the
#                              `errors` of fitted profiles, sim/cost/error_ranges.inc,
#                              waiting_steps.inc, sim/metrics/fit_shares.inc and full_steps.inc, which are
#                              compiled in, and experiments/results/evidence.md and left_out.tsv. Build anew
#                              afterwards.
# evidence.sh --ranges PROGRAM the same without fits: rows that fits left out are those of left_out.tsv
# evidence.sh --check PROGRAM  says whether the ranges are those of the program, profiles and tables
set -eu
mode=all
case ${1:-} in
--check | --ranges) mode=${1#--} && shift ;;
esac
case ${1:-} in
'') echo "usage: evidence.sh [--check|--ranges] PROGRAM" >&2 && exit 2 ;;
/*) program=$1 ;;
*) program=$PWD/$1 ;;
esac
cd "$(dirname "$0")/.."
published=experiments/published
left_out=experiments/results/left_out.tsv
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A specification's tables, and the file of each.
tables_of() { awk '/^  "tables"/ { on = 1 } on { while (match($0, /"[a-z0-9_]+": \{"weight/)) { print substr($0, RSTART + 1, RLENGTH - 12); $0 = substr($0, RSTART + RLENGTH) } }' "$1"; }
file_of() { [ -e "$published/$1.csv" ] && echo "$published/$1.csv" || echo "$published/$1.json"; }
# Was the profile, or the one that it extends, fitted to the table?
is_fitted() {
    grep -q "^ *\"name\": \"$2\"" "profiles/$1.json" ||
        grep -q "^ *\"name\": \"$2\"" "profiles/$(sed -n 's/^  "extends": "\(.*\)".*/\1/p' "profiles/$1.json").json" 2>/dev/null
}

# The errors of rows that were left out, into the profile, and as evidence.
if [ $mode = all ]; then
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
        ! grep -q '"for_fp8": null' "$spec" || continue # of BF16 alone, as below
        awk -f experiments/evidence_rows.awk $(for table in $(tables_of "$spec"); do echo "$published/$table.json"; done) "$spec" "$work/fit.json" >>"$work/left_out.tsv"
    done
    cp "$work/left_out.tsv" "$left_out"
fi

# Every table of times, predicted by what the program would take without the table: the profile of its
# stack, where that was not fitted to it, and its GPU's; and by rates of isolated operators.
# Of steps in BF16 of dense models, as the program says: a range of these says nothing of FP8, and one of
# experts nothing of these.
for map in $(grep -lE '"is": "(iteration_ms|tokens_per_s)"' "$published"/*.json); do
    table=$(basename "$map" .json)
    own=$(sed -n 's/^    "profile": "\([^"]*\)".*/\1/p' "$map")
    gpu=${own%%-*}
    for profile in $(printf '%s\n' "$own" "$gpu" "$gpu-burst" | LC_ALL=C sort -u); do
        [ -e "profiles/$profile.json" ] || continue
        # Nobody knows what the varying lengths of this one ran on.
        [ "$profile" != h100-varlen ] || continue
        fitted=$(is_fitted "$profile" "$table" && echo 1 || echo 0)
        # Of fitted rows that one profile is looked at: which waited, and which were longer in full memory.
        [ $fitted = 0 ] || [ "$profile" = "$own" ] || continue
        # Status 1: outside of a bound, which is of the table's own profile.
        "$program" validate --published --table "$table" --profile "$profile" --json --quiet >"$work/validation.json" || [ $? -eq 1 ]
        ! grep -Eq '^      "(experts|fp8)": true' "$work/validation.json" || break
        awk -v fitted=$fitted -v own="$([ "$profile" = "$own" ] && echo 1 || echo 0)" -f experiments/evidence_rows.awk "$work/validation.json"
    done
done >"$work/validated.tsv"
cat "$left_out" "$work/validated.tsv" | LC_ALL=C sort -t '	' -k4,4g -k3,3 -k7,7 >"$work/rows.tsv"

LC_ALL=C awk -F '\t' -v out="$work" -f experiments/evidence.awk "$work/rows.tsv"
# Peaks, and layouts that ran or failed: of h100_nanotron's peaks the failures tell more.
for table in h100_nanotron_fits h800_memory megatron_memory; do
    "$program" validate --published --table $table --json --quiet || [ $? -eq 1 ]
done >"$work/fits.json"
awk -v out="$work" -f experiments/evidence_fits.awk "$work/fits.json"
{ cat "$work/ranges.md" && echo && cat "$work/fits.md"; } >"$work/behind.md"
if [ $mode = check ]; then
    for file in cost/error_ranges cost/waiting_steps metrics/fit_shares metrics/full_steps; do
        diff -u sim/$file.inc "$work/${file#*/}.inc" || { echo "experiments/evidence.sh PROGRAM puts there what these profiles and tables say" >&2 && exit 1; }
    done
    # What they cover of sources that were left out stands behind the first table.
    sed '1,/^$/d' experiments/results/evidence.md | diff -u - "$work/behind.md"
    exit
fi
cp "$work/error_ranges.inc" "$work/waiting_steps.inc" sim/cost
cp "$work/fit_shares.inc" "$work/full_steps.inc" sim/metrics
{
    awk -F '\t' -f experiments/evidence_intervals.awk "$left_out" "$work/validated.tsv"
    echo
    cat "$work/behind.md"
} >experiments/results/evidence.md
