#!/bin/sh
# zoo.sh: draws every schedule on the same uniform costs (experiments/zoo.json) into plots/zoo/, and
# their comparison into experiments/results/zoo.txt and from there into experiments/zoo.md.
set -eu
cd "$(dirname "$0")/.."
schedules="gpipe 1f1b interleaved zb-h1 zb-h2 zb-auto zb-v v-half v-min dualpipe-v terapipe seq1f1b slimpipe chunkflow packflow"
mkdir -p plots/zoo
for schedule in $schedules; do
    chunks=1
    case $schedule in
    interleaved | zb-v | v-half | v-min | dualpipe-v) chunks=2 ;;
    esac
    build/slimpack simulate experiments/zoo.json --set schedule.kind="$schedule" \
        --set parallel.chunks_per_rank=$chunks --plot "plots/zoo/$schedule.png" --quiet >/dev/null
done
build/slimpack compare experiments/zoo.json --quiet --wide \
    --schedules "$(echo "$schedules" | tr ' ' ,)" >experiments/results/zoo.txt
experiments/readme_tables.sh
