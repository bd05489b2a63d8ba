#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/engine/epilogue_private.h"

enum { NO_ACTION = -1 };

// When the gradients of a model chunk are there on all data-parallel ranks.
typedef struct readiness {
    int64_t first_ns, last_ns; // first bucket, last bucket; NO_ACTION: the chunk makes none
    const sp_span *span;       // of one rank: the last that made gradients
} readiness;

bool sp_i_makes_gradients(sp_action action)
{
    return action.kind == SP_ACTION_B || action.kind == SP_ACTION_W;
}

// Shares of a vocabulary make gradients of the chunks that they belong to.
static void note_shares(const sp_rank_timeline *rank, readiness *ready)
{
    for (size_t s = 0; s < rank->share_count; s++) {
        const sp_span *span = &rank->shares[s].span;
        readiness *of = &ready[span->action.chunk];
        if (sp_i_makes_gradients(span->action) &&
            (of->span == NULL || span->end_ns > of->span->end_ns)) {
            of->span = span;
        }
    }
}

static void find_readiness(const sp_step_costs *costs, const sp_timeline *timeline, int pp_rank,
                           readiness *ready)
{
    size_t pp = (size_t)timeline->plan->layout.pp;
    int chunks = timeline->plan->layout.chunks;
    for (int c = 0; c < chunks; c++) {
        ready[c] = (readiness){.first_ns = NO_ACTION, .last_ns = NO_ACTION};
    }
    for (size_t i = (size_t)pp_rank; i < timeline->rank_count; i += pp) {
        const sp_rank_timeline *rank = &timeline->ranks[i];
        for (int c = 0; c < chunks; c++) {
            ready[c].span = NULL;
        }
        for (size_t s = 0; s < rank->count; s++) {
            if (sp_i_makes_gradients(rank->spans[s].action)) {
                ready[rank->spans[s].action.chunk].span = &rank->spans[s];
            }
        }
        note_shares(rank, ready);
        for (int c = 0; c < chunks; c++) {
            const sp_span *span = ready[c].span;
            if (span != NULL) {
                int64_t count = costs->buckets[pp_rank * chunks + c].count;
                int64_t first_ns = span->start_ns + (span->end_ns - span->start_ns) / count;
                ready[c].first_ns = sp_larger(ready[c].first_ns, first_ns);
                ready[c].last_ns = sp_larger(ready[c].last_ns, span->end_ns);
            }
        }
    }
}

// End of all buckets of a pipeline rank, chunk after chunk as their gradients are complete. Bucket
// j cannot end before it is ready and the n - j buckets from it on have run; its readiness, the
// latest of several straight lines, is convex in j, so the first or the last bucket decides.
static int64_t reduce_buckets(const sp_step_costs *costs, const sp_timeline *timeline, int pp_rank,
                              readiness *ready)
{
    int chunks = timeline->plan->layout.chunks;
    int64_t free_ns = 0;
    find_readiness(costs, timeline, pp_rank, ready);
    for (;;) {
        int next = NO_ACTION;
        for (int c = 0; c < chunks; c++) {
            if (ready[c].last_ns != NO_ACTION &&
                (next == NO_ACTION || ready[c].last_ns < ready[next].last_ns)) {
                next = c;
            }
        }
        if (next == NO_ACTION) {
            return free_ns;
        }
        const sp_bucket_cost *bucket = &costs->buckets[pp_rank * chunks + next];
        free_ns = sp_larger(sp_larger(free_ns, ready[next].first_ns) + bucket->total_ns,
                            ready[next].last_ns + bucket->bucket_ns);
        ready[next].last_ns = NO_ACTION;
    }
}

// What computes in the first forward of a rank. Parameters are not gathered beside its
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

int64_t sp_i_hidden_gather_ns(const sp_step_costs *costs, const sp_timeline *timeline, int pp_rank)
{
    size_t pp = (size_t)timeline->plan->layout.pp;
    int64_t hidden_ns = costs->ranks[pp_rank].epilogue.hideable_gather_ns;
    for (size_t i = (size_t)pp_rank; i < timeline->rank_count; i += pp) {
        int64_t forward_ns = first_forward_ns(&timeline->ranks[i]);
        hidden_ns = forward_ns < hidden_ns ? forward_ns : hidden_ns;
    }
    return hidden_ns;
}

void sp_i_note_epilogue(sp_timeline *timeline, int pp_rank, int64_t ready_ns, int64_t reduced_ns,
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

static void fill_rank(const sp_step_costs *costs, sp_timeline *timeline, int pp_rank,
                      readiness *ready)
{
    const sp_epilogue_cost *epilogue = &costs->ranks[pp_rank].epilogue;
    int64_t ready_ns = last_of_rank_ns(timeline, pp_rank);
    int64_t hidden_ns = sp_i_hidden_gather_ns(costs, timeline, pp_rank);
    int64_t reduced_ns = ready_ns;
    if (costs->buckets != NULL) {
        reduced_ns = sp_larger(reduced_ns, reduce_buckets(costs, timeline, pp_rank, ready));
    }
    reduced_ns += epilogue->grad_reduce_ns;
    int64_t optimized_ns = reduced_ns + epilogue->optimizer_ns;
    sp_i_note_epilogue(timeline, pp_rank, ready_ns, reduced_ns, optimized_ns,
                       optimized_ns + epilogue->param_gather_ns - hidden_ns);
}

sp_status sp_epilogue_fill(const sp_step_costs *costs, sp_timeline *timeline, sp_error *err)
{
    const sp_layout *layout = &timeline->plan->layout;
    (void)err;
    readiness *ready = sp_calloc((size_t)layout->chunks, sizeof *ready);
    for (int r = 0; r < layout->pp; r++) {
        fill_rank(costs, timeline, r, ready);
    }
    sp_free(ready);
    return SP_OK;
}
