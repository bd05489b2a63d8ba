#!/bin/sh
# run.sh PACKAGE SOURCE FILE CASE: one case by the first python3 that has NumPy, or by any. A case says by
# exit status 77 what it lacks.
set -u
package=$1
source=$2
file=$3
case=$4
python=
for candidate in python3 /usr/bin/python3; do
    # Where the program itself lies, which starts faster than what may choose among several.
    found=$("$candidate" -S -c 'import sys; print(sys.executable if sys.version_info >= (3, 9) else "")' 2>/dev/null)
    python=${python:-$found}
    if [ -n "$found" ] && "$found" -c \
        'import importlib.util as u, sys; sys.exit(u.find_spec("numpy") is None)' 2>/dev/null; then
        python=$found
        break
    fi
done
[ -n "$python" ] || { echo "SKIPPED: no python3 of 3.9 or later (Debian: python3)" && exit 77; }

# A library with sanitizers needs theirs in the process first.
sanitizer=$(ldd "$package"/slimpack/lib/libslimpack.so.* | awk '$1 ~ /^lib[at]san/ { print $3 }')
case $sanitizer in
*libtsan*)
    echo "SKIPPED: python3 does not run under TSan"
    exit 77
    ;;
?*)
    export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" LD_PRELOAD="$sanitizer"
    ;;
esac
unset SLIMPACK_PROFILE_PATH SLIMPACK_PROGRAM SLIMPACK_LIBRARY RANK
export PYTHONPATH="$package${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1 SOURCE="$source"
exec "$python" "$file" "$case"
