#!/usr/bin/env bash
# fits_again.sh PROGRAM SOURCE PROFILE SPEC TABLE...: fitting again gives the constants of a fitted
# profile that is shipped.
set -euo pipefail
program=$1
source=$2
profile=$3
spec=$4
shift 4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
published=$source/experiments/published
from=()
for table; do
    from+=(--from-measurements "$published/$table")
done

# Paths and values of the constants, one to a line, of two profiles side by side. The spread is not
# compared: that of the shipped ones is of resamples.
values() {
    awk '/^  "fit"/ {fit = 1} fit && /"constants"/ {on = 1; next} on && /^    }/ {exit}
         on && /{$/ {path = $1} on && /"value"/ {gsub(/,/, ""); print path, $2}' "$1"
}
wanted=$(awk '/"constants"/ {on = 1; next} on && /^  }/ {exit} on && /"unit"/ {n++} END {print n + 0}' "$published/$spec.json")
constants() {
    paste <(values "$1") <(values "$2") | awk -v wanted="$wanted" '
        {n++; d = $4 / $2 - 1; if ($1 != $3 || d * d > 1e-6) {print "differs: " $0; bad = 1}}
        END {exit bad || n != wanted || n == 0}'
}
"$program" calibrate --quiet --folds 0 --bootstrap 0 --no-ablation --fit "$published/$spec.json" \
    "${from[@]}" -o "$work/$profile.json" >/dev/null
constants "$source/profiles/$profile.json" "$work/$profile.json"
