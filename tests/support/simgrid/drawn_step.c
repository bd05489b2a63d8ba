#include "tests/support/simgrid/drawn_step.h"

#include <math.h>

#include "sim/model/layout.h"
#include "tests/bench/bench.h"
#include "tests/support/uniform_packing.h"

static int64_t between_ns(sp_prng *prng, double least_ms, double most_ms)
{
    return llround(1e6 * (least_ms + (most_ms - least_ms) * sp_prng_uniform(prng)));
}

// What a pack exchanges in one layer takes up to 2 ms, of which some is hidden.
static sp_cp_exchange draw_exchange(sp_prng *prng)
{
    double s = 2e-3 * (0.1 + 0.9 * sp_prng_uniform(prng));
    return (sp_cp_exchange){.s = s, .bytes = floor(200e9 * s)};
}

static void draw_actions(sp_prng *prng, sp_action_cost *costs, size_t packs, double ms, bool cp)
{
    for (size_t k = 0; k < packs; k++) {
        costs[k] = (sp_action_cost){.compute_ns = between_ns(prng, 0.5 * ms, ms),
                                    .cp_ns = cp ? between_ns(prng, 0.0, 0.2 * ms) : 0};
    }
}

static void draw_sends(sp_prng *prng, sp_pack_costs *packs, sp_p2p_times *times, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        times[k].ns = between_ns(prng, 0.1, 1.0);
        times[k].internode_ns = between_ns(prng, 1.0, 8.0);
        packs[k].p2p_bytes = floor(40e9 * 1e-9 * (double)times[k].internode_ns);
    }
}

static void draw_costs(sp_prng *prng, const sp_layout *layout, sp_step_costs *costs)
{
    size_t packs = costs->side[0].count;
    const bool cp = layout->cp > 1;
    size_t vstages = (size_t)sp_layout_vstages(layout);
    costs->has_bytes = true;
    draw_actions(prng, costs->action[SP_ACTION_F], packs, 20.0, cp);
    draw_actions(prng, costs->action[SP_ACTION_B], packs, 40.0, cp);
    draw_actions(prng, costs->action[SP_ACTION_I], packs, 20.0, cp);
    draw_actions(prng, costs->action[SP_ACTION_W], packs, 20.0, false);
    draw_sends(prng, costs->side[0].pack, costs->side[0].p2p, packs);
    draw_sends(prng, costs->side[1].pack, costs->side[1].p2p, packs);
    for (size_t k = 0; cp && k < packs; k++) {
        costs->side[0].pack[k].cp = draw_exchange(prng);
        costs->side[1].pack[k].cp = draw_exchange(prng);
    }
    for (size_t v = 0; v < vstages; v++) {
        costs->stages[v].layers = 2;
    }
    for (int p = 0; p < layout->pp; p++) {
        costs->crosses_nodes[p] = 1;
        costs->ranks[p].epilogue =
            (sp_epilogue_cost){.grad_reduce_ns = between_ns(prng, 10.0, 50.0),
                               .optimizer_ns = between_ns(prng, 1.0, 3.0),
                               .param_gather_ns = between_ns(prng, 5.0, 25.0),
                               .reduce_bytes = 1e9,
                               .gather_bytes = 0.5e9};
    }
}

void drawn_step_make(sp_prng *prng, sp_layout layout, sp_schedule_kind kind, int microbatches,
                     drawn_step *s)
{
    sp_error err = {0};
    layout.placement = sp_schedule_placement(kind, layout.chunks);
    uniform_packing(&s->packing, layout.dp, microbatches);
    require(plan_by_schedule(&s->plan, &layout, &s->packing, kind, &err), &err);
    sp_i_step_costs_init(&s->costs, &s->plan.layout, &s->packing, 1, false);
    draw_costs(prng, &s->plan.layout, &s->costs);
    require(sp_cluster_builtin("h100-8", &s->cluster, &err), &err);
    require(sp_cluster_fit(&s->cluster, sp_layout_ranks(&layout), "step", &err), &err);
    s->network = (sp_network){
        .detail = SP_NETWORK_FLOWS, .cluster = &s->cluster, .rates = {360e9, 3e-6, 0.9, 10e-6}};
}

void drawn_step_fini(drawn_step *s)
{
    sp_step_costs_fini(&s->costs);
    sp_plan_fini(&s->plan);
    sp_packing_fini(&s->packing);
}
