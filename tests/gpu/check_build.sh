#!/bin/sh
# check_build.sh SOURCE BUILD [KERNELS]: configures and builds what run.sh does where no package can be
# found, and looks at what the program and the plug-in link. KERNELS is the archive of kernels of the
# build that asks. Exit status 77 where CUDA is not found.
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
needs_only slimpack jansson igraph z glpk gsl gslcblas openblas
needs_only backends/libslimpack-backend-cuda.so jansson cudart
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
if read_headers | grep -oE '(^| )/usr/[^ ]*/(jansson|igraph|glpk|zlib|cblas|gsl|cmocka)[^ /]*\.h' | sort -u | grep .; then
    echo "headers of other packages were read" >&2
    exit 1
fi
"$build/tests/gpu/gpu_check" --list >/dev/null
"$build/slimpack" run "$source/tests/gpu/several/2/pp2.json" --backend host --quiet >/dev/null
echo "the program builds with the libraries of an archive"
