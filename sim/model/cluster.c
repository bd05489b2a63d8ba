#include "sim/model/cluster.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/units.h"

#define GBIT_PER_S (1e9 / 8.0)

enum { MAX_GPUS_PER_NODE = 1024, MAX_NODES = 1 << 24 };

// The 80 GB parts hold 80 GiB (A100: 81920 MiB by its driver); the H200's driver reports 143771
// MiB.
#define GIB_80 INT64_C(85899345920)
#define H200_BYTES (INT64_C(143771) * 1048576)

// Assumed: four fifths of the 31.5 and 63 GB/s that 16 lanes carry in one direction (PCI Express
// Base Specification 4.0 and 5.0: 16 and 32 GT/s a lane, 128b/130b), the rest being packet headers
// and flow control. Every GPU is taken to have 16 lanes of its own.
#define PCIE_4 25e9
#define PCIE_5 50e9

static const sp_cluster builtin[] = {
    {"a100-8", "A100", "a100", 312e12, GIB_80, 2.039e12, 8, 0, 300e9, 4, 200 * GBIT_PER_S, PCIE_4,
     "NVIDIA A100 80GB SXM data sheet; 4 x 200 Gb/s InfiniBand a node: vTrain, arXiv 2312.12391"},
    {"a100-selene", "A100", "a100", 312e12, GIB_80, 2.039e12, 8, 0, 300e9, 8, 200 * GBIT_PER_S,
     PCIE_4,
     "NVIDIA A100 80GB SXM data sheet; DGX A100 SuperPOD with 8 HDR NICs a node: arXiv 2205.05198"},
    {"a800-8", "A800", "a100", 312e12, GIB_80, 2.039e12, 8, 0, 200e9, 4, 200 * GBIT_PER_S, PCIE_4,
     "A800 80GB: A100 with NVLink cut to 400 GB/s; 4 x 200 Gb/s RoCE a node: Zeppelin cluster A, "
     "arXiv 2509.21841"},
    {"h800-8", "H800", "h800", 989.4e12, GIB_80, 3.35e12, 8, 0, 200e9, 8, 400 * GBIT_PER_S, PCIE_5,
     "NVIDIA H100 SXM data sheet with NVLink cut to 400 GB/s; 8 x 400 Gb/s a node"},
    {"h800-8x100g", "H800", "h800", 989.4e12, GIB_80, 3.35e12, 8, 0, 200e9, 8, 100 * GBIT_PER_S,
     PCIE_5,
     "NVIDIA H100 SXM data sheet with NVLink cut to 400 GB/s; 8 x 100 Gb/s a node: kwai/"
     "Megatron-Kwai, branch atc24ae"},
    {"h100-8", "H100", "h100", 989.4e12, GIB_80, 3.35e12, 8, 0, 450e9, 8, 400 * GBIT_PER_S, PCIE_5,
     "NVIDIA H100 SXM data sheet; DGX H100 with 8 x 400 Gb/s a node"},
    {"h200-8", "H200", "h200", 989.4e12, H200_BYTES, 4.8e12, 8, 0, 450e9, 8, 400 * GBIT_PER_S,
     PCIE_5,
     "NVIDIA H200 SXM data sheet; 8 x 400 Gb/s a node: Zeppelin cluster C, arXiv 2509.21841"},
    // Worker threads of one process share its memory, so 64 of them count as one node.
    {"host", "CPU core", "host", 5e10, INT64_C(8) << 30, 1e10, 64, 0, 5e9, 1, 100 * GBIT_PER_S, 5e9,
     "assumed: one CPU core as one device with 50 GFLOP/s, 8 GiB and 10 GB/s of memory rate"},
};

enum { BUILTINS = sizeof builtin / sizeof builtin[0] };

int sp_cluster_builtin_count(void)
{
    return BUILTINS;
}

const char *sp_cluster_builtin_name(int index)
{
    return index >= 0 && index < BUILTINS ? builtin[index].name : NULL;
}

static const sp_cluster *find(const char *name)
{
    for (int i = 0; i < BUILTINS; i++) {
        if (strcmp(builtin[i].name, name) == 0) {
            return &builtin[i];
        }
    }
    return NULL;
}

sp_status sp_cluster_builtin(const char *name, sp_cluster *cluster, sp_error *err)
{
    const sp_cluster *found = find(name);
    if (found != NULL) {
        *cluster = *found;
        return SP_OK;
    }
    const char *names[BUILTINS];
    for (int i = 0; i < BUILTINS; i++) {
        names[i] = builtin[i].name;
    }
    const char *near = sp_nearest_name(name, names, BUILTINS);
    if (near != NULL) {
        return sp_error_set(err, SP_ERR_CONTENT, "unknown cluster '%.64s' (did you mean '%s'?)",
                            name, near);
    }
    return sp_error_set(err, SP_ERR_CONTENT, "unknown cluster '%.64s'", name);
}

static void copy_text(sp_object *object, const char *key, const char *fallback, char *out,
                      size_t bytes)
{
    const char *text = sp_object_string(object, key, fallback);
    if (strlen(text) >= bytes) {
        sp_object_error(object, key, "expected at most %d bytes of text", (int)bytes - 1);
    }
    snprintf(out, bytes, "%s", text);
}

static double rate(sp_object *object, const char *key, double unit, double fallback)
{
    if (fallback <= 0.0) {
        sp_object_require(object, key);
    }
    if (!sp_object_has(object, key)) {
        return fallback;
    }
    return unit * sp_object_real(object, key, fallback / unit, 1e-3, 1e9);
}

void sp_cluster_from_object(sp_object *object, sp_cluster *cluster)
{
    *cluster = (sp_cluster){.gpus_per_node = 0};
    const char *name = sp_object_string(object, "name", "custom");
    const sp_cluster *base = find(name);
    if (base != NULL) {
        *cluster = *base;
    }
    copy_text(object, "name", "custom", cluster->name, sizeof cluster->name);
    copy_text(object, "gpu", base != NULL ? base->gpu : "GPU", cluster->gpu, sizeof cluster->gpu);
    copy_text(object, "profile", base != NULL ? base->profile : "", cluster->profile,
              sizeof cluster->profile);
    copy_text(object, "source", base != NULL ? base->source : "", cluster->source,
              sizeof cluster->source);
    cluster->peak_flops_per_s = rate(object, "peak_tflops", 1e12, cluster->peak_flops_per_s);
    cluster->memory_bytes =
        (int64_t)llround(rate(object, "memory_gib", SP_GIB, (double)cluster->memory_bytes));
    cluster->hbm_bytes_per_s = rate(object, "hbm_gb_per_s", 1e9, cluster->hbm_bytes_per_s);
    cluster->nvlink_bytes_per_s = rate(object, "nvlink_gb_per_s", 1e9, cluster->nvlink_bytes_per_s);
    cluster->nic_bytes_per_s = rate(object, "nic_gbit_per_s", GBIT_PER_S, cluster->nic_bytes_per_s);
    double host_link = base != NULL ? base->host_link_bytes_per_s : PCIE_4;
    cluster->host_link_bytes_per_s = rate(object, "host_link_gb_per_s", 1e9, host_link);
    cluster->gpus_per_node = (int)sp_object_int(
        object, "gpus_per_node", base != NULL ? base->gpus_per_node : 8, 1, MAX_GPUS_PER_NODE);
    cluster->nics_per_node = (int)sp_object_int(
        object, "nics_per_node", base != NULL ? base->nics_per_node : cluster->gpus_per_node, 1,
        MAX_GPUS_PER_NODE);
    cluster->nodes = (int)sp_object_int(object, "nodes", 0, 0, MAX_NODES);
    sp_object_end(object);
}

sp_status sp_cluster_fit(sp_cluster *cluster, int64_t ranks, const char *source, sp_error *err)
{
    if (cluster->nodes == 0) {
        int64_t nodes = sp_ceil_div(ranks, cluster->gpus_per_node);
        if (nodes > MAX_NODES) {
            return sp_error_in(err, SP_ERR_CONTENT, source, "nodes",
                               "%lld ranks need more than %d nodes", (long long)ranks, MAX_NODES);
        }
        cluster->nodes = (int)nodes;
        return SP_OK;
    }
    int64_t gpus = (int64_t)cluster->nodes * cluster->gpus_per_node;
    if (gpus != ranks) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "nodes",
                           "%d nodes of %d GPUs are filled by %lld ranks, but tp*cp*pp*dp is %lld",
                           cluster->nodes, cluster->gpus_per_node, (long long)gpus,
                           (long long)ranks);
    }
    return SP_OK;
}

// A group is an arithmetic progression of ranks: first, first + stride, ...
typedef struct progression {
    int64_t stride;
    int64_t size;
} progression;

static progression progression_of(const sp_layout *layout, sp_dimension dimension);
static sp_group describe(int64_t first, progression p, int64_t per_node);
static bool is_worse(const sp_group *a, const sp_group *b);
static int64_t gcd(int64_t a, int64_t b);

// Groups start at block*stride*size + j with j < stride. Where they lie follows from the start
// modulo the node size, so both indices need at most one period of it.
sp_group sp_cluster_group(const sp_cluster *cluster, const sp_layout *layout,
                          sp_dimension dimension)
{
    int64_t per_node = cluster->gpus_per_node;
    progression p = progression_of(layout, dimension);
    int64_t span = p.stride * p.size;
    int64_t blocks = sp_layout_ranks(layout) / span;
    int64_t block_period = per_node / gcd(span, per_node);
    blocks = blocks < block_period ? blocks : block_period;
    int64_t starts = p.stride < per_node ? p.stride : per_node;
    sp_group worst = describe(0, p, per_node);
    if (p.stride >= per_node) {
        return worst; // every member has a node of its own, wherever the group starts
    }
    for (int64_t block = 0; block < blocks; block++) {
        for (int64_t j = 0; j < starts; j++) {
            sp_group group = describe(block * span + j, p, per_node);
            worst = is_worse(&group, &worst) ? group : worst;
        }
    }
    return worst;
}

static progression progression_of(const sp_layout *layout, sp_dimension dimension)
{
    int64_t tp = layout->tp;
    int64_t cp = layout->cp;
    int64_t dp = layout->dp;
    switch (dimension) {
    case SP_DIM_TP:
        return (progression){1, tp};
    case SP_DIM_CP:
        return (progression){tp, cp};
    case SP_DIM_DP:
        return (progression){tp * cp, dp};
    case SP_DIM_DP_CP:
        return (progression){tp, dp * cp};
    case SP_DIM_PP:
        break;
    }
    return (progression){tp * cp * dp, layout->pp};
}

// With a stride of a node or more each member is alone. Else no node between the first and the last
// is skipped, and the number of members of a full node depends only on the offset of its first
// member, which repeats after at most `stride` nodes.
static sp_group describe(int64_t first, progression p, int64_t per_node)
{
    if (p.stride >= per_node || p.size == 1) {
        return (sp_group){(int)p.size, (int)p.size, 1, 1};
    }
    int64_t last = first + (p.size - 1) * p.stride;
    int64_t nodes = last / per_node - first / per_node + 1;
    int64_t in_last = (last % per_node) / p.stride + 1;
    if (nodes == 1) {
        return (sp_group){(int)p.size, 1, (int)p.size, (int)p.size};
    }
    sp_group group = {(int)p.size, (int)nodes, (int)in_last, (int)in_last};
    int64_t offset = first % per_node;
    for (int64_t node = 0; node < nodes - 1 && node <= p.stride; node++) {
        int64_t members = sp_ceil_div(per_node - offset, p.stride);
        group.least_per_node = members < group.least_per_node ? (int)members : group.least_per_node;
        group.most_per_node = members > group.most_per_node ? (int)members : group.most_per_node;
        offset = offset + members * p.stride - per_node;
    }
    return group;
}

// Slower collectives first: between nodes, then fewer members (NICs) in the least populated node.
static bool is_worse(const sp_group *a, const sp_group *b)
{
    if ((a->nodes > 1) != (b->nodes > 1)) {
        return a->nodes > 1;
    }
    if (a->least_per_node != b->least_per_node) {
        return a->least_per_node < b->least_per_node;
    }
    if (a->nodes != b->nodes) {
        return a->nodes > b->nodes;
    }
    return a->most_per_node > b->most_per_node;
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int sp_cluster_pp_crosses_node(const sp_cluster *cluster, const sp_layout *layout, int pp_rank)
{
    int64_t per_node = cluster->gpus_per_node;
    int64_t per_stage = (int64_t)layout->tp * layout->cp * layout->dp;
    int64_t here = pp_rank * per_stage;
    int64_t there = (pp_rank + 1) % layout->pp * per_stage;
    int64_t peers = per_stage < per_node ? per_stage : per_node;
    for (int64_t j = 0; j < peers; j++) {
        if ((here + j) / per_node != (there + j) / per_node) {
            return 1;
        }
    }
    return 0;
}
