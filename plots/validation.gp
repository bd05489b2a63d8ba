# What was computed over what was measured, one panel for each table.
#
#   gnuplot -e "datafile='validation.dat'; outfile='validation.png'" plots/validation.gp
#
# The data is what `slimpack validate --plot` draws: a block for each table, its
# comment line names the columns. outfile ends in .png, .svg or .pdf. Optional: figure_title='...',
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

here = ARG0; while (strlen(here) > 0 && here[strlen(here):*] ne "/") { here = here[1:strlen(here) - 1] }
load here . "output.gp"

set border 3 lc rgb "#606060"
set xtics out nomirror scale 0.6
set ytics out nomirror scale 0.6
set grid ytics lc rgb "#e4e4e4" lt 1
set key off
set ylabel "computed / measured" offset 1

set multiplot layout rows,columns title figure_title font ",14" \
    margins 0.07,0.98,65.0 / height,1 - 70.0 / height spacing 0.07,105.0 / height
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
    set format x T_max_x >= 1e4 ? "%.0s%c" : "%g"
    # A table of equal values still has an axis.
    set xrange [T_min_x / 1.2:T_max_x * 1.2]
    set title sprintf("%s (%d)", table, T_records) noenhanced
    set xlabel sprintf("measured (%s)", unit)
    # A measured bound is an arrow to where it allows values: the ratio is above the mark.
    plot 1 lc rgb "#606060" dt 2, \
        datafile index i using 1:(strcol(7) eq "=" ? $3 : NaN) with points pt 7 ps 0.6 lc rgb "#1f4e8c", \
        datafile index i using 1:3:(strcol(7) eq "=" ? "" : "↑") with labels tc rgb "#b03a2e"
}
unset multiplot
