// Operator profiles: measured, published, fitted or assumed rates of one GPU and its links, read
// from JSON (schema slimpack/profile/1; the format is described in profiles/README.md).
#ifndef SLIMPACK_SIM_COST_PROFILE_H
#define SLIMPACK_SIM_COST_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/status.h"
#include "sim/cost/error_record.h"
#include "sim/model/cluster.h"
#include "sim/model/stack.h"
#include "sim/network/collective.h"
#include "sim/network/topology.h"

// How good a number is, from best to weakest; a result repeats the weakest it used.
typedef enum sp_level {
    SP_LEVEL_MEASURED,
    SP_LEVEL_PUBLISHED,
    SP_LEVEL_FITTED,
    SP_LEVEL_ASSUMED
} sp_level;

extern const char *const sp_level_names[]; // "measured", "published", "fitted", "assumed", NULL

// y over x by points with ascending x, interpolated in log x and log y; outside the points the
// value is what the user of the curve says (op_time.h) and the use is noted as uncalibrated.
typedef struct sp_curve {
    double *x, *y; // in one block, which x owns
    double *slope; // of log y over log x, from point i to i+1
    int points;    // 0: no table
    sp_level level;
    char source[480];
} sp_curve;

enum {
    SP_PROFILE_NAME = 64,
    SP_PROFILE_STACKS = 8,
    SP_GEMM_TABLES = 64,
    SP_GEMM_TILES = 8,
    SP_COLLECTIVE_TABLES = 32
};

// The pairs of an attention call: under a causal mask, all, or all in a call of its own.
typedef enum sp_pairs { SP_PAIRS_CAUSAL, SP_PAIRS_FULL, SP_PAIRS_BLOCK, SP_PAIRS } sp_pairs;

// Times of one GEMM shape family: fixed n and k, by m (tokens). Filled by `calibrate`; used before
// the rate curve where n and k match.
typedef struct sp_gemm_table {
    int64_t n, k;
    bool weight_gradient; // of nothing else; without such a table the other one of n, k serves
    sp_curve time_s;      // x = m, y = seconds
} sp_gemm_table;

// Times of one collective over a group of so many ranks inside a node, by the bytes of the whole
// tensor. Filled by `calibrate`; used before every other model of collectives.
typedef struct sp_collective_table {
    sp_collective kind;
    int ranks;
    sp_curve time_s; // x = bytes, y = seconds
} sp_collective_table;

// GEMMs by the tiles and waves that a GPU runs them in, in place of a rate curve: with c matrices
// of m x n x k, the least over the tiles of ceil(c*ceil(m/tile.m)*ceil(n/tile.n) / sms)*sms tiles
// of 2*tile.m*tile.n*k / efficiency FLOPs, at flops_per_s / (1 + half_rate_k / k).
typedef struct sp_gemm_model {
    double flops_per_s; // asymptotic rate; 0: no model
    double half_rate_k;
    // The share of the rate that is left where stored rows have a number of elements that is no
    // multiple of 8 (16 bytes of bf16, to which a tensor core's copies are aligned); 0: all of it.
    double unaligned_share;
    double fixed_s; // of each GEMM
    int sms;        // 0: work is 2*m*n*k, without tiles
    struct {
        int m, n;
        double efficiency; // rate over that of the best tile
    } tiles[SP_GEMM_TILES];
    int tile_count;
    sp_level level;
} sp_gemm_model;

// The products of a rank's experts in one launch, beside gemm_model: each expert's rows cost what
// so many more would at the dense rate, which is then reached by the share r / (r + half_rows).
typedef struct sp_grouped_model {
    double half_rows; // 0: one product after another
    sp_level level;
} sp_grouped_model;

// Products of FP8 matrices, beside the tiles of gemm_model: at flops_per_s / (1 + half_rate_k / k).
typedef struct sp_fp8_model {
    double flops_per_s; // 0: the GPU has none, or nobody states them
    double half_rate_k;
    double half_rows;   // of experts in one launch, as in sp_grouped_model; 0: those of BF16
    double block_share; // of flops_per_s where blocks have scales of their own; 0: all of it
    bool transposes;    // both operands are read along k (Hopper)
    bool is_used;       // by the scenario, so that the level counts
    sp_level level;
} sp_fp8_model;

// Attention that runs at a share of the curves of attention.
typedef struct sp_attention_shares {
    double forward_share, backward_share; // 0: not stated
    bool is_used;                         // by the scenario
    sp_level level;
} sp_attention_shares;

// The launching process beside the GPU: a pass takes (gpu^q + host^q)^(1/q) of the two sums.
typedef struct sp_host_model {
    double layer_s; // launches of one layer: a quarter for the forward, half for the backward, a
                    // quarter for a whole forward that runs again
    double expert_layer_s; // more of a layer with experts, in the same quarters
    double tp_growth;      // more of both for each doubling of TP
    double softmax_s;      // more for each unfused softmax's forward; half of it backward
    double tp_rank_s;      // more of a layer for each TP rank, with TP and a pipeline across nodes
    double cp_step_s; // more of a layer for each step of a ring over CP ranks, of which there are
                      // as many: half in the forward, half in the input gradient
    double head_s;    // of a pack: 0.2 embedding forward, 0.4 head forward, 0.4 head backward
    double overlap_power; // q; 0: the larger of the two
    double unit_s;        // added to each unit (pack on a chunk): half forward, half backward
    double iteration_s;   // added to each step
    sp_level level;
} sp_host_model;

// Operators lose this to each other and to other ranks; 0: nothing.
typedef struct sp_interference_model {
    double overlap_share;  // of a collective's time behind computation: what that takes longer,
                           // because the collective holds SMs and memory bandwidth
    double doubling_share; // of all computation, for each doubling of the nodes: the slowest of the
                           // ranks sets the pace
    double tight_microbatch_s; // that a rank waits in each micro-batch for an allocator that frees
                               // and takes blocks at the limit of its memory
    sp_level level;
} sp_interference_model;

// The host adds this to a call of a target that verifies a tree of drafted tokens.
typedef struct sp_decode_model {
    double call_s;       // of every call: ranks the tree, builds its mask, moves what was accepted
    double graph_miss_s; // more where the call's shape has no captured graph
    // Seconds that each kernel or product of a captured graph takes beside its work, in place of
    // kernel_s, gemm_model.fixed_s and the tile model's whole waves: products of few rows are split
    // over k. 0: these three hold.
    double kernel_s;
    sp_level level;
    char source[480];
} sp_decode_model;

// Score traffic of the unfused attention: bytes times factor * (keys / from)^growth, the keys held
// within [1, to].
typedef struct sp_score_model {
    double factor; // 0: as counted
    double growth, from_keys, to_keys;
    sp_level level;
} sp_score_model;

// All-reduces inside a node by group size n: latency + doubling * log2(n) + 2(n-1)/n * bytes /
// rate. Gathers and scatters take half of it. Between nodes between_s replaces the ring's steps.
typedef struct sp_group_model {
    double latency_s, doubling_s, between_s;
    sp_curve bytes_per_s; // over n; no points: no model
} sp_group_model;

typedef struct sp_profile {
    char name[SP_PROFILE_NAME];
    char gpu[SP_CLUSTER_NAME];
    // Peaks of the GPU that the rates were reached on, by its data sheet; 0: not stated and, after
    // sp_profile_join, not known.
    double peak_flops_per_s, hbm_bytes_per_s;
    double compute_scale, memory_scale; // by which sp_profile_join multiplied rates; 0: by nothing
    sp_stack stack; // software that the numbers hold for; name "" where none is stated
    // Profiles of the GPU under other software, which a scenario that states such a stack gets;
    // this one itself where its numbers hold for that software, too.
    struct {
        char stack[SP_PROFILE_NAME], profile[SP_PROFILE_NAME];
    } for_stack[SP_PROFILE_STACKS];
    int for_stacks;
    // The profile whose FP8 rates, and errors of steps in FP8, are this one's; "": its own.
    char for_fp8[SP_PROFILE_NAME];
    // The one of them for the scenario's stack, where the scenario states this profile all the
    // same.
    char of_stack[SP_PROFILE_NAME];
    // A constant that is not what the document's own fit states; its errors were dropped. "": none.
    char changed[SP_PROFILE_NAME];
    bool has_cluster;
    sp_cluster cluster; // where the profile carries one
    // GEMM rate in FLOP/s over the edge of the equivalent cube, cbrt(m*n*k).
    sp_curve gemm_rate;
    sp_gemm_model gemm_model;
    sp_grouped_model grouped;
    sp_fp8_model fp8;
    sp_attention_shares
        latent; // heads that are wider in keys than in values; not stated: all of it
    sp_attention_shares flash_2; // FlashAttention-2's kernels (stack.flash_attention_2)
    sp_gemm_table gemm[SP_GEMM_TABLES];
    int gemm_tables;
    // Attention rates in FLOP/s (causal counts half the square) over the sequence length.
    sp_curve attention[2][SP_PAIRS]; // forward, backward
    double memory_bytes_per_s; // reached by copies and by products that memory bounds, read plus
                               // write
    double kernel_share;       // of it that element-wise kernels reach in a step; 0: all
    sp_level memory_level;
    double kernel_s; // time of an empty kernel in a stream: the floor of each launch
    sp_level kernel_level;
    // Collectives inside a node, full group of a node: bus bandwidth in bytes/s over message bytes
    // (NCCL's definition: algorithm bytes times 2(n-1)/n for all-reduce, (n-1)/n for the others).
    sp_curve collective[SP_COLLECTIVES];
    sp_collective_table collective_times[SP_COLLECTIVE_TABLES];
    int collective_tables;
    // Alpha-beta constants where there is no table, and between nodes.
    double nvlink_bytes_per_s, nvlink_latency_s; // reached, one direction, one GPU; per step
    double nvlink_nominal_bytes_per_s;           // of the data sheet, where that was reached; 0:
                                                 // not stated (sp_profile_join)
    double nic_efficiency, nic_latency_s;        // share of the line rate; per step
    sp_level link_level;
    // Transfers between pipeline ranks inside a node; by default as NVLink's.
    double p2p_bytes_per_s, p2p_latency_s;
    sp_group_model groups;
    sp_collective_algorithm algorithm; // a scenario's choice; no profile states one
    sp_host_model host;
    sp_interference_model interference;
    sp_decode_model decode;
    sp_score_model scores;
    double loss_bytes_per_logit; // forward and backward, halves; 0: as counted
    sp_level loss_level;
    double optimizer_bytes_per_parameter; // traffic of one optimizer step
    double reference_s;     // of the backend's reference work when it was calibrated; 0: not stated
    double reference_drift; // largest less smallest time of it in the meantime, over reference_s
    int fitted_constants;   // that the profile says were fitted
    sp_error_records errors; // on logged steps that no fit had seen
} sp_profile;

enum { SP_PROFILE_PATH = 4096 }; // bytes of a profile's file name: as long as Linux opens any

// Is it the path of a profile? It has a slash in it or ends in ".json"; else it is a name.
bool sp_profile_is_path(const char *name);
// Reads a profile by its name or path. Names are looked up in $SLIMPACK_PROFILE_PATH
// (colon-separated), then in the program's own folders (sim/base/data_folder.h).
sp_status sp_profile_load(const char *name, sp_profile *profile, sp_error *err);
// The document that sp_profile_load reads, unchecked, and the name of its file. The caller owns the
// document; NULL after an error.
sp_status sp_profile_document(const char *name, json_t **root, char file[SP_PROFILE_PATH],
                              sp_error *err);
// Calls `visit` with the name of each profile that can be found by name, in alphabetical order.
sp_status sp_profile_each_name(void (*visit)(void *context, const char *name), void *context,
                               sp_error *err);
// From a parsed document.
sp_status sp_profile_from_json(const json_t *root, const char *source, sp_profile *profile,
                               sp_error *err);
// Makes the rates those of the cluster's GPUs. Products and attention go with the peak of the
// cluster's GPU over that of the GPU which the profile is of, memory-bound work with the bandwidth
// of its memory over that one's; launches, fixed times and the host's stay. The profile's GPU is
// the one whose peak_flops_per_s and hbm_bytes_per_s it states, else that of its own cluster, else
// that of the built-in cluster of this name where the profile is that cluster's or describes its
// GPU, else of the first built-in cluster of the GPU that the profile describes or that uses it by
// name, else of the built-in cluster of this name; where none says it, rates stay.
//
// Makes the rates inside a node those of the cluster, too: what takes longer than the latency
// (NVLink's rate, sends between pipeline ranks, all collectives inside a node) takes the less, the
// more NVLink has there over what it has where the profile was measured. That is the profile's
// nvlink_nominal_bytes_per_s, else that of its own cluster, else of the first built-in cluster that
// uses the profile by its name; where none says it, and where both are the same, nothing changes.
// Rates that were changed are assumed. A cluster of which nothing is known (rate 0) changes
// nothing. Latencies that the cluster states take the place of the profile's, but for those within
// measured times of collectives. A second time nothing changes.
void sp_profile_join(sp_profile *profile, const sp_cluster *cluster);
enum { SP_PROFILE_LINES = 5, SP_PROFILE_LINE = 320 };
// Says where a profile that was joined to a cluster, under a stack, does not hold as it is: another
// GPU, constants that are not the fit's, rates that were scaled, other software. Returns the number
// of lines.
int sp_profile_lines(const sp_profile *profile, const sp_cluster *cluster, const sp_stack *stack,
                     char lines[SP_PROFILE_LINES][SP_PROFILE_LINE]);
// A copy that owns its tables.
void sp_profile_copy(const sp_profile *from, sp_profile *to);
void sp_profile_fini(sp_profile *profile);

// The weakest level among the tables of the profile.
sp_level sp_profile_level(const sp_profile *profile);

// The rates that links reach by the profile.
sp_link_rates sp_profile_link_rates(const sp_profile *profile);

#endif
