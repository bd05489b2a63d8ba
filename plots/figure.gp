# A published figure beside what was computed for it.
#
#   gnuplot -e "datafile='figure.dat'; outfile='figure.png'" plots/figure.gp
#
# The data is what `slimpack reproduce --plot` draws: the figure's name and title, then label,
# published, computed. outfile ends in .png or .svg. Optional: figure_title='...',
# figure_width=1000 (pixels).

if (!exists("datafile") || !exists("outfile")) {
    print "usage: gnuplot -e \"datafile='figure.dat'; outfile='figure.png'\" plots/figure.gp"
    exit status 2
}
stats datafile index 0 using (name = strcol(1), title = strcol(2), 0) nooutput
# The name stands above the title, which may fill a line of its own.
if (!exists("figure_title")) figure_title = name . "\n" . title
if (!exists("figure_width")) figure_width = 1000

stats datafile index 1 using 2 name "P" nooutput
stats datafile index 1 using 3 name "C" nooutput
rows = P_records
# Each row has a label and two bars, as long as somebody reads them.
labelled = rows <= 120
height = labelled ? 130 + (rows > 40 ? 17 : 30) * rows : 640

if (outfile[strlen(outfile) - 3:] eq ".svg") {
    set terminal svg size figure_width,height dynamic font "DejaVu Sans,12" background "white"
} else {
    if (strstrt(" " . GPVAL_TERMINALS . " ", " pngcairo ") > 0) {
        set terminal pngcairo size figure_width,height font "DejaVu Sans,10" background "white"
    } else {
        set terminal png size figure_width,height
    }
}
set output outfile
set title figure_title noenhanced
set border 3 lc rgb "#606060"
set xtics out nomirror scale 0.6
set ytics out nomirror scale 0.6
least = P_min < C_min ? P_min : C_min
most = P_max > C_max ? P_max : C_max

if (!labelled) {
    # The points of one panel, on the diagonal where they agree.
    set grid lc rgb "#e4e4e4" lt 1
    set logscale xy
    set key off
    set xlabel "published"
    set ylabel "computed"
    plot x lc rgb "#606060" dt 2, \
        datafile index 1 using 2:3 with points pt 7 ps 0.6 lc rgb "#3b6fb6"
} else {
    # Points whose values are of one size share an axis that begins at 0.
    zero = 0
    if (least > 0 && most > 50 * least) {
        set logscale x
        zero = least / 2
        set xrange [zero:*]
    } else { set xrange [(least < 0 ? least : 0):*] }
    set grid xtics lc rgb "#e4e4e4" lt 1
    set key outside bottom center horizontal
    set yrange [rows - 0.4:-0.6]
    set ytics noenhanced
    set style fill solid 0.9 noborder
    plot datafile index 1 using (zero):0:(zero):2:($0 - 0.36):($0):ytic(1) with boxxyerror title "published" lc rgb "#b0b0b0", \
        "" index 1 using (zero):0:(zero):3:($0):($0 + 0.36) with boxxyerror title "computed" lc rgb "#3b6fb6"
}
