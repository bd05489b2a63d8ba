#!/bin/sh
# run.sh PROGRAM CORPUS WORK: fuzzes for ten seconds from a copy of the seed corpus; a finding stays
# in WORK. The seed is fixed, so that two runs on one machine try much the same.
set -eu
program=$1 corpus=$2 work=$3
rm -rf "$work"
mkdir -p "$work/corpus"
if [ -d "$corpus" ]; then
    cp -R "$corpus/." "$work/corpus"
fi
cd "$work"
exec "$program" -max_total_time="${SP_FUZZ_SECONDS:-10}" -seed=1 -timeout=10 -rss_limit_mb=2048 \
    -print_final_stats=1 corpus
