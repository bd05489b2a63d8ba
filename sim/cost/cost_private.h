// The parts of the cost model, shared by the files of sim/cost and its tests.
#ifndef SLIMPACK_SIM_COST_COST_PRIVATE_H
#define SLIMPACK_SIM_COST_COST_PRIVATE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/cost/cost_model.h"
#include "sim/cost/expert_load.h"
#include "sim/cost/op_time.h"
#include "sim/cost/profile.h"
#include "sim/cost/step_costs.h"
#include "sim/memory/footprint.h"
#include "sim/model/inventory.h"
#include "sim/model/layout.h"
#include "sim/model/model.h"
#include "sim/model/stack.h"
#include "sim/plan/packing.h"
#include "sim/plan/rounds.h"

// ---- times of operators ----

// Times stop here (three years), so that sums of nanoseconds fit int64_t whatever a profile says.
#define SP_I_MOST_S 1e8

static inline int64_t sp_i_cut_ns(double s)
{
    return sp_ns_from_s(fmin(s, SP_I_MOST_S));
}

// FLOPs per pair and element of a head: QK^T and PV forward; backward QK^T again, dV, dP, dQ, dK.
#define SP_I_FORWARD_FLOPS_PER_PAIR 4.0
#define SP_I_BACKWARD_FLOPS_PER_PAIR 10.0

// Notes x for the `uncalibrated` list if it lies outside [first, last].
void sp_i_note_range(const sp_op_timer *timer, sp_range_kind kind, double x, double first,
                     double last);

// The table of times for this n and k, or NULL.
const sp_gemm_table *sp_i_gemm_table(const sp_profile *profile, sp_gemm_pass pass, double n,
                                     double k);

// Seconds per byte below which no collective of this kind over this group gets, however large:
// without latency, at the best bus bandwidth of the table.
double sp_i_collective_least_s_per_byte(const sp_op_timer *timer, sp_collective kind,
                                        sp_group group);

// A time that is linear in bytes.
typedef struct sp_i_line {
    double latency_s, s_per_byte;
} sp_i_line;

// Collectives by algorithm as flows that meet no other, where a spine or PCIe slows those.
typedef struct sp_i_spine_lines {
    bool is_slowed[SP_COLLECTIVES][SP_ALGORITHM_AUTO];
    sp_i_line of[SP_COLLECTIVES][SP_ALGORITHM_AUTO];
} sp_i_spine_lines;

// sp_time_collective as the profile has it, whatever algorithm a scenario chose: of what goes round
// a ring by sends.
double sp_i_time_by_profile(const sp_op_timer *timer, sp_collective kind, sp_group group,
                            double bytes);

// One GPU's share of the NICs of its node; 0: the cluster names none.
double sp_i_nic_share_bytes_per_s(const sp_op_timer *timer);

// The last TP collective of each kind that was timed for a token count; NULL: none was. Parts and
// passes have the same ones.
typedef struct sp_i_timed_collectives {
    const sp_op *op[SP_COLLECTIVES];
    double once_s[SP_COLLECTIVES];
} sp_i_timed_collectives;

// The groups of the ranks that work on a layer together. Of experts on several ranks, else of size
// 0: the ranks that share a layer's experts, those that share each, and both; and how many
// data-parallel ranks these span.
typedef struct sp_i_block_groups {
    sp_group tp, ep, etp, both;
    int ranks;
} sp_i_block_groups;

sp_i_block_groups sp_i_block_groups_of(const sp_cluster *cluster, const sp_layout *layout);

typedef struct sp_i_token_times {
    double compute_s, tp_s, ep_s;
    double mlp_s;     // of compute_s and tp_s: what of_mlp operators take
    double returns_s; // of ep_s: rows that come back from experts
    double beside_s;  // no part of ep_s: exchanges behind shared experts
    // For the fullest rank that shares experts, where it has twice the mean's rows; in proportion
    // to what it has beyond these.
    double wait_s;
} sp_i_token_times;

// ---- dispatchers that send a token once to each node and rank (expert_dispatch.c) ----

// The share by which products beside them take longer: they have the other SMs alone.
double sp_i_dispatcher_slows(const sp_op_timer *timer, const sp_stack *stack);

// Dispatches and combinations take longer by this share beside computation. Fitted to the kernels
// of the first two layers of DeepSeek's training trace (deepseek-ai/profile-data, train.json: H800,
// 64 ranks, 4096 tokens, FP8 rows there and bf16 rows back), which take so much longer than the
// same alone; of the other two layers the mean dispatch is then 9 % too short and the mean
// combination 11 % too long. Assumed of all dispatchers, GPUs and networks.
#define SP_I_EXCHANGE_SLOWS 0.58

// The mean number of groups of `of_each` neighbouring ranks, of `ranks` that hold equal shares of
// the experts in their order, in which a token has an expert: n (1 - C(E - E/n, k) / C(E, k)) for
// groups of equal size where k of E experts are equally likely, with expert groups the mean over
// all choices of these. O(ranks, and groups for each size of a group of ranks).
double sp_i_distinct(const sp_routing *routing, int ranks, int of_each);

// Bytes that a GPU sends for one token of SP_OP_ROUTED_TOKENS over `group`, ETP x EP.
typedef struct sp_i_routed_bytes {
    double network, nvlink;
} sp_i_routed_bytes;

sp_i_routed_bytes sp_i_routed_bytes_of(const sp_op *op, sp_group group, int etp);
// Seconds of one token beside others, and of a kernel beside its tokens.
double sp_i_routed_s_per_token(const sp_op_timer *timer, const sp_stack *stack, sp_group group,
                               int etp, const sp_op *op);
double sp_i_routed_latency_s(const sp_op_timer *timer, sp_group group);

// Time of an inventory's operators that depend on the token count alone: GEMMs, kernels bound by
// memory and TP collectives (token_time.c). Seconds for the tokens of one rank. Of a collective
// counts what the stack does not hide: what is left to hide behind a GEMM goes down with each
// collective that does.
//
// Experts get the rows of `expert_tokens` tokens of a rank: of as many as it has itself, unless
// ranks with other numbers of tokens share the experts; `overload` times as many on the fullest
// rank, which also receives so much more in an all-to-all.
void sp_i_token_time(const sp_op_timer *timer, const sp_stack *stack,
                     const sp_i_block_groups *groups, const sp_inventory *inventory, sp_pass pass,
                     double local_tokens, double expert_tokens, double overload,
                     sp_i_timed_collectives *timed, sp_i_token_times *times);

// Adds what so many layers with these operators exchange for experts on other ranks.
void sp_i_add_expert_exchange(const sp_op_timer *timer, const sp_stack *stack,
                              const sp_i_block_groups *groups, const sp_inventory *inventory,
                              double layers, sp_expert_exchange *exchange);

// The QKV projection among them.
double sp_i_qkv_s(const sp_op_timer *timer, const sp_inventory *inventory, double local_tokens);

// Seconds per token below which no size of pack gets. Collectives that the stack may hide count
// nothing, and a profile may state the loss apart. Experts' operators count for `expert_share`.
double sp_i_token_least_s(const sp_op_timer *timer, const sp_stack *stack,
                          const sp_i_block_groups *groups, const sp_inventory *inventory,
                          sp_pass pass, double expert_share);

// ---- curves of a profile ----

// Slopes of a filled curve. Times must not fall as work grows, whatever the noise of a measurement
// says: a rate may grow at most with the `power` of x with which the work grows, and a table of
// times (power 0, floor true) may not fall.
void sp_i_curve_monotone(sp_curve *curve, double power, bool floor);

static inline double sp_i_curve_first(const sp_curve *curve)
{
    return curve->x[0];
}

static inline double sp_i_curve_last(const sp_curve *curve)
{
    return curve->x[curve->points - 1];
}

// Largest y: between points log y is linear in log x, so no value in between is larger.
static inline double sp_i_curve_most(const sp_curve *curve)
{
    double most = curve->y[0];
    for (int i = 1; i < curve->points; i++) {
        most = curve->y[i] > most ? curve->y[i] : most;
    }
    return most;
}

// y at x, the end values outside the points. O(log points).
static inline double sp_i_curve_hold(const sp_curve *curve, double x)
{
    int low = 0;
    int high = curve->points - 1;
    if (x <= curve->x[low]) {
        return curve->y[low];
    }
    if (x >= curve->x[high]) {
        return curve->y[high];
    }
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (curve->x[middle] <= x) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return curve->y[low] * pow(x / curve->x[low], curve->slope[low]);
}

// ---- attention over the slices of a pack (attention_load.c) ----

// Times of a slice's attention, forward and backward; negative: not known. A table has so many of
// them, by a hash of the slice.
enum { SP_I_ATTENTION_MEMOS = 8192 };

typedef struct sp_i_attention_memo {
    double length, context, time_s[2];
} sp_i_attention_memo;

// A ring of context-parallel ranks step by step: at step s every rank works on the keys of the rank
// s places before it.
typedef struct sp_i_cp_ring sp_i_cp_ring;

// Whose attention, and what prices it.
typedef struct sp_i_attention {
    const sp_model *model;   // whose layers are alike
    bool is_mixed;           // other layers see other tokens
    const sp_layout *layout; // with cp grown by the pack's data-parallel ranks
    const sp_memory_options *memory;
    const sp_op_timer *timer;
    bool recomputes;            // the forward runs again in the backward
    double *rank_s;             // [2 * cp] to work in; NULL where CP ranks share evenly
    sp_i_cp_ring *ring;         // NULL: its steps are not followed
    sp_i_attention_memo *memo;  // NULL: every slice is priced anew
    struct sp_i_blocks *blocks; // to work in; NULL: ranks have no blocks of samples
    int node_ranks;             // of those of a pack
} sp_i_attention;

// The attention that the slices of a pack need in one layer of one rank.
typedef struct sp_i_attention_load {
    double forward_s, backward_s;
    double keys;      // tokens with the context that slices read
    double exchanges; // of keys and values, where each slice has its own: one for its own tokens,
                      // one for each part of its context that is as long
    // Full (query, key) pairs, weighed by the profile's score model; of them those whose softmax is
    // unfused.
    double pairs, unfused_pairs;
    double calls, unfused_calls;
    // With blocks on any rank: rounds of transfers, and tokens that the busiest rank moves between
    // its place in the layers and that in the attention, inside nodes and between them.
    double rounds[2], moved_tokens[2];
    double task_bytes[2][2]; // sp_i_tasks_moved, of a forward and of a backward
} sp_i_attention_load;

// Slices of one sample that follow each other in a pack run as one segment of the variable-length
// call. Times are those of the CP rank that takes longest (cp_slowest_s), with even sharding
// of an equal share of them all; pairs are the mean of the CP ranks. Only the times of the passes
// that are asked for are filled. O(slices), or O(slices * cp) where shares are uneven.
sp_i_attention_load sp_i_attention_load_of(const sp_i_attention *attention,
                                           const sp_pack_list *list, const sp_pack *pack,
                                           bool forward, bool backward);

// Time in which the ranks of `cp` exchange `bytes` of keys and values, all of theirs together, half
// of them gradients where the pass has `gradients`: the whole CP group, or the peers of one whose
// neighbours exchange heads.
double sp_i_cp_exchange_s(const sp_i_attention *attention, sp_group cp,
                          const sp_i_attention_load *load, double bytes, bool gradients);

// The exchange adds this to an attention of attention_s behind a QKV projection of qkv_s. A ring
// runs beside the attention on the blocks that are already there: all but the first, of which there
// are as many as ranks in the ring (Liu et al., Ring Attention, arXiv 2310.01889). A gather hides
// behind the QKV projection, with grouped queries behind nothing (kwai/Megatron-Kwai, branch
// atc24ae). Where the steps of a ring are followed, what was found of the pack last
// (cp_slowest_s) says how long ranks wait in it; `backward`: for the times of the backward. Blocks
// on any rank come in by launches (load->rounds), each behind the attention on what is there. Tasks
// of one half of a pack move behind the attention and the products of the other half (qkv_s: of all
// products then).
double sp_i_exposed_cp_s(const sp_i_attention *attention, const sp_i_attention_load *load,
                         double cp_s, double attention_s, double qkv_s, bool backward);

sp_i_cp_ring *sp_i_cp_ring_new(int cp);
void sp_i_cp_ring_free(sp_i_cp_ring *ring);
void sp_i_cp_ring_clear(sp_i_cp_ring *ring);
// A piece (sp_i_cp_visit), those of a sample in their order. Keys of earlier packs, and of more
// than 4 cp pieces before it, are taken to be spread evenly. O(cp).
void sp_i_cp_ring_add(sp_i_cp_ring *ring, int rank, int64_t tokens, int64_t context);
double sp_i_cp_ring_pairs(const sp_i_cp_ring *ring, int rank, int step);
// Until the last rank is done, whose attention takes rank_s, [cp], in all, in parts as its pairs; a
// block needs transfer_s to the next rank. O(cp^2).
double sp_i_cp_ring_s(sp_i_cp_ring *ring, const double *rank_s, double transfer_s);

// Least times of one layer on all CP ranks together, per square of a sample's tokens: n tokens
// cover n*n/2 causal pairs however they are cut, at no better than the best causal rate
// (op_time.h).
void sp_i_attention_least_s(const sp_i_attention *attention, double least_s[2]);

// The pieces of a pack's slices that each CP rank holds (WLB-LLM, arXiv 2503.17924). A piece is a
// stretch of one slice: its queries attend to themselves and to all tokens of the sample before
// them, whose keys are gathered from the other ranks.

// Called for every piece: `tokens` > 0 queries after `context` tokens of their sample, on CP rank
// `rank` of [0, cp).
typedef void sp_i_cp_visit(void *state, int rank, int64_t tokens, int64_t context);

// Per sequence: the tokens of the pack, in a row, are cut into 2*cp chunks wherever samples begin
// and end, and rank i gets chunks i and 2*cp-1-i. Chunks are equal; where 2*cp does not divide the
// row, the first ones have a token more. Slices of one sample that follow each other are one
// stretch. O(slices + cp).
void sp_i_cp_by_sequence(const sp_pack_list *list, const sp_pack *pack, int cp,
                         sp_i_cp_visit *visit, void *state);

// Per document: the same inside every slice, with equal chunks. The tokens at its end that 2*cp
// leaves over are dealt to the ranks one by one, on from where the slice before it stopped, so that
// the ranks' tokens differ by one at most over the pack. O(slices * cp).
void sp_i_cp_by_document(const sp_pack_list *list, const sp_pack *pack, int cp,
                         sp_i_cp_visit *visit, void *state);

// A pack as it was cut: where the CP ranks' pieces of a pack come from in the backward.
typedef struct sp_i_cp_row {
    const sp_pack_list *list;
    const sp_pack *pack;
} sp_i_cp_row;

// Sequence and adaptive sharding depend on what else is in the pack and in which order. A backward
// pack over several CP ranks must hold the slices of one forward pack, whose cut it then keeps:
// otherwise activations would have to change ranks in between. *forward_pack is sp_regroup's,
// freed by the caller; NULL for the other ways, and where there are no backward packs. Errors:
// SP_ERR_CONTENT at strategy.cp_sharding of `source`. O(slices * log slices).
sp_status sp_i_cp_regroup(const sp_layout *layout, const sp_packing *packing, const char *source,
                          int32_t **forward_pack, sp_error *err);

// The forward pack whose cut a backward pack keeps, else the pack itself.
sp_i_cp_row sp_i_cp_row_of(const sp_layout *layout, const sp_packing *packing,
                           const int32_t *forward_pack, const sp_pack *pack);

// ---- blocks of samples on any rank (block_placement.c) ----

typedef struct sp_i_block_of {
    int64_t tokens, context; // after so many of its sample
    int64_t row;             // after so many of the pack
    int32_t sample;
    int home; // rank of its first token
    int rank; // of its attention
} sp_i_block_of;

typedef struct sp_i_blocks {
    sp_i_block_of *block; // in the order of the pack; owned
    size_t count, capacity;
    int64_t tokens; // of all
    int64_t block_tokens;
    int ranks, node_ranks; // node_ranks neighbours share a node
} sp_i_blocks;

// Cuts the slices of a pack, of which it has some, at multiples of block_tokens of their samples,
// and gives each block to a rank: the heaviest first, to the rank that it leaves the least full by
// attention work or tokens, whichever is fuller. O(blocks * (ranks + log blocks)).
void sp_i_blocks_place(const sp_pack_list *list, const sp_pack *pack, int64_t block_tokens,
                       int ranks, int node_ranks, sp_i_blocks *blocks);
void sp_i_blocks_free(sp_i_blocks *blocks);
// Rounds in which every rank gets the blocks before its own, one in a round at most, and sends no
// more: inside nodes, and between them. O(blocks * ranks).
void sp_i_blocks_rounds(const sp_i_blocks *blocks, double rounds[2]);
// Tokens that the busiest rank sends or gets between equal shares of the pack in a row and the
// ranks of blocks, inside nodes and between them.
void sp_i_blocks_moved(const sp_i_blocks *blocks, double tokens[2]);
// Launches of so many rounds, 16 to each.
double sp_i_blocks_launches(const double rounds[2]);
// Seconds of all rounds, of blocks of `bytes` each: the rounds of a launch follow each other
// without a latency of their own.
double sp_i_blocks_exchange_s(const sp_op_timer *timer, const double rounds[2], double bytes);
// Seconds in which tokens of `bytes` each move, inside nodes beside what goes between them.
double sp_i_blocks_reshuffle_s(const sp_op_timer *timer, const double tokens[2], double bytes);

// Bytes of a token on each GPU of a rank: its queries, its results, its keys and values.
typedef struct sp_i_task_bytes {
    double queries, results, keys;
} sp_i_task_bytes;

// Blocks as tasks (DistCA, arXiv 2510.18121): each begins on the rank that has its tokens, of which
// all have equal shares of the pack in a row. The least loaded rank gets the task that brings it
// most attention for its bytes from ranks that have a tenth more than the mean, until none of them
// has or no task fits. O(blocks * (ranks + tasks that move)).
void sp_i_tasks_place(const sp_pack_list *list, const sp_pack *pack, int64_t block_tokens,
                      int ranks, int node_ranks, const sp_i_task_bytes *bytes, sp_i_blocks *blocks);
// Bytes that the busiest rank sends or gets in a forward, inside nodes and between them: keys and
// values that its tasks see and it does not have, queries of tasks on another rank, and results
// back. A rank keeps nothing for others: in a backward all that comes again, with results and their
// gradients, and gradients of queries, keys and values go back.
void sp_i_tasks_moved(const sp_i_blocks *blocks, const sp_i_task_bytes *bytes, bool backward,
                      double most[2]);

// ---- Zeppelin's remapping layer (arXiv 2509.21841) ----

// Tokens move between data-parallel ranks, from the ranks that run their attention to equal shares
// for all other modules.

typedef struct sp_i_move {
    int from, to;
    double tokens;
} sp_i_move;

// A transport problem: rank i has surplus[i] tokens too many or, negative, too few; in all there
// are none too many, and what remains of a rounded sum stays where it is. Nodes hold node_ranks
// neighbours each. Fills moves[ranks] and returns how many; all of surplus is spent.
//
// No plan costs less where a token costs one price inside a node and one at least as high between
// nodes: every plan moves the sum of what ranks have too many, and of each node at least what its
// ranks together have too many leaves it; this one lets no more leave. O(ranks).
int sp_i_remap(double *surplus, int ranks, int node_ranks, sp_i_move *moves);

// Where ranks send over the network.
typedef struct sp_i_remap_links {
    int ranks, node_ranks;
    bool one_nic;    // a rank sends by its own NIC; off: by all of its node
    double *traffic; // [4 * ranks] to work in
} sp_i_remap_links;

// Seconds of one exchange in which each GPU of a rank has so many bytes of a token: the rank with
// the most to send or to receive over NVLink, beside the node (with one NIC: the rank) that has the
// most over the network, and one latency. 0 without moves. O(ranks + moves).
double sp_i_remap_s(const sp_op_timer *timer, const sp_i_remap_links *links, const sp_i_move *moves,
                    int count, double gpu_bytes);

// ---- every part and pass of the model for one pack, on one rank (pack_time.c) ----

// A layer of each kind is a part: the first in the place of SP_PART_LAYER, others behind the head.
enum { SP_I_PARTS = SP_PARTS + SP_LAYER_KINDS - 1, SP_I_PASSES = 4 };

static inline int sp_i_part_of_kind(int kind)
{
    return kind == 0 ? (int)SP_PART_LAYER : SP_PARTS + kind - 1;
}

// The model's parts are the first so many.
static inline int sp_i_parts(const sp_model *model)
{
    return SP_PARTS + sp_model_kinds(model) - 1;
}

// The model whose layers are those of the part.
static inline const sp_model *sp_i_model_of_part(const sp_model *model, int part, sp_model *space)
{
    return sp_model_of_kind(model, part < SP_PARTS ? 0 : part - SP_PARTS + 1, space);
}

// In seconds; communication is the part that computation does not hide.
typedef struct sp_i_time {
    double compute_s, tp_s, cp_s, ep_s;
    double ep_wait_s;   // part of ep_s, for the fullest rank that shares experts
    double ep_beside_s; // no part of it: behind shared experts
    double attention_s; // part of compute_s that grows with the pairs
} sp_i_time;

// Parts of a layer's time: computation of its experts and shared ones, and exchanges that return
// rows (sp_i_token_times).
typedef struct sp_i_expert_parts {
    double mlp_s, returns_s;
} sp_i_expert_parts;

typedef struct sp_i_pack_time {
    sp_i_time of[SP_I_PARTS][SP_I_PASSES]; // one layer of each kind, embedding, head
    sp_i_expert_parts experts[SP_I_PARTS][SP_I_PASSES];
    sp_cp_exchange cp[SP_I_PASSES]; // of one layer
    const sp_layout *layout; // the pack's: with cp grown by its data-parallel ranks (DP-Merge)
    double recompute_share;  // kernels of all layers' recomputation over those of their forwards
    bool recomputes_attention;
    int ring_steps;         // of each attention call over context-parallel ranks; 0: no ring
    double unfused_softmax; // share of the attention calls whose softmax runs as separate kernels
    const struct sp_i_zones *zones; // of the pack, until the next one; NULL: none
} sp_i_pack_time;

typedef struct sp_i_pack_timer sp_i_pack_timer;

// Tokens that the ranks which share experts have together, where a pack counts with so many.
double sp_i_group_tokens(const sp_model *model, const sp_layout *layout, const sp_pack *pack,
                         int64_t expert_tokens);

// load: of the ranks that share experts, NULL where it is even; must outlive the timer.
sp_i_pack_timer *sp_i_pack_timer_new(const sp_model *model, const sp_layout *layout,
                                     const sp_cluster *cluster, const sp_memory_options *memory,
                                     const sp_expert_load *load);
void sp_i_pack_timer_free(sp_i_pack_timer *packs);

// From now on times that depend on the tokens alone are interpolated between counts 64 tokens a
// rank apart, and attention of slices that were priced before is looked up: for searches, which
// price many packs that are only tried.
void sp_i_pack_timer_interpolate(sp_i_pack_timer *packs);

// From now on the attention of a forward takes this share of its time, and fixed_s beside it in
// each layer: prefill over a part of the keys.
void sp_i_pack_timer_keep(sp_i_pack_timer *packs, double share, double fixed_s);

// Times of a pack's forward (SP_PASS_F), of its backward (the other passes) or of both; the passes
// of a side that is not asked for are zero. O(slices + operators).
void sp_i_pack_time_of(sp_i_pack_timer *packs, const sp_op_timer *timer, const sp_pack_list *list,
                       const sp_pack *pack, bool forward, bool backward, sp_i_pack_time *time);
// The same where its experts have the rows of so many tokens (sim/plan/rounds.h), not of its
// own, and the fullest of the ranks that share them has `overload` times the rows of their mean; 0:
// as many as expected.
void sp_i_pack_time_in_round(sp_i_pack_timer *packs, const sp_op_timer *timer,
                             const sp_pack_list *list, const sp_pack *pack, bool forward,
                             bool backward, int64_t expert_tokens, double overload,
                             sp_i_pack_time *time);

// What a stage exchanges for experts in a pass.
sp_expert_exchange sp_i_expert_exchange_of(const sp_i_pack_timer *packs, const sp_op_timer *timer,
                                           const sp_stage *stage, sp_pass pass);

// No size of pack gets below this, on one rank of the unmerged layout.
typedef struct sp_i_least_work {
    double token_s[SP_I_PARTS][SP_I_PASSES];
    double square_s[SP_I_PARTS][SP_I_PASSES]; // per square of the sample's tokens
    // Per twice the pairs of layers of a kind that do not see all tokens; they have no squares.
    double seen_s[SP_LAYER_KINDS][SP_I_PASSES];
} sp_i_least_work;

// Where data-parallel ranks share experts these may have but the rows of one of them; `whole`: the
// work of all rows.
void sp_i_pack_least_work(const sp_i_pack_timer *packs, const sp_op_timer *timer, bool whole,
                          sp_i_least_work *least);

// Time of what depends on the tokens alone, with `tokens` on one data-parallel rank of the unmerged
// layout. Least: where several data-parallel ranks share experts, these may have but the rows of
// one of them.
void sp_i_pack_token_time(const sp_i_pack_timer *packs, const sp_op_timer *timer, double tokens,
                          double token_s[SP_I_PARTS][SP_I_PASSES]);

// ---- attention of a pack whose slices have zones (sim/plan/packing.h), on the slowest rank ----

// Slices that follow each other in a pack and have one zone: what their attention takes on each
// rank of it in one layer.
typedef struct sp_i_zone_part {
    int first, ranks;               // data-parallel ranks
    int blocks;                     // of keys in its ring, one for each rank of that
    double tokens;                  // of all its ranks
    bool crosses;                   // nodes
    sp_i_time of[SP_I_PASSES];      // its ring hidden behind nothing but itself
    double ring_s[SP_I_PASSES];     // the whole ring; 0: it is none
    double blocking_s[SP_I_PASSES]; // of what is exchanged, all that nothing hides: no ring's
    sp_cp_exchange exchange[SP_I_PASSES];
} sp_i_zone_part;

// One rank's parts together.
typedef struct sp_i_zone_rank {
    sp_i_time sum;
    double ring_s[2], last_s[2]; // inside a node, between nodes; the block that comes in last
    double blocking_s;
} sp_i_zone_rank;

typedef struct sp_i_zones {
    sp_i_zone_part *part;
    size_t count, capacity;
    sp_i_zone_rank *rank; // [dp] to work in, as the next two
    double *work;         // [4 * dp]
    sp_i_move *move;      // [dp]: the last that were found, as the next three
    int moves;
    double gpu_bytes;
    double moves_s;
    int first, ranks; // of the pack
    int dp, node_ranks;
    bool one_nic;    // a rank sends by its own NIC alone
    bool lone_rings; // each ring hides behind the attention of its own zone, else behind all
} sp_i_zones;

// One pass of a layer. A rank runs its zones one after the other, the widest first, while their
// rings run beside: those inside the node over NVLink, those between nodes over the network, each
// kind one after the other. So a rank is busy with all its attention, and no less than it takes for
// the rings of either kind and the last block that comes in (Zeppelin's attention engine, arXiv
// 2509.21841; inferred). Queries, keys and values come in before, and results leave after:
// gpu_bytes for each token and GPU in all. O(ranks of all parts).
sp_i_time sp_i_zones_time(sp_i_zones *zones, const sp_op_timer *timer, sp_pass pass,
                          double gpu_bytes);

static inline sp_op_timer sp_i_timer_of(sp_cost_model *cost)
{
    return (sp_op_timer){
        .cluster = cost->cluster, .profile = cost->profile, .uncalibrated = &cost->uncalibrated};
}

// ---- the actions of one pack on one virtual stage (cost_model.c) ----

sp_action_cost sp_i_price_forward(const sp_cost_model *cost, const sp_op_timer *timer,
                                  const sp_pack *pack, const sp_i_pack_time *time,
                                  const sp_stage *stage);

// Seconds of an action that runs these passes (bits 1 << pass), without what sharded parameters
// (ZeRO) add.
enum {
    SP_I_FORWARD = 1u << SP_PASS_F,
    SP_I_AGAIN = 1u << SP_PASS_RECOMPUTE,
    SP_I_INPUTS = 1u << SP_PASS_I,
    SP_I_WEIGHTS = 1u << SP_PASS_W
};

// Seconds that the host takes to launch one pass of a stage (profile.h, sp_host_model). A partial
// recomputation takes its share of the forward's kernels.
double sp_i_exec_s(const sp_host_model *host, const sp_i_pack_time *time, const sp_stage *stage,
                   sp_pass pass, bool pipeline_crosses_nodes);
// What so many of its layers take longer because they have experts.
double sp_i_experts_exec_s(const sp_host_model *host, const sp_i_pack_time *time, int layers,
                           sp_pass pass);

// Seconds by which a pass of gpu_s takes longer because it waits for launches: the norm of GPU and
// host time less the GPU's.
double sp_i_launch_wait_s(const sp_host_model *host, double gpu_s, double host_s);

// ---- least_work.c: what no packing saves, found when a cost model is made ----

// Shares of a unit's fixed time: half forward, a quarter for each gradient.
extern const double sp_i_unit_share[SP_I_PASSES];

enum { SP_I_SIZES_TRIED = 2700 };

// The parts of a pack's time, by size. Sizes are first asked for in their order.
typedef struct sp_i_size_times {
    int count; // of sizes that are known
    double of_part[SP_I_SIZES_TRIED][SP_I_PARTS][SP_I_PASSES];
} sp_i_size_times;

// Fills cost->least for slope 0, and the sums of sp_cost_model_sample_work_s.
void sp_i_least_work_find(sp_cost_model *cost);

// ---- after the packs of a pipeline rank (data_parallel.c) ----

// Fills the epilogues of costs->ranks; costs->crosses_nodes is already there.
void sp_i_fill_epilogues(const sp_cost_model *cost, const sp_op_timer *timer, sp_step_costs *costs);

// ---- packs that run together on ranks that meet in every layer (round_wait.c) ----

// Whom they wait for: an action's ep_ns or dp_ns has the wait.
typedef enum sp_i_wait { SP_I_WAIT_EXPERTS, SP_I_WAIT_PARAMETERS } sp_i_wait;

// The rounds of a list of packs, with what imbalance of experts adds.
typedef struct sp_i_rounds {
    sp_rounds of;
    sp_overload *overload; // [packs]: of the call that the pack's round is
    int64_t *held;         // [packs]: as of.tokens, on the rank whose experts have most rows
} sp_i_rounds;

void sp_i_rounds_make(const sp_cost_model *cost, const sp_pack_list *list, sp_i_rounds *rounds);
void sp_i_rounds_free(sp_i_rounds *rounds);
// Have the experts of pack k the rows of those of pack k - 1?
bool sp_i_rounds_repeat(const sp_i_rounds *rounds, size_t k);
// The mean over packs, of sp_overload.most and held the most.
void sp_i_rounds_report(const sp_i_rounds *rounds, size_t packs, sp_overload *overload);

// Makes actions of packs of one round as long as the longest of them, by waiting, and their
// transfers. So the ranks of a group, whose lists are alike, begin every action together.
void sp_i_wait_in_rounds(const sp_rounds *rounds, sp_i_wait wait, int side, sp_step_costs *costs);

// ---- shared by pack_time.c and cost_model.c ----

// SP_ERR_LIMIT for a pack whose times or bytes are beyond what sums of them have room for.
sp_status sp_i_beyond_limit(const sp_pack *pack, sp_error *err);

// Keeps in the costs what the zones of a timed pack exchange; NULL: it has none.
const sp_pack_zones *sp_i_pack_zones_of(sp_step_costs *costs, const sp_i_pack_time *time,
                                        bool backward);

// ---- collectives that a spine slows (collective.c) ----

// Fills cost->spine. Errors: those of sp_topology_new. O(pp * k log k) for k ways of a ring, where
// leaf switches do not join all and collectives go by an algorithm.
sp_status sp_i_find_spine_lines(sp_cost_model *cost, sp_error *err);

// The timer of data-parallel ranks' collectives.
static inline sp_op_timer sp_i_replica_timer(const sp_cost_model *cost, const sp_op_timer *timer)
{
    sp_op_timer of_replicas = *timer;
    of_replicas.spine = cost->spine;
    return of_replicas;
}

// ---- exchanges of ZeRO 2 and 3 inside a step (data_parallel.c) ----

// Data-parallel ranks exchange parameters and gradients (Rajbhandari et al., ZeRO,
// arXiv 1910.02054, sections 5 and 7; PyTorch FSDP, arXiv 2304.11277, section 3). ZeRO 2 scatters
// the gradients of each unit (embedding, layer, head) after its backward; ZeRO 3 also gathers its
// parameters before every forward and before every backward.

// Fill dp_ns of a pack's actions on a stage: what nothing hides. A gather runs behind the unit
// before, a scatter behind the unit after, behind all that the unit takes: computation, the
// exchanges of tensor and context parallelism that it waits for, and its layers' waits for
// launches; behind nothing where each kernel is waited for (stack.blocking_launches). A gather and
// a scatter at one time share the network; the first gather and the last scatter stand alone. What
// is hidden takes SMs and bandwidth from what hides it (interference.overlap_share; of a wait
// nothing), which counts as exchange, too. Other data-parallel ranks are not waited for. O(layers).
void sp_i_zero_forward(const sp_cost_model *cost, const sp_op_timer *timer, const sp_stage *stage,
                       const sp_i_pack_time *time, sp_action_cost *f);
// The whole backward, its halves, and a recomputation apart, which gathers for itself.
void sp_i_zero_backward(const sp_cost_model *cost, const sp_op_timer *timer, const sp_stage *stage,
                        const sp_i_pack_time *time, sp_action_cost of[SP_ACTION_O]);
// Fills what the stages of costs->stages shard.
void sp_i_zero_fill_sharded(const sp_cost_model *cost, const sp_op_timer *timer,
                            sp_step_costs *costs);

#endif
