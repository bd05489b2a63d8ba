#!/bin/sh
# run.sh [FOLDER]: everything that is to be learned from a machine with a GPU, in less than 8 minutes
# and without anyone looking on. Needs gcc, CMake 3.25 and CUDA 13.0; nothing is fetched, and no
# setting of the card is changed. Results go to FOLDER (default $OUT, or gpu-out), at most 8 files;
# file_results.sh files them. Each part has a time limit, and its failure stops no other part. What
# the bars come to (bars.sh) stands at the end of summary.txt and in bars.json.
#
# Exit status: 0 all parts passed, 1 one failed or a bar was missed, 77 no GPU here.
# SP_GPU_BUILD: build folder (default build-gpu). SP_GPU_SECONDS: time for everything (default 470).
# SP_GPU_REQUESTS: plans to execute, as experiments/export_gpu.sh writes them (default gpu-requests).
set -u
cd "$(dirname "$0")/../.." || exit 1
out=${1:-${OUT:-gpu-out}}
build=${SP_GPU_BUILD:-build-gpu}
requests=${SP_GPU_REQUESTS:-gpu-requests}
seconds=${SP_GPU_SECONDS:-470}
begin=$(date +%s)
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
summary=$out/summary.txt
: >"$summary"

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
for library in cudnn nccl; do
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

: >"$out/build.log"
generator=
have make || { have ninja && generator=-GNinja; }
# shellcheck disable=SC2086
part configure 60 build.log cmake --preset gpu -B "$build" $generator \
    ${cudnn:+"-DSP_CUDNN_HINT=$cudnn/include"} ${nccl:+"-DSP_NCCL_HINT=$nccl/include"}
part build 180 build.log cmake --build "$build" --parallel "$(getconf _NPROCESSORS_ONLN)"
programs=$build/tests/gpu
slimpack=$build/slimpack

: >"$out/checklist.jsonl"
part checklist 120 checklist.jsonl "$programs/checklist"
no_gpu=$?

: >"$out/tests.log"
for program in "$programs"/*_test; do
    [ -x "$program" ] || { note missing tests "none was built" && continue; }
    part "$(basename "$program")" 60 tests.log "$program"
done

# Kernels that only stream through memory are to reach this share of what a copy reaches.
copy_share=0.8
slow_kernels() {
    sed -n '/"limit": "copy"/s/.*"kernel": "\([a-z_0-9]*\)".*"ratio": \([0-9.]*\).*/\1 \2/p' \
        "$out/checklist.jsonl" | awk -v least="$copy_share" '$2 < least { printf " %s %s", $1, $2 }'
}

if [ $no_gpu -ne 77 ]; then
    if part kernels 60 checklist.jsonl "$programs/kernels_bench"; then
        slow=$(slow_kernels)
        if [ -z "$slow" ]; then
            note passed copy_share "every kernel reaches $copy_share of a copy"
        else
            note failed copy_share "below $copy_share of a copy:$slow"
        fi
    fi
    part products 60 tests.log "$programs/products" tests/gpu/bars/products/*.json
    part calibrate 120 tests.log "$programs/calibrate" "$out"
    # Streams of partitions must not share the queues that they are submitted by.
    part calibrate-4 90 tests.log env CUDA_DEVICE_MAX_CONNECTIONS=32 "$programs/calibrate" \
        "$out" 4
    if [ -s "$requests/runs.txt" ]; then
        cp -r "$requests" "$out/executed"
        limit=$(left)
        [ "$limit" -gt 180 ] && limit=180
        # It ends by itself, so that what there was no time for is a result as well. Streams of
        # partitions must not share the queues that they are submitted by.
        part execute "$limit" executed/execute.log env CUDA_DEVICE_MAX_CONNECTIONS=32 \
            sh experiments/execute_plans.sh "$slimpack" "$out/executed" \
            $((limit > 20 ? limit - 10 : limit)) 60
        part gaps 20 tests.log "$programs/gaps" "$out/executed"
        mv "$out/build.log" "$out/executed/" # one file less
        tar -czf "$out/executed.tar.gz" -C "$out" executed && rm -r "$out/executed"
    else
        note missing execute "no plans in $requests: experiments/export_gpu.sh makes them"
    fi
    gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
    if [ "$gpus" -ge 2 ]; then
        part several 150 tests.log sh tests/gpu/several.sh "$slimpack" "$build/several" "$gpus"
    else
        note missing several "there is one GPU, ranks with a GPU each need two or more"
    fi
    if have compute-sanitizer; then
        for program in "$programs"/*_test; do
            [ -x "$program" ] && part sanitizer 40 tests.log env SP_GPU_SMALL=1 \
                compute-sanitizer --error-exitcode 1 "$program"
        done
    else
        note missing sanitizer "no compute-sanitizer"
    fi
fi

bars=$(sh tests/gpu/bars.sh "$out")
case $? in
0)
    if printf '%s\n' "$bars" | grep -q '^holds'; then
        note passed bars "none was missed"
    else
        note missing bars "none was measured"
    fi
    ;;
1) note failed bars "$(printf '%s\n' "$bars" | grep -c '^missed') missed" ;;
*) note failed bars "bars.sh broke" ;;
esac
note "$(grep -c '^failed' "$summary")" failed "parts"
note "$(grep -c '^missing' "$summary")" missing "parts"
note "$(grep -c '^passed' "$summary")" passed "parts, $(($(date +%s) - begin)) s"
printf '\n%s\n' "$bars" | tee -a "$summary"
[ $no_gpu -eq 77 ] && exit 77
! grep -q '^failed' "$summary"
