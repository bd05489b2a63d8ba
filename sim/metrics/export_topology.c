// The cluster as a picture: the first nodes with all their links, the others as their GPUs, NICs
// and leaf switches; each link in the colour of its busier direction and with the bytes of both in
// its title.
#include <math.h>

#include "sim/base/units.h"
#include "sim/metrics/export.h"
#include "sim/metrics/export_topology_private.h"

enum { CELL = 14, COLUMNS = 8, TITLE = 14, GAP = 8, LEGEND = 54 };
enum { MARGIN = SP_I_PICTURE_MARGIN, WHOLE_GPUS = 32 };

// From idle to full: ColorBrewer's YlOrRd with steps between.
static const char *const shades[SP_I_SHADES] = {"#f0f0f0", "#fed976", "#feb24c", "#fd9f44",
                                                "#fd8d3c", "#fc6e33", "#f44d2a", "#e31a1c",
                                                "#bd0026", "#800026"};

static void measure(sp_i_picture *p);
static void write_head(const sp_i_picture *p);
static void write_folded(const sp_i_picture *p);
static void write_legend(const sp_i_picture *p);

sp_status sp_export_topology(FILE *file, const sp_topology *topology, const double *link_bytes,
                             int64_t step_ns, sp_error *err)
{
    sp_writer out;
    sp_i_picture p = {.out = &out,
                      .topology = topology,
                      .bytes = link_bytes,
                      .step_s = (double)step_ns / SP_NS_PER_S};
    sp_writer_init(&out, file);
    measure(&p);
    write_head(&p);
    sp_i_picture_write_whole(&p);
    write_folded(&p);
    write_legend(&p);
    sp_write(&out, "</svg>\n");
    return sp_writer_finish(&out, "picture of the cluster", err);
}

static void measure(sp_i_picture *p)
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
        if (sp_i_picture_is_whole(p, l)) {
            p->most[link.kind] = fmax(p->most[link.kind], p->bytes[l] + p->bytes[l + 1]);
        }
    }
}

int sp_i_picture_leaf(const sp_i_picture *p, int32_t link)
{
    return p->leaves - (sp_topology_links(p->topology) - link + 1) / 2;
}

bool sp_i_picture_is_whole(const sp_i_picture *p, int32_t link)
{
    return sp_topology_link(p->topology, link).node < p->whole;
}

int sp_i_picture_shade(const sp_i_picture *p, int32_t outward)
{
    const double *rate = sp_topology_bytes_per_s(p->topology);
    double most =
        fmax(p->bytes[outward] / rate[outward], p->bytes[outward + 1] / rate[outward + 1]);
    double share = p->step_s > 0.0 ? most / p->step_s : 0.0;
    int shade = share > 0.0 ? 1 + (int)(fmin(share, 1.0) * (SP_I_SHADES - 1)) : 0;
    return shade < SP_I_SHADES ? shade : SP_I_SHADES - 1;
}

void sp_i_picture_title(const sp_i_picture *p, int32_t outward)
{
    static const char *const names[SP_LINK_KINDS] = {"GPU", "PCIe of GPU", "NIC",
                                                     "leaf switch of rail"};
    sp_link link = sp_topology_link(p->topology, outward);
    sp_write(p->out, "<title>%s %d, node %d: %.3lld GB out, %.3lld GB in</title>", names[link.kind],
             link.index, link.node, llround(p->bytes[outward] / 1e6),
             llround(p->bytes[outward + 1] / 1e6));
}

// ---- nodes whose links are not drawn ----

static int rows_of(int count, int columns)
{
    return (int)sp_ceil_div(count, columns);
}

static int height_of_node(const sp_i_picture *p)
{
    return TITLE + GAP +
           CELL *
               (rows_of(p->ends[SP_LINK_NVLINK], COLUMNS) + rows_of(p->ends[SP_LINK_NIC], COLUMNS));
}

static int width_of_node(void)
{
    return COLUMNS * CELL + GAP;
}

static int top_of_leaves(void)
{
    return sp_i_picture_whole_height() + TITLE;
}

static int top_of_nodes(const sp_i_picture *p)
{
    int rows = rows_of(p->leaves - p->whole_leaves, COLUMNS * COLUMNS);
    return rows > 0 ? top_of_leaves() + CELL * rows + GAP : sp_i_picture_whole_height();
}

static int bottom_of_nodes(const sp_i_picture *p)
{
    return top_of_nodes(p) + rows_of(p->nodes - p->whole, COLUMNS) * height_of_node(p);
}

static void place_node(const sp_i_picture *p, int node, int *x, int *y)
{
    int place = node - p->whole;
    *x = MARGIN + place % COLUMNS * width_of_node();
    *y = top_of_nodes(p) + place / COLUMNS * height_of_node(p);
}

static void write_head(const sp_i_picture *p)
{
    int folded = 2 * MARGIN + COLUMNS * width_of_node();
    int whole = sp_i_picture_whole_width(p);
    sp_write(p->out,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
             "font-family=\"sans-serif\" font-size=\"9\">\n<style>rect{stroke:#999}"
             ".t{font-size:7px}.b{text-anchor:middle}.l0{stroke:#ccc}",
             whole > folded ? whole : folded, bottom_of_nodes(p) + LEGEND);
    for (int s = 0; s < SP_I_SHADES; s++) {
        sp_write(p->out, ".s%d{fill:%s}", s, shades[s]);
    }
    for (int s = 1; s < SP_I_SHADES; s++) {
        sp_write(p->out, ".l%d{stroke:%s}", s, shades[s]);
    }
    sp_write(p->out, "</style>\n");
}

static void write_cell(const sp_i_picture *p, int32_t outward)
{
    sp_link link = sp_topology_link(p->topology, outward);
    int x = MARGIN;
    int y = top_of_leaves();
    int place = link.index;
    int columns = COLUMNS;
    if (link.kind == SP_LINK_SPINE) {
        place = sp_i_picture_leaf(p, outward) - p->whole_leaves;
        columns = COLUMNS * COLUMNS;
    } else {
        place_node(p, link.node, &x, &y);
        y += TITLE +
             (link.kind == SP_LINK_NIC ? CELL * rows_of(p->ends[SP_LINK_NVLINK], COLUMNS) : 0);
    }
    sp_write(p->out, "<rect class=\"s%d\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\">",
             sp_i_picture_shade(p, outward), x + place % columns * CELL, y + place / columns * CELL,
             CELL - 2, CELL - 2);
    sp_i_picture_title(p, outward);
    sp_write(p->out, "</rect>\n");
}

// PCIe links are left to the NICs that they lead to.
static void write_folded(const sp_i_picture *p)
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
        if (!sp_i_picture_is_whole(p, l) && sp_topology_link(p->topology, l).kind != SP_LINK_PCIE) {
            write_cell(p, l);
        }
    }
}

static void write_legend(const sp_i_picture *p)
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
    for (int s = 0; s < SP_I_SHADES; s++) {
        sp_write(p->out, "<rect class=\"s%d\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", s,
                 MARGIN + 24 * CELL + s * CELL, y + TITLE + 2, CELL - 2, CELL - 2);
    }
    sp_write(p->out,
             "<text x=\"%d\" y=\"%d\">not counted: tensor parallelism, attention handed "
             "to other pipeline ranks, sums of tied embeddings</text>\n",
             MARGIN, y + 3 * TITLE - 4);
}
