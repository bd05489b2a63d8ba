// The cluster as a picture: every node with its GPUs and NICs, and the leaf switches, each in the
// colour of its busier direction and with the bytes of both in its title.
#include <math.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "sim/metrics/export.h"

enum { CELL = 14, COLUMNS = 8, MARGIN = 10, TITLE = 14, GAP = 8, SHADES = 10, LEGEND = 54 };

// From idle to full.
static const char *const shades[SHADES] = {"#f7f7f7", "#fef0d9", "#fdd49e", "#fdc38d", "#fdbb84",
                                           "#fc8d59", "#ef6548", "#d7301f", "#b30000", "#7f0000"};

typedef struct drawing {
    sp_writer *out;
    const sp_topology *topology;
    const double *bytes; // [links]
    double step_s;
    int nodes;
    int rows[SP_LINK_KINDS]; // of cells in a node, and of leaf switches
    int leaves;
} drawing;

static void measure(drawing *d);
static int height_of_node(const drawing *d);
static void write_head(const drawing *d);
static void write_node(const drawing *d, int node);
static void write_cells(const drawing *d);
static void write_legend(const drawing *d);

sp_status sp_export_topology(FILE *file, const sp_topology *topology, const double *link_bytes,
                             int64_t step_ns, sp_error *err)
{
    sp_writer out;
    drawing d = {.out = &out,
                 .topology = topology,
                 .bytes = link_bytes,
                 .step_s = (double)step_ns / SP_NS_PER_S};
    sp_writer_init(&out, file);
    measure(&d);
    write_head(&d);
    for (int node = 0; node < d.nodes; node++) {
        write_node(&d, node);
    }
    write_cells(&d);
    write_legend(&d);
    sp_write(&out, "</svg>\n");
    return sp_writer_finish(&out, "picture of the cluster", err);
}

// Both directions of an end stand next to each other, outward first (topology.h).
static void measure(drawing *d)
{
    for (int32_t l = 0; l < sp_topology_links(d->topology); l += 2) {
        sp_link link = sp_topology_link(d->topology, l);
        int rows = (link.index + COLUMNS) / COLUMNS;
        if (link.kind == SP_LINK_SPINE) {
            d->leaves++;
        } else {
            d->nodes = link.node >= d->nodes ? link.node + 1 : d->nodes;
            d->rows[link.kind] = rows > d->rows[link.kind] ? rows : d->rows[link.kind];
        }
    }
    d->rows[SP_LINK_SPINE] = (int)sp_ceil_div(d->leaves, COLUMNS * COLUMNS);
}

static int height_of_node(const drawing *d)
{
    return TITLE + CELL * (d->rows[SP_LINK_NVLINK] + d->rows[SP_LINK_NIC]) + GAP;
}

static int width_of_node(void)
{
    return COLUMNS * CELL + GAP;
}

static int nodes_in_row(const drawing *d)
{
    return d->nodes < COLUMNS ? d->nodes : COLUMNS;
}

static int top_of_nodes(const drawing *d)
{
    return MARGIN + TITLE + CELL * d->rows[SP_LINK_SPINE] + GAP;
}

static int bottom_of_nodes(const drawing *d)
{
    int rows = (int)sp_ceil_div(d->nodes, nodes_in_row(d));
    return top_of_nodes(d) + rows * height_of_node(d);
}

static void place_node(const drawing *d, int node, int *x, int *y)
{
    *x = MARGIN + node % nodes_in_row(d) * width_of_node();
    *y = top_of_nodes(d) + node / nodes_in_row(d) * height_of_node(d);
}

static void write_head(const drawing *d)
{
    int width = 2 * MARGIN + COLUMNS * width_of_node();
    sp_write(d->out,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
             "font-family=\"sans-serif\" font-size=\"9\">\n<style>rect{stroke:#999}",
             width, bottom_of_nodes(d) + LEGEND);
    for (int s = 0; s < SHADES; s++) {
        sp_write(d->out, ".s%d{fill:%s}", s, shades[s]);
    }
    sp_write(d->out,
             "</style>\n<text x=\"%d\" y=\"%d\">leaf switches, to and from the spine</text>\n",
             MARGIN, MARGIN + TITLE - 4);
}

static void write_node(const drawing *d, int node)
{
    int x;
    int y;
    place_node(d, node, &x, &y);
    sp_write(d->out, "<text x=\"%d\" y=\"%d\">node %d: GPUs, NICs</text>\n", x, y + TITLE - 4,
             node);
}

// Share of the step in which the busier direction would have sent at its full rate.
static int shade_of(const drawing *d, int32_t outward)
{
    const double *rate = sp_topology_bytes_per_s(d->topology);
    double most =
        fmax(d->bytes[outward] / rate[outward], d->bytes[outward + 1] / rate[outward + 1]);
    double share = d->step_s > 0.0 ? most / d->step_s : 0.0;
    int shade = share > 0.0 ? 1 + (int)(fmin(share, 1.0) * (SHADES - 1)) : 0;
    return shade < SHADES ? shade : SHADES - 1;
}

// PCIe links are left to the NICs that they lead to.
static void write_cell(const drawing *d, int32_t outward, int leaf)
{
    sp_link link = sp_topology_link(d->topology, outward);
    static const char *const names[SP_LINK_KINDS] = {"GPU", "", "NIC", "leaf switch of rail"};
    int x = MARGIN;
    int y = MARGIN + TITLE;
    int place = link.index;
    int columns = COLUMNS;
    if (link.kind == SP_LINK_SPINE) {
        place = leaf;
        columns = COLUMNS * COLUMNS;
    } else {
        place_node(d, link.node, &x, &y);
        y += TITLE + (link.kind == SP_LINK_NIC ? CELL * d->rows[SP_LINK_NVLINK] : 0);
    }
    sp_write(
        d->out,
        "<rect class=\"s%d\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"><title>%s %d, node %d: "
        "%.3lld GB out, %.3lld GB in</title></rect>\n",
        shade_of(d, outward), x + place % columns * CELL, y + place / columns * CELL, CELL - 2,
        CELL - 2, names[link.kind], link.index, link.node, llround(d->bytes[outward] / 1e6),
        llround(d->bytes[outward + 1] / 1e6));
}

static void write_cells(const drawing *d)
{
    int leaf = 0;
    for (int32_t l = 0; l < sp_topology_links(d->topology); l += 2) {
        sp_link_kind kind = sp_topology_link(d->topology, l).kind;
        if (kind != SP_LINK_PCIE) {
            write_cell(d, l, leaf);
            leaf += kind == SP_LINK_SPINE;
        }
    }
}

static void write_legend(const drawing *d)
{
    double sums[SP_LINK_KINDS] = {0.0};
    int y = bottom_of_nodes(d);
    for (int32_t l = 0; l < sp_topology_links(d->topology); l++) {
        sums[sp_topology_link(d->topology, l).kind] += d->bytes[l];
    }
    sp_write(d->out, "<text x=\"%d\" y=\"%d\">all links, out and in:", MARGIN, y + TITLE - 4);
    for (int kind = 0; kind < SP_LINK_KINDS; kind++) {
        sp_write(d->out, " %s %.3lld GB", sp_link_kind_names[kind], llround(sums[kind] / 1e6));
    }
    sp_write(d->out, "</text>\n<text x=\"%d\" y=\"%d\">busy for none to all of %.3lld ms:</text>\n",
             MARGIN, y + 2 * TITLE - 4, llround(d->step_s * 1e6));
    for (int s = 0; s < SHADES; s++) {
        sp_write(d->out, "<rect class=\"s%d\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", s,
                 MARGIN + 20 * CELL + s * CELL, y + TITLE + 2, CELL - 2, CELL - 2);
    }
    sp_write(
        d->out,
        "<text x=\"%d\" y=\"%d\">not counted: tensor parallelism, attention in zones or handed "
        "to other pipeline ranks, sums of tied embeddings</text>\n",
        MARGIN, y + 3 * TITLE - 4);
}
