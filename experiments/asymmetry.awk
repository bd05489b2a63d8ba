# From the results of experiments/asymmetry.json and asymmetry_few.json: by regime, how much longer
# symmetric packs take, in the mean and at most.
get("status") == "ok" {
    slow = get("profile") == "h800-burst" ? "as profiled" : "a third"
    few = get("workload.uniform") != ""
    tokens = few ? get("workload.uniform") : get("workload.context")
    lengths = few ? get("workload.samples_per_batch") " equal" : get("workload.lengths")
    k = slow "\t" get("memory.recompute") "\t" lengths "\t" tokens / 1024 "K"
    x = k "\t" get("workload.seed") "\t" get("parallel.pp")
    ms[x, get("strategy.kind")] = get("iteration_ms") + 0
    keys[k]; cases[x] = k
}
END {
    for (x in cases) {
        s = ms[x, "slimpack-symmetric"]; a = ms[x, "slimpack"]
        if (s > 0 && a > 0) {
            k = cases[x]
            n[k]++; sum[k] += s / a
            if (s / a > most[k]) { most[k] = s / a }
        }
    }
    for (k in keys) { if (n[k]) { printf "%s\t%d\t%.4f\t%.4f\n", k, n[k], sum[k] / n[k], most[k] } }
}
