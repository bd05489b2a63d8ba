// Packs that all data-parallel ranks run together, with equal shares of their tokens: SlimPack's
// (arXiv 2509.26246), cut and packed as for one rank of wider context parallelism, with Zeppelin's
// zones for the attention (arXiv 2509.21841).
//
// Their pipelines are level whatever the samples, and each rank holds the least of a pack. Where
// that would send every sample around all ranks, its attention stays on as few as level it: one
// zone for each sample, since late slices read the keys of early ones.
#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "solver/rows.h"
#include "solver/slimpack/slimpack_search.h"
#include "solver/step/step.h"
#include "solver/time_limit.h"

// Slices of a packing by sample, and what each pack's ranks have to attend to.
typedef struct zoning {
    sp_packing *packing;
    int dp;
    size_t *first;  // [samples + 1] into slice
    size_t *slice;  // [slices] of the forward packs, by sample
    int32_t *pack;  // [slices] of the forward packs
    double *mean;   // [packs] pairs of one rank, were they level
    double *load;   // [packs * dp] pairs
    int32_t *order; // [samples] in which they are placed
    int32_t *zone;  // [samples]
    int excess;     // times an even part of its pack that a slice may be for a rank
} zoning;

static sp_status add_zones(const sp_strategy_input *input, sp_packing *packing, sp_error *err);

bool sp_i_may_pool(const sp_scenario *scenario)
{
    return scenario->layout.dp > 1 && !scenario->layout.order.given &&
           scenario->layout.cp_sharding == SP_SHARD_EVEN && scenario->strategy.dp_merge &&
           scenario->strategy.zones && scenario->strategy.remap &&
           !sp_stack_counts_device(&scenario->memory.stack);
}

static void span_all_ranks(sp_pack_list *list, int dp)
{
    for (size_t k = 0; k < list->count; k++) {
        list->packs[k].dp_count = dp;
    }
}

sp_status sp_i_pack_pooled(const sp_strategy_input *input, sp_strategy_pack_function pack,
                           sp_packing *packing, sp_error *err)
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
    status = pack(&with, packing, err);
    sp_cost_model_fini(&cost);
    if (status == SP_OK) {
        packing->dp = dp;
        span_all_ranks(&packing->forward, dp);
        span_all_ranks(&packing->backward, dp);
        status = add_zones(input, packing, err);
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

// The fewest ranks among which no slice of the sample is more than it may be.
static int degree_of(const zoning *z, const size_t *slice, size_t count)
{
    int degree = 1;
    for (size_t i = 0; i < count; i++) {
        double pairs = pairs_of(&z->packing->forward.slices[slice[i]]);
        while (degree < z->dp && pairs > z->excess * z->mean[z->pack[slice[i]]] * degree) {
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

static void place_all(zoning *z, int excess)
{
    const size_t packs = z->packing->forward.count;
    memset(z->load, 0, packs * (size_t)z->dp * sizeof *z->load);
    z->excess = excess;
    for (size_t i = 0; i < z->packing->batch->count; i++) {
        place(z, z->order[i]);
    }
}

static void write_zones(const zoning *z, sp_pack_list *list)
{
    for (size_t i = 0; i < list->slice_count; i++) {
        list->slices[i].zone = z->zone[list->slices[i].sample];
    }
}

static void zone_all(zoning *z, int excess)
{
    place_all(z, excess);
    write_zones(z, &z->packing->forward);
    write_zones(z, &z->packing->backward);
}

// Each rank more that attends to a sample has more to exchange: from samples on all ranks, over
// level ranks, to samples that stay on one rank each, what is best in the whole step.
static sp_status choose_excess(const sp_strategy_input *input, zoning *z, sp_error *err)
{
    sp_packflow_outcome least = SP_PACKFLOW_WORST;
    sp_status status = SP_OK;
    int best = 0;
    for (int excess = 0; status == SP_OK && excess < 2 * z->dp &&
                         (excess == 0 || !sp_i_is_late(input->scenario, input->deadline_s));
         excess = excess == 0 ? 1 : 2 * excess) {
        sp_packflow_outcome judged;
        zone_all(z, excess);
        status = sp_step_judge(input, z->packing, &judged, err);
        if (status == SP_OK && sp_packflow_is_better(&judged, &least)) {
            least = judged;
            best = excess;
        }
    }
    zone_all(z, best);
    return status;
}

static sp_status add_zones(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    const sp_pack_list *list = &packing->forward;
    size_t samples = packing->batch->count;
    int dp = packing->dp;
    sp_arena memory = {0};
    zoning z = {.packing = packing, .dp = dp};
    z.first = sp_arena_take(&memory, samples + 1, sizeof *z.first);
    z.slice = sp_arena_take(&memory, list->slice_count, sizeof *z.slice);
    z.pack = sp_arena_take(&memory, list->slice_count, sizeof *z.pack);
    z.mean = sp_arena_take(&memory, list->count, sizeof *z.mean);
    z.load = sp_arena_take(&memory, list->count * (size_t)dp, sizeof *z.load);
    z.zone = sp_arena_take(&memory, samples, sizeof *z.zone);
    z.order = sp_i_order_descending(packing->batch);
    sort_slices(&z, samples);
    sp_status status = choose_excess(input, &z, err);
    sp_free(z.order);
    sp_arena_free(&memory);
    return status;
}
