# The points of a sweep by two figures, and their Pareto front.
#
#   gnuplot -e "datafile='pareto.dat'; outfile='pareto.png'" plots/pareto.gp
#
# The data is what `slimpack sweep --plot` draws: the names of the figures, the
# points that fit, the front. outfile ends in .png, .svg or .pdf. Optional: figure_title='...',
# figure_width=1000 (pixels).

if (!exists("datafile") || !exists("outfile")) {
    print "usage: gnuplot -e \"datafile='pareto.dat'; outfile='pareto.png'\" plots/pareto.gp"
    exit status 2
}
if (!exists("figure_title")) figure_title = "Points that fit, and their Pareto front"
if (!exists("figure_width")) figure_width = 1000
height = figure_width * 5 / 8

here = ARG0; while (strlen(here) > 0 && here[strlen(here):*] ne "/") { here = here[1:strlen(here) - 1] }
load here . "output.gp"

stats datafile index 0 using (x_name = strcol(1), y_name = strcol(2), 0) nooutput
set border 3 lc rgb "#606060"
set xtics out nomirror scale 0.6
set ytics out nomirror scale 0.6
set grid lc rgb "#e4e4e4" lt 1
set key top right
set title figure_title font ",14"
set xlabel x_name noenhanced
set ylabel y_name noenhanced
plot datafile index 1 using 1:2 with points pt 7 ps 0.4 lc rgb "#b8c4d6" title "points", \
    datafile index 2 using 1:2 with linespoints pt 7 ps 0.9 lw 2 lc rgb "#b03a2e" title "Pareto front"
