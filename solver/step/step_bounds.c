// The bounds under a step's time: of its pure work, and of the best that its kind of strategy and
// schedule could do with the same samples.
#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "solver/bounds/bounds.h"
#include "solver/search.h"
#include "solver/step/step.h"
#include "solver/strategy.h"

typedef struct memory_bound {
    sp_bound_stage *stage; // [virtual stages], owned, as all; costs are filled in by slope
    double *room_bytes;    // [pp], beside the states
    double *tail_s;        // [pp], of the epilogue
    bool limited;          // false: time alone counts
} memory_bound;

// Plans of a kind may do these.
typedef struct memory_kind {
    bool splits, whole, repeats; // as in sp_bound_memory
} memory_kind;

// Tells what a plan's kind may do with the samples.
typedef struct freedom {
    bool cuts, merges, splits; // samples into slices, ranks, backwards
    bool repeats;              // forwards run again
    bool reorders; // work is moved or taken out of actions, which only the bound of work survives
} freedom;

static void memory_bound_init(memory_bound *bound, const sp_scenario *scenario,
                              const sp_cost_model *cost, const sp_step_costs *costs, bool limited);
static void memory_bound_fini(memory_bound *bound);
static void memory_bound_s(const memory_bound *bound, sp_cost_model *cost, int slope,
                           memory_kind may, const sp_bound_batch *batch, double *endless_s,
                           double *room_s);

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
        int64_t ns = sp_epilogue_ns(&costs->ranks[r].epilogue);
        shortest_ns = ns < shortest_ns ? ns : shortest_ns;
    }
    memory_bound memory;
    double memory_ns = 0.0;
    memory_bound_init(&memory, steps->scenario, &steps->cost, costs,
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
        const memory_kind kind = {may.splits, !may.cuts, may.repeats};
        memory_bound_s(&memory, &steps->cost, slope, kind, &batch, &endless_s, &room_s);
        facts->lower_bound_ns = fmax(facts->lower_bound_ns, endless_s * SP_NS_PER_S);
        facts->lower_bound_ns =
            fmax(facts->lower_bound_ns, bound_s * SP_NS_PER_S + (double)shortest_ns);
        memory_ns = fmax(memory_ns, room_s * SP_NS_PER_S);
    }
    facts->bound_memory_ns = fmax(0.0, memory_ns - facts->lower_bound_ns);
    facts->lower_bound_ns += facts->bound_memory_ns;
    memory_bound_fini(&memory);
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
    bool adds = costs->side[1].unit != NULL && scenario->memory.recompute == SP_RECOMPUTE_NONE;
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
    sp_sample_sums sums = {0};
    for (size_t i = 0; i < batch->count; i++) {
        sp_sample_sums_add(&sums, &steps->scenario->model, batch->tokens[i]);
    }
    double most_ns = 0.0;
    double all_s = 0.0;
    int64_t shortest_ns = INT64_MAX;
    for (int r = 0; r < layout->pp; r++) {
        double rank_s = 0.0;
        for (int chunk = 0; chunk < layout->chunks; chunk++) {
            const sp_least_work *least =
                sp_cost_model_least_work(&steps->cost, sp_layout_vstage(layout, r, chunk), slope);
            rank_s += sp_least_work_s(least, &sums);
        }
        int64_t ns = sp_epilogue_ns(&costs->ranks[r].epilogue);
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

// ---- within memory ----

// Tokens of every rank in the packs that bytes of a token are told from.
enum { ROWS = 4096 };

static void count_bytes(const sp_cost_model *cost, int vstage, sp_bound_stage *stage);

static void memory_bound_init(memory_bound *bound, const sp_scenario *scenario,
                              const sp_cost_model *cost, const sp_step_costs *costs, bool limited)
{
    const sp_layout *layout = &scenario->layout;
    size_t vstages = (size_t)sp_layout_vstages(layout);
    *bound = (memory_bound){
        .stage = sp_calloc(vstages, sizeof *bound->stage),
        .room_bytes = sp_calloc((size_t)layout->pp, sizeof *bound->room_bytes),
        .tail_s = sp_calloc((size_t)layout->pp, sizeof *bound->tail_s),
        .limited = limited,
    };
    for (size_t s = 0; s < vstages; s++) {
        int chunk;
        sp_layout_locate(layout, (int)s, &bound->stage[s].rank, &chunk);
        if (limited) {
            count_bytes(cost, (int)s, &bound->stage[s]);
        }
    }
    for (int r = 0; r < layout->pp; r++) {
        double states = (double)sp_bytes_total(&costs->ranks[r].states);
        bound->room_bytes[r] = fmax((double)scenario->memory_limit_bytes - states, 1.0);
        bound->tail_s[r] = (double)sp_epilogue_ns(&costs->ranks[r].epilogue) / SP_NS_PER_S;
    }
}

static void memory_bound_fini(memory_bound *bound)
{
    sp_free(bound->stage);
    sp_free(bound->room_bytes);
    sp_free(bound->tail_s);
    *bound = (memory_bound){0};
}

// Seconds at the rates of a slope: *room_s with memory, *endless_s without a limit.
static void memory_bound_s(const memory_bound *bound, sp_cost_model *cost, int slope,
                           memory_kind may, const sp_bound_batch *batch, double *endless_s,
                           double *room_s)
{
    const sp_layout *layout = cost->layout;
    sp_bound_memory memory = {.stage = bound->stage,
                              .stages = sp_layout_vstages(layout),
                              .ranks = layout->pp,
                              .tail_s = bound->tail_s,
                              // Chunks that follow each other on one rank send nothing.
                              .p2p_s = layout->chunks > 1 ? 0.0 : sp_cost_model_least_p2p_s(cost),
                              .split = may.splits,
                              .whole = may.whole,
                              .repeats = may.repeats};
    for (int s = 0; s < memory.stages; s++) {
        sp_least_work *least = &bound->stage[s].least;
        *least = *sp_cost_model_least_passage(cost, s, slope);
        if (!may.splits) {
            least->i_token_s = least->b_token_s;
            least->i_square_s = least->b_square_s;
            least->i_pack_s = least->b_pack_s;
        }
    }
    memory.endless_s = endless_s;
    memory.room_bytes = bound->limited ? bound->room_bytes : NULL;
    *room_s = sp_bound_memory_s(&memory, batch);
}

// Bytes of a pack of so many tokens and what later slices read of it.
static sp_unit_bytes unit_of(const sp_cost_model *cost, const sp_stage *layers, int64_t tokens,
                             int64_t kv_tokens)
{
    sp_memory_options options = cost->memory;
    // Where ranks share experts these may have but the rows of one of them.
    int ranks = sp_layout_expert_ranks(cost->layout);
    sp_unit_load load = {.tokens = tokens,
                         .kv_tokens = kv_tokens,
                         .expert_tokens = ranks > 1 ? sp_larger(1, tokens / ranks) : 0};
    sp_unit_bytes unit;
    options.offload_ratio = 0.0;
    sp_footprint_unit(cost->model, cost->layout, layers, &options, &load, &unit);
    return unit;
}

// Of the layers alone: the softmax of the head is not there all the time. A pack whose rows are
// whole has the least a token. Keys and values that no later slice reads are rebuilt rather than
// held, others are not rebuilt.
static void count_bytes(const sp_cost_model *cost, int vstage, sp_bound_stage *stage)
{
    const sp_stage layers = sp_stage_layers(&cost->stages[vstage]);
    int64_t tokens = (int64_t)ROWS * cost->layout->cp * cost->layout->tp;
    if (layers.layers == 0) {
        return;
    }
    sp_unit_bytes unit = unit_of(cost, &layers, tokens, 0);
    const sp_bytes held = unit.held;
    // All that may be offloaded is away all the time and costs nothing. It is rounded up to whole
    // MiB, and no tensor of a layer below one leaves.
    double ratio = cost->memory.offload_ratio;
    double away = ratio > 0.0 ? fmin(1.0, ratio + 1.0 / layers.layers) : 0.0;
    stage->held_bytes =
        ((double)sp_bytes_total(&held) - away * (double)held.of[SP_MEM_ACTIVATIONS]) /
        (double)tokens;
    if (!cost->stages[vstage].embedding) {
        stage->repeated_bytes = (double)sp_bytes_total(&unit.repeated) / (double)tokens;
    }
    if (cost->memory.stack.tensors == SP_TENSORS_EXPLICIT) {
        return; // not in proportion to tokens
    }
    sp_unit_bytes one = unit_of(cost, &layers, tokens, tokens);
    sp_unit_bytes two = unit_of(cost, &layers, 2 * tokens, 2 * tokens);
    int64_t f_bytes = sp_bytes_total(&two.forward) - sp_bytes_total(&one.forward);
    int64_t i_bytes = sp_bytes_total(&two.input_gradient) - sp_bytes_total(&one.input_gradient);
    stage->f_bytes = (double)f_bytes / (double)tokens;
    stage->i_bytes = (double)i_bytes / (double)tokens;
}

// ---- packs that are beaten ----

// What packs that are priced one after the other add up to, in nanoseconds. Gradients of inputs and
// of weights apart take as long as a whole backward, or longer.
typedef struct priced_packs {
    const sp_layout *layout;
    bool split;           // weight gradients may come after the last backward of an input
    bool in_order;        // whole backwards of whole samples
    int64_t *f_ns, *b_ns; // [classes] a pack's forward and whole backward
    int64_t *w_ns;        // [classes] of no use
    int64_t *work_ns;     // [dp * pp] of each rank
    int64_t *ways_ns;     // [2 * dp] the least forward and backward on all ranks but the last
    int64_t *ends_ns;     // [2 * dp * vstages] of the last forward and the last backward
    int64_t most_ns;      // the largest work of a rank, and the last end
} priced_packs;

// A step's actions take what packs cost by themselves, or longer, unless they run beside each
// other, attention moves between pipeline ranks, or GPUs differ. Experts in a round have the rows
// of all its packs.
static bool prices_are_least(const sp_strategy_input *input)
{
    const sp_scenario *scenario = input->scenario;
    const sp_stack *stack = &scenario->memory.stack;
    return !scenario->uniform && !stack->expert_overlap && stack->cp_overlap != SP_CP_TASKS &&
           scenario->schedule.kind == SP_SCHEDULE_PACKFLOW && !(scenario->jitter.gpu_cv > 0.0) &&
           input->cost->load == NULL && sp_layout_expert_ranks(&scenario->layout) == 1;
}

static int64_t least_way_ns(int64_t least_ns, int64_t way_ns)
{
    return least_ns == 0 || way_ns < least_ns ? way_ns : least_ns;
}

// Each virtual stage runs forwards in the order of the list, and backwards of whole samples, too
// (packflow.h): a forward begins when the one before it and its own on the stage before have ended,
// a backward when those before it have. Nothing else keeps them waiting here.
static void run_in_order(priced_packs *p, const sp_cost_model *cost, int d)
{
    const int vstages = sp_layout_vstages(p->layout);
    int64_t *forward_ns = p->ends_ns + 2 * (ptrdiff_t)d * vstages;
    int64_t *backward_ns = forward_ns + vstages;
    int64_t end_ns = 0;
    for (int v = 0; v < vstages && !p->layout->vocab_parallel; v++) {
        end_ns = sp_larger(end_ns, forward_ns[v]) + p->f_ns[cost->class_of_vstage[v]];
        forward_ns[v] = end_ns;
    }
    for (int v = vstages - 1; v >= 0 && p->in_order; v--) {
        end_ns = sp_larger(end_ns, backward_ns[v]) + p->b_ns[cost->class_of_vstage[v]];
        backward_ns[v] = end_ns;
    }
    p->most_ns = sp_larger(p->most_ns, end_ns);
}

static void add_pack(priced_packs *p, const sp_cost_model *cost, const sp_pack *pack)
{
    const sp_layout *layout = p->layout;
    int64_t forward_ns = 0;
    int64_t backward_ns = 0;
    for (int r = 0; r < layout->pp; r++) {
        int64_t work_ns = 0;
        for (int chunk = 0; chunk < layout->chunks; chunk++) {
            const int c = cost->class_of_vstage[sp_layout_vstage(layout, r, chunk)];
            work_ns += p->f_ns[c] + p->b_ns[c];
        }
        for (int d = pack->dp_first; d < pack->dp_first + pack->dp_count; d++) {
            int64_t *of_rank = &p->work_ns[d * layout->pp + r];
            *of_rank += work_ns;
            p->most_ns = sp_larger(p->most_ns, *of_rank);
        }
        if (r + 1 < layout->pp) {
            forward_ns += p->f_ns[cost->class_of_vstage[r]];
            backward_ns += p->split ? 0 : p->b_ns[cost->class_of_vstage[r]];
        }
    }
    for (int d = pack->dp_first; d < pack->dp_first + pack->dp_count; d++) {
        p->ways_ns[2 * d] = least_way_ns(p->ways_ns[2 * d], forward_ns);
        p->ways_ns[2 * d + 1] = least_way_ns(p->ways_ns[2 * d + 1], backward_ns);
        run_in_order(p, cost, d);
    }
}

// The last pipeline rank begins with a pack that has come up all others, and ends, where backwards
// are whole, with one that goes down all others. Prices of a shared vocabulary hold each rank's
// share of the head, which is not on that way.
static int64_t last_rank_ns(const priced_packs *p)
{
    int64_t most_ns = p->most_ns;
    for (int d = 0; d < p->layout->dp && !p->layout->vocab_parallel; d++) {
        int64_t work_ns = p->work_ns[(d + 1) * p->layout->pp - 1];
        most_ns = sp_larger(most_ns, work_ns + p->ways_ns[2 * d] + p->ways_ns[2 * d + 1]);
    }
    return most_ns;
}

// The outcomes of which packs have to be better than each: NULL none.
typedef struct beaten_by {
    const sp_packflow_outcome *best, *before;
} beaten_by;

static bool is_no_better(int64_t least_ns, const sp_packflow_outcome *than)
{
    const sp_packflow_outcome least = {.makespan_ns = least_ns};
    return than != NULL && !sp_packflow_is_better(&least, than);
}

static bool is_beaten(int64_t least_ns, const beaten_by *than)
{
    return is_no_better(least_ns, than->best) || is_no_better(least_ns, than->before);
}

static bool holds_whole_samples(const sp_pack_list *list)
{
    bool whole = true;
    for (size_t i = 0; i < list->slice_count && whole; i++) {
        whole = list->slices[i].begin == 0;
    }
    return whole;
}

static bool price_until_beaten(const sp_strategy_input *input, const sp_pack_list *list,
                               const beaten_by *than)
{
    const size_t classes = (size_t)input->cost->stage_classes;
    const sp_layout *layout = &input->scenario->layout;
    const size_t ranks = (size_t)layout->dp * (size_t)layout->pp;
    const size_t vstages = (size_t)layout->dp * (size_t)sp_layout_vstages(layout);
    int64_t *tables =
        sp_calloc(3 * classes + ranks + 2 * (size_t)layout->dp + 2 * vstages, sizeof *tables);
    priced_packs p = {.layout = layout,
                      .split = input->scenario->schedule.split_backward,
                      .f_ns = tables,
                      .b_ns = tables + classes,
                      .w_ns = tables + 2 * classes,
                      .work_ns = tables + 3 * classes,
                      .ways_ns = tables + 3 * classes + ranks,
                      .ends_ns = tables + 3 * classes + ranks + 2 * layout->dp};
    p.in_order = !p.split && !layout->vocab_parallel && holds_whole_samples(list);
    bool beaten = false;
    for (size_t k = 0; k < list->count && !beaten; k++) {
        sp_cost_model_pack_ns(input->cost, list, &list->packs[k], false, p.f_ns, p.b_ns, p.w_ns);
        add_pack(&p, input->cost, &list->packs[k]);
        beaten = is_beaten(p.most_ns, than);
    }
    beaten = beaten || is_beaten(last_rank_ns(&p), than);
    sp_free(tables);
    return beaten;
}

bool sp_step_is_beaten(const sp_strategy_input *input, const sp_packing *packing,
                       const sp_packflow_outcome *best)
{
    const beaten_by than = {best, input->beaten};
    bool beaten = packing->backward.count == 0 && is_beaten(INT64_MAX - 1, &than) &&
                  prices_are_least(input) && price_until_beaten(input, &packing->forward, &than);
    if (beaten) {
        sp_i_spend_step(input->scenario, packing); // as if it were judged
    }
    return beaten;
}
