#include "sim/simulate/private.h"

#include <math.h>

#include "sim/base/units.h"
#include "sim/simulate/engine.h"

static bool makes_gradients(sp_action action)
{
    return action.kind == SP_ACTION_B || action.kind == SP_ACTION_W;
}

// The computation of a rank's first forward. Parameters are not gathered beside its
// communication.
static int64_t first_forward_ns(const sp_rank_timeline *rank)
{
    for (size_t s = 0; s < rank->count; s++) {
        const sp_span *span = &rank->spans[s];
        if (span->action.kind == SP_ACTION_F) {
            return span->end_ns - span->start_ns - span->tp_ns - span->cp_ns - span->dp_ns;
        }
    }
    return 0;
}

static int64_t last_of_rank_ns(const sp_timeline *timeline, int pp_rank)
{
    size_t pp = (size_t)timeline->plan->layout.pp;
    int64_t last_ns = 0;
    for (size_t i = (size_t)pp_rank; i < timeline->rank_count; i += pp) {
        last_ns = sp_larger(last_ns, sp_rank_last_ns(&timeline->ranks[i]));
    }
    return last_ns;
}

// How much of its gather runs behind the next step's first forward.
static int64_t hidden_gather_ns(const sp_step_costs *costs, const sp_timeline *timeline,
                                int pp_rank)
{
    size_t pp = (size_t)timeline->plan->layout.pp;
    int64_t hidden_ns = costs->ranks[pp_rank].epilogue.hideable_gather_ns;
    for (size_t i = (size_t)pp_rank; i < timeline->rank_count; i += pp) {
        int64_t forward_ns = first_forward_ns(&timeline->ranks[i]);
        hidden_ns = forward_ns < hidden_ns ? forward_ns : hidden_ns;
    }
    return hidden_ns;
}

// On all data-parallel ranks of a pipeline rank.
static void note_epilogue(sp_timeline *timeline, int pp_rank, int64_t ready_ns, int64_t reduced_ns,
                          int64_t optimized_ns, int64_t gathered_ns)
{
    size_t pp = (size_t)timeline->plan->layout.pp;
    for (size_t i = (size_t)pp_rank; i < timeline->rank_count; i += pp) {
        sp_rank_timeline *rank = &timeline->ranks[i];
        rank->reduce_start_ns = ready_ns;
        rank->reduce_end_ns = reduced_ns;
        rank->optimizer_end_ns = optimized_ns;
        rank->gather_end_ns = gathered_ns;
    }
}

// ---- The exchanges of a pipeline rank, one after another ----
//
// Bucket j of n cannot end before it is ready and the n - j buckets from it on have run, and as its
// readiness, the latest of several straight lines, is convex in j the first or the last bucket
// decides. So two transfers stand for a chunk: all buckets but the last, from when the first is
// ready, and the last bucket.

// The gradients of one model chunk.
typedef struct chunk_gradients {
    int ranks_to_begin;        // data-parallel ranks whose last action that makes some is to begin
    size_t left;               // actions that make some and have not ended, on all of them
    bool is_made;              // all have begun, and not all is reduced
    int64_t first_ns, last_ns; // when the first and the last bucket are ready
} chunk_gradients;

typedef enum phase {
    FIRST_BUCKETS, // of a chunk, or waits for one
    LAST_BUCKET,
    REDUCTION, // of what no bucket has
    GATHER,
    REDUCED
} phase;

// A collective of all data-parallel ranks of a pipeline rank.
typedef struct collective {
    int64_t at_ns, alone_ns;
    double bytes;
    double hidden_bytes; // of a gather, behind the next step's first forward
    sp_collective kind;
    sp_collective_algorithm algorithm;
    // Behind it that of experts over several ranks, among those that hold the same ones.
    struct {
        int64_t alone_ns;
        double bytes, hidden_bytes;
    } experts;
} collective;

// The exchanges of the data-parallel ranks of one pipeline rank, those of all TP ranks together.
typedef struct reduction {
    size_t left; // actions that have not ended, but for copies
    chunk_gradients *chunks;
    phase phase;               // that comes next or is under way
    bool is_under_way, is_due; // a transfer; something new may begin
    int chunk;
    int64_t free_ns; // end of what is over
    int64_t ready_ns, reduced_ns;
} reduction;

struct sp_i_reductions {
    const sp_i_paths *paths; // NULL, and so are transfers, where all take their closed times
    sp_i_transfers *transfers;
    const sp_plan *plan;
    const sp_step_costs *costs;
    sp_timeline *timeline;
    size_t first_tag;
    reduction *ranks;  // [pp]
    int32_t *to_begin; // [dp * pp * chunks]: actions that make gradients
    bool any_due;
    sp_arena work; // holds the tables
};

static void set_due(sp_i_reductions *all, reduction *r)
{
    r->is_due = true;
    all->any_due = true;
}

static void count_actions(sp_i_reductions *all, int rank)
{
    const sp_layout *layout = &all->plan->layout;
    const sp_stage_plan *stage = &all->plan->stages[rank];
    reduction *r = &all->ranks[rank % layout->pp];
    int32_t *to_begin = &all->to_begin[rank * layout->chunks];
    for (size_t a = 0; a < stage->count; a++) {
        sp_action action = stage->actions[a];
        bool makes = makes_gradients(action);
        r->left += !sp_action_is_copy(action);
        r->chunks[action.chunk].left += makes;
        to_begin[action.chunk] += makes;
    }
    for (int c = 0; c < layout->chunks; c++) {
        r->chunks[c].ranks_to_begin += to_begin[c] > 0;
    }
}

static void make_ranks(sp_i_reductions *all)
{
    const sp_layout *layout = &all->plan->layout;
    size_t chunks = (size_t)layout->chunks;
    all->ranks = sp_arena_take(&all->work, (size_t)layout->pp, sizeof *all->ranks);
    for (int p = 0; p < layout->pp; p++) {
        all->ranks[p].chunks = sp_arena_take(&all->work, chunks, sizeof *all->ranks[p].chunks);
    }
}

sp_i_reductions *sp_i_reductions_new(const sp_i_paths *paths, sp_i_transfers *transfers,
                                     sp_timeline *timeline, size_t first_tag)
{
    const sp_layout *layout = &paths->plan->layout;
    size_t ranks = (size_t)layout->dp * (size_t)layout->pp;
    size_t chunks = (size_t)layout->chunks;
    sp_i_reductions *all = sp_calloc(1, sizeof *all);
    *all = (sp_i_reductions){.paths = paths,
                             .transfers = transfers,
                             .plan = paths->plan,
                             .costs = paths->costs,
                             .timeline = timeline,
                             .first_tag = first_tag};
    make_ranks(all);
    all->to_begin = sp_arena_take(&all->work, ranks * chunks, sizeof *all->to_begin);
    for (int i = 0; i < layout->dp * layout->pp; i++) {
        count_actions(all, i);
    }
    for (int p = 0; p < layout->pp; p++) {
        if (all->ranks[p].left == 0) {
            set_due(all, &all->ranks[p]);
        }
    }
    return all;
}

void sp_i_reductions_free(sp_i_reductions *all)
{
    if (all != NULL) {
        sp_arena_free(&all->work);
        sp_free(all);
    }
}

// The first bucket is ready when a part of the last action that makes gradients is over, as long as
// that takes by itself: how much longer its exchange takes shows at its end alone.
void sp_i_reductions_begun(sp_i_reductions *all, const sp_plan_place *place, int64_t start_ns,
                           int64_t took_ns)
{
    const sp_layout *layout = &all->plan->layout;
    reduction *r = &all->ranks[place->pp];
    chunk_gradients *chunk = &r->chunks[place->action.chunk];
    int rank = place->dp * layout->pp + place->pp;
    if (all->costs->buckets == NULL || !makes_gradients(place->action) ||
        --all->to_begin[rank * layout->chunks + place->action.chunk] > 0) {
        return;
    }
    int64_t count = all->costs->buckets[place->pp * layout->chunks + place->action.chunk].count;
    chunk->first_ns = sp_larger(chunk->first_ns, start_ns + took_ns / count);
    chunk->ranks_to_begin--;
    if (chunk->ranks_to_begin == 0) {
        chunk->is_made = true;
        set_due(all, r);
    }
}

void sp_i_reductions_made(sp_i_reductions *all, const sp_plan_place *place, int64_t end_ns)
{
    reduction *r = &all->ranks[place->pp];
    chunk_gradients *chunk = &r->chunks[place->action.chunk];
    r->left--;
    r->ready_ns = sp_larger(r->ready_ns, end_ns);
    if (makes_gradients(place->action)) {
        chunk->left--;
        chunk->last_ns = sp_larger(chunk->last_ns, end_ns);
    }
    if (r->left == 0 || chunk->left == 0) {
        set_due(all, r);
    }
}

// The chunk whose first bucket is ready first, of those not reduced; -1: none. Ranks complete
// chunks in one order, so the order of their last buckets is the same.
static int next_chunk(const sp_i_reductions *all, const reduction *r)
{
    int next = -1;
    for (int c = 0; all->costs->buckets != NULL && c < all->plan->layout.chunks; c++) {
        const chunk_gradients *chunk = &r->chunks[c];
        if (chunk->is_made && (next < 0 || chunk->first_ns < r->chunks[next].first_ns)) {
            next = c;
        }
    }
    return next;
}

static sp_collective reduces(const sp_i_reductions *all)
{
    return all->plan->layout.zero == 0 ? SP_ALL_REDUCE : SP_REDUCE_SCATTER;
}

static collective bucket_collective(const sp_i_reductions *all, int pp_rank, int64_t ready_ns)
{
    const reduction *r = &all->ranks[pp_rank];
    const sp_bucket_cost *bucket =
        &all->costs->buckets[pp_rank * all->plan->layout.chunks + r->chunk];
    bool is_last = r->phase == LAST_BUCKET;
    double common = bucket->bytes - bucket->expert_bytes;
    double last_bytes = common / (double)bucket->count;
    double experts_last = bucket->expert_bytes / (double)bucket->count;
    int64_t all_ns = is_last ? bucket->bucket_ns : bucket->total_ns - bucket->bucket_ns;
    int64_t experts_ns = llround((double)all_ns * (double)bucket->expert_ns /
                                 (double)sp_larger(1, bucket->total_ns));
    return (collective){
        .at_ns = sp_larger(r->free_ns, ready_ns),
        .alone_ns = all_ns - experts_ns,
        .bytes = is_last ? last_bytes : common - last_bytes,
        .kind = reduces(all),
        .algorithm = bucket->reduces_by,
        .experts = {experts_ns, is_last ? experts_last : bucket->expert_bytes - experts_last, 0.0}};
}

// Takes what is hidden of bytes and of their time; returns what is left to hide.
static int64_t take_hidden(int64_t hidden_ns, int64_t *alone_ns, double *bytes,
                           double *hidden_bytes)
{
    int64_t exposed_ns = sp_larger(0, *alone_ns - hidden_ns);
    double hidden = 1.0 - (double)exposed_ns / (double)sp_larger(1, *alone_ns);
    int64_t left_ns = hidden_ns - (*alone_ns - exposed_ns);
    *hidden_bytes = *bytes * hidden;
    *bytes -= *hidden_bytes;
    *alone_ns = exposed_ns;
    return left_ns;
}

// The next step's first forward hides so much of a gather.
static void hide(collective *gather, int64_t hidden_ns)
{
    hidden_ns = take_hidden(hidden_ns, &gather->alone_ns, &gather->bytes, &gather->hidden_bytes);
    take_hidden(hidden_ns, &gather->experts.alone_ns, &gather->experts.bytes,
                &gather->experts.hidden_bytes);
}

// Finds what comes next; false where there is nothing, or the walk has to go on first.
static bool find_next(const sp_i_reductions *all, int pp_rank, collective *next)
{
    reduction *r = &all->ranks[pp_rank];
    const sp_epilogue_cost *epilogue = &all->costs->ranks[pp_rank].epilogue;
    if (r->phase == FIRST_BUCKETS) {
        r->chunk = next_chunk(all, r);
        if (r->chunk < 0 && r->left > 0) {
            return false;
        }
        r->phase = r->chunk < 0 ? REDUCTION : FIRST_BUCKETS;
    }
    if (r->phase == REDUCED || (r->phase == LAST_BUCKET && r->chunks[r->chunk].left > 0)) {
        return false;
    }
    switch (r->phase) {
    case FIRST_BUCKETS:
        *next = bucket_collective(all, pp_rank, r->chunks[r->chunk].first_ns);
        break;
    case LAST_BUCKET:
        *next = bucket_collective(all, pp_rank, r->chunks[r->chunk].last_ns);
        break;
    case REDUCTION:
        *next = (collective){
            .at_ns = sp_larger(r->free_ns, r->ready_ns),
            .alone_ns =
                epilogue->grad_reduce_ns - epilogue->tied_reduce_ns - epilogue->expert_reduce_ns,
            .bytes = epilogue->reduce_bytes - epilogue->expert_reduce_bytes,
            .kind = reduces(all),
            .algorithm = epilogue->reduces_by,
            .experts = {epilogue->expert_reduce_ns, epilogue->expert_reduce_bytes, 0.0}};
        break;
    default:
        *next = (collective){
            .at_ns = r->free_ns,
            .alone_ns = epilogue->param_gather_ns - epilogue->expert_gather_ns,
            .bytes = epilogue->gather_bytes - epilogue->expert_gather_bytes,
            .kind = SP_ALL_GATHER,
            .algorithm = epilogue->gathers_by,
            .experts = {epilogue->expert_gather_ns, epilogue->expert_gather_bytes, 0.0}};
        break;
    }
    return true;
}

static void finish_phase(sp_i_reductions *all, int pp_rank, int64_t end_ns)
{
    reduction *r = &all->ranks[pp_rank];
    const sp_epilogue_cost *epilogue = &all->costs->ranks[pp_rank].epilogue;
    r->is_under_way = false;
    r->free_ns = end_ns;
    switch (r->phase) {
    case FIRST_BUCKETS:
        r->phase = LAST_BUCKET;
        break;
    case LAST_BUCKET:
        r->chunks[r->chunk].is_made = false;
        r->phase = FIRST_BUCKETS;
        break;
    case REDUCTION:
        r->reduced_ns = end_ns + epilogue->tied_reduce_ns;
        r->free_ns = r->reduced_ns + epilogue->optimizer_ns;
        r->phase = GATHER;
        break;
    case GATHER:
        note_epilogue(all->timeline, pp_rank, r->ready_ns, r->reduced_ns,
                      r->reduced_ns + epilogue->optimizer_ns, end_ns);
        r->phase = REDUCED;
        break;
    case REDUCED:
        break;
    }
}

// Starts its transfer, or finishes the phase where that takes no flows.
static sp_status start(sp_i_reductions *all, int pp_rank, collective next, sp_error *err)
{
    reduction *r = &all->ranks[pp_rank];
    size_t tag = all->first_tag + (size_t)pp_rank;
    const sp_i_collective_paths *paths =
        sp_i_paths_collective(all->paths->reductions[pp_rank], next.algorithm, next.kind);
    const sp_i_collective_paths *of_experts =
        all->paths->experts != NULL ? sp_i_paths_collective(all->paths->expert_reductions[pp_rank],
                                                            next.algorithm, next.kind)
                                    : NULL;
    next.alone_ns -= sp_ns_from_s(
        sp_i_collective_saved_s(paths, next.bytes, (double)next.alone_ns / SP_NS_PER_S));
    next.experts.alone_ns -= sp_ns_from_s(sp_i_collective_saved_s(
        of_experts, next.experts.bytes, (double)next.experts.alone_ns / SP_NS_PER_S));
    if (r->phase == GATHER) {
        hide(&next, hidden_gather_ns(all->costs, all->timeline, pp_rank));
    }
    sp_i_transfers_count_collective(all->transfers, paths, next.bytes + next.hidden_bytes);
    sp_i_transfer_add_collective(&all->transfers->list[tag], paths, next.bytes, next.alone_ns);
    if (of_experts != NULL) {
        sp_i_transfers_count_collective(all->transfers, of_experts,
                                        next.experts.bytes + next.experts.hidden_bytes);
        sp_i_transfer_add_collective(&all->transfers->list[tag], of_experts, next.experts.bytes,
                                     next.experts.alone_ns);
    }
    bool is_over;
    sp_status status = sp_i_transfers_go_on(all->transfers, tag, &next.at_ns, &is_over, err);
    r->is_under_way = true;
    if (status == SP_OK && is_over) {
        finish_phase(all, pp_rank, next.at_ns);
    }
    return status;
}

static sp_status go_on(sp_i_reductions *all, int pp_rank, sp_error *err)
{
    collective next;
    while (!all->ranks[pp_rank].is_under_way && find_next(all, pp_rank, &next)) {
        SP_TRY(start(all, pp_rank, next, err));
    }
    return SP_OK;
}

sp_status sp_i_reductions_begin(sp_i_reductions *all, sp_error *err)
{
    sp_status status = SP_OK;
    for (int p = 0; all->any_due && status == SP_OK && p < all->plan->layout.pp; p++) {
        if (all->ranks[p].is_due) {
            all->ranks[p].is_due = false;
            status = go_on(all, p, err);
        }
    }
    all->any_due = false;
    return status;
}

sp_status sp_i_reductions_ended(sp_i_reductions *all, int pp_rank, int64_t end_ns, sp_error *err)
{
    finish_phase(all, pp_rank, end_ns);
    return go_on(all, pp_rank, err);
}

// ---- By closed times, when the walk is over ----

// Shares of a vocabulary make gradients of the chunks that they belong to. `last` [chunks]: the
// last that made gradients.
static void find_last(const sp_rank_timeline *rank, int chunks, const sp_span **last)
{
    for (int c = 0; c < chunks; c++) {
        last[c] = NULL;
    }
    for (size_t s = 0; s < rank->count; s++) {
        if (makes_gradients(rank->spans[s].action)) {
            last[rank->spans[s].action.chunk] = &rank->spans[s];
        }
    }
    for (size_t s = 0; s < rank->share_count; s++) {
        const sp_span *span = &rank->shares[s].span;
        const sp_span **of = &last[span->action.chunk];
        if (makes_gradients(span->action) && (*of == NULL || span->end_ns > (*of)->end_ns)) {
            *of = span;
        }
    }
}

// When the gradients of each chunk are there on all data-parallel ranks.
static void find_readiness(const sp_i_reductions *all, int pp_rank, const sp_span **last)
{
    const sp_layout *layout = &all->plan->layout;
    for (size_t i = (size_t)pp_rank; i < all->timeline->rank_count; i += (size_t)layout->pp) {
        find_last(&all->timeline->ranks[i], layout->chunks, last);
        for (int c = 0; c < layout->chunks; c++) {
            chunk_gradients *chunk = &all->ranks[pp_rank].chunks[c];
            if (last[c] != NULL) {
                int64_t count = all->costs->buckets[pp_rank * layout->chunks + c].count;
                int64_t took_ns = last[c]->end_ns - last[c]->start_ns;
                chunk->is_made = true;
                chunk->first_ns = sp_larger(chunk->first_ns, last[c]->start_ns + took_ns / count);
                chunk->last_ns = sp_larger(chunk->last_ns, last[c]->end_ns);
            }
        }
    }
}

void sp_epilogue_fill(const sp_step_costs *costs, sp_timeline *timeline)
{
    const sp_layout *layout = &timeline->plan->layout;
    sp_i_reductions all = {.plan = timeline->plan, .costs = costs, .timeline = timeline};
    make_ranks(&all);
    const sp_span **last = sp_arena_take(&all.work, (size_t)layout->chunks, sizeof(sp_span *));
    for (int p = 0; p < layout->pp; p++) {
        collective next;
        all.ranks[p].ready_ns = last_of_rank_ns(timeline, p);
        if (costs->buckets != NULL) {
            find_readiness(&all, p, last);
        }
        while (find_next(&all, p, &next)) {
            bool gathers = all.ranks[p].phase == GATHER;
            int64_t hidden_ns = gathers ? hidden_gather_ns(costs, timeline, p) : 0;
            int64_t took_ns = next.alone_ns + next.experts.alone_ns - hidden_ns;
            finish_phase(&all, p, next.at_ns + took_ns);
        }
    }
    sp_arena_free(&all.work);
}
