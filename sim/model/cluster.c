#include "sim/model/cluster.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/model/settings.h"

#define GBIT_PER_S (1e9 / 8.0)

// The 80 GB parts hold 80 GiB (A100: 81920 MiB by its driver); the H200's driver reports 143771
// MiB. The GB200 has its share of the 13.4 TB of a rack in the data sheet.
#define GIB_80 INT64_C(85899345920)
#define H200_BYTES (INT64_C(143771) * 1048576)
#define GB200_BYTES (INT64_C(186000000000))
#define RESERVE SP_GPU_RESERVE_BYTES

// Assumed: four fifths of the 31.5 and 63 GB/s that 16 lanes carry in one direction (PCI Express
// Base Specification 4.0 and 5.0: 16 and 32 GT/s a lane, 128b/130b), the rest being packet headers
// and flow control. Every GPU is taken to have 16 lanes of its own.
#define PCIE_4 25e9
#define PCIE_5 50e9
// Four fifths, too, of the 450 GB/s in one direction of NVLink-C2C, from a GB200 to its host.
#define C2C 360e9

const char *const sp_nic_affinity_names[] = {"block", "round-robin", NULL};

// A rail for each NIC, as NVIDIA's reference architectures have it: 20 nodes at the leaf switches
// of DGX SuperPOD with A100 (40 ports, half of them to the spine), 32 with H100, H200 and B200,
// whose tables of cables show as many from leaf to spine as from node to leaf. Where nothing is
// published, one leaf switch a rail is assumed to join all nodes.
#define FABRIC(rail_count, nodes)                                                              \
    {                                                                                          \
        .rails = (rail_count), .nodes_per_leaf = (nodes), .oversubscription = 1.0, .pxn = true \
    }

static const sp_cluster builtin[] = {
    {"a100-8", "A100", "a100", 312e12, GIB_80, RESERVE, 2.039e12, 8, 0, 300e9, 4, 200 * GBIT_PER_S,
     PCIE_4,
     "NVIDIA A100 80GB SXM data sheet; 4 x 200 Gb/s InfiniBand a node: vTrain, arXiv 2312.12391",
     .fabric = FABRIC(4, 0)},
    {"a100-selene", "A100", "a100", 312e12, GIB_80, RESERVE, 2.039e12, 8, 0, 300e9, 8,
     200 * GBIT_PER_S, PCIE_4,
     "NVIDIA A100 80GB SXM data sheet; DGX A100 SuperPOD with 8 HDR NICs a node: arXiv 2205.05198",
     .fabric = FABRIC(8, 20)},
    {"a800-8", "A800", "a100", 312e12, GIB_80, RESERVE, 2.039e12, 8, 0, 200e9, 4, 200 * GBIT_PER_S,
     PCIE_4,
     "A800 80GB: A100 with NVLink cut to 400 GB/s; 4 x 200 Gb/s RoCE a node: Zeppelin cluster A, "
     "arXiv 2509.21841",
     .fabric = FABRIC(4, 0)},
    {"h800-8", "H800", "h800", 989.4e12, GIB_80, RESERVE, 3.35e12, 8, 0, 200e9, 8, 400 * GBIT_PER_S,
     PCIE_5, "NVIDIA H100 SXM data sheet with NVLink cut to 400 GB/s; 8 x 400 Gb/s a node",
     .fabric = FABRIC(8, 0), .nvls = true},
    {"h800-8x100g", "H800", "h800", 989.4e12, GIB_80, RESERVE, 3.35e12, 8, 0, 200e9, 8,
     100 * GBIT_PER_S, PCIE_5,
     "NVIDIA H100 SXM data sheet with NVLink cut to 400 GB/s; 8 x 100 Gb/s a node: kwai/"
     "Megatron-Kwai, branch atc24ae",
     .fabric = FABRIC(8, 0), .nvls = true},
    {"h100-8", "H100", "h100", 989.4e12, GIB_80, RESERVE, 3.35e12, 8, 0, 450e9, 8, 400 * GBIT_PER_S,
     PCIE_5, "NVIDIA H100 SXM data sheet; DGX H100 with 8 x 400 Gb/s a node",
     .fabric = FABRIC(8, 32), .nvls = true},
    {"h200-8", "H200", "h200", 989.4e12, H200_BYTES, RESERVE, 4.8e12, 8, 0, 450e9, 8,
     400 * GBIT_PER_S, PCIE_5,
     "NVIDIA H200 SXM data sheet; 8 x 400 Gb/s a node: Zeppelin cluster C, arXiv 2509.21841",
     .fabric = FABRIC(8, 0), .nvls = true},
    {"b200-8", "B200", "b200", 2250e12, INT64_C(180) << 30, RESERVE, 8.0e12, 8, 0, 900e9, 8,
     400 * GBIT_PER_S, PCIE_5,
     "NVIDIA HGX B200 data sheet: 180 GB of HBM3e, NVLink 5; 8 x 400 Gb/s a node as in DGX B200",
     .fabric = FABRIC(8, 32), .nvls = true},
    // A rack is one NVLink domain and counts as one node; a compute tray has 4 GPUs, a NIC and a
    // rail for each. A scalable unit of DGX SuperPOD has 8 racks.
    {"gb200-nvl72", "GB200", "b200", 2500e12, GB200_BYTES, RESERVE, 8.0e12, 72, 0, 900e9, 72,
     400 * GBIT_PER_S, C2C, "NVIDIA GB200 NVL72 data sheet; 72 x 400 Gb/s a rack as in DGX GB200",
     .fabric = FABRIC(4, 8), .nvls = true},
    // The network sprays packets over many ways (AWS: SRD), so no switch stands for a rail.
    {"h100-8-efa", "H100", "h100", 989.4e12, GIB_80, RESERVE, 3.35e12, 8, 0, 450e9, 32,
     100 * GBIT_PER_S, PCIE_5,
     "NVIDIA H100 SXM data sheet; AWS p5.48xlarge: 32 x 100 Gb/s EFA a node, four for each GPU",
     .fabric = FABRIC(1, 0), .nvls = true},
    // Worker threads of one process share its memory, so 64 of them count as one node. No driver
    // and no communicator takes any of it.
    {"host", "CPU core", "host", 5e10, INT64_C(8) << 30, 0, 1e10, 64, 0, 5e9, 1, 100 * GBIT_PER_S,
     5e9, "assumed: one CPU core as one device with 50 GFLOP/s, 8 GiB and 10 GB/s of memory rate",
     .fabric = FABRIC(1, 0)},
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

bool sp_cluster_of_profile(const char *profile, sp_cluster *cluster)
{
    for (int i = 0; i < BUILTINS; i++) {
        if (sp_same_name(builtin[i].profile, profile)) {
            *cluster = builtin[i];
            return true;
        }
    }
    *cluster = (sp_cluster){0};
    return false;
}

bool sp_gpu_is_described(const char *described, const char *gpu)
{
    size_t length = strlen(gpu);
    return length > 0 && strncmp(described, gpu, length) == 0 &&
           (described[length] == '\0' || described[length] == ' ');
}

bool sp_cluster_of_gpu(const char *described, sp_cluster *cluster)
{
    for (int i = 0; i < BUILTINS; i++) {
        if (sp_gpu_is_described(described, builtin[i].gpu)) {
            *cluster = builtin[i];
            return true;
        }
    }
    *cluster = (sp_cluster){0};
    return false;
}

static const sp_cluster *find(const char *name)
{
    for (int i = 0; i < BUILTINS; i++) {
        if (sp_same_name(builtin[i].name, name)) {
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

void sp_cluster_from_object(sp_object *object, sp_cluster *cluster)
{
    const sp_cluster *base = find(sp_object_string(object, "name", "custom"));
    if (base != NULL) {
        *cluster = *base; // in another spelling it is called as it is here
    } else {
        *cluster = (sp_cluster){.reserve_bytes = SP_GPU_RESERVE_BYTES};
        sp_settings_init(sp_cluster_settings, cluster);
        sp_setting_read_key(object, sp_cluster_settings, "name", cluster);
    }
    sp_settings_read(object, sp_cluster_settings, cluster, NULL);
    // Of a device that is smaller than any GPU one trains on, most stays.
    if (cluster->reserve_bytes > cluster->memory_bytes / 4) {
        cluster->reserve_bytes = cluster->memory_bytes / 4;
    }
    sp_object_end(object);
}

json_t *sp_cluster_to_json(const sp_cluster *cluster)
{
    return sp_settings_write(sp_cluster_settings, cluster, NULL);
}

sp_status sp_cluster_fit(sp_cluster *cluster, int64_t ranks, const char *source, sp_error *err)
{
    if (cluster->nodes == 0) {
        int64_t nodes = sp_ceil_div(ranks, cluster->gpus_per_node);
        if (nodes > SP_I_MAX_NODES) {
            return sp_error_in(err, SP_ERR_CONTENT, source, "nodes",
                               "%lld ranks need more than %d nodes", (long long)ranks,
                               SP_I_MAX_NODES);
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

// A group is an arithmetic progression of ranks (first, first + stride, ...) or, of two dimensions
// that are not next to each other in the order, a progression of `times` such progressions.
typedef struct progression {
    int64_t stride, size;
    int64_t step, times; // times 1: a plain progression
} progression;

// `count` members of a group, every step-th of it.
typedef struct every {
    int64_t step, count;
} every;

static progression along(const sp_layout *layout, sp_axis axis);
static progression over_two(const sp_layout *layout, sp_axis axis, sp_axis other, int64_t times);
static sp_group worst_group(const sp_cluster *cluster, const sp_layout *layout, progression p);
static sp_group worst_joint(const sp_cluster *cluster, const sp_layout *layout, int dp_count,
                            progression p, every part);
static sp_group describe(int64_t first, progression p, int64_t per_node);
static bool is_worse(const sp_group *a, const sp_group *b);

// The worst group of context-parallel ranks of dp_count neighbouring data-parallel ranks.
static sp_group joint_group(const sp_cluster *cluster, const sp_layout *layout, int dp_count)
{
    progression p = over_two(layout, SP_AXIS_CP, SP_AXIS_DP, dp_count);
    return p.times > 1 ? worst_joint(cluster, layout, dp_count, p, (every){1, p.size * p.times})
                       : worst_group(cluster, layout, p);
}

sp_group sp_cluster_group(const sp_cluster *cluster, const sp_layout *layout,
                          sp_dimension dimension)
{
    switch (dimension) {
    case SP_DIM_TP:
        return worst_group(cluster, layout, along(layout, SP_AXIS_TP));
    case SP_DIM_CP:
        return worst_group(cluster, layout, along(layout, SP_AXIS_CP));
    case SP_DIM_DP:
        return worst_group(cluster, layout, along(layout, SP_AXIS_DP));
    case SP_DIM_DP_CP:
        return joint_group(cluster, layout, layout->dp);
    case SP_DIM_PP:
        break;
    }
    return worst_group(cluster, layout, along(layout, SP_AXIS_PP));
}

sp_nested_groups sp_cluster_nested_groups(const sp_cluster *cluster, const sp_layout *layout,
                                          int dp_count, int inner)
{
    progression p = over_two(layout, SP_AXIS_CP, SP_AXIS_DP, dp_count);
    int64_t outer = p.size * p.times / inner;
    // Blocks of ranks that do not fill the data-parallel ranks begin anew with each of theirs.
    if (p.times > 1 || layout->dp % dp_count != 0) {
        return (sp_nested_groups){worst_joint(cluster, layout, dp_count, p, (every){1, inner}),
                                  worst_joint(cluster, layout, dp_count, p, (every){inner, outer})};
    }
    progression neighbours = {p.stride, inner, 0, 1};
    progression peers = {p.stride * inner, outer, 0, 1};
    return (sp_nested_groups){worst_group(cluster, layout, neighbours),
                              worst_group(cluster, layout, peers)};
}

int sp_cluster_node_cp_ranks(const sp_cluster *cluster, const sp_layout *layout, int of)
{
    int all = (int)sp_gcd(of, (int64_t)layout->cp * layout->dp);
    int most = 1;
    for (int inner = 2; inner <= all && inner <= cluster->gpus_per_node; inner++) {
        if (all % inner == 0 &&
            sp_cluster_nested_groups(cluster, layout, layout->dp, inner).inner.nodes <= 1) {
            most = inner;
        }
    }
    return most;
}

int sp_cluster_node_dp_ranks(const sp_cluster *cluster, const sp_layout *layout)
{
    int dp = layout->dp;
    int most = 1;
    for (int ranks = 1; ranks <= dp; ranks = ranks < dp && ranks > dp / 2 ? dp : 2 * ranks) {
        sp_group group = joint_group(cluster, layout, ranks);
        most = group.nodes <= 1 && dp % ranks == 0 ? ranks : most;
    }
    return most;
}

static progression along(const sp_layout *layout, sp_axis axis)
{
    return (progression){sp_layout_stride(layout, axis), sp_layout_size(layout, axis), 0, 1};
}

static progression over_two(const sp_layout *layout, sp_axis axis, sp_axis other, int64_t times)
{
    progression p = along(layout, axis);
    progression q = along(layout, other);
    q.size = times;
    if (q.size == 1) {
        return p;
    }
    if (p.size == 1) {
        return q;
    }
    if (q.stride == p.stride * p.size) {
        return (progression){p.stride, p.size * q.size, 0, 1};
    }
    if (p.stride == q.stride * q.size) {
        return (progression){q.stride, p.size * q.size, 0, 1};
    }
    bool first = p.stride < q.stride;
    return (progression){first ? p.stride : q.stride, first ? p.size : q.size,
                         first ? q.stride : p.stride, first ? q.size : p.size};
}

// Groups start at block*stride*size + j with j < stride. Where they lie follows from the start
// modulo the node size, so both indices need at most one period of it.
static sp_group worst_group(const sp_cluster *cluster, const sp_layout *layout, progression p)
{
    int64_t per_node = cluster->gpus_per_node;
    int64_t span = p.stride * p.size;
    int64_t blocks = sp_layout_ranks(layout) / span;
    int64_t block_period = per_node / sp_gcd(span, per_node);
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

// Members from one on, in ascending order, so that those of one node follow each other.
static sp_group count_members(int64_t first, progression p, int64_t from, every part,
                              int64_t per_node)
{
    sp_group group = {.size = (int)part.count};
    int64_t node = -1;
    int in_node = 0;
    for (int64_t k = 0; k <= part.count; k++) {
        bool more = k < part.count;
        int64_t i = from + k * part.step;
        int64_t rank = first + i / p.size * p.step + i % p.size * p.stride;
        if (more && rank / per_node == node) {
            in_node++;
            continue;
        }
        if (node >= 0) {
            group.nodes++;
            group.least_per_node =
                group.nodes == 1 || in_node < group.least_per_node ? in_node : group.least_per_node;
            group.most_per_node = in_node > group.most_per_node ? in_node : group.most_per_node;
        }
        node = rank / per_node;
        in_node = 1;
    }
    return group;
}

// Does a block of dp_count neighbouring data-parallel ranks begin with this rank?
static bool begins_block(const sp_layout *layout, int dp_count, int64_t rank)
{
    int64_t dp = rank / sp_layout_stride(layout, SP_AXIS_DP) % layout->dp;
    return rank / sp_layout_stride(layout, SP_AXIS_CP) % layout->cp == 0 && dp % dp_count == 0 &&
           dp + dp_count <= layout->dp;
}

// The worst of all such blocks, p being one of them.
static sp_group worst_joint(const sp_cluster *cluster, const sp_layout *layout, int dp_count,
                            progression p, every part)
{
    int64_t span = part.step * part.count; // members in which each part of them begins once
    if (part.count == 1) {
        return (sp_group){1, 1, 1, 1};
    }
    sp_group worst = count_members(0, p, 0, part, cluster->gpus_per_node);
    for (int64_t first = 0; first < sp_layout_ranks(layout); first++) {
        if (!begins_block(layout, dp_count, first)) {
            continue;
        }
        for (int64_t i = 0; i < p.size * p.times; i++) {
            if (i % span < part.step) {
                sp_group group = count_members(first, p, i, part, cluster->gpus_per_node);
                worst = is_worse(&group, &worst) ? group : worst;
            }
        }
    }
    return worst;
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

// Ranks of one pipeline rank lie at block*span + pp_rank*stride + j with j < stride; where they and
// their peers lie follows from block and j modulo the node size.
int sp_cluster_pp_crosses_node(const sp_cluster *cluster, const sp_layout *layout, int pp_rank)
{
    int64_t per_node = cluster->gpus_per_node;
    int64_t stride = sp_layout_stride(layout, SP_AXIS_PP);
    int64_t span = stride * layout->pp;
    int64_t blocks = sp_layout_ranks(layout) / span;
    int64_t period = per_node / sp_gcd(span, per_node);
    int64_t peers = stride < per_node ? stride : per_node;
    for (int64_t block = 0; block < blocks && block < period; block++) {
        int64_t here = block * span + pp_rank * stride;
        int64_t there = block * span + (pp_rank + 1) % layout->pp * stride;
        for (int64_t j = 0; j < peers; j++) {
            if ((here + j) / per_node != (there + j) / per_node) {
                return 1;
            }
        }
    }
    return 0;
}
