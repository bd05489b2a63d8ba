#!/bin/sh
# validate_host.sh [-s virtual|wall] [-p PROGRAM] [-o FOLDER] [STEPS]: how well the CPU executor's steps are
# predicted on this machine. Measures a profile for each model of the sets, again while the machine changes its
# speed (at most three times), and predicts and executes
#   virtual  experiments/validate_host.json on the virtual clock, each case once;
#   wall     experiments/validate_wall.json on the wall clock, two stages on two cores, the median of five runs
# or both. STEPS of each run (6 unless given): one to warm up, and of the others the one of median time. A run at
# another speed than the calibration's is made again (slimpack help validate). Without -o the outcome goes into
# experiments/results and README.md and the status is 0; with it the files go into FOLDER and the status is 1
# where a bound is missed or a case is not executed. Takes about ten minutes; nothing else should run meanwhile.
set -eu
cd "$(dirname "$0")/.."
clocks="virtual wall"
program=build/slimpack
folder=
while getopts s:p:o: option; do
    case $option in
    s) clocks=$OPTARG ;;
    p) program=$OPTARG ;;
    o) folder=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
to=${folder:-experiments/results}
mkdir -p "$to"
for model in llama gpt; do
    for attempt in 1 2 3; do
        "$program" calibrate --backend host --model "experiments/models/small_$model.json" \
            -o "$work/host-$model.json" 2>"$work/notes"
        cat "$work/notes" >&2
        grep -q '^warning: the machine' "$work/notes" || break
    done
done
missed=0
for clock in $clocks; do
    name=validate_host
    repeat=1
    if [ "$clock" = wall ]; then
        name=validate_wall
        repeat=5
    fi
    status=0
    SLIMPACK_PROFILE_PATH=$work "$program" validate "experiments/$name.json" --backend host --clock "$clock" \
        --repeat "$repeat" --steps "${1:-6}" -o "$work/report.json" --quiet --wide >"$work/table.txt" || status=$?
    # Status 1 is an answer as well: a case that is not executed, or a bound that is missed.
    [ "$status" -le 1 ]
    mv "$work/report.json" "$to/$name.json"
    mv "$work/table.txt" "$to/$name.txt"
    [ -z "$folder" ] || cat "$to/$name.txt"
    if [ "$status" -eq 1 ]; then
        missed=1
    fi
done
if [ -n "$folder" ]; then
    exit "$missed"
fi
experiments/readme_tables.sh
