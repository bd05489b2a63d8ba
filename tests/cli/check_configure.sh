#!/usr/bin/env bash
# check_configure.sh PROGRAM SOURCE: a machine that lacks the libraries is told of all of them at once.
set -u
source=$2
. "$(dirname "$0")/prelude.sh"
if PKG_CONFIG_LIBDIR=$work PKG_CONFIG_PATH=$work cmake -S "$source" -B "$work/build" \
    -DCMAKE_DISABLE_FIND_PACKAGE_GLPK=ON -DSP_CUDA=OFF >"$work/log" 2>&1; then
    complain "no library is needed"
fi
for package in libjansson-dev libigraph-dev zlib1g-dev libgsl-dev libopenblas-dev libyaml-dev libglpk-dev; do
    grep -q "(Debian: $package)" "$work/log" || complain "no word of $package: $(cat "$work/log")"
done
grep -q 'apt-get install .*libigraph-dev' "$work/log" || complain "no word of how to install them"
exit "$failed"
