#include "sim/schedule/packflow.h"

#include "sim/base/alloc.h"

#define NEVER INT64_MAX

// One stage on its way through its lists.
typedef struct stage {
    size_t forwards, backwards, weights; // ended or running
    int64_t free_ns;                     // end of the last action
    int64_t held_tokens;
    size_t steps;
} stage;

typedef struct run {
    const sp_packflow_job *job;
    stage *stages;
    int64_t *f_end_ns; // [forward * stages]
    int64_t *b_end_ns; // [backward * stages]
    sp_packflow_result *result;
} run;

// An action that a stage would start next.
typedef struct choice {
    sp_packflow_kind kind;
    int64_t start_ns; // NEVER: nothing is left, or nothing can be known to become ready
} choice;

static choice choose(const run *r, int s);
static void start(run *r, int s, choice c);

size_t sp_packflow_length(const sp_packflow_job *job)
{
    return job->forward + job->backward * (job->w_ns != NULL ? 2 : 1);
}

// Actions are fixed in the order of their starts, so that whatever was ready by then is known.
static void run_all(run *r)
{
    size_t left = sp_packflow_length(r->job) * (size_t)r->job->stages;
    for (; left > 0; left--) {
        int first = -1;
        choice earliest = {SP_PACKFLOW_F, NEVER};
        for (int s = 0; s < r->job->stages; s++) {
            choice c = choose(r, s);
            if (c.start_ns < earliest.start_ns) {
                first = s;
                earliest = c;
            }
        }
        SP_ASSERT(first >= 0);
        start(r, first, earliest);
    }
}

sp_status sp_packflow_run(const sp_packflow_job *job, sp_packflow_result *result, sp_error *err)
{
    size_t stages = (size_t)job->stages;
    run r = {.job = job, .result = result};
    r.stages = sp_i_calloc(stages, sizeof *r.stages);
    r.f_end_ns = sp_i_malloc((job->forward * stages + 1) * sizeof *r.f_end_ns);
    r.b_end_ns = sp_i_malloc((job->backward * stages + 1) * sizeof *r.b_end_ns);
    result->makespan_ns = 0;
    result->most_tokens = 0;
    sp_status status = SP_OK;
    if (r.stages != NULL && r.f_end_ns != NULL && r.b_end_ns != NULL) {
        run_all(&r);
    } else {
        status = sp_error_no_memory(err, "the order of a packing");
    }
    sp_i_free(r.stages);
    sp_i_free(r.f_end_ns);
    sp_i_free(r.b_end_ns);
    return status;
}

static int64_t forward_ready_ns(const run *r, int s)
{
    const stage *st = &r->stages[s];
    if (st->forwards == r->job->forward) {
        return NEVER;
    }
    if (s == 0) {
        return 0;
    }
    if (r->stages[s - 1].forwards <= st->forwards) {
        return NEVER;
    }
    return r->f_end_ns[st->forwards * (size_t)r->job->stages + (size_t)s - 1] + r->job->p2p_ns;
}

static int64_t backward_ready_ns(const run *r, int s)
{
    const stage *st = &r->stages[s];
    size_t stages = (size_t)r->job->stages;
    if (st->backwards == r->job->backward || st->forwards <= (size_t)r->job->need[st->backwards]) {
        return NEVER;
    }
    if (s == r->job->stages - 1) {
        return r->f_end_ns[(size_t)r->job->need[st->backwards] * stages + (size_t)s];
    }
    if (r->stages[s + 1].backwards <= st->backwards) {
        return NEVER;
    }
    return r->b_end_ns[st->backwards * stages + (size_t)s + 1] + r->job->p2p_ns;
}

static bool fits(const run *r, const stage *st)
{
    const sp_packflow_job *job = r->job;
    return job->token_limit == 0 || st->held_tokens == 0 || st->forwards == job->forward ||
           st->held_tokens + job->tokens[st->forwards] <= job->token_limit;
}

static bool is_exempt(const run *r, const stage *st)
{
    const sp_packflow_job *job = r->job;
    return st->backwards < job->backward && st->forwards <= (size_t)job->need[st->backwards];
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// A weight gradient runs while nothing else is ready, or where a forward has no room without it.
static choice choose(const run *r, int s)
{
    const stage *st = &r->stages[s];
    bool room = fits(r, st);
    int64_t backward_ns = backward_ready_ns(r, s);
    int64_t forward_ns = room || is_exempt(r, st) ? forward_ready_ns(r, s) : NEVER;
    bool pending = r->job->w_ns != NULL && st->weights < st->backwards;
    if (pending && backward_ns > st->free_ns && (!room || forward_ns > st->free_ns)) {
        return (choice){SP_PACKFLOW_W, st->free_ns};
    }
    if (backward_ns <= later(st->free_ns, forward_ns)) {
        return (choice){SP_PACKFLOW_B,
                        backward_ns == NEVER ? NEVER : later(st->free_ns, backward_ns)};
    }
    return (choice){SP_PACKFLOW_F, later(st->free_ns, forward_ns)};
}

static void start(run *r, int s, choice c)
{
    const sp_packflow_job *job = r->job;
    stage *st = &r->stages[s];
    size_t pack = c.kind == SP_PACKFLOW_F   ? st->forwards++
                  : c.kind == SP_PACKFLOW_B ? st->backwards++
                                            : st->weights++;
    size_t at = pack * (size_t)job->stages + (size_t)s;
    const int64_t *times = c.kind == SP_PACKFLOW_F   ? job->f_ns
                           : c.kind == SP_PACKFLOW_B ? job->b_ns
                                                     : job->w_ns;
    st->free_ns = c.start_ns + times[at];
    if (c.kind == SP_PACKFLOW_F) {
        r->f_end_ns[at] = st->free_ns;
        st->held_tokens += job->tokens[pack];
        r->result->most_tokens = later(r->result->most_tokens, st->held_tokens);
    } else if (c.kind == SP_PACKFLOW_B) {
        r->b_end_ns[at] = st->free_ns;
    }
    if (c.kind == (job->w_ns != NULL ? SP_PACKFLOW_W : SP_PACKFLOW_B)) {
        st->held_tokens -= job->freed[pack];
    }
    r->result->makespan_ns = later(r->result->makespan_ns, st->free_ns);
    if (r->result->steps != NULL) {
        r->result->steps[(size_t)s * sp_packflow_length(job) + st->steps++] =
            (sp_packflow_step){(int32_t)pack, (uint8_t)c.kind};
    }
}
