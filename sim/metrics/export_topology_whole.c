// Nodes with all their links: NVSwitch, GPUs, PCIe, NICs, leaf switches and the spine, one below
// the other.
#include <math.h>

#include "sim/base/units.h"
#include "sim/metrics/export_topology_private.h"

enum { PITCH = 32, BOX = 14, NAMES = 80, GAP = 24, WIDEST = 4 };

typedef enum layer { SPINE, LEAF, NIC, PCIE, GPU, NVSWITCH, ROWS } layer;

static const int row_y[ROWS + 1] = {10, 60, 150, 220, 256, 306, 344};

typedef struct point {
    int x;
    layer row;
} point;

static void write_names(const sp_i_picture *p);
static void write_bar(const sp_i_picture *p, int x, int width, layer row, const char *name,
                      int node);
static void write_link(const sp_i_picture *p, int32_t outward);
static void write_box(const sp_i_picture *p, int32_t outward);

static int node_width(const sp_i_picture *p)
{
    return PITCH * p->ends[SP_LINK_NVLINK];
}

static int node_x(const sp_i_picture *p, int node)
{
    return SP_I_PICTURE_MARGIN + NAMES + node * (node_width(p) + GAP);
}

static int width_of_nodes(const sp_i_picture *p)
{
    return p->whole * (node_width(p) + GAP) - GAP;
}

int sp_i_picture_whole_width(const sp_i_picture *p)
{
    return node_x(p, 0) + width_of_nodes(p) + SP_I_PICTURE_MARGIN;
}

int sp_i_picture_whole_height(void)
{
    return row_y[ROWS];
}

void sp_i_picture_write_whole(const sp_i_picture *p)
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

static void write_names(const sp_i_picture *p)
{
    static const char *const names[ROWS] = {"", "leaf of rail", "NIC", "PCIe of GPU", "GPU", ""};
    for (int row = 0; row < ROWS; row++) {
        sp_write(p->out, "<text x=\"%d\" y=\"%d\">%s</text>\n", SP_I_PICTURE_MARGIN,
                 row_y[row] + BOX - 4, names[row]);
    }
}

static void write_bar(const sp_i_picture *p, int x, int width, layer row, const char *name,
                      int node)
{
    sp_write(p->out,
             "<rect class=\"s0\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>"
             "<text x=\"%d\" y=\"%d\">%s",
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
static point box_of(const sp_i_picture *p, int32_t link)
{
    sp_link l = sp_topology_link(p->topology, link);
    if (l.kind == SP_LINK_SPINE) {
        int x =
            middle(node_x(p, 0), width_of_nodes(p), sp_i_picture_leaf(p, link), p->whole_leaves);
        return (point){x, LEAF};
    }
    layer row = l.kind == SP_LINK_NVLINK ? GPU : l.kind == SP_LINK_PCIE ? PCIE : NIC;
    return (point){middle(node_x(p, l.node), node_width(p), l.index, p->ends[l.kind]), row};
}

// As wide as its bytes are beside those of the fullest link of its kind that is drawn.
static int width_of(const sp_i_picture *p, int32_t outward)
{
    double most = p->most[sp_topology_link(p->topology, outward).kind];
    double bytes = p->bytes[outward] + p->bytes[outward + 1];
    return most > 0.0 ? 1 + (int)((WIDEST - 1) * bytes / most) : 1;
}

// From the upper edge of a box to the lower edge of one above it, or of a bar.
static void write_line(const sp_i_picture *p, int32_t outward, int from_x, layer from, int to_x,
                       layer to)
{
    sp_write(p->out,
             "<line class=\"l%d\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke-width=\"%d\">",
             sp_i_picture_shade(p, outward), from_x, row_y[from], to_x, row_y[to] + BOX,
             width_of(p, outward));
    sp_i_picture_title(p, outward);
    sp_write(p->out, "</line>\n");
}

// Bytes of both directions with three digits.
static void write_gigabytes(const sp_i_picture *p, int32_t outward, int x, int y)
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

static void write_link(const sp_i_picture *p, int32_t outward)
{
    if (!sp_i_picture_is_whole(p, outward)) {
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

static void write_box(const sp_i_picture *p, int32_t outward)
{
    if (!sp_i_picture_is_whole(p, outward)) {
        return;
    }
    point at = box_of(p, outward);
    sp_write(p->out,
             "<rect class=\"s0\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>"
             "<text class=\"b\" x=\"%d\" y=\"%d\">%d</text>\n",
             at.x - BOX / 2, row_y[at.row], BOX, BOX, at.x, row_y[at.row] + BOX - 4,
             sp_topology_link(p->topology, outward).index);
}
