#!/usr/bin/env bash
# check_memory_limit.sh PROGRAM SOURCE: with little address space the program works or says so (status 4), and never
# hangs. OpenBLAS, loaded with the program, would try for ever to map memory for its threads.
set -u
program=$1
source=$2
. "$(dirname "$0")/prelude.sh"
if grep -q -e __asan_init -e __tsan_init "$program"; then
    echo "sanitizers need more address space"
    exit 77
fi
cd "$work" || exit 1
limited() { # KIB WORD... : the command line
    (
        ulimit -v "$1" || exit 99
        shift
        timeout 60 "$program" "$@" 2>&1
    )
}

told=$(limited 200000 --version)
expect "exit status of --version" 0 "$?"
expect "--version" "$("$program" --version)" "$told"
export OPENBLAS_NUM_THREADS=16
told=$(limited 200000 --version)
expect "exit status of --version with 16 threads" 0 "$?"
unset OPENBLAS_NUM_THREADS
echo '{"uniform_costs": {"f_ms": 1, "b_ms": 1}, "parallel": {"pp": 2}}' >uniform.json
limited 200000 simulate uniform.json --json >limited.json
expect "exit status of simulate" 0 "$?"
"$program" simulate uniform.json --json >whole.json
cmp -s <(grep -v '_ms": [0-9.e-]*,$' limited.json) <(grep -v '_ms": [0-9.e-]*,$' whole.json) || complain "another result"

# Without memory for the products nothing is executed.
if limited 200000 run --help >/dev/null && [ "$(getconf _NPROCESSORS_ONLN)" -gt 1 ]; then
    told=$(limited 200000 validate "$source/experiments/host_small.json" --backend host --quiet)
    case "$? $told" in
    "4 error: out of memory (address space for OpenBLAS"*) ;;
    *) complain "the host backend: $told" ;;
    esac
fi

# Nor does a product wait for ever for memory that other threads have taken, whatever the limit.
if limited 200000 run --help >/dev/null; then
    for kib in 300000 400000 500000 600000; do
        limited $kib validate "$source/experiments/host_small.json" --backend host --quiet --wide >told
        case $? in
        0 | 1) ;;
        4) expect "lines of the host backend in $kib KiB" 1 "$(wc -l <told)" ;;
        *) complain "the host backend in $kib KiB: $(cat told)" ;;
        esac
    done
fi

# A stack that is too small is told, and no crash.
for kib in 64 256 1023; do
    told=$(ulimit -s $kib && timeout 60 "$program" compare uniform.json 2>&1)
    expect "exit status with a stack of $kib KiB" 4 "$?"
    expect "its message" "error: a stack of $kib KiB is too small: set the limit to 1024 at least (see ulimit -s)" "$told"
done
expect "exit status with a stack of 1 MiB" "$("$program" compare uniform.json --quiet >/dev/null 2>&1; echo $?)" "$(
    ulimit -s 1024
    timeout 60 "$program" compare uniform.json --quiet >/dev/null 2>&1
    echo $?
)"

# A document that memory does not suffice for is no malformed one.
{
    printf '{"uniform_costs": {"f_ms": 1, "b_ms": 1}, "workload": {"lengths": ['
    yes '1000,' | head -n 6000000 | tr -d '\n'
    printf '1]}}'
} >many.json
told=$(limited 200000 simulate many.json)
expect "exit status of a large document" 4 "$?"
expect "its message" "error: out of memory" "$told"
{
    printf '{"model": "'
    head -c 60000000 /dev/zero | tr '\0' a
    printf '"}'
} >text.json
told=$(limited 200000 simulate text.json)
expect "exit status of a large text" 4 "$?"
expect "its message" "error: out of memory" "$told"
exit "$failed"
