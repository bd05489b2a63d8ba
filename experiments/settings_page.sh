#!/bin/sh
# settings_page.sh [--check] [PROGRAM]: writes experiments/SCENARIO.md, the page of all settings of a scenario, from
# the table in the program; with --check it only says whether the page differs.
set -eu
cd "$(dirname "$0")/.."
check=no
if [ "${1:-}" = --check ]; then
    check=yes
    shift
fi
program=${1:-build/slimpack}
new=$(mktemp)
trap 'rm -f "$new"' EXIT
cat >"$new" <<'PAGE'
# Settings of a scenario

`experiments/settings_page.sh` writes this page from the program's own table (`sim/scenario/settings.c`, and `model.c`, `cluster.c`, `stack.c` in `sim/model`); `slimpack help KEY` prints the
lines of one key, of the last part of a key where that is unique, or of a name from elsewhere, and `slimpack help settings` lists all keys.
A dotted key stands for nested objects, `parallel.pp` for `{"parallel": {"pp": 8}}`, and `--set parallel.pp=8` overrides it.
A name under *elsewhere* is what other programs call the setting: only the header of a table of measurements takes it, and elsewhere the
error names the key that is read. Relative paths are looked up beside the document and then in the working directory.
A setting that is stated otherwise than by default and has no effect where it stands (`schedule.group` without interleaving, an option that
the strategy does not read) is a warning, in `warnings` of the JSON too; `compare` tells those that none of its rows reads.

PAGE
"$program" help --markdown >>"$new"
page=experiments/SCENARIO.md
if [ "$check" = yes ]; then
    diff -u "$page" "$new"
else
    cat "$new" >"$page"
fi
