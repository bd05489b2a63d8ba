# A published figure beside what was computed for it: a panel for each kind of value, a row for each point.
#
#   gnuplot -e "datafile='figure.dat'; outfile='figure.pdf'" plots/figure.gp
#
# The data is what `slimpack reproduce --plot` draws: name, title and verdict, then a block for each panel, whose
# comment line names the columns. outfile ends in .png, .svg or .pdf. Optional: figure_title='...',
# figure_width=1000 (pixels).
#
# What is published is a bar, a bound a line with an arrow to where it allows values. Shapes, not colours, tell
# what is computed: filled within its bar, open where it was fitted to the number, a cross outside.

if (!exists("datafile") || !exists("outfile")) {
    print "usage: gnuplot -e \"datafile='figure.dat'; outfile='figure.png'\" plots/figure.gp"
    exit status 2
}
stats datafile index 0 using (name = strcol(1), title = strcol(2), verdict = strcol(3), 0) nooutput
if (!exists("figure_title")) figure_title = name . ": " . title
stats datafile using 0 nooutput
panels = int(STATS_blocks) - 1

# Rows of a panel that has more than somebody reads become dots around the diagonal.
most_rows = 120
read = 0

# What each panel holds.
array rows[panels]
array least[panels]
array most[panels]
array names[panels]
longest = 0
all_rows = 0
equal = bounds = fitted = within = outside = plain = limits = 0
count(label, claim, verdict, fit, limit) = ( \
    longest = strlen(label) > longest ? strlen(label) : longest, \
    claim eq "=" ? (equal = 1) : (bounds = 1), \
    verdict eq "outside" ? (outside = 1) : fit > 0 ? (fitted = 1) : verdict eq "within" ? (within = 1) : (plain = 1), \
    limit ne "NaN" ? (limits = 1) : 0)
# Numbers come as texts: a column without a number spoils the whole of what `using` is given.
low(x, text) = text eq "NaN" || x < real(text) ? x : real(text)
high(x, text) = text eq "NaN" || x > real(text) ? x : real(text)
do for [i = 1:panels] {
    a = 1e300
    b = -1e300
    n = 0
    stats datafile index i using (count(strcol(1), strcol(4), strcol(5), $6, strcol(7)), names[i] = strcol(9), \
        a = low(low(low(a, strcol(2)), strcol(3)), strcol(7)), \
        b = high(high(high(b, strcol(2)), strcol(3)), strcol(7)), n = n + 1) nooutput
    least[i] = a
    most[i] = b
    rows[i] = n
    all_rows = all_rows + n
    read = read || n <= most_rows
}

row_height = 19.0
panel_height(i) = rows[i] > most_rows ? 560.0 : row_height * rows[i] + 66.0
columns = all_rows > 44 && panels > 1 ? 2 : 1
if (!exists("figure_width")) figure_width = columns == 2 ? 1600 : 1000
column_width = 1.0 * figure_width / columns

# A text in lines of so many letters.
lines = 0
wrap(text, letters) = strlen(text) <= letters ? (lines = lines + 1, text) : (cut = space(text, letters), \
    lines = lines + 1, text[1:cut - 1] . "\n" . wrap(text[cut + 1:*], letters))
space(text, at) = at < 2 ? strlen(text) + 1 : text[at:at] eq " " ? at : space(text, at - 1)
head = wrap(figure_title, int(figure_width / 8.6)) . "\n" . verdict
head_height = 14.0 + 19.0 * (lines + 1)
foot_height = 34.0

# Panels go down the first column until it has half of all.
array above[panels]
array column[panels]
total = 0.0
do for [i = 1:panels] { total = total + panel_height(i) }
down = 0.0
deepest = 0.0
now = 0
do for [i = 1:panels] {
    if (now == 0 && columns == 2 && down > 0 && down + 0.5 * panel_height(i) > 0.5 * total) { now = 1; down = 0.0 }
    column[i] = now
    above[i] = down
    down = down + panel_height(i)
    deepest = down > deepest ? down : deepest
}
height = int(head_height + deepest + foot_height)

here = ARG0; while (strlen(here) > 0 && here[strlen(here):*] ne "/") { here = here[1:strlen(here) - 1] }
load here . "output.gp"

set border 1 lc rgb "#606060"
set grid xtics lc rgb "#e4e4e4" lt 1
set xtics out nomirror scale 0.6
set key off
set multiplot
set label 1 head at screen 0.5, screen 1 - 20.0 / height center noenhanced
label_width = 7.4 * longest + 24.0
label_width = label_width < 0.6 * column_width ? label_width : 0.6 * column_width
error_width = 78.0
# Letters that a label has room for; a longer one stands in two lines.
room = int((label_width - 16.0) / 7.4)

do for [i = 1:panels] {
    left = column_width * column[i]
    top = head_height + above[i]
    set tmargin at screen 1 - (top + 30.0) / height
    set bmargin at screen 1 - (top + panel_height(i) - 36.0) / height
    set title names[i] noenhanced offset 0,-0.4
    unset logscale
    set autoscale
    set format x "%g"
    a = least[i]
    b = most[i]
    # Values of one size share an axis that begins at 0.
    decades = a > 0 && b > 30 * a
    if (rows[i] > most_rows) {
        set lmargin at screen (left + 90.0) / figure_width
        set rmargin at screen (left + column_width - 30.0) / figure_width
        set border 3
        set ytics out nomirror scale 0.6 norotate autofreq
        set xlabel "published" offset 0,0.4
        set ylabel "computed"
        set grid xtics ytics lc rgb "#e4e4e4" lt 1
        if (decades) { set logscale xy; set format "%.0s%c" }
        set xrange [(decades ? a / 1.2 : a < 0 ? 1.05 * a : 0):(decades ? b * 1.2 : 1.05 * b)]
        set yrange [(decades ? a / 1.2 : a < 0 ? 1.05 * a : 0):(decades ? b * 1.2 : 1.05 * b)]
        set bmargin at screen 1 - (top + panel_height(i) - 50.0) / height
        plot x lc rgb "#606060" dt 2, \
            datafile index i using 2:(strcol(4) eq "=" ? $3 : NaN) with points pt 6 ps 0.6 lc rgb "#202020", \
            datafile index i using 2:3:(strcol(4) eq "=" ? "" : strcol(4) eq ">=" ? "→" : "←") \
                with labels tc rgb "#202020"
        unset xlabel
        unset ylabel
        set border 1
    } else {
        set lmargin at screen (left + label_width) / figure_width
        set rmargin at screen (left + column_width - error_width) / figure_width
        set grid xtics noytics lc rgb "#e4e4e4" lt 1
        zero = decades ? a / 1.6 : a < 0 ? 1.08 * a : 0
        end = decades ? b * 1.6 : b > 0 ? 1.08 * b : zero + 1
        if (decades) { set logscale x; }
        set format x (b >= 1e4 ? "%.0s%c" : "%g")
        set xrange [zero:end]
        set yrange [rows[i] - 0.4:-0.6]
        unset ytics
        # On decades, where no bar begins at 0, what is published is the end of one alone.
        start(x) = decades ? x / (end / zero) ** 0.012 : 0
        # Labels are on all rows, empty ones too: gnuplot 5.4 crashes where a panel has none.
        plot datafile index i using (strcol(4) eq "=" ? $2 : NaN):0:(start($2)):2:($0 - 0.3):($0 + 0.3) \
                with boxxyerror fs solid 1.0 border lc rgb "#a0a0a0" fc rgb "#d4d4d4", \
            datafile index i using (strcol(4) eq "=" ? NaN : $2):($0 - 0.4):(0):(0.8) with vectors nohead lw 2 lc rgb "#404040", \
            datafile index i using 2:0:(strcol(4) eq ">=" ? "→" : "") with labels left offset 0.2,0 tc rgb "#404040", \
            datafile index i using 2:0:(strcol(4) eq "<=" ? "←" : "") with labels right offset -0.2,0 tc rgb "#404040", \
            datafile index i using 7:($0 - 0.5):(0):(1.0) with vectors nohead lw 2 lc rgb "#b03a2e", \
            datafile index i using (strcol(5) ne "outside" && $6 == 0 ? $3 : NaN):0 with points pt 7 ps 0.9 lc rgb "#1f4e8c", \
            datafile index i using (strcol(5) ne "outside" && $6 > 0 ? $3 : NaN):0 with points pt 6 ps 0.9 lw 1.5 lc rgb "#1f4e8c", \
            datafile index i using (strcol(5) eq "outside" ? $3 : NaN):0 with points pt 2 ps 0.9 lw 2 lc rgb "#b03a2e", \
            datafile index i using (zero):0:(wrap(strcol(1), room)) with labels right offset -0.6,0 noenhanced, \
            datafile index i using (zero):0:(strcol(3) eq "NaN" ? "not computed" : "") with labels left offset 0.6,0, \
            datafile index i using (end):0:8 with labels left offset 0.6,0 noenhanced tc rgb "#404040"
    }
    unset label 1
}

# What the shapes mean, of those that are there.
unset title
unset border
unset xtics
unset ytics
unset grid
unset logscale
set lmargin at screen 0.02
set rmargin at screen 0.98
set tmargin at screen foot_height / height
set bmargin at screen 4.0 / height
set xrange [0:1]
set yrange [0:1]
set key center center horizontal Left reverse samplen 1.5 width 1
plot NaN notitle, \
    for [k = 1:(equal && read)] keyentry with boxes fs solid 1.0 border lc rgb "#a0a0a0" fc rgb "#d4d4d4" title "published", \
    for [k = 1:(bounds && read)] keyentry with lines lw 2 lc rgb "#404040" title "published bound (arrow: allowed)", \
    for [k = 1:(within || plain)] keyentry with points pt 7 lc rgb "#1f4e8c" title (within ? "computed, within its bar" : "computed"), \
    for [k = 1:fitted] keyentry with points pt 6 lw 1.5 lc rgb "#1f4e8c" title (within ? "within, fitted" : "computed, fitted"), \
    for [k = 1:outside] keyentry with points pt 2 lw 2 lc rgb "#b03a2e" title "outside its bar", \
    for [k = 1:limits] keyentry with lines lw 2 lc rgb "#b03a2e" title "memory limit"
unset multiplot
unset output
