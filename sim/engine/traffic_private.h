// What the files of a step's traffic share.
#ifndef SLIMPACK_SIM_ENGINE_TRAFFIC_PRIVATE_H
#define SLIMPACK_SIM_ENGINE_TRAFFIC_PRIVATE_H

#include "sim/base/alloc.h"
#include "sim/engine/traffic.h"
#include "sim/network/collective_route.h"

// A route, whose transfers are flows or take their closed times.
typedef struct sp_i_way {
    sp_route route;
    bool is_used, is_flow;
    int32_t owner;         // ways of one follow each other
    struct sp_i_way *next; // of those used
} sp_i_way;

// The ways of one kind of collective by one algorithm, one for each leg.
typedef struct sp_i_passage {
    sp_collective_algorithm algorithm;
    sp_collective kind;
    sp_passage of; // its links are the ways'
    sp_i_way ways[SP_PASSAGE_LEGS];
    struct sp_i_passage *next;
} sp_i_passage;

// What a flow is of: a send; the reductions of a pipeline rank; of a rank, dp * pp + pp rank, the
// exchange of context-parallel ranks, those of the zones of a pack, or what ZeRO exchanges in an
// action.
typedef enum sp_i_flow_of {
    SP_I_SEND,
    SP_I_REDUCTION_OF,
    SP_I_EXCHANGE_OF,
    SP_I_ZONES_OF,
    SP_I_SHARDED_OF,
    SP_I_FLOW_KINDS
} sp_i_flow_of;

static inline int64_t sp_i_tag(sp_i_flow_of kind, int index)
{
    return (int64_t)index * SP_I_FLOW_KINDS + kind;
}

// The gradients of one model chunk.
typedef struct sp_i_chunk_gradients {
    int ranks_to_begin;        // data-parallel ranks whose last action that makes some is to begin
    size_t left;               // actions that make some and have not ended, on all of them
    bool is_made;              // all have begun, and not all is reduced
    int64_t first_ns, last_ns; // when the first and the last bucket are ready
} sp_i_chunk_gradients;

// Context-parallel ranks that exchange something: those of `dp_count` merged data-parallel ranks
// from one on, of which head_ranks neighbours each exchange heads, and all at one place among them
// keys and values. Groups that begin with the same rank are a list.
typedef struct sp_i_group {
    int dp_count, head_ranks, ring_nics;
    sp_i_way heads, keys; // used where more than one rank is there
    struct sp_i_group *next;
} sp_i_group;

// An exchange of context-parallel ranks in an action: first what computation hides, over all the
// time that is hidden behind, then the keys and values that it does not hide, then the heads.
typedef enum sp_i_exchange_phase {
    SP_I_HIDDEN,
    SP_I_SHOWN_KEYS,
    SP_I_HEADS,
    SP_I_EXCHANGED
} sp_i_exchange_phase;

typedef struct sp_i_exchange {
    const sp_i_group *group;
    sp_i_exchange_phase phase; // that is under way
    int64_t ns[SP_I_EXCHANGED];
    double bytes[SP_I_EXCHANGED];
} sp_i_exchange;

// From one data-parallel rank of a pipeline rank to another: tokens that go to their zone, and
// those that come back. Those from one rank are a list.
typedef struct sp_i_move_way {
    int to, node_ranks;
    sp_i_way there, back;
    struct sp_i_move_way *next;
} sp_i_move_way;

// The exchanges of the zones of a pack in an action: tokens move into them, beside all the work of
// the action they exchange, and results move back.
typedef enum sp_i_zones_phase {
    SP_I_MOVE_IN,
    SP_I_RINGS,
    SP_I_MOVE_BACK,
    SP_I_ZONES_OVER
} sp_i_zones_phase;

typedef struct sp_i_in_zones {
    const sp_pack_zones *zones;
    double layers[2]; // that run the passes of sp_zone_exchange
    sp_i_zones_phase phase;
    int under_way; // flows of it
    int64_t ns[SP_I_ZONES_OVER];
} sp_i_in_zones;

typedef enum sp_i_reduction_phase {
    SP_I_FIRST_BUCKETS, // of a chunk, or waits for one
    SP_I_LAST_BUCKET,
    SP_I_REDUCTION, // of what no bucket has
    SP_I_GATHER,
    SP_I_REDUCED
} sp_i_reduction_phase;

// What data-parallel ranks exchange as one collective: some of a rank's buckets, what it reduces or
// gathers at the end, what ZeRO gathers or scatters in an action.
typedef struct sp_i_part {
    int64_t at_ns, alone_ns;
    double bytes;
    double hidden_bytes; // of a gather, behind the next step's first forward
    sp_collective kind;
    sp_collective_algorithm by;
} sp_i_part;

// A part on its way.
typedef struct sp_i_passing {
    const sp_i_passage *passage;
    sp_i_part part;
    int leg; // that is under way
} sp_i_passing;

// What ZeRO exchanges in an action, in turn: parameters that nothing hides; beside the action's
// work, parameters and then gradients, each over its share of the time; gradients that nothing
// hides.
typedef enum sp_i_sharded_phase {
    SP_I_SHOWN_GATHER,
    SP_I_HIDDEN_GATHER,
    SP_I_HIDDEN_SCATTER,
    SP_I_SHOWN_SCATTER,
    SP_I_SHARDED_PHASES
} sp_i_sharded_phase;

// Of a rank: what it gets of the collectives of all data-parallel ranks, each of which takes part
// in an action of its own and waits for none of the others.
typedef struct sp_i_sharded {
    sp_i_passage *passages;
    int first_rank;                       // of those that run the action together
    sp_i_part parts[SP_I_SHARDED_PHASES]; // of the action
    double gather_share;                  // of the time that parts take alone
    int phase, end_phase;                 // that is under way; the first of the next turn
    sp_i_passing passing;
} sp_i_sharded;

// The turns of an action.
typedef enum sp_i_turn {
    SP_I_BEFORE_WORK,
    SP_I_BESIDE_WORK,
    SP_I_BEHIND_WORK,
    SP_I_TURNS
} sp_i_turn;

// The share that is not hidden of an exchange that takes whole_s by itself.
static inline double sp_i_shown_share(int64_t shown_ns, double whole_s)
{
    return whole_s > 0.0 ? fmin(1.0, (double)shown_ns / SP_NS_PER_S / whole_s) : 0.0;
}

// An action whose exchanges are flows, on all ranks that run it together, which begin together.
typedef struct sp_i_in_action {
    sp_walk_action action; // on the last of its ranks
    sp_dp_ranks ranks;
    bool has_cp;    // context-parallel ranks have flows
    sp_i_turn turn; // that is under way
    int under_way;  // flows of it
    // Its work but for exchanges of context-parallel ranks, and those, as formulas show them.
    int64_t hidden_ns, shown_ns;
    int64_t turn_ns[SP_I_TURNS]; // that turns take alone
    int64_t cp_end_ns;           // of the turn, by all but data-parallel ranks, as far as is known
    int64_t end_ns;
    int64_t dp_ns; // by which data-parallel ranks made the action longer so far, or shorter
} sp_i_in_action;

// What the data-parallel ranks of one pipeline rank exchange, those of all TP ranks together.
typedef struct sp_i_reduction {
    bool exchanges;
    sp_i_passage *passages;
    size_t left; // actions that have not ended, but for copies
    sp_i_chunk_gradients *chunks;
    sp_i_reduction_phase phase; // that comes next or is under way
    bool is_under_way, is_due;  // a flow; something new may begin
    int chunk;
    sp_i_passing passing; // that comes or is under way
    int64_t free_ns;      // end of what is over
    int64_t ready_ns, reduced_ns;
} sp_i_reduction;

struct sp_i_traffic {
    const sp_plan *plan;
    const sp_step_costs *costs;
    sp_timeline *timeline;
    sp_topology *topology;
    sp_flows *flows;
    double *carried; // [links]: bytes that are sent
    sp_i_way *ways;  // those used
    int32_t owners;  // of them
    sp_i_way *sends; // [(dp * pp + pp rank) * 2]: to the next pipeline rank, to the one before
    // Of the flows that are sends, by their number: the action.
    sp_plan_place *places;
    size_t place_capacity;
    sp_walk_event *events; // the first of which the walk knows
    size_t event_count, event_capacity, events_told;
    sp_i_group **groups;        // [dp * pp]: by first rank
    sp_i_exchange *exchanges;   // [dp * pp]: under way, by first rank
    sp_i_move_way **moves;      // [dp * pp]: by first rank; NULL: no pack has zones
    sp_i_in_zones *in_zones;    // [dp * pp]: under way, by first rank of the pack
    sp_i_in_action *in_action;  // [dp * pp]: under way, by the first rank that runs it
    sp_i_sharded *sharded;      // [dp * pp]
    bool *shards;               // [pp]: what ZeRO exchanges in actions is flows on some rank
    sp_arena work;              // holds these, and passages
    sp_i_reduction *reductions; // [pp]
    sp_i_chunk_gradients *chunks;
    int32_t *to_begin; // [dp * pp * chunks]: actions that make gradients
    bool any_due;
};

// From a pipeline rank to a neighbour on the ring of pp.
static inline sp_i_way *sp_i_way_of(const sp_i_traffic *t, int dp, int from, int to)
{
    int pp = t->plan->layout.pp;
    size_t back = (from + 1) % pp == to ? 0 : 1;
    return &t->sends[((size_t)dp * (size_t)pp + (size_t)from) * 2 + back];
}

// Makes the routes that the plan uses, and says which of their transfers are flows
// (traffic_ways.c).
void sp_i_ways_make(sp_i_traffic *traffic, const sp_network *network);
void sp_i_ways_free(sp_i_traffic *traffic);
bool sp_i_ways_any_flow(const sp_i_traffic *traffic);

// Notes that the plan uses a way, whose transfers are flows unless they cannot meet others.
static inline void sp_i_use_way(sp_i_traffic *traffic, sp_i_way *way)
{
    if (!way->is_used) {
        way->is_used = way->is_flow = true;
        way->owner = ++traffic->owners;
        way->next = traffic->ways;
        traffic->ways = way;
    }
}

static inline int sp_i_rank_of(const sp_i_traffic *t, int dp, int pp)
{
    return dp * t->plan->layout.pp + pp;
}

static inline int64_t sp_i_gpu_of(const sp_layout *layout, int tp, int cp, int dp, int pp)
{
    return tp * sp_layout_stride(layout, SP_AXIS_TP) + cp * sp_layout_stride(layout, SP_AXIS_CP) +
           dp * sp_layout_stride(layout, SP_AXIS_DP) + pp * sp_layout_stride(layout, SP_AXIS_PP);
}

// The GPUs of a pipeline rank of a data-parallel rank, tp * cp of them, each `stride` places behind
// the one before.
static inline void sp_i_list_gpus(const sp_layout *layout, int dp, int pp, int64_t *gpus,
                                  int stride)
{
    for (int i = 0; i < layout->tp * layout->cp; i++) {
        gpus[i * stride] = sp_i_gpu_of(layout, i % layout->tp, i / layout->tp, dp, pp);
    }
}

static inline const sp_pack *sp_i_pack_of(const sp_i_traffic *t, sp_action action)
{
    const sp_packing *packing = t->plan->packing;
    const sp_pack_list *list =
        sp_action_is_backward(action) ? sp_packing_backward(packing) : &packing->forward;
    return &list->packs[action.pack];
}

// The data-parallel ranks that run an action together.
static inline sp_dp_ranks sp_i_together(const sp_i_traffic *t, const sp_plan_place *place)
{
    return sp_depends_together(sp_i_pack_of(t, place->action), place->action, place->dp);
}

// ---- traffic_passages.c ----

// Makes the ways by which the data-parallel ranks of each pipeline rank exchange. `gpus` has room
// for the data-parallel ranks of one.
void sp_i_passages_make(sp_i_traffic *traffic, int64_t *gpus);
// NULL: there is none.
const sp_i_passage *sp_i_passage_of(const sp_i_passage *passages, sp_collective_algorithm algorithm,
                                    sp_collective kind);

// By how much formulas say more than a collective takes alone (sp_route_lone_s). NULL: there is no
// way.
double sp_i_passage_saved_s(const sp_i_passage *passage, double bytes, double closed_s);

// Starts the next leg of what is passed on that is a flow, at_ns at the earliest; *is_under_way:
// there is one. Else *end_ns is when all is over.
sp_status sp_i_pass_on(sp_i_traffic *traffic, sp_i_passing *passing, int64_t at_ns, int64_t tag,
                       bool *is_under_way, int64_t *end_ns, sp_error *err);

// ---- traffic_actions.c: what is exchanged in an action ----

// An action begins; *exchanges: an event will end it.
sp_status sp_i_actions_begin(sp_i_traffic *traffic, const sp_walk_action *action, int64_t start_ns,
                             const sp_action_cost *took, bool *exchanges, sp_error *err);
// A flow has ended: of the context-parallel ranks from `rank` on or of zones, of a data-parallel
// rank.
sp_status sp_i_actions_exchanged(sp_i_traffic *traffic, int rank, bool zones, int64_t now_ns,
                                 sp_error *err);
sp_status sp_i_actions_sharded(sp_i_traffic *traffic, int rank, int64_t now_ns, sp_error *err);

// Layers of an action in which context-parallel ranks exchange as in [0] a forward or an input
// gradient, [1] a recomputation; *forward: by the costs of forward packs.
void sp_i_actions_layers(const sp_i_traffic *traffic, const sp_walk_action *action,
                         double layers[2], bool *forward);

// ---- traffic_zones.c: of the zones of a pack ----

// Their groups and moves, without routes.
void sp_i_zones_make(sp_i_traffic *traffic);
// The way of a move's list on its rank.
void sp_i_zones_route(sp_i_traffic *traffic, int rank, sp_i_move_way *move);
// Has an action flows of theirs?
bool sp_i_zones_are(const sp_i_traffic *traffic, const sp_walk_action *action);
// Begins what the zones of an action's pack exchange, of which shown_ns come beside hidden_ns of
// work; *is_under_way: a flow of it.
sp_status sp_i_zones_begin(sp_i_traffic *traffic, const sp_walk_action *action, int64_t at_ns,
                           int64_t hidden_ns, int64_t shown_ns, bool *is_under_way, sp_error *err);
// A flow has ended; *is_over: it was the last, and all of it ends at *end_ns.
sp_status sp_i_zones_ended(sp_i_traffic *traffic, int rank, int64_t now_ns, bool *is_over,
                           int64_t *end_ns, sp_error *err);

// ---- exchanges.c: of context-parallel ranks ----

// The group of so many data-parallel ranks from one on that exchange so, NULL where there is none;
// made by `add`.
sp_i_group *sp_i_group_find(const sp_i_traffic *traffic, int dp_first, int dp_count, int pp,
                            const sp_cp_exchange *exchange);
void sp_i_group_add(sp_i_traffic *traffic, int dp_first, int dp_count, int pp,
                    const sp_cp_exchange *exchange);

// The groups that exchange keys and values, without their routes.
void sp_i_exchanges_make(sp_i_traffic *traffic);
// Has an action flows of theirs?
bool sp_i_exchanges_are(const sp_i_traffic *traffic, const sp_walk_action *action);
// What nothing hides of what an action exchanges alone, of shown_ns by its formulas: computation
// hides as much in the same time.
int64_t sp_i_exchanges_shown_ns(const sp_i_traffic *traffic, const sp_walk_action *action,
                                int64_t shown_ns);
// Begins what an action exchanges that takes as long by formulas, on all ranks of its pack.
sp_status sp_i_exchanges_begin(sp_i_traffic *traffic, const sp_walk_action *action, int64_t at_ns,
                               int64_t hidden_ns, int64_t shown_ns, sp_error *err);
// Its flow has ended; *is_over: it was the last.
sp_status sp_i_exchanges_ended(sp_i_traffic *traffic, int rank, int64_t now_ns, bool *is_over,
                               sp_error *err);

// ---- traffic_sharded.c: of data-parallel ranks with ZeRO 2 and 3 ----

// Room for them.
void sp_i_sharded_make(sp_i_traffic *traffic);
// Has an action flows of theirs?
bool sp_i_sharded_are(const sp_i_traffic *traffic, const sp_walk_action *action);
// What an action on its rank exchanges, by which formulas make the action dp_ns longer: by how much
// it alone makes each turn longer, [SP_I_TURNS].
void sp_i_sharded_set(sp_i_traffic *traffic, const sp_walk_action *action, int64_t dp_ns,
                      int64_t turn_ns[SP_I_TURNS]);
// Begins what comes in a turn that takes as long; *is_under_way: a flow of it. Else it ends at
// *end_ns.
sp_status sp_i_sharded_begin(sp_i_traffic *traffic, int rank, sp_i_turn turn, int64_t at_ns,
                             int64_t turn_ns, bool *is_under_way, int64_t *end_ns, sp_error *err);
// Its flow has ended.
sp_status sp_i_sharded_ended(sp_i_traffic *traffic, int rank, int64_t now_ns, bool *is_under_way,
                             int64_t *end_ns, sp_error *err);

// ---- traffic.c ----

// Counts the bytes of what goes along a route, or by a collective over a tensor of `bytes`: those
// that are sent, however fast, of which a flow may put less on links (route.h).
void sp_i_traffic_carry(sp_i_traffic *traffic, const sp_route *route, double bytes, int rounds);
void sp_i_traffic_carry_passage(sp_i_traffic *traffic, const sp_passage *passage, double bytes);

// Starts a flow; *id may be NULL.
sp_status sp_i_traffic_start(sp_i_traffic *traffic, const sp_flow *flow, int32_t *id,
                             sp_error *err);
// Notes an event of the walk.
void sp_i_traffic_event(sp_i_traffic *traffic, sp_walk_event event);

// ---- reductions.c ----

// What they wait for and whether they need ways, without their routes.
void sp_i_reductions_make(sp_i_traffic *traffic);
// An action begins, which takes as long alone; an action has ended.
void sp_i_reductions_begun(sp_i_traffic *traffic, const sp_plan_place *place, int64_t start_ns,
                           int64_t took_ns);
void sp_i_reductions_made(sp_i_traffic *traffic, const sp_plan_place *place, int64_t end_ns);
// Begins what can begin, once all that ran stands in the timeline.
sp_status sp_i_reductions_begin(sp_i_traffic *traffic, sp_error *err);
// The flow of a pipeline rank has ended.
sp_status sp_i_reductions_ended(sp_i_traffic *traffic, int pp_rank, int64_t now_ns, sp_error *err);

#endif
