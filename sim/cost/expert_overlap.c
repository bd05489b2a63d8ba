// A forward beside the backward of another micro-batch, layer by layer: a list schedule of both on
// two resources, computation and exchanges of experts.
#include "sim/cost/expert_overlap.h"

#include <math.h>

#include "sim/base/units.h"

// ---- one pair ----

// The layers of one side in the order of their run. A layer has four tasks of it; every second one
// computes.
typedef struct chain {
    const sp_task_chain *of;
    bool backward, apart; // apart: weight gradients are no part of it
    int64_t step;         // 4 * layers done + task
    bool runs;            // the task at `step`
    double left_ns;       // of all tasks from `step` on
} chain;

static double weights_ns(const chain *c)
{
    const sp_layer_tasks *tasks =
        &c->of->tasks[c->of->kind[c->of->layers - 1 - (int)(c->step / 4)]];
    return (double)(c->step % 4 == 1   ? tasks->mlp_weights_ns
                    : c->step % 4 == 3 ? tasks->attention_weights_ns
                                       : 0);
}

static double task_ns(const chain *c)
{
    int layer = (int)(c->step / 4);
    int task = (int)(c->step % 4);
    if (!c->backward) {
        const sp_layer_tasks *tasks = &c->of->tasks[c->of->kind[layer]];
        const int64_t ns[] = {tasks->attention_ns, tasks->first_ns, tasks->mlp_ns,
                              tasks->return_ns};
        return (double)ns[task];
    }
    const sp_layer_tasks *tasks = &c->of->tasks[c->of->kind[c->of->layers - 1 - layer]];
    const int64_t ns[] = {tasks->first_ns, tasks->mlp_ns, tasks->return_ns, tasks->attention_ns};
    return (double)ns[task] + (c->apart ? 0.0 : weights_ns(c));
}

static bool is_done(const chain *c)
{
    return c->step >= 4 * (int64_t)c->of->layers;
}

static bool computes(const chain *c)
{
    return (c->step % 2 != 0) == c->backward;
}

static chain chain_of(const sp_task_chain *of, bool backward, bool apart, double sum_ns[2])
{
    chain c = {.of = of, .backward = backward, .apart = apart};
    for (; !is_done(&c); c.step++) {
        c.left_ns += task_ns(&c);
        sum_ns[computes(&c) ? 0 : 1] += task_ns(&c) + (backward && apart ? weights_ns(&c) : 0.0);
    }
    c.step = 0;
    return c;
}

// Ends the task at `step`, and all behind it that take no time. Returns the weight gradients that
// may run from then on.
static double end_task(chain *c)
{
    double freed_ns = 0.0;
    do {
        freed_ns += c->backward && c->apart ? weights_ns(c) : 0.0;
        c->left_ns -= task_ns(c);
        c->step++;
    } while (!is_done(c) && task_ns(c) <= 0.0);
    c->runs = false;
    return freed_ns;
}

// The ready task of the resource with the most behind it; the backward's of two alike.
static chain *next_of(chain *forward, chain *backward, bool compute)
{
    bool f = !forward->runs && !is_done(forward) && computes(forward) == compute;
    bool b = !backward->runs && !is_done(backward) && computes(backward) == compute;
    if (f && b) {
        return forward->left_ns > backward->left_ns ? forward : backward;
    }
    return f ? forward : b ? backward : NULL;
}

static void begin_next(chain *forward, chain *backward, bool compute, chain **runs, double *left_ns)
{
    if (*runs == NULL) {
        *runs = next_of(forward, backward, compute);
        if (*runs != NULL) {
            (*runs)->runs = true;
            *left_ns = task_ns(*runs);
        }
    }
}

static double skip_empty(chain *c)
{
    double freed_ns = 0.0;
    if (!is_done(c) && task_ns(c) <= 0.0) {
        freed_ns = end_task(c);
    }
    return freed_ns;
}

sp_pair_times sp_time_pair(const sp_overlap_rates *rates, const sp_task_chain *forward,
                           const sp_task_chain *backward)
{
    double sum_ns[2] = {0.0, 0.0};
    double own_ns[2] = {0.0, 0.0};
    chain f = chain_of(forward, false, false, own_ns);
    sum_ns[0] += own_ns[0];
    sum_ns[1] += own_ns[1];
    sp_pair_times times = {.forward_exchange_ns = llround(own_ns[1])};
    chain b = chain_of(backward, true, rates->delays_weights, sum_ns);
    double weights_left_ns = skip_empty(&f) + skip_empty(&b);
    chain *computing = NULL;
    chain *exchanging = NULL;
    double compute_ns = 0.0;
    double exchange_ns = 0.0;
    double now_ns = 0.0;
    for (;;) {
        begin_next(&f, &b, true, &computing, &compute_ns);
        begin_next(&f, &b, false, &exchanging, &exchange_ns);
        bool weights = computing == NULL && weights_left_ns > 0.0;
        bool works = computing != NULL || weights;
        if (!works && exchanging == NULL) {
            break;
        }
        bool both = works && exchanging != NULL;
        double slow[2] = {both ? 1.0 + rates->compute_slows : 1.0,
                          both ? 1.0 + rates->exchange_slows : 1.0};
        double *work_ns = weights ? &weights_left_ns : &compute_ns;
        double work_end_ns = works ? *work_ns * slow[0] : (double)INFINITY;
        double exchange_end_ns = exchanging != NULL ? exchange_ns * slow[1] : (double)INFINITY;
        double step_ns = fmin(work_end_ns, exchange_end_ns);
        now_ns += step_ns;
        if (works) {
            *work_ns = work_end_ns <= step_ns ? 0.0 : *work_ns - step_ns / slow[0];
        }
        if (exchanging != NULL && exchange_end_ns <= step_ns) {
            weights_left_ns += end_task(exchanging);
            exchanging = NULL;
        } else if (exchanging != NULL) {
            exchange_ns -= step_ns / slow[1];
        }
        if (computing != NULL && work_end_ns <= step_ns) {
            weights_left_ns += end_task(computing);
            computing = NULL;
        }
    }
    times.compute_ns = llround(sum_ns[0]);
    times.exchange_ns = llround(sum_ns[1]);
    times.makespan_ns = (int64_t)ceil(now_ns - 1e-3);
    return times;
}

// ---- in a step ----

static sp_task_chain chain_on(const sp_expert_overlap *overlap, const sp_layer_tasks *tasks,
                              int32_t pack, int vstage)
{
    return (sp_task_chain){.tasks = &tasks[(size_t)pack * (size_t)overlap->kinds],
                           .kind = &overlap->kind[overlap->first[vstage]],
                           .layers = overlap->first[vstage + 1] - overlap->first[vstage]};
}

void sp_hide_experts(const sp_plan *plan, const sp_expert_overlap *overlap, int pp,
                     sp_action action, sp_action partner, sp_action_cost *cost)
{
    if (overlap->tasks[0] == NULL) {
        return;
    }
    bool backward = sp_action_is_backward(action);
    sp_action f = backward ? partner : action;
    sp_action b = backward ? action : partner;
    sp_task_chain forward =
        chain_on(overlap, overlap->tasks[0], f.pack, sp_layout_vstage(&plan->layout, pp, f.chunk));
    sp_task_chain back =
        chain_on(overlap, overlap->tasks[1], b.pack, sp_layout_vstage(&plan->layout, pp, b.chunk));
    sp_pair_times times = sp_time_pair(&overlap->rates, &forward, &back);
    int64_t hidden_ns = sp_larger(0, times.compute_ns + times.exchange_ns - times.makespan_ns);
    if (hidden_ns == 0) {
        return;
    }
    double share = (double)times.forward_exchange_ns / (double)times.exchange_ns;
    int64_t forward_ns = (int64_t)floor(share * (double)hidden_ns);
    cost->ep_hidden_ns = backward ? hidden_ns - forward_ns : forward_ns;
    cost->ep_ns -= cost->ep_hidden_ns;
    sp_action_cost_keep_above_zero(cost);
}
