# The probability that a step does not run out of memory, by the share of the limit that PyTorch would
# reserve, as C (fit_shares.inc), and how well it tells steps that ran from those that failed (fits.md).
# Read is `validate --published --json` of tables of peaks and of layouts that ran or failed.
#
# Of a source that logged failures: the share that ran, of steps within a twentieth, over that of steps
# that need less than half of the memory, which fail for other reasons. Of one that logged peaks: the
# share of its steps that would run if they needed so much more or less than predicted, on GPUs of
# 80 GiB of which not 3 GiB (as is assumed) but 1 to 6 are not for tensors (sim/model/cluster.h).
# Every source has the same weight, and more memory is never likelier to be enough. Megatron's stacks
# go by its own peaks: frameworks differ in what they hold that nobody counts. All others go by all
# sources, nanotron's, too: its grid is made of layouts that fill the memory.
function value(   text) { text = $2; sub(/,$/, "", text); gsub(/"/, "", text); return text }
function ran_of(s, share,   i, r, ran, n, all) {
    if (!failures[s]) {
        for (i = 1; i <= rows[s]; i++) { for (r = 1; r <= 6; r++) { ran += excess[s, i] * share * 77 <= 80 - r; n++ } }
        return ran / n
    }
    for (i = 1; i <= rows[s]; i++) {
        if (memory[s, i] < 0.5) { all++; ran += outcome[s, i] } else if (memory[s, i] >= share - 0.05 && memory[s, i] <= share + 0.05) { n++; r += outcome[s, i] }
    }
    usual[s] = ran / all
    return n && r / n < usual[s] ? r / n / usual[s] : n ? 1 : 0
}
# Without a source ("": none), or of those of a framework alone.
function find_curve(but, only,   k, s, share, sum, n) {
    for (k = 0; k <= KNOTS; k++) {
        share = 0.5 + 0.05 * k
        sum = n = 0
        for (s = 1; s <= sources; s++) { if (s != but && (only == "" || framework[s] == only)) { sum += ran_of(s, share); n++ } }
        curve[k] = k && sum / n > curve[k - 1] ? curve[k - 1] : sum / n
    }
}
function probability(share,   k, at) {
    at = (share - 0.5) / 0.05
    if (at <= 0) { return curve[0] }
    if (at >= KNOTS) { return curve[KNOTS] }
    k = int(at)
    return curve[k] + (at - k) * (curve[k + 1] - curve[k])
}
function judge(what,   c, s, i, p, n, mean, ran) {
    for (s = 1; s <= sources; s++) {
        if (!failures[s]) { continue }
        if (what != "all sources") { find_curve(s) }
        for (c = 1; c <= 4; c++) {
            n = mean = ran = 0
            for (i = 1; i <= rows[s]; i++) {
                p = probability(memory[s, i])
                if (p >= least[c] && (c == 1 || p < least[c - 1])) { n++; mean += p; ran += outcome[s, i] / usual[s] }
            }
            if (n) { printf "| %s | %s | %d | %.2f | %.2f |\n", what, names[s], n, mean / n, (ran < n ? ran / n : 1) >md }
        }
    }
}
BEGIN { KNOTS = 12; split("0.9 0.6 0.2 0", least, " ") }
/^      "table": / { table = value() }
/^      "measured": "/ { fits = value() == "fits" }
/^      "cases": \[/ {
    s = ++sources
    names[s] = "`" table "`"
    framework[s] = table ~ /nanotron/ ? "nanotron" : "Megatron"
    failures[s] = fits
    inside = 1
}
/^      \]/ { inside = 0 }
inside && /^          "measured": / { measured = value() }
inside && /^          "computed": / { computed = value() }
inside && /^          "memory_share": / { share = value() }
inside && /^        \}/ {
    i = ++rows[s]
    excess[s, i] = computed > 0 ? measured / computed : 0; memory[s, i] = share; outcome[s, i] = measured
}
END {
    inc = out "/fit_shares.inc"
    md = out "/fits.md"
    find_curve("", "Megatron")
    for (k = 0; k <= KNOTS; k++) { megatron[k] = curve[k] }
    find_curve("")
    print "// Written by experiments/evidence.sh: do not edit." >inc
    for (s = 1; s <= sources; s++) { head = head " " names[s] " |"; line = line " ---: |" }
    print "| share of the limit |" head " Megatron runs | others run |\n| ---: |" line " ---: | ---: |" >md
    for (k = 0; k <= KNOTS; k++) {
        share = 0.5 + 0.05 * k
        printf "{%.2f, {%.2f, %.2f}},\n", share, curve[k], megatron[k] >inc
        printf "| %.2f |", share >md
        for (s = 1; s <= sources; s++) { printf " %.2f |", ran_of(s, share) >md }
        printf " %.2f | %.2f |\n", megatron[k], curve[k] >md
    }
    print "\n| probability made of | steps of | steps | probability | ran |\n| --- | --- | ---: | ---: | ---: |" >md
    judge("all sources")
    judge("other sources")
}
