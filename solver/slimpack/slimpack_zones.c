// slimpack-zones: SlimPack's packs within pipelines with Zeppelin's zones for the attention (arXiv
// 2509.26246, 2509.21841).
//
// All data-parallel ranks run every pack together, with equal shares of its tokens, so that their
// pipelines are level whatever the samples; SlimPack cuts and packs for them as for one rank of
// wider context parallelism. Where that would send every sample around all ranks, its attention
// stays on as few as level it: one zone for each sample, since late slices read the keys of early
// ones. Such packs, slimpack's and zeppelin's are simulated, and the fastest are taken.
//
// A job keeps its order, its model chunks and its exchange of keys and values. What the scenario
// does not state of them is chosen by all batches: they are slimpack's, or with zeppelin's
// exchange, or all are zeppelin's.
#include <math.h>

#include "sim/base/alloc.h"
#include "solver/rows.h"
#include "solver/slimpack/slimpack_search.h"
#include "solver/step/step.h"
#include "solver/strategies/job_choice.h"
#include "solver/strategy_list.h"
#include "solver/time_limit.h"

// Slices of a packing by sample, and what each pack's ranks have to attend to.
typedef struct zoning {
    sp_packing *packing;
    int dp;
    size_t *first; // [samples + 1] into slice
    size_t *slice; // [slices] of the forward packs, by sample
    int32_t *pack; // [slices] of the forward packs
    double *mean;  // [packs] pairs of one rank, were they level
    double *load;  // [packs * dp] pairs
    int32_t *zone; // [samples]
} zoning;

static sp_status pack_pooled(const sp_strategy_input *input, sp_packing *packing, sp_error *err);
static sp_status add_zones(sp_packing *packing, int dp, sp_error *err);

// Takes the packs of `pack` where they are better and time is left. Only fatal errors are returned.
static sp_status try_packs(const sp_strategy_input *input, sp_strategy_pack_function pack,
                           sp_packing *best, sp_packflow_outcome *outcome, sp_error *err)
{
    sp_error own;
    sp_packing tried;
    sp_packflow_outcome judged;
    if (sp_i_deadline_is_past(input->deadline_s)) {
        return SP_OK;
    }
    sp_error_clear(&own);
    sp_status status = pack(input, &tried, &own);
    if (status != SP_OK) {
        return sp_status_is_fatal(status) ? sp_error_set(err, status, "%s", own.message[0]) : SP_OK;
    }
    status = sp_step_judge_blocks(input, &tried, outcome, &judged, err);
    if (status != SP_OK) {
        sp_packing_fini(&tried);
        return status;
    }
    sp_i_keep_better(best, outcome, &tried, &judged);
    return SP_OK;
}

// May the ranks run all packs together, and does the cost model know zones?
static bool may_pool(const sp_scenario *scenario)
{
    return scenario->layout.dp > 1 && !scenario->layout.order.given &&
           scenario->layout.cp_sharding == SP_SHARD_EVEN && scenario->strategy.dp_merge &&
           scenario->strategy.zones && scenario->strategy.remap &&
           !sp_stack_counts_device(&scenario->memory.stack);
}

enum { MOST_WAYS = 7 };

static int list_ways(const sp_scenario *scenario, bool compared, sp_i_job_way ways[MOST_WAYS])
{
    const sp_layout *layout = &scenario->layout;
    bool open = (int64_t)layout->dp * layout->cp > 1 &&
                !(scenario->cp_overlap_given && scenario->cp_ring_nics_given);
    bool ordered = layout->pp > 1 || scenario->schedule_given;
    bool starts = scenario->strategy.group_start_ms > 0.0 && scenario->workload.batches > 1;
    int count = 0;
    ways[count++] = (sp_i_job_way){.kind = "slimpack-zones"};
    if (open) {
        ways[count++] = (sp_i_job_way){.kind = "slimpack-zones", .exchange_of = "zeppelin"};
    }
    // Its packs are among those of each batch, in this order and exchange.
    if (open || ordered || starts) {
        ways[count++] = (sp_i_job_way){.kind = "zeppelin"};
    }
    if (starts) {
        ways[count++] = (sp_i_job_way){.kind = "slimpack"};
        ways[count++] = (sp_i_job_way){.kind = "te-cp"};
        ways[count++] = (sp_i_job_way){.kind = "hybrid-dp"};
        ways[count++] = (sp_i_job_way){.kind = "llama-cp"};
    }
    bool other = scenario->schedule_given && scenario->schedule.kind != SP_SCHEDULE_PACKFLOW;
    return other && !compared ? 1 : count; // resolving then says that the order is another
}

sp_status sp_i_choose_slimpack_zones(sp_scenario *scenario, bool compared, sp_error *err)
{
    sp_i_job_way ways[MOST_WAYS];
    return sp_i_job_choose(scenario, ways, list_ways(scenario, compared, ways), compared, err);
}

// Shares of the time that is left, for slimpack and for packs of all ranks.
#define ALONE 0.45
#define POOLED 0.75

sp_status sp_i_pack_slimpack_zones(const sp_strategy_input *input, sp_packing *packing,
                                   sp_error *err)
{
    sp_strategy_input with = *input;
    sp_packflow_outcome outcome;
    bool pools = may_pool(input->scenario);
    with.deadline_s = sp_i_deadline_part_s(input->deadline_s, pools ? ALONE : POOLED);
    sp_status status = sp_i_pack_slimpack(&with, packing, err);
    if (status == SP_OK && !sp_i_deadline_is_past(input->deadline_s)) {
        status = sp_step_judge_blocks(input, packing, &SP_PACKFLOW_WORST, &outcome, err);
        if (status == SP_OK && pools) {
            with.deadline_s = sp_i_deadline_part_s(input->deadline_s, POOLED);
            status = try_packs(&with, pack_pooled, packing, &outcome, err);
        }
        if (status == SP_OK) {
            status = try_packs(input, sp_i_pack_zeppelin, packing, &outcome, err);
        }
        if (status != SP_OK) {
            sp_packing_fini(packing);
        }
    }
    return status;
}

static void span_all_ranks(sp_pack_list *list, int dp)
{
    for (size_t k = 0; k < list->count; k++) {
        list->packs[k].dp_count = dp;
    }
}

static sp_status pack_pooled(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    sp_scenario pool = *input->scenario;
    sp_strategy_input with = *input;
    sp_cost_model cost;
    int dp = pool.layout.dp;
    pool.layout.cp *= dp;
    pool.layout.dp = 1;
    sp_status status = sp_scenario_cost_model(&pool, &cost, err);
    if (status != SP_OK) {
        return status;
    }
    with.scenario = &pool;
    with.cost = &cost;
    with.kept = NULL; // its steps are of another layout
    with.zoned = true;
    status = sp_i_pack_slimpack(&with, packing, err);
    sp_cost_model_fini(&cost);
    if (status == SP_OK) {
        packing->dp = dp;
        span_all_ranks(&packing->forward, dp);
        span_all_ranks(&packing->backward, dp);
        status = add_zones(packing, dp, err);
        if (status != SP_OK) {
            sp_packing_fini(packing);
        }
    }
    return status;
}

// ---- zones ----

static double pairs_of(const sp_slice *slice)
{
    return (double)slice->computed_tokens *
           ((double)slice->begin + 0.5 * (double)slice->computed_tokens);
}

static void sort_slices(zoning *z, size_t samples)
{
    const sp_pack_list *list = &z->packing->forward;
    for (size_t i = 0; i < list->slice_count; i++) {
        z->first[list->slices[i].sample]++;
    }
    for (size_t s = 0; s < samples; s++) {
        z->first[s + 1] += z->first[s];
    }
    for (size_t k = list->count; k-- > 0;) {
        for (size_t i = list->packs[k].slice_count; i-- > 0;) {
            size_t slice = list->packs[k].first_slice + i;
            z->slice[--z->first[list->slices[slice].sample]] = slice;
            z->pack[slice] = (int32_t)k;
            z->mean[k] += pairs_of(&list->slices[slice]) / z->dp;
        }
    }
}

// The fewest ranks among which no slice of the sample is more than an even part of its pack.
static int degree_of(const zoning *z, const size_t *slice, size_t count)
{
    int degree = 1;
    for (size_t i = 0; i < count; i++) {
        double pairs = pairs_of(&z->packing->forward.slices[slice[i]]);
        while (degree < z->dp && pairs > z->mean[z->pack[slice[i]]] * degree) {
            degree = sp_i_merged_next(degree, z->dp);
        }
    }
    return degree;
}

// What the busiest rank of a block has to attend to, in all packs of the sample.
static double load_of(const zoning *z, const size_t *slice, size_t count, int first, int degree)
{
    double load = 0.0;
    for (size_t i = 0; i < count; i++) {
        const double *of = z->load + (size_t)z->pack[slice[i]] * (size_t)z->dp;
        double most = 0.0;
        for (int r = first; r < first + degree; r++) {
            most = fmax(most, of[r]);
        }
        load += most;
    }
    return load;
}

static void place(zoning *z, int32_t sample)
{
    const size_t *slice = z->slice + z->first[sample];
    size_t count = z->first[sample + 1] - z->first[sample];
    int degree = degree_of(z, slice, count);
    int best = 0;
    double least = HUGE_VAL;
    for (int first = 0; first + degree <= z->dp; first += degree) {
        double load = load_of(z, slice, count, first, degree);
        best = load < least ? first : best;
        least = fmin(load, least);
    }
    for (size_t i = 0; i < count; i++) {
        double *of = z->load + (size_t)z->pack[slice[i]] * (size_t)z->dp;
        for (int r = best; r < best + degree; r++) {
            of[r] += pairs_of(&z->packing->forward.slices[slice[i]]) / degree;
        }
    }
    z->zone[sample] = degree < z->dp ? sp_zone_of(best, degree) : 0;
}

static void write_zones(const zoning *z, sp_pack_list *list)
{
    for (size_t i = 0; i < list->slice_count; i++) {
        list->slices[i].zone = z->zone[list->slices[i].sample];
    }
}

static sp_status add_zones(sp_packing *packing, int dp, sp_error *err)
{
    const sp_pack_list *list = &packing->forward;
    size_t samples = packing->batch->count;
    int32_t *order = NULL;
    sp_arena memory = {0};
    zoning z = {.packing = packing, .dp = dp};
    z.first = sp_arena_take(&memory, samples + 1, sizeof *z.first);
    z.slice = sp_arena_take(&memory, list->slice_count, sizeof *z.slice);
    z.pack = sp_arena_take(&memory, list->slice_count, sizeof *z.pack);
    z.mean = sp_arena_take(&memory, list->count, sizeof *z.mean);
    z.load = sp_arena_take(&memory, list->count * (size_t)dp, sizeof *z.load);
    z.zone = sp_arena_take(&memory, samples, sizeof *z.zone);
    sp_status status = memory.failed ? sp_error_no_memory(err, "zones")
                                     : sp_i_order_descending(packing->batch, &order, err);
    if (status == SP_OK) {
        sort_slices(&z, samples);
        for (size_t i = 0; i < samples; i++) {
            place(&z, order[i]);
        }
        write_zones(&z, &packing->forward);
        write_zones(&z, &packing->backward);
    }
    sp_free(order);
    sp_arena_free(&memory);
    return status;
}
