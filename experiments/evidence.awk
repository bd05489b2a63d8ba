# The ranges of measured over predicted times of logged steps that are unlike those of their profile,
# as C (error_ranges.inc), and how well they cover sources that were left out of them (ranges.md). The
# rows (evidence_rows.awk) come in the order of these ratios; judged are those that the table's own
# profile predicts.
#
# Rows are alike that compute for a like share of their time and differ as much. The range of such
# rows holds 8 in 10, every source with the same weight; where fewer than four sources have such rows,
# those of all distances stand in for them, and where they are too few, there is no range.
function share_class(share) { return share >= 0.8 ? 1 : share >= 0.5 ? 2 : 3 }
function distance(differing) { return differing < 0 ? 3 : differing <= 3 ? 1 : 2 }
# Of rows of a class, of all distances with far 0, without a source ("": none).
function collect(class, far, but,   r, s) {
    split("", count); split("", taken); sources = steps = 0
    for (r = 1; r <= rows; r++) {
        if (share[r] == class && (!far || away[r] == far) && source[r] != but) { taken[++steps] = r; if (!count[source[r]]++) { sources++ } }
    }
}
function find_range(class, far, but,   i, weight) {
    collect(class, far, but)
    if (sources < 4) { collect(class, 0, but) }
    least = most = 0
    if (sources < 4) { return 0 }
    for (i = 1; i <= steps; i++) {
        weight += 1 / count[source[taken[i]]] / sources
        if (!least && weight >= 0.1 - 1e-9) { least = ratio[taken[i]] }
        if (!most && weight >= 0.9 - 1e-9) { most = ratio[taken[i]] }
    }
    return 1
}
function percent(x) { return sprintf("%.0f %%", 100 * x) }
$6 == "-" {
    source[++rows] = $2; ratio[rows] = $3; away[rows] = distance($4); share[rows] = share_class($5); judged[rows] = $7
    if ($7 && !(($2, $8) in seen)) { seen[$2, $8] = 1; tables[$2] = tables[$2] (tables[$2] == "" ? "" : ", ") "`" $8 "`" }
}
END {
    inc = out "/error_ranges.inc"
    md = out "/ranges.md"
    split("0.8 0.5 -1e9", bound, " "); split("3 1000 -1", differing, " ")
    split("80 % or more, 50 to 80 %, less than 50 %", words, ", "); split("1 to 3, 4 or more, no record", far, ", ")
    print "// Written by experiments/evidence.sh: do not edit." >inc
    print "| computing | traits that differ | steps | sources | 8 in 10 took, of the predicted time |\n| --- | --- | ---: | ---: | --- |" >md
    for (c = 1; c <= 3; c++) {
        for (d = 1; d <= 3; d++) {
            known = find_range(c, d, "")
            if (known) { printf "{%s, %s, {%.2f, %.2f, %d, %d}},\n", bound[c], differing[d], least, most, steps, sources >inc }
            printf "| %s | %s | %s |\n", words[c], far[d], known ? sprintf("%d | %d | %.2f to %.2f", steps, sources, least, most) : "- | - | too few sources" >md
        }
    }
    print "\n| tables of a source, left out | steps | with a range | within it | range narrower than ± 40 % |\n| --- | ---: | ---: | ---: | ---: |" >md
    for (s in tables) { names[++n] = s }
    for (i = 2; i <= n; i++) { for (j = i; j > 1 && names[j] < names[j - 1]; j--) { t = names[j]; names[j] = names[j - 1]; names[j - 1] = t } }
    for (i = 1; i <= n; i++) {
        own = ranged = within = narrow = 0
        split("", made)
        for (r = 1; r <= rows; r++) {
            if (source[r] != names[i] || !judged[r]) { continue }
            own++
            key = share[r] " " away[r]
            if (!(key in made)) { made[key] = find_range(share[r], away[r], names[i]); low[key] = least; high[key] = most }
            if (!made[key]) { continue }
            ranged++
            within += low[key] <= ratio[r] && ratio[r] <= high[key]
            narrow += high[key] - low[key] < 0.8
        }
        printf "| %s | %d | %d | %s | %s |\n", tables[names[i]], own, ranged, ranged ? percent(within / ranged) : "-", ranged ? percent(narrow / ranged) : "-" >md
        total += own; total_ranged += ranged; total_within += within; total_narrow += narrow
        if (own > most_own) { most_own = own; most_ranged = ranged; most_within = within; most_narrow = narrow }
        if (ranged) { n_ranged++; mean += within / ranged; mean_narrow += narrow / ranged }
    }
    printf "| all steps | %d | %d | %s | %s |\n", total, total_ranged, percent(total_within / total_ranged), percent(total_narrow / total_ranged) >md
    printf "| all but the largest source | %d | %d | %s | %s |\n", total - most_own, total_ranged - most_ranged, percent((total_within - most_within) / (total_ranged - most_ranged)), percent((total_narrow - most_narrow) / (total_ranged - most_ranged)) >md
    printf "| mean of sources | | | %s | %s |\n", percent(mean / n_ranged), percent(mean_narrow / n_ranged) >md
}
