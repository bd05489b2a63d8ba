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

// Tags of flows: a send; from here on a pipeline rank's reduction, and behind those an exchange of
// context-parallel ranks.
enum { SP_I_TAG_SEND = 0, SP_I_TAG_REDUCTION = 1 };

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
    int dp_count, head_ranks;
    sp_i_way heads, keys; // used where more than one rank is there
    struct sp_i_group *next;
} sp_i_group;

// An exchange in an action: first what computation hides, over all the time that is hidden behind,
// then the keys and values that it does not hide, then the heads.
typedef enum sp_i_exchange_phase {
    SP_I_HIDDEN,
    SP_I_SHOWN_KEYS,
    SP_I_HEADS,
    SP_I_EXCHANGED
} sp_i_exchange_phase;

typedef struct sp_i_exchange {
    sp_plan_place place;
    const sp_i_group *group;
    sp_i_exchange_phase phase; // that is under way
    int64_t ns[SP_I_EXCHANGED];
    double bytes[SP_I_EXCHANGED];
} sp_i_exchange;

typedef enum sp_i_reduction_phase {
    SP_I_FIRST_BUCKETS, // of a chunk, or waits for one
    SP_I_LAST_BUCKET,
    SP_I_REDUCTION, // of what no bucket has
    SP_I_GATHER,
    SP_I_REDUCED
} sp_i_reduction_phase;

// Some of a rank's buckets, or what it reduces or gathers at the end, as one collective.
typedef struct sp_i_part {
    int64_t at_ns, alone_ns;
    double bytes;
    double hidden_bytes; // of a gather, behind the next step's first forward
    sp_collective kind;
    sp_collective_algorithm by;
} sp_i_part;

// What the data-parallel ranks of one pipeline rank exchange, those of all TP ranks together.
typedef struct sp_i_reduction {
    bool exchanges;
    sp_i_passage *passages;
    size_t left; // actions that have not ended, but for copies
    sp_i_chunk_gradients *chunks;
    sp_i_reduction_phase phase; // that comes next or is under way
    bool is_under_way, is_due;  // a flow; something new may begin
    int chunk;
    sp_i_part part;  // that comes or is under way
    int leg;         // of it
    int64_t free_ns; // end of what is over
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
    sp_walk_event *events;
    size_t event_count, event_capacity;
    sp_i_group **groups;        // [dp * pp]: by first rank
    sp_i_exchange *exchanges;   // [dp * pp]: under way, by first rank
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
sp_status sp_i_ways_make(sp_i_traffic *traffic, const sp_network *network, sp_error *err);
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

// The GPUs of the context-parallel ranks of some data-parallel ranks of a pipeline rank, for each
// TP rank by itself in ascending order (traffic_ways.c).
void sp_i_list_joint(const sp_i_traffic *traffic, int dp_first, int dp_count, int pp,
                     int64_t *gpus);

// ---- traffic_passages.c ----

// Makes the ways by which the data-parallel ranks of each pipeline rank exchange. `gpus` has room
// for the data-parallel ranks of one.
sp_status sp_i_passages_make(sp_i_traffic *traffic, int64_t *gpus, sp_error *err);
const sp_i_passage *sp_i_passage_of(const sp_i_reduction *reduction,
                                    sp_collective_algorithm algorithm, sp_collective kind);
// Where a leg ends of a collective that takes alone_ns in all.
int64_t sp_i_leg_end_ns(const sp_i_passage *passage, const sp_i_part *part, int leg);

// ---- exchanges.c ----

// The groups that exchange keys and values, without their routes; false without memory.
bool sp_i_exchanges_make(sp_i_traffic *traffic);
// An action begins; *exchanges: an event will end it.
sp_status sp_i_exchanges_begin(sp_i_traffic *traffic, const sp_walk_action *action,
                               int64_t start_ns, const sp_action_cost *took, bool *exchanges,
                               sp_error *err);
// A flow of the exchange of a rank, dp * pp + pp rank, has ended.
sp_status sp_i_exchanges_ended(sp_i_traffic *traffic, int rank, int64_t now_ns, sp_error *err);

// Counts the bytes of what goes along a route, or by a collective over a tensor of `bytes`
// (traffic.c): those that are sent, however fast, of which a flow may put less on links (route.h).
void sp_i_traffic_carry(sp_i_traffic *traffic, const sp_route *route, double bytes, int rounds);
void sp_i_traffic_carry_passage(sp_i_traffic *traffic, const sp_passage *passage, double bytes);
// Counts what is exchanged inside actions (traffic_sharded.c).
sp_status sp_i_sharded_carry(sp_i_traffic *traffic, sp_error *err);

// Starts a flow; *id may be NULL (traffic.c).
sp_status sp_i_traffic_start(sp_i_traffic *traffic, const sp_flow *flow, int32_t *id,
                             sp_error *err);
// Notes an event of the walk; false without memory (traffic.c).
bool sp_i_traffic_event(sp_i_traffic *traffic, sp_walk_event event);

// ---- reductions.c ----

// What they wait for and whether they need ways, without their routes; false without memory.
bool sp_i_reductions_make(sp_i_traffic *traffic);
// An action begins, which takes as long alone; an action has ended.
void sp_i_reductions_begun(sp_i_traffic *traffic, const sp_plan_place *place, int64_t start_ns,
                           int64_t took_ns);
void sp_i_reductions_made(sp_i_traffic *traffic, const sp_plan_place *place, int64_t end_ns);
// Begins what can begin, once all that ran stands in the timeline.
sp_status sp_i_reductions_begin(sp_i_traffic *traffic, sp_error *err);
// The flow of a pipeline rank has ended.
sp_status sp_i_reductions_ended(sp_i_traffic *traffic, int pp_rank, int64_t now_ns, sp_error *err);

#endif
