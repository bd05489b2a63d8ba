// The tables that the simulation reads: the time of every action of a step, and the bytes that it
// holds. They are built from a model and a profile (cost_model.h) or from uniform costs.
#ifndef SLIMPACK_SIM_COST_STEP_COSTS_H
#define SLIMPACK_SIM_COST_STEP_COSTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/alloc.h"
#include "sim/base/status.h"
#include "sim/cost/expert_load.h"
#include "sim/cost/expert_overlap.h"
#include "sim/cost/profile.h"
#include "sim/memory/footprint.h"
#include "sim/model/layout.h"
#include "sim/plan/depends.h"
#include "sim/plan/packing.h"
#include "sim/plan/plan.h"
#include "sim/schedule/schedule.h"

// The exchange of a pack's context-parallel ranks in one pass of one layer, and its time whether
// work hides it or not.
typedef struct sp_cp_exchange {
    double s, bytes; // of the keys and values, all that the ranks have in the end
    // All-to-all of heads among `head_ranks` GPUs (0 or 1: none), of the bytes that a GPU has
    // before it. It comes after what computation hides; GPUs at the same place of their groups
    // exchange the keys and values.
    double heads_s, heads_bytes;
    int head_ranks;
    int ring_nics; // that a hop between nodes uses (sp_time_ring); 0: as a collective
} sp_cp_exchange;

// The ranks of a zone of a pack (sim/plan/packing.h), which exchange as those of a pack do: in a
// forward or an input gradient, and in the recomputation before that.
typedef struct sp_zone_exchange {
    int dp_first, dp_count;
    sp_cp_exchange of[2];
} sp_zone_exchange;

// Tokens that a data-parallel rank gives another before attention, and gets back behind it.
typedef struct sp_zone_move {
    int from, to;
    double tokens;
} sp_zone_move;

// The exchanges of a pack's zones in one layer, beside the work of all of them.
typedef struct sp_pack_zones {
    const sp_zone_exchange *zones;
    const sp_zone_move *moves;
    size_t zone_count, move_count;
    int node_ranks; // data-parallel ranks of a node, by all of whose NICs tokens move; 1: by its
                    // own
    double token_bytes; // of a token on each GPU of a rank, one way
    double moves_s[2];  // both ways, as sp_zone_exchange
} sp_pack_zones;

// The time of a pack's transfer to the next (a forward pack) or the previous (a backward pack)
// pipeline rank: inside a node, across nodes.
typedef struct sp_p2p_times {
    int64_t ns, internode_ns;
} sp_p2p_times;

// The exchanges of a pack, whatever the stage.
typedef struct sp_pack_costs {
    double p2p_bytes; // between two GPUs, of which each rank has tp * cp pairs
    // Keys and values that context-parallel ranks exchange: in a forward or an input gradient, and
    // in the recomputation before that.
    sp_cp_exchange cp, cp_again;
    const sp_pack_zones *zones; // then nothing else is exchanged; NULL: none
    int64_t expert_tokens;      // as sp_unit_load
    // Where other stages take attention over (sp_pool_apply), of a layer: seconds in which all
    // queries and results of a GPU move, and keys and values of the longest sample, of so many
    // tokens.
    double pool_queries_s, pool_keys_s;
    int64_t longest_tokens;
} sp_pack_costs;

// After the last backward of a pipeline rank.
typedef struct sp_epilogue_cost {
    int64_t grad_reduce_ns; // starts when all data-parallel ranks are done
    int64_t optimizer_ns;
    int64_t param_gather_ns;
    int64_t hideable_gather_ns; // part of it that may run behind the next step's first forward
    // Bytes of the tensors that a rank reduces then, and gathers. The reduction of a tied embedding
    // over two pipeline ranks is the last part of grad_reduce_ns.
    double reduce_bytes, gather_bytes;
    sp_collective_algorithm reduces_by, gathers_by;
    int64_t tied_reduce_ns;
    // Parts of both that are of experts over several ranks, among those that hold the same ones.
    double expert_reduce_bytes, expert_gather_bytes;
    int64_t expert_reduce_ns, expert_gather_ns;
} sp_epilogue_cost;

// The part of it that belongs to the step.
static inline int64_t sp_epilogue_ns(const sp_epilogue_cost *epilogue)
{
    return epilogue->grad_reduce_ns + epilogue->optimizer_ns + epilogue->param_gather_ns -
           epilogue->hideable_gather_ns;
}

// An exchange between ranks: its time, whether work hides it or not, and its bytes.
typedef struct sp_exchanged {
    double s, bytes;
    double bare_s; // of s, beside which there is no work at all
} sp_exchanged;

// The exchanges of a virtual stage's data-parallel ranks inside actions, with ZeRO 2 and 3. The
// part that nothing hides is the dp_ns of the actions: at the least the gather before the first
// unit, which in a backward is the last unit of the stage, and the scatter behind the last one.
typedef struct sp_sharded_stage {
    sp_exchanged gather;        // parameters of the stage, in one pass
    sp_exchanged layers_gather; // parameters of its layers alone: before a recomputation
    sp_exchanged scatter;       // gradients of one pass
    double backward_bare_s;     // seconds of a backward's gather beside which there is no work
    double overlap_share;       // by how much hidden exchanges slow work down; dp_ns has it too
    sp_collective_algorithm gathers_by, scatters_by; // of a layer
} sp_sharded_stage;

// The ways by which rows go to experts on other ranks and come back (stack.dispatcher).
typedef enum sp_expert_way {
    SP_WAY_EXPERTS, // all-to-all over EP
    SP_WAY_PARTS,   // rings over the ETP ranks that share each expert
    SP_WAY_TOKENS,  // rings over ETP x EP
    SP_WAY_NODES,   // once to each node: between GPUs at one place of their nodes
    SP_WAY_IN_NODE, // once to each rank, over NVLink, beside what goes to nodes
    SP_EXPERT_WAYS
} sp_expert_way;

// The exchanges of experts in one pass of a stage.
typedef struct sp_expert_exchange {
    double bytes[SP_EXPERT_WAYS]; // per local token, as routes count them (network/route.h)
    double calls[SP_EXPERT_WAYS];
    double fixed_s; // in which counts of rows go ahead
} sp_expert_exchange;

enum { SP_EXPERT_PASSES = 3 }; // a forward, an input gradient, a recomputation

// A pipeline rank, whatever its packs.
typedef struct sp_rank_costs {
    sp_epilogue_cost epilogue;
    sp_bytes states; // zeros for uniform costs
} sp_rank_costs;

// A virtual stage, whatever its packs.
typedef struct sp_stage_costs {
    int cost_class, memory_class; // the second where a vocabulary is shared
    int layers;                   // 0 for uniform costs
} sp_stage_costs;

// The times of hidden states and their gradients between pipeline ranks: the part of a step's costs
// that a backend needs to emulate links. Tables are borrowed from the costs.
typedef struct sp_link_times {
    size_t count[2];            // forward packs, backward packs
    const sp_p2p_times *p2p[2]; // [pack]
    const bool *crosses_nodes;  // [pp]: the link between ranks r and (r+1) % pp does
} sp_link_times;

// Time of a crossing from pipeline rank `from` to rank `to` (neighbours on the ring of pp).
static inline int64_t sp_link_times_ns(const sp_link_times *links, bool backward, size_t pack,
                                       int from, int to, int pp)
{
    // The link between ranks r and r+1 carries both directions; `from` names it going up.
    int link = (from + 1) % pp == to ? from : to;
    const sp_p2p_times *sent = &links->p2p[backward][pack];
    return links->crosses_nodes[link] ? sent->internode_ns : sent->ns;
}

// The gradients of one model chunk, reduced in equal buckets one after another while other work
// runs: bucket j of n is ready when (j+1)/n of the last action that makes gradients is over.
typedef struct sp_bucket_cost {
    int64_t count;
    int64_t bucket_ns, total_ns; // one; all of them
    double bytes;                // of all
    double expert_bytes;         // parts of both, as in sp_epilogue_cost
    int64_t expert_ns;
    sp_collective_algorithm reduces_by;
} sp_bucket_cost;

// What is known of the forward packs (0), or of the backward packs (1).
typedef struct sp_side_costs {
    size_t count;
    sp_p2p_times *p2p;   // [pack]. The walk reads these for every action, so that they lie together
    sp_pack_costs *pack; // [pack]
    // Memory: NULL for uniform costs, and of backward packs where they are the forward packs.
    sp_unit_bytes *unit; // [row * classes + class]; all of `held` on the GPU
    // [pack]: its row in `unit`. Equal packs share one, and rows count up in the order of the first
    // packs that have them. NULL: the row of a pack is its index.
    int32_t *unit_row;
} sp_side_costs;

// Virtual stages of one class (same layers, embedding, head) cost the same. Where pipeline ranks
// share a vocabulary a stage's costs hold its rank's shares of embedding and head; those alone are
// classes of their own, without launches that the GPU waits for. Memory is that of an action
// without other ranks' work: the model's first and last stage have embedding and LM head.
typedef struct sp_step_costs {
    int classes;
    sp_overload overload;      // of experts, over the forward packs; all 0: exactly even
    sp_stage_costs *stages;    // [pp*chunks], by virtual stage
    sp_rank_costs *ranks;      // [pp]
    bool *crosses_nodes;       // [pp]: the transfer between ranks r and (r+1) % pp does
    bool shards;               // ZeRO 2 or 3 splits gradients or parameters
    sp_sharded_stage *sharded; // [pp*chunks], of ZeRO 2 and 3
    // Where a vocabulary is shared: how many classes are of stages; the class of an embedding's
    // share, behind which stands that of a head's. Else 0.
    int stage_classes, share_class;
    sp_side_costs side[2];
    // By kind of action (F, B, I, W and R; NULL for copies): the cost of a pack on a class, at
    // [pack * classes + class]. Those of F are by forward pack, the others by backward pack. R is
    // the recomputation that B and I contain: an action R takes it out of its backward. Where packs
    // are regrouped it runs a whole forward again (ChunkFlow), and costs what F does.
    sp_action_cost *action[SP_ACTION_KINDS];
    bool has_bytes; // of transfers and exchanges; false: uniform costs
    bool zoned;     // some pack has zones
    // [virtual stage * SP_EXPERT_PASSES + pass]; NULL: each rank has experts for itself.
    sp_expert_exchange *experts;
    sp_arena zone_work;        // holds the zones of packs
    sp_expert_overlap overlap; // of pairs
    // Copies to host memory and back: forward packs, [pack * classes + class]. NULL for uniform
    // costs: a plan with O or L is then refused.
    int64_t *o_ns, *l_ns;
    bool blocking_transfers; // the sending rank waits for each of its sends
    // [pp * chunks], by rank, then chunk: reduced before ranks[].epilogue.grad_reduce_ns starts.
    // NULL: none.
    sp_bucket_cost *buckets;
    // Collectives of data-parallel ranks by an algorithm take the time of a flow that is alone,
    // spine and PCIe included; false: their time follows from rates of NVLink and NICs.
    bool lone_times;
    // The part of a forward unit's activations that O takes away and L brings back, like `unit`.
    int64_t *offloaded_bytes;
    // Activation units: change at the start of F, at the end of B (or I), at the end of W.
    double unit_f, unit_b, unit_w;
    // Same units for schedules that split the backward.
    double split_unit_f, split_unit_b, split_unit_w;
} sp_step_costs;

// Zeroed tables for a packing, with the default activation units.
void sp_i_step_costs_init(sp_step_costs *costs, const sp_layout *layout, const sp_packing *packing,
                          int classes, bool with_memory);
// With memory, for whoever then writes every row of a pack: those hold anything until then.
void sp_i_step_costs_take(sp_step_costs *costs, const sp_layout *layout, const sp_packing *packing,
                          int classes);
void sp_step_costs_fini(sp_step_costs *costs);

// The class whose memory an action of the virtual stage has.
static inline size_t sp_i_memory_class(const sp_step_costs *costs, int vstage)
{
    const sp_stage_costs *stage = &costs->stages[vstage];
    return (size_t)(costs->share_class > 0 ? stage->memory_class : stage->cost_class);
}

// Where the row of a pack in the side's `unit` begins.
static inline size_t sp_step_costs_units(const sp_step_costs *costs, int side, size_t pack)
{
    const int32_t *row_of = costs->side[side].unit_row;
    return (row_of != NULL ? (size_t)row_of[pack] : pack) * (size_t)costs->classes;
}

// Bytes that a copy to host memory takes of a forward pack on a virtual stage.
static inline int64_t sp_step_costs_offloaded(const sp_step_costs *costs, size_t pack, int vstage)
{
    size_t units = sp_step_costs_units(costs, 0, pack);
    return costs->offloaded_bytes[units + sp_i_memory_class(costs, vstage)];
}

// The kinds of action that packs of a side have: F, or B, I, W and R.
static inline int sp_first_kind(int side)
{
    return side == 0 ? SP_ACTION_F : SP_ACTION_B;
}

static inline int sp_last_kind(int side)
{
    return side == 0 ? SP_ACTION_F : SP_ACTION_R;
}

// The transfers in the costs; borrows their tables.
static inline sp_link_times sp_step_costs_links(const sp_step_costs *costs)
{
    const sp_side_costs *side = costs->side;
    sp_link_times links = {
        {side[0].count, side[1].count}, {side[0].p2p, side[1].p2p}, costs->crosses_nodes};
    return links;
}

// Time of a boundary crossing from pipeline rank `from` to rank `to` (neighbours on the ring of
// pp).
static inline int64_t sp_step_costs_p2p_ns(const sp_step_costs *costs, int backward, size_t pack,
                                           int from, int to, int pp)
{
    const sp_link_times links = sp_step_costs_links(costs);
    return sp_link_times_ns(&links, backward != 0, pack, from, to, pp);
}

// Transfer of a pack, the mean over the links from each pipeline rank to the next.
double sp_step_costs_mean_p2p_ns(const sp_step_costs *costs, int pp, int backward, size_t k);

// Means over all packs of a plan, per virtual stage, for timed schedules. Freed by
// sp_schedule_costs_free.
sp_schedule_costs *sp_step_costs_means(const sp_step_costs *costs, const sp_plan *plan);
// Adds the times of every pack, for schedules that order by pack.
void sp_step_costs_by_pack(const sp_step_costs *costs, const sp_plan *plan,
                           sp_schedule_costs *means);
void sp_schedule_costs_free(sp_schedule_costs *means);

// The same f, b, w for every pack: `uniform_costs` of a scenario. Milliseconds per micro-batch and
// rank stage, or per chunk where per_chunk; b_ms is the input gradient, w_ms the weight gradient.
typedef struct sp_uniform_costs {
    double f_ms, b_ms, w_ms, p2p_ms;
    int per_chunk;
    // Part of f (and of b) that is attention: slice k of n costs (2k+1)/n of the mean there.
    double attention_share;
    int has_units;
    double unit_f, unit_b, unit_w;
} sp_uniform_costs;

void sp_step_costs_uniform(const sp_uniform_costs *uniform, const sp_layout *layout,
                           const sp_packing *packing, sp_step_costs *costs);

// ---- one action of a plan, and a share of a vocabulary ----

// The cost of an action that needs more than a look into one table (sp_action_cost_of).
sp_action_cost sp_i_action_cost(const sp_plan *plan, const sp_step_costs *costs, sp_action action,
                                int vstage, bool recomputed);

// Cost of one action of the plan on its virtual stage, without its rank's shares of a vocabulary;
// `recomputed` says that the plan recomputes all of a backward's forward packs explicitly, so that
// it does not.
static inline sp_action_cost sp_action_cost_of(const sp_plan *plan, const sp_step_costs *costs,
                                               sp_action action, int vstage, bool recomputed)
{
    const sp_action_cost *table = costs->action[action.kind];
    if (table == NULL || action.kind == SP_ACTION_R || costs->share_class > 0 || recomputed) {
        return sp_i_action_cost(plan, costs, action, vstage, recomputed);
    }
    return table[(size_t)action.pack * (size_t)costs->classes +
                 (size_t)costs->stages[vstage].cost_class];
}

// Cost of a rank's share of a vocabulary's work.
sp_action_cost sp_share_cost_of(const sp_plan *plan, const sp_step_costs *costs,
                                const sp_share *share);

// ---- SlimPipe's exchange ----

// Attention-context exchange of SlimPipe (arXiv 2504.14519; kwai/Megatron-Kwai,
// megatron/core/kv_cache/attention.py). The pipeline ranks run in lock step, each a slice with
// another length of context. At every step the rank with the k-th longest context hands attention
// over whole slices of keys and values to the rank with the k-th shortest, so that both work alike.

typedef struct sp_exchange_report {
    // Attention of the busiest rank, summed over the steps in which at least two are at work, over
    // the sum of the mean of those. 1: level.
    double imbalance_before, imbalance_after;
    int64_t messages;  // two for every hand-over: there and back
    int64_t q_tokens;  // queries that went to another rank, forward and backward
    int64_t kv_tokens; // keys and values that went along
} sp_exchange_report;

// Moves attention between the ranks in the costs of a plan whose ranks run the same units in the
// same order: at step t rank r runs forward unit t - r and backward unit t - (p-1-r), and a rank
// without a unit takes no part. The attention of a pack is its causal pairs; of its context whole
// stretches as long as the pack can be handed over, at most half of the difference between the two
// ranks. For equal slices of one sequence these are int((longer - shorter) / 2) slices.
// Ranks are levelled step by step, forward and backward apart: the makespan of ranks that do not
// wait for each other at every step falls as a rule, not in every plan.
// Afterwards each virtual stage is a class of its own. Sums of attention and compute time stay as
// they are; the transfers themselves are taken to be hidden behind computation. With one pipeline
// rank nothing changes. A plan whose ranks are not in lock step, or with packs merged over
// data-parallel ranks, is a content error; after an error the costs are as before.
// Time O(actions log pp + packs * virtual stages), memory O(packs * virtual stages).
sp_status sp_exchange_apply(const sp_plan *plan, sp_step_costs *costs, sp_exchange_report *report,
                            sp_error *err);

// The attention of packs that all data-parallel ranks share, as tasks for every rank of a pipeline
// (DistCA, arXiv 2510.18121): in step t, as above, all p ranks take an equal part of it, those
// without a unit as well. What moves hides behind the computation of the unit (two half
// micro-batches in turn) with what its context-parallel ranks exchange. Attention that ranks
// without a unit take is in no action of theirs. SP_ERR_INFEASIBLE where ranks are not in lock
// step, SP_ERR_CONTENT where packs are not on all data-parallel ranks; the costs are then as
// before.
sp_status sp_pool_apply(const sp_plan *plan, sp_step_costs *costs, sp_exchange_report *report,
                        sp_error *err);

// Bytes sent. q_bytes: queries of one token in all layers of a virtual stage on one rank; kv_bytes:
// its keys and values together. Forward, queries, keys and values go and outputs (as large as the
// queries) return; backward, gradients of outputs go and gradients of queries, keys and values
// return. The softmax statistics (one number per head and token) are not counted.
double sp_exchange_bytes(const sp_exchange_report *report, double q_bytes, double kv_bytes);

#endif
