#!/usr/bin/env bash
# check_network.sh PROGRAM SOURCE: transfers that share links, of a step on nodes with few and slow
# NICs: told in the result, checked against the longest path, the same where only what may meet is a
# flow, longer than alone; the picture of the cluster; refusals.
set -u
program=$1
. "$(dirname "$0")/prelude.sh"
cd "$work" || exit 1

cat >s.json <<'SCENARIO'
{"model": "llama-7b", "profile": "a100", "cluster": {"name": "a100-8", "nics_per_node": 1, "nic_gbit_per_s": 10},
 "parallel": {"tp": 2, "cp": 2, "pp": 2, "dp": 4, "order": "tp-pp-cp-ep-dp"},
 "workload": {"uniform": 4096, "samples_per_batch": 32}}
SCENARIO
iteration() { # DETAIL
    "$program" simulate s.json --json --verify --set "network.detail=$1" >"$1.json" || complain "simulate $1 failed"
    sed -n 's/^ *"iteration_ms": \([0-9.]*\),*$/\1/p' "$1.json" | head -1
}
closed=$(iteration closed)
flows=$(iteration flows)
expect "auto" "$flows" "$(iteration auto)"
awk "BEGIN {exit !($flows > $closed)}" || complain "shared: expected more than $closed ms, got $flows"
grep -q '"network": "flows"' flows.json || complain "no provenance of flows"
grep -q '"network"' closed.json && complain "provenance of a closed network"
"$program" simulate s.json --set network.detail=flows | grep -q '^profile .*, network flows$' ||
    complain "the text does not tell of flows"
"$program" simulate s.json --set jitter.gpu_cv=0.02 | grep -q '^profile .*, jitter 0.02 (seed 1)$' ||
    complain "the text does not tell of jitter"

"$program" simulate s.json --topology t.svg >/dev/null || complain "--topology failed"
expect "nodes" 4 "$(grep -c '^<text.*>node [0-3]: ' t.svg)"
expect "NICs" 4 "$(grep -c '<title>NIC 0, node [0-3]: ' t.svg)"

refused() { # MESSAGE ARGUMENTS
    local message=$1
    shift
    found=$("$program" simulate s.json "$@" 2>&1 >/dev/null)
    expect "status of $*" 3 "$?"
    expect "message of $*" "error: s.json: $message" "$(head -1 <<<"$found")"
}
refused 'network.detail: "flows" does not go with parallel.vocab_parallel ("auto" falls back on "closed")' \
    --set network.detail=flows --set parallel.vocab_parallel=true
refused 'jitter.gpu_cv: expected a number from 0 to 0.2, got 1' --set jitter.gpu_cv=1
exit "$failed"
