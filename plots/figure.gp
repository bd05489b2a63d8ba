# A published figure beside what was computed for it.
#
#   gnuplot -e "datafile='figure.dat'; outfile='figure.png'" plots/figure.gp
#
# The data is what `slimpack reproduce --plot` writes beside the picture: label, published, computed.
# outfile ends in .png or .svg. Optional: figure_title='...', figure_width=1000 (pixels).

if (!exists("datafile") || !exists("outfile")) {
    print "usage: gnuplot -e \"datafile='figure.dat'; outfile='figure.png'\" plots/figure.gp"
    exit status 2
}
if (!exists("figure_title")) figure_title = "Published and computed"
if (!exists("figure_width")) figure_width = 1000

stats datafile using 2 name "P" nooutput
height = P_records > 40 ? 560 : 480

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
set grid ytics lc rgb "#e4e4e4" lt 1

if (P_records > 40) {
    # Many rows: the points of one panel, on the diagonal where they agree.
    set logscale xy
    set key off
    set xlabel "published"
    set ylabel "computed"
    plot x lc rgb "#606060" dt 2, \
        datafile using 2:3 with points pt 7 ps 0.6 lc rgb "#3b6fb6"
} else {
    # Points whose values are of one size share an axis that begins at 0.
    if (P_min > 0 && P_max > 50 * P_min) { set logscale y } else { set yrange [(P_min < 0 ? P_min : 0):*] }
    set key outside top right horizontal
    set rmargin 14
    set bmargin 11
    set style data histograms
    set style histogram clustered gap 1
    set style fill solid 0.9 noborder
    set xtics rotate by -35 left noenhanced
    plot datafile using 2:xtic(1) title "published" lc rgb "#b0b0b0", \
        "" using 3 title "computed" lc rgb "#3b6fb6"
}
