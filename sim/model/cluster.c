#include "sim/model/cluster.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/model/settings.h"

// ---- settings ----

static double nic_for_each_gpu(const void *owner)
{
    const sp_cluster *cluster = owner;
    return cluster->nics_per_node > 0 ? cluster->nics_per_node : cluster->gpus_per_node;
}

static double rail_for_each_nic(const void *owner)
{
    const sp_cluster *cluster = owner;
    return cluster->fabric.rails > 0 ? cluster->fabric.rails : cluster->nics_per_node;
}

// The built-in cluster of the name has NVLS as this one does, or there is none of the name.
static bool has_unusual_nvls(const void *owner)
{
    const sp_cluster *cluster = owner;
    sp_cluster named;
    bool usual = sp_cluster_builtin(cluster->name, &named, NULL) == SP_OK && named.nvls;
    return cluster->nvls != usual;
}

// No built-in cluster states a latency. The row's field is `s` of an sp_stated_latency.
static void read_latency(sp_object *section, const sp_setting *row, void *owner, void *context)
{
    const char *key = sp_setting_leaf(row->key);
    sp_stated_latency *latency =
        (sp_stated_latency *)((char *)owner + row->offset - offsetof(sp_stated_latency, s));
    (void)context;
    latency->given = sp_object_has(section, key);
    sp_setting_read_key(section, sp_cluster_settings, key, owner);
}

static bool states_nvlink_latency(const void *owner)
{
    return ((const sp_cluster *)owner)->nvlink_latency.given;
}

static bool states_nic_latency(const void *owner)
{
    return ((const sp_cluster *)owner)->nic_latency.given;
}

// clang-format off
static const sp_setting cluster_rows[] = {
    {.key = "cluster", .type = "a name, a path or an object", .name_at = sp_cluster_builtin_name,
     .fallback = "that of the profile, else \"h100-8\"",
     .text = "GPUs and links: a built-in name, or an object (cluster.*), or the path of a file "
             "with one, that changes the built-in cluster of its name or describes another one."},
    {.key = "cluster.name", SP_TEXT, SP_FIELD(sp_cluster, name), .read_elsewhere = true,
     .fallback = "\"custom\"",
     .text = "Name; that of a built-in cluster gives what the object does not state."},
    {.key = "cluster.gpu", SP_TEXT, SP_FIELD(sp_cluster, gpu), .fallback = "\"GPU\"",
     .text = "What the GPU is called in reports. Over a built-in cluster the name of another GPU "
             "needs peak_tflops beside it."},
    {.key = "cluster.profile", SP_TEXT, SP_FIELD(sp_cluster, profile), .fallback = "none",
     .text = "The profile that is taken where the scenario names none."},
    {.key = "cluster.peak_tflops", SP_REAL(1e-3, 1e9), SP_FIELD(sp_cluster, peak_flops_per_s),
     .unit = 1e12, .required = true,
     .fallback = "that of the built-in cluster, else it must be given",
     .text = "Peak of one GPU with dense bf16 products, in TFLOP/s. MFU refers to it, and the "
             "profile's rates of products and attention go with it: on a GPU of half the peak of "
             "the one that the profile is of they take twice as long."},
    {.key = "cluster.memory_gib", SP_REAL(1e-3, 1e9), SP_FIELD(sp_cluster, memory_bytes),
     .unit = SP_GIB, .required = true,
     .fallback = "that of the built-in cluster, else it must be given",
     .text = "Memory of one GPU, in GiB."},
    {.key = "cluster.hbm_gb_per_s", SP_REAL(1e-3, 1e9), SP_FIELD(sp_cluster, hbm_bytes_per_s),
     .unit = 1e9, .required = true,
     .fallback = "that of the built-in cluster, else it must be given",
     .text = "Bandwidth of that memory, in GB/s. Memory-bound work of the profile goes with it as "
             "products go with peak_tflops."},
    {.key = "cluster.gpus_per_node", SP_INT(1, SP_I_MAX_GPUS_PER_NODE),
     SP_FIELD(sp_cluster, gpus_per_node), .usual = 8,
     .fallback = "that of the built-in cluster, else 8", .text = "GPUs of a node.",
     .aliases = "num_gpus_per_node nproc_per_node"},
    {.key = "cluster.nvlink_gb_per_s", SP_REAL(1e-3, 1e9), SP_FIELD(sp_cluster, nvlink_bytes_per_s),
     .unit = 1e9, .required = true,
     .fallback = "that of the built-in cluster, else it must be given",
     .text = "NVLink bandwidth of one GPU in one direction, in GB/s. The profile's rates inside a "
             "node (NVLink's, sends between stages, collectives) go with it: on a cluster that has "
             "half of what it had where they were measured, what is beyond the latency takes twice "
             "as long."},
    {.key = "cluster.nvls", SP_SWITCH, SP_FIELD(sp_cluster, nvls), .is_written = has_unusual_nvls,
     .fallback = "that of the built-in cluster, else false",
     .text = "The NVSwitches of a node add up and copy what passes them (NVLink SHARP, NCCL's "
             "NVLS): those of H100, H800, H200, B200 and GB200, not of A100 and A800. For "
             "network.collectives nvls and auto.", .aliases = "nvlink_sharp"},
    {.key = "cluster.nics_per_node", SP_INT(1, SP_I_MAX_GPUS_PER_NODE),
     SP_FIELD(sp_cluster, nics_per_node), .derive = nic_for_each_gpu,
     .fallback = "that of the built-in cluster, else one for each GPU",
     .text = "Network cards of a node, which its GPUs share: evenly by the formulas; with flows "
             "each GPU uses one card, of which GPUs have less where the cards do not divide "
             "them."},
    {.key = "cluster.nic_gbit_per_s", SP_REAL(1e-3, 1e9), SP_FIELD(sp_cluster, nic_bytes_per_s),
     .unit = 1e9 / 8.0, .required = true,
     .fallback = "that of the built-in cluster, else it must be given",
     .text = "Line rate of one network card, in Gbit/s."},
    {.key = "cluster.host_link_gb_per_s", SP_REAL(1e-3, 1e9),
     SP_FIELD(sp_cluster, host_link_bytes_per_s), .unit = 1e9, .usual = 25,
     .fallback = "that of the built-in cluster, else 25 (PCIe 4.0 x16)",
     .text = "Copies between one GPU and its host in one direction, in GB/s; offloading uses it, "
             "and with network.detail flows what goes to other nodes."},
    {.key = "cluster.host_link_latency_us", SP_REAL(0, 1e6),
     SP_FIELD(sp_cluster, host_link_latency_s), .unit = 1e-6, .if_changed = true,
     .text = "Latency of a copy between a GPU and its host, in microseconds; with network.detail "
             "flows also of each end of a way to another node, beyond nic_latency_us."},
    {.key = "cluster.host_adam_gb_per_s", SP_REAL(0, 1e9),
     SP_FIELD(sp_cluster, host_adam_bytes_per_s), .unit = 1e9, .if_changed = true,
     .text = "Memory traffic of Adam on the CPUs of a node, in GB/s, which its GPUs share, with "
             "memory.offload_states; 0: 120, which is assumed."},
    {.key = "cluster.nvlink_latency_us", SP_REAL(0, 1e6), SP_FIELD(sp_cluster, nvlink_latency.s),
     .unit = 1e-6, .read = read_latency, .is_written = states_nvlink_latency,
     .fallback = "the profile's",
     .text = "Latency of NVLink, in microseconds: of a send inside a node, of a step of a ring. "
             "Collectives with times in the profile keep theirs."},
    {.key = "cluster.nic_latency_us", SP_REAL(0, 1e6), SP_FIELD(sp_cluster, nic_latency.s),
     .unit = 1e-6, .read = read_latency, .is_written = states_nic_latency,
     .fallback = "the profile's",
     .text = "Latency of a way from node to node over one leaf switch, in microseconds: of a send, "
             "of a step of a ring or a level of a tree."},
    {.key = "cluster.source", SP_TEXT, SP_FIELD(sp_cluster, source), .fallback = "none",
     .text = "Where the figures come from, for reports."},
    {.key = "cluster.fabric", .kind = SP_SETTING_OBJECT, SP_FIELD(sp_cluster, fabric.given),
     .fallback = "that of the built-in cluster",
     .text = "How the network cards of the nodes are joined (cluster.fabric.*). Transfers that "
             "share links as flows need it (network.detail), and the times of data-parallel ranks "
             "by network.collectives; other closed formulas do not."},
    {.key = "cluster.fabric.rails", SP_INT(1, SP_I_MAX_GPUS_PER_NODE),
     SP_FIELD(sp_cluster, fabric.rails), .derive = rail_for_each_nic,
     .fallback = "that of the built-in cluster, else one for each network card",
     .text = "Rails of the network: card i of every node is on rail i modulo rails, and a leaf "
             "switch joins cards of one rail. With 1 all cards of a node are at one leaf switch."},
    {.key = "cluster.fabric.nodes_per_leaf", SP_INT(0, SP_I_MAX_NODES),
     SP_FIELD(sp_cluster, fabric.nodes_per_leaf),
     .fallback = "that of the built-in cluster, else 0: all",
     .text = "Nodes that a leaf switch joins; the way to other nodes goes over the spine."},
    {.key = "cluster.fabric.oversubscription", SP_REAL(0.001, 1000),
     SP_FIELD(sp_cluster, fabric.oversubscription), .usual = 1,
     .fallback = "that of the built-in cluster, else 1",
     .text = "Rate of a leaf switch's network cards over that of its links to the spine."},
    {.key = "cluster.fabric.spine_latency_us", SP_REAL(0, 1e6),
     SP_FIELD(sp_cluster, fabric.spine_latency_s), .unit = 1e-6,
     .text = "Latency of a way over the spine beyond that of one over a leaf switch, in "
             "microseconds."},
    {.key = "cluster.fabric.nic_affinity", SP_ONE_OF(sp_nic_affinity_names),
     SP_FIELD(sp_cluster, fabric.nic_affinity),
     .text = "Which GPUs share a network card, where there are fewer cards: neighbours, or every "
             "n-th."},
    {.key = "cluster.fabric.pxn", SP_SWITCH, SP_FIELD(sp_cluster, fabric.pxn), .usual = true,
     .text = "Whether a GPU that sends to another rail does so by NVLink and the card of a GPU of "
             "its node on that rail, as NCCL's PXN does, in place of the spine."},
    {.key = "cluster.nodes", SP_INT(0, SP_I_MAX_NODES), SP_FIELD(sp_cluster, nodes),
     .unwritten = true, .fallback = "0: as many as the ranks need",
     .text = "Nodes, as the setting nodes of the scenario."},
};
// clang-format on

const sp_setting_table sp_cluster_settings = SP_SETTING_TABLE("cluster", cluster_rows);

// ---- clusters ----

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
    {"h100-500w-8", "H100", "h100-500w", 989.4e12, INT64_C(95) << 30, RESERVE, 2.4e12, 8, 0, 450e9,
     8, 400 * GBIT_PER_S, PCIE_5,
     "H100 of 96 GB HBM2e limited to 500 W: pytorch/torchtitan, docs/performance.md; 8 x 400 Gb/s "
     "a node",
     .fabric = FABRIC(8, 32), .nvls = true},
    {"h200-8", "H200", "h200", 989.4e12, H200_BYTES, RESERVE, 4.8e12, 8, 0, 450e9, 8,
     400 * GBIT_PER_S, PCIE_5,
     "NVIDIA H200 SXM data sheet; 8 x 400 Gb/s a node: Zeppelin cluster C, arXiv 2509.21841",
     .fabric = FABRIC(8, 0), .nvls = true},
    {"b200-8", "B200", "b200", 2250e12, INT64_C(180) << 30, RESERVE, 8.0e12, 8, 0, 900e9, 8,
     400 * GBIT_PER_S, PCIE_5,
     "NVIDIA HGX B200 data sheet: 180 GB of HBM3e, NVLink 5; 8 x 400 Gb/s a node as in DGX B200",
     .fabric = FABRIC(8, 32), .nvls = true},
    // A rack is one NVLink domain and counts as one node, of which jobs take 64 of the 72 GPUs, so
    // that no group of a power of two lies in two domains (NVIDIA/dgxc-benchmarking, GB200 recipes:
    // 128, 256, 512 GPUs); a compute tray has 4 GPUs, a NIC and a rail for each. A scalable unit of
    // DGX SuperPOD has 8 racks.
    {"gb200-nvl72", "GB200", "gb200", 2500e12, GB200_BYTES, RESERVE, 8.0e12, 64, 0, 900e9, 64,
     400 * GBIT_PER_S, C2C,
     "NVIDIA GB200 NVL72 data sheet, 64 of its 72 GPUs; a NIC of 400 Gb/s each as in DGX GB200",
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

static const char *hint_of(const char *name, char hint[SP_NAME_HINT])
{
    const char *names[BUILTINS];
    for (int i = 0; i < BUILTINS; i++) {
        names[i] = builtin[i].name;
    }
    return sp_name_hint(name, names, BUILTINS, hint);
}

sp_status sp_cluster_builtin(const char *name, sp_cluster *cluster, sp_error *err)
{
    const sp_cluster *found = find(name);
    if (found != NULL) {
        *cluster = *found;
        return SP_OK;
    }
    char hint[SP_NAME_HINT];
    return sp_error_set(err, SP_ERR_CONTENT, "unknown cluster '%.64s'%s", name,
                        hint_of(name, hint));
}

// A cluster of another name states its figures; where it states none a built-in one is meant.
static void refuse_unknown_name(sp_object *object)
{
    char hint[SP_NAME_HINT];
    const char *name = sp_object_string(object, "name", NULL);
    if (name == NULL || sp_object_has(object, "peak_tflops") ||
        sp_object_has(object, "memory_gib")) {
        return;
    }
    sp_object_error(object, "name", "is '%.64s', no built-in cluster%s, and no figures are stated",
                    name, hint_of(name, hint));
}

// The name of a GPU brings none of its rates.
static void check_gpu(sp_object *object, const sp_cluster *base, const sp_cluster *cluster)
{
    sp_cluster other;
    if (strstr(cluster->gpu, base->gpu) == NULL && !sp_same_name(cluster->gpu, base->gpu) &&
        !sp_object_has(object, "peak_tflops")) {
        bool known = sp_cluster_of_gpu(cluster->gpu, &other);
        sp_object_error(
            object, "gpu",
            "'%.64s' is a name alone, the rates of cluster %s are those of %s: expected "
            "%s%s%speak_tflops and the others beside it",
            cluster->gpu, base->name, base->gpu, known ? "cluster " : "", known ? other.name : "",
            known ? ", or " : "");
    }
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
        refuse_unknown_name(object);
    }
    sp_settings_read(object, sp_cluster_settings, cluster, NULL);
    if (base != NULL) {
        check_gpu(object, base, cluster);
    }
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
                           "%d nodes of %d GPUs are filled by %lld ranks, but tp*cp*pp*dp is %lld: "
                           "without parallel.dp, or without nodes, the other follows",
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

// The worst group of context-parallel ranks of dp_count neighbouring data-parallel ranks.
static sp_group joint_group(const sp_cluster *cluster, const sp_layout *layout, int dp_count)
{
    progression p = over_two(layout, SP_AXIS_CP, SP_AXIS_DP, dp_count);
    return p.times > 1 ? worst_joint(cluster, layout, dp_count, p, (every){1, p.size * p.times})
                       : worst_group(cluster, layout, p);
}

// Neighbours in steps of their own, but for those that hold the same experts where pipeline ranks
// lie between data-parallel ranks (layout.c, groups_experts).
static sp_group expert_group(const sp_cluster *cluster, const sp_layout *layout,
                             sp_dimension dimension)
{
    int64_t etp = sp_layout_etp(layout);
    int64_t ep = sp_layout_ep(layout);
    if (dimension != SP_DIM_EDP) {
        int64_t step = dimension == SP_DIM_EP ? etp : 1;
        int64_t size = dimension == SP_DIM_EP ? ep : dimension == SP_DIM_ETP ? etp : etp * ep;
        return worst_group(cluster, layout, (progression){step, size, 0, 1});
    }
    if (!sp_layout_dispatches(layout)) {
        return joint_group(cluster, layout, layout->dp);
    }
    int64_t block = (int64_t)layout->tp * layout->cp;
    progression p = {etp * ep, sp_layout_expert_replicas(layout), 0, 1};
    p.stride = etp * ep == block ? sp_layout_stride(layout, SP_AXIS_DP) : p.stride;
    return worst_group(cluster, layout, p);
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
    case SP_DIM_EP:
    case SP_DIM_ETP:
    case SP_DIM_ETP_EP:
    case SP_DIM_EDP:
        return expert_group(cluster, layout, dimension);
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

double sp_cluster_host_adam_share(const sp_cluster *cluster, int64_t ranks)
{
    double rate = cluster->host_adam_bytes_per_s > 0.0 ? cluster->host_adam_bytes_per_s
                                                       : SP_HOST_ADAM_BYTES_PER_S;
    int64_t beside = ranks < cluster->gpus_per_node ? ranks : cluster->gpus_per_node;
    return rate / (double)(beside > 0 ? beside : 1);
}
