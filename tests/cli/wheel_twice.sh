#!/usr/bin/env bash
# wheel_twice.sh SOURCE: the target dist_wheel makes the wheel of a release twice, from two copies of the tree in other
# folders: both are the same bytes and name no folder of theirs.
set -u
source=$(realpath "$1")
. "$(dirname "$0")/prelude.sh"
export SOURCE_DATE_EPOCH=1700000000
python3 -m venv "$work/venv" 2>/dev/null && "$work/venv/bin/pip" download -q --no-deps -d "$work/tools" 'scikit-build-core>=0.10' 2>/dev/null ||
    { echo "SKIPPED: no venv, or no package index to get scikit-build-core from" && exit 77; }
mkdir "$work/one" "$work/other"
for copy in one other; do
    tar -C "$source" --exclude=./build* --exclude=./.git -cf - . | tar -C "$work/$copy" -xf -
done
# Files of both have other times.
find "$work/other" -type f -exec touch {} +
for copy in one other; do
    cmake -DBUILD="$work/$copy/build" -DSOURCE="$work/$copy" -DWHEEL=ONLY -P "$work/$copy/solver/cmake/SpDist.cmake" >"$work/$copy.log" 2>&1 ||
        { complain "no wheel: $(tail -5 "$work/$copy.log")"; exit 1; }
done
wheel=$(basename "$work"/one/build/dist/*.whl)
cmp "$work/one/build/dist/$wheel" "$work/other/build/dist/$wheel" || complain "two builds are not the same bytes"
cmp "$work/one/build/dist/SHA256SUMS" "$work/other/build/dist/SHA256SUMS" || complain "two builds have other sums"
mkdir "$work/unpacked"
python3 -m zipfile -e "$work/one/build/dist/$wheel" "$work/unpacked"
grep -rqF "$work" "$work/unpacked" && complain "the wheel names the folder of its build: $(grep -rlF "$work" "$work/unpacked")"
exit "$failed"
