// Orders of F, I and W on the ranks of a V placement (two chunks per rank, virtual stages r and
// 2p-1-r), with their times: what ZB-V, V-Half and V-Min are worked out on before they become a
// plan.
#ifndef SLIMPACK_SIM_SCHEDULE_V_ORDER_H
#define SLIMPACK_SIM_SCHEDULE_V_ORDER_H

#include "sim/schedule/schedule_family.h"

enum {
    SP_I_V_F,
    SP_I_V_I,
    SP_I_V_W,
    SP_I_V_KINDS,
    SP_I_V_UNIT = 1 << 20, // one chunk's activations of one micro-batch
};

// Costs and memory of an order; plain data, arrays borrowed. Memory is counted in whole numbers so
// that no sum depends on its order: unit[] is the change at F (SP_I_V_UNIT), at I, at W (neither
// positive), and the three add up to 0.
typedef struct sp_i_v_setting {
    int pp, microbatches;
    const int64_t *duration_ns[SP_I_V_KINDS]; // [2 * pp], positive
    int64_t p2p_ns;
    int64_t unit[SP_I_V_KINDS];
    int64_t cap; // most a rank holds
} sp_i_v_setting;

// An operation to be moved: by end (right) or start (left), then by start, then by number.
typedef struct sp_i_v_key {
    int64_t first_ns, second_ns;
    size_t id;
} sp_i_v_key;

// What an operation is.
typedef struct sp_i_v_op {
    int kind, vstage, rank, microbatch;
    int64_t duration_ns;
} sp_i_v_op;

// An operation is numbered (kind * 2p + virtual stage) * m + micro-batch.
typedef struct sp_i_v_order {
    const sp_i_v_setting *setting;
    sp_i_v_op *what;   // [operations]
    size_t per_rank;   // 6m
    size_t *op;        // [pp * per_rank], each rank in its order
    size_t *count;     // [pp]: written so far
    size_t *slot;      // [operations]: place in its rank's order
    int64_t *start_ns; // [operations]
    int64_t *held;     // [pp * per_rank]: memory before the operation at a place
    size_t *timed;     // [pp]: operations timed so far
    int64_t *free_ns;  // [pp]: end of the last of them
    // [operations]: scratch of justification
    sp_i_v_key *keys, *merged;
} sp_i_v_order;

// In memory of the arena.
sp_i_v_order sp_i_v_order_new(sp_arena *work, const sp_i_v_setting *setting);
void sp_i_v_order_clear(sp_i_v_order *order);

void sp_i_v_order_append(sp_i_v_order *order, int kind, int vstage, int microbatch);

// Starts every operation of a full order, which can finish, as early as order and inputs allow,
// then justifies the order `rounds` times. What is shorter than *best_ns on the way goes to *best;
// it ends where nothing can be shorter.
// Beside the justification O(operations + p * rounds of the ranks).
void sp_i_v_order_improve(sp_i_v_order *order, int rounds, sp_i_v_order *best, int64_t *best_ns);

// No order is shorter than the work of its busiest rank.
int64_t sp_i_v_least_span_ns(const sp_i_v_setting *setting);

// Adds the actions of an order that keeps to the cap to the plan.
void sp_i_v_order_emit(const sp_i_v_order *order, sp_i_schedule_job *job);

// Greedy orders under a memory cap, by simulating the ranks.
enum { SP_I_V_RULES = 4 };

// Writes the order of a rule (0 .. SP_I_V_RULES-1) into an empty one; its setting has a cap of 2p
// chunks or more. O(operations * p).
void sp_i_v_greedy(sp_arena *work, int rule, sp_i_v_order *order);

#endif
