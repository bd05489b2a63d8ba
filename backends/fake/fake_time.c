#include "backends/fake/fake_time.h"

#include <math.h>

#include "sim/base/prng.h"
#include "sim/cost/action_cost.h"

static const sp_i_scripted *script_of(const sp_i_fake_options *options, const sp_plan_place *place)
{
    for (size_t i = options->scripted_count; i > 0; i--) {
        if (sp_i_selects(&options->scripted[i - 1].selector, place)) {
            return &options->scripted[i - 1];
        }
    }
    return NULL;
}

// A draw in [-1, 1) that belongs to the action and not to the order in which actions run.
static double draw(const sp_i_fake_time *t, const sp_plan_place *place)
{
    const int64_t parts[] = {
        t->step, place->dp, place->pp, place->action.kind, place->action.chunk, place->action.pack};
    sp_prng prng;
    uint64_t seed = t->request->seed;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        sp_prng_seed(&prng, seed ^ (uint64_t)parts[i]);
        seed = sp_prng_u64(&prng);
    }
    return 2.0 * sp_prng_uniform(&prng) - 1.0;
}

static int64_t scale(int64_t ns, double factor)
{
    double scaled = floor((double)ns * factor + 0.5);
    return scaled < (double)SP_I_FAKE_MOST_NS ? (int64_t)scaled : SP_I_FAKE_MOST_NS;
}

static void add_jitter(const sp_i_fake_time *t, const sp_plan_place *place, sp_action_cost *cost)
{
    double factor = 1.0 + t->options->jitter * draw(t, place);
    cost->compute_ns = scale(cost->compute_ns, factor);
    cost->tp_ns = scale(cost->tp_ns, factor);
    cost->cp_ns = scale(cost->cp_ns, factor);
    cost->dp_ns = scale(cost->dp_ns, factor);
    cost->launch_ns = scale(cost->launch_ns, factor);
}

sp_status sp_i_fake_action(void *context, const sp_walk_action *action, sp_walk_outcome *outcome,
                           sp_error *err)
{
    const sp_i_fake_time *t = context;
    const sp_plan_place *place = &action->place;
    const sp_plan *plan = t->request->plan;
    if (sp_i_selects(&t->options->fail, place)) {
        return sp_error_at_action(err, SP_ERR_INTERNAL, plan, place, "it failed, as asked for");
    }
    if (sp_i_selects(&t->options->exhaust, place)) {
        return sp_error_at_action(err, SP_ERR_INFEASIBLE, plan, place,
                                  "no memory left under the limit of %lld bytes, as asked for",
                                  (long long)t->request->memory_limit_bytes);
    }
    outcome->stalls = sp_i_selects(&t->options->stall, place);
    const sp_i_scripted *scripted = script_of(t->options, place);
    if (scripted != NULL) {
        outcome->took = (sp_action_cost){.compute_ns = scripted->ns};
    } else if (t->request->costs != NULL) {
        outcome->took = sp_action_cost_of(plan, t->request->costs, place->action, action->vstage,
                                          action->recomputed);
    }
    if (t->options->jitter > 0.0) {
        add_jitter(t, place, &outcome->took);
    }
    for (int p = 0; action->shares != NULL && p < plan->layout.pp; p++) {
        if (action->shares[p] != NULL) {
            outcome->shares[p] = sp_share_cost_of(plan, t->request->costs, action->shares[p]);
        }
    }
    return SP_OK;
}

int64_t sp_i_fake_transfer_ns(void *context, const sp_plan_place *from, int to)
{
    const sp_i_fake_time *t = context;
    const sp_run_request *request = t->request;
    return request->costs != NULL
               ? sp_step_costs_p2p_ns(request->costs, from->action.kind != SP_ACTION_F,
                                      (size_t)from->action.pack, from->pp, to,
                                      request->plan->layout.pp)
               : t->options->p2p_ns;
}

static bool has_cost(const sp_step_costs *costs, sp_action action)
{
    return costs != NULL &&
           (!sp_action_is_copy(action) || (costs->o_ns != NULL && costs->l_ns != NULL));
}

sp_status sp_i_fake_time_check(const sp_run_request *request, const sp_i_fake_options *options,
                               sp_error *err)
{
    const sp_plan *plan = request->plan;
    const sp_step_costs *costs = request->costs;
    if (costs != NULL && (costs->forward_packs != plan->packing->forward.count ||
                          costs->backward_packs != sp_packing_backward(plan->packing)->count)) {
        return sp_error_set(err, SP_ERR_USAGE, "the costs are those of another plan");
    }
    for (int d = 0; d < plan->layout.dp; d++) {
        for (int p = 0; p < plan->layout.pp; p++) {
            const sp_stage_plan *stage = sp_plan_stage(plan, d, p);
            for (size_t a = 0; a < stage->count; a++) {
                sp_plan_place place = {.dp = d, .pp = p, .action = stage->actions[a]};
                if (!has_cost(costs, place.action) && script_of(options, &place) == NULL) {
                    return sp_error_at_action(err, SP_ERR_CONTENT, plan, &place,
                                              "backend 'fake' has neither a cost nor a scripted "
                                              "duration for it");
                }
            }
        }
    }
    return SP_OK;
}
