// The tables of a step's costs, uniform costs, the cost of one action, and costs after SlimPipe's
// exchange of attention.
#include "sim/cost/step_costs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/order.h"
#include "sim/base/units.h"

// The part of a micro-batch's time that one pack takes.
typedef struct slice_share {
    double whole, linear, attention; // of equal slices; without attention; the attention
} slice_share;

// Tables with an entry for each class.
static void free_class_tables(sp_step_costs *costs)
{
    sp_free(costs->stages);
    for (int kind = 0; kind < SP_ACTION_KINDS; kind++) {
        sp_free(costs->action[kind]);
    }
    sp_free(costs->o_ns);
    sp_free(costs->l_ns);
    sp_free(costs->offloaded_bytes);
    sp_free(costs->side[0].unit);
    sp_free(costs->side[1].unit);
}

void sp_step_costs_fini(sp_step_costs *costs)
{
    free_class_tables(costs);
    for (int side = 0; side < 2; side++) {
        sp_free(costs->side[side].p2p);
        sp_free(costs->side[side].pack);
        sp_free(costs->side[side].unit_row);
        sp_free(costs->overlap.tasks[side]);
    }
    sp_arena_free(&costs->zone_work);
    sp_free(costs->ranks);
    sp_free(costs->crosses_nodes);
    sp_free(costs->sharded);
    sp_free(costs->buckets);
    sp_free(costs->experts);
    sp_free(costs->overlap.kind);
    sp_free(costs->overlap.first);
    *costs = (sp_step_costs){0};
}

// Makes a table by pack; `written`: whoever asks for it writes all of it.
static void *pack_table(size_t count, size_t size, bool written)
{
    return written ? sp_malloc(count * size + 1) : sp_calloc(count, size);
}

static void make_tables(sp_step_costs *costs, const sp_layout *layout, const sp_packing *packing,
                        int classes, bool with_memory, bool written)
{
    const sp_pack_list *lists[2] = {&packing->forward, sp_packing_backward(packing)};
    const size_t forward_rows = lists[0]->count * (size_t)classes;
    *costs = (sp_step_costs){.classes = classes,
                             .unit_f = 1.0,
                             .unit_b = -1.0,
                             .split_unit_f = 1.0,
                             .split_unit_w = -1.0};
    costs->stages = sp_calloc((size_t)sp_layout_vstages(layout), sizeof *costs->stages);
    costs->ranks = sp_calloc((size_t)layout->pp, sizeof *costs->ranks);
    costs->crosses_nodes = sp_calloc((size_t)layout->pp, sizeof *costs->crosses_nodes);
    costs->sharded = sp_calloc((size_t)sp_layout_vstages(layout), sizeof *costs->sharded);
    for (int side = 0; side < 2; side++) {
        sp_side_costs *of = &costs->side[side];
        size_t packs = lists[side]->count;
        size_t rows = packs * (size_t)classes;
        of->count = packs;
        for (int kind = sp_first_kind(side); kind <= sp_last_kind(side); kind++) {
            costs->action[kind] = pack_table(rows, sizeof(sp_action_cost), written);
        }
        of->p2p = pack_table(packs, sizeof *of->p2p, written);
        of->pack = pack_table(packs, sizeof *of->pack, written);
        // Whoever fills the others knows how many rows there are of what units hold.
        bool has_units = with_memory && (side == 0 || lists[1] != lists[0]);
        of->unit_row = has_units && written ? sp_malloc(packs * sizeof *of->unit_row + 1) : NULL;
        of->unit = has_units && !written ? sp_calloc(rows, sizeof *of->unit) : NULL;
    }
    costs->has_bytes = with_memory;
    if (with_memory) {
        costs->o_ns = pack_table(forward_rows, sizeof *costs->o_ns, written);
        costs->l_ns = pack_table(forward_rows, sizeof *costs->l_ns, written);
    }
    if (with_memory && !written) {
        costs->offloaded_bytes = sp_calloc(forward_rows, sizeof *costs->offloaded_bytes);
    }
}

void sp_i_step_costs_init(sp_step_costs *costs, const sp_layout *layout, const sp_packing *packing,
                          int classes, bool with_memory)
{
    make_tables(costs, layout, packing, classes, with_memory, false);
}

void sp_i_step_costs_take(sp_step_costs *costs, const sp_layout *layout, const sp_packing *packing,
                          int classes)
{
    make_tables(costs, layout, packing, classes, true, true);
}

// A pack without slices is the whole micro-batch; otherwise it is one token of a sample whose
// length is the number of slices, and the causal attention of slice k of n covers 2k+1 of n*n
// parts.
static slice_share share_of(const sp_pack_list *list, const sp_batch *batch, size_t k,
                            double attention_share)
{
    double n = 1.0;
    double position = 0.0;
    if (list->packs[k].slice_count > 0) {
        const sp_slice *slice = &list->slices[list->packs[k].first_slice];
        n = (double)batch->tokens[slice->sample];
        position = (double)slice->begin;
    }
    return (slice_share){.whole = 1.0 / n,
                         .linear = (1.0 - attention_share) / n,
                         .attention = attention_share * (2.0 * position + 1.0) / (n * n)};
}

static sp_action_cost part_cost(double ms, slice_share part)
{
    return (sp_action_cost){.compute_ns = sp_ns_from_ms(ms * (part.linear + part.attention)),
                            .attention_ns = sp_ns_from_ms(ms * part.attention)};
}

void sp_step_costs_uniform(const sp_uniform_costs *uniform, const sp_layout *layout,
                           const sp_packing *packing, sp_step_costs *costs)
{
    sp_i_step_costs_init(costs, layout, packing, 1, false);
    double chunks = uniform->per_chunk ? 1.0 : (double)layout->chunks;
    int64_t p2p_ns = sp_ns_from_ms(uniform->p2p_ms);
    for (size_t k = 0; k < costs->side[0].count; k++) {
        slice_share part = share_of(&packing->forward, packing->batch, k, uniform->attention_share);
        costs->action[SP_ACTION_F][k] = part_cost(uniform->f_ms / chunks, part);
        costs->side[0].p2p[k].ns = p2p_ns;
    }
    for (size_t k = 0; k < costs->side[1].count; k++) {
        slice_share part =
            share_of(sp_packing_backward(packing), packing->batch, k, uniform->attention_share);
        slice_share equal = {.linear = part.whole};
        costs->action[SP_ACTION_I][k] = part_cost(uniform->b_ms / chunks, part);
        costs->action[SP_ACTION_W][k] = part_cost(uniform->w_ms / chunks, equal);
        costs->action[SP_ACTION_B][k] =
            (sp_action_cost){.compute_ns = costs->action[SP_ACTION_I][k].compute_ns +
                                           costs->action[SP_ACTION_W][k].compute_ns,
                             .attention_ns = costs->action[SP_ACTION_I][k].attention_ns};
        costs->side[1].p2p[k].ns = p2p_ns;
    }
    if (uniform->has_units) {
        costs->unit_f = costs->split_unit_f = uniform->unit_f;
        costs->unit_b = costs->split_unit_b = uniform->unit_b;
        costs->unit_w = costs->split_unit_w = uniform->unit_w;
    }
}

void sp_schedule_costs_free(sp_schedule_costs *means)
{
    if (means != NULL) {
        sp_free((void *)means->pack_f_ns);
    }
    sp_free(means);
}

double sp_step_costs_mean_p2p_ns(const sp_step_costs *costs, int pp, int backward, size_t k)
{
    int crossings = 0;
    for (int r = 0; r + 1 < pp; r++) {
        crossings += costs->crosses_nodes[r];
    }
    double crossing = pp > 1 ? (double)crossings / (pp - 1) : 0.0;
    const sp_p2p_times *sent = &costs->side[backward].p2p[k];
    return (1.0 - crossing) * (double)sent->ns + crossing * (double)sent->internode_ns;
}

// Returns what lies behind the times.
static int64_t *fill_transfers(const sp_step_costs *costs, int pp, int side, int64_t *to)
{
    for (size_t k = 0; k < costs->side[side].count; k++) {
        *to++ = (int64_t)(sp_step_costs_mean_p2p_ns(costs, pp, side, k) + 0.5);
    }
    return to;
}

static int64_t *fill_pack_times(const sp_step_costs *costs, int kind, size_t vstages, int64_t *to)
{
    const sp_action_cost *from = costs->action[kind];
    for (size_t k = 0; k < costs->side[kind != SP_ACTION_F].count; k++) {
        for (size_t s = 0; s < vstages; s++) {
            size_t class = (size_t)costs->stages[s].cost_class;
            *to++ = sp_action_cost_ns(&from[k * (size_t)costs->classes + class]);
        }
    }
    return to;
}

void sp_step_costs_by_pack(const sp_step_costs *costs, const sp_plan *plan,
                           sp_schedule_costs *means)
{
    size_t vstages = (size_t)sp_layout_vstages(&plan->layout);
    size_t times = costs->side[0].count * (vstages + 1) + costs->side[1].count * (3 * vstages + 1);
    int64_t *table = sp_malloc((times + 1) * sizeof *table);
    means->pack_f_ns = table;
    means->pack_b_ns = table = fill_pack_times(costs, SP_ACTION_F, vstages, table);
    means->pack_i_ns = table = fill_pack_times(costs, SP_ACTION_B, vstages, table);
    means->pack_w_ns = table = fill_pack_times(costs, SP_ACTION_I, vstages, table);
    means->pack_p2p_f_ns = table = fill_pack_times(costs, SP_ACTION_W, vstages, table);
    means->pack_p2p_b_ns = table = fill_transfers(costs, plan->layout.pp, 0, table);
    (void)fill_transfers(costs, plan->layout.pp, 1, table);
}

static int64_t mean_ns(const sp_step_costs *costs, int kind, int class)
{
    size_t packs = costs->side[kind != SP_ACTION_F].count;
    double sum = 0.0;
    for (size_t k = 0; k < packs; k++) {
        const sp_action_cost *cost =
            &costs->action[kind][k * (size_t)costs->classes + (size_t) class];
        sum += (double)(sp_action_cost_ns(cost));
    }
    return packs > 0 ? (int64_t)(sum / (double)packs + 0.5) : 0;
}

sp_schedule_costs *sp_step_costs_means(const sp_step_costs *costs, const sp_plan *plan)
{
    size_t vstages = (size_t)sp_layout_vstages(&plan->layout);
    // One block: the record, then the three tables.
    sp_schedule_costs *made = sp_calloc(1, sizeof *made + 3 * vstages * sizeof *made->f_ns);
    int64_t *table = (int64_t *)(void *)(made + 1);
    for (size_t s = 0; s < vstages; s++) {
        int class = costs->stages[s].cost_class;
        table[s] = mean_ns(costs, SP_ACTION_F, class);
        table[vstages + s] = mean_ns(costs, SP_ACTION_I, class);
        table[2 * vstages + s] = mean_ns(costs, SP_ACTION_W, class);
    }
    double p2p = 0.0;
    size_t forward = costs->side[0].count;
    for (size_t k = 0; k < forward; k++) {
        p2p += sp_step_costs_mean_p2p_ns(costs, plan->layout.pp, 0, k);
    }
    *made = (sp_schedule_costs){.f_ns = table,
                                .i_ns = table + vstages,
                                .w_ns = table + 2 * vstages,
                                .unit_f = costs->split_unit_f,
                                .unit_b = costs->split_unit_b,
                                .unit_w = costs->split_unit_w};
    made->p2p_ns = forward > 0 ? (int64_t)(p2p / (double)forward + 0.5) : 0;
    return made;
}

// ---- one action ----

static int64_t without(int64_t whole_ns, int64_t part_ns)
{
    return whole_ns > part_ns ? whole_ns - part_ns : 0;
}

static sp_action_cost class_cost(const sp_plan *plan, const sp_step_costs *costs, sp_action action,
                                 int class, bool recomputed)
{
    size_t at = (size_t)action.pack * (size_t)costs->classes + (size_t) class;
    switch ((sp_action_kind)action.kind) {
    case SP_ACTION_F:
    case SP_ACTION_W:
        return costs->action[action.kind][at];
    case SP_ACTION_R: {
        bool whole = plan->packing->backward.count > 0;
        sp_action_cost cost = costs->action[whole ? SP_ACTION_F : SP_ACTION_R][at];
        cost.again_ns = cost.compute_ns - cost.launch_ns;
        return cost;
    }
    case SP_ACTION_B:
    case SP_ACTION_I: {
        sp_action_cost cost = costs->action[action.kind][at];
        if (recomputed) {
            const sp_action_cost *apart = &costs->action[SP_ACTION_R][at];
            cost.compute_ns -= apart->compute_ns;
            cost.again_ns = 0;
            cost.tp_ns -= apart->tp_ns;
            cost.cp_ns -= apart->cp_ns;
            cost.ep_ns -= apart->ep_ns;
            cost.ep_wait_ns -= apart->ep_wait_ns;
            cost.dp_ns -= apart->dp_wait_ns;
            cost.dp_wait_ns -= apart->dp_wait_ns;
            sp_action_cost_keep_above_zero(&cost); // a repeat may wait longer for other ranks
            // Waits do not add up: launches that one part hides in the other count once.
            cost.launch_ns = without(cost.launch_ns, apart->launch_ns);
        }
        return cost;
    }
    case SP_ACTION_O:
        return (sp_action_cost){.compute_ns = costs->o_ns != NULL ? costs->o_ns[at] : 0};
    case SP_ACTION_L:
        return (sp_action_cost){.compute_ns = costs->l_ns != NULL ? costs->l_ns[at] : 0};
    case SP_ACTION_KINDS:
        break;
    }
    return (sp_action_cost){0};
}

static int share_class(const sp_step_costs *costs, bool head)
{
    return costs->share_class + head;
}

// Takes out what the rank does at the place of a share.
static void take_share(const sp_plan *plan, const sp_step_costs *costs, sp_action action, bool head,
                       sp_action_cost *cost)
{
    sp_action_cost share = class_cost(plan, costs, action, share_class(costs, head), false);
    cost->compute_ns = without(cost->compute_ns, share.compute_ns);
    cost->tp_ns = without(cost->tp_ns, share.tp_ns);
    cost->cp_ns = without(cost->cp_ns, share.cp_ns);
}

static bool has_tokens(const sp_plan *plan, sp_action action)
{
    bool backward = action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
    const sp_pack_list *list =
        backward ? sp_packing_backward(plan->packing) : &plan->packing->forward;
    return list->packs[action.pack].computed > 0;
}

sp_action_cost sp_i_action_cost(const sp_plan *plan, const sp_step_costs *costs, sp_action action,
                                int vstage, bool recomputed)
{
    bool copy = sp_action_is_copy(action);
    int class = copy ? (int)sp_i_memory_class(costs, vstage) : costs->stages[vstage].cost_class;
    sp_action_cost cost = class_cost(plan, costs, action, class, recomputed);
    // Weight gradients of the head are no share: they need no other rank.
    if (costs->share_class > 0 && !copy && action.kind != SP_ACTION_W && has_tokens(plan, action)) {
        if (action.chunk + 1 == plan->layout.chunks) {
            take_share(plan, costs, action, true, &cost);
        }
        if (action.chunk == 0 && vstage > 0) {
            take_share(plan, costs, action, false, &cost);
        }
    }
    return cost;
}

sp_action_cost sp_share_cost_of(const sp_plan *plan, const sp_step_costs *costs,
                                const sp_share *share)
{
    bool head = share->part == SP_SHARE_HEAD || share->part == SP_SHARE_HEAD_BACKWARD;
    return class_cost(plan, costs, share->action, share_class(costs, head), false);
}

// ---- tables with a class per virtual stage ----

// Classes that belong to no stage.
static size_t others_of(const sp_step_costs *costs)
{
    return costs->share_class > 0 ? (size_t)(costs->classes - costs->stage_classes) : 0;
}

// A copy of a table with its rows spread over the virtual stages, other classes behind them.
static void *spread(const sp_step_costs *costs, size_t vstages, const void *table, size_t rows,
                    size_t bytes)
{
    size_t columns = vstages + others_of(costs);
    char *made = sp_calloc(rows * columns, bytes);
    for (size_t k = 0; k < rows; k++) {
        for (size_t s = 0; s < columns; s++) {
            size_t class = s < vstages ? (size_t)costs->stages[s].cost_class
                                       : (size_t)costs->stage_classes + s - vstages;
            size_t from = k * (size_t)costs->classes + class;
            memcpy(made + (k * columns + s) * bytes, (const char *)table + from * bytes, bytes);
        }
    }
    return made;
}

// Rows of a side's packs (sp_side_costs.unit_row).
static size_t count_rows(const sp_side_costs *of)
{
    size_t rows = of->unit_row == NULL ? of->count : 0;
    for (size_t k = 0; of->unit_row != NULL && k < of->count; k++) {
        rows += (size_t)of->unit_row[k] == rows;
    }
    return rows;
}

// Only the tables that depend on the class are filled.
static void widen(const sp_step_costs *costs, const sp_layout *layout, sp_step_costs *wide)
{
    size_t vstages = (size_t)sp_layout_vstages(layout);
    bool shares = costs->share_class > 0;
    int moved = (int)vstages - costs->stage_classes;
    *wide = *costs;
    wide->classes = (int)(vstages + others_of(costs));
    wide->stage_classes = shares ? (int)vstages : 0;
    wide->share_class = shares ? costs->share_class + moved : 0;
    wide->stages = sp_malloc(vstages * sizeof *wide->stages);
    memcpy(wide->stages, costs->stages, vstages * sizeof *wide->stages);
    for (size_t s = 0; s < vstages; s++) {
        wide->stages[s].cost_class = (int)s;
        wide->stages[s].memory_class = shares ? costs->stages[s].memory_class + moved : 0;
    }
    for (int side = 0; side < 2; side++) {
        const sp_side_costs *of = &costs->side[side];
        for (int kind = sp_first_kind(side); kind <= sp_last_kind(side); kind++) {
            wide->action[kind] =
                spread(costs, vstages, costs->action[kind], of->count, sizeof(sp_action_cost));
        }
        if (of->unit != NULL) {
            wide->side[side].unit =
                spread(costs, vstages, of->unit, count_rows(of), sizeof *of->unit);
        }
    }
    // Copies to host memory come all together.
    if (costs->o_ns != NULL) {
        size_t forward = costs->side[0].count;
        wide->o_ns = spread(costs, vstages, costs->o_ns, forward, sizeof *costs->o_ns);
        wide->l_ns = spread(costs, vstages, costs->l_ns, forward, sizeof *costs->l_ns);
        wide->offloaded_bytes = spread(costs, vstages, costs->offloaded_bytes,
                                       count_rows(&costs->side[0]), sizeof *costs->offloaded_bytes);
    }
}

// ---- SlimPipe's exchange of attention ----

// One pack on one chunk, at its place in the order that all ranks share.
typedef struct unit {
    size_t pack;
    int chunk;
    double pairs2;       // twice its causal pairs
    double block_pairs2; // of them in one whole slice of context
    double blocks;       // whole slices of context
    int64_t rows, block_tokens;
} unit;

typedef struct unit_list {
    unit *units;
    size_t count, capacity;
} unit_list;

// A unit at work in a step.
typedef struct worker {
    const unit *unit;
    size_t at; // of its cost in the tables
    int rank;
} worker;

typedef struct exchange {
    const sp_plan *plan;
    sp_step_costs *costs; // one class per virtual stage
    worker *workers;      // [pp]
    sp_exchange_report *report;
    bool pool;                            // sp_pool_apply
    double most_before, most_after, mean; // sums over the steps, ns
} exchange;

static sp_status collect(const exchange *x, int dp_rank, bool backward, unit_list *list,
                         sp_error *err);
static void run_steps(exchange *x, const unit_list *list, bool backward);

static sp_status apply(const sp_plan *plan, bool pool, sp_step_costs *costs,
                       sp_exchange_report *report, sp_error *err)
{
    *report = (sp_exchange_report){.imbalance_before = 1.0, .imbalance_after = 1.0};
    if (plan->layout.pp == 1) {
        return SP_OK;
    }
    sp_status status = SP_OK;
    sp_step_costs wide = {0};
    unit_list list = {0};
    exchange x = {.plan = plan, .costs = &wide, .report = report, .pool = pool};
    x.workers = sp_calloc((size_t)plan->layout.pp, sizeof *x.workers);
    widen(costs, &plan->layout, &wide);
    for (int side = 0; side < 2; side++) {
        for (int d = 0; d < (pool ? 1 : plan->layout.dp); d++) {
            status = collect(&x, d, side == 1, &list, err);
            if (status != SP_OK) {
                goto out;
            }
            run_steps(&x, &list, side == 1);
        }
    }
    const sp_step_costs narrow = *costs;
    *costs = wide;
    wide = narrow;
    if (x.mean > 0.0) {
        report->imbalance_before = x.most_before / x.mean;
        report->imbalance_after = x.most_after / x.mean;
    }
out:
    if (status != SP_OK) {
        *report = (sp_exchange_report){0};
    }
    free_class_tables(&wide);
    sp_free(list.units);
    sp_free(x.workers);
    return status;
}

sp_status sp_exchange_apply(const sp_plan *plan, sp_step_costs *costs, sp_exchange_report *report,
                            sp_error *err)
{
    return apply(plan, false, costs, report, err);
}

sp_status sp_pool_apply(const sp_plan *plan, sp_step_costs *costs, sp_exchange_report *report,
                        sp_error *err)
{
    return apply(plan, true, costs, report, err);
}

double sp_exchange_bytes(const sp_exchange_report *report, double q_bytes, double kv_bytes)
{
    return 2.0 * q_bytes * (double)report->q_tokens + kv_bytes * (double)report->kv_tokens;
}

// ---- the units in their order ----

static bool is_of_side(sp_action action, bool backward)
{
    return backward ? action.kind == SP_ACTION_B || action.kind == SP_ACTION_I
                    : action.kind == SP_ACTION_F;
}

// The context that can be handed over is that of the slice with most pairs in it; with rows cut
// into packs a pack has at most one slice with context.
static unit unit_of(const sp_pack_list *packs, sp_action action)
{
    const sp_pack *pack = &packs->packs[action.pack];
    unit made = {.pack = (size_t)action.pack,
                 .chunk = action.chunk,
                 .pairs2 = (double)pack->pairs2,
                 .block_tokens = pack->computed};
    double most = 0.0;
    for (size_t s = 0; s < pack->slice_count; s++) {
        const sp_slice *slice = &packs->slices[pack->first_slice + s];
        double context_pairs = (double)slice->computed_tokens * (double)slice->begin;
        if (context_pairs > most) {
            most = context_pairs;
            made.rows = slice->computed_tokens;
            made.blocks = (double)(slice->begin / pack->computed);
        }
    }
    made.block_pairs2 = 2.0 * (double)made.rows * (double)made.block_tokens;
    return made;
}

static void append(unit_list *list, unit made)
{
    *SP_ADDED(list->units, list->capacity, list->count) = made;
}

static sp_status not_in_step(const exchange *x, const sp_plan *plan, int dp_rank, int pp_rank,
                             sp_error *err)
{
    return sp_error_set(err, x->pool ? SP_ERR_INFEASIBLE : SP_ERR_CONTENT,
                        "the attention exchange needs pipeline ranks in lock step, but %d and %d "
                        "of data-parallel rank %d of %d run different units",
                        pp_rank - 1, pp_rank, dp_rank, plan->layout.dp);
}

static sp_status wrong_ranks(const exchange *x, int pack, sp_error *err)
{
    return x->pool ? sp_error_set(err, SP_ERR_CONTENT,
                                  "attention as tasks for all stages needs packs of all "
                                  "data-parallel ranks, as strategy \"distca\" makes them, unlike "
                                  "pack %d",
                                  pack)
                   : sp_error_set(err, SP_ERR_CONTENT,
                                  "the attention exchange cannot run packs that several "
                                  "data-parallel ranks share, such as pack %d",
                                  pack);
}

static sp_status collect(const exchange *x, int dp_rank, bool backward, unit_list *list,
                         sp_error *err)
{
    const sp_plan *plan = x->plan;
    const sp_pack_list *packs =
        backward ? sp_packing_backward(plan->packing) : &plan->packing->forward;
    list->count = 0;
    for (int r = 0; r < plan->layout.pp; r++) {
        const sp_stage_plan *stage = sp_plan_stage(plan, dp_rank, r);
        size_t place = 0;
        for (size_t a = 0; a < stage->count; a++) {
            sp_action action = stage->actions[a];
            if (!is_of_side(action, backward)) {
                continue;
            }
            if (packs->packs[action.pack].dp_count != (x->pool ? plan->layout.dp : 1)) {
                return wrong_ranks(x, (int)action.pack, err);
            }
            if (r == 0) {
                append(list, unit_of(packs, action));
            }
            if (place >= list->count || list->units[place].pack != (size_t)action.pack ||
                list->units[place].chunk != action.chunk) {
                return not_in_step(x, plan, dp_rank, r, err);
            }
            place++;
        }
        if (place != list->count) {
            return not_in_step(x, plan, dp_rank, r, err);
        }
    }
    return SP_OK;
}

// ---- the exchange ----

static int compare_workers(const void *left, const void *right)
{
    const worker *a = left;
    const worker *b = right;
    return SP_ORDER_2(a, b, unit->pairs2, rank);
}

static int64_t attention_ns(const exchange *x, const worker *w, bool backward)
{
    return x->costs->action[sp_first_kind(backward)][w->at].attention_ns;
}

static double most_attention_ns(const exchange *x, int count, bool backward)
{
    int64_t most = 0;
    for (int i = 0; i < count; i++) {
        int64_t ns = attention_ns(x, &x->workers[i], backward);
        most = ns > most ? ns : most;
    }
    return (double)most;
}

static void move(sp_action_cost *table, size_t from, size_t to, double fraction)
{
    int64_t ns = (int64_t)llround((double)table[from].attention_ns * fraction);
    table[from].attention_ns -= ns;
    table[from].compute_ns -= ns;
    table[to].attention_ns += ns;
    table[to].compute_ns += ns;
}

static void hand_over(exchange *x, const worker *from, const worker *to, bool backward)
{
    const unit *lender = from->unit;
    double surplus2 = lender->pairs2 - to->unit->pairs2;
    if (lender->blocks < 1.0 || surplus2 < 2.0 * lender->block_pairs2) {
        return;
    }
    double blocks = fmin(lender->blocks, floor(surplus2 / (2.0 * lender->block_pairs2)));
    double fraction = blocks * lender->block_pairs2 / lender->pairs2;
    if (backward) {
        move(x->costs->action[SP_ACTION_B], from->at, to->at, fraction);
        move(x->costs->action[SP_ACTION_I], from->at, to->at, fraction);
    } else {
        move(x->costs->action[SP_ACTION_F], from->at, to->at, fraction);
    }
    x->report->messages += 2;
    x->report->q_tokens += lender->rows;
    x->report->kv_tokens += (int64_t)blocks * lender->block_tokens;
}

static void run_step(exchange *x, int count, bool backward)
{
    qsort(x->workers, (size_t)count, sizeof *x->workers, compare_workers);
    for (int i = 0; i < count; i++) {
        x->mean += (double)attention_ns(x, &x->workers[i], backward) / count;
    }
    x->most_before += most_attention_ns(x, count, backward);
    for (int i = 0; i < count / 2; i++) {
        hand_over(x, &x->workers[count - 1 - i], &x->workers[i], backward);
    }
    x->most_after += most_attention_ns(x, count, backward);
}

// ---- all stages as a pool ----

static const sp_pack_costs *pack_costs(const exchange *x, const worker *w, bool backward)
{
    return &x->costs->side[backward].pack[w->unit->pack];
}

// What a unit exchanges beyond what its computation hides, where `share` of its attention moves.
static int64_t open_ns(const exchange *x, const worker *w, bool backward, double share,
                       double keys_s, const sp_action_cost *cost)
{
    const sp_pack_costs *of = pack_costs(x, w, backward);
    double layers = x->costs->stages[w->at % (size_t)x->costs->classes].layers;
    double moved_s = of->cp.s + (backward ? of->cp_again.s : 0.0);
    if (share > 0.0) {
        moved_s += share * of->pool_queries_s + keys_s;
    }
    return sp_larger(0, (int64_t)llround(layers * moved_s * SP_NS_PER_S) - cost->compute_ns);
}

static void add_to(sp_action_cost *cost, int64_t attention_ns, int64_t cp_ns)
{
    cost->attention_ns += attention_ns;
    cost->compute_ns += attention_ns;
    cost->cp_ns += cp_ns;
}

// Keys of the longest sample go with the tasks to every rank that takes some.
static void report_moves(exchange *x, const worker *w, bool backward, double share)
{
    x->report->messages += 2;
    x->report->q_tokens += (int64_t)(share * (double)w->unit->block_tokens);
    x->report->kv_tokens += pack_costs(x, w, backward)->longest_tokens;
}

static void level_step(exchange *x, int count, bool backward)
{
    sp_action_cost *table = x->costs->action[backward ? SP_ACTION_I : SP_ACTION_F];
    double mean_ns = 0.0;
    double most_ns = 0.0;
    double keys_s = 0.0;
    for (int i = 0; i < count; i++) {
        double own_ns = (double)table[x->workers[i].at].attention_ns;
        mean_ns += own_ns / x->plan->layout.pp;
        most_ns = fmax(most_ns, own_ns);
        keys_s = fmax(keys_s, pack_costs(x, &x->workers[i], backward)->pool_keys_s);
    }
    x->mean += mean_ns;
    x->most_before += most_ns;
    x->most_after += mean_ns;
    for (int i = 0; i < count; i++) {
        const worker *w = &x->workers[i];
        sp_action_cost *cost = &table[w->at];
        int64_t change_ns = (int64_t)llround(mean_ns) - cost->attention_ns;
        double share = change_ns != 0 ? fabs((double)change_ns) / most_ns : 0.0;
        add_to(cost, change_ns, 0);
        int64_t more_ns = open_ns(x, w, backward, share, keys_s, cost) - cost->cp_ns;
        add_to(cost, 0, more_ns);
        if (backward) {
            add_to(&x->costs->action[SP_ACTION_B][w->at], change_ns, more_ns);
        }
        if (share > 0.0) {
            report_moves(x, w, backward, share);
        }
    }
}

static void run_steps(exchange *x, const unit_list *list, bool backward)
{
    const sp_layout *layout = &x->plan->layout;
    int64_t units = (int64_t)list->count;
    for (int64_t t = 0; t < units + layout->pp - 1; t++) {
        int count = 0;
        for (int r = 0; r < layout->pp; r++) {
            int64_t place = t - (backward ? layout->pp - 1 - r : r);
            if (place < 0 || place >= units) {
                continue;
            }
            const unit *at_work = &list->units[place];
            size_t vstage = (size_t)sp_layout_vstage(layout, r, at_work->chunk);
            x->workers[count++] = (worker){.unit = at_work,
                                           .at = at_work->pack * (size_t)x->costs->classes + vstage,
                                           .rank = r};
        }
        if (x->pool) {
            level_step(x, count, backward);
        } else if (count > 1) {
            run_step(x, count, backward);
        }
    }
}
