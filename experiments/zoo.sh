#!/bin/sh
# zoo.sh: draws every schedule on the same uniform costs (experiments/zoo.json) into plots/zoo/, and
# their comparison into experiments/results/zoo.txt and from there into experiments/zoo.md.
set -eu
cd "$(dirname "$0")/.."
schedules=$(build/slimpack help schedules | sed -n 's/^\([^ ][^ ]*\) .*/\1/p')
mkdir -p plots/zoo
for schedule in $schedules; do
    build/slimpack simulate experiments/zoo.json --set schedule.kind="$schedule" \
        --plot "plots/zoo/$schedule.png" --quiet >/dev/null
done
build/slimpack compare experiments/zoo.json --quiet --wide \
    --schedules "$(echo "$schedules" | paste -sd , -)" >experiments/results/zoo.txt
experiments/readme_tables.sh
