#!/usr/bin/env bash
# check_readme.sh PROGRAM SOURCE: the pages hold the committed results, and every line of them that calls
# build/slimpack runs, once; those of tune and calibrate, which take longest, in a full run (SP_TEST_FULL=1). The
# published tables are compared by check_published.sh.
set -euo pipefail
program=$1
source=$2
# shellcheck source=tests/cli/prelude.sh
. "$source/tests/cli/prelude.sh"
"$source/experiments/readme_tables.sh" --check
cd "$work"
pages_folder
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
exit "$failed"
