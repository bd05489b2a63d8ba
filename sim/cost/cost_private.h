// The parts of the cost model. Private to sim/cost.
#ifndef SLIMPACK_SIM_COST_COST_PRIVATE_H
#define SLIMPACK_SIM_COST_COST_PRIVATE_H

#include "sim/cost/cost_model.h"
#include "sim/cost/op_time.h"
#include "sim/cost/pack_time.h"
#include "sim/cost/profile.h"
#include "sim/cost/step_costs.h"
#include "sim/model/layout.h"

static inline sp_op_timer sp_i_timer_of(sp_cost_model *cost)
{
    return (sp_op_timer){
        .cluster = cost->cluster, .profile = cost->profile, .uncalibrated = &cost->uncalibrated};
}

// ---- pack_price.c: what the actions of one pack take on one virtual stage ----

// Whole backward, input gradient, weight gradient, and the recomputation that b and i contain.
typedef struct sp_i_backward_price {
    sp_action_cost b, i, w, r;
} sp_i_backward_price;

sp_action_cost sp_i_price_forward(const sp_cost_model *cost, const sp_op_timer *timer,
                                  const sp_pack *pack, const sp_i_pack_time *time,
                                  const sp_stage *stage);
sp_i_backward_price sp_i_price_backward(const sp_cost_model *cost, const sp_op_timer *timer,
                                        const sp_pack *pack, const sp_i_pack_time *time,
                                        const sp_stage *stage);

// The time of its whole backward (w_ns: 0) alone or, `split`, of both gradients.
void sp_i_price_backward_ns(const sp_cost_model *cost, const sp_op_timer *timer,
                            const sp_pack *pack, const sp_i_pack_time *time, const sp_stage *stage,
                            bool split, int64_t *b_ns, int64_t *w_ns);

// Seconds of an action that runs these passes (bits 1 << pass), without what sharded parameters
// (ZeRO) add.
enum {
    SP_I_FORWARD = 1u << SP_PASS_F,
    SP_I_AGAIN = 1u << SP_PASS_RECOMPUTE,
    SP_I_INPUTS = 1u << SP_PASS_I,
    SP_I_WEIGHTS = 1u << SP_PASS_W
};
double sp_i_price_passes_s(const sp_cost_model *cost, const sp_i_pack_time *time,
                           const sp_stage *stage, unsigned passes);

// Its nanoseconds with the exchanges of a spread vocabulary, parts not rounded apart.
int64_t sp_i_price_passes_ns(const sp_cost_model *cost, const sp_op_timer *timer,
                             const sp_pack *pack, const sp_i_pack_time *time, const sp_stage *stage,
                             unsigned passes);

// Seconds that the host takes to launch one pass of a stage (profile.h, sp_host_model). A partial
// recomputation takes its share of the forward's kernels.
double sp_i_exec_s(const sp_host_model *host, const sp_i_pack_time *time, const sp_stage *stage,
                   sp_pass pass, bool pipeline_crosses_nodes);

// Seconds by which a pass of gpu_s takes longer because it waits for launches: the norm of GPU and
// host time less the GPU's.
double sp_i_launch_wait_s(const sp_host_model *host, double gpu_s, double host_s);

// ---- least_work.c: what no packing saves, found when a cost model is made ----

// Of a unit's fixed time: half forward, a quarter for each gradient.
extern const double sp_i_unit_share[SP_I_PASSES];

enum { SP_I_SIZES_TRIED = 2700 };

// The parts of a pack's time, by size. Sizes are first asked for in their order.
typedef struct sp_i_size_times {
    int count; // of sizes that are known
    double of_part[SP_I_SIZES_TRIED][SP_I_PARTS][SP_I_PASSES];
} sp_i_size_times;

// Fills cost->least for slope 0, and the sums of sp_cost_model_sample_work_s.
void sp_i_least_work_find(sp_cost_model *cost);

// ---- epilogue.c: what a pipeline rank does once a step, after its packs ----

// Fills costs->epilogue; costs->crosses_nodes is already there.
void sp_i_fill_epilogues(const sp_cost_model *cost, const sp_op_timer *timer, sp_step_costs *costs);

// ---- unit_costs.c: bytes of every pack on every stage class, and copies to the host ----

// SP_ERR_LIMIT for a pack whose times or bytes are beyond what sums of them have room for.
sp_status sp_i_beyond_limit(const sp_pack *pack, sp_error *err);

// Fills unit, backward_unit, offloaded_bytes, o_ns and l_ns. O(slices + packs * classes).
sp_status sp_i_unit_costs_fill(const sp_cost_model *cost, const sp_packing *packing,
                               sp_step_costs *costs, sp_error *err);

// ---- zone_costs.c ----

// Keeps what the zones of pack k exchange, if it has any; notes that it is as that of the pack
// before.
void sp_i_zone_costs_note(sp_step_costs *costs, const sp_i_pack_time *time, bool backward,
                          size_t k);
void sp_i_zone_costs_repeat(const sp_pack_zones **zones, size_t k);

// ---- lone_lines.c: collectives that a spine slows ----

// Fills cost->lone. Errors: those of sp_topology_new. O(pp * k log k) for k ways of a ring, where
// leaf switches do not join all and collectives go by an algorithm.
sp_status sp_i_lone_lines_find(sp_cost_model *cost, sp_error *err);

// The timer of data-parallel ranks' collectives.
static inline sp_op_timer sp_i_replica_timer(const sp_cost_model *cost, const sp_op_timer *timer)
{
    sp_op_timer of_replicas = *timer;
    of_replicas.lone = cost->lone;
    return of_replicas;
}

// ---- zero.c: what ZeRO 2 and 3 exchange ----

// What ZeRO 2 and 3 exchange between data-parallel ranks inside a step (Rajbhandari et al., ZeRO,
// arXiv 1910.02054, sections 5 and 7; PyTorch FSDP, arXiv 2304.11277, section 3). ZeRO 2 scatters
// the gradients of each unit (embedding, layer, head) after its backward; ZeRO 3 also gathers its
// parameters before every forward and before every backward.

// Fill dp_ns of a pack's actions on a stage: what nothing hides. A gather runs behind the unit
// before, a scatter behind the unit after, behind all that the unit takes: computation and the
// exchanges of tensor and context parallelism that it waits for. A gather and a scatter at one time
// share the network; the first gather and the last scatter stand alone. What is hidden takes SMs
// and bandwidth from what hides it (interference.overlap_share), which counts as exchange, too.
// Other data-parallel ranks are not waited for. O(layers).
void sp_i_zero_forward(const sp_cost_model *cost, const sp_op_timer *timer, const sp_stage *stage,
                       const sp_i_pack_time *time, sp_action_cost *f);
// The whole backward, its halves, and a recomputation apart, which gathers for itself.
void sp_i_zero_backward(const sp_cost_model *cost, const sp_op_timer *timer, const sp_stage *stage,
                        const sp_i_pack_time *time, sp_action_cost *b, sp_action_cost *i,
                        sp_action_cost *w, sp_action_cost *r);
// Fills costs->sharded.
void sp_i_zero_fill_sharded(const sp_cost_model *cost, const sp_op_timer *timer,
                            sp_step_costs *costs);

#endif
