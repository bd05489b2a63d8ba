#include "tests/support/tiny_step.h"

#include <math.h>
#include <string.h>

#include "tests/support/bound_costs.h"

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

tiny_step tiny_step_make(const sp_bound_costs *costs, const int64_t *samples, int count)
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

double tiny_step_least_s(const tiny_step *t, bool whole)
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

double tiny_step_least_of_two_s(const tiny_step *t, bool whole)
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
