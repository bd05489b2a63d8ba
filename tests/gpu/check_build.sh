#!/bin/sh
# check_build.sh SOURCE BUILD: configures and builds what run.sh does where no package can be found,
# and looks at what the program and the plug-in link. Exit status 77 where CUDA is not found.
set -eu
source=$1
build=$2
if [ -n "${SP_CUDA_HOST_REASON:-}" ]; then
    echo "SKIPPED: $SP_CUDA_HOST_REASON"
    exit 77
fi
rm -rf "$build"
# No pkg-config, and no package of the system's include folders by CMake's own search.
(cd "$source" && cmake --preset gpu -B "$build" -DSP_WERROR=ON -DSP_MPI=OFF \
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
if grep -rlE '/(jansson|igraph|glpk|cblas|gsl|cmocka)[^ /]*\.h' "$build" --include='*.d' |
    xargs -r grep -hoE '/usr/[^ ]*/(jansson|igraph|glpk|cblas|gsl|cmocka)[^ /]*\.h' | sort -u | grep .; then
    echo "headers of other packages were read" >&2
    exit 1
fi
"$build/tests/gpu/checklist" --list >/dev/null
"$build/slimpack" run "$source/tests/gpu/several/2/pp2.json" --backend host --quiet >/dev/null
echo "the program builds without packages; the plug-in needs:" $needed
