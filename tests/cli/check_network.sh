#!/usr/bin/env bash
# check_network.sh PROGRAM SOURCE: transfers that share links, of a step on nodes with few and slow
# NICs: told in the result, checked against the longest path, the same where only what may meet is a
# flow, longer than alone; the picture of the cluster; a step out of memory; algorithms of
# collectives; refusals.
set -u
program=$1
. "$(dirname "$0")/prelude.sh"
program=$(all_of "$program")
cd "$work" || exit 1

cat >s.json <<'SCENARIO'
{"model": "llama-7b", "profile": "a100", "cluster": {"name": "a100-8", "nics_per_node": 1, "nic_gbit_per_s": 10},
 "parallel": {"tp": 2, "cp": 2, "pp": 2, "dp": 4, "order": "tp-cp-dp-ep-pp"},
 "workload": {"uniform": 4096, "samples_per_batch": 32}}
SCENARIO
iteration() { # DETAIL SETTINGS
    local detail=$1
    shift
    "$program" simulate s.json --json --verify --set "network.detail=$detail" "${@/#/--set=}" \
        >"$detail.json" 2>errors || complain "simulate $detail $* failed: $(cat errors)"
    sed -n 's/^ *"iteration_ms": \([0-9.]*\),*$/\1/p' "$detail.json" | head -1
}
closed=$(iteration closed)
flows=$(iteration flows)
expect "auto" "$flows" "$(iteration auto)"
awk "BEGIN {exit !($flows > 1.005 * $closed)}" || complain "shared: expected more than $closed ms, got $flows"
grep -q '"network": "flows"' flows.json || complain "no provenance of flows"
grep -q '"network"' closed.json && complain "provenance of a closed network"
"$program" simulate s.json --set network.detail=flows | grep -q '^profile .*, network flows$' ||
    complain "the text does not tell of flows"
"$program" simulate s.json --set jitter.gpu_cv=0.02 | grep -q '^profile .*, jitter 0.02 (seed 1)$' ||
    complain "the text does not tell of jitter"
"$program" simulate s.json --set jitter.gpu_cv=0.02 | grep -q '^slowest of 32 GPUs 1\.0[0-9]*x the mean, 1\.0414x expected' ||
    complain "the text does not tell of the slowest GPU"
"$program" simulate s.json --json --set jitter.gpu_cv=0.02 | grep -q '"slowest_expected": 1\.0413' ||
    complain "no expected slowest GPU"
# GPUs that differ may be faster than those from which a bound follows.
"$program" simulate s.json --json --set jitter.gpu_cv=0.02 | grep -q '"lower_bound_ms": null' ||
    complain "a bound beside jitter"

# What a profile was fitted with is left out, and said; on one node there is none of it.
expect "what jitter takes the place of" 1 "$("$program" simulate s.json --json --set jitter.gpu_cv=0.001 2>/dev/null |
    grep -cE '^    "jitter\.gpu_cv takes the place of profile [^ ]+ own growth of computation with nodes \([0-9.]+ % on these\), so that a step can be faster with jitter than without"')"
"$program" simulate s.json --set jitter.gpu_cv=0 2>&1 | grep -q 'takes the place of' && complain "jitter 0 leaves something out"

"$program" simulate s.json --topology t.svg >/dev/null || complain "--topology failed"
expect "a name of another picture" "error: --topology expects a .svg file, got 't.png'" \
    "$("$program" simulate s.json --topology t.png 2>&1 >/dev/null | grep '^error')"
[ ! -e t.png ] || complain "--topology wrote t.png"
expect "nodes" 4 "$(grep -c '>NVSwitch of node [0-3]<' t.svg)"
expect "full disk" "error: /dev/full: cannot write the picture of the cluster: No space left on device" \
    "$("$program" simulate s.json --topology /dev/full 2>&1 >/dev/null | grep '^error' | head -1)"
expect "NICs" 4 "$(grep -c '<title>NIC 0, node [0-3]: ' t.svg)"

# Zones of attention, merged packs and split backwards: flows never take less than alone on a NIC,
# each rank with one as fast.
mixed=('workload={"lengths": "wikipedia", "context": 16384, "samples_per_batch": 64}' parallel.tp=1)
while read -r one other; do
    flows=$(iteration flows "${mixed[@]}" "$one" "$other")
    expect "auto, $one, $other" "$flows" "$(iteration auto "${mixed[@]}" "$one" "$other")"
    closed=$(iteration closed "${mixed[@]}" "$one" "$other" cluster.nics_per_node=8)
    awk "BEGIN {exit !($flows >= $closed)}" || complain "$one $other: $flows ms, alone $closed"
done <<'SETTINGS'
strategy.kind=zeppelin parallel.cp=1
strategy.kind=hybrid-cp jitter.gpu_cv=0.02
schedule.kind=zb-v parallel.cp=1
parallel.zero=2 schedule.kind=zb-h1
parallel.zero=3 memory.recompute=full
parallel.zero=3 strategy.kind=hybrid-cp
SETTINGS
"$program" simulate s.json "${mixed[@]/#/--set=}" --set=strategy.kind=zeppelin --set=parallel.cp=1 \
    --plan zones.json >/dev/null 2>&1
grep -q '"zone"' zones.json || complain "zeppelin: no zones"

# A spine that is narrower or delays more slows a send that meets nothing and two groups that meet,
# and the picture shows the same bytes.
worsen() { # SCENARIO SETTING VALUES
    local scenario=$1 setting=$2 last=0 first= value sums
    shift 2
    for value in "$@"; do
        flows=$("$program" simulate "$scenario" --json --set "cluster.fabric.$setting=$value" --topology t.svg |
            sed -n 's/^ *"iteration_ms": \([0-9.]*\),*$/\1/p' | head -1)
        sums=$(grep -o 'all links, out and in[^<]*' t.svg)
        awk "BEGIN {exit !($flows > $last)}" || complain "$scenario, $setting $value: $flows ms after $last"
        expect "bytes of $scenario, $setting $value" "${first:=$sums}" "$sums"
        last=$flows
    done
}
cat >alone.json <<'SCENARIO'
{"model": "gpt-3.6b", "cluster": {"name": "h100-8", "fabric": {"nodes_per_leaf": 1}}, "parallel": {"tp": 8, "pp": 2},
 "workload": {"uniform": 4096, "samples_per_batch": 8}, "network": {"detail": "flows"}}
SCENARIO
cat >groups.json <<'SCENARIO'
{"model": "gpt-3.6b", "cluster": {"name": "h100-8", "nics_per_node": 4, "fabric": {"nodes_per_leaf": 0, "pxn": false}},
 "parallel": {"cp": 4, "dp": 8, "order": "tp-dp-cp-pp", "zero": 0},
 "workload": {"uniform": 4096, "samples_per_batch": 16}, "network": {"detail": "flows"}}
SCENARIO
for scenario in alone.json groups.json; do
    worsen "$scenario" oversubscription 1 3 8
    worsen "$scenario" spine_latency_us 0 1000 1000000
done

# A step out of memory: what would fit is simulated with more ranks than there are GPUs.
cat >oom.json <<'SCENARIO'
{"model": "llama-7b", "cluster": "h100-8", "parallel": {"dp": 16, "zero": 0},
 "workload": {"uniform": 4096, "samples_per_batch": 16}, "network": {"detail": "flows"}}
SCENARIO
told=$("$program" simulate oom.json 2>&1)
expect "status out of memory" 1 "$?"
grep -q '^warning: .* fits with parallel.tp 2 and parallel.dp 8 ' <<<"$told" || complain "out of memory: $told"

# By algorithm, where a step reduces over two nodes: each has a time of its own, auto none above
# any, and where nothing shares links flows take the same.
cat >c.json <<'SCENARIO'
{"model": "gpt-3.6b", "cluster": "h100-8", "parallel": {"dp": 16, "zero": 0},
 "workload": {"uniform": 4096, "samples_per_batch": 16}}
SCENARIO
by() { # ALGORITHM DETAIL SETTINGS
    local algorithm=$1 detail=$2
    shift 2
    "$program" simulate c.json --json --set "network.collectives=$algorithm" --set "network.detail=$detail" "${@/#/--set=}" \
        >by.json 2>errors || complain "simulate by $algorithm, $detail $* failed: $(cat errors)"
    sed -n 's/^ *"iteration_ms": \([0-9.]*\),*$/\1/p' by.json | head -1
}
fastest=$(by auto closed)
times=
for algorithm in ring tree nvls hierarchical; do
    closed=$(by "$algorithm" closed)
    grep -q "\"collectives\": \"$algorithm\"" by.json || complain "no provenance of $algorithm"
    grep -q 'logged steps were compared with network.collectives profile alone' by.json ||
        complain "$algorithm: an error of logged steps"
    expect "flows by $algorithm" "$closed" "$(by "$algorithm" flows)"
    awk "BEGIN {exit !($fastest <= $closed)}" || complain "auto: $fastest ms, $algorithm $closed"
    times="$times$closed
"
done
expect "times by algorithm" 4 "$(sort -u <<<"${times%?}" | wc -l)"
# Over a spine too, of which their closed times know. It slows them all.
spine=(cluster.fabric.nodes_per_leaf=1 cluster.fabric.oversubscription=8)
fastest=$(by auto closed "${spine[@]}")
for algorithm in ring tree nvls hierarchical; do
    plain=$(by "$algorithm" closed)
    closed=$(by "$algorithm" closed "${spine[@]}")
    expect "flows by $algorithm over a spine" "$closed" "$(by "$algorithm" flows "${spine[@]}")"
    awk "BEGIN {exit !($plain < $closed && $fastest <= $closed)}" ||
        complain "a spine: $algorithm from $plain to $closed ms, auto $fastest"
done
by profile closed >/dev/null
grep -q '"collectives"' by.json && complain "provenance of the profile's collectives"
"$program" simulate c.json --set network.collectives=tree | grep -q '^profile .*, collectives tree$' ||
    complain "the text does not tell of trees"

refused() { # MESSAGE ARGUMENTS
    local message=$1
    shift
    found=$("$program" simulate s.json "$@" 2>&1 >/dev/null)
    expect "status of $*" 3 "$?"
    expect "message of $*" "error: s.json: $message" "$(head -1 <<<"$found")"
}
refused 'network.detail: "flows" does not go with parallel.vocab_parallel ("auto" falls back on "closed")' \
    --set network.detail=flows --set parallel.vocab_parallel=true
refused 'network.collectives: the NVSwitches of cluster a100-8 have no NVLS (cluster.nvls); those of these clusters have it: h800-8, h800-8x100g, h100-8, h100-500w-8, h200-8, b200-8, gb200-nvl72, h100-8-efa' \
    --set network.collectives=nvls
refused 'jitter.gpu_cv: expected a number from 0 to 0.2, got 1' --set jitter.gpu_cv=1
exit "$failed"
