#!/bin/sh
# run.sh [FOLDER]: what is to be learned from a machine with a GPU, without anyone looking on. Needs
# gcc, CMake 3.25 and CUDA 13.0; nothing is fetched, and no setting of the card is changed. Results go
# to FOLDER (default $OUT, or gpu-out), at most 8 files; file_results.sh files them. Each part has a
# time limit, and its failure stops no other part; what was measured is in FOLDER after every part and
# every case, so that a run that is ended leaves it. What the acceptance thresholds come to
# (file_results.sh) stands at the end of summary.txt and in thresholds.json.
#
# SP_GPU_PARTS: the parts to run, by name, in the order below (default: all), and FOLDER then keeps
# what is in it; backends/cuda/README.md says which go together. build, checklist, wall (cases on the
# wall clock), gaps, tests, kernels, products, calibrate, calibrate-4, execute (all other cases),
# several, sanitizer.
#
# Exit status: 0 all parts passed, 1 one failed or a threshold was missed, 77 no GPU here.
# SP_GPU_BUILD: build folder (default build-gpu). SP_GPU_SECONDS: time for everything (default 570).
# SP_GPU_REQUESTS: plans to execute, as experiments/export_gpu.sh writes them (default gpu-requests).
# SP_GPU_LIBRARIES: libraries for a machine without packages, as libraries.sh packs them (default
# gpu-libraries.tar.xz); taken where there is such a file.
set -u
cd "$(dirname "$0")/../.." || exit 1
out=${1:-${OUT:-gpu-out}}
build=${SP_GPU_BUILD:-build-gpu}
requests=${SP_GPU_REQUESTS:-gpu-requests}
seconds=${SP_GPU_SECONDS:-570}
all="build checklist wall gaps tests kernels products calibrate calibrate-4 execute several sanitizer"
parts=${SP_GPU_PARTS:-$all}
begin=$(date +%s)
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
summary=$out/summary.txt
for name in $parts; do
    case " $all " in
    *" $name "*) ;;
    *) echo "run.sh: no part '$name'; there are: $all" >&2 && exit 2 ;;
    esac
done
if [ -z "${SP_GPU_PARTS:-}" ]; then
    rm -f "$summary" "$out/checklist.jsonl" "$out/tests.log" "$out/build.log" "$out/executed.tar.gz"
fi
touch "$summary" "$out/checklist.jsonl" "$out/tests.log"
wanted() { # PART
    case " $parts " in *" $1 "*) ;; *) return 1 ;; esac
}

note() { # STATUS PART TEXT
    printf '%-8s %-12s %s\n' "$1" "$2" "$3" | tee -a "$summary"
}
have() {
    command -v "$1" >/dev/null 2>&1
}
left() {
    echo $((seconds - $(date +%s) + begin))
}

# part NAME SECONDS LOG COMMAND...: runs it within its limit and what is left of the whole.
part() {
    name=$1 limit=$2 log=$3
    shift 3
    rest=$(left)
    if [ "$rest" -lt 5 ]; then
        note missing "$name" "no time left"
        return 1
    fi
    [ "$limit" -gt "$rest" ] && limit=$rest
    start=$(date +%s)
    timeout -k 5 "$limit" "$@" >>"$out/$log" 2>&1
    status=$?
    took="$(($(date +%s) - start)) s, see $log"
    case $status in
    0) note passed "$name" "$took" ;;
    77) note missing "$name" "$took" ;;
    124 | 137) note failed "$name" "over its limit of $limit s; $took" ;;
    *) note failed "$name" "exit status $status; $took" ;;
    esac
    return "$status"
}

# Libraries that come with Python rather than with the toolkit.
python_folder() { # NAME
    have python3 && python3 - "$1" <<'PYTHON' 2>/dev/null
import importlib.util, os, sys
spec = importlib.util.find_spec("nvidia")
for root in list(spec.submodule_search_locations) if spec else []:
    for folder in (sys.argv[1], "cu13"):
        path = os.path.join(root, folder)
        if os.path.isdir(path):
            print(path)
            sys.exit(0)
PYTHON
}
# Newer wheels put all of CUDA's libraries, cuBLASLt among them, into cu13.
for library in cudnn nccl cu13; do
    folder=$(python_folder $library)
    if [ -n "$folder" ] && [ -d "$folder/lib" ]; then
        LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder/lib
    fi
    [ $library = cudnn ] && cudnn=$folder
    [ $library = nccl ] && nccl=$folder
done
cuda=${CUDA_HOME:-/usr/local/cuda}
for folder in "$cuda/lib64" "$cuda/lib"; do
    [ -d "$folder" ] && LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
done
export LD_LIBRARY_PATH
libraries=${SP_GPU_LIBRARIES:-gpu-libraries.tar.xz}
[ ! -e "$libraries" ] || eval "$(sh tests/gpu/libraries.sh unpack "$libraries" "$build/libraries")"
have nvcc || PATH=$PATH:$cuda/bin

environment() {
    uname -sr
    for tool in gcc cmake nvcc make ninja compute-sanitizer ncu nvidia-cuda-mps-control \
        nvidia-cuda-mps-server mpirun; do
        if have "$tool"; then
            printf '%s: %s\n' "$tool" "$("$tool" --version 2>/dev/null </dev/null | grep -m 1 '[0-9]\.')"
        else
            echo "$tool: missing"
        fi
    done
    echo "LD_LIBRARY_PATH: $LD_LIBRARY_PATH"
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,power.draw,power.limit,temperature.gpu,mig.mode.current,compute_mode --format=csv
    nvidia-smi topo -m
    true
}
environment >"$out/environment.txt" 2>&1
for tool in gcc cmake nvcc; do
    have "$tool" || note missing "$tool" "not on this machine"
done

# Cases that were executed, and what is kept of them: packed again after each, so that a run that is
# ended leaves those before.
executed=$build/executed
keep_executed() {
    tar -czf "$executed.tar.gz" -C "$build" executed && mv "$executed.tar.gz" "$out/executed.tar.gz"
}
# execute_cases NAME SECONDS-OF-ONE GREP-OPTIONS: the lines of runs.txt that grep finds by their clock,
# a process for each.
execute_cases() {
    name=$1 one=$2
    shift 2
    if [ ! -s "$requests/runs.txt" ]; then
        note missing "$name" "no plans in $requests: experiments/export_gpu.sh makes them"
        return
    fi
    mkdir -p "$executed"
    grep "$@" -e '--clock wall' "$requests/runs.txt" >"$build/cases.txt"
    start=$(date +%s) good=0 count=$(wc -l <"$build/cases.txt")
    [ ! -e "$out/executed.tar.gz" ] || tar -xzf "$out/executed.tar.gz" -C "$build"
    cp -r "$requests/." "$executed/"
    [ ! -e "$out/build.log" ] || mv "$out/build.log" "$executed/" # one file less
    while read -r case_arguments; do
        limit=$(left)
        [ "$limit" -lt 5 ] && break
        [ "$limit" -gt "$one" ] && limit=$one
        printf '%s\n' "$case_arguments" >"$executed/runs.txt"
        sh experiments/execute_plans.sh "$slimpack" "$executed" "$limit" \
            "$limit" >>"$executed/execute.log" 2>&1 </dev/null && good=$((good + 1))
        cp "$requests/runs.txt" "$executed/"
        keep_executed
    done <"$build/cases.txt"
    status=failed
    [ "$good" -eq "$count" ] && status=passed
    note $status "$name" "$good of $count cases, $(($(date +%s) - start)) s, see executed.tar.gz"
}

check=$build/tests/gpu/gpu_check
slimpack=$build/slimpack
if wanted build; then
    generator=
    have make || { have ninja && generator=-GNinja; }
    # What a newer compiler warns of is in the log and stops nothing.
    # shellcheck disable=SC2086
    part configure 60 build.log cmake --preset gpu -B "$build" $generator -DSP_CUDA_WERROR=OFF \
        ${cudnn:+"-DSP_CUDNN_HINT=$cudnn/include"} ${nccl:+"-DSP_NCCL_HINT=$nccl/include"}
    part build 240 build.log cmake --build "$build" --parallel "$(getconf _NPROCESSORS_ONLN)"
fi

tests=$("$check" --list 2>/dev/null | grep '_test$')

no_gpu=0
if wanted checklist; then
    part checklist 120 checklist.jsonl "$check" checklist
    no_gpu=$?
fi

# Kernels that only stream through memory are to reach this share of what a copy reaches.
copy_share=0.8
slow_kernels() {
    sed -n '/"limit": "copy"/s/.*"kernel": "\([a-z_0-9]*\)".*"ratio": \([0-9.]*\).*/\1 \2/p' \
        "$out/checklist.jsonl" | awk -v least="$copy_share" '$2 < least { printf " %s %s", $1, $2 }'
}

if [ $no_gpu -ne 77 ]; then
    wanted wall && execute_cases wall 60 -h
    if wanted gaps; then
        if [ -e "$out/executed.tar.gz" ]; then
            mkdir -p "$build" && tar -xzf "$out/executed.tar.gz" -C "$build"
            part gaps 20 tests.log "$check" gaps "$executed"
            "$check" memory "$executed" >>"$out/tests.log" 2>&1 || true
        else
            note missing gaps "nothing was executed"
        fi
    fi
fi
if wanted tests; then
    [ -n "$tests" ] || note missing tests "none was built"
    for name in $tests; do
        part "$name" 90 tests.log "$check" "$name"
    done
fi
if [ $no_gpu -ne 77 ]; then
    if wanted kernels && part kernels 60 checklist.jsonl "$check" kernels_bench; then
        slow=$(slow_kernels)
        if [ -z "$slow" ]; then
            note passed copy_share "every kernel reaches $copy_share of a copy"
        else
            note failed copy_share "below $copy_share of a copy:$slow"
        fi
    fi
    wanted products &&
        part products 60 tests.log "$check" products tests/gpu/thresholds/products/*.json
    wanted calibrate && part calibrate 150 tests.log "$check" calibrate "$out"
    wanted calibrate-4 && part calibrate-4 150 tests.log "$check" calibrate "$out" 4
    wanted execute && execute_cases execute 60 -v
    if wanted several; then
        gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
        if [ "$gpus" -ge 2 ]; then
            part several 150 tests.log sh tests/gpu/several.sh compare "$slimpack" "$build/several" "$gpus"
        else
            note missing several "there is one GPU, ranks with a GPU each need two or more"
        fi
    fi
    if wanted sanitizer; then
        if have compute-sanitizer; then
            # The checker follows one process.
            for name in $tests; do
                part sanitizer 60 tests.log env SP_GPU_SMALL=1 SP_GPU_ONE_PROCESS=1 \
                    compute-sanitizer --error-exitcode 1 "$check" "$name"
            done
        else
            note missing sanitizer "no compute-sanitizer"
        fi
    fi
fi

thresholds=$(sh tests/gpu/file_results.sh --thresholds "$out")
case $? in
0)
    if printf '%s\n' "$thresholds" | grep -q '^holds'; then
        note passed thresholds "none was missed"
    else
        note missing thresholds "none was measured"
    fi
    ;;
1) note failed thresholds "$(printf '%s\n' "$thresholds" | grep -c '^missed') missed" ;;
*) note failed thresholds "they could not be read" ;;
esac
note "$(grep -c '^failed' "$summary")" failed "parts"
note "$(grep -c '^missing' "$summary")" missing "parts"
note "$(grep -c '^passed' "$summary")" passed "parts, $(($(date +%s) - begin)) s"
printf '\n%s\n' "$thresholds" | tee -a "$summary"
[ $no_gpu -eq 77 ] && exit 77
! grep -q '^failed' "$summary"
