#!/bin/sh
# check_run.sh SOURCE BUILD WORK: run.sh and file_results.sh where there is no GPU: everything ends,
# what could not be looked at is named, and nothing is filed that was not measured. BUILD is that
# of check_build.sh. Exit status 77 where that was not made, or on a machine with a GPU.
set -eu
source=$1
build=$2
work=$3
if [ ! -x "$build/tests/gpu/gpu_check" ]; then
    echo "SKIPPED: no build"
    exit 77
fi
status=0
"$build/tests/gpu/gpu_check" checklist versions >/dev/null || status=$?
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
for part in checklist device_test attention_test gradients_test; do
    grep -q "^missing *$part " "$work/out/summary.txt" || fail "part $part is not missing"
done
[ "$(find "$work/out" -type f | wc -l)" -le 8 ] || fail "more than 8 files"
grep -q '"status":"missing","reason":"no GPU: ' "$work/out/checklist.jsonl" || fail "no reason"
grep -q '^missing *thresholds .*none was measured' "$work/out/summary.txt" || fail "thresholds without a GPU"
[ "$(grep -c '^not run ' "$work/out/summary.txt")" -eq 10 ] || fail "not ten thresholds that did not run"
grep -q '^not run *gradients .*missing gradients_test' "$work/out/summary.txt" || fail "no reason of a bar"

# In place of the build's program: its command NAME is the script $work/fake/NAME.
mkdir -p "$work/fake/tests/gpu" "$work/bin"
cat >"$work/fake/tests/gpu/gpu_check" <<CHECK
#!/bin/sh
[ "\$1" = --list ] && exec ls "$work/fake"
name=\$1
shift
[ -x "$work/fake/\$name" ] && exec "$work/fake/\$name" "\$@"
exit 2
CHECK
script_of() { # NAME, with what it does on standard input
    { echo '#!/bin/sh' && cat; } >"$work/fake/$1"
    chmod +x "$work/fake/$1"
}
chmod +x "$work/fake/tests/gpu/gpu_check"
printf '#!/bin/sh\nexit 0\n' >"$work/bin/cmake"
chmod +x "$work/bin/cmake"

# A test that never ends, a broken one, and a calibration.
echo 'exit 0' | script_of checklist
echo 'echo "$1/made.json"; echo "{}" >"$1/made.json"' | script_of calibrate
echo 'sleep 100' | script_of a_test
echo 'kill -SEGV $$' | script_of b_test
status=0
PATH=$work/bin:$PATH SP_GPU_BUILD=$work/fake SP_GPU_SECONDS=9 "$source/tests/gpu/run.sh" \
    "$work/broken" >/dev/null || status=$?
[ "$status" -eq 1 ] || fail "run.sh with broken tests ended with $status"
grep -q '^failed *a_test .*over its limit' "$work/broken/summary.txt" || fail "no limit"
grep -q 'b_test' "$work/broken/summary.txt" || fail "the part behind it is not named"

# Commands that end well, but for one kernel that is too slow and a partition that cannot be had.
rm "$work"/fake/*_test
echo '[ $# = 1 ] && echo "{\"schema\": \"slimpack/profile/1\"}" >"$1/y2.json"' | script_of calibrate
script_of kernels_bench <<'BENCH'
echo '{"bench": "cuda_kernels", "kernel": "copy", "limit": "itself", "ratio": 0.100}'
echo '{"bench": "cuda_kernels", "kernel": "add", "limit": "copy", "ratio": 0.801}'
echo '{"bench": "cuda_kernels", "kernel": "slow_one", "limit": "copy", "ratio": 0.799}'
BENCH
status=0
PATH=$work/bin:$PATH SP_GPU_BUILD=$work/fake SP_GPU_SECONDS=60 "$source/tests/gpu/run.sh" \
    "$work/slow" >/dev/null || status=$?
[ "$status" -eq 1 ] || fail "run.sh with a slow kernel ended with $status"
grep -q '^passed *kernels ' "$work/slow/summary.txt" || fail "the kernels were not timed"
grep -q '^failed *copy_share .*: slow_one 0.799$' "$work/slow/summary.txt" || fail "not one slow kernel"
grep -q '^passed *calibrate ' "$work/slow/summary.txt" || fail "no calibration"
grep -q '^failed *calibrate-4 ' "$work/slow/summary.txt" || fail "the partition did not fail"
[ "$(find "$work/slow" -type f | wc -l)" -le 8 ] || fail "more than 8 files"
sed -i 's/0\.799/0.8/' "$work/fake/kernels_bench"
PATH=$work/bin:$PATH SP_GPU_BUILD=$work/fake SP_GPU_SECONDS=60 "$source/tests/gpu/run.sh" \
    "$work/fast" >/dev/null || true
grep -q '^passed *copy_share ' "$work/fast/summary.txt" || fail "a kernel at the share failed"

# Requests: executed where there are some, with the log among the results; else missing.
echo '[ "$1 $3" = "run --record" ] && [ -s "$2" ] && echo "{}" >"$4"' | script_of slimpack
echo 'exit 0' | script_of a_test
mkdir -p "$work/requests" "$work/no_requests"
echo '{}' >"$work/requests/01-a.json"
echo 'run 01-a.json --record 01-a.result.json --clock wall' >"$work/requests/runs.txt"
echo '{}' >"$work/requests/02-b.json"
echo 'run 02-b.json --record 02-b.result.json --clock virtual' >>"$work/requests/runs.txt"
for requests in requests no_requests; do
    PATH=$work/bin:$PATH SP_GPU_BUILD=$work/fake SP_GPU_SECONDS=60 SP_GPU_REQUESTS=$work/$requests \
        "$source/tests/gpu/run.sh" "$work/with_$requests" >/dev/null || true
done
for part in wall execute; do
    grep -q "^passed *$part .*1 of 1 cases" "$work/with_requests/summary.txt" || fail "plans were not executed"
done
files=$(tar -tzf "$work/with_requests/executed.tar.gz" | sort | tr '\n' ' ')
[ "$files" = "executed/ executed/01-a.json executed/01-a.result.json executed/02-b.json executed/02-b.result.json executed/build.log executed/execute.log executed/runs.txt " ] ||
    fail "results are: $files"
[ "$(find "$work/with_requests" -type f | wc -l)" -le 8 ] || fail "more than 8 files"
grep -q '^missing *execute .*export_gpu.sh' "$work/with_no_requests/summary.txt" || fail "no word of requests"

# Parts by name: nothing else runs, what is in the folder stays, and wall cases go before others.
script_of slimpack <<'SLIMPACK'
echo "$2" >>order
[ "$2" = 02-b.json ] && exit 70
echo "{}" >"$4"
SLIMPACK
mkdir -p "$work/mixed"
case_of() { # NAME CLOCK
    echo '{}' >"$work/mixed/$1.json"
    echo "run $1.json --record $1.result.json --clock $2" >>"$work/mixed/runs.txt"
}
case_of 01-a virtual
case_of 02-b wall
case_of 03-c wall
parts() { # NAME...
    PATH=$work/bin:$PATH SP_GPU_BUILD=$work/fake SP_GPU_SECONDS=60 SP_GPU_REQUESTS=$work/mixed \
        SP_GPU_PARTS="$*" "$source/tests/gpu/run.sh" "$work/parts" >/dev/null
}
rm -rf "$work/fake/executed"
status=0
parts nothing 2>/dev/null || status=$?
[ "$status" -eq 2 ] || fail "an unknown part ended with $status"
parts wall gaps || true
parts calibrate execute || true
grep -q '^failed *wall .*1 of 2 cases' "$work/parts/summary.txt" || fail "not one of two wall cases"
grep -q '^passed *execute .*1 of 1 cases' "$work/parts/summary.txt" || fail "not one other case"
grep -q '^[a-z]* *calibrate ' "$work/parts/summary.txt" || fail "a named part did not run"
for part in build checklist a_test kernels products calibrate-4 several sanitizer; do
    grep -q "^[a-z]* *$part " "$work/parts/summary.txt" && fail "part $part ran"
done
tar -xzf "$work/parts/executed.tar.gz" -C "$work/parts"
[ "$(tr '\n' ' ' <"$work/parts/executed/order")" = "02-b.json 03-c.json 01-a.json " ] || fail "not wall cases first"
[ -s "$work/parts/executed/03-c.result.json" ] || fail "an earlier call's case is lost"
rm -rf "$work/fake/executed"

# A run that is ended leaves the cases before.
script_of slimpack <<'SLIMPACK'
[ "$2" = 03-c.json ] && sleep 100
echo "{}" >"$4"
SLIMPACK
mkdir -p "$work/ended"
PATH=$work/bin:$PATH SP_GPU_BUILD=$work/fake SP_GPU_REQUESTS=$work/mixed SP_GPU_PARTS=wall timeout -s KILL 5 \
    "$source/tests/gpu/run.sh" "$work/ended" >/dev/null || true
tar -tzf "$work/ended/executed.tar.gz" | grep -q '02-b.result.json' || fail "what was executed is lost"
rm -rf "$work/fake/executed"
echo '[ "$1 $3" = "run --record" ] && [ -s "$2" ] && echo "{}" >"$4"' | script_of slimpack

# Thresholds: each from what its program prints, held against its bound.
script_of checklist <<'CHECKLIST'
echo "{\"check\":\"versions\",\"status\":\"ok\",\"gpu\":\"${THRESHOLDS_GPU:-NVIDIA H200}\",\"pci\":\"x\"}"
echo '{"check":"attention","status":"ok","partitions":1,"backward":false,"spread":0.01,"tflops":580.0}'
echo '{"check":"attention","status":"ok","partitions":2,"backward":false,"spread":0.01,"tflops":100.0}'
echo '{"check":"attention","status":"ok","partitions":1,"backward":true,"spread":0.01,"tflops":200.0}'
CHECKLIST
script_of gradients_test <<'GRADIENTS'
echo '{"gradients":"01-a.json","cudnn":"off","share":0.5,"tensor":"gradients/a"}'
echo "{\"gradients\":\"02-a.json\",\"cudnn\":\"on\",\"share\":${THRESHOLDS_SHARE:-1.0},\"tensor\":\"gradients/b\"}"
[ "${THRESHOLDS_SHARE:-1.0}" = 1.0 ]
GRADIENTS
echo 'echo "{\"attention_error\":0.009}"' | script_of attention_test
script_of products <<'PRODUCTS'
[ -s "$1" ] || exit 1
echo '{"products":"a","kind":"forward","tokens":8,"in":4,"out":2,"times":5,"executor_us":10.0,"alone_us":12.0,"ratio":1.2}'
echo '{"products":"a","kind":"weight gradient","tokens":8,"in":4,"out":2,"times":5,"executor_us":20.0,"alone_us":18.0,"ratio":0.9}'
PRODUCTS
script_of gaps <<'GAPS'
[ -s "$1/01-a.result.json" ] || exit 1
echo "{\"gaps\":\"01-a\",\"pp\":4,\"rank\":1,\"share\":${THRESHOLDS_GAP:-0.02}}"
echo '{"gaps":"02-a","pp":2,"rank":1,"share":0.5}'
GAPS
rm -f "$work/fake/a_test"
thresholds() { # NAME [VARIABLE=VALUE]
    name=$1
    shift
    env "$@" PATH="$work/bin:$PATH" SP_GPU_BUILD="$work/fake" SP_GPU_SECONDS=60 \
        SP_GPU_REQUESTS="$work/requests" "$source/tests/gpu/run.sh" "$work/$name" >/dev/null || true
}
thresholds good A=1
thresholds bad THRESHOLDS_GAP=0.021 THRESHOLDS_SHARE=1.01 THRESHOLDS_GPU="NVIDIA H100 80GB HBM3"
for bar in gradients attention_accuracy attention_rate products gaps copy_share; do
    grep -q "^holds *$bar " "$work/good/summary.txt" || fail "bar $bar does not hold"
done
grep -q '^holds *products .* 0.9000 .*weight gradient 8 x 4 x 2; all together 1.000' "$work/good/summary.txt" ||
    fail "not the slowest product"
for bar in bubble iteration_time peak_memory; do
    grep -q "^not run *$bar .*file_results.sh" "$work/good/summary.txt" || fail "bar $bar ran"
done
grep -q '^not run *sanitizer .*no compute-sanitizer' "$work/good/summary.txt" || have_sanitizer=1
[ -z "${have_sanitizer:-}" ] || command -v compute-sanitizer >/dev/null || fail "a sanitizer that is not here"
grep -q '^missed *gradients .* 1.0100 <= 1 ' "$work/bad/summary.txt" || fail "gradients beyond their bound"
grep -q '^missed *gaps .* 0.0210 ' "$work/bad/summary.txt" || fail "gaps beyond their bound"
grep -q '^reported *attention_rate .*another GPU' "$work/bad/summary.txt" || fail "an H100 by an H200's rate"
grep -q '^failed *thresholds .*2 missed' "$work/bad/summary.txt" || fail "missed thresholds are no failure"
grep -q '"name": "gaps".*"state": "missed", "value": 0.021,' "$work/bad/thresholds.json" || fail "no document"
[ "$(find "$work/good" -type f | wc -l)" -le 8 ] || fail "more than 8 files"

# Several GPUs: the same plan alone and in as many processes, whose losses are compared.
printf '#!/bin/sh\nfor i in 0 1 2 3; do echo "GPU $i: fake (UUID: x)"; done\n' >"$work/bin/nvidia-smi"
script_of slimpack <<'SLIMPACK'
[ "${RANK:-0}" = 0 ] || exit 0
loss=4.1110
[ "${WORLD_SIZE:-1}" = 1 ] || loss=${SEVERAL_LOSS:-4.1111}
while [ "$1" != --record ]; do shift; done
echo "{\"steps\": [{\"loss\": $loss}, {\"loss\": 4.0}]}" >"$2"
SLIMPACK
chmod +x "$work/bin/nvidia-smi"
for loss in 4.1111 4.2 nan; do
    PATH=$work/bin:$PATH SP_GPU_BUILD=$work/fake SP_GPU_SECONDS=60 SEVERAL_LOSS=$loss \
        "$source/tests/gpu/run.sh" "$work/several_$loss" >/dev/null || true
done
grep -q '^passed *several ' "$work/several_4.1111/summary.txt" || fail "several GPUs did not pass"
grep -q '^failed *several ' "$work/several_4.2/summary.txt" || fail "another loss passed"
grep -q '^failed *several ' "$work/several_nan/summary.txt" || fail "no loss passed"
grep -q '^missing *several .*one GPU' "$work/with_requests/summary.txt" || fail "no word of several GPUs"

# The first process that fails ends all, with its own status.
began=$(date +%s)
status=0
"$source/tests/gpu/several.sh" launch 3 sh -c '[ "$RANK" = 1 ] && exit 7; exec sleep 100' || status=$?
[ "$status" -eq 7 ] || fail "a process that failed with 7 ended all with $status"
[ $(($(date +%s) - began)) -lt 50 ] || fail "the others were not ended"
"$source/tests/gpu/several.sh" launch 2 sh -c '[ "$WORLD_SIZE $LOCAL_RANK" = "2 $RANK" ]' || fail "a launch failed"

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
printf '{"schema": "slimpack/gpu-thresholds/1"}\n' >"$work/measured/thresholds.json"
"$file" "$work/measured" >/dev/null
printf '{"schema": "slimpack/profile/1"}\n' >"$work/measured/x1-1of4.json"
"$file" "$work/measured" >/dev/null
[ ! -e "$work/tree/profiles/x1-1of4.json" ] || fail "a partition was filed that did not pass"
printf 'passed   calibrate-4  9 s\n' >>"$work/measured/summary.txt"
"$file" "$work/measured" >/dev/null
[ -s "$work/tree/profiles/x1-1of4.json" ] || fail "no partition filed"
[ ! -e "$work/tree/profiles/thresholds.json" ] || fail "thresholds were filed as a profile"
printf 'passed   calibrate-4  9 s\n' >"$work/measured/summary.txt"
if "$file" "$work/measured" 2>/dev/null; then
    fail "a partition was filed without its GPU"
fi
[ -s "$work/tree/profiles/x1.json" ] || fail "no profile filed"
[ -s "$work/tree/experiments/results/x1/checklist.jsonl" ] || fail "no results filed"
[ ! -e "$work/tree/experiments/results/x1/x1.json" ] || fail "the profile was filed twice"

grep -q '^not run *bubble ' "$work/tree/experiments/results/x1/thresholds.txt" || fail "no thresholds filed"

# What was executed is compared where the program is there, and its answer kept.
cp "$work/with_requests/executed.tar.gz" "$work/measured/"
printf 'passed   calibrate    9 s\npassed   execute      9 s\n' >"$work/measured/summary.txt"
SP_PROGRAM=$work/none "$file" "$work/measured" | grep -q '^executed.tar.gz stays' || fail "no word of the program"
cat >"$work/program" <<'PROGRAM'
#!/bin/sh
[ -s "$SLIMPACK_PROFILE_PATH/h200.json" ] && [ -s "$SLIMPACK_PROFILE_PATH/h200-1of4.json" ] || exit 70
[ "$1 $2 $3 $4 $5" = "validate experiments/validate_gpu.json --backend cuda --executed" ] || exit 70
[ -s "$6/01-a.result.json" ] || exit 70
echo '{"cases": [{"error": {"bubble_ratio_abs": 9}}], "summary": {"compared": 2,' >"$8"
echo '"iteration_time_mape": 0.05, "bubble_ratio_abs": 0.03, "peak_memory_mape": 0.001}}' >>"$8"
echo "compared"
exit 1
PROGRAM
chmod +x "$work/program"
SP_PROGRAM=$work/program "$file" "$work/measured" >/dev/null || fail "a bound that is missed is no failure"
grep -q '^compared$' "$work/tree/experiments/results/x1/validate_gpu.txt" || fail "no table"
[ -s "$work/tree/experiments/results/x1/validate_gpu.json" ] || fail "no report"
for bar in 'missed *bubble .* 0.0300' 'holds *iteration_time .* 0.0500' 'holds *peak_memory .* 0.0010'; do
    grep -q "^$bar <= .*2 cases compared" "$work/tree/experiments/results/x1/thresholds.txt" || fail "bar $bar"
done
sed -i 's/^exit 1/exit 70/' "$work/program"
if SP_PROGRAM=$work/program "$file" "$work/measured" >/dev/null; then
    fail "a comparison that broke was taken for good"
fi
echo "run.sh and file_results.sh do what they say without a GPU"
