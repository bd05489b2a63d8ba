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

# Programs that end well, but for one kernel that is too slow and a partition that cannot be had.
rm "$work"/fake/tests/gpu/*_test
printf '#!/bin/sh\n[ $# = 1 ] && echo "{\\"schema\\": \\"slimpack/profile/1\\"}" >"$1/y2.json"\n' \
    >"$work/fake/tests/gpu/calibrate"
cat >"$work/fake/tests/gpu/kernels_bench" <<'BENCH'
#!/bin/sh
echo '{"bench": "cuda_kernels", "kernel": "copy", "limit": "itself", "ratio": 0.100}'
echo '{"bench": "cuda_kernels", "kernel": "add", "limit": "copy", "ratio": 0.801}'
echo '{"bench": "cuda_kernels", "kernel": "slow_one", "limit": "copy", "ratio": 0.799}'
BENCH
chmod +x "$work"/fake/tests/gpu/kernels_bench
status=0
PATH=$work/bin:$PATH SP_GPU_BUILD=$work/fake SP_GPU_SECONDS=60 "$source/tests/gpu/run.sh" \
    "$work/slow" >/dev/null || status=$?
[ "$status" -eq 1 ] || fail "run.sh with a slow kernel ended with $status"
grep -q '^passed *kernels ' "$work/slow/summary.txt" || fail "the kernels were not timed"
grep -q '^failed *copy_share .*: slow_one 0.799$' "$work/slow/summary.txt" || fail "not one slow kernel"
grep -q '^passed *calibrate ' "$work/slow/summary.txt" || fail "no calibration"
grep -q '^failed *calibrate-4 ' "$work/slow/summary.txt" || fail "the partition did not fail"
[ "$(find "$work/slow" -type f | wc -l)" -le 8 ] || fail "more than 8 files"
sed -i 's/0\.799/0.8/' "$work/fake/tests/gpu/kernels_bench"
PATH=$work/bin:$PATH SP_GPU_BUILD=$work/fake SP_GPU_SECONDS=60 "$source/tests/gpu/run.sh" \
    "$work/fast" >/dev/null || true
grep -q '^passed *copy_share ' "$work/fast/summary.txt" || fail "a kernel at the share failed"

# Requests: executed where there are some, with the log among the results; else missing.
printf '#!/bin/sh\necho "$2" && echo "{}" >"$2/01-a.result.json"\n' >"$work/fake/tests/gpu/execute"
printf '#!/bin/sh\nexit 0\n' >"$work/fake/tests/gpu/a_test"
chmod +x "$work"/fake/tests/gpu/*
rm -f "$work"/fake/tests/gpu/b_test
mkdir -p "$work/requests" "$work/no_requests"
echo '{}' >"$work/requests/01-a.json"
for requests in requests no_requests; do
    PATH=$work/bin:$PATH SP_GPU_BUILD=$work/fake SP_GPU_SECONDS=60 SP_GPU_REQUESTS=$work/$requests \
        "$source/tests/gpu/run.sh" "$work/with_$requests" >/dev/null || true
done
grep -q '^passed *execute ' "$work/with_requests/summary.txt" || fail "requests were not executed"
files=$(tar -tzf "$work/with_requests/executed.tar.gz" | sort | tr '\n' ' ')
[ "$files" = "executed/ executed/01-a.result.json executed/build.log executed/execute.log " ] ||
    fail "results are: $files"
[ "$(find "$work/with_requests" -type f | wc -l)" -le 8 ] || fail "more than 8 files"
grep -q '^missing *execute .*export_gpu.sh' "$work/with_no_requests/summary.txt" || fail "no word of requests"

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
printf '{"schema": "slimpack/profile/1"}\n' >"$work/measured/x1-1of4.json"
"$file" "$work/measured" >/dev/null
[ ! -e "$work/tree/profiles/x1-1of4.json" ] || fail "a partition was filed that did not pass"
printf 'passed   calibrate-4  9 s\n' >>"$work/measured/summary.txt"
"$file" "$work/measured" >/dev/null
[ -s "$work/tree/profiles/x1-1of4.json" ] || fail "no partition filed"
printf 'passed   calibrate-4  9 s\n' >"$work/measured/summary.txt"
if "$file" "$work/measured" 2>/dev/null; then
    fail "a partition was filed without its GPU"
fi
[ -s "$work/tree/profiles/x1.json" ] || fail "no profile filed"
[ -s "$work/tree/experiments/results/x1/checklist.jsonl" ] || fail "no results filed"
[ ! -e "$work/tree/experiments/results/x1/x1.json" ] || fail "the profile was filed twice"

# What was executed is compared where the program is there, and its answer kept.
cp "$work/with_requests/executed.tar.gz" "$work/measured/"
SP_PROGRAM=$work/none "$file" "$work/measured" | grep -q '^executed.tar.gz stays' || fail "no word of the program"
cat >"$work/program" <<'PROGRAM'
#!/bin/sh
[ -s "$SLIMPACK_PROFILE_PATH/h200.json" ] && [ -s "$SLIMPACK_PROFILE_PATH/h200-1of4.json" ] || exit 70
[ "$1 $2 $3 $4 $5" = "validate experiments/validate_gpu.json --backend cuda --executed" ] || exit 70
[ -s "$6/01-a.result.json" ] || exit 70
echo "{}" >"$8"
echo "compared"
exit 1
PROGRAM
chmod +x "$work/program"
SP_PROGRAM=$work/program "$file" "$work/measured" >/dev/null || fail "a bound that is missed is no failure"
grep -q '^compared$' "$work/tree/experiments/results/x1/validate_gpu.txt" || fail "no table"
[ -s "$work/tree/experiments/results/x1/validate_gpu.json" ] || fail "no report"
sed -i 's/^exit 1/exit 70/' "$work/program"
if SP_PROGRAM=$work/program "$file" "$work/measured" >/dev/null; then
    fail "a comparison that broke was taken for good"
fi
echo "run.sh and file_results.sh do what they say without a GPU"
