// The picture of a cluster: well-formed XML that names every node, carries the bytes of every link
// and joins what is joined.
#include "sim/metrics/export.h"
#include "tests/support/test_main.h"

enum { MOST_TEXT = 1 << 20, DEEPEST = 8, WHOLE = 4 }; // nodes of 8 GPUs with lines

static void draw(const sp_topology *topology, const double *bytes, char text[MOST_TEXT])
{
    FILE *file = tmpfile();
    assert_non_null(file);
    must_succeed(sp_export_topology(file, topology, bytes, 1000000, ERR));
    rewind(file);
    size_t count = fread(text, 1, MOST_TEXT - 1, file);
    text[count] = '\0';
    fclose(file);
}

// Every element is closed, in the reverse order, and what stands between has no markup.
static void assert_well_formed(const char *text)
{
    char open[DEEPEST][16];
    int depth = 0;
    for (const char *c = strchr(text, '<'); c != NULL; c = strchr(c, '<')) {
        const char *end = strchr(c, '>');
        assert_non_null(end);
        assert_null(memchr(c + 1, '<', (size_t)(end - c - 1)));
        bool closes = c[1] == '/';
        int length = (int)strcspn(c + 1 + closes, " />");
        char name[16];
        snprintf(name, sizeof name, "%.*s", length, c + 1 + closes);
        if (closes) {
            assert_true(depth > 0);
            assert_string_equal(name, open[--depth]);
        } else if (end[-1] != '/') {
            assert_true(depth < DEEPEST);
            strcpy(open[depth++], name);
        }
        assert_true(depth > 0 || strcspn(end + 1, "<") == strspn(end + 1, "\n"));
        c = end;
    }
    assert_int_equal(depth, 0);
    assert_null(strchr(text, '&'));
}

static double bytes_of(int32_t link)
{
    return 1e6 * (1000.0 + link);
}

TEST(nodes_and_links_of_a_cluster)
{
    static char text[MOST_TEXT];
    sp_cluster cluster;
    sp_topology *topology;
    const sp_link_rates rates = {400e9, 1e-6, 0.9, 5e-6};
    must_succeed(sp_cluster_builtin("h100-8", &cluster, ERR));
    cluster.nodes = 40; // of leaf switches that join 32
    must_succeed(sp_topology_new(&cluster, &rates, &topology, ERR));
    int32_t links = sp_topology_links(topology);
    AUTO_FREE double *bytes = sp_calloc((size_t)links, sizeof *bytes);
    for (int32_t l = 0; l < links; l++) {
        bytes[l] = bytes_of(l);
    }
    draw(topology, bytes, text);
    assert_well_formed(text);
    for (int node = 0; node < cluster.nodes; node++) {
        char name[32];
        snprintf(name, sizeof name, node < WHOLE ? ">NVSwitch of node %d<" : ">node %d: ", node);
        assert_non_null(strstr(text, name));
    }
    for (int32_t l = 0; l < links; l += 2) {
        static const char *const names[] = {"GPU", "PCIe of GPU", "NIC", "leaf switch of rail"};
        sp_link link = sp_topology_link(topology, l);
        char title[96];
        snprintf(title, sizeof title, ">%s %d, node %d: %.3f GB out, %.3f GB in<", names[link.kind],
                 link.index, link.node, bytes_of(l) / 1e9, bytes_of(l + 1) / 1e9);
        // Behind the NICs of nodes without lines stand their GPUs' PCIe links.
        bool left_out = link.kind == SP_LINK_PCIE && link.node >= WHOLE;
        assert_true((strstr(text, title) == NULL) == left_out);
    }
    static char again[MOST_TEXT];
    draw(topology, bytes, again);
    assert_string_equal(text, again);
    sp_topology_free(topology);
}

typedef struct line {
    int x1, y1, x2, y2;
} line;

// The n-th line with a title that begins so; false where there is none.
static bool find_line(const char *text, const char *title, int n, line *found)
{
    for (const char *at = strstr(text, "<line "); at != NULL; at = strstr(at + 1, "<line ")) {
        const char *of = strstr(at, "<title>") + strlen("<title>");
        if (strncmp(of, title, strlen(title)) == 0 && n-- == 0) {
            const char *from = strstr(at, "x1=");
            assert_int_equal(sscanf(from, "x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"", &found->x1,
                                    &found->y1, &found->x2, &found->y2),
                             4);
            return true;
        }
    }
    return false;
}

static line line_of(const char *text, const char *kind, int index, int node, int n)
{
    char title[64];
    line found = {0};
    snprintf(title, sizeof title, "%s %d, node %d:", kind, index, node);
    assert_true(find_line(text, title, n, &found));
    return found;
}

// From GPU over PCIe, the NIC of its affinity and the leaf switch of that NIC's rail, each line
// begins above the middle of the box where the one before ends.
static void assert_joined(sp_nic_affinity affinity)
{
    enum { NODES = 3, GPUS = 8, NICS = 3, RAILS = 2 };
    static char text[MOST_TEXT];
    static double bytes[1024];
    const sp_link_rates rates = {400e9, 1e-6, 0.9, 5e-6};
    sp_cluster cluster;
    sp_topology *topology;
    must_succeed(sp_cluster_builtin("h100-8", &cluster, ERR));
    cluster.nodes = NODES;
    cluster.nics_per_node = NICS;
    cluster.fabric.rails = RAILS;
    cluster.fabric.nodes_per_leaf = 2;
    cluster.fabric.nic_affinity = affinity;
    must_succeed(sp_topology_new(&cluster, &rates, &topology, ERR));
    assert_true(sp_topology_links(topology) <= 1024);
    draw(topology, bytes, text);
    for (int node = 0; node < NODES; node++) {
        for (int gpu = 0; gpu < GPUS; gpu++) {
            int nic = affinity == SP_NIC_BLOCK ? gpu * NICS / GPUS : gpu % NICS;
            line nvlink = line_of(text, "GPU", gpu, node, 0);
            line to_nic = line_of(text, "PCIe of GPU", gpu, node, 0);
            line from_gpu = line_of(text, "PCIe of GPU", gpu, node, 1);
            line to_leaf = line_of(text, "NIC", nic, node, 0);
            line to_spine = line_of(text, "leaf switch of rail", nic % RAILS, node / 2 * 2, 0);
            assert_true(nvlink.x1 == nvlink.x2 && from_gpu.x1 == from_gpu.x2);
            assert_int_equal(nvlink.x1, from_gpu.x1);
            assert_int_equal(from_gpu.x2, to_nic.x1);
            assert_int_equal(to_nic.x2, to_leaf.x1);
            assert_int_equal(to_leaf.x2, to_spine.x1);
            assert_true(nvlink.y1 > from_gpu.y1 && from_gpu.y1 > to_nic.y1 &&
                        to_nic.y1 > to_leaf.y1 && to_leaf.y1 > to_spine.y1);
        }
    }
    sp_topology_free(topology);
}

TEST(lines_follow_the_affinity_of_nics)
{
    assert_joined(SP_NIC_BLOCK);
    assert_joined(SP_NIC_ROUND_ROBIN);
}
