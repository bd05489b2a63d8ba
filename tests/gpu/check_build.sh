#!/bin/sh
# check_build.sh SOURCE BUILD [KERNELS]: configures and builds as backends/cuda/README.md says, where no
# package can be found; looks at what the program and the plug-in link, and starts the tests for a GPU.
# KERNELS is the archive of kernels of the build that asks. Exit status 77 where CUDA is not found.
set -eu
source=$1
build=$2
kernels=${3:-}
if [ -n "${SP_CUDA_HOST_REASON:-}" ]; then
    echo "SKIPPED: $SP_CUDA_HOST_REASON"
    exit 77
fi
rm -rf "$build"
mkdir -p "$build"
# As on a machine that has no package: all comes from the archive.
"$source/tests/gpu/libraries.sh" pack "$build/libraries.tar"
eval "$("$source/tests/gpu/libraries.sh" unpack "$build/libraries.tar" "$build/libraries")"
rm "$build/libraries.tar"
# Optimization changes nothing that is looked at here.
(cd "$source" && cmake --preset gpu -B "$build" -DSP_WERROR=ON \
    -DCMAKE_C_FLAGS_RELEASE=-O0 -DSP_CUDA_KERNELS="$kernels")
cmake --build "$build" --parallel "$(getconf _NPROCESSORS_ONLN)"

needs_only() { # BINARY PATTERN...
    binary=$1
    shift
    for library in $(readelf -d "$build/$binary" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
        allowed=false
        for pattern in "$@" c m dl rt pthread stdc++ gcc_s; do
            case $library in "lib$pattern.so"* | ld-linux*) allowed=true ;; esac
        done
        $allowed || { echo "$binary needs $library" >&2 && exit 1; }
    done
}
needs_only slimpack jansson igraph z glpk gsl gslcblas openblas yaml-0
needs_only backends/libslimpack-backend-cuda.so jansson
# The system's headers of these libraries must have stayed out: they are not on the machine that this
# stands for.
read_headers() {
    if [ -f "$build/build.ninja" ]; then
        ninja -C "$build" -t deps
    else
        find "$build" -name '*.d' -exec cat {} +
    fi
    grep -ho '#include <.*' "$source"/kernels/*.cu "$source"/kernels/*.cuh | sed 's|.*<|/usr/include/|'
}
[ "$(read_headers | grep -c '/usr/include/')" -gt 100 ] || { echo "headers that were read are not known" >&2; exit 1; }
if read_headers | grep -oE '(^| )/usr/[^ ]*/(jansson|igraph|glpk|zlib|cblas|gsl|yaml|cmocka)[^ /]*\.h' | sort -u | grep .; then
    echo "headers of other packages were read" >&2
    exit 1
fi
fail() {
    echo "$*" >&2
    exit 1
}
# What Python's packages brought is found.
mkdir -p "$build/python/nvidia/cudnn/include"
PYTHONPATH=$build/python sh "$source/tests/gpu/libraries.sh" find | grep -q "$build/python/nvidia/cudnn/lib" ||
    fail "cuDNN of Python's packages is not found"
# Without a GPU every test of one is left out, none passes; with one they are for people to start.
status=0
"$build/tests/gpu/gpu_check" checklist versions >"$build/checklist.jsonl" || status=$?
if [ "$status" -eq 77 ]; then
    grep -q '"status":"missing","reason":"no GPU: ' "$build/checklist.jsonl" || fail "no reason"
    (cd "$source" && ctest --test-dir "$build" -L '^gpu$' --no-tests=error) >"$build/tests.txt" || fail "a test failed without a GPU"
    [ "$(grep -c '\*\*\*Skipped' "$build/tests.txt")" -eq "$(grep -c '^ *[0-9]*/[0-9]* Test ' "$build/tests.txt")" ] ||
        fail "a test passed without a GPU"
    for name in checklist device_test attention_test gradients_test kernels.add kernels_bench products several; do
        grep -q " gpu.$name .*Skipped" "$build/tests.txt" || fail "there is no test $name"
    done
fi
# Of a measurement: the steps of stages side by side, here of the CPU, and no memory of a device.
sed 's/"pp": 2/"pp": 4/' "$source/tests/cli/inputs/set.json" >"$build/set.json"
rm -f "$build/measured.json"
"$build/slimpack" measure "$build/set.json" --backend host --minutes 1 --steps 2 --part wall -o "$build/measured.json" \
    --quiet >/dev/null || [ $? -le 70 ]
status=0
"$build/tests/gpu/gpu_check" gaps "$build/measured.json" >"$build/gaps" || status=$?
grep -q '"gaps":"02-on-the-wall","pp":4,' "$build/gaps" || fail "no gaps of a step on the wall clock"
share=$(sed 's/.*"share":\([0-9.]*\).*/\1/' "$build/gaps")
[ "$status" -eq "$(awk -v share="$share" 'BEGIN { print (share > 0.02) }')" ] || fail "gaps of $share end with $status"
# Several GPUs: the first process that fails ends all, with its own status.
mkdir -p "$build/fakes"
printf '#!/bin/sh\nfor i in 0 1 2 3; do echo "GPU $i: fake (UUID: x)"; done\n' >"$build/fakes/nvidia-smi"
cat >"$build/fakes/slimpack" <<'SLIMPACK'
#!/bin/sh
[ "${RANK:-0}" = 0 ] || exit 0
loss=4.1110
[ "${WORLD_SIZE:-1}" = 1 ] || loss=${SEVERAL_LOSS:-4.1111}
while [ "$1" != --record ]; do shift; done
echo "{\"steps\": [{\"loss\": $loss}, {\"loss\": 4.0}]}" >"$2"
SLIMPACK
chmod +x "$build/fakes/nvidia-smi" "$build/fakes/slimpack"
several="$source/tests/gpu/several.sh"
for loss in 4.1111 4.2 nan; do
    status=0
    PATH=$build/fakes:$PATH SEVERAL_LOSS=$loss sh "$several" compare "$build/fakes/slimpack" "$build/several" >/dev/null || status=$?
    case $loss in 4.1111) expected=0 ;; *) expected=1 ;; esac
    [ "$status" -eq "$expected" ] || fail "a loss of $loss ends with $status"
done
status=0
began=$(date +%s)
sh "$several" launch 3 sh -c '[ "$RANK" = 1 ] && exit 7; exec sleep 100' || status=$?
[ "$status" -eq 7 ] || fail "a process that failed with 7 ended all with $status"
[ $(($(date +%s) - began)) -lt 50 ] || fail "the others were not ended"
sh "$several" launch 2 sh -c '[ "$WORLD_SIZE $LOCAL_RANK" = "2 $RANK" ]' || fail "a launch failed"
"$build/slimpack" run "$source/tests/gpu/several/2/pp2.json" --backend host --quiet >/dev/null
echo "the program builds with the libraries of an archive"
