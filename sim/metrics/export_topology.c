// The cluster as a picture: the first nodes with all their links, the others as their GPUs, NICs
// and leaf switches; each link in the colour of its busier direction and with the bytes of both in
// its title.
#include <math.h>

#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "sim/metrics/export.h"

enum { SHADES = 10 };
enum { CELL = 14, COLUMNS = 8, TITLE = 14, CELL_GAP = 8, LEGEND = 54 };
enum { MARGIN = 10, WHOLE_GPUS = 32 };

// From idle to full: ColorBrewer's YlOrRd with steps between.
static const char *const shades[SHADES] = {"#f0f0f0", "#fed976", "#feb24c", "#fd9f44", "#fd8d3c",
                                           "#fc6e33", "#f44d2a", "#e31a1c", "#bd0026", "#800026"};

typedef struct picture {
    sp_writer *out;
    const sp_topology *topology;
    const double *bytes; // [links]
    double step_s;
    int nodes, leaves;
    int ends[SP_LINK_KINDS];    // GPUs and NICs of a node, and rails
    int whole;                  // nodes drawn with their links: the first
    int whole_leaves;           // leaf switches that join these: the first
    double most[SP_LINK_KINDS]; // bytes of both directions of the fullest drawn link of a kind
} picture;

static int leaf_of(const picture *p, int32_t link)
{
    return p->leaves - (sp_topology_links(p->topology) - link + 1) / 2;
}

static bool is_whole(const picture *p, int32_t link)
{
    return sp_topology_link(p->topology, link).node < p->whole;
}

static void measure(picture *p)
{
    for (int32_t l = 0; l < sp_topology_links(p->topology); l += 2) {
        sp_link link = sp_topology_link(p->topology, l);
        int *ends = &p->ends[link.kind];
        *ends = link.index >= *ends ? link.index + 1 : *ends;
        p->nodes = link.node >= p->nodes ? link.node + 1 : p->nodes;
        p->leaves += link.kind == SP_LINK_SPINE;
    }
    int fit = WHOLE_GPUS / p->ends[SP_LINK_NVLINK];
    p->whole = fit < 1 ? 1 : fit < p->nodes ? fit : p->nodes;
    for (int32_t l = 0; l < sp_topology_links(p->topology); l += 2) {
        sp_link link = sp_topology_link(p->topology, l);
        p->whole_leaves += link.kind == SP_LINK_SPINE && link.node < p->whole;
        if (is_whole(p, l)) {
            p->most[link.kind] = fmax(p->most[link.kind], p->bytes[l] + p->bytes[l + 1]);
        }
    }
}

// Share of the step in which the busier direction would have sent at its full rate: 0 for idle to
// SHADES - 1 for all of it. Both directions of an end stand next to each other, outward first.
static int shade_of(const picture *p, int32_t outward)
{
    const double *rate = sp_topology_bytes_per_s(p->topology);
    double most =
        fmax(p->bytes[outward] / rate[outward], p->bytes[outward + 1] / rate[outward + 1]);
    double share = p->step_s > 0.0 ? most / p->step_s : 0.0;
    int shade = share > 0.0 ? 1 + (int)(fmin(share, 1.0) * (SHADES - 1)) : 0;
    return shade < SHADES ? shade : SHADES - 1;
}

static void write_title(const picture *p, int32_t outward)
{
    static const char *const names[SP_LINK_KINDS] = {"GPU", "PCIe of GPU", "NIC",
                                                     "leaf switch of rail"};
    sp_link link = sp_topology_link(p->topology, outward);
    sp_write(p->out, "<title>%s %d, node %d: %.3lld GB out, %.3lld GB in</title>", names[link.kind],
             link.index, link.node, llround(p->bytes[outward] / 1e6),
             llround(p->bytes[outward + 1] / 1e6));
}

// ---- nodes with all their links: NVSwitch, GPUs, PCIe, NICs, leaf switches and the spine ----

enum { PITCH = 32, BOX = 14, NAMES = 80, NODE_GAP = 24, WIDEST = 4 };

typedef enum layer { SPINE, LEAF, NIC, PCIE, GPU, NVSWITCH, ROWS } layer;

static const int row_y[ROWS + 1] = {10, 60, 150, 220, 256, 306, 344};

typedef struct point {
    int x;
    layer row;
} point;

static int node_width(const picture *p)
{
    return PITCH * p->ends[SP_LINK_NVLINK];
}

static int node_x(const picture *p, int node)
{
    return MARGIN + NAMES + node * (node_width(p) + NODE_GAP);
}

static int width_of_nodes(const picture *p)
{
    return p->whole * (node_width(p) + NODE_GAP) - NODE_GAP;
}

static int whole_width(const picture *p)
{
    return node_x(p, 0) + width_of_nodes(p) + MARGIN;
}

static int whole_height(void)
{
    return row_y[ROWS];
}

static void write_names(const picture *p)
{
    static const char *const names[ROWS] = {"", "leaf of rail", "NIC", "PCIe of GPU", "GPU", ""};
    for (int row = 0; row < ROWS; row++) {
        sp_write(p->out, "<text x=\"%d\" y=\"%d\">%s</text>\n", MARGIN, row_y[row] + BOX - 4,
                 names[row]);
    }
}

static void write_bar(const picture *p, int x, int width, layer row, const char *name, int node)
{
    sp_write(p->out,
             "<rect class=\"s0\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/><text x=\"%d\" "
             "y=\"%d\">%s",
             x, row_y[row], width, BOX, x + 4, row_y[row] + BOX - 4, name);
    if (node >= 0) {
        sp_write(p->out, " %d", node);
    }
    sp_write(p->out, "</text>\n");
}

// The one of `index` in `count` equal parts of a width.
static int middle(int x, int width, int index, int count)
{
    return x + width * (2 * index + 1) / (2 * count);
}

// The box from which a link goes outward: of NVLink and PCIe the GPU's, else the NIC's or the leaf
// switch's.
static point box_of(const picture *p, int32_t link)
{
    sp_link l = sp_topology_link(p->topology, link);
    if (l.kind == SP_LINK_SPINE) {
        int x = middle(node_x(p, 0), width_of_nodes(p), leaf_of(p, link), p->whole_leaves);
        return (point){x, LEAF};
    }
    layer row = l.kind == SP_LINK_NVLINK ? GPU : l.kind == SP_LINK_PCIE ? PCIE : NIC;
    return (point){middle(node_x(p, l.node), node_width(p), l.index, p->ends[l.kind]), row};
}

// As wide as its bytes are beside those of the fullest link of its kind that is drawn.
static int width_of(const picture *p, int32_t outward)
{
    double most = p->most[sp_topology_link(p->topology, outward).kind];
    double bytes = p->bytes[outward] + p->bytes[outward + 1];
    return most > 0.0 ? 1 + (int)((WIDEST - 1) * bytes / most) : 1;
}

// From the upper edge of a box to the lower edge of one above it, or of a bar.
static void write_line(const picture *p, int32_t outward, int from_x, layer from, int to_x,
                       layer to)
{
    sp_write(
        p->out, "<line class=\"l%d\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke-width=\"%d\">",
        shade_of(p, outward), from_x, row_y[from], to_x, row_y[to] + BOX, width_of(p, outward));
    write_title(p, outward);
    sp_write(p->out, "</line>\n");
}

// Bytes of both directions with three digits.
static void write_gigabytes(const picture *p, int32_t outward, int x, int y)
{
    double bytes = p->bytes[outward] + p->bytes[outward + 1];
    sp_write(p->out, "<text class=\"t\" x=\"%d\" y=\"%d\">", x, y);
    if (bytes < 1e10) {
        sp_write(p->out, "%.2lld</text>\n", llround(bytes / 1e7));
    } else if (bytes < 1e11) {
        sp_write(p->out, "%.1lld</text>\n", llround(bytes / 1e8));
    } else {
        sp_write(p->out, "%lld</text>\n", llround(bytes / 1e9));
    }
}

static void write_link(const picture *p, int32_t outward)
{
    if (!is_whole(p, outward)) {
        return;
    }
    sp_link_kind kind = sp_topology_link(p->topology, outward).kind;
    point from = box_of(p, outward);
    int32_t beyond = sp_topology_beyond(p->topology, outward);
    if (kind == SP_LINK_NVLINK) {
        write_line(p, outward, from.x, NVSWITCH, from.x, GPU);
    } else if (kind == SP_LINK_SPINE) {
        write_line(p, outward, from.x, LEAF, from.x, SPINE);
    } else {
        point to = box_of(p, beyond);
        write_line(p, outward, from.x, from.row, to.x, to.row);
    }
    if (kind == SP_LINK_PCIE) {
        write_line(p, outward, from.x, GPU, from.x, PCIE);
    }
    if (kind == SP_LINK_NIC) {
        write_gigabytes(p, outward, from.x + BOX / 2 + 2, row_y[NIC] + BOX - 4);
        return;
    }
    layer below = kind == SP_LINK_NVLINK ? NVSWITCH : kind == SP_LINK_PCIE ? GPU : LEAF;
    write_gigabytes(p, outward, from.x + WIDEST / 2 + 1, row_y[below] - 4);
}

static void write_box(const picture *p, int32_t outward)
{
    if (!is_whole(p, outward)) {
        return;
    }
    point at = box_of(p, outward);
    sp_write(p->out,
             "<rect class=\"s0\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/><text class=\"b\" "
             "x=\"%d\" y=\"%d\">%d</text>\n",
             at.x - BOX / 2, row_y[at.row], BOX, BOX, at.x, row_y[at.row] + BOX - 4,
             sp_topology_link(p->topology, outward).index);
}

static void write_whole(const picture *p)
{
    write_names(p);
    for (int32_t l = 0; l < sp_topology_links(p->topology); l += 2) {
        write_link(p, l);
    }
    write_bar(p, node_x(p, 0), width_of_nodes(p), SPINE, "spine", -1);
    for (int node = 0; node < p->whole; node++) {
        write_bar(p, node_x(p, node), node_width(p), NVSWITCH, "NVSwitch of node", node);
    }
    for (int32_t l = 0; l < sp_topology_links(p->topology); l += 2) {
        write_box(p, l);
    }
}

// ---- nodes whose links are not drawn ----

static int rows_of(int count, int columns)
{
    return (int)sp_ceil_div(count, columns);
}

static int height_of_node(const picture *p)
{
    return TITLE + CELL_GAP +
           CELL *
               (rows_of(p->ends[SP_LINK_NVLINK], COLUMNS) + rows_of(p->ends[SP_LINK_NIC], COLUMNS));
}

static int width_of_node(void)
{
    return COLUMNS * CELL + CELL_GAP;
}

static int top_of_leaves(void)
{
    return whole_height() + TITLE;
}

static int top_of_nodes(const picture *p)
{
    int rows = rows_of(p->leaves - p->whole_leaves, COLUMNS * COLUMNS);
    return rows > 0 ? top_of_leaves() + CELL * rows + CELL_GAP : whole_height();
}

static int bottom_of_nodes(const picture *p)
{
    return top_of_nodes(p) + rows_of(p->nodes - p->whole, COLUMNS) * height_of_node(p);
}

static void place_node(const picture *p, int node, int *x, int *y)
{
    int place = node - p->whole;
    *x = MARGIN + place % COLUMNS * width_of_node();
    *y = top_of_nodes(p) + place / COLUMNS * height_of_node(p);
}

static void write_head(const picture *p)
{
    int folded = 2 * MARGIN + COLUMNS * width_of_node();
    int whole = whole_width(p);
    sp_write(p->out,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
             "font-family=\"sans-serif\" "
             "font-size=\"9\">\n<style>rect{stroke:#999}.t{font-size:7px}.b{text-anchor:middle}.l0{"
             "stroke:#ccc}",
             whole > folded ? whole : folded, bottom_of_nodes(p) + LEGEND);
    for (int s = 0; s < SHADES; s++) {
        sp_write(p->out, ".s%d{fill:%s}", s, shades[s]);
    }
    for (int s = 1; s < SHADES; s++) {
        sp_write(p->out, ".l%d{stroke:%s}", s, shades[s]);
    }
    sp_write(p->out, "</style>\n");
}

static void write_cell(const picture *p, int32_t outward)
{
    sp_link link = sp_topology_link(p->topology, outward);
    int x = MARGIN;
    int y = top_of_leaves();
    int place = link.index;
    int columns = COLUMNS;
    if (link.kind == SP_LINK_SPINE) {
        place = leaf_of(p, outward) - p->whole_leaves;
        columns = COLUMNS * COLUMNS;
    } else {
        place_node(p, link.node, &x, &y);
        y += TITLE +
             (link.kind == SP_LINK_NIC ? CELL * rows_of(p->ends[SP_LINK_NVLINK], COLUMNS) : 0);
    }
    sp_write(p->out, "<rect class=\"s%d\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\">",
             shade_of(p, outward), x + place % columns * CELL, y + place / columns * CELL, CELL - 2,
             CELL - 2);
    write_title(p, outward);
    sp_write(p->out, "</rect>\n");
}

// PCIe links are left to the NICs that they lead to.
static void write_folded(const picture *p)
{
    if (p->leaves > p->whole_leaves) {
        sp_write(p->out,
                 "<text x=\"%d\" y=\"%d\">other leaf switches, to and from the spine</text>\n",
                 MARGIN, top_of_leaves() - 4);
    }
    for (int node = p->whole; node < p->nodes; node++) {
        int x;
        int y;
        place_node(p, node, &x, &y);
        sp_write(p->out, "<text x=\"%d\" y=\"%d\">node %d: GPUs, NICs</text>\n", x, y + TITLE - 4,
                 node);
    }
    for (int32_t l = 0; l < sp_topology_links(p->topology); l += 2) {
        if (!is_whole(p, l) && sp_topology_link(p->topology, l).kind != SP_LINK_PCIE) {
            write_cell(p, l);
        }
    }
}

static void write_legend(const picture *p)
{
    double sums[SP_LINK_KINDS] = {0.0};
    int y = bottom_of_nodes(p);
    for (int32_t l = 0; l < sp_topology_links(p->topology); l++) {
        sums[sp_topology_link(p->topology, l).kind] += p->bytes[l];
    }
    sp_write(p->out, "<text x=\"%d\" y=\"%d\">all links, out and in:", MARGIN, y + TITLE - 4);
    for (int kind = 0; kind < SP_LINK_KINDS; kind++) {
        sp_write(p->out, " %s %.3lld GB", sp_link_kind_names[kind], llround(sums[kind] / 1e6));
    }
    sp_write(p->out,
             "</text>\n<text x=\"%d\" y=\"%d\">by lines: GB out and in; busy for none to all of "
             "%.3lld ms:</text>\n",
             MARGIN, y + 2 * TITLE - 4, llround(p->step_s * 1e6));
    for (int s = 0; s < SHADES; s++) {
        sp_write(p->out, "<rect class=\"s%d\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", s,
                 MARGIN + 24 * CELL + s * CELL, y + TITLE + 2, CELL - 2, CELL - 2);
    }
    sp_write(p->out,
             "<text x=\"%d\" y=\"%d\">not counted: tensor parallelism, attention handed to other "
             "pipeline ranks, sums of tied embeddings</text>\n",
             MARGIN, y + 3 * TITLE - 4);
}

sp_status sp_export_topology(FILE *file, const sp_topology *topology, const double *link_bytes,
                             int64_t step_ns, sp_error *err)
{
    sp_writer out;
    picture p = {.out = &out,
                 .topology = topology,
                 .bytes = link_bytes,
                 .step_s = (double)step_ns / SP_NS_PER_S};
    sp_writer_init(&out, file);
    measure(&p);
    write_head(&p);
    write_whole(&p);
    write_folded(&p);
    write_legend(&p);
    sp_write(&out, "</svg>\n");
    return sp_writer_finish(&out, "picture of the cluster", err);
}
