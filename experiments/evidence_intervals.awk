# How many logged steps lie within the p90 that is printed (sim/cost/error_record.c): of every table
# with folds, whose groups are left out of their own interval in turn, and of steps that have a record
# though their profile was not fitted to them.
function interval(folds) { return sqrt(decile * decile * (1 + 1 / folds) + 0.06 * 0.06) }
# The ninth decile of the sizes of a table's errors, without a group.
function find_decile(table, but,   i, j, k, n, size) {
    split("", found)
    for (i = 1; i <= left; i++) {
        if (of_table[i] != table || group[i] == but) { continue }
        size = error[i]
        for (j = ++n; j > 1 && found[j - 1] > size; j--) { found[j] = found[j - 1] }
        found[j] = size
    }
    k = int((9 * n + 9) / 10)
    decile = found[k]
}
function put(name, what, n, all,   share) { printf "| %s | %s | %d | %.0f %% |\n", name, what, n, 100 * all / n }
$1 == "L" { of_table[++left] = $9; group[left] = $10; error[left] = $8 < 0 ? -$8 : $8; if (!($9 in count)) { names[++tables] = $9 } count[$9]++; if (!(($9, $10) in seen)) { seen[$9, $10] = 1; folds[$9]++; member[$9, folds[$9]] = $10 } }
$1 == "V" && $8 != "-" { if (!($7 in known)) { others[++later] = $7 } known[$7]++; d = 1 / $4 - 1; held[$7] += (d < 0 ? -d : d) <= $8 }
END {
    print "| logged steps | judged by | steps | within the printed p90 |\n| --- | --- | ---: | ---: |"
    for (t = 1; t <= tables; t++) {
        name = names[t]; inside = 0
        for (g = 1; g <= folds[name]; g++) {
            find_decile(name, member[name, g])
            for (i = 1; i <= left; i++) { inside += of_table[i] == name && group[i] == member[name, g] && error[i] <= interval(folds[name] - 1) }
        }
        put("`" name "`", folds[name] " groups, each left out", count[name], inside)
        steps += count[name]; all += inside; mean += inside / count[name]; judged++
    }
    for (t = 1; t <= later; t++) {
        put("`" others[t] "`", "the record of other steps", known[others[t]], held[others[t]])
        steps += known[others[t]]; all += held[others[t]]; mean += held[others[t]] / known[others[t]]; judged++
    }
    put("all steps", "", steps, all)
    printf "| mean of these rows | | | %.0f %% |\n", 100 * mean / judged
}
