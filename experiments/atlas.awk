# The tables of experiments/atlas.md and the figure's data, from the residuals that atlas_rows.awk wrote.
#
#   awk -f json.awk -f atlas.awk -v out=FOLDER part=kfold FS='|' fits.txt part=log FS=, h100_nanotron.csv
#       part=rows FS='\t' validation.tsv
#
# A row of nanotron's table waits for transfers where it has several stages and each micro-batch takes
# 0.4 s more than predicted: what lies between rows that are met and rows that wait (transfers.md).
function percent(x) { return x == "-" || x == "" ? "-" : sprintf("%.1f %%", 100 * x) }
function signed(x) { return sprintf("%+.1f %%", 100 * x) }
function size(x) { return x < 0 ? -x : x }
function is_time(t) { return kind[t] ~ /^(iteration_ms|tokens_per_s|tokens_per_gpu_s|speedup)$/ }
function is_memory(t) { return kind[t] ~ /_bytes$/ }
function is_nanotron(t) { return t ~ /^h100_nanotron/ }
function file(name) { return out "/" name }

part == "kfold" && $2 !~ /table|---/ {
    name = $2
    gsub(/ /, "", name)
    left_mean[name] = $8 ~ /[0-9]/ ? $8 / 100 : "-"
    folds[name] = $9 + 0
}
part == "log" && FNR > 1 { global_batch[FNR] = $8; logged_gb[FNR] = $11 }
part == "rows" && $1 == "T" {
    table[++tables] = $2
    kind[$2] = $3; profile[$2] = $4; constants[$2] = $5; steps[$2] = $6; mid[$2] = $7; mean[$2] = $8; bias[$2] = $9
    worst[$2] = $10; bound[$2] = $11; within[$2] = $12; left_median[$2] = $13; left_p90[$2] = $14; left_groups[$2] = $15
}
part == "rows" && $1 == "C" { cell_of[++cells] = $2; cell[cells] = $3; cell_rows[cells] = $4; correlation[cells] = $5; regret[cells] = $6 }
part == "rows" && $1 == "R" {
    tab[++rows] = $2; line[rows] = $3; label[rows] = $4; measured[rows] = $5; predicted[rows] = $6; error[rows] = $7
    fits[rows] = $8; mfu[rows] = $9; gpus[rows] = $10; dp[rows] = $11; tp[rows] = $12; cp[rows] = $13; pp[rows] = $14; micro[rows] = $15; row_cell[rows] = $16
}

END {
    for (r = 1; r <= rows; r++) {
        if (is_nanotron(tab[r]) && is_time(tab[r])) { excess[r] = (measured[r] - predicted[r]) / 1000 / (global_batch[line[r]] / dp[r] / micro[r]) }
        cause[r] = cause_of(r)
    }
    write_bars(file("must_hold.md"))
    write_sources(file("sources.md"))
    write_cells(file("cells.md"))
    write_memory(file("memory.md"))
    write_transfers(file("transfers.md"))
    write_unexplained()
    write_figure(file("time.dat"), 1)
    write_figure(file("memory.dat"), 0)
}

# ---- rows ----

function waits(r) { return pp[r] >= 2 && excess[r] >= 0.4 }
function cause_of(r) {
    if (!is_time(tab[r])) { return "" }
    if (is_nanotron(tab[r]) && tp[r] > 8) { return "nodes" }
    if (is_nanotron(tab[r]) && gpus[r] == 512) { return "512" }
    if (is_nanotron(tab[r]) && waits(r)) { return "transfers" }
    return "none"
}
function find(t, least_mfu, but,   r, n) {
    split("", found)
    for (r = 1; r <= rows; r++) {
        if (tab[r] == t && (least_mfu == "" || mfu[r] > least_mfu) && (but == "" || cause[r] != but)) { found[++n] = size(error[r]) }
    }
    return n + 0
}
function mean_of_found(n,   i, sum) { for (i = 1; i <= n; i++) { sum += found[i] } return n ? sum / n : 0 }
# Spearman's, mean of the cells of a table, of rows with no such cause.
function correlation_without(t, but,   c, sum, n) {
    for (c = 1; c <= cells; c++) { if (cell_of[c] == t) { sum += spearman(t, cell[c], but); n++ } }
    return sum / n
}
function spearman(t, name, but,   r, i, n, x, y, a, b, xy, xx, yy, pick) {
    for (r = 1; r <= rows; r++) { if (tab[r] == t && row_cell[r] == name && cause[r] != but) { pick[++n] = r } }
    for (i = 1; i <= n; i++) {
        a = b = 0
        for (r = 1; r <= n; r++) {
            a += (measured[pick[r]] < measured[pick[i]]) + (measured[pick[r]] == measured[pick[i]]) / 2
            b += (predicted[pick[r]] < predicted[pick[i]]) + (predicted[pick[r]] == predicted[pick[i]]) / 2
        }
        x = a - n / 2; y = b - n / 2
        xy += x * y; xx += x * x; yy += y * y
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 1
}

# ---- what must hold ----

function bar(on, what, least, figure, holds, because) {
    print "| " on " | " what " | " least " | " figure " | " (holds ? "holds" : "missed" (because == "" ? "" : ": " because)) " |" >bars
}
function write_bars(name,   t, r, n, m, c, k, sum, regrets, worst_regret, fit, waiting, without, kept, bounds, note) {
    bars = name
    print "| on | measure | bar | measured | |\n| --- | --- | --- | --- | --- |" >bars
    t = "h100_dgxc"
    bar("dgxc", "time, models left out of the fit, mean", "3 %", percent(left_mean[t]) " (in the fit " percent(mean[t]) ")", left_mean[t] <= 0.03)

    t = "h100_nanotron"
    for (r = 1; r <= rows; r++) { if (tab[r] == t) { waiting += cause[r] == "transfers"; fit += fits[r] != "no" } }
    note = waiting " of " steps[t] " rows wait for transfers; "
    n = find(t, "", "transfers"); m = median(found, n)
    without = "without them " percent(m) ", " percent(mean_of_found(n)) " in the fit"
    bar("nanotron, TP inside a node, to 256 GPUs", "time, cells left out of the fit, median and mean", "15 %, 25 %",
        percent(left_median[t]) ", " percent(left_mean[t]) " (in the fit " percent(mid[t]) ", " percent(mean[t]) ")",
        left_median[t] <= 0.15 && left_mean[t] <= 0.25, note without)
    n = find(t, 0.1, "transfers"); m = median(found, n)
    without = "without them " percent(m) ", " percent(mean_of_found(n))
    n = find(t, 0.1, ""); m = median(found, n)
    bar("nanotron, of these above 10 % MFU (" n " rows)", "time, in the fit, median and mean", "8 %, 10 %", percent(m) ", " percent(mean_of_found(n)),
        m <= 0.08 && mean_of_found(n) <= 0.1, note without)
    n = 0
    for (c = 1; c <= cells; c++) {
        if (cell_of[c] == t) {
            k++
            sum += correlation[c]
            if (regret[c] != "-") { n++; regrets += regret[c]; if (regret[c] > worst_regret) { worst_regret = regret[c] } }
        }
    }
    bar("nanotron, " k " cells of model and GPUs", "rank correlation, mean", "0.90", sprintf("%.2f", sum / k), sum / k >= 0.9,
        note sprintf("without them %.2f", correlation_without(t, "transfers")))
    bar("nanotron, these cells", "regret of the pick that fits well, mean and worst", "4 %, 15 %", percent(regrets / n) ", " percent(worst_regret + 0),
        regrets / n <= 0.04 && worst_regret <= 0.15)
    bar("nanotron, TP inside a node, to 256 GPUs", "predicted to fit, if tightly", "98 %", percent(fit / steps[t]), fit / steps[t] >= 0.98)
    bar("nanotron, TP inside a node, to 256 GPUs", "memory, median error", "6 %", percent(mid["h100_nanotron_memory"]), mid["h100_nanotron_memory"] <= 0.06,
        "see [memory](../../atlas.md#memory)")
    shown("h100_nanotron_512", "nanotron, 512 GPUs")
    shown("h100_nanotron_network", "nanotron, TP over nodes")
    t = "megatron_memory"
    bar("Megatron's logged tests, dense", "peak bytes of the last rank, nothing fitted, mean", "1 %", percent(mean[t]), mean[t] <= 0.01)
    fsdp("h100_fsdp", "a100_fsdp")
    left_out("FSDP, A100, 125M, 7B and 30B", "a100_fsdp a100_fsdp_small", 0.06)
    left_out("FSDP, A100, 7B and 30B", "a100_fsdp", 0.06, "one step of 12, of 30B in nearly full memory, took 1.39 times as long as predicted, on H100 1.27; why is not proved")
    left_out("MegaScale and InternEvo, A100", "a100_megascale a100_internevo", 0.08)
    seen("BigScience, A100", "time, nothing fitted, mean", "a100_bigscience", 0.08)
    left_out("B200, 70B (SimuMax)", "b200_simumax", 0.05)
    left_out("GB200, 405B", "gb200_405b", 0.05)
    left_out("dgxc, FP8", "h100_dgxc_fp8", 0.03, "70B and 8B are fitted on each other alone ([published](../../published/README.md))")
    seen("dgxc of 2025, which no fit has seen", "time, mean", "h100_dgxc_2025", 0.03)
    seen("Grok-1, which no fit has seen", "time, mean", "h100_grok", 0.06)
    of_models("moe_fp8", 0.09, "nothing is fitted to B200 and GB200, where 8 of its 14 rows are; why Kimi and one row by AutoModel are off is not known ([published](../../published/README.md))")
    seen("experts: Qwen3 30B in Megatron-Bridge", "time, in the fit, mean", "qwen3_overlap", 0.09)
    seen("sequences to 32K in FP8, nothing fitted", "time, mean", "long_sequence_fp8", 0.07)
    seen("packed fine-tuning", "time, in the fit, mean", "packed_sft", 0.15)
    seen("BigScience, A100", "memory, nothing fitted, mean", "a100_bigscience_memory", 0.04, "where the first of 4 stages is predicted 14 % fuller than nvidia-smi showed; why is not known")
    dynamic_cp()
    for (c = 1; c <= tables; c++) { t = table[c]; bounds += bound[t] != "-"; kept += bound[t] != "-" && within[t] == "true" }
    bar("all tables with a bound of their own", "within it", "all", kept " of " bounds, kept == bounds)
    close(bars)
}
# The mean over the rows of tables, of which each was left out of a fit in groups.
function left_out(on, list, most, because,   part, n, i, sum, all) {
    n = split(list, part, " ")
    for (i = 1; i <= n; i++) { sum += steps[part[i]] * known_error(left_mean[part[i]], part[i]); all += steps[part[i]] }
    bar(on, "time, each left out of the fit, mean", most * 100 " %", percent(sum / all), sum / all <= most, because)
}
# Each model of a table.
function of_models(t, most, because,   r, m, i, n, sum, count, model) {
    for (r = 1; r <= rows; r++) {
        m = label[r]
        if (tab[r] != t || sub(/^model=/, "", m) == 0) { continue }
        sub(/ .*/, "", m)
        if (!(m in count)) { model[++n] = m }
        count[m]++
        sum[m] += size(error[r])
    }
    if (n == 0) { known_error("", t) }
    for (i = 1; i <= n; i++) {
        m = model[i]
        bar(m ", " count[m] " row" (count[m] > 1 ? "s" : "") " of `" t "`", "time, nothing fitted, mean", most * 100 " %", percent(sum[m] / count[m]), sum[m] / count[m] <= most, because)
    }
}
function seen(on, what, t, most, because) {
    bar(on, what, most * 100 " %", percent(mean[t]), known_error(mean[t], t) <= most, because)
}
# A table that is not there, or has no such error, holds no bar.
function known_error(error, t) {
    if (error !~ /^[0-9]/) { print "no error of table " t >"/dev/stderr"; exit 1 }
    return error
}
function shown(t, on,   r, n) {
    split("", found)
    for (r = 1; r <= rows; r++) { if (tab[r] == t) { found[++n] = measured[r] / predicted[r] } }
    print "| " on " | time, measured over predicted, median and largest | shown | " \
        sprintf("%.1f, %.0f", median(found, n), found[n]) " | [causes](../../atlas.md#what-no-mechanism-explains) |" >bars
}
function fsdp(h100, a100,   n, left, fit) {
    n = steps[h100] + steps[a100]
    left = (steps[h100] * left_mean[h100] + steps[a100] * left_mean[a100]) / n
    fit = (steps[h100] * mean[h100] + steps[a100] * mean[a100]) / n
    bar("FSDP, H100 and A100 (" n " rows)", "time, models left out of the fit, mean", "7 %",
        percent(left) " (H100 " percent(left_mean[h100]) ", A100 " percent(left_mean[a100]) "; in the fit " percent(fit) ")", left <= 0.07,
        "of " folds[h100] " models one is all that a fold's fit has seen")
}
function dynamic_cp(   n) {
    n = find("dynamic_cp", "", "")
    median(found, n)
    bar("dynamic CP against packed", "speed-up, worst error", "8 %", percent(found[n]) " in the fit", found[n] <= 0.08)
}

# ---- sources ----

function errors_of(t) { return percent(mid[t]) " | " percent(mean[t]) " | " signed(bias[t]) " | " signed(worst[t]) }
# The error by which a table is judged: of what a fit had left out where that is known.
function judged(t) { return left_mean[t] ~ /[0-9]/ ? left_mean[t] : mean[t] }
# The ones that fail first.
function write_sources(name,   i, k, t, order) {
    for (i = 1; i <= tables; i++) {
        for (k = i; k > 1 && judged(order[k - 1]) < judged(table[i]); k--) { order[k] = order[k - 1] }
        order[k] = table[i]
    }
    print "| table | steps | profile | fitted | median | mean | bias | worst | left out: median | 9 of 10 | mean | folds by |" >name
    print "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |" >name
    for (i = 1; i <= tables; i++) {
        t = order[i]
        if (is_time(t)) {
            print "| `" t "` | " steps[t] " | " profile[t] " | " constants[t] " | " errors_of(t) " | " percent(left_median[t]) " | " \
                percent(left_p90[t]) " | " percent(left_mean[t]) " | " left_groups[t] " |" >name
        }
    }
    close(name)
}
function write_cells(name,   c, others) {
    print "| table | cell | rows | rank correlation | of rows that do not wait | regret |\n| --- | --- | ---: | ---: | ---: | ---: |" >name
    for (c = 1; c <= cells; c++) {
        others = cell_of[c] == "h100_nanotron" ? sprintf("%.2f", spearman(cell_of[c], cell[c], "transfers")) : "-"
        print "| `" cell_of[c] "` | " cell[c] " | " cell_rows[c] " | " sprintf("%.2f", correlation[c]) " | " others " | " \
            (regret[c] == "-" ? "nothing fits well" : percent(regret[c])) " |" >name
    }
    close(name)
}
function write_memory(name,   i, r, t, n, ran, count, models, model, m, list) {
    print "| table | quantity | rows | median | mean | bias | worst |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |" >name
    for (i = 1; i <= tables; i++) {
        t = table[i]
        if (is_memory(t)) { print "| `" t "` | " kind[t] " | " steps[t] " | " errors_of(t) " |" >name }
    }
    print "\n| of nanotron's layouts | rows | fit well | fit tightly | do not fit |\n| --- | ---: | ---: | ---: | ---: |" >name
    models = split("1B 8B 80B all", list, " ")
    for (r = 1; r <= rows; r++) {
        if (kind[tab[r]] == "fits") {
            model = label[r]
            sub(/ .*/, "", model); sub(/model=/, "", model)
            count[model, measured[r], fits[r]]++
            count["all", measured[r], fits[r]]++
        }
    }
    for (ran = 1; ran >= 0; ran--) {
        for (m = 1; m <= models; m++) {
            n = count[list[m], ran, "yes"] + count[list[m], ran, "tight"] + count[list[m], ran, "no"]
            if (n == 0) { continue }
            print "| " list[m] " that " (ran ? "ran" : "failed") " | " n " | " percent(count[list[m], ran, "yes"] / n) " | " \
                percent(count[list[m], ran, "tight"] / n) " | " percent(count[list[m], ran, "no"] / n) " |" >name
        }
    }
    close(name)
}

# ---- what no mechanism explains ----

# Counts and ranges of a selection of nanotron's rows: what their micro-batches take beyond what is predicted.
function note_excess(key, x) {
    number[key]++
    if (number[key] == 1 || x < least[key]) { least[key] = x }
    if (number[key] == 1 || x > most[key]) { most[key] = x }
}
function range(key) { return number[key] ? sprintf("%.2f to %.2f s", least[key], most[key]) : "-" }
function write_transfers(name,   r, where, stages, key, i, j, places, depths, siblings, bytes, passes, alike, above_70, filled) {
    for (r = 1; r <= rows; r++) {
        if (excess[r] == "") { continue }
        where = (gpus[r] == 512 ? "512 GPUs" : "to 256 GPUs") ", TP " (tp[r] > 8 ? "over nodes" : "inside a node")
        stages = pp[r] == 1 ? "1" : pp[r] == 2 ? "2" : "4 and more"
        note_excess(where "|" stages "|" waits(r), excess[r])
        if (tab[r] == "h100_nanotron" && pp[r] >= 2) {
            bytes = label[r]
            sub(/ .*/, "", bytes)
            bytes = bytes "/" tp[r] "/" micro[r]
            passes[bytes] += !waits(r)
            alike[r] = bytes
        }
        if (tab[r] == "h100_nanotron") { above_70 += logged_gb[line[r]] > 70 }
        if (tab[r] == "h100_nanotron" && waits(r)) {
            note_excess("filled " (logged_gb[line[r]] > 70) "|" stages, excess[r])
            note_excess("GB", logged_gb[line[r]])
        }
    }
    for (r in alike) { siblings += waits(r) && passes[alike[r]] > 0 }
    print "| rows | stages | wait | a micro-batch takes beyond the prediction | do not wait | beyond the prediction |" >name
    print "| --- | --- | ---: | --- | ---: | --- |" >name
    split("to 256 GPUs, TP inside a node|512 GPUs, TP inside a node|to 256 GPUs, TP over nodes|512 GPUs, TP over nodes", places, "|")
    split("1|2|4 and more", depths, "|")
    for (i = 1; i <= 4; i++) {
        for (j = 1; j <= 3; j++) {
            key = places[i] "|" depths[j] "|"
            print "| " places[i] " | " depths[j] " | " number[key 1] + 0 " | " range(key 1) " | " number[key 0] + 0 " | " \
                range(key 0) " |" >name
        }
    }
    filled = number["filled 1|2"] + number["filled 1|4 and more"]
    printf "\nOf the %d waiting rows of up to 256 GPUs with TP inside a node, which logged %.0f to %.0f GB, %d have a row of equal\n", number["GB"], least["GB"], most["GB"], siblings >name
    printf "model, TP and micro-batch, and so of equal transfers, that does not wait. Of the %d rows that logged more than 70 of 80 GB\n", above_70 >name
    printf "%d wait, %s a micro-batch with 2 stages and %s with more; the waiting rows below 70 GB\n", filled, range("filled 1|2"), range("filled 1|4 and more") >name
    printf "wait %s and %s.\n", range("filled 0|2"), range("filled 0|4 and more") >name
    close(name)
}
function short_label(r,   text) {
    text = " " label[r] " "
    gsub(/ (gpus|dp|tp|cp|pp|micro_batch)=[^ ]*/, "", text)
    gsub(/^ | $/, "", text)
    return text
}
function layout(r) { return "dp " dp[r] ", tp " tp[r] ", pp " pp[r] (cp[r] > 1 ? ", cp " cp[r] : "") }
function amount(r, x,   of) {
    of = kind[tab[r]]
    return of ~ /^tokens_per_/ ? sprintf("%.0f tokens/s", x) : of == "speedup" ? sprintf("%.2f times", x) : sprintf("%.4g s", x / 1000)
}
function write_unexplained(   i, n, list, name, r, at) {
    n = split("transfers 512 nodes none", list, " ")
    for (i = 1; i <= n; i++) {
        at = file("rows_" list[i] ".md")
        print "| table, line | row | GPUs | layout | micro-batch | measured | predicted | predicted / measured | logged GB |" >at
        print "| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |" >at
        for (r = 1; r <= rows; r++) {
            if (cause[r] == list[i] && size(error[r]) > 0.25) {
                print "| " tab[r] ", " line[r] " | " short_label(r) " | " gpus[r] " | " layout(r) " | " micro[r] " | " \
                    amount(r, measured[r]) " | " amount(r, predicted[r]) " | " sprintf("%.2f", predicted[r] / measured[r]) \
                    " | " (is_nanotron(tab[r]) ? logged_gb[line[r]] : "-") " |" >at
            }
        }
        close(at)
    }
}

# ---- the figure's data: a block for each table ----

function write_figure(name, timed,   i, t, r, blocks, unit, per) {
    unit["iteration_ms"] = "s"; per["iteration_ms"] = 1000
    unit["tokens_per_s"] = unit["tokens_per_gpu_s"] = "tokens/s"; per["tokens_per_s"] = per["tokens_per_gpu_s"] = 1
    unit["speedup"] = "times"; per["speedup"] = 1
    print "# measured predicted fits table unit" >name
    for (i = 1; i <= tables; i++) {
        t = table[i]
        if (timed ? !is_time(t) : !is_memory(t)) { continue }
        if (is_memory(t)) { unit[kind[t]] = "GiB"; per[kind[t]] = 1073741824 }
        if (blocks++) { print "\n" >name }
        for (r = 1; r <= rows; r++) {
            if (tab[r] == t) {
                printf "%.6g %.6g %d \"%s\" \"%s\"\n", measured[r] / per[kind[t]], predicted[r] / per[kind[t]],
                    !timed || fits[r] == "yes" ? 0 : fits[r] == "tight" ? 1 : 2, t, unit[kind[t]] >name
            }
        }
    }
    close(name)
}
