# A timeline with one row per rank and, where the data has it, memory over time below.
#
#   gnuplot -e "datafile='timeline.dat'; outfile='timeline.png'" plots/timeline.gp
#
# The data is what `slimpack simulate --plot` draws; its comment lines name the
# columns. outfile ends in .png, .svg or .pdf. Optional: figure_title='...', figure_width=1400 (pixels).

if (!exists("datafile") || !exists("outfile")) {
    print "usage: gnuplot -e \"datafile='timeline.dat'; outfile='timeline.png'\" plots/timeline.gp"
    exit status 2
}
if (!exists("figure_title")) figure_title = "Pipeline timeline"
if (!exists("figure_width")) figure_width = 1400

here = ARG0; while (strlen(here) > 0 && here[strlen(here):*] ne "/") { here = here[1:strlen(here) - 1] }
load here . "actions.gp"

# What there is: rows, boxes, kinds by shade ("F0 F1 B0 "), chunks, the time axis; then the labels.
kinds = ""
add_kind(kind) = strstrt(kinds, kind) > 0 || kind[1:1] eq "-" ? 0 : (kinds = kinds . kind . " ", 1)
stats datafile index 0 using (add_kind(sprintf("%s%d", strcol(3), int($4) % 2)), $1):4 \
    name "ROW" nooutput
stats datafile index 0 using (strcol(3) eq "-" ? $6 : NaN):(strcol(3) eq "-" ? $7 : NaN) \
    name "TIME" nooutput
rows = int(ROW_max_x) + 1
boxes = int(ROW_records) - rows
chunks = int(ROW_max_y) + 1
from_ms = TIME_min_x
to_ms = TIME_max_y > from_ms ? TIME_max_y : from_ms + 1

label_step = rows <= 40 ? 1 : int(rows / 20)
labels = "" # for set ytics
names = ""  # quoted, for word()
longest = 0
add_label(row, text) = (labels = labels . sprintf("%s\"%s\" %d", strlen(labels) ? "," : "", text, row), \
    names = names . sprintf("\"%s\" ", text), \
    longest = strlen(text) > longest ? strlen(text) : longest, row)
stats datafile index 0 using \
    (strcol(3) eq "-" && int($1) % label_step == 0 ? add_label($1, strcol(2)) : $1) \
    name "LABEL" nooutput

tail_ms = 0.0
stats datafile index 1 using (tail_ms = tail_ms + $5 - $4) name "TAIL" nooutput

# Is there a block with memory? A third block begins after the second pair of blank lines.
memory_points = 0
stats datafile using (column(-2) == 2 ? (memory_points = memory_points + 1, 1) : 0) \
    name "ALL" nooutput

# A fourth block holds the limit of a rank's memory, where there is one.
limit = 0
most_held = 0
stats datafile using (column(-2) == 3 ? (limit = $1, 1) : 0) name "ALL" nooutput
stats datafile using (column(-2) == 2 && $3 > most_held ? (most_held = $3, 1) : 0) name "ALL" nooutput
# A limit far above what is held would press the curves together: its number stands above them.
limit_is_near = limit > 0 && limit < 2.5 * most_held

# The picture's measures in pixels.
row_height = rows <= 8 ? 44 : rows <= 16 ? 34 : rows <= 64 ? 20 : 1280.0 / rows
keys = words(kinds) + (tail_ms > 0 ? 3 : 0)
two_lines = keys > (chunks > 1 ? 4 : 7) # of the key
head_height = two_lines ? 84 : 66
foot_height = 54
top_height = rows * row_height + head_height + foot_height
memory_height = memory_points > 0 ? 280 : 0
height = int(top_height + memory_height)
load here . "output.gp"

set multiplot
left = (30.0 + 7.5 * (longest > 8 ? longest : 8)) / figure_width
right = 1 - 24.0 / figure_width
set lmargin at screen left
set rmargin at screen right
set tmargin at screen 1 - 1.0 * head_height / height
set bmargin at screen (memory_height + 1.0 * foot_height) / height

set title figure_title font ",14" offset 0,(two_lines ? 2.2 : 1.2)
set xrange [from_ms:to_ms]
set yrange [rows - 0.5:-0.5]
set xlabel memory_points > 0 ? "" : "time (ms)"
set xtics out nomirror scale 0.6
eval "set ytics (" . labels . ") scale 0"
set border 3 lc rgb "#606060"
set key at screen right, screen 1 - 36.0 / height right top horizontal Left reverse \
    samplen 1.2 width 1 noautotitle

# Thin white borders part the boxes while they are wide enough to be seen.
seen(start, end) = 1.0 * (end - start) / (to_ms - from_ms) * figure_width
border_on = boxes > 0 && boxes <= 100.0 * rows
numbered = boxes <= 200
if (border_on) {
    set style fill solid 1.0 border rgb "white"
} else {
    set style fill solid 1.0 noborder
}
half = rows <= 64 ? 0.40 : 0.5

plot datafile index 0 using (0.5 * ($6 + $7)):1:6:7:($1 - half):($1 + half):\
        (kind_colour(strcol(3), $4)) with boxxyerror lc rgb variable, \
    datafile index 1 using (0.5 * ($4 + $5)):($5 > $4 ? $1 : NaN):4:5:($1 - half):($1 + half):\
        (part_colour(strcol(3))) with boxxyerror lc rgb variable, \
    datafile index 0 using (0.5 * ($6 + $7)):\
        (numbered && strcol(3) ne "-" && seen($6, $7) > 7.0 * strlen(strcol(5)) ? $1 : NaN):5:\
        (text_colour(strcol(3), $4)) with labels font ",9" tc rgb variable, \
    for [kind in kinds] keyentry with boxes lc rgb kind_colour(kind[1:1], kind[2:2]) \
        title kind_name(kind[1:1]) . (chunks > 1 ? ", chunk " . kind[2:2] : ""), \
    for [part in (tail_ms > 0 ? "reduce optimizer gather" : "")] keyentry with boxes \
        lc rgb part_colour(part) title part

if (memory_points > 0) {
    set title ""
    set tmargin at screen (memory_height - 20.0) / height
    set bmargin at screen 1.0 * foot_height / height
    set yrange [0:(limit_is_near ? 1.08 * limit : 1.12 * most_held)]
    if (limit > 0) {
        set label 1 sprintf("limit %.4g GiB%s", limit, limit_is_near ? "" : ", above this panel") \
            at graph 0.005, graph 0.95 tc rgb "#b03a2e"
        if (limit_is_near) {
            set label 1 at graph 0.005, first limit offset 0,-0.7
            set arrow 1 from graph 0, first limit to graph 1, first limit nohead lw 2 lc rgb "#b03a2e"
        }
    }
    set ytics auto out nomirror scale 0.6
    set xlabel "time (ms)"
    set ylabel "memory (GiB)" offset 1
    set grid ytics lc rgb "#e4e4e4" lt 1
    set palette defined (0 "#440154", 0.25 "#3b528b", 0.5 "#21918c", 0.75 "#5ec962", 1 "#d9c21c")
    set cbrange [0:(rows > 1 ? rows - 1 : 1)]
    unset colorbox
    set key at screen right, screen (memory_height + 4.0) / height right top horizontal Left reverse
    # Steps drawn as vectors, because the style `steps` cannot take its colour from the data.
    row = -1
    time = 0.0
    held = 0.0
    next(r, t, v) = (same = r == row, row = r, t0 = time, v0 = held, time = t, held = v, same ? t0 : NaN)
    plot datafile index 2 using (next($1, $2, $3)):(v0):($2 - t0):(0):1 \
            with vectors nohead lw 1.6 lc palette, \
        datafile index 2 using (next($1, $2, $3), same ? $2 : NaN):(v0):(0):($3 - v0):1 \
            with vectors nohead lw 1.6 lc palette, \
        for [r = 1:(rows <= 12 ? rows : 0)] keyentry with lines lw 2 lc palette cb r - 1 \
            title word(names, r)
}
unset multiplot
unset output
