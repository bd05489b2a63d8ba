#!/bin/sh
# check_run.sh SOURCE BUILD WORK: run.sh and file_results.sh where there is no GPU: everything ends,
# what could not be looked at is named, and nothing is filed that was not measured. BUILD is the bare
# build of check_bare_build.sh. Exit status 77 where that was not made, or on a machine with a GPU.
set -eu
source=$1
build=$2
work=$3
if [ ! -x "$build/tests/gpu/checklist" ]; then
    echo "SKIPPED: no bare build"
    exit 77
fi
status=0
"$build/tests/gpu/checklist" versions >/dev/null || status=$?
if [ "$status" -ne 77 ]; then
    echo "SKIPPED: there is a GPU; tests/gpu/run.sh is for people to start"
    exit 77
fi
fail() {
    echo "$*" >&2
    exit 1
}
rm -rf "$work"
mkdir -p "$work/tree/tests/gpu" "$work/tree/profiles" "$work/measured"

status=0
SP_GPU_BUILD=$build "$source/tests/gpu/run.sh" "$work/out" >/dev/null || status=$?
[ "$status" -eq 77 ] || fail "run.sh ended with $status"
for part in configure build; do
    grep -q "^passed *$part " "$work/out/summary.txt" || fail "part $part did not pass"
done
for part in checklist device_test attention_test; do
    grep -q "^missing *$part " "$work/out/summary.txt" || fail "part $part is not missing"
done
[ "$(find "$work/out" -type f | wc -l)" -le 8 ] || fail "more than 8 files"
grep -q '"status":"missing","reason":"no GPU: ' "$work/out/checklist.jsonl" || fail "no reason"

# A program that never ends, a broken one and one without a GPU, in place of the build's.
mkdir -p "$work/fake/tests/gpu"
printf '#!/bin/sh\nexit 0\n' >"$work/fake/tests/gpu/checklist"
printf '#!/bin/sh\necho "$1/made.json"; echo "{}" >"$1/made.json"\n' >"$work/fake/tests/gpu/calibrate"
printf '#!/bin/sh\nsleep 100\n' >"$work/fake/tests/gpu/a_test"
printf '#!/bin/sh\nkill -SEGV $$\n' >"$work/fake/tests/gpu/b_test"
chmod +x "$work"/fake/tests/gpu/*
mkdir -p "$work/bin"
printf '#!/bin/sh\nexit 0\n' >"$work/bin/cmake"
chmod +x "$work/bin/cmake"
status=0
PATH=$work/bin:$PATH SP_GPU_BUILD=$work/fake SP_GPU_SECONDS=9 "$source/tests/gpu/run.sh" \
    "$work/broken" >/dev/null || status=$?
[ "$status" -eq 1 ] || fail "run.sh with broken tests ended with $status"
grep -q '^failed *a_test .*over its limit' "$work/broken/summary.txt" || fail "no limit"
grep -q 'b_test' "$work/broken/summary.txt" || fail "the part behind it is not named"

# Filing: not without a calibration that passed and a profile.
cp "$source/tests/gpu/file_results.sh" "$work/tree/tests/gpu/"
file="$work/tree/tests/gpu/file_results.sh"
if "$file" "$work/out" 2>/dev/null; then
    fail "results without a GPU were filed"
fi
printf 'passed   calibrate    9 s\n' >"$work/measured/summary.txt"
if "$file" "$work/measured" 2>/dev/null; then
    fail "results without a profile were filed"
fi
printf '{"schema": "slimpack/profile/1"}\n' >"$work/measured/x1.json"
printf '{}\n' >"$work/measured/checklist.jsonl"
"$file" "$work/measured" >/dev/null
[ -s "$work/tree/profiles/x1.json" ] || fail "no profile filed"
[ -s "$work/tree/experiments/results/x1/checklist.jsonl" ] || fail "no results filed"
[ ! -e "$work/tree/experiments/results/x1/x1.json" ] || fail "the profile was filed twice"
echo "run.sh and file_results.sh do what they say without a GPU"
