# Errors of a fitted profile: one panel per table, predicted over measured against what was measured.
#
#   gnuplot -e "datafile='residuals.dat'; outfile='residuals.png'" plots/residuals.gp
#
# The data is what `slimpack calibrate --plot` draws, a block for each table; its
# first line names the columns. outfile ends in .png, .svg or .pdf. Optional: figure_title='...',
# figure_width=900 (pixels).

if (!exists("datafile") || !exists("outfile")) {
    print "usage: gnuplot -e \"datafile='residuals.dat'; outfile='residuals.png'\" plots/residuals.gp"
    exit status 2
}
if (!exists("figure_title")) figure_title = "Error of the fitted profile"
if (!exists("figure_width")) figure_width = 900

stats datafile using 1:4 name "ERROR" nooutput
tables = int(ERROR_max_x) + 1
stats datafile using 1:(strcol(5) eq "-" ? 0 : abs($5)) name "LEFT_OUT" nooutput
limit = abs(ERROR_min_y) > abs(ERROR_max_y) ? abs(ERROR_min_y) : abs(ERROR_max_y)
limit = limit > LEFT_OUT_max_y ? limit : LEFT_OUT_max_y
limit = limit < 5.0 ? 5.0 : 1.1 * limit
height = 60 + 300 * tables

here = ARG0; while (strlen(here) > 0 && here[strlen(here):*] ne "/") { here = here[1:strlen(here) - 1] }
load here . "output.gp"
set multiplot layout tables, 1 title figure_title font ",14"
set border 3 lc rgb "#606060"
set xtics nomirror scale 0.6
set ytics nomirror scale 0.6
set grid ytics lc rgb "#e4e4e4" lt 1
set ylabel "predicted / measured - 1 (%)"
set xlabel "measured"
# Beside the title, where no point lies.
set key at graph 1, graph 1.1 right bottom horizontal Left reverse samplen 1

do for [table = 0:tables - 1] {
    name = ""
    # stats leaves out what the ranges of the panel before leave out.
    unset logscale x
    set xrange [*:*]
    set yrange [*:*]
    stats datafile index table using (name = strcol(6), $4):(abs($4)) name "PART" nooutput
    stats datafile index table using 2 name "RANGE" nooutput
    # Decades where there are some; a short logarithmic axis has no numbers.
    if (RANGE_max > 8 * RANGE_min) { set logscale x }
    set xrange [0.9 * RANGE_min:1.1 * RANGE_max]
    set yrange [-limit:limit]
    set title sprintf("%s: %d rows, mean error %.2f %%", name, int(PART_records), PART_mean_y) \
        noenhanced
    plot 0 notitle with lines lc rgb "#606060", \
        datafile index table using 2:(strcol(5) eq "-" ? NaN : $5) title "left out" \
            with points pt 6 ps 0.8 lc rgb "#b8650a", \
        datafile index table using 2:4 title "fitted" with points pt 7 ps 0.5 lc rgb "#1f4e8c"
}
unset multiplot
unset output
