#!/usr/bin/env bash
# release_twice.sh PROGRAM SOURCE: the static preset builds the archive of a release twice, from the tree and from a copy
# elsewhere: both are the same bytes, name no folder of theirs, need no library but those of C (and libltdl where it has
# no archive), and the program of the archive works from any folder.
set -u
program=$(realpath "$1")
source=$(realpath "$2")
. "$(dirname "$0")/prelude.sh"
unset SLIMPACK_PROFILE_PATH
export SOURCE_DATE_EPOCH=1700000000
mkdir "$work/copy"
tar -C "$source" --exclude='./build*' --exclude=./.git -cf - . | tar -C "$work/copy" -xf -
release() { # SOURCE BUILD
    cmake -S "$1" --preset static -B "$2" >"$2.log" 2>&1 && cmake --build "$2" --parallel 2 --target dist >>"$2.log" 2>&1 ||
        { complain "no release: $(tail -5 "$2.log")"; exit 1; }
}
(cd "$source" && release "$source" "$work/one") && (cd "$work/copy" && release "$work/copy" "$work/two") || exit 1
archive=$(basename "$work"/one/dist/*.tar.gz)
cmp "$work/one/dist/$archive" "$work/two/dist/$archive" || complain "two builds are not the same bytes"
cmp "$work/one/dist/SHA256SUMS" "$work/two/dist/SHA256SUMS" || complain "two builds have other sums"
(cd "$work/one/dist" && sha256sum -c --quiet SHA256SUMS) || complain "the sums are not those of the files"
mkdir "$work/unpacked"
tar -xzf "$work/one/dist/$archive" -C "$work/unpacked"
expect "folders of the archive" 1 "$(find "$work/unpacked" -mindepth 1 -maxdepth 1 | wc -l)"
released=$(echo "$work"/unpacked/*/bin/slimpack)
grep -qF "$work" "$released" && complain "the program names the folder of its build"
grep -qF "$source" "$released" && complain "the program names the folder of its source"
ldd "$released" | grep -vE 'linux-vdso|ld-linux|lib(c|m|dl|pthread|ltdl)\.so' && complain "other libraries are needed"
[ -s "$(dirname "$released")/../share/doc/slimpack/LIBRARIES" ] || complain "what is linked is not told"
cd / || exit 1
figure() { "$1" simulate "$source/experiments/demo.json" --set workload.batches=1 --json --quiet | sed -E '/"(solver_ms|simulate_ms)"/d'; }
diff <(figure "$released") <(figure "$program") >"$work/diff" || complain "another answer: $(head -5 "$work/diff")"
exit "$failed"
