#!/bin/bash
# check_backend_profile.sh PROGRAM SOURCE: a profile that --quick measures is one that simulates.
set -eu
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$program" calibrate --backend host --quick -o host.json >out.txt
grep -q '^host.json: ' out.txt
grep -q '"pass": "weight"' host.json
cat >scenario.json <<'S'
{"schema": "slimpack/scenario/1", "cluster": "host", "profile": "./host.json",
 "model": {"layers": 4, "hidden": 256, "ffn": 704, "heads": 4, "kv_heads": 2, "vocab": 1024},
 "parallel": {"pp": 2}, "workload": {"lengths": [200, 31, 120, 256], "context": 256}}
S
"$program" simulate scenario.json --json >result.json
grep -q '"level": "measured"' result.json

# A calibration that is killed leaves the parts that it has measured.
"$program" calibrate --backend host --quick -o cut.json >/dev/null &
pid=$!
until grep -q '^}' cut.json 2>/dev/null; do
    kill -0 $pid
    sleep 0.01
done
kill -9 $pid
wait $pid || true
grep -q '"gemm' cut.json
