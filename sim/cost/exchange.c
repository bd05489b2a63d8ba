#include "sim/cost/exchange.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"

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
    double most_before, most_after, mean; // sums over the steps, ns
} exchange;

static void widen(const sp_step_costs *costs, const sp_layout *layout, sp_step_costs *wide);
static void take_tables(sp_step_costs *costs, sp_step_costs *wide);
static sp_status collect(const sp_plan *plan, int dp_rank, bool backward, unit_list *list,
                         sp_error *err);
static void run_steps(exchange *x, const unit_list *list, bool backward);

sp_status sp_exchange_apply(const sp_plan *plan, sp_step_costs *costs, sp_exchange_report *report,
                            sp_error *err)
{
    *report = (sp_exchange_report){.imbalance_before = 1.0, .imbalance_after = 1.0};
    if (plan->layout.pp == 1) {
        return SP_OK;
    }
    sp_status status = SP_OK;
    sp_step_costs wide = {0};
    unit_list list = {0};
    exchange x = {.plan = plan, .costs = &wide, .report = report};
    x.workers = sp_calloc((size_t)plan->layout.pp, sizeof *x.workers);
    widen(costs, &plan->layout, &wide);
    for (int side = 0; side < 2; side++) {
        for (int d = 0; d < plan->layout.dp; d++) {
            status = collect(plan, d, side == 1, &list, err);
            if (status != SP_OK) {
                goto out;
            }
            run_steps(&x, &list, side == 1);
        }
    }
    take_tables(costs, &wide);
    if (x.mean > 0.0) {
        report->imbalance_before = x.most_before / x.mean;
        report->imbalance_after = x.most_after / x.mean;
    }
out:
    if (status != SP_OK) {
        *report = (sp_exchange_report){0};
    }
    sp_step_costs_fini(&wide);
    sp_free(list.units);
    sp_free(x.workers);
    return status;
}

double sp_exchange_bytes(const sp_exchange_report *report, double q_bytes, double kv_bytes)
{
    return 2.0 * q_bytes * (double)report->q_tokens + kv_bytes * (double)report->kv_tokens;
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
            size_t class = s < vstages ? (size_t)costs->class_of_vstage[s]
                                       : (size_t)costs->stage_classes + s - vstages;
            size_t from = k * (size_t)costs->classes + class;
            memcpy(made + (k * columns + s) * bytes, (const char *)table + from * bytes, bytes);
        }
    }
    return made;
}

// Rows of so many packs (sp_step_costs.unit_row).
static size_t count_rows(const int32_t *row_of, size_t packs)
{
    size_t rows = row_of == NULL ? packs : 0;
    for (size_t k = 0; row_of != NULL && k < packs; k++) {
        rows += (size_t)row_of[k] == rows;
    }
    return rows;
}

// Only the tables that depend on the class are filled.
static void widen(const sp_step_costs *costs, const sp_layout *layout, sp_step_costs *wide)
{
    size_t vstages = (size_t)sp_layout_vstages(layout);
    size_t forward = costs->forward_packs;
    size_t backward = costs->backward_packs;
    bool shares = costs->share_class > 0;
    int moved = (int)vstages - costs->stage_classes;
    *wide = (sp_step_costs){.classes = (int)(vstages + others_of(costs)),
                            .stage_classes = shares ? (int)vstages : 0,
                            .share_class = shares ? costs->share_class + moved : 0};
    wide->class_of_vstage = sp_calloc(vstages, sizeof *wide->class_of_vstage);
    wide->memory_class_of_vstage = sp_calloc(vstages, sizeof *wide->memory_class_of_vstage);
    wide->f = spread(costs, vstages, costs->f, forward, sizeof *costs->f);
    wide->b = spread(costs, vstages, costs->b, backward, sizeof *costs->b);
    wide->i = spread(costs, vstages, costs->i, backward, sizeof *costs->i);
    wide->w = spread(costs, vstages, costs->w, backward, sizeof *costs->w);
    wide->r = spread(costs, vstages, costs->r, backward, sizeof *costs->r);
    for (size_t s = 0; s < vstages; s++) {
        wide->class_of_vstage[s] = (int)s;
        wide->memory_class_of_vstage[s] = shares ? costs->memory_class_of_vstage[s] + moved : 0;
    }
    const size_t unit_rows = count_rows(costs->unit_row, forward);
    if (costs->unit != NULL) {
        wide->unit = spread(costs, vstages, costs->unit, unit_rows, sizeof *costs->unit);
    }
    if (costs->backward_unit != NULL) {
        wide->backward_unit =
            spread(costs, vstages, costs->backward_unit,
                   count_rows(costs->backward_unit_row, backward), sizeof *costs->backward_unit);
    }
    // Copies to host memory come all together.
    if (costs->o_ns != NULL) {
        wide->o_ns = spread(costs, vstages, costs->o_ns, forward, sizeof *costs->o_ns);
        wide->l_ns = spread(costs, vstages, costs->l_ns, forward, sizeof *costs->l_ns);
        wide->offloaded_bytes = spread(costs, vstages, costs->offloaded_bytes, unit_rows,
                                       sizeof *costs->offloaded_bytes);
    }
}

static void take_tables(sp_step_costs *costs, sp_step_costs *wide)
{
    sp_step_costs old = *costs;
    costs->classes = wide->classes;
    costs->stage_classes = wide->stage_classes;
    costs->class_of_vstage = wide->class_of_vstage;
    costs->memory_class_of_vstage = wide->memory_class_of_vstage;
    costs->share_class = wide->share_class;
    costs->f = wide->f;
    costs->b = wide->b;
    costs->i = wide->i;
    costs->w = wide->w;
    costs->r = wide->r;
    costs->unit = wide->unit;
    costs->backward_unit = wide->backward_unit;
    costs->o_ns = wide->o_ns;
    costs->l_ns = wide->l_ns;
    costs->offloaded_bytes = wide->offloaded_bytes;
    *wide = (sp_step_costs){.class_of_vstage = old.class_of_vstage,
                            .memory_class_of_vstage = old.memory_class_of_vstage,
                            .f = old.f,
                            .b = old.b,
                            .i = old.i,
                            .w = old.w,
                            .r = old.r,
                            .unit = old.unit,
                            .backward_unit = old.backward_unit,
                            .o_ns = old.o_ns,
                            .l_ns = old.l_ns,
                            .offloaded_bytes = old.offloaded_bytes};
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
    void *units = list->units;
    sp_reserve(&units, &list->capacity, list->count + 1, sizeof *list->units);
    list->units = units;
    list->units[list->count++] = made;
}

static sp_status not_in_step(const sp_plan *plan, int dp_rank, int pp_rank, sp_error *err)
{
    return sp_error_set(err, SP_ERR_CONTENT,
                        "the attention exchange needs pipeline ranks in lock step, but %d and %d "
                        "of data-parallel rank %d of %d run different units",
                        pp_rank - 1, pp_rank, dp_rank, plan->layout.dp);
}

static sp_status collect(const sp_plan *plan, int dp_rank, bool backward, unit_list *list,
                         sp_error *err)
{
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
            if (packs->packs[action.pack].dp_count != 1) {
                return sp_error_set(err, SP_ERR_CONTENT,
                                    "the attention exchange cannot run packs that several "
                                    "data-parallel ranks share, such as pack %d",
                                    (int)action.pack);
            }
            if (r == 0) {
                append(list, unit_of(packs, action));
            }
            if (place >= list->count || list->units[place].pack != (size_t)action.pack ||
                list->units[place].chunk != action.chunk) {
                return not_in_step(plan, dp_rank, r, err);
            }
            place++;
        }
        if (place != list->count) {
            return not_in_step(plan, dp_rank, r, err);
        }
    }
    return SP_OK;
}

// ---- the exchange ----

static int compare_workers(const void *left, const void *right)
{
    const worker *a = left;
    const worker *b = right;
    if (a->unit->pairs2 != b->unit->pairs2) {
        return a->unit->pairs2 < b->unit->pairs2 ? -1 : 1;
    }
    return a->rank < b->rank ? -1 : 1;
}

static int64_t attention_ns(const exchange *x, const worker *w, bool backward)
{
    return (backward ? x->costs->b : x->costs->f)[w->at].attention_ns;
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
        move(x->costs->b, from->at, to->at, fraction);
        move(x->costs->i, from->at, to->at, fraction);
    } else {
        move(x->costs->f, from->at, to->at, fraction);
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
        if (count > 1) {
            run_step(x, count, backward);
        }
    }
}
