#!/usr/bin/env bash
# check_published.sh PROGRAM SOURCE: every published table is within its bound, and fitting again gives
# the constants of the fitted profiles that are shipped.
set -euo pipefail
program=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
published=$source/experiments/published
"$program" validate --published --quiet

# Paths and values of the constants, one to a line, of two profiles side by side. The spread is not
# compared: that of the shipped ones is of resamples.
values() {
    awk '/^  "fit"/ {fit = 1} fit && /"constants"/ {on = 1; next} on && /^    }/ {exit}
         on && /{$/ {path = $1} on && /"value"/ {gsub(/,/, ""); print path, $2}' "$1"
}
constants() {
    paste <(values "$1") <(values "$2") | awk '
        {n++; d = $4 / $2 - 1; if ($1 != $3 || d * d > 1e-6) {print "differs: " $0; bad = 1}}
        END {exit bad || n < 3}'
}
fits_again() { # TABLES SPEC PROFILE
    "$program" calibrate --quiet --folds 0 --bootstrap 0 --no-ablation --fit "$published/$2.json" -o "$work/$3.json" \
        --from-measurements "$1" >/dev/null
    constants "$source/profiles/$3.json" "$work/$3.json"
}
fits_again "$published/a100_single_node.csv,$published/a100_multi_node.csv" fit_a100 a100-fitted
fits_again "$published/h800_throughput.csv" fit_h800 h800-fitted
fits_again "$published/h100_dgxc.csv" fit_h100 h100
fits_again "$published/h100_nanotron.csv" fit_h100_nanotron h100-nanotron
fits_again "$published/h100_fsdp.json" fit_h100_fsdp h100-fsdp
fits_again "$published/dynamic_cp.csv,$published/dynamic_cp_packed.json" fit_h100_varlen h100-varlen
fits_again "$published/a100_fsdp.json" fit_a100_fsdp a100-fsdp
