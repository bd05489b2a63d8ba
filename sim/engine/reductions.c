// The data-parallel exchanges of a step as flows: of each pipeline rank the gradient buckets of its
// model chunks, what is left to reduce, and the gather of its parameters, one after another.
//
// Bucket j of n cannot end before it is ready and the n - j buckets from it on have run, and as its
// readiness is convex in j the first or the last bucket decides (epilogue.c). So two flows stand
// for a chunk: all buckets but the last, from when the first is ready, and the last bucket.
#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/engine/epilogue_private.h"
#include "sim/engine/traffic_private.h"

static bool exchanges(const sp_i_traffic *t, int pp_rank);
static void allocate(sp_i_traffic *t);

void sp_i_reductions_make(sp_i_traffic *t)
{
    const sp_layout *layout = &t->plan->layout;
    allocate(t);
    for (int i = 0; i < layout->dp * layout->pp; i++) {
        sp_i_reduction *r = &t->reductions[i % layout->pp];
        for (size_t a = 0; a < t->plan->stages[i].count; a++) {
            sp_action action = t->plan->stages[i].actions[a];
            bool makes = sp_i_makes_gradients(action);
            r->left += !sp_action_is_copy(action);
            r->chunks[action.chunk].left += makes;
            t->to_begin[i * layout->chunks + action.chunk] += makes;
        }
        for (int c = 0; c < layout->chunks; c++) {
            r->chunks[c].ranks_to_begin += t->to_begin[i * layout->chunks + c] > 0;
        }
    }
    for (int p = 0; p < layout->pp; p++) {
        if (layout->dp * layout->cp > 1 && exchanges(t, p)) {
            t->reductions[p].exchanges = true;
        }
        t->reductions[p].is_due = t->reductions[p].left == 0;
        t->any_due = t->any_due || t->reductions[p].is_due;
    }
}

static void allocate(sp_i_traffic *t)
{
    size_t pp = (size_t)t->plan->layout.pp;
    size_t chunks = (size_t)t->plan->layout.chunks;
    t->reductions = sp_calloc(pp, sizeof *t->reductions);
    t->chunks = sp_calloc(pp * chunks, sizeof *t->chunks);
    t->to_begin = sp_calloc((size_t)t->plan->layout.dp * pp * chunks, sizeof *t->to_begin);
    for (size_t p = 0; p < pp; p++) {
        t->reductions[p].chunks = t->chunks + p * chunks;
    }
}

static bool exchanges(const sp_i_traffic *t, int pp_rank)
{
    const sp_epilogue_cost *epilogue = &t->costs->ranks[pp_rank].epilogue;
    int chunks = t->plan->layout.chunks;
    bool any = epilogue->grad_reduce_ns > epilogue->tied_reduce_ns || epilogue->param_gather_ns > 0;
    for (int c = 0; t->costs->buckets != NULL && c < chunks; c++) {
        any = any || t->costs->buckets[pp_rank * chunks + c].total_ns > 0;
    }
    return any;
}

static void set_due(sp_i_traffic *t, sp_i_reduction *r)
{
    r->is_due = true;
    t->any_due = true;
}

// The first bucket is ready when a part of the last action that makes gradients is over, as long as
// that takes by itself: how much longer its exchange takes shows at its end alone.
void sp_i_reductions_begun(sp_i_traffic *t, const sp_plan_place *place, int64_t start_ns,
                           int64_t took_ns)
{
    const sp_layout *layout = &t->plan->layout;
    sp_i_reduction *r = &t->reductions[place->pp];
    int c = place->action.chunk;
    size_t rank = (size_t)place->dp * (size_t)layout->pp + (size_t)place->pp;
    if (t->costs->buckets == NULL || !sp_i_makes_gradients(place->action) ||
        --t->to_begin[rank * (size_t)layout->chunks + (size_t)c] > 0) {
        return;
    }
    int64_t count = t->costs->buckets[place->pp * layout->chunks + c].count;
    r->chunks[c].first_ns = sp_larger(r->chunks[c].first_ns, start_ns + took_ns / count);
    r->chunks[c].ranks_to_begin--;
    if (r->chunks[c].ranks_to_begin == 0) {
        r->chunks[c].is_made = true;
        set_due(t, r);
    }
}

void sp_i_reductions_made(sp_i_traffic *t, const sp_plan_place *place, int64_t end_ns)
{
    sp_i_reduction *r = &t->reductions[place->pp];
    sp_i_chunk_gradients *chunk = &r->chunks[place->action.chunk];
    r->left--;
    r->ready_ns = sp_larger(r->ready_ns, end_ns);
    if (sp_i_makes_gradients(place->action)) {
        chunk->left--;
        chunk->last_ns = sp_larger(chunk->last_ns, end_ns);
    }
    if (r->left == 0 || chunk->left == 0) {
        set_due(t, r);
    }
}

// ---- one after another ----

static bool next_part(sp_i_traffic *t, int pp_rank, sp_i_part *next);
static sp_status start(sp_i_traffic *t, int pp_rank, const sp_i_part *next, sp_error *err);
static sp_status pass_on(sp_i_traffic *t, int pp_rank, int64_t at_ns, sp_error *err);
static void finish_part(sp_i_traffic *t, int pp_rank, int64_t end_ns);

static sp_status go_on(sp_i_traffic *t, int pp_rank, sp_error *err)
{
    sp_i_reduction *r = &t->reductions[pp_rank];
    sp_status status = SP_OK;
    sp_i_part next;
    while (status == SP_OK && !r->is_under_way && next_part(t, pp_rank, &next)) {
        status = start(t, pp_rank, &next, err);
    }
    return status;
}

sp_status sp_i_reductions_begin(sp_i_traffic *t, sp_error *err)
{
    sp_status status = SP_OK;
    for (int p = 0; t->any_due && status == SP_OK && p < t->plan->layout.pp; p++) {
        if (t->reductions[p].is_due) {
            t->reductions[p].is_due = false;
            status = go_on(t, p, err);
        }
    }
    t->any_due = false;
    return status;
}

sp_status sp_i_reductions_ended(sp_i_traffic *t, int pp_rank, int64_t now_ns, sp_error *err)
{
    t->reductions[pp_rank].passing.leg++;
    sp_status status = pass_on(t, pp_rank, now_ns, err);
    return status == SP_OK ? go_on(t, pp_rank, err) : status;
}

// The chunk whose first bucket is ready first, of those not reduced; -1: none. Ranks complete
// chunks in one order, so the order of their last buckets is the same.
static int next_chunk(const sp_i_traffic *t, const sp_i_reduction *r)
{
    int next = -1;
    for (int c = 0; t->costs->buckets != NULL && c < t->plan->layout.chunks; c++) {
        const sp_i_chunk_gradients *chunk = &r->chunks[c];
        if (chunk->is_made && (next < 0 || chunk->first_ns < r->chunks[next].first_ns)) {
            next = c;
        }
    }
    return next;
}

static sp_collective reduces(const sp_i_traffic *t)
{
    return t->plan->layout.zero == 0 ? SP_ALL_REDUCE : SP_REDUCE_SCATTER;
}

static sp_i_part bucket_part(const sp_i_traffic *t, int pp_rank, int64_t ready_ns)
{
    const sp_i_reduction *r = &t->reductions[pp_rank];
    const sp_bucket_cost *bucket = &t->costs->buckets[pp_rank * t->plan->layout.chunks + r->chunk];
    bool is_last = r->phase == SP_I_LAST_BUCKET;
    double last_bytes = bucket->bytes / (double)bucket->count;
    return (sp_i_part){.at_ns = sp_larger(r->free_ns, ready_ns),
                       .alone_ns =
                           is_last ? bucket->bucket_ns : bucket->total_ns - bucket->bucket_ns,
                       .bytes = is_last ? last_bytes : bucket->bytes - last_bytes,
                       .kind = reduces(t),
                       .by = bucket->reduces_by};
}

// Lets a part take what it does alone.
static void shorten(const sp_i_reduction *r, sp_i_part *part)
{
    double saved_s = sp_i_passage_saved_s(sp_i_passage_of(r->passages, part->by, part->kind),
                                          part->bytes, (double)part->alone_ns / SP_NS_PER_S);
    part->alone_ns -= sp_ns_from_s(saved_s);
}

// The next step's first forward hides so much of a gather.
static void hide(sp_i_part *part, int64_t hidden_ns)
{
    int64_t shown_ns = sp_larger(0, part->alone_ns - hidden_ns);
    double hidden = 1.0 - (double)shown_ns / (double)sp_larger(1, part->alone_ns);
    part->hidden_bytes = part->bytes * hidden;
    part->bytes -= part->hidden_bytes;
    part->alone_ns = shown_ns;
}

// What comes next, false: nothing, or the walk has to go on first.
static bool next_part(sp_i_traffic *t, int pp_rank, sp_i_part *next)
{
    sp_i_reduction *r = &t->reductions[pp_rank];
    const sp_epilogue_cost *epilogue = &t->costs->ranks[pp_rank].epilogue;
    if (r->phase == SP_I_FIRST_BUCKETS) {
        r->chunk = next_chunk(t, r);
        if (r->chunk < 0 && r->left > 0) {
            return false;
        }
        r->phase = r->chunk < 0 ? SP_I_REDUCTION : SP_I_FIRST_BUCKETS;
    }
    switch (r->phase) {
    case SP_I_FIRST_BUCKETS:
        *next = bucket_part(t, pp_rank, r->chunks[r->chunk].first_ns);
        shorten(r, next);
        return true;
    case SP_I_LAST_BUCKET:
        if (r->chunks[r->chunk].left > 0) {
            return false;
        }
        *next = bucket_part(t, pp_rank, r->chunks[r->chunk].last_ns);
        shorten(r, next);
        return true;
    case SP_I_REDUCTION:
        *next = (sp_i_part){.at_ns = sp_larger(r->free_ns, r->ready_ns),
                            .alone_ns = epilogue->grad_reduce_ns - epilogue->tied_reduce_ns,
                            .bytes = epilogue->reduce_bytes,
                            .kind = reduces(t),
                            .by = epilogue->reduces_by};
        shorten(r, next);
        return true;
    case SP_I_GATHER: {
        *next = (sp_i_part){.at_ns = r->free_ns,
                            .alone_ns = epilogue->param_gather_ns,
                            .bytes = epilogue->gather_bytes,
                            .kind = SP_ALL_GATHER,
                            .by = epilogue->gathers_by};
        shorten(r, next);
        hide(next, sp_i_hidden_gather_ns(t->costs, t->timeline, pp_rank));
        return true;
    }
    case SP_I_REDUCED:
        break;
    }
    return false;
}

static sp_status start(sp_i_traffic *t, int pp_rank, const sp_i_part *next, sp_error *err)
{
    sp_i_reduction *r = &t->reductions[pp_rank];
    const sp_i_passage *passage = sp_i_passage_of(r->passages, next->by, next->kind);
    r->passing = (sp_i_passing){.passage = passage, .part = *next};
    if (passage != NULL) {
        sp_i_traffic_carry_passage(t, &passage->of, next->bytes + next->hidden_bytes);
    }
    if (!r->exchanges || next->alone_ns == 0) {
        finish_part(t, pp_rank, next->at_ns + next->alone_ns);
        return SP_OK;
    }
    return pass_on(t, pp_rank, next->at_ns, err);
}

static sp_status pass_on(sp_i_traffic *t, int pp_rank, int64_t at_ns, sp_error *err)
{
    sp_i_reduction *r = &t->reductions[pp_rank];
    int64_t end_ns = 0;
    sp_status status = sp_i_pass_on(t, &r->passing, at_ns, sp_i_tag(SP_I_REDUCTION_OF, pp_rank),
                                    &r->is_under_way, &end_ns, err);
    if (status == SP_OK && !r->is_under_way) {
        finish_part(t, pp_rank, end_ns);
    }
    return status;
}

static void finish_part(sp_i_traffic *t, int pp_rank, int64_t end_ns)
{
    sp_i_reduction *r = &t->reductions[pp_rank];
    const sp_epilogue_cost *epilogue = &t->costs->ranks[pp_rank].epilogue;
    r->free_ns = end_ns;
    switch (r->phase) {
    case SP_I_FIRST_BUCKETS:
        r->phase = SP_I_LAST_BUCKET;
        break;
    case SP_I_LAST_BUCKET:
        r->chunks[r->chunk].is_made = false;
        r->phase = SP_I_FIRST_BUCKETS;
        break;
    case SP_I_REDUCTION:
        r->reduced_ns = end_ns + epilogue->tied_reduce_ns;
        r->free_ns = r->reduced_ns + epilogue->optimizer_ns;
        r->phase = SP_I_GATHER;
        break;
    case SP_I_GATHER:
        sp_i_note_epilogue(t->timeline, pp_rank, r->ready_ns, r->reduced_ns,
                           r->reduced_ns + epilogue->optimizer_ns, end_ns);
        r->phase = SP_I_REDUCED;
        break;
    case SP_I_REDUCED:
        break;
    }
}
