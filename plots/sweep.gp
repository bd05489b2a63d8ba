# Step times of a sweep over the setting that it changed, and the memory below: a line for each value
# of the other setting. Points that do not fit are not drawn.
#
#   gnuplot -e "datafile='sweep.dat'; outfile='sweep.pdf'" plots/sweep.gp
#
# The data is what `slimpack sweep --plot` draws of one or two settings: title, name of the setting
# and whether it grows by factors; its values with their texts; then a block for each line: its name,
# and value, milliseconds and GiB of each point. outfile ends in .png, .svg or .pdf. Optional:
# figure_title='...', figure_width=1000 (pixels).

if (!exists("datafile") || !exists("outfile")) {
    print "usage: gnuplot -e \"datafile='sweep.dat'; outfile='sweep.pdf'\" plots/sweep.gp"
    exit status 2
}
if (!exists("figure_width")) figure_width = 1000

text = ""
x_name = ""
by_factors = 0
most_texts = 12 # of the values, side by side
stats datafile index 0 using (text = strcol(1), x_name = strcol(2), by_factors = int($3), 0) nooutput
stats datafile index 1 using 1 name "X" nooutput
stats datafile using 1 name "ALL" nooutput
series = int(ALL_blocks) - 2
least_ms = 0.0
most_ms = 0.0
most_gib = 0.0
do for [i = 2:series + 1] {
    stats datafile index i using \
        (least_ms = ($2 > 0 && (least_ms == 0.0 || $2 < least_ms) ? $2 : least_ms), \
         most_ms = ($2 > most_ms ? $2 : most_ms), \
         most_gib = ($3 > most_gib ? $3 : most_gib), 0) nooutput
}
if (!exists("figure_title")) figure_title = text
has_memory = most_gib > 0.0
height = figure_width * (has_memory ? 0.8 : 0.55)

here = ARG0; while (strlen(here) > 0 && here[strlen(here):*] ne "/") { here = here[1:strlen(here) - 1] }
load here . "output.gp"

# Shapes tell lines apart in grey print, too.
array colour[6] = ["#1f4e8c", "#c0392b", "#e08a1e", "#2e7d5b", "#7a4fa3", "#606060"]
colour_of(i) = colour[(i - 2) % 6 + 1]
shape_of(i) = (i - 2) % 7 * 2 + 5
dash_of(i) = (i - 2) / 6 + 1

set border 3 lc rgb "#606060"
set tics out nomirror scale 0.6
set grid lc rgb "#e4e4e4" lt 1
set key noenhanced top left reverse Left samplen 2.5 maxrows 6
if (by_factors) { set logscale x 2 } else { span = X_max > X_min ? X_max - X_min : 1 }
set xrange [by_factors ? X_min / 1.15 : X_min - 0.04 * span:by_factors ? X_max * 1.15 : X_max + 0.04 * span]
# The values have their own texts where there is place for them.
has_texts = X_records <= most_texts
two_lines = has_texts && strstrt(x_name, ",") > 0 # values with shares below them
set xtics noenhanced
set multiplot layout (has_memory ? 2 : 1),1 title figure_title noenhanced font ",13" \
    margins 0.09,0.97,(two_lines ? 0.14 : 0.11),0.92 spacing 0.0,0.08
# The names stand over the lines.
names = series == 1 ? 0 : series < 6 ? series : 6
free = 1 - 0.075 * names
if (most_ms > 50 * least_ms) {
    set logscale y
    set yrange [least_ms / 1.5:least_ms / 1.5 * (2.25 * most_ms / least_ms) ** (1 / free)]
} else {
    set yrange [0:1.08 * most_ms / free]
}
set ylabel "milliseconds of a step"
if (!has_memory) { set xlabel x_name noenhanced offset 0,(two_lines ? -1 : 0) }
set macros
lines = "datafile index i using 1:column with linespoints pt shape_of(i) ps 0.9 lw 1.6 dt dash_of(i) lc rgb colour_of(i)"
texts = has_texts ? "datafile index 1 using 1:(NaN):xtic(2) with points notitle" : "NaN notitle"
column = 2
plot for [i = 2:series + 1] @lines title (series > 1 ? columnheader(1) : ""), @texts
if (has_memory) {
    unset logscale y
    unset title
    set key off
    set xlabel x_name noenhanced offset 0,(two_lines ? -1 : 0)
    set ylabel "GiB of a GPU at its peak"
    set yrange [0:1.08 * most_gib]
    column = 3
    plot for [i = 2:series + 1] @lines title columnheader(1), @texts
}
unset multiplot
unset output
