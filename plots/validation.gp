# What was computed over what was measured, one panel for each table.
#
#   gnuplot -e "datafile='validation.dat'; outfile='validation.png'" plots/validation.gp
#
# The data is what `slimpack validate --plot` draws: a block for each table, its
# comment line names the columns. outfile ends in .png or .svg. Optional: figure_title='...',
# figure_width=1400 (pixels).

if (!exists("datafile") || !exists("outfile")) {
    print "usage: gnuplot -e \"datafile='validation.dat'; outfile='validation.png'\" plots/validation.gp"
    exit status 2
}
if (!exists("figure_title")) figure_title = "Computed over measured"
if (!exists("figure_width")) figure_width = 1400

stats datafile using 1 name "ALL" nooutput
tables = int(ALL_blocks)
columns = tables < 3 ? tables : tables <= 4 ? 2 : 3
rows = (tables + columns - 1) / columns
height = 60 + 330 * rows

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

set border 3 lc rgb "#606060"
set xtics out nomirror scale 0.6
set ytics out nomirror scale 0.6
set grid ytics lc rgb "#e4e4e4" lt 1
set key off
set ylabel "computed / measured" offset 1

set multiplot layout rows,columns title figure_title font ",14" margins 0.07,0.98,0.10,0.90 \
    spacing 0.07,0.14
do for [i = 0:tables - 1] {
    # Statistics are of all points only while no range is set.
    unset logscale x
    set autoscale
    # The largest distance from 1 decides the scale, a few percent at least.
    stats datafile index i using 1:(table = strcol(4), unit = strcol(5), $3) name "T" nooutput
    far = 1.1 * (T_max_y - 1 > 1 - T_min_y ? T_max_y - 1 : 1 - T_min_y)
    far = far < 0.02 ? 0.02 : far
    set yrange [(1 - far > 0 ? 1 - far : 0):1 + far]
    # Decades where there are some; a short logarithmic axis has no numbers.
    if (T_max_x > 8 * T_min_x) { set logscale x }
    # A table of equal values still has an axis.
    set xrange [T_min_x / 1.2:T_max_x * 1.2]
    set title sprintf("%s (%d)", table, T_records) noenhanced
    set xlabel sprintf("measured (%s)", unit)
    plot 1 lc rgb "#606060" dt 2, \
        datafile index i using 1:3 with points pt 7 ps 0.6 lc rgb "#3b6fb6"
}
unset multiplot
