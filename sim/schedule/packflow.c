#include "sim/schedule/packflow.h"

#include "sim/base/alloc.h"
#include "sim/base/units.h"

#define NEVER INT64_MAX

// How far a virtual stage is through its lists: packs ended or running.
typedef struct progress {
    size_t forwards, backwards, weights;
} progress;

// An action that a rank would start next.
typedef struct choice {
    int64_t start_ns; // NEVER: nothing is left, or nothing can be known to become ready
    int vstage;
    sp_packflow_kind kind;
} choice;

typedef struct rank {
    int64_t free_ns; // end of the last action
    int64_t held_bytes;
    bool has_room; // for all packs at once
    size_t steps;
    bool after_backward; // of forwards and backwards it ran a backward last
    choice next;
} rank;

typedef struct run {
    const sp_packflow_job *job;
    int vstages;
    rank *ranks;       // [pp]
    int64_t *next_ns;  // [pp] starts of what they would start next
    progress *done;    // [vstages]
    int *rank_of;      // [vstages]
    int *vstage_of;    // [pp * chunks] by rank, then chunk
    int64_t *f_end_ns; // [vstages * forward]
    int64_t *b_end_ns; // [vstages * backward]
    // [vstages] when the next forward and backward has all that it reads; NEVER: not known yet
    int64_t *f_ready_ns, *b_ready_ns;
    // Tokens of the packs before each, [forward + 1], and what the backwards before each free,
    // [backward + 1]
    int64_t *tokens_before, *freed_before;
    sp_packflow_result *result;
} run;

static int64_t forward_ready_ns(const run *r, int v);
static int64_t backward_ready_ns(const run *r, int v);
static choice choose(const run *r, int k);
static void start(run *r, int k);

size_t sp_packflow_length(const sp_packflow_job *job)
{
    return (job->forward + job->backward * (job->w_ns != NULL ? 2 : 1)) *
           (size_t)job->layout->chunks;
}

static void choose_on(run *r, int k)
{
    r->ranks[k].next = choose(r, k);
    r->next_ns[k] = r->ranks[k].next.start_ns;
}

// What became ready on another rank is of no use there before `ready_ns`, and changes nothing where
// that rank starts something else earlier.
static void choose_elsewhere(run *r, int k, int64_t ready_ns)
{
    if (ready_ns <= r->next_ns[k]) {
        choose_on(r, k);
    }
}

// A started forward makes that of its pack ready on the next virtual stage, a backward on the one
// before: where that is what comes next there.
static void choose_again(run *r, int k, const choice *started)
{
    int v = started->vstage;
    int other = v;
    int64_t ready_ns = NEVER;
    if (started->kind == SP_PACKFLOW_F) {
        r->f_ready_ns[v] = forward_ready_ns(r, v);
        r->b_ready_ns[v] = backward_ready_ns(r, v);
        if (v + 1 < r->vstages && r->done[v + 1].forwards + 1 == r->done[v].forwards) {
            other = v + 1;
            ready_ns = r->f_ready_ns[other] = forward_ready_ns(r, other);
        }
    } else if (started->kind == SP_PACKFLOW_B) {
        r->b_ready_ns[v] = backward_ready_ns(r, v);
        if (v > 0 && r->done[v - 1].backwards + 1 == r->done[v].backwards) {
            other = v - 1;
            ready_ns = r->b_ready_ns[other] = backward_ready_ns(r, other);
        }
    }
    choose_on(r, k);
    if (r->rank_of[other] != k) {
        choose_elsewhere(r, r->rank_of[other], ready_ns);
    }
}

// Actions are fixed in the order of their starts, so that whatever was ready by then is known.
static void run_all(run *r)
{
    size_t left = sp_packflow_length(r->job) * (size_t)r->job->layout->pp;
    int pp = r->job->layout->pp;
    for (int v = 0; v < r->vstages; v++) {
        r->f_ready_ns[v] = forward_ready_ns(r, v);
        r->b_ready_ns[v] = NEVER;
    }
    for (int k = 0; k < pp; k++) {
        choose_on(r, k);
    }
    for (; left > 0; left--) {
        int first = 0;
        int64_t least_ns = r->next_ns[0];
        for (int k = 1; k < pp; k++) {
            bool earlier = r->next_ns[k] < least_ns;
            first = earlier ? k : first;
            least_ns = earlier ? r->next_ns[k] : least_ns;
        }
        const choice next = r->ranks[first].next;
        SP_ASSERT(next.start_ns != NEVER);
        start(r, first);
        choose_again(r, first, &next);
    }
}

static void place_stages(run *r)
{
    const sp_layout *layout = r->job->layout;
    for (int k = 0; k < layout->pp; k++) {
        for (int chunk = 0; chunk < layout->chunks; chunk++) {
            int vstage = sp_layout_vstage(layout, k, chunk);
            r->rank_of[vstage] = k;
            r->vstage_of[k * layout->chunks + chunk] = vstage;
        }
    }
}

static void look_for_room(run *r)
{
    const sp_packflow_job *job = r->job;
    for (int k = 0; k < job->layout->pp; k++) {
        int64_t bytes = 0;
        for (int chunk = 0; job->room_bytes != NULL && chunk < job->layout->chunks; chunk++) {
            int v = r->vstage_of[k * job->layout->chunks + chunk];
            bytes += r->tokens_before[job->forward] * job->token_bytes[v];
        }
        r->ranks[k].has_room = job->room_bytes == NULL || bytes <= job->room_bytes[k];
    }
}

// Sums of the entries before each, [count + 1].
static int64_t *add_up(sp_arena *work, const int64_t *tokens, size_t count)
{
    int64_t *before = sp_arena_take(work, count + 1, sizeof *before);
    for (size_t k = 0; before != NULL && k < count; k++) {
        before[k + 1] = before[k] + tokens[k];
    }
    return before;
}

sp_status sp_packflow_run(const sp_packflow_job *job, sp_packflow_result *result, sp_error *err)
{
    size_t vstages = (size_t)sp_layout_vstages(job->layout);
    sp_arena work = {0};
    run r = {.job = job,
             .vstages = (int)vstages,
             .ranks = sp_arena_take(&work, (size_t)job->layout->pp, sizeof *r.ranks),
             .next_ns = sp_arena_take(&work, (size_t)job->layout->pp, sizeof *r.next_ns),
             .done = sp_arena_take(&work, vstages, sizeof *r.done),
             .rank_of = sp_arena_take(&work, vstages, sizeof *r.rank_of),
             .vstage_of = sp_arena_take(&work, vstages, sizeof *r.vstage_of),
             .f_end_ns = sp_arena_take(&work, job->forward * vstages, sizeof *r.f_end_ns),
             .b_end_ns = sp_arena_take(&work, job->backward * vstages, sizeof *r.b_end_ns),
             .f_ready_ns = sp_arena_take(&work, vstages, sizeof *r.f_ready_ns),
             .b_ready_ns = sp_arena_take(&work, vstages, sizeof *r.b_ready_ns),
             .tokens_before = add_up(&work, job->tokens, job->forward),
             .freed_before = add_up(&work, job->freed, job->backward),
             .result = result};
    result->makespan_ns = 0;
    result->lacking_bytes = 0;
    sp_status status = work.failed ? sp_error_no_memory(err, "the order of a packing") : SP_OK;
    if (status == SP_OK) {
        place_stages(&r);
        look_for_room(&r);
        run_all(&r);
    }
    sp_arena_free(&work);
    return status;
}

static int64_t transfer_ns(const run *r, int a, int b, int64_t p2p_ns)
{
    return r->rank_of[a] != r->rank_of[b] ? p2p_ns : 0;
}

static int64_t forward_ready_ns(const run *r, int v)
{
    size_t next = r->done[v].forwards;
    if (next == r->job->forward) {
        return NEVER;
    }
    if (v == 0) {
        return 0;
    }
    if (r->done[v - 1].forwards <= next) {
        return NEVER;
    }
    return r->f_end_ns[(size_t)(v - 1) * r->job->forward + next] +
           transfer_ns(r, v - 1, v, r->job->p2p_f_ns[next]);
}

static int64_t backward_ready_ns(const run *r, int v)
{
    const sp_packflow_job *job = r->job;
    size_t next = r->done[v].backwards;
    if (next == job->backward || r->done[v].forwards <= (size_t)job->need[next]) {
        return NEVER;
    }
    if (v == r->vstages - 1) {
        return r->f_end_ns[(size_t)v * job->forward + (size_t)job->need[next]];
    }
    if (r->done[v + 1].backwards <= next) {
        return NEVER;
    }
    return r->b_end_ns[(size_t)(v + 1) * job->backward + next] +
           transfer_ns(r, v + 1, v, job->p2p_b_ns[next]);
}

static int64_t forward_bytes(const sp_packflow_job *job, int v, size_t pack)
{
    return job->tokens[pack] * job->token_bytes[v];
}

static const progress *first_chunk(const run *r, int k)
{
    return &r->done[r->vstage_of[k * r->job->layout->chunks]];
}

// What the rank would hold when so many packs went forward and back on each of its chunks, or more
// where it is further. No weight gradient is left: they go before a forward that has no room.
static int64_t held_bytes(const run *r, int k, size_t forwards, size_t backwards)
{
    const sp_packflow_job *job = r->job;
    int64_t bytes = 0;
    for (int chunk = 0; chunk < job->layout->chunks; chunk++) {
        int v = r->vstage_of[k * job->layout->chunks + chunk];
        const progress *done = &r->done[v];
        size_t f = done->forwards > forwards ? done->forwards : forwards;
        size_t b = done->backwards > backwards ? done->backwards : backwards;
        bytes += (r->tokens_before[f] - r->freed_before[b]) * job->token_bytes[v];
    }
    return bytes;
}

// Chunks take room from each other: would the backwards that come before the one that reads this
// forward, one after the other, each after all that it needs, still have room?
static bool leaves_room(const run *r, int k, int v)
{
    const sp_packflow_job *job = r->job;
    size_t pack = r->done[v].forwards;
    int64_t room = job->room_bytes[k] - forward_bytes(job, v, pack);
    // Mostly there is even room for all that they need at once.
    if (held_bytes(r, k, pack, 0) <= room) {
        return true;
    }
    for (size_t j = first_chunk(r, k)->backwards; j < job->backward && (size_t)job->need[j] < pack;
         j++) {
        if (held_bytes(r, k, (size_t)job->need[j] + 1, j) > room) {
            return false;
        }
    }
    return true;
}

static bool fits(const run *r, int k, int v)
{
    const sp_packflow_job *job = r->job;
    const rank *on = &r->ranks[k];
    if (on->has_room) {
        return true;
    }
    bool alone = on->held_bytes == 0 ||
                 on->held_bytes + forward_bytes(job, v, r->done[v].forwards) <= job->room_bytes[k];
    return alone && (job->layout->chunks == 1 || leaves_room(r, k, v));
}

// The first chunk's backwards come last: what the next of them needs is needed by all.
static bool is_exempt(const run *r, int k, int v)
{
    const progress *first = first_chunk(r, k);
    return first->backwards < r->job->backward &&
           r->done[v].forwards <= (size_t)r->job->need[first->backwards];
}

// Of a forward and a backward that are ready the other kind than the last goes first: with several
// chunks, stages behind would else run out of forwards. A weight gradient runs while nothing else
// is ready, or where the forward that is ready, the last chunk's of several, has no room without
// it.
static choice choose(const run *r, int k)
{
    int chunks = r->job->layout->chunks;
    int64_t free_ns = r->ranks[k].free_ns;
    choice forward = {NEVER, 0, SP_PACKFLOW_F};
    choice backward = {NEVER, 0, SP_PACKFLOW_B};
    choice weight = {NEVER, 0, SP_PACKFLOW_W};
    bool room = true;
    for (int chunk = chunks - 1; chunk >= 0; chunk--) {
        int v = r->vstage_of[k * chunks + chunk];
        int64_t backward_ns = r->b_ready_ns[v];
        if (backward_ns != NEVER && sp_larger(backward_ns, free_ns) < backward.start_ns) {
            backward.start_ns = sp_larger(backward_ns, free_ns);
            backward.vstage = v;
        }
        int64_t forward_ns = r->f_ready_ns[v];
        if (forward_ns != NEVER && sp_larger(forward_ns, free_ns) < forward.start_ns) {
            bool has_room = fits(r, k, v);
            if (has_room || is_exempt(r, k, v)) {
                forward.start_ns = sp_larger(forward_ns, free_ns);
                forward.vstage = v;
            }
            room = room && (has_room || forward_ns > free_ns);
        }
        if (r->job->w_ns != NULL && weight.start_ns == NEVER &&
            r->done[v].weights < r->done[v].backwards) {
            weight.start_ns = free_ns;
            weight.vstage = v;
        }
    }
    if (weight.start_ns != NEVER && backward.start_ns > free_ns &&
        (!room || forward.start_ns > free_ns)) {
        return weight;
    }
    bool forward_first = r->ranks[k].after_backward ? forward.start_ns <= backward.start_ns
                                                    : forward.start_ns < backward.start_ns;
    return forward_first ? forward : backward;
}

static void start(run *r, int k)
{
    const sp_packflow_job *job = r->job;
    rank *on = &r->ranks[k];
    choice c = on->next;
    progress *done = &r->done[c.vstage];
    on->after_backward = c.kind == SP_PACKFLOW_W ? on->after_backward : c.kind == SP_PACKFLOW_B;
    size_t pack = c.kind == SP_PACKFLOW_F   ? done->forwards++
                  : c.kind == SP_PACKFLOW_B ? done->backwards++
                                            : done->weights++;
    const int64_t *times = c.kind == SP_PACKFLOW_F   ? job->f_ns
                           : c.kind == SP_PACKFLOW_B ? job->b_ns
                                                     : job->w_ns;
    on->free_ns = c.start_ns + times[pack * (size_t)r->vstages + (size_t)c.vstage];
    if (c.kind == SP_PACKFLOW_F) {
        r->f_end_ns[(size_t)c.vstage * job->forward + pack] = on->free_ns;
    } else if (c.kind == SP_PACKFLOW_B) {
        r->b_end_ns[(size_t)c.vstage * job->backward + pack] = on->free_ns;
    }
    if (job->room_bytes != NULL && c.kind == SP_PACKFLOW_F) {
        on->held_bytes += forward_bytes(job, c.vstage, pack);
        r->result->lacking_bytes =
            sp_larger(r->result->lacking_bytes, on->held_bytes - job->room_bytes[k]);
    } else if (job->room_bytes != NULL &&
               c.kind == (job->w_ns != NULL ? SP_PACKFLOW_W : SP_PACKFLOW_B)) {
        on->held_bytes -= job->freed[pack] * job->token_bytes[c.vstage];
    }
    r->result->makespan_ns = sp_larger(r->result->makespan_ns, on->free_ns);
    if (r->result->steps != NULL) {
        r->result->steps[(size_t)k * sp_packflow_length(job) + on->steps++] = (sp_packflow_step){
            (int32_t)pack, (int16_t)(c.vstage / job->layout->pp), (uint8_t)c.kind};
    }
}
