# What `slimpack validate --published --json` says, as lines of fields with tabs between them:
#   T table measured profile constants steps median mean bias worst bound within left-out-median
#     left-out-p90 left-out-groups
#   C table cell rows correlation regret
#   R table line label measured predicted error fits measured-MFU gpus dp tp cp pp micro-batch cell
# The order of keys and the indentation are the program's. Numbers are cut to six digits, which other
# compilers and libraries agree in.
function value(   text) {
    text = $0
    sub(/^ *"[^"]*": /, "", text)
    sub(/,$/, "", text)
    if (text ~ /^"/) { return substr(text, 2, length(text) - 2) }
    return text ~ /^-?[0-9]/ ? sprintf("%.6g", text) : text == "null" ? "-" : text
}
function put_table() {
    print "T", t["table"], t["measured"], t["profile"], t["fitted_constants"], t["count"],
        t["median_absolute_error"], t["mean_absolute_error"], t["bias"], worst, t["bound"], t["within_bound"],
        left["median"], left["p90"], left["source"]
}
function put_row() {
    print "R", t["table"], r["line"], r["label"], r["measured"], r["computed"], r["error"], r["fits"],
        r["measured_mfu_full_attention"], r["gpus"], r["dp"], r["tp"], r["cp"], r["pp"], r["microbatch_samples"], r["cell"]
}
# What not every row has.
function clear(list,   i, n, keys) {
    n = split("fits measured_mfu_full_attention gpus dp tp cp pp microbatch_samples cell", keys, " ")
    for (i = 1; i <= n; i++) { list[keys[i]] = "-" }
}
BEGIN { OFS = "\t"; clear(r) }
{
    match($0, /^ */)
    indent = RLENGTH
    key = $1
    gsub(/[":]/, "", key)
}
indent == 6 && /\{$|\[$/ { inside = key; next }
indent == 6 && /^ *[\]}]/ { inside = ""; next }
indent == 6 { t[key] = value() }
indent == 6 && key == "left_out" { left["median"] = left["p90"] = left["source"] = "-" }
inside == "left_out" { left[key] = value(); sub(/.*whole groups by /, "", left[key]) }
inside == "ranking" && indent == 12 { c[key] = value() }
inside == "ranking" && indent == 12 && key == "regret" { print "C", t["table"], c["cell"], c["rows"], c["correlation"], c["regret"] }
inside == "worst" && key == "error" { worst = value() }
inside == "cases" && /^ *"/ && !/\{$/ { r[key] = value() }
inside == "cases" && indent == 8 && /\}/ { put_row(); clear(r) }
indent == 4 && /^ *\}/ { put_table() }
