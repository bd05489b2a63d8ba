// The bounds under a step's time: of its pure work, and of the best that its kind of strategy and
// schedule could do with the same samples.
#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "solver/bounds/bounds.h"
#include "solver/step/memory_bound.h"
#include "solver/step/step.h"
#include "solver/strategy.h"

// What a plan's kind may do with the samples.
typedef struct freedom {
    bool cuts, merges, splits; // samples into slices, ranks, backwards
    bool repeats;              // forwards run again
    bool reorders; // work is moved or taken out of actions, which only the bound of work survives
} freedom;

static int64_t busiest_rank_ns(const sp_step_metrics *metrics);
static bool fits(const sp_scenario *scenario, const sp_step_metrics *metrics);
static freedom freedom_of(const sp_i_steps *steps, const sp_plan *plan, const sp_step_costs *costs);
static sp_bound_costs least_costs(sp_i_steps *steps, int slope, const freedom *may,
                                  double most_tokens);
static void set_sizes(sp_i_steps *steps, double most_tokens, sp_bound_costs *costs);
static double work_ns(sp_i_steps *steps, const sp_bound_batch *batch, const sp_step_costs *costs,
                      int slope, bool exchanged, double *in_epilogue_ns);
static double pipeline_s(const sp_bound_costs *costs, const sp_bound_batch *batch,
                         const freedom *may, bool grows);

void sp_i_step_bounds(sp_i_steps *steps, const sp_plan *plan, const sp_step_costs *costs,
                      const sp_step_metrics *metrics, sp_batch_facts *facts)
{
    if (steps->scenario->uniform) {
        facts->work_bound_ns = (double)busiest_rank_ns(metrics);
        facts->lower_bound_ns = facts->work_bound_ns;
        return;
    }
    const sp_packing *packing = plan->packing;
    freedom may = freedom_of(steps, plan, costs);
    int64_t *tokens = sp_malloc((packing->batch->count + 1) * sizeof *tokens);
    sp_bound_batch batch = {
        .tokens = tokens, .ranks = steps->scenario->layout.dp, .merged = may.merges};
    double most_tokens = 0.0; // in a pack
    for (size_t s = 0; s < packing->forward.slice_count; s++) {
        const sp_slice *slice = &packing->forward.slices[s];
        if (slice->begin == 0) {
            tokens[batch.count] = packing->batch->tokens[slice->sample];
            most_tokens += (double)tokens[batch.count++];
        }
    }
    double in_epilogue_ns = 0.0;
    facts->work_bound_ns =
        work_ns(steps, &batch, costs, 0, steps->result->has_exchange, &in_epilogue_ns);
    facts->lower_bound_ns = facts->work_bound_ns;
    facts->gap_packs_ns = metrics->dp_mean_ns + in_epilogue_ns - facts->work_bound_ns;
    facts->gap_uneven_ns = metrics->dp_busiest_ns - metrics->dp_mean_ns;
    facts->gap_idle_ns = (double)metrics->iteration_ns - metrics->dp_busiest_ns - in_epilogue_ns;
    int64_t shortest_ns = INT64_MAX;
    for (int r = 0; r < steps->scenario->layout.pp; r++) {
        int64_t ns = sp_epilogue_ns(&costs->epilogue[r]);
        shortest_ns = ns < shortest_ns ? ns : shortest_ns;
    }
    sp_i_memory_bound memory;
    double memory_ns = 0.0;
    sp_i_memory_bound_init(&memory, steps->scenario, &steps->cost, costs,
                           fits(steps->scenario, metrics));
    // Slopes above 0 take long to find, and whole samples gain little by them.
    int first = may.cuts ? 1 : 0;
    int slopes = may.reorders ? 0 : may.cuts ? SP_LEAST_SLOPES : 1;
    if (may.cuts && slopes > 0) {
        facts->lower_bound_ns =
            fmax(facts->lower_bound_ns, work_ns(steps, &batch, costs, 1, false, &in_epilogue_ns));
    }
    for (int slope = first; slope < slopes; slope++) {
        sp_bound_costs least = least_costs(steps, slope, &may, most_tokens);
        // Sizes say all that slopes do of the growth of packs. Whole samples are held back by the
        // longest far more than by the growth of packs, which takes long to work out.
        bool grows = may.cuts && slope == 1 && steps->scenario->layout.chunks == 1;
        double bound_s = pipeline_s(&least, &batch, &may, grows);
        double endless_s;
        double room_s;
        const sp_i_memory_kind kind = {may.splits, !may.cuts, may.repeats};
        sp_i_memory_bound_s(&memory, &steps->cost, slope, kind, &batch, &endless_s, &room_s);
        facts->lower_bound_ns = fmax(facts->lower_bound_ns, endless_s * SP_NS_PER_S);
        facts->lower_bound_ns =
            fmax(facts->lower_bound_ns, bound_s * SP_NS_PER_S + (double)shortest_ns);
        memory_ns = fmax(memory_ns, room_s * SP_NS_PER_S);
    }
    facts->bound_memory_ns = fmax(0.0, memory_ns - facts->lower_bound_ns);
    facts->lower_bound_ns += facts->bound_memory_ns;
    sp_i_memory_bound_fini(&memory);
    sp_free(tokens);
}

// Nothing follows from a limit that the step itself breaks.
static bool fits(const sp_scenario *scenario, const sp_step_metrics *metrics)
{
    return scenario->memory_model == SP_MEMORY_TENSORS && scenario->memory_limit_bytes > 0 &&
           metrics->peak_bytes <= scenario->memory_limit_bytes;
}

static int64_t busiest_rank_ns(const sp_step_metrics *metrics)
{
    int64_t busiest = 0;
    for (int64_t r = 0; r < metrics->rank_count; r++) {
        busiest = metrics->ranks[r].busy_ns > busiest ? metrics->ranks[r].busy_ns : busiest;
    }
    return busiest;
}

static freedom freedom_of(const sp_i_steps *steps, const sp_plan *plan, const sp_step_costs *costs)
{
    const sp_scenario *scenario = steps->scenario;
    const sp_strategy *strategy = sp_strategy_find(scenario->strategy.kind);
    const sp_packing *packing = plan->packing;
    freedom may = {.cuts = strategy != NULL && strategy->sliced,
                   .reorders = steps->result->has_exchange};
    may.cuts = may.cuts || (sp_schedule_traits_of(scenario->schedule.kind).sliced &&
                            scenario->schedule.slices > 1);
    for (size_t s = 0; s < packing->forward.slice_count; s++) {
        const sp_slice *slice = &packing->forward.slices[s];
        may.cuts = may.cuts || slice->tokens < packing->batch->tokens[slice->sample];
    }
    for (size_t k = 0; k < packing->forward.count; k++) {
        may.merges = may.merges || packing->forward.packs[k].dp_count > 1;
    }
    // Then a repeat takes nothing out of a backward (step_costs.h).
    bool adds = costs->backward_unit != NULL && scenario->memory.recompute == SP_RECOMPUTE_NONE;
    for (int s = 0; s < plan->layout.dp * plan->layout.pp; s++) {
        for (size_t a = 0; a < plan->stages[s].count; a++) {
            const sp_action *action = &plan->stages[s].actions[a];
            may.splits = may.splits || action->kind == SP_ACTION_I;
            bool again = action->kind == SP_ACTION_R;
            may.repeats = may.repeats || (again && adds);
            may.reorders = may.reorders || (again && !adds) || action->with_next;
        }
    }
    return may;
}

// The cheapest virtual stage, and what the last one takes more.
static sp_bound_costs least_costs(sp_i_steps *steps, int slope, const freedom *may,
                                  double most_tokens)
{
    bool split = may->splits;
    int vstages = sp_layout_vstages(&steps->scenario->layout);
    const sp_least_work *last = sp_cost_model_least_passage(&steps->cost, vstages - 1, slope);
    sp_least_work least = *last;
    for (int s = 0; s < vstages; s++) {
        const sp_least_work *stage = sp_cost_model_least_passage(&steps->cost, s, slope);
        least.f_token_s = fmin(least.f_token_s, stage->f_token_s);
        least.f_square_s = fmin(least.f_square_s, stage->f_square_s);
        least.b_token_s = fmin(least.b_token_s, stage->b_token_s);
        least.b_square_s = fmin(least.b_square_s, stage->b_square_s);
        least.i_token_s = fmin(least.i_token_s, stage->i_token_s);
        least.i_square_s = fmin(least.i_square_s, stage->i_square_s);
        least.f_pack_s = fmin(least.f_pack_s, stage->f_pack_s);
        least.b_pack_s = fmin(least.b_pack_s, stage->b_pack_s);
        least.i_pack_s = fmin(least.i_pack_s, stage->i_pack_s);
    }
    sp_bound_costs costs = {
        .stages = vstages,
        .f_token_s = least.f_token_s,
        .f_square_s = least.f_square_s,
        .b_token_s = least.b_token_s,
        .b_square_s = least.b_square_s,
        .i_token_s = split ? least.i_token_s : least.b_token_s,
        .i_square_s = split ? least.i_square_s : least.b_square_s,
        .f_last_token_s = last->f_token_s - least.f_token_s,
        .b_last_token_s = last->b_token_s - least.b_token_s,
        .f_pack_s = least.f_pack_s,
        .b_pack_s = least.b_pack_s,
        .i_pack_s = split ? least.i_pack_s : least.b_pack_s,
        // Chunks that follow each other on one rank send nothing.
        .p2p_s = steps->scenario->layout.chunks > 1 ? 0.0 : sp_cost_model_least_p2p_s(&steps->cost),
        .split = split};
    if (slope == 1) {
        set_sizes(steps, most_tokens, &costs);
    }
    return costs;
}

// Fixed costs by size, and those of packs of all the samples as the ones of any size.
static void set_sizes(sp_i_steps *steps, double most_tokens, sp_bound_costs *costs)
{
    for (int i = 0; i < SP_LEAST_SIZES; i++) {
        sp_least_size least = sp_cost_model_least_sizes(&steps->cost, costs->stages - 1)[i];
        for (int s = 0; s < costs->stages; s++) {
            const sp_least_size *stage = &sp_cost_model_least_sizes(&steps->cost, s)[i];
            least.f_pack_s = fmin(least.f_pack_s, stage->f_pack_s);
            least.b_pack_s = fmin(least.b_pack_s, stage->b_pack_s);
            least.i_pack_s = fmin(least.i_pack_s, stage->i_pack_s);
        }
        if (least.tokens >= most_tokens) {
            costs->f_pack_s = least.f_pack_s;
            costs->b_pack_s = least.b_pack_s;
            costs->i_pack_s = costs->split ? least.i_pack_s : least.b_pack_s;
            return;
        }
        costs->size[costs->sizes++] = (sp_bound_size){least.tokens, least.f_pack_s, least.b_pack_s};
    }
}

// The work of each pipeline rank at the rates of a slope, without any fixed cost, spread evenly
// over the data-parallel ranks, and the epilogue that follows its last action. Where pipeline ranks
// exchange attention, the mean over them and the shortest epilogue. *in_epilogue_ns is the epilogue
// in it.
static double work_ns(sp_i_steps *steps, const sp_bound_batch *batch, const sp_step_costs *costs,
                      int slope, bool exchanged, double *in_epilogue_ns)
{
    const sp_layout *layout = &steps->scenario->layout;
    double tokens = 0.0;
    double squares = 0.0;
    for (size_t i = 0; i < batch->count; i++) {
        double n = (double)batch->tokens[i];
        tokens += n;
        squares += n * n;
    }
    double most_ns = 0.0;
    double all_s = 0.0;
    int64_t shortest_ns = INT64_MAX;
    for (int r = 0; r < layout->pp; r++) {
        double rank_s = 0.0;
        for (int chunk = 0; chunk < layout->chunks; chunk++) {
            const sp_least_work *least =
                sp_cost_model_least_work(&steps->cost, sp_layout_vstage(layout, r, chunk), slope);
            rank_s += tokens * (least->f_token_s + least->b_token_s) +
                      squares * (least->f_square_s + least->b_square_s);
        }
        int64_t ns = sp_epilogue_ns(&costs->epilogue[r]);
        shortest_ns = ns < shortest_ns ? ns : shortest_ns;
        all_s += rank_s;
        double own_ns = rank_s * SP_NS_PER_S / layout->dp + (double)ns;
        if (own_ns > most_ns) {
            most_ns = own_ns;
            *in_epilogue_ns = (double)ns;
        }
    }
    double mean_ns = all_s * SP_NS_PER_S / ((double)layout->dp * layout->pp) + (double)shortest_ns;
    if (exchanged || mean_ns > most_ns) {
        *in_epilogue_ns = (double)shortest_ns;
    }
    return exchanged ? mean_ns : fmax(mean_ns, most_ns);
}

static double pipeline_s(const sp_bound_costs *costs, const sp_bound_batch *batch,
                         const freedom *may, bool grows)
{
    double bound_s = sp_bound_flow_shop_s(costs, batch);
    if (!may->cuts) {
        bound_s = fmax(bound_s, sp_bound_whole_s(costs, batch));
    }
    if (grows) {
        bound_s = fmax(bound_s, sp_bound_growth_s(costs, batch));
    }
    return bound_s;
}
