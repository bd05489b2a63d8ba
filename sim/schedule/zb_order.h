// Action orders of the zero-bubble schedules with one chunk per rank: built as bare sequences,
// timed, and turned into actions once chosen.
#ifndef SLIMPACK_SIM_SCHEDULE_ZB_ORDER_H
#define SLIMPACK_SIM_SCHEDULE_ZB_ORDER_H

#include <stdint.h>

#include "sim/schedule/schedule_family.h"

// Each kind takes the micro-batches in ascending order, so the sequence of kinds says it all: rank
// r runs kinds[r * 3m .. (r + 1) * 3m), each F, I or W.
typedef struct sp_i_zb_order {
    int pp, microbatches;
    uint8_t *kinds;
} sp_i_zb_order;

bool sp_i_zb_order_init(sp_i_zb_order *order, int pp, int microbatches);
void sp_i_zb_order_fini(sp_i_zb_order *order);
uint8_t *sp_i_zb_order_rank(const sp_i_zb_order *order, int pp_rank);

// The handcrafted orders of Zero Bubble (arXiv 2401.10241, sections 2.1 and 2.2): rank r runs
// steepness * (p-1-r) + 1 forwards, then I, a W, F in turn, its weight gradients steepness * r
// behind the input gradients. Steepness 1 is ZB-H1 (the warm-up of 1F1B), 2 is ZB-H2.
void sp_i_zb_order_static(const sp_i_zb_order *order, int steepness);

// Writes the actions of all ranks; false when memory runs out.
bool sp_i_zb_order_emit(const sp_i_zb_order *order, const sp_i_schedule_job *job);

#endif
