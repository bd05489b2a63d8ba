#include "sim/schedule/packflow.h"

#include "sim/base/alloc.h"
#include "sim/base/units.h"

#define NEVER INT64_MAX

// How far a virtual stage is through its lists, packs ended or running, and when its next forward
// and backward has all that it reads; NEVER: not known yet.
typedef struct stage {
    size_t forwards, backwards, weights;
    int64_t f_ready_ns, b_ready_ns;
    int vstage;
} stage;

// An action that a rank would start next.
typedef struct choice {
    int64_t start_ns; // NEVER: nothing is left, or nothing can be known to become ready
    int vstage;
    sp_packflow_kind kind;
} choice;

typedef struct rank {
    int64_t free_ns; // end of the last action
    int64_t held_bytes;
    int64_t bare_bytes; // of them what is left when no weight gradient is
    bool has_room;      // for all packs at once
    size_t steps;
    bool after_backward; // of forwards and backwards it ran a backward last
    // Where runs may end early: work that it has not started, what follows its last action on other
    // ranks, and, until it begins, what comes before its first action.
    int64_t left_ns, tail_ns, head_ns;
    choice next;
} rank;

typedef struct run {
    const sp_packflow_job *job;
    int vstages;
    rank *ranks;       // [pp]
    int64_t *next_ns;  // [pp] starts of what they would start next
    stage *stages;     // [pp * chunks] by rank, then chunk
    stage **of;        // [vstages]
    int *rank_of;      // [vstages]
    int64_t *f_end_ns; // [vstages * forward]
    int64_t *b_end_ns; // [vstages * backward]
    // Tokens of the packs before each, [forward + 1], and what the backwards before each free,
    // [backward + 1]
    int64_t *tokens_before, *freed_before;
    sp_packflow_step *steps;
    sp_packflow_outcome *outcome;
} run;

static int64_t forward_ready_ns(const run *r, int v);
static int64_t backward_ready_ns(const run *r, int v);
static bool may_run(const run *r, int k, int v);
static choice choose(const run *r, int k);
static void start(run *r, int k);
static void add_work(run *r);
static bool is_beaten(run *r, int k);

// A twentieth of its time is what it may cost a step not to fit tightly.
static int64_t counted_ns(const sp_packflow_outcome *out)
{
    return out->tight ? out->makespan_ns + out->makespan_ns / 20 : out->makespan_ns;
}

bool sp_packflow_is_better(const sp_packflow_outcome *a, const sp_packflow_outcome *b)
{
    if (a->lacking_bytes != b->lacking_bytes) {
        return a->lacking_bytes < b->lacking_bytes;
    }
    return counted_ns(a) < counted_ns(b);
}

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

// What became ready on another rank changes nothing where that rank starts something else earlier,
// and goes first where nothing else is ready by then.
static void choose_elsewhere(run *r, choice ready)
{
    int k = r->rank_of[ready.vstage];
    if (ready.start_ns == NEVER || ready.start_ns > r->next_ns[k]) {
        return;
    }
    ready.start_ns = sp_larger(ready.start_ns, r->ranks[k].free_ns);
    if (ready.start_ns == r->next_ns[k]) {
        choose_on(r, k);
    } else if (ready.kind == SP_PACKFLOW_B || may_run(r, k, ready.vstage)) {
        r->ranks[k].next = ready;
        r->next_ns[k] = ready.start_ns;
    }
}

// A started forward makes that of its pack ready on the next virtual stage, a backward on the one
// before: where that is what comes next there.
static void choose_again(run *r, int k, const choice *started)
{
    int v = started->vstage;
    choice ready = {NEVER, v, started->kind};
    stage *at = r->of[v];
    if (started->kind == SP_PACKFLOW_F) {
        at->f_ready_ns = forward_ready_ns(r, v);
        at->b_ready_ns = at->b_ready_ns == NEVER ? backward_ready_ns(r, v) : at->b_ready_ns;
        if (v + 1 < r->vstages && r->of[v + 1]->forwards + 1 == at->forwards) {
            ready.vstage = v + 1;
            ready.start_ns = r->of[v + 1]->f_ready_ns = forward_ready_ns(r, v + 1);
        }
    } else if (started->kind == SP_PACKFLOW_B) {
        at->b_ready_ns = backward_ready_ns(r, v);
        if (v > 0 && r->of[v - 1]->backwards + 1 == at->backwards) {
            ready.vstage = v - 1;
            ready.start_ns = r->of[v - 1]->b_ready_ns = backward_ready_ns(r, v - 1);
        }
    }
    choose_on(r, k);
    if (r->rank_of[ready.vstage] != k) {
        choose_elsewhere(r, ready);
    }
}

// Actions are fixed in the order of their starts, so that whatever was ready by then is known.
static void run_all(run *r)
{
    size_t left = sp_packflow_length(r->job) * (size_t)r->job->layout->pp;
    int pp = r->job->layout->pp;
    for (int v = 0; v < r->vstages; v++) {
        r->of[v]->f_ready_ns = forward_ready_ns(r, v);
        r->of[v]->b_ready_ns = NEVER;
    }
    for (int k = 0; k < pp; k++) {
        choose_on(r, k);
    }
    for (int k = 0; r->job->beaten != NULL && k < pp; k++) {
        if (is_beaten(r, k)) {
            return;
        }
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
        if (r->job->beaten != NULL && is_beaten(r, first)) {
            return;
        }
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
            r->of[vstage] = &r->stages[k * layout->chunks + chunk];
            r->of[vstage]->vstage = vstage;
        }
    }
}

static void look_for_room(run *r)
{
    const sp_packflow_job *job = r->job;
    for (int k = 0; k < job->layout->pp; k++) {
        int64_t bytes = 0;
        for (int chunk = 0; job->room_bytes != NULL && chunk < job->layout->chunks; chunk++) {
            int v = r->stages[k * job->layout->chunks + chunk].vstage;
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

sp_status sp_packflow_run(const sp_packflow_job *job, sp_packflow_step *steps,
                          sp_packflow_outcome *outcome, sp_error *err)
{
    size_t vstages = (size_t)sp_layout_vstages(job->layout);
    sp_arena work = {0};
    run r = {.job = job,
             .vstages = (int)vstages,
             .ranks = sp_arena_take(&work, (size_t)job->layout->pp, sizeof *r.ranks),
             .next_ns = sp_arena_take(&work, (size_t)job->layout->pp, sizeof *r.next_ns),
             .stages = sp_arena_take(&work, vstages, sizeof *r.stages),
             .of = sp_arena_take(&work, vstages, sizeof *r.of),
             .rank_of = sp_arena_take(&work, vstages, sizeof *r.rank_of),
             .f_end_ns = sp_arena_take(&work, job->forward * vstages, sizeof *r.f_end_ns),
             .b_end_ns = sp_arena_take(&work, job->backward * vstages, sizeof *r.b_end_ns),
             .tokens_before = add_up(&work, job->tokens, job->forward),
             .freed_before = add_up(&work, job->freed, job->backward),
             .steps = steps,
             .outcome = outcome};
    *outcome = (sp_packflow_outcome){0};
    sp_status status = work.failed ? sp_error_no_memory(err, "the order of a packing") : SP_OK;
    if (status == SP_OK) {
        place_stages(&r);
        look_for_room(&r);
        if (job->beaten != NULL && job->forward > 0 && job->backward > 0) {
            add_work(&r);
        }
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
    size_t next = r->of[v]->forwards;
    if (next == r->job->forward) {
        return NEVER;
    }
    if (v == 0) {
        return 0;
    }
    if (r->of[v - 1]->forwards <= next) {
        return NEVER;
    }
    return r->f_end_ns[(size_t)(v - 1) * r->job->forward + next] +
           transfer_ns(r, v - 1, v, r->job->p2p_f_ns[next]);
}

static int64_t backward_ready_ns(const run *r, int v)
{
    const sp_packflow_job *job = r->job;
    size_t next = r->of[v]->backwards;
    if (next == job->backward || r->of[v]->forwards <= (size_t)job->need[next]) {
        return NEVER;
    }
    if (v == r->vstages - 1) {
        return r->f_end_ns[(size_t)v * job->forward + (size_t)job->need[next]];
    }
    if (r->of[v + 1]->backwards <= next) {
        return NEVER;
    }
    return r->b_end_ns[(size_t)(v + 1) * job->backward + next] +
           transfer_ns(r, v + 1, v, job->p2p_b_ns[next]);
}

static int64_t forward_bytes(const sp_packflow_job *job, int v, size_t pack)
{
    return job->tokens[pack] * job->token_bytes[v];
}

static const stage *first_chunk(const run *r, int k)
{
    return &r->stages[k * r->job->layout->chunks];
}

// What the rank would hold when so many packs went forward and back on each of its chunks, or more
// where it is further. No weight gradient is left: they go before a forward that has no room.
static int64_t held_bytes(const run *r, int k, size_t forwards, size_t backwards)
{
    const sp_packflow_job *job = r->job;
    int64_t bytes = 0;
    for (int chunk = 0; chunk < job->layout->chunks; chunk++) {
        const stage *at = first_chunk(r, k) + chunk;
        size_t f = at->forwards > forwards ? at->forwards : forwards;
        size_t b = at->backwards > backwards ? at->backwards : backwards;
        bytes += (r->tokens_before[f] - r->freed_before[b]) * job->token_bytes[at->vstage];
    }
    return bytes;
}

// Chunks take room from each other: would the backwards that come before the one that reads this
// forward, one after the other, each after all that it needs, still have room?
static bool leaves_room(const run *r, int k, int v)
{
    const sp_packflow_job *job = r->job;
    const stage *end = first_chunk(r, k) + job->layout->chunks;
    size_t pack = r->of[v]->forwards;
    int64_t room = job->room_bytes[k] - forward_bytes(job, v, pack);
    // Mostly there is even room for all that they need at once: later chunks are behind.
    int64_t all_bytes = r->ranks[k].bare_bytes;
    for (const stage *at = r->of[v] + 1; at < end; at++) {
        all_bytes += (r->tokens_before[pack] - r->tokens_before[at->forwards]) *
                     job->token_bytes[at->vstage];
    }
    if (all_bytes <= room) {
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
                 on->held_bytes + forward_bytes(job, v, r->of[v]->forwards) <= job->room_bytes[k];
    return alone && (job->layout->chunks == 1 || leaves_room(r, k, v));
}

// The first chunk's backwards come last: what the next of them needs is needed by all.
static bool is_exempt(const run *r, int k, int v)
{
    const stage *first = first_chunk(r, k);
    return first->backwards < r->job->backward &&
           r->of[v]->forwards <= (size_t)r->job->need[first->backwards];
}

static bool may_run(const run *r, int k, int v)
{
    return fits(r, k, v) || is_exempt(r, k, v);
}

// The last chunk's of several weight gradients that are left; NULL: there is none.
static const stage *next_weight(const run *r, int k)
{
    const stage *first = first_chunk(r, k);
    for (const stage *at = first + r->job->layout->chunks; r->job->w_ns != NULL && at-- > first;) {
        if (at->weights < at->backwards) {
            return at;
        }
    }
    return NULL;
}

// Of a forward and a backward that are ready the other kind than the last goes first: with several
// chunks, stages behind would else run out of forwards. A weight gradient runs while nothing else
// is ready, or where the forward that is ready, the last chunk's of several, has no room without
// it.
static choice choose(const run *r, int k)
{
    const rank *on = &r->ranks[k];
    int64_t free_ns = on->free_ns;
    const stage *first = first_chunk(r, k);
    const stage *end = first + r->job->layout->chunks;
    choice backward = {NEVER, 0, SP_PACKFLOW_B};
    for (const stage *at = end; at-- > first;) {
        if (at->b_ready_ns < backward.start_ns) {
            backward.start_ns = sp_larger(at->b_ready_ns, free_ns);
            backward.vstage = at->vstage;
            if (at->b_ready_ns <= free_ns) {
                break; // no chunk before it is ready earlier
            }
        }
    }
    const stage *weight = backward.start_ns > free_ns ? next_weight(r, k) : NULL;
    // A forward is of no use later than what else can run.
    int64_t before_ns = weight != NULL ? free_ns + 1 : backward.start_ns;
    before_ns += weight == NULL && on->after_backward && before_ns != NEVER;
    choice forward = {before_ns, 0, SP_PACKFLOW_F};
    bool found = false;
    bool room = true;
    for (const stage *at = end; at-- > first && forward.start_ns > free_ns;) {
        if (at->f_ready_ns < forward.start_ns) {
            bool has_room = fits(r, k, at->vstage);
            if (has_room || is_exempt(r, k, at->vstage)) {
                forward.start_ns = sp_larger(at->f_ready_ns, free_ns);
                forward.vstage = at->vstage;
                found = true;
            }
            room = room && has_room;
        }
    }
    if (weight != NULL && (!room || !found)) {
        return (choice){free_ns, weight->vstage, SP_PACKFLOW_W};
    }
    return found ? forward : backward;
}

// What a rank holds from the start of an action on; activations go as it ends.
static void hold(run *r, int k, const choice *c, size_t pack)
{
    const sp_packflow_job *job = r->job;
    rank *on = &r->ranks[k];
    if (c->kind == SP_PACKFLOW_F) {
        int64_t bytes = forward_bytes(job, c->vstage, pack);
        on->held_bytes += bytes;
        on->bare_bytes += bytes;
        r->outcome->lacking_bytes =
            sp_larger(r->outcome->lacking_bytes, on->held_bytes - job->room_bytes[k]);
        return;
    }
    int64_t bytes = job->freed[pack] * job->token_bytes[c->vstage];
    on->held_bytes -= c->kind == SP_PACKFLOW_W || job->w_ns == NULL ? bytes : 0;
    on->bare_bytes -= c->kind == SP_PACKFLOW_B ? bytes : 0;
}

static void start(run *r, int k)
{
    const sp_packflow_job *job = r->job;
    rank *on = &r->ranks[k];
    choice c = on->next;
    stage *done = r->of[c.vstage];
    on->after_backward = c.kind == SP_PACKFLOW_W ? on->after_backward : c.kind == SP_PACKFLOW_B;
    size_t pack = c.kind == SP_PACKFLOW_F   ? done->forwards++
                  : c.kind == SP_PACKFLOW_B ? done->backwards++
                                            : done->weights++;
    const int64_t *times = c.kind == SP_PACKFLOW_F   ? job->f_ns
                           : c.kind == SP_PACKFLOW_B ? job->b_ns
                                                     : job->w_ns;
    int64_t duration_ns = times[pack * (size_t)r->vstages + (size_t)c.vstage];
    on->free_ns = c.start_ns + duration_ns;
    on->left_ns -= duration_ns;
    on->head_ns = 0;
    if (c.kind == SP_PACKFLOW_F) {
        r->f_end_ns[(size_t)c.vstage * job->forward + pack] = on->free_ns;
    } else if (c.kind == SP_PACKFLOW_B) {
        r->b_end_ns[(size_t)c.vstage * job->backward + pack] = on->free_ns;
    }
    if (job->room_bytes != NULL) {
        hold(r, k, &c, pack);
    }
    r->outcome->makespan_ns = sp_larger(r->outcome->makespan_ns, on->free_ns);
    if (r->steps != NULL) {
        r->steps[(size_t)k * sp_packflow_length(job) + on->steps++] = (sp_packflow_step){
            (int32_t)pack, (int16_t)(c.vstage / job->layout->pp), (uint8_t)c.kind};
    }
}

static void add_times(run *r, const int64_t *times, size_t packs)
{
    for (size_t k = 0; times != NULL && k < packs; k++) {
        for (int v = 0; v < r->vstages; v++) {
            r->ranks[r->rank_of[v]].left_ns += times[k * (size_t)r->vstages + (size_t)v];
        }
    }
}

// A rank's first action is the first forward of its first chunk, which has come up the virtual
// stages before it. Its last action, where backwards are not split, is the last backward of that
// chunk, which then goes down.
static void add_work(run *r)
{
    const sp_packflow_job *job = r->job;
    add_times(r, job->f_ns, job->forward);
    add_times(r, job->b_ns, job->backward);
    add_times(r, job->w_ns, job->backward);
    size_t last = job->backward - 1;
    int64_t head_ns = 0;
    int64_t tail_ns = 0;
    for (int v = 0; v < job->layout->pp; v++) {
        r->ranks[r->rank_of[v]].head_ns = head_ns;
        r->ranks[r->rank_of[v]].tail_ns = job->w_ns == NULL ? tail_ns : 0;
        head_ns += job->f_ns[v] + job->p2p_f_ns[0];
        tail_ns += job->b_ns[last * (size_t)r->vstages + (size_t)v] + job->p2p_b_ns[last];
    }
}

// The rank cannot end before its work is done, one action after the other.
static bool is_beaten(run *r, int k)
{
    const rank *on = &r->ranks[k];
    int64_t least_ns = on->head_ns + on->free_ns + on->left_ns + on->tail_ns;
    r->outcome->makespan_ns = sp_larger(r->outcome->makespan_ns, least_ns);
    return !sp_packflow_is_better(r->outcome, r->job->beaten);
}
