# The ranges of measured over predicted times of logged steps that are unlike those of their profile, as
# C (error_ranges.inc), the steps of one source that waited (waiting_steps.inc), and how well ranges
# cover sources that were left out of them (ranges.md). The rows (evidence_rows.awk) come in the order
# of their ratios; evidence are those that a user would be told "not validated" of.
#
# Steps are alike that differ as much from those that their profile was fitted to. Their range
# leaves out a twentieth on either side, every source with the same weight. Where a layer's micro-batch is
# short, its launches may take longer than computation: in steps that are predicted by another stack's
# rates, the range reaches to what 9 in 10 such took.
#
# A source that is not among them may err otherwise: both ends are moved outwards by a margin. Each
# source is left out in turn, and needs that margin with which 8 in 10 of its steps lie within the range
# of the others; the one that is taken is enough for 8 in 10 sources of yet another kind (its rank among
# k is that of a conformal interval, 0.8 (k + 1)). How well this holds is judged by leaving out the
# source that is judged from ranges and margin alike.
#
# Tables of whose steps most waited for something that no model has and no other source shows are no
# part of it: how many steps of their source waited, by nodes, is told beside the range.
BEGIN {
    short_ms = 8 # launches of a layer take up to this in the profiles that were fitted
    waits_ms = 400
    promised = 0.8
    nearly_full = 0.86 # of steps that fill less 1 in 30 was longer
    longer = 1.2
    split("up to 3 traits of model and layout differ|others differ, or more|no record", words, "|")
}
function is_apart(table) { return own_waited[table] > 0.5 * own_steps[table] }
function counts(r, far) {
    return !(source[r] in without) && !is_apart(table[r]) && \
        (far ? away[r] == far && (far == 1 || layer[r] >= short_ms) : away[r] == 2 && layer[r] < short_ms)
}
# Puts the rows of a distance into taken[], or those of short layers alone, in the order of their times.
function collect(far,   i, r) {
    split("", count); split("", taken); sources = steps = 0
    for (i = 1; i <= rows; i++) {
        r = far ? i : by_time[i]
        if (counts(r, far)) { taken[++steps] = r; if (!count[source[r]]++) { sources++ } }
    }
}
function quantile(share, value,   i, weight) {
    for (i = 1; i <= steps; i++) {
        weight += 1 / count[source[taken[i]]] / sources
        if (weight >= share - 1e-9) { return value[taken[i]] }
    }
}
# Ranges of all sources but two ("": none), without a margin.
function find_ranges(but, also,   far) {
    split("", without); without[but]; without[also]
    for (far = 1; far <= 3; far++) {
        collect(far)
        least[far] = quantile(0.05, ratio); most[far] = quantile(0.95, ratio)
        all_steps[far] = steps; all_sources[far] = sources
    }
    collect(0)
    launch = quantile(0.9, time); launch_steps = steps; launch_sources = sources
}
function ceiling(far, r) { return far > 1 && launch / layer[r] > most[far] ? launch / layer[r] : most[far] }
# Puts x among the n sorted[] ones.
function insert(x, n,   j) { for (j = n + 1; j > 1 && sorted[j - 1] > x; j--) { sorted[j] = sorted[j - 1] } sorted[j] = x }
function at_rank(r, n) { return sorted[r > n ? n : r] }
function up(x) { return int(x) + (x > int(x) + 1e-9) }
# The margin with which so many of a source's steps lie within the ranges as they stand.
function find_need(s,   r, n, x, high) {
    split("", sorted)
    for (r = 1; r <= rows; r++) {
        if (source[r] != s || is_apart(table[r])) { continue }
        high = ceiling(away[r], r)
        x = ratio[r] < least[away[r]] ? least[away[r]] / ratio[r] : ratio[r] > high ? ratio[r] / high : 1
        insert(x, n++)
    }
    return at_rank(up(promised * n), n)
}
# Ranges of all sources but one ("": none), with the margin that these tell of each other.
function widen_ranges(but,   i, n, need, far) {
    for (i = 1; i <= names; i++) {
        if (name[i] == but) { continue }
        find_ranges(but, name[i])
        need[++n] = find_need(name[i])
    }
    split("", sorted)
    for (i = 1; i <= n; i++) { insert(need[i], i - 1) }
    margin = at_rank(up(promised * (n + 1)), n)
    find_ranges(but, "")
    for (far = 1; far <= 3; far++) { least[far] /= margin; most[far] *= margin }
    launch *= margin
}
function percent(x, n) { return n ? sprintf("%.0f %%", 100 * x / n) : "-" }
function put(what, row) { printf "| %s | %s |\n", what, row >md }
function median_width(far,   i, n, k) {
    split("", sorted)
    for (i = 1; i <= judged_widths; i++) {
        k = width_class[i]
        if (far ? k == far : k < 3) { insert(width[i], n++) }
    }
    return sprintf("%.2f", at_rank(up(n / 2), n))
}
# Lines of all rows, of those but the source that waits, and of the mean of sources.
function judge(what, far, apart,   s, n, w, k, i, all, all_in, all_narrow, mean, mean_narrow, l, of_it, of_it_in, of_it_narrow) {
    for (i = 1; i <= names; i++) {
        s = name[i]; n = w = k = 0
        for (far_of = 1; far_of <= 3; far_of++) {
            if (far ? far_of != far : far_of == 3) { continue }
            n += judged[s, far_of] + (apart ? judged[s, far_of, "apart"] : 0)
            w += within[s, far_of] + (apart ? within[s, far_of, "apart"] : 0)
            k += narrow[s, far_of] + (apart ? narrow[s, far_of, "apart"] : 0)
        }
        if (!n) { continue }
        all += n; all_in += w; all_narrow += k; mean += w / n; mean_narrow += k / n; l++
        if (s == waiting) { of_it = n; of_it_in = w; of_it_narrow = k }
    }
    put(what ", all steps", all " | " l " | " percent(all_in, all) " | " percent(all_narrow, all) " | " (apart ? "" : median_width(far)))
    put(what ", but the source that waits", all - of_it " | " l - (of_it > 0) " | " percent(all_in - of_it_in, all - of_it) " | " percent(all_narrow - of_it_narrow, all - of_it) " |")
    put(what ", mean of sources", all " | " l " | " percent(mean, l) " | " percent(mean_narrow, l) " |")
}
($1 == "V" || $1 == "W") && $2 && $11 != "-" {
    over = $10 > 8; nodes = $9 > 8 ? $9 / 8 : 1
    if (!(($3, over, nodes) in logged)) { list[$3, over] = list[$3, over] " " nodes }
    own_steps[$7]++; own_waited[$7] += $11 >= waits_ms && $4 >= longer; of_source[$7] = $3
    logged[$3, over, nodes]++; waited[$3, over, nodes] += $11 >= waits_ms
}
# Steps of a table's own profile by how full their memory is: nearly, or tight.
($1 == "V" || $1 == "W") && $2 && ($12 == "tight" || ($12 == "yes" && $13 >= nearly_full)) {
    fill = $12 == "tight"
    full_table[fill, ++filled[fill]] = $7; full_source[fill, filled[fill]] = $3; full_ratio[fill, filled[fill]] = $4
}
($1 == "V" && $8 == "-" && $5 != 0) || ($1 == "L" && $5 != 0) {
    source[++rows] = $3; ratio[rows] = $4; away[rows] = $5; layer[rows] = $6; table[rows] = $7; time[rows] = $4 * $6
    if (!($3 in seen)) { seen[$3] = 1; name[++names] = $3 }
    if (!(($3, $7) in seen)) { seen[$3, $7] = 1; tables[$3] = tables[$3] (tables[$3] == "" ? "" : ", ") "`" $7 "`" }
}
END {
    inc = out "/error_ranges.inc"
    md = out "/ranges.md"
    for (t in of_source) { if (is_apart(t)) { waiting = of_source[t] } }
    for (r = 1; r <= rows; r++) { for (j = r; j > 1 && time[by_time[j - 1]] > time[r]; j--) { by_time[j] = by_time[j - 1] } by_time[j] = r }
    widen_ranges("")
    print "// Written by experiments/evidence.sh: do not edit." >inc
    print "| unlike logged steps | steps | sources | 8 in 10 take, of the predicted time | short layers up to, ms |\n| --- | ---: | ---: | --- | ---: |" >md
    for (far = 1; far <= 3; far++) {
        printf "{%.2f, %.2f, %d, %d, %.1f},\n", least[far], most[far], all_steps[far], all_sources[far], (far > 1 ? launch : 0) >inc
        put(words[far], sprintf("%d | %d | %.2f to %.2f | %s", all_steps[far], all_sources[far], least[far], most[far], (far > 1 ? sprintf("%.1f", launch) : "-")))
    }
    printf "\nThe last column is of %d steps of %d sources with layers that take less than %d ms. A margin of %.1f %% is in all columns.\n", launch_steps, launch_sources, short_ms, 100 * (margin - 1) >md
    for (i = 2; i <= names; i++) { for (j = i; j > 1 && tables[name[j]] < tables[name[j - 1]]; j--) { t = name[j]; name[j] = name[j - 1]; name[j - 1] = t } }
    print "\n| a source, left out | steps | within its range | range narrower than ± 40 % |\n| --- | ---: | ---: | ---: |" >md
    for (i = 1; i <= names; i++) {
        s = name[i]
        widen_ranges(s)
        for (r = 1; r <= rows; r++) {
            if (source[r] != s) { continue }
            far = away[r]
            high = ceiling(far, r)
            is_in = least[far] <= ratio[r] && ratio[r] <= high; is_narrow = high - least[far] < 0.8
            if (is_apart(table[r])) { judged[s, far, "apart"]++; within[s, far, "apart"] += is_in; narrow[s, far, "apart"] += is_narrow }
            else { judged[s, far]++; within[s, far] += is_in; narrow[s, far] += is_narrow; width[++judged_widths] = high - least[far]; width_class[judged_widths] = far }
        }
        n = judged[s, 1] + judged[s, 2] + judged[s, 3]
        put(tables[s], n " | " percent(within[s, 1] + within[s, 2] + within[s, 3], n) " | " percent(narrow[s, 1] + narrow[s, 2] + narrow[s, 3], n))
    }
    print "\n| every source left out in turn | steps | sources | within the range | narrower than ± 40 % | median width |\n| --- | ---: | ---: | ---: | ---: | ---: |" >md
    judge("of profiles with records", 0, 0)
    for (far = 1; far <= 3; far++) { judge(words[far], far, 0) }
    judge("with the steps that wait: of profiles with records", 0, 1)
    print "\n| memory is | steps | 1.2 times the predicted time and more | sources of these | they took, of the predicted time |\n| --- | ---: | ---: | ---: | --- |" >md
    print "// Written by experiments/evidence.sh: do not edit." >(out "/full_steps.inc")
    for (fill = 0; fill <= 1; fill++) {
        n = k = sources = 0; split("", counted)
        for (i = 1; i <= filled[fill]; i++) {
            if (is_apart(full_table[fill, i])) { continue }
            n++
            x = full_ratio[fill, i]
            if (x < longer) { continue }
            if (!counted[full_source[fill, i]]++) { sources++ }
            if (!k++) { low = x }
            high = x
        }
        printf "{%g, %d, %d, %d, %.1f, %.1f},\n", fill ? 1 : nearly_full, n, k, sources, low, high >(out "/full_steps.inc")
        put(fill ? "tight" : "fuller than " nearly_full " of the limit, not tight", sprintf("%d | %d | %d | %.1f to %.1f", n, k, sources, low, high))
    }
    print "\n| steps of the source that waits | nodes | steps | waited 0.4 s a micro-batch and more |\n| --- | ---: | ---: | ---: |" >md
    wait = out "/waiting_steps.inc"
    print "// Written by experiments/evidence.sh: do not edit." >wait
    for (over = 0; over <= 1; over++) {
        n = split(list[waiting, over], of, " ")
        for (i = 2; i <= n; i++) { for (j = i; j > 1 && of[j] + 0 < of[j - 1] + 0; j--) { t = of[j]; of[j] = of[j - 1]; of[j - 1] = t } }
        for (i = 1; i <= n; i++) {
            printf "{%s, {%d, %d, %d}},\n", over ? "true" : "false", of[i], logged[waiting, over, of[i]], waited[waiting, over, of[i]] >wait
            put(over ? "TP over nodes" : "TP inside a node", of[i] " | " logged[waiting, over, of[i]] " | " percent(waited[waiting, over, of[i]], logged[waiting, over, of[i]]))
        }
    }
}
