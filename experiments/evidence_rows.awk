# Logged steps of what the program says in JSON, as lines of fields with tabs between them:
#   kind own source ratio distance layer-ms table more...
#     kind: V of `validate --published --json`, W of the same where the profile was fitted to the table,
#       L of a specification (before it the maps of its tables) and `calibrate --json`, left out of the fit
#     own: 1 where the profile is the one that the table names
#     ratio: measured over predicted time
#     distance: 0 where the error is known, 1 where up to three traits of model and layout differ, 2 where
#       more do or another, 3 where the profile has no record
#     more, of V and W: p90 ("-": the error is not known), GPUs, TP, what a micro-batch took in ms
#       beyond what is predicted ("-": a throughput was measured), whether it fits, its share of the memory
#     more, of L: error, what judges its interval (a table, or the specification where whole tables were
#       left out), group
# The order of keys and the indentation are the program's.
function value(   text) {
    text = $0
    sub(/^ *"[^"]*": /, "", text)
    sub(/,$/, "", text)
    gsub(/^"|"$/, "", text)
    return text
}
# A source is known by the first two words that it is described by.
function source_of(text,   words) { split(text, words, /[ ,]+/); return words[1] " " words[2] }
function group_of(table, label,   n, i, keys, group) {
    n = split(groups[table], keys, " ")
    for (i = 1; i <= n; i++) { if (match(" " label " ", " " keys[i] "=[^ ]*")) { group = group substr(" " label " ", RSTART, RLENGTH) } }
    return group == "" ? r["line"] : group
}
function distance() { return r["differing_traits"] == "null" ? 3 : r["differing_traits"] == 0 ? 0 : r["differing_traits"] <= 3 && r["foreign_traits"] == 0 ? 1 : 2 }
BEGIN { OFS = "\t" }
# A map.
/^  "schema": "slimpack\/measurements/ { map = FILENAME; sub(/.*\//, "", map); sub(/\.json$/, "", map) }
/^  "source": / { sources[map] = source_of(value()) }
# A specification.
/^  "name": / && !name { spec = value() }
/^  "leave_out_tables": true/ { whole = 1 }
/"folds": \{"group"/ {
    table = $0; sub(/^[^"]*"/, "", table); if (table ~ /^tables/) { sub(/^tables": \{"/, "", table) } sub(/".*/, "", table)
    group = $0; sub(/.*"group": \[/, "", group); sub(/\].*/, "", group); gsub(/[",]+ */, " ", group)
    groups[table] = group
    next
}
{ key = $1; gsub(/[":]/, "", key) }
/^      "measured": / { rates[name] = value() ~ /^tokens/ }
/^      "source": / { source = source_of(value()) }
/^      "(table|name)": / { name = value() }
/^      "cases": \[/ || /^  "rows": \[/ { inside = 1; next }
inside && key ~ /^(table|line|label|measured|computed|differing_traits|foreign_traits|layer_ms|microbatches|gpus|dp|tp|p90|fits|memory_share|left_out_error_percent)$/ { r[key] = value() }
inside && /^        \}/ {
    ratio = rates[name] ? r["computed"] / r["measured"] : r["measured"] / r["computed"]
    waits = rates[name] ? "-" : sprintf("%.0f", (r["measured"] - r["computed"]) * r["dp"] / r["microbatches"])
    print fitted ? "W" : "V", own, source, sprintf("%.6g", ratio), distance(), \
        sprintf("%.6g", r["layer_ms"]), name, r["p90"] == "null" ? "-" : r["p90"], r["gpus"], r["tp"], waits, r["fits"], r["memory_share"]
    delete r
}
inside && /^    \}/ && "layer_ms" in r {
    error = r["left_out_error_percent"] / 100
    print "L", 1, sources[r["table"]], sprintf("%.6g", rates[r["table"]] ? 1 + error : 1 / (1 + error)), distance(), \
        sprintf("%.6g", r["layer_ms"]), r["table"], error, whole ? spec : r["table"], whole ? r["table"] : group_of(r["table"], r["label"])
    delete r
}
/^      \]/ || /^  \]/ { inside = 0 }
