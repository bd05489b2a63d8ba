# picture.awk FIGURE.json FIGURE.svg: is every point of a reproduced figure in its picture, in the shape of its
# verdict, every bound as an arrow, and every text whole and on the canvas? Prints faults; status 1 where there
# are any.

# A JSON text without its escapes, as it stands in a picture.
function plain(text) {
    sub(/^[^:]*: "/, "", text)
    sub(/",?$/, "", text)
    gsub(/\\"/, "'", text)
    return text
}
function fault(text) { print FILENAME ": " text; failed = 1 }
# Of a text that begins, is centred or ends at `at`.
function fits(at, width, most) {
    first = anchor == "end" ? at - width : anchor == "middle" ? at - width / 2 : at
    return first >= 0 && first + width <= most
}

# ---- the figure ----

FILENAME ~ /json$/ && /^  "name": / { name = plain($0) }
FILENAME ~ /json$/ && /^  "title": / { title = plain($0) }
FILENAME ~ /json$/ && /^      "label": / { label[++points] = plain($0); verdict[points] = "-"; headline[points] = "" }
FILENAME ~ /json$/ && /^      "claim": / { claim[points] = plain($0) }
FILENAME ~ /json$/ && /^      "computed": / { computed[points] = $2 !~ /null/ }
FILENAME ~ /json$/ && /^      "within": / { verdict[points] = $2 ~ /true/ ? "within" : "outside" }
FILENAME ~ /json$/ && /^      "fitted": / { fitted[points] = $2 ~ /true/ }
FILENAME ~ /json$/ && /^      "headline": / { headline[points] = "headline: " }
FILENAME ~ /json$/ && /^      "memory_limit": / { limits++ }

# ---- the picture ----

FILENAME ~ /svg$/ && /viewBox/ { split($0, box, /[" ]+/); wide = box[5]; high = box[6] }
FILENAME ~ /svg$/ && /<use xlink:href='#gpPt[0-9]+' transform/ { split($0, part, "'"); shape[substr(part[2], 6)]++ }
FILENAME ~ /svg$/ && /<polygon fill *= *'rgb\(212, 212, 212\)'/ { bars++ }
FILENAME ~ /svg$/ && /<g transform="translate/ {
    place = $0
    sub(/.*translate\(/, "", place)
    across = place + 0
    sub(/^[^,]*,/, "", place)
    down = place + 0
    anchor = /text-anchor="end"/ ? "end" : /text-anchor="middle"/ ? "middle" : "start"
    turned = /rotate\(/
    size = $0
    sub(/.*font-size="/, "", size)
    size += 0
}
FILENAME ~ /svg$/ && /<text>/ {
    text = $0
    gsub(/<[^>]*>|^[ \t]+|[ \t]+$/, "", text)
    gsub(/&lt;/, "<", text)
    gsub(/&gt;/, ">", text)
    gsub(/&quot;/, "\"", text)
    gsub(/&#39;|&apos;/, "'", text)
    gsub(/&amp;/, "\\&", text)
    texts = texts " " text
    arrows[text]++
    # A letter of DejaVu Sans is 0.53 of its size wide in the mean of such texts.
    width = 0.55 * size * length(text)
    lies = turned ? fits(down, width, high) && across - size >= 0 && across <= wide : \
                    fits(across, width, wide) && down - size >= 0 && down + 0.3 * size <= high
    if (!lies) { fault("'" text "' is cut, at " across "," down " of " wide " x " high) }
}

END {
    if (points == 0 || wide == 0 || texts == "") { fault("no points, canvas or texts") }
    if (!index(texts, name ": " title)) { fault("no title '" name ": " title "'") }
    for (i = 1; i <= points; i++) {
        if (points <= 120 && !index(texts, headline[i] label[i])) { fault("no label '" headline[i] label[i] "'") }
        if (computed[i]) { expected[verdict[i] == "outside" ? 1 : fitted[i] ? 5 : 6]++ }
        expected[claim[i] == "at_least" ? "→" : claim[i] == "at_most" ? "←" : "no bound"]++
    }
    # Of dots, crosses and circles one is in the key.
    for (i = 1; i <= 6; i++) {
        found = shape[i] - (shape[i] > 0)
        if (found != expected[i] + 0) { fault(found " points of shape " i " for " expected[i] + 0) }
    }
    for (i = 1; i <= 2; i++) {
        arrow = i == 1 ? "→" : "←"
        if (arrows[arrow] + 0 != expected[arrow] + 0) { fault(arrows[arrow] + 0 " " arrow " for " expected[arrow] + 0 " bounds") }
    }
    # Bars are of what is published as equal alone, and one is in the key. Dots of many rows have none.
    equal = points <= 120 ? expected["no bound"] : 0
    if (bars - (equal > 0) != equal + 0) { fault(bars - (equal > 0) " bars for " equal + 0 " published values") }
    if (limits > 0 && !index(texts, "memory limit")) { fault("no memory limit") }
    exit failed
}
