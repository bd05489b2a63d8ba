// Lower bounds against every packing and every order of tiny cases.

#include "solver/bounds/bounds.h"
#include "tests/support/bound_costs.h"
#include "tests/support/test_main.h"

// Steps so small that every packing and every order of them can be tried.

enum { TINY_UNITS = 4, TINY_STAGES = 3 }; // at most

// A sample of n tokens is n slices of one token.
typedef struct tiny_step {
    int64_t samples[TINY_UNITS];
    int count, units, sample_of[TINY_UNITS], place_of[TINY_UNITS];
    const sp_bound_costs *costs;
} tiny_step;

enum { KINDS = 3, NONE = -1 };

enum { F, B, W }; // W only where the backward is split; B is then the input gradient

// Units to packs, both passes.
typedef struct grouping {
    int pack_of[2][TINY_UNITS], packs[2];
} grouping;

typedef struct search {
    const tiny_step *t;
    const grouping *g;
    double time_s[KINDS][TINY_UNITS][TINY_STAGES];
    bool before[2][TINY_UNITS][TINY_UNITS];       // pack a before pack b on a stage
    bool reads[TINY_UNITS][TINY_UNITS];           // backward pack b reads forward pack a
    double end_s[KINDS][TINY_UNITS][TINY_STAGES]; // negative: not yet
    double free_s[TINY_STAGES];
    double left_s[TINY_STAGES]; // work
    int left;
    double best_s;
} search;

static double slice_s(double token_s, double square_s, int place)
{
    return token_s + square_s * (2.0 * place + 1.0);
}

static int tokens_in(const tiny_step *t, const int *pack_of, int k)
{
    int tokens = 0;
    for (int u = 0; u < t->units; u++) {
        tokens += pack_of[u] == k;
    }
    return tokens;
}

static void set_times(search *s, int stage)
{
    const tiny_step *t = s->t;
    const sp_bound_costs *c = t->costs;
    double last = stage == c->stages - 1;
    for (int k = 0; k < s->g->packs[F]; k++) {
        s->time_s[F][k][stage] = bound_fixed_s(c, tokens_in(t, s->g->pack_of[F], k), false);
    }
    for (int k = 0; k < s->g->packs[B]; k++) {
        double b_s = bound_fixed_s(c, tokens_in(t, s->g->pack_of[B], k), true);
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

static void search_init(search *s, const tiny_step *t, const grouping *g, double best_s)
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
    double start_s[KINDS][TINY_UNITS][TINY_STAGES];
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

static bool is_whole(const tiny_step *t, const int *pack_of)
{
    for (int u = 1; u < t->units; u++) {
        if (t->sample_of[u] == t->sample_of[u - 1] && pack_of[u] != pack_of[u - 1]) {
            return false;
        }
    }
    return true;
}

static tiny_step tiny_step_make(const sp_bound_costs *costs, const int64_t *samples, int count)
{
    tiny_step t = {.count = count, .costs = costs};
    for (int i = 0; i < count; i++) {
        t.samples[i] = samples[i];
        for (int place = 0; place < samples[i]; place++) {
            t.sample_of[t.units] = i;
            t.place_of[t.units++] = place;
        }
    }
    return t;
}

// The least makespan of one rank. `whole`: samples are not cut.
static double tiny_step_least_s(const tiny_step *t, bool whole)
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
static double tiny_step_least_of_two_s(const tiny_step *t, bool whole)
{
    double best_s = HUGE_VAL;
    for (unsigned half = 0; half < 1u << (t->count - 1); half++) {
        int64_t parts[2][TINY_UNITS];
        int counts[2] = {0, 0};
        for (int i = 0; i < t->count; i++) {
            int rank = (int)(half >> i & 1u);
            parts[rank][counts[rank]++] = t->samples[i];
        }
        tiny_step a = tiny_step_make(t->costs, parts[0], counts[0]);
        tiny_step b = tiny_step_make(t->costs, parts[1], counts[1]);
        best_s = fmin(best_s, fmax(tiny_step_least_s(&a, whole), tiny_step_least_s(&b, whole)));
    }
    return best_s;
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
    must_hold(bound_s <= optimum * (1.0 + 1e-12), "%s: bound %.6f above the optimum %.6f",
              names[bound], bound_s, optimum);
    double share = bound_s / optimum;
    n->share[bound] += share;
    n->least[bound] = n->cases == 0 || share < n->least[bound] ? share : n->least[bound];
    n->reached[bound] += share > 1.0 - 1e-9;
}

static void check_tiny(const tiny_step *t, int ranks, nearness *n)
{
    sp_bound_batch batch = {.tokens = t->samples, .count = (size_t)t->count, .ranks = ranks};
    double sliced_s = ranks == 1 ? tiny_step_least_s(t, false) : tiny_step_least_of_two_s(t, false);
    double whole_s = ranks == 1 ? tiny_step_least_s(t, true) : tiny_step_least_of_two_s(t, true);
    double of[BOUNDS] = {sp_bound_work_s(t->costs, &batch), sp_bound_simple_s(t->costs, &batch),
                         sp_bound_growth_s(t->costs, &batch),
                         sp_bound_flow_shop_s(t->costs, &batch)};
    of[ANY_SLICED] = fmax(of[GROWTH], of[FLOW_SHOP]);
    of[ALL_WHOLE] = fmax(of[ANY_SLICED], sp_bound_whole_s(t->costs, &batch));
    for (int bound = 0; bound < BOUNDS; bound++) {
        note(n, bound, of[bound], bound == ALL_WHOLE ? whole_s : sliced_s);
    }
    n->cases++;
    // Shared samples leave less to prove.
    sp_bound_batch merged = batch;
    merged.merged = true;
    assert_true(sp_bound_growth_s(t->costs, &merged) <=
                sp_bound_growth_s(t->costs, &batch) * (1.0 + 1e-3));
}

static double one_of(sp_prng *prng, double a, double b, double c)
{
    uint64_t at = sp_prng_below(prng, 3);
    return at == 0 ? a : at == 1 ? b : c;
}

static sp_bound_costs random_costs(sp_prng *prng, bool split)
{
    sp_bound_costs c = {.stages = 1 + prng_below(prng, TINY_STAGES), .split = split};
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
    static const int64_t sets[][TINY_UNITS] = {{1},    {2},       {3},       {4},
                                               {1, 1}, {2, 1},    {1, 2},    {3, 1},
                                               {2, 2}, {1, 1, 1}, {2, 1, 1}, {1, 1, 1, 1}};
    sp_prng prng = prng_seeded(5);
    nearness n = {0};
    for (int round = 0; round < test_rounds(rounds); round++) {
        sp_bound_costs costs = random_costs(&prng, split);
        if (sized) {
            add_sizes(&prng, &costs);
        }
        for (size_t set = 0; set < sizeof sets / sizeof sets[0]; set++) {
            int count = 0;
            int64_t units = 0;
            while (count < TINY_UNITS && sets[set][count] > 0) {
                units += sets[set][count++];
            }
            if (units <= most_units && count >= ranks) {
                tiny_step t = tiny_step_make(&costs, sets[set], count);
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

TEST_CALL(no_order_of_one_rank_is_faster, check_many(false, 1, 20, 4, false))
TEST_CALL(no_split_order_is_faster, check_many(true, 1, 20, 3, false))

TEST(no_spread_over_two_ranks_is_faster)
{
    check_many(false, 2, 20, 4, false);
    check_many(true, 2, 20, 3, false);
}

TEST(no_order_of_dear_small_packs_is_faster)
{
    check_many(false, 1, 20, 4, true);
    check_many(true, 1, 20, 3, true);
}
