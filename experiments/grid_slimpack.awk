# From the rows of experiments/grid_slimpack.sh: how long every strategy takes beside slimpack, with its micro-batches, and
# the gaps of the slimpack family by tokens per data-parallel rank.
function percent(value) { return value == -1 ? "-" : sprintf("%.1f %%", value > 0 ? 100 * value : 0) }
{
    context = get("context")
    k = get("strategy")
    x = get("model") "/" get("tp") "/" get("dp") "/" get("samples") "/" get("seed")
    ms[context, x, k] = get("status") == "ok" ? get("iteration_ms") + 0 : 0
    gap[context, x, k] = get("gap") + 0
    work[context, x, k] = get("gap_work") + 0
    packs[context, x, k] = get("microbatches") / get("dp")
    if (get("lossless") == "false") { delays[k] = 1 }
    # A Wikipedia document has a thousand tokens.
    class[x] = int(get("samples") / get("dp") / 128 + 0.5) * 125
    cases[x]
    if (!(k in place)) { place[k] = ++kinds; kind[kinds] = k }
}
END {
    n = split("65536 131072 262144", contexts, " ")
    printf "%-20s", "time over slimpack"
    for (c = 1; c <= n; c++) { printf " %7dK", contexts[c] / 1024 }
    printf "   packs a rank at"
    for (c = 1; c <= n; c++) { printf " %3dK", contexts[c] / 1024 }
    printf "   fit, faster\n"
    for (k = 1; k <= kinds; k++) {
        row = sprintf("%-20s", kind[k])
        count = ""
        fit = faster = 0
        for (c = 1; c <= n; c++) {
            m = 0
            split("", list); split("", made)
            for (x in cases) {
                own = ms[contexts[c], x, kind[k]]
                base = ms[contexts[c], x, "slimpack"]
                if (own > 0 && base > 0) { m++; list[m] = own / base; made[m] = packs[contexts[c], x, kind[k]]; fit++; faster += own < base * 0.9999 }
            }
            row = row (m ? sprintf(" %7.2fx", median(list, m)) : sprintf(" %8s", "-"))
            count = count (m ? sprintf(" %4d", int(median(made, m) + 0.5)) : sprintf(" %4s", "-"))
        }
        printf "%s   %15s%s   %3d, %d%s\n", row, "", count, fit, faster, delays[kind[k]] ? " (not lossless)" : ""
    }
    printf "\n%-15s %13s %8s %8s %8s %8s %8s %10s\n", "tokens a rank", "strategy", "cases", "gap", "worst", "over", "worst", "bound over"
    printf "%-15s %13s %8s %8s %8s %8s %8s %10s\n", "", "", "", "median", "", "work", "", "work"
    split("125 250 500 1000", classes, " ")
    split("slimpack slimpack-zb", shown, " ")
    for (i = 1; i <= 4; i++) {
        for (k = 1; k <= 2; k++) {
            m = 0
            split("", list); split("", works); split("", bounds)
            for (c = 1; c <= n; c++) { for (x in cases) { if (class[x] == classes[i] && ms[contexts[c], x, shown[k]] > 0) { m++; list[m] = gap[contexts[c], x, shown[k]]; works[m] = work[contexts[c], x, shown[k]]; bounds[m] = (1 + works[m]) / (1 + list[m]) - 1 } } }
            if (m) {
                g = median(list, m); w = median(works, m)
                printf "%-15s %13s %8d %8s %8s %8s %8s %10s\n", k == 1 ? classes[i] "K" : "", shown[k], m, percent(g), percent(list[m]), percent(w), percent(works[m]), percent(median(bounds, m))
            }
        }
    }
}
