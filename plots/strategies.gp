# Step times of packing strategies, or of schedules, as bars: the fastest one, those that fit
# tightly, run out of memory or cannot be run.
#
#   gnuplot -e "datafile='compare.dat'; outfile='compare.pdf'" plots/strategies.gp
#
# The data is what `slimpack compare --plot` draws: what is compared on what, then a line for each
# row: number, name, milliseconds of a step, state, label. outfile ends in .png, .svg or .pdf.
# Optional: figure_title='...', figure_width=1000 (pixels).

if (!exists("datafile") || !exists("outfile")) {
    print "usage: gnuplot -e \"datafile='compare.dat'; outfile='compare.pdf'\" plots/strategies.gp"
    exit status 2
}
if (!exists("figure_width")) figure_width = 1000

text = ""
stats datafile index 0 using (text = strcol(1), 0) nooutput
if (!exists("figure_title")) figure_title = text
most_ms = 0.0
least_ms = 0.0
rows = 0
stats datafile index 1 using \
    (rows = rows + 1, most_ms = (valid(3) && $3 > most_ms ? $3 : most_ms), \
     least_ms = (valid(3) && (least_ms == 0.0 || $3 < least_ms) ? $3 : least_ms), 0) nooutput
# A row that takes many times as long would leave nothing to see of the others.
is_cut = most_ms > 12 * least_ms
most_ms = is_cut ? 12 * least_ms : most_ms > 0 ? most_ms : 1.0
shown(ms) = ms > most_ms ? most_ms : ms
height = int(rows * 30 + 130)

here = ARG0; while (strlen(here) > 0 && here[strlen(here):*] ne "/") { here = here[1:strlen(here) - 1] }
load here . "output.gp"

# The fastest is darker in grey print, too; out of memory is an outline alone.
state_is(found, asked) = found eq asked ? 1 : 0
set border 1 lc rgb "#606060"
set title figure_title font ",13" noenhanced
set xrange [0:1.45 * most_ms]
set yrange [rows - 0.4:-0.6]
set xtics out nomirror scale 0.6
set ytics nomirror scale 0 noenhanced
set grid x lc rgb "#e4e4e4" lt 1
set xlabel is_cut ? "milliseconds of a step (longer bars are cut)" : "milliseconds of a step"
set key below center horizontal samplen 1.5
set style fill solid 1.0 noborder
bar(state) = sprintf("(state_is(strcol(4), '%s') ? 0.5 * shown($3) : NaN):1:(0):(shown($3)):($1 - 0.36):($1 + 0.36)", state)
set macros
fastest = bar("fastest")
ok = bar("ok")
tight = bar("tight")
oom = bar("oom")
plot datafile index 1 using @ok with boxxyerror lc rgb "#9db2cf" title "fits", \
    datafile index 1 using @fastest with boxxyerror lc rgb "#1f4e8c" title "fastest that fits", \
    datafile index 1 using @tight with boxxyerror lc rgb "#e0a84c" title "fits tightly", \
    datafile index 1 using @oom with boxxyerror lc rgb "#b03a2e" fs empty border \
        title "out of memory", \
    datafile index 1 using ((valid(3) ? shown($3) : 0) + 0.01 * most_ms):1:5 with labels left noenhanced \
        font ",10" notitle, \
    datafile index 1 using (NaN):1:ytic(2) with points notitle
unset output
