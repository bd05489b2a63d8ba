#!/usr/bin/env bash
# check_readme.sh PROGRAM SOURCE: the pages hold the committed results, and every line of them that calls
# build/slimpack runs, once; those of tune and calibrate, which take longest, in a full run (SP_TEST_FULL=1). The
# published tables are compared by check_published.sh; the model that is trained on the CPU is a narrower one.
set -euo pipefail
program=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$source/experiments/readme_tables.sh" --check
mkdir "$work/build"
ln -s "$program" "$work/build/slimpack"
mkdir "$work/experiments"
ln -s "$source"/experiments/* "$work/experiments"
rm "$work/experiments/host_small.json"
sed 's/"hidden": 256, "ffn": 688/"hidden": 64, "ffn": 176/' "$source/experiments/host_small.json" \
    >"$work/experiments/host_small.json"
grep -q '"hidden": 64,' "$work/experiments/host_small.json"
cd "$work"
ran=0
declare -A done=(["build/slimpack validate --published"]=1)
# Otherwise they run on less (check_tune.sh, check_calibrate.sh, fits_again.sh).
long='^build/slimpack (tune|calibrate) '
[ "${SP_TEST_FULL:-}" != 1 ] || long=
pages="README.md experiments/guide.md experiments/README.md experiments/RESULTS.md solver/README.md backends/README.md"
for page in $pages; do
    while IFS= read -r line; do
        [ -z "${done["$line"]:-}" ] || continue
        done[$line]=1
        [ -n "$long" ] && [[ $line =~ $long ]] && continue
        # Status 1 is an answer as well (out of memory, say).
        bash -c "$line" >out 2>err </dev/null || [ $? -eq 1 ] || {
            echo "$page: fails: $line"
            cat err
            exit 1
        }
        ran=$((ran + 1))
    done < <(awk '/^```sh/ {code = 1; next} /^```/ {code = 0} code && /^build\/slimpack/' "$source/$page")
done
[ "$ran" -gt 10 ] || { echo "only $ran commands found"; exit 1; }
echo "$ran commands of $pages run"
