# Logged steps of what the program says in JSON, as lines of fields with tabs between them:
#   of `validate --published --json`:  R source measured/predicted-time differing compute-share p90 own table
#     own: 1 where the profile is the one that the table names. Tables that it was fitted to are left out.
#     differing: -1 where the profile has no record, p90 where the error is known, else -
#   of a specification and `calibrate --json`:  L table folds-group error, of rows that were left out;
#     where whole tables were left out, L specification table error
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
BEGIN { OFS = "\t" }
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
/^      "measured": / { rate = value() == "tokens_per_s" }
/^      "source": / { source = source_of(value()) }
/^      "table": / { name = value() }
/^      "left_out": / { fitted = value() != "null" }
(/^      "cases": \[/ && !fitted) || /^  "rows": \[/ { inside = 1; next }
inside && key ~ /^(table|line|label|measured|computed|differing_traits|compute_share|p90|left_out_error_percent)$/ { r[key] = value() }
inside && /^        \}/ {
    ratio = rate ? r["computed"] / r["measured"] : r["measured"] / r["computed"]
    print "R", source, sprintf("%.6g", ratio), r["differing_traits"] == "null" ? -1 : r["differing_traits"], \
        r["compute_share"], r["p90"] == "null" ? "-" : r["p90"], own, name
    delete r
}
inside && /^    \}/ && "left_out_error_percent" in r {
    if (whole) { print "L", spec, r["table"], r["left_out_error_percent"] / 100 }
    else { print "L", r["table"], group_of(r["table"], r["label"]), r["left_out_error_percent"] / 100 }
    delete r
}
/^      \]/ || /^  \]/ { inside = 0 }
