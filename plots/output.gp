# The terminal and the file of a figure, for the other scripts, which know by then
#
#   outfile         what ends in .svg or .pdf is drawn as vectors, everything else as PNG
#   figure_width, height    in pixels, of which a PDF has 96 to an inch

kind_of_file = outfile[strlen(outfile) - 3:]
if (kind_of_file eq ".svg") {
    set terminal svg size figure_width,height dynamic font "DejaVu Sans,12" background "white"
} else { if (kind_of_file eq ".pdf") {
    set terminal pdfcairo size figure_width / 96.0,height / 96.0 font "DejaVu Sans,9" background "white"
} else { if (strstrt(" " . GPVAL_TERMINALS . " ", " pngcairo ") > 0) {
    set terminal pngcairo size figure_width,height font "DejaVu Sans,10" background "white"
} else {
    set terminal png size figure_width,height
} } }
set encoding utf8
set output outfile
