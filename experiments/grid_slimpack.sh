#!/bin/sh
# grid_slimpack.sh [RESULTS]: runs experiments/grid_slimpack.json (or takes the results of a sweep of it)
# and puts, for each context, how long every strategy takes beside slimpack into
# experiments/results/slimpack.txt: the median over the cases that run in memory, and in how many a
# lossless strategy was faster.
set -eu
cd "$(dirname "$0")/.."
results=${1:-}
if [ -z "$results" ]; then
    results=$(mktemp)
    trap 'rm -f "$results"' EXIT
    build/slimpack sweep experiments/grid_slimpack.json -o "$results" --quiet >/dev/null || [ $? -eq 1 ]
fi
awk '
function get(key,   at, rest) {
    at = index($0, "\"" key "\":")
    if (at == 0) { return "" }
    rest = substr($0, at + length(key) + 3)
    sub(/^ *"?/, "", rest)
    sub(/[",}].*/, "", rest)
    return rest
}
{
    print get("workload.context"), get("strategy.kind"), get("status"), get("iteration_ms"), get("gap"), get("gap_work"), \
        get("model") "/" get("parallel.tp") "/" get("parallel.dp") "/" get("workload.samples_per_batch") "/" get("workload.seed")
}' "$results" | awk '
function median(list, n,   i, j, t) {
    for (i = 2; i <= n; i++) { for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t } }
    return n == 0 ? "-" : n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
}
{ ms[$1, $7, $2] = $3 == "ok" ? $4 : 0; gap[$1, $7, $2] = $5; work[$1, $7, $2] = $6; contexts[$1]; cases[$7]; if (!($2 in place)) { place[$2] = ++kinds; kind[kinds] = $2 } }
END {
    printf "%-20s", "time over slimpack"
    n = split("65536 131072 262144", context, " ")
    for (c = 1; c <= n; c++) { printf " %9dK", context[c] / 1024 }
    printf "  cases that fit, faster\n"
    for (k = 1; k <= kinds; k++) {
        printf "%-20s", kind[k]
        fit = faster = 0
        for (c = 1; c <= n; c++) {
            m = 0
            split("", list)
            for (x in cases) {
                own = ms[context[c], x, kind[k]]
                base = ms[context[c], x, "slimpack"]
                if (own > 0 && base > 0) { list[++m] = own / base; fit++; faster += own < base * 0.9999 }
            }
            v = median(list, m)
            printf v == "-" ? " %10s" : " %9.2fx", v
        }
        printf "  %d, %d\n", fit, faster
    }
    print ""
    split("slimpack-symmetric slimpack slimpack-zb", shown, " ")
    for (k = 1; k <= 3; k++) {
        m = 0
        split("", list)
        split("", works)
        for (c = 1; c <= n; c++) { for (x in cases) { if (ms[context[c], x, shown[k]] > 0) { m++; list[m] = 100 * gap[context[c], x, shown[k]]; works[m] = 100 * work[context[c], x, shown[k]] } } }
        v = median(list, m); w = median(works, m)
        printf "%-20s gap median %.1f %%, worst %.1f %%; over pure work median %.1f %%\n", shown[k], v, list[m], w
    }
}' >experiments/results/slimpack.txt
experiments/readme_tables.sh
