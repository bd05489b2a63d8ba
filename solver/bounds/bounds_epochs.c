// The least fixed cost of packs that grow as fast as an idle time lets them (bounds.h,
// sp_bound_growth_s).
#include <math.h>

#include "solver/bounds/bounds_private.h"

enum {
    SLOTS = 1024,
    NEAR = 2,          // slots looked at for a better way
    MOST_PACKS = 1024, // of an epoch
    REST = 64
};

// Ways to the start of an epoch, those of about the same cost in one slot, with the best of each on
// any of them.
typedef struct slot {
    double content_s; // most own content before; negative: no way
    double cost_s;    // least
    double credit_s;  // most time that packs of the other pass take beyond their content
} slot;

// What one call works on.
typedef struct walk {
    const sp_i_side *side;
    double idle_s;
    const double *cover_s;
    int covers;
    double *cost_s;
    double worst_s; // cost that is of no use for any cover
    double slot_s;
    slot slots[SLOTS];
    double from_s[REST]; // content from which i + 1 own packs may cover the first cover
    long steps;
} walk;

static bool is_better(const slot *a, const slot *b);
static double slot_width_s(const sp_i_side *side, double limit_s);
static void find_remaining(walk *w);
static void follow(walk *w, int from);

long sp_i_epochs_least_s(const sp_i_side *side, double idle_s, const double *cover_s, int covers,
                         double limit_s, long most_steps, double *cost_s)
{
    walk w = {.side = side,
              .idle_s = idle_s,
              .cover_s = cover_s,
              .covers = covers,
              .cost_s = cost_s,
              .worst_s = limit_s,
              .slot_s = slot_width_s(side, limit_s)};
    for (int j = 0; j < covers; j++) {
        cost_s[j] = limit_s;
    }
    for (int i = 1; i < SLOTS; i++) {
        w.slots[i].content_s = -1.0;
    }
    find_remaining(&w);
    slot best = {.content_s = -1.0};
    for (int i = 0; i < SLOTS && w.steps < most_steps; i++) {
        const slot *now = &w.slots[i];
        if (now->content_s >= 0.0 && now->cost_s < w.worst_s && !is_better(&best, now)) {
            follow(&w, i);
            best = now->content_s > best.content_s ? *now : best;
        }
    }
    return w.steps;
}

static int slot_of(const walk *w, double cost_s)
{
    return (int)fmin(SLOTS, cost_s / w->slot_s + 0.5);
}

// Does a lead on at least as well as b, for no more?
static bool is_better(const slot *a, const slot *b)
{
    return a->cost_s <= b->cost_s && a->content_s >= b->content_s && a->credit_s >= b->credit_s;
}

// Ways that differ in cost are seldom in one slot where fixed costs are multiples of its width.
static double slot_width_s(const sp_i_side *side, double limit_s)
{
    double a_s = side->own.least_s[side->own.count - 1];
    double b_s = side->other.least_s[side->other.count - 1];
    double best_s = limit_s / SLOTS;
    double least_error = 0.25;
    for (int parts = 1; parts <= 8 && a_s > 0.0 && b_s / a_s < SLOTS; parts++) {
        double width_s = a_s / parts;
        double error = parts * fabs(b_s / width_s - nearbyint(b_s / width_s));
        if (width_s * SLOTS > limit_s && error < least_error) {
            least_error = error;
            best_s = width_s;
        }
    }
    return best_s;
}

static double least_s(const sp_i_bands *bands, double content_s)
{
    int band = 0;
    while (band < bands->count - 1 && content_s > bands->edge_s[band]) {
        band++;
    }
    return bands->least_s[band];
}

// Largest content of a pack that takes no longer than `time_s`, with its least fixed cost.
static double largest_s(const sp_i_bands *bands, double time_s, double *fixed_s)
{
    for (int band = bands->count - 1; band >= 0; band--) {
        double content_s = time_s - bands->least_s[band];
        if (content_s > (band > 0 ? bands->edge_s[band - 1] : 0.0)) {
            *fixed_s = bands->least_s[band];
            return fmin(content_s, bands->edge_s[band]);
        }
    }
    return 0.0;
}

// Packs as large as if all that may be enabled were, at no cost.
static void find_remaining(walk *w)
{
    const sp_i_side *side = w->side;
    double content_s = w->covers == 1 ? w->cover_s[0] : 0.0;
    for (int i = 0; i < REST; i++) {
        if (content_s > 0.0) {
            double budget_s = w->idle_s + w->worst_s + side->extra * content_s +
                              sp_i_knapsack_most_s(&side->enabled, content_s);
            double fixed_s = 0.0;
            content_s -= largest_s(&side->own, budget_s / side->hops - side->p2p_s, &fixed_s);
        }
        w->from_s[i] = content_s;
    }
}

// Fixed cost of own packs that are still to come, at least.
static double remaining_s(const walk *w, double content_s)
{
    int packs = 0;
    while (packs < REST && content_s < w->from_s[packs]) {
        packs++;
    }
    return packs < REST ? (packs + 1) * w->side->own.least_s[w->side->own.count - 1] : 0.0;
}

static void note(walk *w, int *reached, double content_s, double cost_s)
{
    bool better = false;
    for (; *reached < w->covers && content_s >= w->cover_s[*reached]; ++*reached) {
        better = better || w->cost_s[*reached] == w->worst_s;
        w->cost_s[*reached] = fmin(w->cost_s[*reached], cost_s);
    }
    if (better) {
        w->worst_s = 0.0;
        for (int j = 0; j < w->covers; j++) {
            w->worst_s = fmax(w->worst_s, w->cost_s[j]);
        }
    }
}

// Keeps a way in the slot of its cost, or the next one.
static void start(walk *w, int from, slot way)
{
    double most_s = sp_i_knapsack_most_s(&w->side->enabled, way.content_s);
    if (!(most_s > 0.0)) {
        return;
    }
    double fixed_s = least_s(&w->side->other, most_s);
    way.cost_s += fixed_s;
    way.credit_s += fixed_s;
    if (way.cost_s + remaining_s(w, way.content_s) >= w->worst_s) {
        return;
    }
    int at = slot_of(w, way.cost_s);
    at = at > from ? at : from + 1;
    if (at >= SLOTS) {
        int reached = 0;
        note(w, &reached, HUGE_VAL, way.cost_s);
        return;
    }
    slot *kept = &w->slots[at];
    if (kept->content_s < 0.0) {
        *kept = way;
        return;
    }
    kept->content_s = fmax(kept->content_s, way.content_s);
    kept->cost_s = fmin(kept->cost_s, way.cost_s);
    kept->credit_s = fmax(kept->credit_s, way.credit_s);
}

// Is there a way that costs no more and leads on at least as well?
static bool is_dominated(const walk *w, int from, const slot *way)
{
    int at = slot_of(w, way->cost_s);
    int end = at - NEAR > from ? at - NEAR : from;
    for (int i = at < SLOTS ? at : SLOTS - 1; i > end; i--) {
        if (is_better(&w->slots[i], way)) {
            return true;
        }
    }
    return false;
}

// Own packs until the next epoch starts, for every length of this one.
static void follow(walk *w, int from)
{
    const sp_i_side *side = w->side;
    slot way = w->slots[from];
    double enabled_s =
        way.content_s > 0.0 ? sp_i_knapsack_most_s(&side->enabled, way.content_s) : 0.0;
    int reached = 0;
    while (reached < w->covers && way.content_s > 0.0 && way.content_s >= w->cover_s[reached]) {
        reached++;
    }
    for (int packs = 1; way.cost_s < w->worst_s; packs++) {
        double budget_s = w->idle_s + way.credit_s + enabled_s + side->extra * way.content_s;
        double fixed_s = 0.0;
        double pack_s = largest_s(&side->own, budget_s / side->hops - side->p2p_s, &fixed_s);
        if (!(pack_s > 0.0)) {
            return;
        }
        w->steps++;
        way.content_s = packs < MOST_PACKS ? way.content_s + pack_s : HUGE_VAL;
        way.cost_s += fixed_s;
        note(w, &reached, way.content_s, way.cost_s);
        if (reached == w->covers || way.cost_s >= w->worst_s || is_dominated(w, from, &way)) {
            return;
        }
        if (packs < side->group) {
            enabled_s = sp_i_knapsack_most_s(&side->enabled, way.content_s);
        } else {
            start(w, from, way);
        }
    }
}
