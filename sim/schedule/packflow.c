#include "sim/schedule/packflow.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/schedule/schedule_family.h"

#define NEVER INT64_MAX

// The ends of all actions fit int64_t.
#define MOST_NS 9e18

enum { WORD = 64 }; // bits

// How far a virtual stage is through its lists, packs ended or running, and when its next forward
// and backward has all that it reads; NEVER: not known yet.
typedef struct stage_state {
    size_t forwards, backwards, weights;
    int64_t f_ready_ns, b_ready_ns;
    struct stage_state *before, *behind; // the virtual stages next to it; NULL: there is none
    int vstage, rank, chunk;
    uint64_t *f_known, *b_known; // its words in its rank's sets
    uint64_t bit;                // of them
    // When each of its packs has come to the stage behind, and back to the one before; the last
    // stage's forwards end where they are. Transfers NULL: the stage there is on its own rank.
    int64_t *f_there_ns, *b_there_ns;
    const int64_t *p2p_f_ns, *p2p_b_ns;
} stage_state;

// An action that a rank would start next.
typedef struct choice {
    int64_t start_ns; // NEVER: nothing is left, or nothing can be known to become ready
    stage_state *stage;
    sp_packflow_kind kind;
} choice;

typedef struct rank_state {
    stage_state *first, *end; // of its chunks
    // The chunks whose next forward, and backward, has a known time to be ready: few of many.
    uint64_t *forwards, *backwards;
    int64_t free_ns; // end of the last action
    int64_t held_bytes;
    int64_t bare_bytes; // of them what is left when no weight gradient is
    int64_t left_bytes; // of the forwards that it has not started
    bool has_room;      // for all of those at once
    size_t steps;
    size_t weights_left; // of backwards that it has started
    bool after_backward; // of forwards and backwards it ran a backward last
    // Where runs may end early: work that it has not started, what follows its last action on other
    // ranks, and, until it begins, what comes before its first action.
    int64_t left_ns, tail_ns, head_ns;
    choice next;
} rank_state;

typedef struct run {
    const sp_packflow_job *job;
    int vstages;
    rank_state *ranks; // [pp]
    int64_t *next_ns;  // [pp] starts of what they would start next
    uint64_t *sets;    // [pp * 2 * words] of chunks, a bit each
    int words;
    stage_state *stages; // [pp * chunks] by rank, then chunk
    stage_state **of;    // [vstages]
    // Tokens of the packs before each, [forward + 1], and what the backwards before each free,
    // [backward + 1]
    int64_t *tokens_before, *freed_before;
    sp_packflow_step *steps;
    sp_packflow_outcome *outcome;
} run;

static void run_all(run *r);

static choice choose(const run *r, const rank_state *on);

static void start(run *r, int k);

static void add_work(run *r);

static bool is_beaten(run *r, int k);

// ---- before the first action ----

static void place_stages(run *r)
{
    const sp_packflow_job *job = r->job;
    const sp_layout *layout = job->layout;
    for (int k = 0; k < layout->pp; k++) {
        stage_state *first = &r->stages[k * layout->chunks];
        rank_state *on = &r->ranks[k];
        *on = (rank_state){.first = first,
                           .end = first + layout->chunks,
                           .forwards = r->sets + (size_t)(2 * k * r->words),
                           .backwards = r->sets + (size_t)((2 * k + 1) * r->words)};
        for (int chunk = 0; chunk < layout->chunks; chunk++) {
            int v = sp_layout_vstage(layout, k, chunk);
            r->of[v] = &first[chunk];
            first[chunk] = (stage_state){.vstage = v,
                                         .rank = k,
                                         .chunk = chunk,
                                         .b_ready_ns = NEVER,
                                         .f_known = &on->forwards[chunk / WORD],
                                         .b_known = &on->backwards[chunk / WORD],
                                         .bit = UINT64_C(1) << chunk % WORD};
        }
    }
    for (int v = 0; v < r->vstages; v++) {
        stage_state *stage = r->of[v];
        stage->before = v > 0 ? r->of[v - 1] : NULL;
        stage->behind = v + 1 < r->vstages ? r->of[v + 1] : NULL;
        stage->p2p_f_ns =
            stage->behind != NULL && stage->behind->rank != stage->rank ? job->p2p_f_ns : NULL;
        stage->p2p_b_ns =
            stage->before != NULL && stage->before->rank != stage->rank ? job->p2p_b_ns : NULL;
    }
}

// Sums of the entries before each, [count + 1].
static void add_up(const int64_t *tokens, size_t count, int64_t *before)
{
    before[0] = 0;
    for (size_t k = 0; k < count; k++) {
        before[k + 1] = before[k] + tokens[k];
    }
}

static int64_t forwards_room(const sp_packflow_job *job, int k)
{
    return job->room_bytes[k] - (job->again_bytes != NULL ? job->again_bytes[k] : 0);
}

// Once all that is left fits beside what is held, room is no matter any more.
static void look_for_room(const sp_packflow_job *job, int k, rank_state *on)
{
    on->has_room = on->has_room || on->held_bytes + on->left_bytes <= forwards_room(job, k);
}

static void add_bytes(run *r)
{
    const sp_packflow_job *job = r->job;
    for (int k = 0; k < job->layout->pp; k++) {
        rank_state *on = &r->ranks[k];
        on->has_room = job->room_bytes == NULL;
        for (const stage_state *stage = on->first; !on->has_room && stage < on->end; stage++) {
            on->left_bytes += r->tokens_before[job->forward] * job->token_bytes[stage->vstage];
        }
        look_for_room(job, k, on);
    }
}

static void *carve(char **memory, size_t bytes)
{
    char *piece = *memory;
    *memory += bytes;
    return piece;
}

// All memory in one piece: most runs are short. Every type in it is as strictly aligned as int64_t.
static void begin(run *r, void **memory)
{
    const sp_packflow_job *job = r->job;
    size_t pp = (size_t)job->layout->pp;
    size_t vstages = (size_t)r->vstages;
    size_t words = (size_t)r->words;
    size_t numbers = pp * (1 + 2 * words) + (job->forward + job->backward) * (vstages + 1) + 2;
    char *piece = *memory = sp_malloc(pp * sizeof *r->ranks + vstages * sizeof *r->stages +
                                      vstages * sizeof *r->of + numbers * sizeof(int64_t));
    r->ranks = carve(&piece, pp * sizeof *r->ranks);
    r->stages = carve(&piece, vstages * sizeof *r->stages);
    r->of = carve(&piece, vstages * sizeof *r->of);
    r->next_ns = carve(&piece, pp * sizeof *r->next_ns);
    r->tokens_before = carve(&piece, (job->forward + 1) * sizeof *r->tokens_before);
    r->freed_before = carve(&piece, (job->backward + 1) * sizeof *r->freed_before);
    r->sets = carve(&piece, pp * 2 * words * sizeof *r->sets);
    memset(r->sets, 0, pp * 2 * words * sizeof *r->sets);
    place_stages(r);
    for (stage_state *stage = r->stages; stage < r->stages + vstages; stage++) {
        stage->f_there_ns = carve(&piece, job->forward * sizeof *stage->f_there_ns);
        stage->b_there_ns = carve(&piece, job->backward * sizeof *stage->b_there_ns);
    }
    add_up(job->tokens, job->forward, r->tokens_before);
    add_up(job->freed, job->backward, r->freed_before);
    add_bytes(r);
}

// ---- a run ----

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
    if (a->overfull != b->overfull) {
        return b->overfull;
    }
    return counted_ns(a) < counted_ns(b);
}

size_t sp_packflow_length(const sp_packflow_job *job)
{
    return (job->forward + job->backward * (job->w_ns != NULL ? 2 : 1)) *
           (size_t)job->layout->chunks;
}

// Four sums need not wait for each other's additions.
static double sum_ns(const int64_t *times, size_t count)
{
    double sum[4] = {0.0};
    size_t whole = times != NULL ? count / 4 * 4 : 0;
    for (size_t i = 0; i < whole; i += 4) {
        for (size_t part = 0; part < 4; part++) {
            sum[part] += (double)times[i + part];
        }
    }
    for (size_t i = whole; times != NULL && i < count; i++) {
        sum[0] += (double)times[i];
    }
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

// No order of the actions ends later.
static double work_ns(const sp_packflow_job *job, int vstages)
{
    const size_t stages = (size_t)vstages;
    double sum = sum_ns(job->f_ns, job->forward * stages);
    sum += sum_ns(job->b_ns, job->backward * stages);
    sum += sum_ns(job->w_ns, job->backward * stages);
    return sum +
           vstages * (sum_ns(job->p2p_f_ns, job->forward) + sum_ns(job->p2p_b_ns, job->backward));
}

sp_status sp_packflow_run(const sp_packflow_job *job, sp_packflow_step *steps,
                          sp_packflow_outcome *outcome, sp_error *err)
{
    run r = {.job = job,
             .vstages = sp_layout_vstages(job->layout),
             .words = (job->layout->chunks + WORD - 1) / WORD,
             .steps = steps,
             .outcome = outcome};
    void *memory;
    *outcome = (sp_packflow_outcome){0};
    if (!(work_ns(job, r.vstages) < MOST_NS)) {
        return sp_error_set(err, SP_ERR_LIMIT, "the actions of a step add up to over 285 years");
    }
    begin(&r, &memory);
    if (job->beaten != NULL && job->forward > 0 && job->backward > 0) {
        add_work(&r);
    }
    run_all(&r);
    sp_free(memory);
    return SP_OK;
}

// ---- memory ----

static int64_t forward_bytes(const sp_packflow_job *job, const stage_state *stage)
{
    return job->tokens[stage->forwards] * job->token_bytes[stage->vstage];
}

// Returns what a rank would hold when so many packs went forward and back on each of its chunks, or
// more where it is further, for numbers that do not fall. No weight gradient is left: they go
// before a forward that has no room. Chunks in a row from the last are short of forwards, from the
// first of backwards.
typedef struct holding {
    const stage_state *short_f,
        *full_b;                    // the first that is short of forwards, and not of backwards
    int64_t forward_bytes, f_bytes; // of a token on those that are short, and of all they ran
    int64_t backward_bytes, b_bytes;
} holding;

static int64_t held_bytes(const run *r, const rank_state *on, size_t forwards, size_t backwards,
                          holding *h)
{
    const int64_t *token_bytes = r->job->token_bytes;
    while (h->short_f > on->first && h->short_f[-1].forwards < forwards) {
        const stage_state *stage = --h->short_f;
        h->forward_bytes += token_bytes[stage->vstage];
        h->f_bytes += r->tokens_before[stage->forwards] * token_bytes[stage->vstage];
    }
    for (; h->full_b < on->end && h->full_b->backwards < backwards; h->full_b++) {
        h->backward_bytes += token_bytes[h->full_b->vstage];
        h->b_bytes += r->freed_before[h->full_b->backwards] * token_bytes[h->full_b->vstage];
    }
    return on->bare_bytes + r->tokens_before[forwards] * h->forward_bytes - h->f_bytes -
           (r->freed_before[backwards] * h->backward_bytes - h->b_bytes);
}

// Chunks take room from each other: would the backwards that come before the one that reads this
// forward, one after the other, each after all that it needs, still have room?
static bool leaves_room(const run *r, const rank_state *on, const stage_state *next, int64_t room)
{
    const sp_packflow_job *job = r->job;
    size_t pack = next->forwards;
    // Mostly there is even room for all that they need at once: later chunks are behind.
    int64_t all_bytes = on->bare_bytes;
    for (const stage_state *stage = next + 1; stage < on->end; stage++) {
        all_bytes += (r->tokens_before[pack] - r->tokens_before[stage->forwards]) *
                     job->token_bytes[stage->vstage];
    }
    if (all_bytes <= room) {
        return true;
    }
    holding h = {.short_f = on->end, .full_b = on->first};
    int32_t need = -1;
    for (size_t j = on->first->backwards; j < job->backward && (size_t)job->need[j] < pack; j++) {
        // The first of the backwards that need no more finds most.
        if (job->need[j] != need && held_bytes(r, on, (size_t)job->need[j] + 1, j, &h) > room) {
            return false;
        }
        need = job->need[j];
    }
    return true;
}

// Would 1F1B run a backward first? None of the next pp - rank ones needs this forward.
static bool is_early(const sp_packflow_job *job, const stage_state *stage)
{
    const size_t last = stage->backwards + (size_t)(job->layout->pp - stage->rank - 1);
    return last < job->backward && stage->forwards > (size_t)job->need[last];
}

static bool fits(const run *r, const rank_state *on, const stage_state *stage)
{
    if (r->job->in_1f1b) {
        return !is_early(r->job, stage);
    }
    if (on->has_room) {
        return true;
    }
    int64_t room = forwards_room(r->job, stage->rank) - forward_bytes(r->job, stage);
    bool alone = on->held_bytes == 0 || on->held_bytes <= room;
    return alone && (on->first + 1 == on->end || leaves_room(r, on, stage, room));
}

// The first chunk's backwards come last: what the next of them needs is needed by all.
static bool is_exempt(const run *r, const rank_state *on, const stage_state *stage)
{
    return on->first->backwards < r->job->backward &&
           stage->forwards <= (size_t)r->job->need[on->first->backwards];
}

// In 1F1B a backward that is ready waits for the forward that goes before it.
static bool is_late(const sp_packflow_job *job, const stage_state *stage)
{
    return job->in_1f1b && stage->forwards < job->forward && !is_early(job, stage);
}

// ---- action by action ----

static void choose_on(run *r, int k)
{
    rank_state *on = &r->ranks[k];
    on->next = choose(r, on);
    r->next_ns[k] = on->next.start_ns;
}

// An action that became ready on another rank changes nothing where that rank starts something else
// earlier, and goes first where nothing else is ready by then.
static void choose_elsewhere(run *r, choice ready)
{
    int k = ready.stage->rank;
    rank_state *on = &r->ranks[k];
    if (ready.start_ns == NEVER || ready.start_ns > r->next_ns[k]) {
        return;
    }
    ready.start_ns = sp_larger(ready.start_ns, on->free_ns);
    if (ready.start_ns == r->next_ns[k]) {
        choose_on(r, k);
    } else if (ready.kind == SP_PACKFLOW_B
                   ? !is_late(r->job, ready.stage)
                   : fits(r, on, ready.stage) || is_exempt(r, on, ready.stage)) {
        on->next = ready;
        r->next_ns[k] = ready.start_ns;
    }
}

static int64_t forward_ready_ns(const run *r, const stage_state *stage)
{
    size_t next = stage->forwards;
    if (next == r->job->forward) {
        return NEVER;
    }
    if (stage->before == NULL) {
        return 0;
    }
    return stage->before->forwards > next ? stage->before->f_there_ns[next] : NEVER;
}

static inline void find_forward(run *r, stage_state *stage)
{
    stage->f_ready_ns = forward_ready_ns(r, stage);
    *stage->f_known =
        stage->f_ready_ns == NEVER ? *stage->f_known & ~stage->bit : *stage->f_known | stage->bit;
}

static int64_t backward_ready_ns(const run *r, const stage_state *stage)
{
    const sp_packflow_job *job = r->job;
    size_t next = stage->backwards;
    if (next == job->backward || stage->forwards <= (size_t)job->need[next]) {
        return NEVER;
    }
    if (stage->behind == NULL) {
        return stage->f_there_ns[job->need[next]];
    }
    return stage->behind->backwards > next ? stage->behind->b_there_ns[next] : NEVER;
}

static inline void find_backward(run *r, stage_state *stage)
{
    stage->b_ready_ns = backward_ready_ns(r, stage);
    *stage->b_known =
        stage->b_ready_ns == NEVER ? *stage->b_known & ~stage->bit : *stage->b_known | stage->bit;
}

// A started forward makes that of its pack ready on the next virtual stage, a backward on the one
// before: where that is what comes next there.
static void choose_again(run *r, int k, choice started)
{
    stage_state *stage = started.stage;
    choice ready = {NEVER, stage, started.kind};
    if (started.kind == SP_PACKFLOW_F) {
        find_forward(r, stage);
        if (stage->b_ready_ns == NEVER) {
            find_backward(r, stage);
        }
        if (stage->behind != NULL && stage->behind->forwards + 1 == stage->forwards) {
            ready.stage = stage->behind;
            find_forward(r, ready.stage);
            ready.start_ns = ready.stage->f_ready_ns;
        }
    } else if (started.kind == SP_PACKFLOW_B) {
        find_backward(r, stage);
        if (stage->before != NULL && stage->before->backwards + 1 == stage->backwards) {
            ready.stage = stage->before;
            find_backward(r, ready.stage);
            ready.start_ns = ready.stage->b_ready_ns;
        }
    }
    choose_on(r, k);
    if (ready.stage->rank != k) {
        choose_elsewhere(r, ready);
    }
}

// Actions are fixed in the order of their starts, so that whatever was ready by then is known.
static void run_all(run *r)
{
    size_t left = sp_packflow_length(r->job) * (size_t)r->job->layout->pp;
    int pp = r->job->layout->pp;
    for (int v = 0; v < r->vstages; v++) {
        find_forward(r, r->of[v]);
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
        choose_again(r, first, next);
    }
}

// The chunks of a set that are left, from the last on.
typedef struct chunks_left {
    const uint64_t *set;
    uint64_t bits;
    int word;
} chunks_left;

static inline stage_state *next_chunk(const rank_state *on, chunks_left *left)
{
    while (left->bits == 0) {
        if (left->word == 0) {
            return NULL;
        }
        left->bits = left->set[--left->word];
    }
    int bit = WORD - 1 - __builtin_clzll(left->bits);
    left->bits ^= UINT64_C(1) << bit;
    return on->first + left->word * WORD + bit;
}

// ---- what goes first ----

// The last chunk's of several weight gradients that are left; NULL: there is none.
static stage_state *next_weight(const rank_state *on)
{
    stage_state *stage = on->weights_left > 0 ? on->end - 1 : NULL;
    while (stage != NULL && stage->weights == stage->backwards) {
        stage--;
    }
    return stage;
}

// Where a forward and a backward are ready, the other kind than the last goes first: with several
// chunks, stages behind would else run out of forwards. A weight gradient runs while nothing else
// is ready, or where the forward that is ready, the last chunk's of several, has no room without
// it.
static choice choose(const run *r, const rank_state *on)
{
    int64_t free_ns = on->free_ns;
    stage_state *stage;
    int last = r->words - 1;
    chunks_left backwards = {on->backwards, on->backwards[last], last};
    chunks_left forwards = {on->forwards, on->forwards[last], last};
    choice backward = {NEVER, on->first, SP_PACKFLOW_B};
    while ((stage = next_chunk(on, &backwards)) != NULL) {
        if (stage->b_ready_ns < backward.start_ns && !is_late(r->job, stage)) {
            backward.start_ns = sp_larger(stage->b_ready_ns, free_ns);
            backward.stage = stage;
            if (stage->b_ready_ns <= free_ns) {
                break; // no chunk before it is ready earlier
            }
        }
    }
    stage_state *weight = backward.start_ns > free_ns ? next_weight(on) : NULL;
    // A forward is of no use later than what else can run.
    int64_t before_ns = weight != NULL ? free_ns + 1 : backward.start_ns;
    before_ns += weight == NULL && on->after_backward && before_ns != NEVER;
    choice forward = {before_ns, on->first, SP_PACKFLOW_F};
    bool found = false;
    bool room = true;
    while (forward.start_ns > free_ns && (stage = next_chunk(on, &forwards)) != NULL) {
        if (stage->f_ready_ns < forward.start_ns) {
            bool has_room = fits(r, on, stage);
            if (has_room || is_exempt(r, on, stage)) {
                forward.start_ns = sp_larger(stage->f_ready_ns, free_ns);
                forward.stage = stage;
                found = true;
            }
            room = room && has_room;
        }
    }
    if (weight != NULL && (!room || !found)) {
        return (choice){free_ns, weight, SP_PACKFLOW_W};
    }
    return found ? forward : backward;
}

// ---- an action ----

static void note_lack(run *r, int k, int64_t bytes)
{
    r->outcome->lacking_bytes = sp_larger(r->outcome->lacking_bytes, bytes - r->job->room_bytes[k]);
}

// Returns what a rank holds from the start of an action on; activations go as it ends.
static void hold(run *r, int k, const choice *c, size_t pack)
{
    const sp_packflow_job *job = r->job;
    rank_state *on = &r->ranks[k];
    int64_t token_bytes = job->token_bytes[c->stage->vstage];
    if (c->kind == SP_PACKFLOW_F) {
        int64_t bytes = job->tokens[pack] * token_bytes;
        on->held_bytes += bytes;
        on->bare_bytes += bytes;
        on->left_bytes -= bytes;
        note_lack(r, k, on->held_bytes);
        return;
    }
    if (c->kind == SP_PACKFLOW_B && job->again != NULL) {
        note_lack(r, k, on->held_bytes + job->again[pack] * token_bytes);
    }
    int64_t bytes = job->freed[pack] * token_bytes;
    on->held_bytes -= c->kind == SP_PACKFLOW_W || job->w_ns == NULL ? bytes : 0;
    on->bare_bytes -= c->kind == SP_PACKFLOW_B ? bytes : 0;
    look_for_room(job, k, on);
}

static void start(run *r, int k)
{
    const sp_packflow_job *job = r->job;
    rank_state *on = &r->ranks[k];
    const choice c = on->next;
    stage_state *stage = c.stage;
    size_t pack;
    int64_t end_ns = c.start_ns;
    size_t row = (size_t)stage->vstage;
    size_t each = (size_t)r->vstages;
    int64_t duration_ns;
    switch (c.kind) {
    case SP_PACKFLOW_F:
        pack = stage->forwards++;
        duration_ns = job->f_ns[pack * each + row];
        end_ns += duration_ns;
        stage->f_there_ns[pack] = end_ns + (stage->p2p_f_ns != NULL ? stage->p2p_f_ns[pack] : 0);
        on->after_backward = false;
        break;
    case SP_PACKFLOW_B:
        pack = stage->backwards++;
        duration_ns = job->b_ns[pack * each + row];
        end_ns += duration_ns;
        stage->b_there_ns[pack] = end_ns + (stage->p2p_b_ns != NULL ? stage->p2p_b_ns[pack] : 0);
        on->after_backward = true;
        on->weights_left += job->w_ns != NULL;
        break;
    default:
        pack = stage->weights++;
        duration_ns = job->w_ns[pack * each + row];
        end_ns += duration_ns;
        on->weights_left--;
    }
    on->free_ns = end_ns;
    on->left_ns -= duration_ns;
    on->head_ns = 0;
    if (!on->has_room) {
        hold(r, k, &c, pack);
    }
    r->outcome->makespan_ns = sp_larger(r->outcome->makespan_ns, end_ns);
    if (r->steps != NULL) {
        r->steps[(size_t)k * sp_packflow_length(job) + on->steps++] =
            (sp_packflow_step){(int32_t)pack, (int16_t)stage->chunk, (uint8_t)c.kind};
    }
}

// ---- the end of a run that is beaten ----

static void add_times(run *r, const int64_t *times, size_t packs)
{
    for (int v = 0; times != NULL && v < r->vstages; v++) {
        int64_t all_ns = 0;
        for (size_t k = 0; k < packs; k++) {
            all_ns += times[k * (size_t)r->vstages + (size_t)v];
        }
        r->ranks[r->of[v]->rank].left_ns += all_ns;
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
        rank_state *on = &r->ranks[r->of[v]->rank];
        on->head_ns = head_ns;
        on->tail_ns = job->w_ns == NULL ? tail_ns : 0;
        head_ns += job->f_ns[v] + job->p2p_f_ns[0];
        tail_ns += job->b_ns[last * (size_t)r->vstages + (size_t)v] + job->p2p_b_ns[last];
    }
}

// The rank cannot end before its work is done, one action after the other.
static bool is_beaten(run *r, int k)
{
    const rank_state *on = &r->ranks[k];
    int64_t least_ns = on->head_ns + on->free_ns + on->left_ns + on->tail_ns;
    r->outcome->makespan_ns = sp_larger(r->outcome->makespan_ns, least_ns);
    return !sp_packflow_is_better(r->outcome, r->job->beaten);
}

// The orders of all data-parallel ranks are made from this.
typedef struct ordering {
    const sp_schedule_spec *spec;
    const sp_schedule_costs *costs;
    const sp_packing *packing;
    const sp_layout *layout;
    int32_t *forward_pack; // of each backward slice; NULL where backward packs are the forward
} ordering;

// Packs of one data-parallel rank and what a run over them needs, in memory of `work`.
typedef struct rank_job {
    sp_packflow_job job;
    int32_t *forward, *backward; // packs of the plan, in the rank's order
    int32_t *repeated;           // [backward] the forward pack that runs again before it; -1: none
    sp_arena work;
} rank_job;

static int32_t *packs_on(sp_arena *work, const sp_pack_list *list, int dp, size_t *count)
{
    int32_t *packs = sp_arena_take(work, list->count, sizeof *packs);
    *count = 0;
    for (size_t k = 0; k < list->count; k++) {
        if (list->packs[k].dp_first <= dp &&
            dp - list->packs[k].dp_first < list->packs[k].dp_count) {
            packs[(*count)++] = (int32_t)k;
        }
    }
    return packs;
}

// The rank's share of the tokens of its packs.
static int64_t *tokens_of(sp_arena *work, const sp_pack_list *list, const int32_t *packs,
                          size_t count)
{
    int64_t *tokens = sp_arena_take(work, count, sizeof *tokens);
    for (size_t k = 0; k < count; k++) {
        const sp_pack *pack = &list->packs[packs[k]];
        tokens[k] = (pack->computed + pack->dp_count - 1) / pack->dp_count;
    }
    return tokens;
}

// The rows of a table that belong to the rank's packs.
static int64_t *rows_of(sp_arena *work, const int64_t *from, const int32_t *packs, size_t count,
                        size_t columns)
{
    int64_t *rows = sp_arena_take(work, count * columns, sizeof *rows);
    for (size_t k = 0; k < count; k++) {
        const int64_t *row = from + (size_t)packs[k] * columns;
        for (size_t v = 0; v < columns; v++) {
            rows[k * columns + v] = row[v];
        }
    }
    return rows;
}

// A slice's forward pack is needed, and so is what the backward packs before it needed, among which
// are those of the sample's later slices.
static int32_t *find_needs(const ordering *o, rank_job *rank)
{
    const sp_pack_list *backward = sp_packing_backward(o->packing);
    int32_t *needs = sp_arena_take(&rank->work, rank->job.backward, sizeof *needs);
    int32_t *place = sp_arena_take(&rank->work, o->packing->forward.count, sizeof *place);
    int32_t need = 0;
    for (size_t k = 0; k < rank->job.forward; k++) {
        place[rank->forward[k]] = (int32_t)k;
    }
    for (size_t k = 0; k < rank->job.backward; k++) {
        const sp_pack *pack = &backward->packs[rank->backward[k]];
        size_t reads = o->forward_pack == NULL ? 1 : pack->slice_count;
        for (size_t i = 0; i < reads; i++) {
            int32_t at = place[o->forward_pack == NULL ? rank->backward[k]
                                                       : o->forward_pack[pack->first_slice + i]];
            need = at > need ? at : need;
        }
        needs[k] = need;
    }
    return needs;
}

// A forward that runs again is counted with the backward behind it: the rank is ready for both at
// the same time. Until then its pack keeps little.
static void add_repeats(const ordering *o, rank_job *rank)
{
    const sp_pack_list *forward = &o->packing->forward;
    const sp_pack_list *backward = sp_packing_backward(o->packing);
    size_t vstages = (size_t)sp_layout_vstages(o->layout);
    int64_t *tokens = (int64_t *)rank->job.tokens;
    int64_t *freed = (int64_t *)rank->job.freed;
    int64_t *b_ns = (int64_t *)rank->job.b_ns;
    int64_t *again = sp_arena_take(&rank->work, rank->job.backward, sizeof *again);
    rank->repeated = sp_arena_take(&rank->work, rank->job.backward, sizeof *rank->repeated);
    rank->job.again = again;
    for (size_t k = 0; k < rank->job.forward; k++) {
        if (forward->packs[rank->forward[k]].runs_again) {
            tokens[k] = sp_packflow_kept(tokens[k], o->costs->kept_share);
        }
    }
    for (size_t k = 0; k < rank->job.backward; k++) {
        int32_t pack = o->forward_pack == NULL
                           ? rank->backward[k]
                           : o->forward_pack[backward->packs[rank->backward[k]].first_slice];
        bool repeated = forward->packs[pack].runs_again;
        int64_t kept = repeated ? sp_packflow_kept(freed[k], o->costs->kept_share) : freed[k];
        rank->repeated[k] = repeated ? pack : -1;
        again[k] = freed[k] - kept;
        freed[k] = kept;
        for (size_t v = 0; repeated && v < vstages; v++) {
            b_ns[k * vstages + v] += o->costs->pack_f_ns[(size_t)pack * vstages + v];
        }
    }
}

static void make_rank(const ordering *o, int dp, rank_job *rank)
{
    const sp_schedule_costs *costs = o->costs;
    const sp_pack_list *backward = sp_packing_backward(o->packing);
    bool split = o->spec->split_backward;
    size_t vstages = (size_t)sp_layout_vstages(o->layout);
    sp_arena *work = &rank->work;
    sp_packflow_job *job = &rank->job;
    *rank = (rank_job){.job = {.layout = o->layout}};
    rank->forward = packs_on(work, &o->packing->forward, dp, &job->forward);
    rank->backward = packs_on(work, backward, dp, &job->backward);
    if (costs->room_bytes != NULL) {
        job->token_bytes = costs->token_bytes + (size_t)dp * vstages;
        job->room_bytes = costs->room_bytes + dp * o->layout->pp;
        job->again_bytes =
            costs->again_bytes != NULL ? costs->again_bytes + dp * o->layout->pp : NULL;
    }
    job->f_ns = rows_of(work, costs->pack_f_ns, rank->forward, job->forward, vstages);
    job->b_ns = rows_of(work, split ? costs->pack_i_ns : costs->pack_b_ns, rank->backward,
                        job->backward, vstages);
    if (split) {
        job->w_ns = rows_of(work, costs->pack_w_ns, rank->backward, job->backward, vstages);
    }
    job->p2p_f_ns = rows_of(work, costs->pack_p2p_f_ns, rank->forward, job->forward, 1);
    job->p2p_b_ns = rows_of(work, costs->pack_p2p_b_ns, rank->backward, job->backward, 1);
    job->tokens = tokens_of(work, &o->packing->forward, rank->forward, job->forward);
    job->freed = tokens_of(work, backward, rank->backward, job->backward);
    job->need = find_needs(o, rank);
    job->in_1f1b = o->packing->in_1f1b && o->layout->chunks == 1 && o->packing->backward.count == 0;
    add_repeats(o, rank);
}

static void write_stages(const rank_job *rank, const sp_packflow_step *steps, int dp, sp_plan *plan)
{
    static const sp_action_kind split[] = {SP_ACTION_F, SP_ACTION_I, SP_ACTION_W};
    size_t length = sp_packflow_length(&rank->job);
    for (int s = 0; s < plan->layout.pp; s++) {
        sp_stage_plan *stage = sp_plan_stage(plan, dp, s);
        for (size_t i = 0; i < length; i++) {
            sp_packflow_step step = steps[(size_t)s * length + i];
            bool forward = step.kind == SP_PACKFLOW_F;
            sp_action_kind kind =
                forward || rank->job.w_ns != NULL ? split[step.kind] : SP_ACTION_B;
            if (step.kind == SP_PACKFLOW_B && rank->repeated[step.pack] >= 0) {
                sp_stage_plan_add(stage, SP_ACTION_R, step.chunk, rank->repeated[step.pack]);
            }
            sp_stage_plan_add(stage, kind, step.chunk,
                              (forward ? rank->forward : rank->backward)[step.pack]);
        }
    }
}

// The steps of a rank, in memory of `work`.
static sp_status run_rank(const rank_job *rank, sp_arena *work, sp_packflow_step **steps,
                          sp_packflow_outcome *outcome, sp_error *err)
{
    size_t count = sp_packflow_length(&rank->job) * (size_t)rank->job.layout->pp;
    *steps = sp_arena_take(work, count, sizeof **steps);
    return sp_packflow_run(&rank->job, *steps, outcome, err);
}

static sp_status order_rank(const ordering *o, int dp, sp_plan *plan, sp_error *err)
{
    rank_job rank;
    sp_packflow_outcome outcome;
    sp_packflow_step *steps = o->costs->orders != NULL ? o->costs->orders[dp] : NULL;
    sp_status status = SP_OK;
    make_rank(o, dp, &rank);
    if (steps == NULL) {
        status = run_rank(&rank, &rank.work, &steps, &outcome, err);
    }
    if (status == SP_OK) {
        write_stages(&rank, steps, dp, plan);
    }
    sp_arena_free(&rank.work);
    return status;
}

// The orders of all data-parallel ranks, each by a run of packflow.h over the costs of its packs.
// Ranks that share merged packs must have equal lists, or their orders may wait for each other,
// which the engine finds. O(stages * packs).
void sp_i_schedule_packflow(sp_i_schedule_job *job)
{
    ordering o = {.spec = job->spec,
                  .costs = job->costs,
                  .packing = job->plan->packing,
                  .layout = &job->plan->layout};
    sp_regroup(o.packing, &o.forward_pack);
    for (int d = 0; job->status == SP_OK && d < o.layout->dp; d++) {
        job->status = order_rank(&o, d, job->plan, job->err);
    }
    sp_free(o.forward_pack);
}

sp_status sp_packflow_slowest(const sp_schedule_spec *spec, const sp_schedule_costs *costs,
                              const sp_packing *packing, const sp_layout *layout,
                              const sp_packflow_outcome *beaten, sp_arena *work,
                              sp_packflow_step **orders, sp_packflow_outcome *outcome,
                              sp_error *err)
{
    ordering o = {.spec = spec, .costs = costs, .packing = packing, .layout = layout};
    sp_status status = SP_OK;
    bool open = true;
    sp_regroup(packing, &o.forward_pack);
    *outcome = (sp_packflow_outcome){0};
    for (int d = 0; status == SP_OK && open && d < layout->dp; d++) {
        sp_packflow_outcome one;
        rank_job rank;
        make_rank(&o, d, &rank);
        rank.job.beaten = beaten;
        status = run_rank(&rank, work, &orders[d], &one, err);
        sp_arena_free(&rank.work);
        outcome->makespan_ns = sp_larger(outcome->makespan_ns, one.makespan_ns);
        outcome->lacking_bytes = sp_larger(outcome->lacking_bytes, one.lacking_bytes);
        open = beaten == NULL || sp_packflow_is_better(outcome, beaten);
    }
    sp_free(o.forward_pack);
    return status;
}
