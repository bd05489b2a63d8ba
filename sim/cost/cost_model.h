// From model, layout, cluster and profile to the costs of a packing's actions.
#ifndef SLIMPACK_SIM_COST_COST_MODEL_H
#define SLIMPACK_SIM_COST_COST_MODEL_H

#include "sim/cost/op_time.h"
#include "sim/cost/step_costs.h"
#include "sim/memory/footprint.h"
#include "sim/model/cluster.h"
#include "sim/model/layout.h"
#include "sim/model/model.h"

// Seconds that no packing gets below on a virtual stage, without data-parallel ranks merged: a
// sample of n tokens takes n * token + n*n * square in all, each slice its part of that, and each
// pack the fixed time besides. Slope 0 is pure work: every operator at its own best rate. No size
// of pack is best for all of them: slope 1 has the least time per token of packs of any size (of up
// to 2^24 tokens on a rank). A pack of few tokens takes longer, which a lower time per token and a
// higher fixed time say: the next slopes.
enum { SP_LEAST_SLOPES = 5 };

typedef struct sp_least_work {
    double f_token_s, f_square_s;
    double b_token_s, b_square_s; // whole backward, with what is recomputed
    double i_token_s, i_square_s; // a whole backward without weight gradients
    double f_pack_s, b_pack_s, i_pack_s;
    // Attention of layers that see a window or a chunk stands in none of these, but here: forward
    // and whole backward by kind of layer, for twice the pairs of a sample (sp_sample_sums).
    double seen_s[SP_LAYER_KINDS];
} sp_least_work;

// Sums over samples that their least work follows from.
typedef struct sp_sample_sums {
    double tokens, squares;
    double seen[SP_LAYER_KINDS]; // twice the pairs of a layer of the kind that does not see all
} sp_sample_sums;

void sp_sample_sums_add(sp_sample_sums *sums, const sp_model *model, int64_t tokens);
// Seconds of their forward and whole backward, without what packs take.
double sp_least_work_s(const sp_least_work *least, const sp_sample_sums *sums);

// The least work by size: beside the work of slope 1, a pack of up to so many tokens takes the
// fixed time at least. Sizes double; the fixed time falls with them, since it is the least of all
// packs up to that size.
enum { SP_LEAST_SIZES = 14 };

typedef struct sp_least_size {
    double tokens;
    double f_pack_s, b_pack_s, i_pack_s;
} sp_least_size;

// Everything referenced must outlive the cost model.
typedef struct sp_cost_model {
    const sp_model *model;
    const sp_layout *layout;
    const sp_cluster *cluster;
    const sp_profile *profile;
    sp_memory_options memory;
    const char *source;    // of the scenario, for messages
    sp_stage *stages;      // [pp*chunks], owned
    sp_stage *class_stage; // [classes], at most one per virtual stage; owned
    int classes;
    int *class_of_vstage; // [pp*chunks], owned
    // Behind those of stages, where pipeline ranks share a vocabulary: an embedding's share, a
    // head's and stages without shares (step_costs.h).
    int stage_classes;
    int *memory_class_of_vstage;        // [pp*chunks], owned; NULL: no shares
    struct sp_i_pack_timer *packs;      // inventories and what was computed of them, owned
    struct sp_expert_load *load;        // of ranks that share experts, owned; NULL: even
    struct sp_least_work *least;        // [slope * classes + class], and whole work behind; owned
    struct sp_least_size *sizes;        // [class * SP_LEAST_SIZES + size], owned
    struct sp_i_size_times *tried;      // times of packs of many sizes, owned (least_work.c)
    struct sp_expert_exchange *experts; // of virtual stages (step_costs.h), owned; NULL: none
    struct sp_i_spine_lines *spine; // of data-parallel ranks, owned; NULL: nothing can slow them
    bool pipeline_crosses_nodes;
    double maxima_s; // in which all replicas agree on scales of FP8, after a forward and a backward
    bool approximate;          // sp_cost_model_interpolate
    double slowest_rank;       // time of computation on it over that of a rank alone
    struct sp_least_work work; // of all virtual stages: its sums of forward and backward alone
    double limit_token_s, limit_pair2_s; // sp_cost_model_limit_s
    sp_uncalibrated uncalibrated;        // filled as costs are asked for
    // sp_cost_model_searching hands this out first, with the next in it; owned, NULL: none yet.
    struct sp_cost_model *searching;
} sp_cost_model;

sp_status sp_cost_model_init(sp_cost_model *cost, const sp_model *model, const sp_layout *layout,
                             const sp_cluster *cluster, const sp_profile *profile,
                             sp_memory_options memory, const char *source, sp_error *err);
void sp_cost_model_fini(sp_cost_model *cost);

// From now on times of packs are approximate, within about 0.1 %, and are found several times as
// fast: for searches that price many packs which are only tried.
void sp_cost_model_interpolate(sp_cost_model *cost);

// Cost model `index` of the same scenario for such a search, which lives as long as this one and
// keeps what it has priced: one for each thread.
sp_status sp_cost_model_searching(sp_cost_model *cost, int index, sp_cost_model **searching,
                                  sp_error *err);

// Costs of every pack on every stage class, transfers, the optimizer epilogue and memory. O(slices
// + packs * classes). SP_ERR_CONTENT where the layout's CP sharding does not go with packs that are
// regrouped for the backward.
sp_status sp_cost_model_build(sp_cost_model *cost, const sp_packing *packing, sp_step_costs *costs,
                              sp_error *err);

// Work of one whole sample alone (forward plus full backward, all layers and head of one TP x CP
// group, summed over the pipeline) without per-pack fixed cost, in seconds: what no packing or
// schedule can save. Used for the `gap_work` bound.
double sp_cost_model_sample_work_s(sp_cost_model *cost, int64_t tokens);

// GPU seconds that no layout, packing or schedule can save: all products and the attention of so
// many trained tokens and twice their (query, key) pairs, forward and backward, at the best rate
// that the profile has for any of them. Nothing else counts: no kernel that memory bounds, no
// exchange, no padding, nothing twice. Spread over all GPUs it is at most the pure work of slope 0.
double sp_cost_model_limit_s(const sp_cost_model *cost, double tokens, double pairs2);

// The least work of one virtual stage; of slope 0 all that its packs are, on whatever ranks their
// experts do it. The first call for a class of stages with a slope above 0,
// or for sizes, tries some thousand sizes of packs.
const sp_least_work *sp_cost_model_least_work(sp_cost_model *cost, int vstage, int slope);
// A pack needs this on its way through one virtual stage: where pipeline ranks share a vocabulary,
// an embedding on the first alone and a head on the last. The other ranks' shares of both run
// beside those, in a pack's way once.
const sp_least_work *sp_cost_model_least_passage(sp_cost_model *cost, int vstage, int slope);
// The sizes of a pack on its way through one virtual stage, [SP_LEAST_SIZES], tokens ascending.
const sp_least_size *sp_cost_model_least_sizes(sp_cost_model *cost, int vstage);
// The least time between two stages.
double sp_cost_model_least_p2p_s(sp_cost_model *cost);

// Rows of experts that the fullest rank holds over those of the mean, of pack number `call` of a
// rank, which has `tokens` of the pack; 1 where routing is even. O(layers * ep).
double sp_cost_model_held_rows(const sp_cost_model *cost, int64_t call, int64_t tokens);

// Forward time of a pack of a list that may be in the making, on the slowest virtual stage, in
// seconds.
double sp_cost_model_forward_s(sp_cost_model *cost, const sp_pack_list *list, const sp_pack *pack);

// Nanoseconds of its forward on every class, [classes], as sp_cost_model_build tabulates it; of its
// whole backward (w_ns: 0) or, `split`, of its input gradient and its weight gradient. O(slices).
// f_ns or b_ns NULL: of the other alone; both at once for less than each by itself.
void sp_cost_model_pack_ns(sp_cost_model *cost, const sp_pack_list *list, const sp_pack *pack,
                           bool split, int64_t *f_ns, int64_t *b_ns, int64_t *w_ns);

// Seconds of its forward and its whole backward together, with what is recomputed.
double sp_cost_model_pack_s(sp_cost_model *cost, const sp_pack_list *list, const sp_pack *pack);

#endif
