#!/usr/bin/env bash
# demo.sh SOURCE WORK: runs ./demo in a copy of the source, installs what it leaves, moves the copy and
# the prefix away, and asks the installed program for a profile, a table and a figure.
set -eu
source=$1
work=$2
command -v gnuplot >/dev/null || { echo "SKIPPED: no gnuplot" && exit 77; }
rm -rf "$work"
mkdir -p "$work/tree"
tar -C "$source" --exclude './build*' --exclude ./.git -cf - . | tar -C "$work/tree" -xf -

"$work/tree/demo" >"$work/demo.log" 2>&1 || { tail -n 40 "$work/demo.log" && exit 1; }
cmake --install "$work/tree/build" --prefix "$work/prefix" >"$work/install.log"
for file in slimpack slimpack.1 libslimpack.a slimpack.pc; do
    [ -n "$(find "$work/prefix" -name "$file" -size +0)" ] || { echo "not installed: $file" && exit 1; }
done

mv "$work/tree" "$work/tree-moved"
mv "$work/prefix" "$work/prefix-moved"
cd "$work"
unset SLIMPACK_PROFILE_PATH
program=$work/prefix-moved/bin/slimpack
"$program" simulate prefix-moved/share/doc/slimpack/examples/demo.json --set workload.batches=1 \
    --plot step.png --quiet | grep -q '^profile h800 '
[ -s step.png ] || { echo "no figure" && exit 1; }
"$program" validate --published --table zb_v | grep -q '^zb_v '
