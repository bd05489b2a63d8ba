# Predicted beside measured, one dot a step, one panel for each table; broken lines are 25 % off.
#
#   gnuplot -e "datafile='time.dat'; outfile='time.svg'" plots/atlas.gp
#
# The data is what experiments/atlas.awk writes: a block for each table, its comment line names the
# columns. outfile ends in .png, .svg or .pdf. Optional: figure_width=1200 (pixels).

if (!exists("datafile") || !exists("outfile")) {
    print "usage: gnuplot -e \"datafile='time.dat'; outfile='time.svg'\" plots/atlas.gp"
    exit status 2
}
if (!exists("figure_width")) figure_width = 1200

stats datafile using 1 name "ALL" nooutput
tables = int(ALL_blocks)
columns = tables < 3 ? tables : 3
rows = (tables + columns - 1) / columns
height = 20 + 350 * rows
here = ARG0; while (strlen(here) > 0 && here[strlen(here):*] ne "/") { here = here[1:strlen(here) - 1] }
load here . "output.gp"

set border 3 lc rgb "#606060"
set tics out nomirror scale 0.6 font ",10"
set grid lc rgb "#e4e4e4" lt 1
set key off
array colour[3] = [0x3b6fb6, 0xe08a1e, 0xc0392b]

set multiplot layout rows,columns margins 0.07,0.98,75.0 / height,1 - 45.0 / height spacing 0.08,120.0 / height
do for [i = 0:tables - 1] {
    # Statistics are of all points only while no range is set.
    unset logscale
    set autoscale
    stats datafile index i using 1 name "M" nooutput
    stats datafile index i using (table = strcol(4), unit = strcol(5), $2) name "P" nooutput
    least = 0.8 * (M_min < P_min ? M_min : P_min)
    most = 1.25 * (M_max > P_max ? M_max : P_max)
    # A short logarithmic axis has no numbers.
    if (most / least > 30) { set logscale xy; set format "10^{%L}" } else { set format unit eq "tokens/s" ? "%.0s%c" : "%g" }
    set xrange [least:most]
    set yrange [least:most]
    set title sprintf("%s (%d)", table, M_records) noenhanced
    set xlabel sprintf("measured (%s)", unit)
    set ylabel sprintf("predicted (%s)", unit) offset 1
    plot x lc rgb "#606060", 1.25 * x lc rgb "#a0a0a0" dt 2, x / 1.25 lc rgb "#a0a0a0" dt 2, \
        datafile index i using 1:2:(colour[int($3) + 1]) with points pt 7 ps 0.35 lc rgb variable
}
unset multiplot
