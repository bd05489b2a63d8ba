// Lower bounds against every packing and every order of tiny cases, worked out by an own search,
// and against many simulated packings of larger ones.
#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/prng.h"
#include "sim/schedule/packflow.h"
#include "solver/bounds_private.h"
#include "tests/support/test_main.h"

// ---- every packing and every order ----

enum { UNITS = 4, STAGES = 3, KINDS = 3, NONE = -1 };

enum { F, B, W }; // W only where the backward is split; B is then the input gradient

// A sample of n tokens is n slices of one token.
typedef struct tiny {
    int64_t samples[UNITS];
    int count;
    int units;
    int sample_of[UNITS], place_of[UNITS];
    const sp_bound_costs *costs;
} tiny;

// Units to packs, both passes.
typedef struct grouping {
    int pack_of[2][UNITS];
    int packs[2];
} grouping;

typedef struct search {
    const tiny *t;
    const grouping *g;
    double time_s[KINDS][UNITS][STAGES];
    bool before[2][UNITS][UNITS];       // pack a before pack b on a stage
    bool reads[UNITS][UNITS];           // backward pack b reads forward pack a
    double end_s[KINDS][UNITS][STAGES]; // negative: not yet
    double free_s[STAGES];
    double left_s[STAGES]; // work
    int left;
    double best_s;
} search;

static double slice_s(double token_s, double square_s, int place)
{
    return token_s + square_s * (2.0 * place + 1.0);
}

static int tokens_in(const tiny *t, const int *pack_of, int k)
{
    int tokens = 0;
    for (int u = 0; u < t->units; u++) {
        tokens += pack_of[u] == k;
    }
    return tokens;
}

// Of a pack of this size, what it takes at least.
static double fixed_s(const sp_bound_costs *c, double tokens, bool backward)
{
    for (int i = 0; i < c->sizes; i++) {
        if (tokens <= c->size[i].tokens) {
            return backward ? c->size[i].b_pack_s : c->size[i].f_pack_s;
        }
    }
    return backward ? c->b_pack_s : c->f_pack_s;
}

static void set_times(search *s, int stage)
{
    const tiny *t = s->t;
    const sp_bound_costs *c = t->costs;
    double last = stage == c->stages - 1;
    for (int k = 0; k < s->g->packs[F]; k++) {
        s->time_s[F][k][stage] = fixed_s(c, tokens_in(t, s->g->pack_of[F], k), false);
    }
    for (int k = 0; k < s->g->packs[B]; k++) {
        double b_s = fixed_s(c, tokens_in(t, s->g->pack_of[B], k), true);
        double w_s = c->split ? c->b_pack_s - c->i_pack_s : 0.0;
        s->time_s[B][k][stage] = b_s - w_s;
        s->time_s[W][k][stage] = w_s;
    }
    for (int u = 0; u < t->units; u++) {
        int place = t->place_of[u];
        double f_s = slice_s(c->f_token_s, c->f_square_s, place) + last * c->f_last_token_s;
        double b_s = slice_s(c->b_token_s, c->b_square_s, place) + last * c->b_last_token_s;
        double i_s = c->split ? slice_s(c->i_token_s, c->i_square_s, place) : b_s;
        s->time_s[F][s->g->pack_of[F][u]][stage] += f_s;
        s->time_s[B][s->g->pack_of[B][u]][stage] += i_s;
        s->time_s[W][s->g->pack_of[B][u]][stage] += b_s - i_s;
    }
}

static void search_init(search *s, const tiny *t, const grouping *g, double best_s)
{
    const sp_bound_costs *c = t->costs;
    *s = (search){.t = t, .g = g, .best_s = best_s};
    for (int stage = 0; stage < c->stages; stage++) {
        set_times(s, stage);
    }
    for (int u = 0; u < t->units; u++) {
        int k = g->pack_of[F][u];
        int j = g->pack_of[B][u];
        s->reads[j][k] = true;
        for (int v = u + 1; v < t->units; v++) {
            if (t->sample_of[u] == t->sample_of[v]) {
                s->before[F][k][g->pack_of[F][v]] = true;
                s->before[B][g->pack_of[B][v]][j] = true;
            }
        }
    }
    int kinds = c->split ? 3 : 2;
    for (int kind = 0; kind < kinds; kind++) {
        for (int k = 0; k < g->packs[kind == F ? F : B]; k++) {
            for (int stage = 0; stage < c->stages; stage++) {
                s->end_s[kind][k][stage] = -1.0;
                s->left_s[stage] += s->time_s[kind][k][stage];
                s->left++;
            }
        }
    }
}

// When an action may start, the stage apart; negative: something it needs has no time yet.
static double ready_s(const search *s, int kind, int k, int stage)
{
    int stages = s->t->costs->stages;
    if (kind == W) {
        return s->end_s[B][k][stage];
    }
    double ready = 0.0;
    for (int other = 0; other < s->g->packs[kind]; other++) {
        if (other != k && s->before[kind][other][k]) {
            double end = s->end_s[kind][other][stage];
            if (end < 0.0) {
                return NONE;
            }
            ready = fmax(ready, end);
        }
    }
    for (int f = 0; kind == B && f < s->g->packs[F]; f++) {
        if (s->reads[k][f]) {
            double end = s->end_s[F][f][stage];
            if (end < 0.0) {
                return NONE;
            }
            ready = fmax(ready, end);
        }
    }
    int from = kind == F ? stage - 1 : stage + 1;
    if (from >= 0 && from < stages) {
        double end = s->end_s[kind][k][from];
        return end < 0.0 ? NONE : fmax(ready, end + s->t->costs->p2p_s);
    }
    return ready;
}

// All active schedules (Giffler, Thompson 1960), among which one is the fastest: of the actions
// that could start on the stage of the one that would end first, before that end, each is tried.
static void try_all(search *s)
{
    const sp_bound_costs *c = s->t->costs;
    double total = 0.0;
    for (int stage = 0; stage < c->stages; stage++) {
        total = fmax(total, s->free_s[stage] + s->left_s[stage]);
    }
    if (total >= s->best_s) {
        return;
    }
    if (s->left == 0) {
        s->best_s = total;
        return;
    }
    double start_s[KINDS][UNITS][STAGES];
    double first_end_s = HUGE_VAL;
    int at = NONE;
    for (int kind = 0; kind < (c->split ? 3 : 2); kind++) {
        for (int k = 0; k < s->g->packs[kind == F ? F : B]; k++) {
            for (int stage = 0; stage < c->stages; stage++) {
                double ready = s->end_s[kind][k][stage] >= 0.0 ? NONE : ready_s(s, kind, k, stage);
                start_s[kind][k][stage] = ready < 0.0 ? NONE : fmax(ready, s->free_s[stage]);
                double end_s = start_s[kind][k][stage] + s->time_s[kind][k][stage];
                if (ready >= 0.0 && end_s < first_end_s) {
                    first_end_s = end_s;
                    at = stage;
                }
            }
        }
    }
    if (at == NONE) {
        return; // packs that wait for each other
    }
    double free_s = s->free_s[at];
    double left_s = s->left_s[at];
    for (int kind = 0; kind < (c->split ? 3 : 2); kind++) {
        for (int k = 0; k < s->g->packs[kind == F ? F : B]; k++) {
            double start = start_s[kind][k][at];
            if (start < 0.0 || start >= first_end_s) {
                continue;
            }
            double end = start + s->time_s[kind][k][at];
            s->end_s[kind][k][at] = end;
            s->free_s[at] = end;
            s->left_s[at] = left_s - s->time_s[kind][k][at];
            s->left--;
            try_all(s);
            s->left++;
            s->left_s[at] = left_s;
            s->free_s[at] = free_s;
            s->end_s[kind][k][at] = NONE;
        }
    }
}

// The next partition of the units (restricted growth strings); false after the last.
static bool next_partition(int *pack_of, int units, int *packs)
{
    for (int u = units - 1; u > 0; u--) {
        int most = 0;
        for (int v = 0; v < u; v++) {
            most = pack_of[v] > most ? pack_of[v] : most;
        }
        if (pack_of[u] <= most) {
            pack_of[u]++;
            for (int v = u + 1; v < units; v++) {
                pack_of[v] = 0;
            }
            *packs = 0;
            for (int v = 0; v < units; v++) {
                *packs = pack_of[v] + 1 > *packs ? pack_of[v] + 1 : *packs;
            }
            return true;
        }
    }
    return false;
}

static bool is_whole(const tiny *t, const int *pack_of)
{
    for (int u = 1; u < t->units; u++) {
        if (t->sample_of[u] == t->sample_of[u - 1] && pack_of[u] != pack_of[u - 1]) {
            return false;
        }
    }
    return true;
}

static tiny tiny_of(const sp_bound_costs *costs, const int64_t *samples, int count)
{
    tiny t = {.count = count, .costs = costs};
    for (int i = 0; i < count; i++) {
        t.samples[i] = samples[i];
        for (int place = 0; place < samples[i]; place++) {
            t.sample_of[t.units] = i;
            t.place_of[t.units++] = place;
        }
    }
    return t;
}

// The least makespan of one rank.
static double optimum_s(const tiny *t, bool whole)
{
    if (t->units == 0) {
        return 0.0;
    }
    double best_s = HUGE_VAL;
    grouping g = {.packs = {1, 1}};
    do {
        memset(g.pack_of[B], 0, sizeof g.pack_of[B]);
        g.packs[B] = 1;
        do {
            if (!whole || (is_whole(t, g.pack_of[F]) && is_whole(t, g.pack_of[B]))) {
                search s;
                search_init(&s, t, &g, best_s);
                try_all(&s);
                best_s = s.best_s;
            }
        } while (next_partition(g.pack_of[B], t->units, &g.packs[B]));
    } while (next_partition(g.pack_of[F], t->units, &g.packs[F]));
    return best_s;
}

// The least of the longest rank's over all ways to spread the samples over two.
static double optimum_of_two_s(const tiny *t, bool whole)
{
    double best_s = HUGE_VAL;
    for (unsigned half = 0; half < 1u << (t->count - 1); half++) {
        int64_t parts[2][UNITS];
        int counts[2] = {0, 0};
        for (int i = 0; i < t->count; i++) {
            int rank = (int)(half >> i & 1u);
            parts[rank][counts[rank]++] = t->samples[i];
        }
        tiny a = tiny_of(t->costs, parts[0], counts[0]);
        tiny b = tiny_of(t->costs, parts[1], counts[1]);
        best_s = fmin(best_s, fmax(optimum_s(&a, whole), optimum_s(&b, whole)));
    }
    return best_s;
}

static double growth_s(const sp_bound_costs *costs, const sp_bound_batch *batch)
{
    double bound_s = 0.0;
    sp_error err = {0};
    assert_int_equal(sp_bound_growth_s(costs, batch, &bound_s, &err), SP_OK);
    return bound_s;
}

enum { WORK, SIMPLE, GROWTH, FLOW_SHOP, ANY_SLICED, ALL_WHOLE, BOUNDS };

static const char *const names[BOUNDS] = {"work",      "simple",         "growth",
                                          "flow shop", "best of sliced", "whole samples"};

// How near the bounds come to the optima, in sums over cases.
typedef struct nearness {
    double share[BOUNDS], least[BOUNDS];
    int cases, reached[BOUNDS];
} nearness;

static void note(nearness *n, int bound, double bound_s, double optimum)
{
    if (bound_s > optimum * (1.0 + 1e-12)) {
        fail_msg("%s: bound %.6f above the optimum %.6f", names[bound], bound_s, optimum);
    }
    double share = bound_s / optimum;
    n->share[bound] += share;
    n->least[bound] = n->cases == 0 || share < n->least[bound] ? share : n->least[bound];
    n->reached[bound] += share > 1.0 - 1e-9;
}

static void check_tiny(const tiny *t, int ranks, nearness *n)
{
    sp_bound_batch batch = {.tokens = t->samples, .count = (size_t)t->count, .ranks = ranks};
    double sliced_s = ranks == 1 ? optimum_s(t, false) : optimum_of_two_s(t, false);
    double whole_s = ranks == 1 ? optimum_s(t, true) : optimum_of_two_s(t, true);
    double of[BOUNDS] = {sp_bound_work_s(t->costs, &batch), sp_bound_simple_s(t->costs, &batch),
                         growth_s(t->costs, &batch), sp_bound_flow_shop_s(t->costs, &batch)};
    of[ANY_SLICED] = fmax(of[GROWTH], of[FLOW_SHOP]);
    of[ALL_WHOLE] = fmax(of[ANY_SLICED], sp_bound_whole_s(t->costs, &batch));
    for (int bound = 0; bound < BOUNDS; bound++) {
        note(n, bound, of[bound], bound == ALL_WHOLE ? whole_s : sliced_s);
    }
    n->cases++;
    // Shared samples leave less to prove.
    sp_bound_batch merged = batch;
    merged.merged = true;
    assert_true(growth_s(t->costs, &merged) <= growth_s(t->costs, &batch) * (1.0 + 1e-3));
}

static double one_of(sp_prng *prng, double a, double b, double c)
{
    uint64_t at = sp_prng_below(prng, 3);
    return at == 0 ? a : at == 1 ? b : c;
}

static sp_bound_costs random_costs(sp_prng *prng, bool split)
{
    sp_bound_costs c = {.stages = 1 + (int)sp_prng_below(prng, STAGES), .split = split};
    c.f_token_s = one_of(prng, 1.0, 4.0, 10.0);
    c.f_square_s = one_of(prng, 0.0, 1.0, 3.0);
    c.i_token_s = c.f_token_s * one_of(prng, 0.5, 1.0, 2.0);
    c.i_square_s = c.f_square_s * one_of(prng, 1.0, 2.0, 3.0);
    c.b_token_s = c.i_token_s + (split ? c.f_token_s : 0.0);
    c.b_square_s = c.i_square_s;
    c.f_pack_s = one_of(prng, 0.0, 1.0, 5.0);
    c.i_pack_s = one_of(prng, 0.0, 2.0, 7.0);
    c.b_pack_s = c.i_pack_s + (split ? one_of(prng, 0.0, 1.0, 2.0) : 0.0);
    c.p2p_s = one_of(prng, 0.0, 0.0, 2.0);
    c.f_last_token_s = one_of(prng, 0.0, 0.0, 2.0);
    c.b_last_token_s = one_of(prng, 0.0, 1.0, 5.0);
    return c;
}

// Packs of one token cost more, those of two less more.
static void add_sizes(sp_prng *prng, sp_bound_costs *c)
{
    double f_s = one_of(prng, 1.0, 3.0, 8.0);
    double b_s = one_of(prng, 1.0, 3.0, 8.0);
    double two = one_of(prng, 0.0, 0.3, 1.0);
    c->size[0] = (sp_bound_size){1.0, c->f_pack_s + f_s, c->b_pack_s + b_s};
    c->size[1] = (sp_bound_size){2.0, c->f_pack_s + two * f_s, c->b_pack_s + two * b_s};
    c->sizes = 2;
}

static void check_many(bool split, int ranks, int rounds, int most_units, bool sized)
{
    static const int64_t sets[][UNITS] = {{1},    {2},       {3},       {4},
                                          {1, 1}, {2, 1},    {1, 2},    {3, 1},
                                          {2, 2}, {1, 1, 1}, {2, 1, 1}, {1, 1, 1, 1}};
    sp_prng prng;
    sp_prng_seed(&prng, 5);
    nearness n = {0};
    for (int round = 0; round < rounds; round++) {
        sp_bound_costs costs = random_costs(&prng, split);
        if (sized) {
            add_sizes(&prng, &costs);
        }
        for (size_t set = 0; set < sizeof sets / sizeof sets[0]; set++) {
            int count = 0;
            int64_t units = 0;
            while (count < UNITS && sets[set][count] > 0) {
                units += sets[set][count++];
            }
            if (units <= most_units && count >= ranks) {
                tiny t = tiny_of(&costs, sets[set], count);
                check_tiny(&t, ranks, &n);
            }
        }
    }
    for (int bound = 0; bound < BOUNDS; bound++) {
        print_message("%-15s of the optimum: mean %.3f, least %.3f, reached in %d of %d\n",
                      names[bound], n.share[bound] / n.cases, n.least[bound], n.reached[bound],
                      n.cases);
    }
}

static void no_order_of_one_rank_is_faster(void **state)
{
    (void)state;
    check_many(false, 1, 20, 4, false);
}

static void no_split_order_is_faster(void **state)
{
    (void)state;
    check_many(true, 1, 20, 3, false);
}

static void no_spread_over_two_ranks_is_faster(void **state)
{
    (void)state;
    check_many(false, 2, 20, 4, false);
    check_many(true, 2, 20, 3, false);
}

static void no_order_of_dear_small_packs_is_faster(void **state)
{
    (void)state;
    check_many(false, 1, 20, 4, true);
    check_many(true, 1, 20, 3, true);
}

// ---- simulated packings ----

enum { RANDOM_SAMPLES = 24, RANDOM_PACKS = 400 };

// Costs in whole nanoseconds, so that the simulation adds nothing by rounding.
typedef struct drawn {
    sp_bound_costs costs;
    int64_t tokens[RANDOM_SAMPLES];
    int count;
} drawn;

static int64_t between(sp_prng *prng, int64_t least, int64_t most)
{
    return least + (int64_t)sp_prng_below(prng, (uint64_t)(most - least + 1));
}

static drawn draw(sp_prng *prng)
{
    drawn d = {.count = (int)between(prng, 1, RANDOM_SAMPLES)};
    sp_bound_costs *c = &d.costs;
    c->stages = (int)between(prng, 1, 8);
    c->split = sp_prng_below(prng, 2) == 0;
    c->f_token_s = (double)between(prng, 100, 500);
    c->f_square_s = (double)between(prng, 0, 1);
    c->i_token_s = c->f_token_s * (double)between(prng, 1, 2);
    c->i_square_s = c->f_square_s * (double)between(prng, 1, 4);
    c->b_token_s = c->i_token_s + (c->split ? c->f_token_s : 0.0);
    c->b_square_s = c->i_square_s;
    c->f_pack_s = (double)between(prng, 0, 20000);
    c->i_pack_s = (double)between(prng, 0, 40000);
    c->b_pack_s = c->i_pack_s + (c->split ? (double)between(prng, 0, 20000) : 0.0);
    c->p2p_s = (double)between(prng, 0, 5000);
    c->f_last_token_s = (double)between(prng, 0, 1) * 50.0;
    c->b_last_token_s = 2.0 * c->f_last_token_s;
    for (int i = 0; i < d.count; i++) {
        d.tokens[i] = (int64_t)exp(4.0 + 4.5 * sp_prng_uniform(prng));
    }
    c->sizes = (int)between(prng, 0, 3);
    for (int i = 0; i < c->sizes; i++) {
        double beyond = (double)between(prng, 0, 10000) * (c->sizes - i);
        double above = i > 0 ? c->size[i - 1].f_pack_s - c->f_pack_s : HUGE_VAL;
        beyond = fmin(beyond, above);
        c->size[i] =
            (sp_bound_size){(double)(100 << 2 * i), c->f_pack_s + beyond, c->b_pack_s + beyond};
    }
    return d;
}

// Packs of growing, then falling sizes; the backward runs blocks of packs that cut samples tie
// together in reverse.
typedef struct packs {
    int count;
    double f_s[RANDOM_PACKS], b_s[RANDOM_PACKS], i_s[RANDOM_PACKS];
    int64_t tokens[RANDOM_PACKS];
    bool tied[RANDOM_PACKS]; // to the next
    int32_t order[RANDOM_PACKS], need[RANDOM_PACKS];
} packs;

static double span_s(double token_s, double square_s, int64_t from, int64_t to)
{
    double a = (double)from;
    double b = (double)to;
    return token_s * (b - a) + square_s * (b * b - a * a);
}

static void fill_packs(const drawn *d, sp_prng *prng, packs *p)
{
    int64_t total = 0;
    int order[RANDOM_SAMPLES];
    for (int i = 0; i < d->count; i++) {
        int at = (int)sp_prng_below(prng, (uint64_t)i + 1);
        order[i] = order[at];
        order[at] = i;
        total += d->tokens[i];
    }
    double size = (double)total / (double)between(prng, 1, 60);
    double first = 0.05 + sp_prng_uniform(prng);
    double growth = 1.0 + 0.5 * sp_prng_uniform(prng);
    double decay = 1.0 + 0.3 * sp_prng_uniform(prng);
    *p = (packs){.count = 1};
    int64_t done = 0;
    for (int i = 0; i < d->count; i++) {
        int64_t n = d->tokens[order[i]];
        for (int64_t from = 0; from < n;) {
            int k = p->count - 1;
            double left = 0.05 + (decay - 1.0) * (double)(total - done) / size;
            double most = size * fmin(fmin(1.0, first * pow(growth, k)), left);
            if (p->tokens[k] > 0 && (double)p->tokens[k] >= most && p->count < RANDOM_PACKS) {
                p->tied[k] = from > 0;
                p->count++;
                continue;
            }
            int64_t room = (int64_t)fmax(most - (double)p->tokens[k], 1.0);
            int64_t to = p->count == RANDOM_PACKS || room > n - from ? n : from + room;
            const sp_bound_costs *c = &d->costs;
            p->f_s[k] += span_s(c->f_token_s, c->f_square_s, from, to);
            p->b_s[k] += span_s(c->b_token_s, c->b_square_s, from, to);
            p->i_s[k] += span_s(c->i_token_s, c->i_square_s, from, to);
            p->tokens[k] += to - from;
            done += to - from;
            from = to;
        }
    }
    for (int k = 0; k < p->count;) {
        int end = k;
        while (p->tied[end]) {
            end++;
        }
        for (int j = k; j <= end; j++) {
            p->order[j] = k + end - j;
            p->need[j] = end;
        }
        k = end + 1;
    }
}

static double simulated_s(const drawn *d, const packs *p)
{
    const sp_bound_costs *c = &d->costs;
    size_t stages = (size_t)c->stages;
    size_t count = (size_t)p->count;
    int64_t *times = sp_i_calloc((3 * stages + 1) * count, sizeof *times);
    int64_t *freed = sp_i_calloc(count, sizeof *freed);
    assert_true(times != NULL && freed != NULL);
    int64_t *f_ns = times;
    int64_t *b_ns = times + count * stages;
    int64_t *w_ns = b_ns + count * stages;
    int64_t *p2p_ns = w_ns + count * stages;
    for (size_t j = 0; j < count; j++) {
        size_t k = (size_t)p->order[j];
        p2p_ns[j] = (int64_t)c->p2p_s;
        for (size_t s = 0; s < stages; s++) {
            double last = s == stages - 1;
            double f_tokens = (double)p->tokens[j];
            double b_tokens = (double)p->tokens[k];
            double f_s = fixed_s(c, f_tokens, false) + p->f_s[j];
            double b_s = fixed_s(c, b_tokens, true) + p->b_s[k];
            f_s += last * c->f_last_token_s * f_tokens;
            b_s += last * c->b_last_token_s * b_tokens;
            double i_s = c->split ? c->i_pack_s + p->i_s[k] : b_s;
            f_ns[j * stages + s] = (int64_t)f_s;
            b_ns[j * stages + s] = (int64_t)i_s;
            w_ns[j * stages + s] = (int64_t)(b_s - i_s);
        }
        freed[j] = p->tokens[k];
    }
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = c->stages, .dp = 1, .chunks = 1};
    sp_packflow_job job = {.layout = &layout,
                           .forward = count,
                           .backward = count,
                           .f_ns = f_ns,
                           .b_ns = b_ns,
                           .w_ns = c->split ? w_ns : NULL,
                           .p2p_f_ns = p2p_ns,
                           .p2p_b_ns = p2p_ns,
                           .need = p->need,
                           .tokens = p->tokens,
                           .freed = freed};
    sp_packflow_result result = {0};
    sp_error err = {0};
    assert_int_equal(sp_packflow_run(&job, &result, &err), SP_OK);
    sp_i_free(times);
    sp_i_free(freed);
    return (double)result.makespan_ns;
}

static void no_simulated_packing_is_faster(void **state)
{
    (void)state;
    sp_prng prng;
    sp_prng_seed(&prng, 11);
    double share[2] = {0.0, 0.0};
    double best_share[2] = {0.0, 0.0};
    int cases[2] = {0, 0};
    for (int round = 0; round < 150; round++) {
        drawn d = draw(&prng);
        sp_bound_batch batch = {.tokens = d.tokens, .count = (size_t)d.count, .ranks = 1};
        double bound_s = fmax(growth_s(&d.costs, &batch), sp_bound_flow_shop_s(&d.costs, &batch));
        double best_s = HUGE_VAL;
        for (int trial = 0; trial < 60; trial++) {
            packs p;
            fill_packs(&d, &prng, &p);
            best_s = fmin(best_s, simulated_s(&d, &p));
        }
        if (!(best_s >= bound_s * (1.0 - 1e-12)) ||
            !(bound_s >= sp_bound_work_s(&d.costs, &batch))) {
            fail_msg("round %d: %.0f ns below the bound %.0f ns", round, best_s, bound_s);
        }
        share[d.costs.split] += bound_s / best_s;
        best_share[d.costs.split] = fmax(best_share[d.costs.split], bound_s / best_s);
        cases[d.costs.split]++;
    }
    for (int split = 0; split < 2; split++) {
        print_message("%s backward: bound over the best of 60 packings: mean %.3f, most %.3f\n",
                      split ? "split" : "whole", share[split] / cases[split], best_share[split]);
    }
}

// ---- packs of the fill ----

// Least fixed cost to cover `cover_s` on every way of own packs of the largest size and packs of
// the other pass between them.
static double all_ways_s(const sp_i_side *side, double idle_s, double cover_s, double content_s,
                         double enabled_s, double credit_s, double limit_s)
{
    double budget_s = idle_s + credit_s + enabled_s + side->extra * content_s;
    double pack_s = budget_s / side->hops - side->p2p_s - side->own.least_s[0];
    double own_s = side->own.least_s[0];
    double other_s = side->other.least_s[0];
    if (pack_s <= 0.0 || own_s >= limit_s) {
        return limit_s;
    }
    content_s += pack_s;
    if (content_s >= cover_s) {
        return own_s;
    }
    double now_s = sp_i_knapsack_most_s(&side->enabled, content_s);
    double same_s =
        own_s + all_ways_s(side, idle_s, cover_s, content_s, enabled_s, credit_s, limit_s - own_s);
    double next_s = own_s + other_s >= limit_s
                        ? limit_s
                        : own_s + other_s +
                              all_ways_s(side, idle_s, cover_s, content_s, now_s,
                                         credit_s + other_s, limit_s - own_s - other_s);
    return fmin(same_s, next_s);
}

// The merged search is never above the search of all ways, and near it.
static void epochs_cost_no_more_than_any_way(void **state)
{
    (void)state;
    sp_prng prng;
    sp_prng_seed(&prng, 3);
    double sum = 0.0;
    int cases = 0;
    for (int round = 0; round < 200; round++) {
        sp_i_item items[40];
        size_t count = (size_t)between(&prng, 1, 40);
        for (size_t i = 0; i < count; i++) {
            double size_s = (double)between(&prng, 1, 20);
            items[i] = (sp_i_item){size_s, size_s * (1.0 + 2.0 * sp_prng_uniform(&prng))};
        }
        double cover_s = (double)between(&prng, 20, 400);
        sp_bound_batch batch = {.ranks = 1};
        sp_i_side side = {.hops = (double)between(&prng, 1, 7),
                          .p2p_s = sp_prng_uniform(&prng),
                          .extra = 0.2 * sp_prng_uniform(&prng),
                          .own = {.edge_s = {HUGE_VAL}, .count = 1},
                          .other = {.edge_s = {HUGE_VAL}, .count = 1},
                          .group = 1};
        side.own.least_s[0] = 2.0 + 3.0 * sp_prng_uniform(&prng);
        side.other.least_s[0] = 2.0 + 3.0 * sp_prng_uniform(&prng);
        sp_i_knapsack_init(&side.enabled, items, count, &batch, cover_s);
        double idle_s =
            side.hops * (side.own.least_s[0] + side.p2p_s + 20.0 * sp_prng_uniform(&prng));
        double limit_s = 40.0;
        double all_s = all_ways_s(&side, idle_s, cover_s, 0.0, 0.0, 0.0, limit_s);
        double least_s;
        sp_i_epochs_least_s(&side, idle_s, &cover_s, 1, limit_s, 1000000, &least_s);
        assert_true(least_s <= all_s * (1.0 + 1e-12));
        sum += least_s / all_s;
        cases++;
        // Packs of the other pass that a group does not count are part of the idle time.
        double grouped_s = HUGE_VAL;
        side.group = 4;
        for (double uncounted_s = 0.0; uncounted_s <= limit_s;
             uncounted_s += side.other.least_s[0]) {
            double cost_s;
            sp_i_epochs_least_s(&side, idle_s + uncounted_s, &cover_s, 1, limit_s, 1000000,
                                &cost_s);
            grouped_s = fmin(grouped_s, uncounted_s + cost_s);
        }
        assert_true(grouped_s <= all_s * (1.0 + 1e-12));
    }
    print_message("merged over all ways: mean %.4f\n", sum / cases);
    assert_true(sum / cases > 0.98);
}

// ---- closed forms ----

// One sample of forward work 64 in packs of fixed cost 1 over 5 stages: m + 4*64/m is least at 16,
// and the backward of work 128 and fixed cost 2 has 2 m + 4*128/m, also at 16.
static void one_sample_is_a_flow_shop(void **state)
{
    (void)state;
    const sp_bound_costs costs = {.stages = 5,
                                  .f_token_s = 1.0,
                                  .b_token_s = 2.0,
                                  .i_token_s = 2.0,
                                  .f_pack_s = 1.0,
                                  .b_pack_s = 2.0,
                                  .i_pack_s = 2.0};
    const int64_t tokens[] = {64};
    const sp_bound_batch batch = {.tokens = tokens, .count = 1, .ranks = 1};
    double expected_s = 192.0 + (16.0 + 16.0) + (32.0 + 32.0) + 4.0 * 3.0;
    assert_true(fabs(sp_bound_flow_shop_s(&costs, &batch) - expected_s) < 1e-9);
    // The growth bound sees the same, but for the ends of its intervals.
    double bound_s = growth_s(&costs, &batch);
    assert_true(bound_s <= expected_s + 1e-9 && bound_s > 0.99 * expected_s);
    // Uncut: five stages each way.
    assert_true(fabs(sp_bound_whole_s(&costs, &batch) - 5.0 * (64.0 + 1.0 + 128.0 + 2.0)) < 1e-9);
}

// Without fixed costs, a perfectly divisible load has no gap to its work.
static void nothing_is_lost_without_fixed_costs(void **state)
{
    (void)state;
    const sp_bound_costs costs = {
        .stages = 4, .f_token_s = 1.0, .b_token_s = 2.0, .i_token_s = 2.0};
    int64_t tokens[1000];
    for (size_t i = 0; i < 1000; i++) {
        tokens[i] = 1;
    }
    const sp_bound_batch batch = {.tokens = tokens, .count = 1000, .ranks = 1};
    double work_s = sp_bound_work_s(&costs, &batch);
    assert_true(work_s == 3000.0);
    // One forward and one backward of a token on the way through the other three stages.
    assert_true(growth_s(&costs, &batch) >= 3009.0);
    assert_true(growth_s(&costs, &batch) < 3030.0);
}

// A sample of over half of the work cannot be spread, unless ranks share it.
static void the_longest_sample_limits_the_ranks(void **state)
{
    (void)state;
    const sp_bound_costs costs = {
        .stages = 1, .f_token_s = 1.0, .b_token_s = 2.0, .i_token_s = 2.0};
    const int64_t tokens[] = {700, 100, 200};
    sp_bound_batch batch = {.tokens = tokens, .count = 3, .ranks = 2};
    assert_true(sp_bound_work_s(&costs, &batch) == 1500.0);
    assert_true(sp_bound_flow_shop_s(&costs, &batch) == 2100.0);
    batch.merged = true;
    assert_true(sp_bound_flow_shop_s(&costs, &batch) == 0.0);
}

static void running_out_of_memory_is_reported(void **state)
{
    (void)state;
    const sp_bound_costs costs = {
        .stages = 4, .f_token_s = 1.0, .b_token_s = 2.0, .i_token_s = 2.0};
    const int64_t tokens[] = {7, 1, 2};
    const sp_bound_batch batch = {.tokens = tokens, .count = 3, .ranks = 1};
    int failures = 0;
    sp_status status = SP_ERR_NO_MEMORY;
    while (status != SP_OK) {
        double bound_s;
        sp_error err = {0};
        sp_i_alloc_fail_after(failures++);
        status = sp_bound_growth_s(&costs, &batch, &bound_s, &err);
        sp_i_alloc_fail_after(-1);
        assert_true(status == SP_OK || status == SP_ERR_NO_MEMORY);
    }
    assert_true(failures > 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_order_of_one_rank_is_faster),
    cmocka_unit_test(no_split_order_is_faster),
    cmocka_unit_test(no_spread_over_two_ranks_is_faster),
    cmocka_unit_test(no_order_of_dear_small_packs_is_faster),
    cmocka_unit_test(no_simulated_packing_is_faster),
    cmocka_unit_test(epochs_cost_no_more_than_any_way),
    cmocka_unit_test(one_sample_is_a_flow_shop),
    cmocka_unit_test(nothing_is_lost_without_fixed_costs),
    cmocka_unit_test(the_longest_sample_limits_the_ranks),
    cmocka_unit_test(running_out_of_memory_is_reported),
};

SP_TEST_MAIN(tests)
