#!/bin/sh
# expert_packs.sh [PROGRAM]: Mixtral 8x7B with its experts over 8 ranks of 64 H100s
# (experiments/expert_packs.json), at five kinds of lengths and four layouts: SlimPack beside the
# fastest other strategy that trains on every token, and what each waits for experts, into
# experiments/results/expert_packs.txt.
set -eu
cd "$(dirname "$0")/.."
program=${1:-build/slimpack}
others=packed-tuned,bfd,dp-balanced,kk-flops,dynapipe,hybrid-cp,bytescale,zeppelin
for lengths in "wikipedia 8192" "wikipedia 32768" "longmix 32768" "prolong 32768" "lognormal 8192"; do
    for layout in "1 2 32" "1 4 16" "2 2 16" "4 1 16"; do
        # shellcheck disable=SC2086
        set -- $lengths $layout
        { "$program" compare experiments/expert_packs.json --strategies "$others,slimpack,slimpack-zones" --json --quiet \
            --set "workload.lengths=$1" --set "workload.context=$2" --set "parallel.tp=$3" \
            --set "parallel.pp=$4" --set "parallel.dp=$5" || [ $? -eq 1 ]; } |
            awk -v scenario="$1 $2 $3 $4 $5" '
                $1 == "\"strategy\":" { name = $2; gsub(/[",]/, "", name) }
                $1 == "\"iteration_ms\":" { ms = $2 + 0 }
                $1 == "\"expert_wait_ms\":" && name != "" {
                    own = name ~ /^slimpack/
                    if (!(own in best) || ms < best[own]) {
                        best[own] = ms; wait[own] = $2 + 0; who[own] = name
                    }
                    name = ""
                }
                END { print scenario, who[0], best[0], wait[0], who[1], best[1], wait[1] }'
    done
done | awk '
    BEGIN {
        print "lengths    context tp pp dp  best other      step ms  waits ms  slimpack        step ms  waits ms  other/slimpack"
        least = 1e9
    }
    {
        ratio = $7 / $10
        printf "%-10s %7d %2d %2d %2d  %-13s %9.1f %9.1f  %-14s %8.1f %9.1f %11.2f\n", $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, ratio
        sum += ratio
        least = ratio < least ? ratio : least
    }
    END { printf "\n%d scenarios: the best other strategy takes %.2f times as long in the mean, %.2f at least\n", NR, sum / NR, least }' \
    >experiments/results/expert_packs.txt
