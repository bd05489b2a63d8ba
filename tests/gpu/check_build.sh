#!/bin/sh
# check_bare_build.sh SOURCE BUILD: configures and builds the CUDA backend alone where no package can
# be found, and looks at what the plug-in links. Exit status 77 where CUDA is not found.
set -eu
source=$1
build=$2
if [ -n "${SP_CUDA_HOST_REASON:-}" ]; then
    echo "SKIPPED: $SP_CUDA_HOST_REASON"
    exit 77
fi
rm -rf "$build"
# No pkg-config, and no package of the system's include folders by CMake's own search.
cmake -S "$source" -B "$build" -DSP_BARE=ON -DSP_WERROR=ON -DCMAKE_BUILD_TYPE=Release \
    -DPKG_CONFIG_EXECUTABLE=false -DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON \
    -DCMAKE_DISABLE_FIND_PACKAGE_GLPK=ON
cmake --build "$build" --parallel "$(getconf _NPROCESSORS_ONLN)"

plugin=$build/backends/libslimpack-backend-cuda.so
needed=$(readelf -d "$plugin" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for library in $needed; do
    case $library in
    libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libstdc++.so.* | \
        libgcc_s.so.* | ld-linux* | libslimpack_jansson.so | libcudart.so.*) ;;
    *)
        echo "the plug-in needs $library" >&2
        exit 1
        ;;
    esac
done
# The headers of every other library must have stayed out as well: none of them is on the machine
# that this stands for.
if grep -rlE '/(jansson|igraph|glpk|cblas|gsl|cmocka)[^ /]*\.h' "$build" --include='*.d' |
    xargs -r grep -hoE '/usr/[^ ]*/(jansson|igraph|glpk|cblas|gsl|cmocka)[^ /]*\.h' | sort -u | grep .; then
    echo "headers of other packages were read" >&2
    exit 1
fi
"$build/tests/gpu/checklist" --list >/dev/null
echo "the backend builds alone; the plug-in needs:" $needed
