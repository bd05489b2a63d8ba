#!/usr/bin/env bash
# check_small_build.sh PROGRAM SOURCE: builds the program where neither pkg-config nor CMake finds a library, and lets it
# plan, simulate and execute. PROGRAM has all libraries: what both can do they do alike.
set -u
program=$(realpath "$1")
source=$2
. "$(dirname "$0")/prelude.sh"
small=$work/build/slimpack

launcher=
command -v ccache >/dev/null && launcher=-DCMAKE_C_COMPILER_LAUNCHER=ccache
generator=
command -v ninja >/dev/null && generator=-GNinja
# A compiler of MPI whose headers and libraries are not there, as Debian's openmpi-bin brings.
mkdir "$work/bin"
cat >"$work/bin/mpicc" <<'MPICC'
#!/bin/sh
at=/nowhere/openmpi
case $1 in
-showme:version) echo "mpicc: Open MPI 4.1.4 (Language: C)" ;;
-showme:compile) echo "-I$at/include -I$at/include/openmpi" ;;
-showme:link) echo "-L$at/lib -lmpi" ;;
-showme:incdirs) echo "$at/include $at/include/openmpi" ;;
-showme:libdirs) echo "$at/lib" ;;
-showme*) echo "cc -I$at/include -I$at/include/openmpi -L$at/lib -lmpi" ;;
*) exec cc "-I$at/include" "$@" ;;
esac
MPICC
chmod +x "$work/bin/mpicc"
PATH=$work/bin:$PATH

# Without optimization the build takes less time and computes the same bytes (same_bytes.sh).
# shellcheck disable=SC2086
PKG_CONFIG_LIBDIR=$work PKG_CONFIG_PATH=$work cmake -S "$source" -B "$work/build" $generator $launcher \
    -DCMAKE_DISABLE_FIND_PACKAGE_GLPK=ON -DSP_CUDA=OFF -DSP_WERROR=ON \
    -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-O0 >"$work/configure" 2>&1 ||
    { cat "$work/configure" && exit 1; }
for library in igraph GLPK jansson GSL OpenBLAS MPI; do
    grep -q "^--   $library: *left out, not found (Debian: [a-z-]*): " "$work/configure" ||
        complain "the summary does not say that $library is left out"
done
cmake --build "$work/build" --target slimpack --parallel "$(getconf _NPROCESSORS_ONLN)" >"$work/log" 2>&1 ||
    { tail -n 30 "$work/log" && exit 1; }
if ldd "$small" | grep -q 'igraph\|glpk\|gsl\|blas\|libjansson'; then
    complain "the program needs a library: $(ldd "$small")"
fi

# What is found on this machine is taken, even so: an error where it was asked for and is not there.
if PKG_CONFIG_LIBDIR=$work PKG_CONFIG_PATH=$work cmake -S "$source" -B "$work/asked" -DSP_CUDA=OFF -DSP_GSL=ON \
    >"$work/configure" 2>&1; then
    complain "SP_GSL=ON without GSL is no error"
fi
grep -q 'GSL 2.7 or later (Debian: libgsl-dev)' "$work/configure" || complain "no word of the GSL that was asked for"

cd "$work" || exit 1
cat >scenario.json <<'S'
{"schema": "slimpack/scenario/1", "cluster": "h800-8", "profile": "h800", "parallel": {"pp": 2, "dp": 2},
 "model": {"layers": 4, "hidden": 32, "ffn": 48, "heads": 4, "vocab": 61},
 "workload": {"lengths": [38, 11, 24, 7, 64, 20, 51, 9], "context": 64, "order": "file", "samples_per_batch": 8},
 "strategy": {"kind": "slimpack", "milp": false}}
S
figures() { # FILE: without what the clock says
    sed 's/"\(solver\|simulate\)_ms": [0-9.e+-]*/"\1_ms": 0/' "$1"
}
for one in "$program" "$small"; do
    name=$([ "$one" = "$small" ] && echo small || echo whole)
    "$one" plan scenario.json -o "$name.plan" --quiet >/dev/null || complain "$name cannot plan"
    "$one" simulate scenario.json --json --quiet >"$name.json" || complain "$name cannot simulate"
    "$one" run whole.plan --backend fake --json --quiet >"$name.fake" || complain "$name cannot execute on fake"
    "$one" run whole.plan --backend host --precision fp64 --clock virtual --steps 2 --json --quiet >"$name.host" ||
        complain "$name cannot execute on host"
    grep -o '"loss": [0-9.]*' "$name.host" | cut -c 1-20 >"$name.loss"
    "$one" validate scenario.json --backend fake --json --quiet >"$name.validation" || complain "$name cannot validate"
done
for file in plan json fake validation; do
    cmp <(figures "whole.$file") <(figures "small.$file") || complain "$file differs without the libraries"
done
[ "$(wc -l <small.loss)" -eq 2 ] || complain "no losses of two steps: $(cat small.loss)"
cmp whole.loss small.loss || complain "plain loops compute another loss"

refused() { # TEXT ARGUMENT...
    text=$1
    shift
    "$small" "$@" >out 2>errors
    status=$?
    [ "$status" -eq 2 ] || complain "$1 without a library ended with $status"
    [ "$(grep -c '^error: ' errors)" -eq 1 ] || complain "not one sentence: $(cat errors)"
    grep -q "^error: .*$text.* this build does not have" errors || complain "no word of $text: $(cat errors)"
}
refused igraph simulate scenario.json --verify
refused igraph simulate scenario.json --critical-path
refused igraph simulate scenario.json --graphml "$work/graph"
refused GLPK simulate "$source/experiments/demo.json" --set strategy.kind=flexsp --set workload.batches=1
refused GSL calibrate --from-measurements "$source/experiments/published/a100_single_node.csv" --from-measurements \
    "$source/experiments/published/a100_multi_node.csv" --fit "$source/experiments/published/fit_a100.json" -o fitted.json
[ "$failed" -eq 0 ] && echo "the program does what it can without its libraries"
exit "$failed"
