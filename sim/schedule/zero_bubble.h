// Action orders of the zero-bubble schedules with one chunk per rank: built as bare sequences,
// timed and turned into actions once chosen; and clocks and memory of the ranks while zb-auto
// builds one.
#ifndef SLIMPACK_SIM_SCHEDULE_ZERO_BUBBLE_H
#define SLIMPACK_SIM_SCHEDULE_ZERO_BUBBLE_H

#include "sim/schedule/schedule_family.h"

// Each kind takes the micro-batches in ascending order, so the sequence of kinds says it all: rank
// r runs kinds[r * 3m .. (r + 1) * 3m), each F, I or W.
typedef struct sp_i_zb_order {
    int pp, microbatches;
    uint8_t *kinds;
} sp_i_zb_order;

// An order, and below a clock, in memory of the arena.
sp_i_zb_order sp_i_zb_order_new(sp_arena *work, int pp, int microbatches);

// The handcrafted orders of Zero Bubble (arXiv 2401.10241, sections 2.1 and 2.2): rank r runs
// steepness * (p-1-r) + 1 forwards, then I, a W, F in turn, its weight gradients steepness * r
// behind the input gradients. Steepness 1 is ZB-H1 (the warm-up of 1F1B), 2 is ZB-H2.
void sp_i_zb_order_static(const sp_i_zb_order *order, int steepness);

typedef struct sp_i_zb_rank {
    int f, i, w; // done, which is also the next micro-batch of each kind
    int64_t start_ns, now_ns;
    int64_t bubble_ns; // waited since the first F
} sp_i_zb_rank;

typedef struct sp_i_zb_clock {
    const sp_schedule_costs *costs;
    sp_i_zb_order order; // what has run
    double cap;          // activation units a rank may hold
    int64_t *f_end_ns;   // [rank * microbatches + microbatch]
    int64_t *i_end_ns;
    sp_i_zb_rank *ranks; // [pp]
    int64_t most_bubble_ns;
    bool over_cap; // some rank held more than the cap
} sp_i_zb_clock;

sp_i_zb_clock sp_i_zb_clock_new(sp_arena *work, const sp_schedule_costs *costs, double cap, int pp,
                                int microbatches);
// Runs a whole order; it must be free of deadlock. O(actions + pp * (pp + microbatches)).
void sp_i_zb_replay(sp_i_zb_clock *clock, const sp_i_zb_order *order);

// Longest time from a rank's first start to its last end, the zero-bubble papers' cost.
int64_t sp_i_zb_longest_span_ns(const sp_i_zb_clock *clock);

#endif
