#include "sim/schedule/v_order.h"

// What the rules differ in, all of it at the end of the batch or against small delays of chunk 1,
// on which the other ranks wait. No one setting is best for all costs.
typedef struct rule {
    int wait_half; // leave a rank idle when F of chunk 1 arrives within half of another operation
    int lead;      // without F of chunk 0 left, I of chunk 0 goes first while more than (p-r)/lead
                   // of them are behind chunk 1
    int last_f;    // for so many last F of chunk 1 nothing else may be in the way
    int last_i;    // for so many last I of each chunk, likewise
} rule;

static const rule rules[SP_I_V_RULES] = {{0, 2, 1, 0}, {1, 2, 1, 0}, {1, 1, 0, 0}, {1, 1, 0, 2}};

enum { NOT_YET = -1 };

typedef struct simulation {
    sp_i_v_order *order;
    const sp_i_v_setting *setting;
    const rule *rule;
    int64_t *arrival_ns[2];  // of F and I, [2 * pp * m]; NOT_YET while the source has not started
    int *done[SP_I_V_KINDS]; // [2 * pp]
    int64_t *held;           // [pp]
    int64_t *free_ns;        // [pp]
    int64_t *next_ns;        // [pp]: when the rank looks again; INT64_MAX: when woken
} simulation;

// What one rank sees when it chooses. Chunk numbers index the pairs.
typedef struct view {
    int rank;
    int vstage[2];
    int64_t now_ns;
    int64_t ready_ns[2][2]; // of F and I by chunk; INT64_MAX: unknown or not allowed
    bool pending_w[2];
    int left[2][2];      // F and I still to run, by chunk
    bool full;           // less than a chunk's memory above the reserve is free
    bool cooldown;       // no F of chunk 0 left
    int64_t critical_ns; // next arrival that nothing may delay
} view;

typedef struct choice {
    int kind, chunk; // kind SP_I_V_KINDS: none
} choice;

static const choice nothing = {SP_I_V_KINDS, 0};

static int64_t arrival(const simulation *sim, int kind, int vstage)
{
    int next = sim->done[kind][vstage];
    if (next == sim->setting->microbatches ||
        (kind == SP_I_V_I && next == sim->done[SP_I_V_F][vstage])) {
        return INT64_MAX;
    }
    int64_t at =
        sim->arrival_ns[kind][(size_t)vstage * (size_t)sim->setting->microbatches + (size_t)next];
    return at == NOT_YET ? INT64_MAX : at;
}

// Memory of the chunk: forwards whose W has not run, less what I released of them.
static int64_t held_by(const simulation *sim, int vstage)
{
    int64_t level = 0;
    for (int kind = 0; kind < SP_I_V_KINDS; kind++) {
        level += sim->setting->unit[kind] * sim->done[kind][vstage];
    }
    return level;
}

// The last place is kept for chunk 1, so that the oldest micro-batch can always go on. Chunk 0 has
// at most 2p-1-r places, what the fixed order takes before the first backward; with more the
// early ranks run ahead of what the last one can take.
static bool f_allowed(const simulation *sim, const view *v, int chunk)
{
    int64_t cap = sim->setting->cap;
    int64_t with = sim->held[v->rank] + SP_I_V_UNIT;
    if (chunk == 1) {
        return with <= cap;
    }
    int64_t places = 2 * (int64_t)sim->setting->pp - 1 - v->rank;
    return with <= cap - SP_I_V_UNIT &&
           held_by(sim, v->vstage[0]) + SP_I_V_UNIT <= places * SP_I_V_UNIT;
}

static bool is_critical(const simulation *sim, const view *v, int kind, int chunk)
{
    if (kind == SP_I_V_F) {
        return chunk == 1 && v->left[SP_I_V_F][1] <= sim->rule->last_f;
    }
    return v->cooldown && v->left[SP_I_V_I][chunk] <= sim->rule->last_i;
}

static view look(const simulation *sim, int rank)
{
    const sp_i_v_setting *s = sim->setting;
    view v = {.rank = rank,
              .vstage = {rank, 2 * s->pp - 1 - rank},
              .now_ns = sim->next_ns[rank],
              .full = sim->held[rank] > s->cap - 2 * (int64_t)SP_I_V_UNIT,
              .critical_ns = INT64_MAX};
    for (int c = 0; c < 2; c++) {
        for (int kind = SP_I_V_F; kind <= SP_I_V_I; kind++) {
            v.left[kind][c] = s->microbatches - sim->done[kind][v.vstage[c]];
            v.ready_ns[kind][c] = arrival(sim, kind, v.vstage[c]);
        }
        if (!f_allowed(sim, &v, c)) {
            v.ready_ns[SP_I_V_F][c] = INT64_MAX;
        }
        v.pending_w[c] = sim->done[SP_I_V_W][v.vstage[c]] < sim->done[SP_I_V_I][v.vstage[c]];
    }
    v.cooldown = v.left[SP_I_V_F][0] == 0;
    for (int kind = SP_I_V_F; kind <= SP_I_V_I; kind++) {
        for (int c = 0; c < 2; c++) {
            int64_t at = v.ready_ns[kind][c];
            if (at > v.now_ns && at < v.critical_ns && is_critical(sim, &v, kind, c)) {
                v.critical_ns = at;
            }
        }
    }
    return v;
}

static bool ready(const view *v, int kind, int chunk)
{
    return v->ready_ns[kind][chunk] <= v->now_ns;
}

// Before the first backward: 2(p-r)-1 forwards of chunk 0, then one of each in turn (arXiv
// 2401.10241v1, section 6). False where that is over.
static bool choose_warmup(const simulation *sim, const view *v, choice *choice_out)
{
    int run_f0 = sim->done[SP_I_V_F][v->vstage[0]];
    int run_f1 = sim->done[SP_I_V_F][v->vstage[1]];
    if (sim->done[SP_I_V_I][v->vstage[1]] > 0 || v->cooldown ||
        sim->held[v->rank] + SP_I_V_UNIT > sim->setting->cap) {
        return false;
    }
    int chunk = run_f0 < 2 * (sim->setting->pp - v->rank) - 1 + run_f1 ? 0 : 1;
    if (chunk == 1 && ready(v, SP_I_V_I, 1)) {
        return false;
    }
    *choice_out = ready(v, SP_I_V_F, chunk) ? (choice){SP_I_V_F, chunk} : nothing;
    return true;
}

static int first_chunk_of_i(const simulation *sim, const view *v)
{
    int behind = v->left[SP_I_V_I][0] - v->left[SP_I_V_I][1];
    return !v->cooldown || behind > (sim->setting->pp - v->rank) / sim->rule->lead ? 0 : 1;
}

static choice choose_w(const view *v)
{
    // Chunk 1 first: its inputs are the younger, and chunk 0's W can fill later gaps.
    return v->pending_w[1] ? (choice){SP_I_V_W, 1} : (choice){SP_I_V_W, 0};
}

static choice fill_gap(const simulation *sim, const view *v)
{
    choice w = choose_w(v);
    int64_t duration_ns = sim->setting->duration_ns[SP_I_V_W][v->vstage[w.chunk]];
    int64_t next_ns = v->ready_ns[SP_I_V_F][1];
    for (int c = 0; c < 2; c++) {
        int64_t at = v->ready_ns[SP_I_V_I][c];
        next_ns = at > v->now_ns && at < next_ns ? at : next_ns;
    }
    // In the cool-down a W may reach into the next operation by three tenths: else gaps a little
    // too short would all stay empty.
    int64_t needed_ns = v->cooldown ? duration_ns * 7 / 10 : duration_ns;
    bool delays = v->critical_ns != INT64_MAX && v->critical_ns < v->now_ns + duration_ns;
    return delays || (next_ns != INT64_MAX && next_ns < v->now_ns + needed_ns) ? nothing : w;
}

static choice choose(const simulation *sim, const view *v)
{
    choice picked;
    if (choose_warmup(sim, v, &picked)) {
        return picked;
    }
    bool has_w = v->pending_w[0] || v->pending_w[1];
    bool f_now = ready(v, SP_I_V_F, 0) || ready(v, SP_I_V_F, 1);
    if (has_w && v->full && !f_now && v->left[SP_I_V_F][0] + v->left[SP_I_V_F][1] > 0) {
        return choose_w(v);
    }
    int first_i = first_chunk_of_i(sim, v);
    choice preferred[4] = {
        {SP_I_V_F, 1}, {SP_I_V_F, 0}, {SP_I_V_I, first_i}, {SP_I_V_I, 1 - first_i}};
    for (int k = 0; k < 4; k++) {
        int kind = preferred[k].kind;
        int chunk = preferred[k].chunk;
        int64_t duration_ns = sim->setting->duration_ns[kind][v->vstage[chunk]];
        bool first = kind == SP_I_V_F && chunk == 1;
        bool urgent = first || is_critical(sim, v, kind, chunk);
        if (!ready(v, kind, chunk) || (!urgent && v->critical_ns < v->now_ns + duration_ns)) {
            continue;
        }
        int64_t patience_ns = sim->rule->wait_half ? duration_ns / 2 : 0;
        if (!first && v->ready_ns[SP_I_V_F][1] < v->now_ns + patience_ns) {
            return nothing;
        }
        return preferred[k];
    }
    return has_w ? fill_gap(sim, v) : nothing;
}

// The rank has something to look at earlier than it thought.
static void wake(simulation *sim, int rank, int64_t now_ns)
{
    int64_t at = now_ns > sim->free_ns[rank] ? now_ns : sim->free_ns[rank];
    if (at < sim->next_ns[rank]) {
        sim->next_ns[rank] = at;
    }
}

// Announces the arrival of a micro-batch's F or I at a virtual stage.
static void announce(simulation *sim, int kind, int from, int to, int microbatch, int64_t end_ns)
{
    const sp_i_v_setting *s = sim->setting;
    sim->arrival_ns[kind][(size_t)to * (size_t)s->microbatches + (size_t)microbatch] =
        end_ns + sp_i_v_lag_ns(s, from, to);
}

static void run(simulation *sim, const view *v, choice picked)
{
    const sp_i_v_setting *s = sim->setting;
    int vstage = v->vstage[picked.chunk];
    int microbatch = sim->done[picked.kind][vstage]++;
    int64_t end_ns = v->now_ns + s->duration_ns[picked.kind][vstage];
    sp_i_v_order_append(sim->order, picked.kind, vstage, microbatch);
    sim->held[v->rank] += s->unit[picked.kind];
    sim->free_ns[v->rank] = end_ns;
    sim->next_ns[v->rank] = end_ns;
    int to = picked.kind == SP_I_V_F ? vstage + 1 : vstage - 1;
    if (picked.kind == SP_I_V_W || to < 0) {
        return;
    }
    if (to == 2 * s->pp) {
        announce(sim, SP_I_V_I, vstage, vstage, microbatch, end_ns);
        return;
    }
    announce(sim, picked.kind, vstage, to, microbatch, end_ns);
    wake(sim, to < s->pp ? to : 2 * s->pp - 1 - to, v->now_ns);
}

static void wait_for_arrival(simulation *sim, const view *v)
{
    int64_t next_ns = INT64_MAX;
    for (int kind = SP_I_V_F; kind <= SP_I_V_I; kind++) {
        for (int c = 0; c < 2; c++) {
            int64_t at = v->ready_ns[kind][c];
            next_ns = at > v->now_ns && at < next_ns ? at : next_ns;
        }
    }
    sim->next_ns[v->rank] = next_ns;
}

static int earliest_rank(const simulation *sim)
{
    int rank = 0;
    for (int r = 1; r < sim->setting->pp; r++) {
        rank = sim->next_ns[r] < sim->next_ns[rank] ? r : rank;
    }
    return rank;
}

static simulation simulation_new(sp_arena *work, int rule_index, sp_i_v_order *order)
{
    const sp_i_v_setting *s = order->setting;
    size_t pp = (size_t)s->pp;
    size_t arrivals = 2 * pp * (size_t)s->microbatches;
    simulation sim = {.order = order,
                      .setting = s,
                      .rule = &rules[rule_index],
                      .held = sp_arena_take(work, pp, sizeof *sim.held),
                      .free_ns = sp_arena_take(work, pp, sizeof *sim.free_ns),
                      .next_ns = sp_arena_take(work, pp, sizeof *sim.next_ns)};
    for (int kind = 0; kind < SP_I_V_KINDS; kind++) {
        sim.done[kind] = sp_arena_take(work, 2 * pp, sizeof *sim.done[kind]);
    }
    for (int kind = SP_I_V_F; kind <= SP_I_V_I; kind++) {
        sim.arrival_ns[kind] = sp_arena_take(work, arrivals, sizeof *sim.arrival_ns[kind]);
        for (size_t k = 0; k < arrivals; k++) {
            // The first virtual stage has its inputs from the start.
            sim.arrival_ns[kind][k] = kind == SP_I_V_F && k < (size_t)s->microbatches ? 0 : NOT_YET;
        }
    }
    return sim;
}

void sp_i_v_greedy(sp_arena *work, int rule_index, sp_i_v_order *order)
{
    simulation sim = simulation_new(work, rule_index, order);
    size_t left = (size_t)order->setting->pp * order->per_rank;
    while (left > 0) {
        int rank = earliest_rank(&sim);
        SP_ASSERT(sim.next_ns[rank] != INT64_MAX);
        view v = look(&sim, rank);
        choice picked = choose(&sim, &v);
        if (picked.kind == SP_I_V_KINDS) {
            wait_for_arrival(&sim, &v);
        } else {
            run(&sim, &v, picked);
            left--;
        }
    }
}
