#include "tests/support/packflow_replay.h"

#include "tests/support/initializers.h"
#include "tests/support/test_main.h"

// ---- jobs ----

static int64_t below(sp_prng *prng, int64_t bound)
{
    return (int64_t)sp_prng_below(prng, (uint64_t)bound);
}

static void forget_again(packflow_case *c)
{
    c->job.again = NULL;
    c->job.again_bytes = NULL;
}

// Split backwards hold what forwards that run again would save.
void packflow_case_split(packflow_case *c, bool split)
{
    c->job.w_ns = split ? c->w_ns : NULL;
    if (split) {
        forget_again(c);
    }
}

void packflow_case_transfer(packflow_case *c, int64_t p2p_ns)
{
    for (int k = 0; k < PACKFLOW_PACKS; k++) {
        c->p2p_f_ns[k] = p2p_ns;
        c->p2p_b_ns[k] = p2p_ns;
    }
}

void packflow_case_room(packflow_case *c, int64_t bytes)
{
    c->job.room_bytes = bytes >= 0 ? c->room_bytes : NULL;
    for (int r = 0; r < PACKFLOW_RANKS; r++) {
        c->room_bytes[r] = bytes;
    }
}

static void begin(packflow_case *c, int pp, int chunks, int64_t forward, int64_t backward)
{
    c->layout = (sp_layout){LAYOUT(1, 1, pp, 1, chunks),
                            .placement = chunks == 2 ? SP_PLACE_V : SP_PLACE_LINEAR, .zero = 1};
    c->job = (sp_packflow_job){.layout = &c->layout,
                               .forward = (size_t)forward,
                               .backward = (size_t)backward,
                               .f_ns = c->f_ns,
                               .b_ns = c->b_ns,
                               .p2p_f_ns = c->p2p_f_ns,
                               .p2p_b_ns = c->p2p_b_ns,
                               .need = c->need,
                               .tokens = c->tokens,
                               .freed = c->freed,
                               .token_bytes = c->token_bytes};
}

// Needs never fall and end at the last forward pack; what goes at a backward was held by then.
static void draw_lists(packflow_case *c, sp_prng *prng)
{
    int64_t last = (int64_t)c->job.forward - 1;
    int64_t held = 0;
    for (size_t k = 0; k < c->job.forward; k++) {
        c->tokens[k] = 1 + below(prng, 100);
    }
    size_t seen = 0;
    for (size_t k = 0; k < c->job.backward; k++) {
        bool final = k + 1 == c->job.backward;
        int64_t before = k == 0 ? 0 : c->need[k - 1];
        int64_t step = below(prng, 2) == 0 ? below(prng, 4) : below(prng, last - before + 1);
        c->need[k] = (int32_t)(final || before + step > last ? last : before + step);
        for (; seen <= (size_t)c->need[k]; seen++) {
            held += c->tokens[seen];
        }
        c->freed[k] = final ? held : below(prng, held + 1);
        held -= c->freed[k];
    }
}

// Room for a part of what all packs hold, for some packs of a virtual stage, for one token, for
// none.
static void draw_room(packflow_case *c, sp_prng *prng)
{
    int64_t kind = below(prng, 4);
    c->job.room_bytes = kind > 0 ? c->room_bytes : NULL;
    for (int s = 0; s < PACKFLOW_STAGES; s++) {
        c->token_bytes[s] = 1 + below(prng, 9);
    }
    for (int r = 0; r < PACKFLOW_RANKS; r++) {
        c->room_bytes[r] = kind == 1   ? below(prng, 12000)
                           : kind == 2 ? below(prng, 3000)
                                       : below(prng, 3) * c->token_bytes[r] - 1;
    }
}

// Activations of some packs that are there again while they run back.
static void draw_again(packflow_case *c, sp_prng *prng)
{
    int64_t most = 0;
    int64_t token_bytes = 0;
    for (size_t k = 0; k < c->job.backward; k++) {
        c->again[k] = below(prng, 2) * below(prng, 200);
        most = c->again[k] > most ? c->again[k] : most;
    }
    for (int s = 0; s < PACKFLOW_STAGES; s++) {
        token_bytes = c->token_bytes[s] > token_bytes ? c->token_bytes[s] : token_bytes;
    }
    for (int r = 0; r < PACKFLOW_RANKS; r++) {
        c->again_bytes[r] = most * token_bytes;
    }
    c->job.again = c->again;
    c->job.again_bytes = c->again_bytes;
}

void packflow_case_draw(packflow_case *c, sp_prng *prng, int chunks)
{
    int pp = 1 + (int)below(prng, PACKFLOW_RANKS);
    begin(c, pp, chunks, 1 + below(prng, PACKFLOW_PACKS), 1 + below(prng, PACKFLOW_PACKS));
    draw_lists(c, prng);
    for (size_t i = 0; i < (size_t)PACKFLOW_PACKS * PACKFLOW_STAGES; i++) {
        c->f_ns[i] = 1 + below(prng, 50);
        c->b_ns[i] = 1 + below(prng, 100);
        c->w_ns[i] = 1 + below(prng, 50);
    }
    int64_t slowest = below(prng, 3) * 10;
    for (int k = 0; k < PACKFLOW_PACKS; k++) {
        c->p2p_f_ns[k] = below(prng, slowest + 1);
        c->p2p_b_ns[k] = below(prng, slowest + 1);
    }
    draw_room(c, prng);
    draw_again(c, prng);
    if (below(prng, 2) == 0) {
        forget_again(c);
    }
    packflow_case_split(c, below(prng, 2) == 0);
}

void packflow_case_uniform(packflow_case *c, int pp, int chunks, int packs, int64_t f, int64_t b,
                           int64_t w)
{
    begin(c, pp, chunks, packs, packs);
    for (int i = 0; i < packs * pp * chunks; i++) {
        c->f_ns[i] = f;
        c->b_ns[i] = b;
        c->w_ns[i] = w;
    }
    for (int k = 0; k < packs; k++) {
        c->need[k] = k;
        c->tokens[k] = 10;
        c->freed[k] = 10;
    }
    for (int s = 0; s < PACKFLOW_STAGES; s++) {
        c->token_bytes[s] = 1;
    }
    packflow_case_transfer(c, 0);
    packflow_case_room(c, -1);
    packflow_case_split(c, w > 0);
}

// ---- the replay ----

// Next packs of a virtual stage.
typedef struct lists {
    size_t f, b, w;
} lists;

typedef struct replayed_rank {
    size_t step;
    int64_t free_ns, held;
} replayed_rank;

typedef struct replay {
    const sp_packflow_job *job;
    const packflow_run *run;
    lists at[PACKFLOW_STAGES];
    replayed_rank rank[PACKFLOW_RANKS];
    int64_t f_end[PACKFLOW_STAGES][PACKFLOW_PACKS]; // -1: not yet
    int64_t b_end[PACKFLOW_STAGES][PACKFLOW_PACKS], makespan_ns, most[PACKFLOW_RANKS];
} replay;

// Linear: c * pp + r. A V comes back: r and 2 pp - 1 - r.
static int vstage_of(const sp_packflow_job *job, int r, int chunk)
{
    int pp = job->layout->pp;
    return job->layout->chunks == 2 && chunk == 1 ? 2 * pp - 1 - r : chunk * pp + r;
}

static int64_t transfer_ns(const sp_packflow_job *job, int upper, int64_t p2p_ns)
{
    int pp = job->layout->pp;
    bool turn = job->layout->chunks == 2 && upper == pp - 1;
    return turn || pp == 1 ? 0 : p2p_ns;
}

static bool left_f(const replay *r, int v)
{
    return r->at[v].f < r->job->forward;
}

// Are the virtual stage's own forwards far enough for its next backward?
static bool left_b(const replay *r, int v)
{
    return r->at[v].b < r->job->backward && r->at[v].f > (size_t)r->job->need[r->at[v].b];
}

// When the next forward or backward may begin; -1: not known yet.
static int64_t forward_ready(const replay *r, int v)
{
    size_t k = r->at[v].f;
    if (v == 0) {
        return 0;
    }
    int64_t end_ns = r->f_end[v - 1][k];
    return end_ns < 0 ? -1 : end_ns + transfer_ns(r->job, v - 1, r->job->p2p_f_ns[k]);
}

static int64_t backward_ready(const replay *r, int v)
{
    size_t k = r->at[v].b;
    int64_t own_ns = r->f_end[v][r->job->need[k]];
    if (v + 1 == r->job->layout->pp * r->job->layout->chunks || own_ns < 0) {
        return own_ns;
    }
    int64_t next_ns = r->b_end[v + 1][k];
    if (next_ns < 0) {
        return -1;
    }
    next_ns += transfer_ns(r->job, v, r->job->p2p_b_ns[k]);
    return next_ns > own_ns ? next_ns : own_ns;
}

static const sp_packflow_step *step_at(const replay *r, int k)
{
    return &r->run->steps[(size_t)k * sp_packflow_length(r->job) + r->rank[k].step];
}

static void hold(replay *r, int k, int64_t bytes)
{
    r->rank[k].held += bytes;
    r->most[k] = r->rank[k].held > r->most[k] ? r->rank[k].held : r->most[k];
}

// Runs the next step of a rank if what it waits for is known.
static bool replay_step(replay *r, int k)
{
    const sp_packflow_job *job = r->job;
    replayed_rank *rank = &r->rank[k];
    if (rank->step == sp_packflow_length(job)) {
        return false;
    }
    sp_packflow_step step = *step_at(r, k);
    assert_in_range(step.chunk, 0, job->layout->chunks - 1);
    int v = vstage_of(job, k, step.chunk);
    lists *at = &r->at[v];
    size_t vstages = (size_t)job->layout->pp * (size_t)job->layout->chunks;
    size_t cell = (size_t)step.pack * vstages + (size_t)v;
    bool forward = step.kind == SP_PACKFLOW_F;
    bool backward = step.kind == SP_PACKFLOW_B;
    assert_int_equal(step.pack, forward ? at->f : backward ? at->b : at->w);
    assert_true(forward || backward || (job->w_ns != NULL && at->w < at->b));
    int64_t ready_ns = forward ? forward_ready(r, v) : backward ? backward_ready(r, v) : 0;
    if (ready_ns < 0) {
        return false;
    }
    rank->free_ns =
        (ready_ns > rank->free_ns ? ready_ns : rank->free_ns) + (forward    ? job->f_ns
                                                                 : backward ? job->b_ns
                                                                            : job->w_ns)[cell];
    if (forward) {
        r->f_end[v][at->f++] = rank->free_ns;
        hold(r, k, job->tokens[step.pack] * job->token_bytes[v]);
    } else if (backward) {
        r->b_end[v][at->b++] = rank->free_ns;
        int64_t again = job->again != NULL ? job->again[step.pack] * job->token_bytes[v] : 0;
        hold(r, k, again);
        hold(r, k, -again);
    } else {
        at->w++;
    }
    if (step.kind == (job->w_ns != NULL ? SP_PACKFLOW_W : SP_PACKFLOW_B)) {
        hold(r, k, -job->freed[step.pack] * job->token_bytes[v]);
    }
    r->makespan_ns = rank->free_ns > r->makespan_ns ? rank->free_ns : r->makespan_ns;
    rank->step++;
    return true;
}

void packflow_assert_same_steps(const packflow_case *c, const packflow_run *a,
                                const packflow_run *b)
{
    for (size_t i = 0; i < (size_t)c->layout.pp * sp_packflow_length(&c->job); i++) {
        assert_int_equal(a->steps[i].pack, b->steps[i].pack);
        assert_int_equal(a->steps[i].chunk, b->steps[i].chunk);
        assert_int_equal(a->steps[i].kind, b->steps[i].kind);
    }
}

static void replay_all(replay *r, const sp_packflow_job *job, const packflow_run *run)
{
    int pp = job->layout->pp;
    *r = (replay){.job = job, .run = run};
    memset(r->f_end, -1, sizeof r->f_end);
    memset(r->b_end, -1, sizeof r->b_end);
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0; k < pp; k++) {
            while (replay_step(r, k)) {
                moved = true;
            }
        }
    }
    for (int k = 0; k < pp; k++) {
        assert_int_equal(r->rank[k].step, sp_packflow_length(job));
        assert_int_equal(r->rank[k].held, 0);
    }
    for (int v = 0; v < pp * job->layout->chunks; v++) {
        assert_int_equal(r->at[v].f, job->forward);
        assert_int_equal(r->at[v].b, job->backward);
        assert_int_equal(r->at[v].w, job->w_ns != NULL ? job->backward : 0);
    }
}

#define NEVER INT64_MAX

// What a rank may start at one decision: the earliest backward and forward, of the last chunk among
// equals, and a weight gradient of the last chunk that has one.
typedef struct menu {
    int64_t b_ns, f_ns;
    int b_chunk, f_chunk, w_chunk; // -1: none
    bool crowded; // the last chunk whose forward is ready at once has no room for it
} menu;

// What a rank holds when `forward` packs went forward and `backward` ones are gone on each chunk,
// or more where `r` is further, with one more forward on virtual stage v.
static int64_t held_after(const replay *r, int k, int v, size_t forward, size_t backward)
{
    const sp_packflow_job *job = r->job;
    int64_t bytes = 0;
    for (int chunk = 0; chunk < job->layout->chunks; chunk++) {
        int u = vstage_of(job, k, chunk);
        size_t f = r->at[u].f + (u == v);
        size_t b = r->at[u].b;
        int64_t tokens = 0;
        for (size_t i = 0; i < (f > forward ? f : forward); i++) {
            tokens += job->tokens[i];
        }
        for (size_t j = 0; j < (b > backward ? b : backward); j++) {
            tokens -= job->freed[j];
        }
        bytes += tokens * job->token_bytes[u];
    }
    return bytes;
}

// Room now and, where chunks share it, also for what the backwards need that come before the first
// reader of this forward.
static bool has_room(const replay *r, int k, int v)
{
    const sp_packflow_job *job = r->job;
    size_t pack = r->at[v].f;
    if (job->room_bytes == NULL) {
        return true;
    }
    int64_t most = job->room_bytes[k] - (job->again_bytes != NULL ? job->again_bytes[k] : 0);
    int64_t held = r->rank[k].held;
    bool room = held == 0 || held + job->tokens[pack] * job->token_bytes[v] <= most;
    for (size_t j = r->at[vstage_of(job, k, 0)].b; job->layout->chunks > 1 && j < job->backward;
         j++) {
        size_t need = (size_t)job->need[j];
        room = room && (need >= pack || held_after(r, k, v, need + 1, j) <= most);
    }
    return room;
}

// What the rank's next backward of the first chunk reads, the last one to run of its pack.
static bool is_needed(const replay *r, int k, int v)
{
    size_t next = r->at[vstage_of(r->job, k, 0)].b;
    return next < r->job->backward && r->at[v].f <= (size_t)r->job->need[next];
}

static int64_t start_ns(int64_t ready_ns, int64_t free_ns)
{
    assert_true(ready_ns >= 0);
    return ready_ns > free_ns ? ready_ns : free_ns;
}

static menu menu_of(const replay *r, int k)
{
    menu m = {NEVER, NEVER, -1, -1, -1, false};
    int64_t free_ns = r->rank[k].free_ns;
    bool ready_at_once = false;
    for (int chunk = r->job->layout->chunks - 1; chunk >= 0; chunk--) {
        int v = vstage_of(r->job, k, chunk);
        if (left_b(r, v) && start_ns(backward_ready(r, v), free_ns) < m.b_ns) {
            m.b_ns = start_ns(backward_ready(r, v), free_ns);
            m.b_chunk = chunk;
        }
        int64_t f_ns = left_f(r, v) ? start_ns(forward_ready(r, v), free_ns) : NEVER;
        bool fits = left_f(r, v) && has_room(r, k, v);
        if (f_ns < m.f_ns && (fits || is_needed(r, k, v))) {
            m.f_ns = f_ns;
            m.f_chunk = chunk;
        }
        if (f_ns == free_ns && !ready_at_once) {
            ready_at_once = true;
            m.crowded = !fits;
        }
        if (r->job->w_ns != NULL && m.w_chunk < 0 && r->at[v].w < r->at[v].b) {
            m.w_chunk = chunk;
        }
    }
    return m;
}

// With all times known: of a forward and a backward what is ready first, of both at once the other
// kind than the last; a weight gradient where no backward is ready at once and no forward, or none
// that has room. Times are positive, so that nothing started later is ready at a decision.
static void assert_rules(const replay *done, int k)
{
    static replay r;
    r = *done;
    r.rank[k] = (replayed_rank){0};
    for (int chunk = 0; chunk < r.job->layout->chunks; chunk++) {
        r.at[vstage_of(r.job, k, chunk)] = (lists){0};
    }
    sp_packflow_kind last = SP_PACKFLOW_F;
    for (size_t i = 0; i < sp_packflow_length(r.job); i++) {
        menu m = menu_of(&r, k);
        int64_t free_ns = r.rank[k].free_ns;
        sp_packflow_kind kind = m.b_ns < m.f_ns ? SP_PACKFLOW_B : SP_PACKFLOW_F;
        if (m.b_ns == m.f_ns && last != SP_PACKFLOW_B) {
            kind = SP_PACKFLOW_B;
        }
        if (m.w_chunk >= 0 && m.b_ns > free_ns && (m.f_ns > free_ns || m.crowded)) {
            kind = SP_PACKFLOW_W;
        }
        last = kind == SP_PACKFLOW_W ? last : kind;
        const sp_packflow_step *step = step_at(&r, k);
        assert_int_equal(step->kind, kind);
        assert_int_equal(step->chunk, kind == SP_PACKFLOW_F   ? m.f_chunk
                                      : kind == SP_PACKFLOW_B ? m.b_chunk
                                                              : m.w_chunk);
        assert_true(replay_step(&r, k));
    }
}

// The most by which a rank exceeds its room that runs one backward after the other on all of its
// chunks, each after the forwards that it needs: no order holds less where that is the most.
// `repeats`: with what is there again of each.
static int64_t serial_lack(const sp_packflow_job *job, bool repeats)
{
    static replay none;
    none = (replay){.job = job};
    int64_t most = 0;
    for (int k = 0; job->room_bytes != NULL && k < job->layout->pp; k++) {
        int64_t token_bytes = job->token_bytes[vstage_of(job, k, job->layout->chunks - 1)];
        for (size_t j = 0; j < job->backward; j++) {
            int64_t again = repeats && job->again != NULL ? job->again[j] * token_bytes : 0;
            int64_t held = held_after(&none, k, -1, (size_t)job->need[j] + 1, j);
            int64_t lack = held + again - job->room_bytes[k];
            most = lack > most ? lack : most;
        }
    }
    return most;
}

// Several chunks run the backwards of packs with the same need in turns, so that more or less is
// held as one is there again.
static void assert_least_lack(const sp_packflow_job *job, int64_t lacking)
{
    int64_t again = 0;
    for (int k = 0; job->again_bytes != NULL && k < job->layout->pp; k++) {
        again = job->again_bytes[k] > again ? job->again_bytes[k] : again;
    }
    if (job->layout->chunks == 1 || again == 0) {
        assert_int_equal(lacking, serial_lack(job, true));
    } else {
        int64_t least = serial_lack(job, false);
        assert_in_range(lacking, least, least + again);
    }
}

void packflow_run_checked(const packflow_case *c, packflow_run *run)
{
    static replay r;
    const sp_packflow_job *job = &c->job;
    sp_packflow_outcome result;
    must_succeed(sp_packflow_run(job, run->steps, &result, ERR));
    replay_all(&r, job, run);
    assert_int_equal(r.makespan_ns, result.makespan_ns);
    int64_t lacking = 0;
    for (int k = 0; k < job->layout->pp; k++) {
        int64_t lack = job->room_bytes != NULL ? r.most[k] - job->room_bytes[k] : 0;
        lacking = lack > lacking ? lack : lacking;
        run->most_bytes[k] = r.most[k];
        assert_rules(&r, k);
    }
    assert_int_equal(lacking, result.lacking_bytes);
    assert_least_lack(job, lacking);
    sp_packflow_outcome times_only;
    must_succeed(sp_packflow_run(job, NULL, &times_only, ERR));
    assert_int_equal(times_only.makespan_ns, result.makespan_ns);
    assert_int_equal(times_only.lacking_bytes, result.lacking_bytes);
    run->makespan_ns = result.makespan_ns;
    run->lacking_bytes = result.lacking_bytes;
}
