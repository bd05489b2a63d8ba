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
# No pkg-config, and no package of the system's include folders by CMake's own search. Optimization
# changes nothing that is looked at here.
(cd "$source" && cmake --preset gpu -B "$build" -DSP_WERROR=ON -DSP_MPI=OFF \
    -DCMAKE_C_FLAGS_RELEASE=-O0 -DSP_CUDA_KERNELS="$kernels" \
    -DPKG_CONFIG_EXECUTABLE=false -DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON \
    -DCMAKE_DISABLE_FIND_PACKAGE_GLPK=ON)
cmake --build "$build" --parallel "$(getconf _NPROCESSORS_ONLN)"

for binary in slimpack backends/libslimpack-backend-cuda.so; do
    needed=$(readelf -d "$build/$binary" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
    for library in $needed; do
        case $library in
        libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libstdc++.so.* | \
            libgcc_s.so.* | ld-linux* | libslimpack-jansson.so | libcudart.so.*) ;;
        *)
            echo "$binary needs $library" >&2
            exit 1
            ;;
        esac
    done
done
# The headers of every other library must have stayed out as well: none of them is on the machine
# that this stands for.
read_headers() {
    if [ -f "$build/build.ninja" ]; then
        ninja -C "$build" -t deps
    else
        find "$build" -name '*.d' -exec cat {} +
    fi
    grep -ho '#include <.*' "$source"/kernels/*.cu "$source"/kernels/*.cuh | sed 's|.*<|/usr/include/|'
}
[ "$(read_headers | grep -c '/usr/include/')" -gt 100 ] || { echo "headers that were read are not known" >&2; exit 1; }
if read_headers | grep -oE '/usr/[^ ]*/(jansson|igraph|glpk|cblas|gsl|cmocka)[^ /]*\.h' | sort -u | grep .; then
    echo "headers of other packages were read" >&2
    exit 1
fi
"$build/tests/gpu/checklist" --list >/dev/null
"$build/slimpack" run "$source/tests/gpu/several/2/pp2.json" --backend host --quiet >/dev/null
echo "the program builds without packages; the plug-in needs:" $needed
