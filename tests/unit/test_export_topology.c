// The picture of a cluster: well-formed XML that names every node and carries the bytes of every
// link.
#include "sim/metrics/export.h"
#include "tests/support/test_main.h"

enum { MOST_TEXT = 1 << 20, DEEPEST = 8 };

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
    double *bytes = calloc((size_t)links, sizeof *bytes);
    assert_non_null(bytes);
    for (int32_t l = 0; l < links; l++) {
        bytes[l] = bytes_of(l);
    }
    draw(topology, bytes, text);
    assert_well_formed(text);
    for (int node = 0; node < cluster.nodes; node++) {
        char name[32];
        snprintf(name, sizeof name, ">node %d: ", node);
        assert_non_null(strstr(text, name));
    }
    for (int32_t l = 0; l < links; l += 2) {
        static const char *const names[] = {"GPU", NULL, "NIC", "leaf switch of rail"};
        sp_link link = sp_topology_link(topology, l);
        char title[96];
        if (link.kind != SP_LINK_PCIE) {
            snprintf(title, sizeof title, ">%s %d, node %d: %.3f GB out, %.3f GB in<",
                     names[link.kind], link.index, link.node, bytes_of(l) / 1e9,
                     bytes_of(l + 1) / 1e9);
            assert_non_null(strstr(text, title));
        }
    }
    static char again[MOST_TEXT];
    draw(topology, bytes, again);
    assert_string_equal(text, again);
    free(bytes);
    sp_topology_free(topology);
}
