#!/bin/sh
# libraries.sh pack ARCHIVE: puts what slimpack needs from packages (headers, .pc files, libraries with
# all that those need, pkg-config) into an archive (20 MB as .tar.xz), on a machine that has them.
# libraries.sh unpack ARCHIVE FOLDER: unpacks it on a machine of the same kind of processor that has
# none, and prints the variables to set there for cmake and for what is built.
# libraries.sh find: prints those by which CUDA is found, and cuDNN, NCCL and cuBLASLt where they came
# with Python's packages rather than with the toolkit.
set -eu

modules_of() { # MODULE...: those and all that they require
    for module in "$@"; do
        printf '%s\n' "$module"
        # shellcheck disable=SC2046 # words of their own
        set -- $(pkg-config --print-requires --print-requires-private "$module" | sed 's/ .*//')
        [ $# -eq 0 ] || modules_of "$@"
    done
}

pack() { # ARCHIVE
    archive=$(realpath "$1")
    list=$(mktemp)
    trap 'rm -f "$list"' EXIT
    for package in jansson igraph zlib gsl openblas yaml-0.1; do
        for module in $(modules_of $package | sort -u); do
            echo "$(pkg-config --variable=pcfiledir "$module")/$module.pc"
        done
        for folder in $(pkg-config --cflags-only-I $package | tr ' ' '\n' | sed -n 's/^-I//p'); do
            find "$folder" -name '*.h'
        done
    done >"$list"
    printf '#include <%s>\n' jansson.h jansson_config.h gsl/gsl_multifit_nlinear.h gsl/gsl_linalg.h glpk.h zlib.h yaml.h |
        cc -x c -M - | tr ' ' '\n' | grep -E '/(jansson|gsl|glpk|zlib|zconf|yaml)[^ ]*\.h$' >>"$list"
    for library in jansson igraph z gsl gslcblas openblas glpk yaml; do
        named=$(cc -print-file-name=lib$library.so)
        [ -e "$named" ] || named=$(pkg-config --variable=libdir $library)/lib$library.so
        echo "$named"
        # What a program asks for is the name with a version.
        found=$(ldconfig -p | awk -v name="$(readelf -d "$named" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')" \
            '$1 == name {print $NF; exit}')
        echo "$found"
        ldd "$found" | awk '$3 ~ /^\// {print $3}'
    done | grep -vE '/(libc|libm|libpthread|libdl|libgcc_s)\.so' >>"$list"
    echo /usr/bin/pkg-config >>"$list"
    ldd /usr/bin/pkg-config | awk '$3 ~ /pkgconf/ {print $3}' >>"$list"
    xargs realpath -s <"$list" | sed 's|^/lib/|/usr/lib/|; s|^/||' | sort -u |
        tar -C / -chaf "$archive" -T -
}

unpack() { # ARCHIVE FOLDER
    mkdir -p "$2"
    root=$(cd "$2" && pwd)
    tar -C "$root" -xf "$1"
    libraries=$(dirname "$(find "$root" -name libglpk.so)")
    blas=$(dirname "$(find "$root" -name libopenblas.so)")
    cat <<VARIABLES
export PKG_CONFIG=$root/usr/bin/pkg-config PKG_CONFIG_SYSROOT_DIR=$root
export PKG_CONFIG_LIBDIR=$libraries/pkgconfig CMAKE_PREFIX_PATH=$root/usr\${CMAKE_PREFIX_PATH:+:\$CMAKE_PREFIX_PATH}
export LD_LIBRARY_PATH=$libraries:$blas\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
VARIABLES
}

# Newer wheels put all of CUDA's libraries, cuBLASLt among them, into cu13.
python_folders() {
    python3 - 2>/dev/null <<'PYTHON' || true
import glob, importlib.util
spec = importlib.util.find_spec("nvidia")
for root in list(spec.submodule_search_locations) if spec else []:
    for name in ("cudnn", "nccl", "cu13"):
        for folder in glob.glob(root + "/" + name):
            print(folder)
PYTHON
}

find_cuda() {
    cuda=${CUDA_HOME:-/usr/local/cuda}
    libraries=$cuda/lib64:$cuda/lib
    headers=
    for folder in $(python_folders); do
        libraries=$libraries:$folder/lib
        headers=$headers:$folder
    done
    cat <<VARIABLES
export PATH=\$PATH:$cuda/bin LD_LIBRARY_PATH=\${LD_LIBRARY_PATH:+\$LD_LIBRARY_PATH:}$libraries
export CMAKE_PREFIX_PATH=\${CMAKE_PREFIX_PATH:-}$headers
VARIABLES
}

case ${1:-} in
find) find_cuda ;;
pack) pack "$2" ;;
unpack) unpack "$2" "$3" ;;
*) echo "usage: libraries.sh pack ARCHIVE | unpack ARCHIVE FOLDER | find" >&2 && exit 2 ;;
esac
