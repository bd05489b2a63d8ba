# Two timelines of one plan on one axis of time: what was predicted over what was measured.
#
#   gnuplot -e "datafile='steps.dat'; outfile='steps.png'" plots/comparison.gp
#
# The data is what `slimpack validate --backend --plot` draws; its comment lines
# name the columns. outfile ends in .png, .svg or .pdf. Optional: figure_width=1400 (pixels).

if (!exists("datafile") || !exists("outfile")) {
    print "usage: gnuplot -e \"datafile='steps.dat'; outfile='steps.png'\" plots/comparison.gp"
    exit status 2
}
if (!exists("figure_width")) figure_width = 1400

here = ARG0; while (strlen(here) > 0 && here[strlen(here):*] ne "/") { here = here[1:strlen(here) - 1] }
load here . "actions.gp"

# Both share rows, kinds and the axis, which ends with the slower of them. The predicted timeline
# may show one row for several data-parallel ranks that are alike.
kinds = ""
add_kind(kind) = strstrt(kinds, kind) > 0 || kind eq "-" ? 0 : (kinds = kinds . kind . " ", 1)
array rows[2]
array labels[2]
array names[2] = ["predicted", "measured"]
end_ms = 0.0
boxes = 0
text = ""
add_label(row, label) = \
    (text = text . sprintf("%s\"%s\" %d", strlen(text) ? "," : "", label, row), row)
do for [side = 1:2] {
    block = 2 * (side - 1)
    text = ""
    stats datafile index block using \
        (add_kind(strcol(3)), strcol(3) eq "-" ? add_label($1, strcol(2)) : $1):7 \
        name "ROW" nooutput
    rows[side] = int(ROW_max_x) + 1
    labels[side] = text
    boxes = boxes + int(ROW_records) - rows[side]
    end_ms = ROW_max_y > end_ms ? ROW_max_y : end_ms
}
end_ms = end_ms > 0 ? end_ms : 1.0

all_rows = rows[1] + rows[2]
row_height = all_rows <= 16 ? 40 : all_rows <= 64 ? 20 : 1280.0 / all_rows
head_height = 60
gap_height = 44
foot_height = 54
height = int(all_rows * row_height + head_height + gap_height + foot_height)
load here . "output.gp"

seen(start, end) = (end - start) / end_ms * figure_width
numbered = boxes <= 400
if (boxes <= 100.0 * all_rows) {
    set style fill solid 1.0 border rgb "white"
} else {
    set style fill solid 1.0 noborder
}

set multiplot
set lmargin at screen 90.0 / figure_width
set rmargin at screen 1 - 24.0 / figure_width
set xrange [0:end_ms]
set border 3 lc rgb "#606060"
top = head_height
do for [side = 1:2] {
    block = 2 * (side - 1)
    set tmargin at screen 1 - 1.0 * top / height
    set bmargin at screen 1 - 1.0 * (top + rows[side] * row_height) / height
    top = top + rows[side] * row_height + gap_height
    set yrange [rows[side] - 0.5:-0.5]
    eval "set ytics (" . (rows[side] <= 40 ? labels[side] : "") . ") scale 0"
    set title names[side] font ",12" offset 0,-0.4
    set xtics out nomirror scale 0.6
    set format x (side == 2 ? "%g" : "")
    set xlabel side == 2 ? "time (ms)" : ""
    set key at screen 1 - 24.0 / figure_width, screen 1 - 8.0 / height right top horizontal Left \
        reverse samplen 1.2 width 1 noautotitle
    plot datafile index block using (0.5 * ($6 + $7)):1:6:7:($1 - 0.4):($1 + 0.4):\
            (kind_colour(strcol(3), $4)) with boxxyerror lc rgb variable, \
        datafile index block + 1 using \
            (0.5 * ($4 + $5)):($5 > $4 ? $1 : NaN):4:5:($1 - 0.4):($1 + 0.4):\
            (part_colour(strcol(3))) with boxxyerror lc rgb variable, \
        datafile index block using (0.5 * ($6 + $7)):\
            (numbered && strcol(3) ne "-" && seen($6, $7) > 7.0 * strlen(strcol(5)) ? $1 : NaN):5:\
            (text_colour(strcol(3), $4)) with labels font ",9" tc rgb variable, \
        for [kind in (side == 1 ? kinds : "")] keyentry with boxes lc rgb kind_colour(kind, 0) \
            title kind_name(kind), \
        for [part in (side == 1 ? "reduce optimizer gather" : "")] keyentry with boxes \
            lc rgb part_colour(part) title part
}
unset multiplot
unset output
