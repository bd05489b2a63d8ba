// Time of every part and pass of the model for one pack, on one rank: the inventories priced with
// the profile. Shared inside sim/cost.
#ifndef SLIMPACK_SIM_COST_PACK_TIME_H
#define SLIMPACK_SIM_COST_PACK_TIME_H

#include <stdbool.h>

#include "sim/cost/op_time.h"
#include "sim/cost/step_costs.h"
#include "sim/model/footprint.h"
#include "sim/model/inventory.h"
#include "sim/model/layout.h"
#include "sim/model/model.h"
#include "sim/plan/packing.h"

enum { SP_I_PARTS = 3, SP_I_PASSES = 4 };

// In seconds; communication is the part that computation does not hide.
typedef struct sp_i_time {
    double compute_s, tp_s, cp_s;
    double attention_s; // part of compute_s that grows with the pairs
} sp_i_time;

typedef struct sp_i_pack_time {
    sp_i_time of[SP_I_PARTS][SP_I_PASSES]; // one layer, embedding, head
    sp_cp_exchange cp[SP_I_PASSES];        // of one layer
    const sp_layout *layout; // the pack's: with cp grown by its data-parallel ranks (DP-Merge)
    double recompute_share;  // kernels of a layer's recomputation over those of its forward
    bool recomputes_attention;
    int ring_steps;         // of each attention call over context-parallel ranks; 0: no ring
    double unfused_softmax; // share of the attention calls whose softmax runs as separate kernels
    const struct sp_i_zones *zones; // of the pack, until the next one; NULL: none
} sp_i_pack_time;

typedef struct sp_i_pack_timer sp_i_pack_timer;

sp_i_pack_timer *sp_i_pack_timer_new(const sp_model *model, const sp_layout *layout,
                                     const sp_cluster *cluster, const sp_memory_options *memory);
void sp_i_pack_timer_free(sp_i_pack_timer *packs);

// From now on times that depend on the tokens alone are interpolated between counts 64 tokens a
// rank apart, and attention of slices that were priced before is looked up: for searches, which
// price many packs that are only tried.
void sp_i_pack_timer_interpolate(sp_i_pack_timer *packs);

// From now on the attention of a forward takes this share of its time, and fixed_s beside it in
// each layer: prefill over a part of the keys.
void sp_i_pack_timer_keep(sp_i_pack_timer *packs, double share, double fixed_s);

// O(slices + operators). Only the passes a side needs are filled: SP_PASS_F for forward packs, the
// others for backward packs.
sp_status sp_i_pack_time_of(sp_i_pack_timer *packs, const sp_op_timer *timer,
                            const sp_pack_list *list, const sp_pack *pack, bool backward,
                            sp_i_pack_time *time, sp_error *err);
// All passes.
void sp_i_pack_times_of(sp_i_pack_timer *packs, const sp_op_timer *timer, const sp_pack_list *list,
                        const sp_pack *pack, sp_i_pack_time *time);

// What no size of pack gets below, on one rank of the unmerged layout.
typedef struct sp_i_least_work {
    double token_s[SP_I_PARTS][SP_I_PASSES];
    double square_s[SP_I_PASSES]; // of one layer, per square of the sample's tokens
} sp_i_least_work;

void sp_i_pack_least_work(const sp_i_pack_timer *packs, const sp_op_timer *timer,
                          sp_i_least_work *least);

// Time of what depends on the tokens alone, with `tokens` on one data-parallel rank of the unmerged
// layout.
void sp_i_pack_token_time(const sp_i_pack_timer *packs, const sp_op_timer *timer, double tokens,
                          double token_s[SP_I_PARTS][SP_I_PASSES]);

#endif
