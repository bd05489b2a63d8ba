#include "sim/plan/rounds.h"

#include <math.h>

#include "sim/base/alloc.h"

// The numbers of rounds of groups, some of them joined.
typedef struct slots {
    int32_t *parent; // [group * rounds + round]
    int ranks;       // of a group
    int32_t rounds;
} slots;

static int32_t root_of(const slots *s, int32_t slot)
{
    while (s->parent[slot] != slot) {
        s->parent[slot] = s->parent[s->parent[slot]];
        slot = s->parent[slot];
    }
    return slot;
}

static int32_t slot_of(const slots *s, int dp, int32_t round)
{
    return dp / s->ranks * s->rounds + round;
}

static void join(const slots *s, const sp_pack *pack, int32_t round)
{
    int32_t first = root_of(s, slot_of(s, pack->dp_first, round));
    for (int dp = pack->dp_first + 1; dp < pack->dp_first + pack->dp_count; dp++) {
        s->parent[root_of(s, slot_of(s, dp, round))] = first;
    }
}

// Returns how many rounds there are.
static int32_t place_packs(const sp_layout *layout, const sp_pack_list *list, int32_t *round)
{
    int32_t *next = sp_calloc((size_t)layout->dp, sizeof *next);
    int32_t rounds = 0;
    for (size_t k = 0; k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        int end = pack->dp_first + pack->dp_count;
        round[k] = 0;
        for (int dp = pack->dp_first; dp < end; dp++) {
            round[k] = next[dp] > round[k] ? next[dp] : round[k];
        }
        for (int dp = pack->dp_first; dp < end; dp++) {
            next[dp] = round[k] + 1;
        }
        rounds = round[k] >= rounds ? round[k] + 1 : rounds;
    }
    sp_free(next);
    return rounds;
}

// A pack's ranks have equal shares of its tokens.
static void level_tokens(const slots *s, const sp_pack_list *list, const int32_t *round,
                         size_t slot_count, int64_t *tokens)
{
    double *sum = sp_calloc(slot_count, sizeof *sum);
    for (size_t k = 0; k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        for (int dp = pack->dp_first; dp < pack->dp_first + pack->dp_count; dp++) {
            sum[slot_of(s, dp, round[k])] += (double)pack->computed / pack->dp_count;
        }
    }
    for (size_t k = 0; k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        double most = 0.0;
        for (int dp = pack->dp_first; dp < pack->dp_first + pack->dp_count; dp++) {
            double mean = sum[slot_of(s, dp, round[k])] / s->ranks;
            most = mean > most ? mean : most;
        }
        // Up, so that no pack has fewer rows than bounds count.
        tokens[k] = (int64_t)ceil(most * pack->dp_count);
    }
    sp_free(sum);
}

void sp_rounds_make(const sp_layout *layout, const sp_pack_list *list, int ranks, sp_rounds *rounds)
{
    slots s = {.ranks = ranks};
    *rounds = (sp_rounds){.round = sp_calloc(list->count + 1, sizeof *rounds->round),
                          .together = sp_calloc(list->count + 1, sizeof *rounds->together),
                          .tokens = sp_calloc(list->count + 1, sizeof *rounds->tokens)};
    s.rounds = place_packs(layout, list, rounds->round);
    size_t slot_count = (size_t)(layout->dp / s.ranks) * (size_t)s.rounds;
    s.parent = sp_calloc(slot_count + 1, sizeof *s.parent);
    for (size_t i = 0; i < slot_count; i++) {
        s.parent[i] = (int32_t)i;
    }
    for (size_t k = 0; k < list->count; k++) {
        join(&s, &list->packs[k], rounds->round[k]);
    }
    for (size_t k = 0; k < list->count; k++) {
        rounds->together[k] = root_of(&s, slot_of(&s, list->packs[k].dp_first, rounds->round[k]));
    }
    rounds->count = (int32_t)slot_count;
    level_tokens(&s, list, rounds->round, slot_count, rounds->tokens);
    sp_free(s.parent);
}

void sp_rounds_free(sp_rounds *rounds)
{
    sp_free(rounds->round);
    sp_free(rounds->together);
    sp_free(rounds->tokens);
    *rounds = (sp_rounds){0};
}

// ---- orders ----

typedef struct orders {
    const sp_plan *plan;
    sp_rounds rounds[2]; // forward, backward
    int32_t *of_first;   // [2 * packs]: by round and side, the last comparison whose first rank,
    int32_t *of_other;   // or whose other one, has the round
} orders;

static size_t round_of(const orders *o, sp_action action)
{
    int side = sp_action_is_backward(action);
    return 2 * (size_t)o->rounds[side].round[action.pack] + (size_t)side;
}

static void note_rounds(const orders *o, const sp_stage_plan *stage, int32_t *of, int32_t mark)
{
    for (size_t a = 0; a < stage->count; a++) {
        of[round_of(o, stage->actions[a])] = mark;
    }
}

// The next action, from one on, of a round that the other rank has as well.
static size_t next_common(const orders *o, const sp_stage_plan *stage, size_t from,
                          const int32_t *of, int32_t mark)
{
    while (from < stage->count && of[round_of(o, stage->actions[from])] != mark) {
        from++;
    }
    return from;
}

static bool runs_alike(const orders *o, const sp_action *a, const sp_action *b)
{
    return a->kind == b->kind && a->chunk == b->chunk && round_of(o, *a) == round_of(o, *b);
}

static sp_status differ(const sp_plan *plan, const sp_plan_place *place, int other,
                        const sp_action *others, const char *source, sp_error *err)
{
    char name[32];
    char others_name[32];
    sp_action_name(place->action, plan->layout.chunks, name);
    sp_action_name(*others, plan->layout.chunks, others_name);
    return sp_error_set(err, SP_ERR_CONTENT,
                        "%s: data-parallel ranks %d and %d %s and must run their micro-batches in "
                        "one order, but pipeline rank %d runs %s on the one where it runs %s on "
                        "the other",
                        source, place->dp, other,
                        sp_layout_expert_ranks(&plan->layout) > 1
                            ? "share experts (parallel.ep)"
                            : "gather parameters (parallel.zero 3)",
                        place->pp, name, others_name);
}

static sp_status compare(const orders *o, int first, int dp, int pp, const char *source,
                         sp_error *err)
{
    const sp_stage_plan *a = sp_plan_stage(o->plan, first, pp);
    const sp_stage_plan *b = sp_plan_stage(o->plan, dp, pp);
    const int32_t mark = dp * o->plan->layout.pp + pp + 1;
    if (a->count != b->count) {
        return SP_OK;
    }
    note_rounds(o, a, o->of_first, mark);
    note_rounds(o, b, o->of_other, mark);
    for (size_t i = 0, k = 0;; i++, k++) {
        i = next_common(o, a, i, o->of_other, mark);
        k = next_common(o, b, k, o->of_first, mark);
        if (i == a->count || k == b->count) {
            return SP_OK;
        }
        if (!runs_alike(o, &a->actions[i], &b->actions[k])) {
            const sp_plan_place place = {first, pp, a->actions[i]};
            return differ(o->plan, &place, dp, &b->actions[k], source, err);
        }
    }
}

sp_status sp_rounds_check(const sp_plan *plan, const char *source, sp_error *err)
{
    int ranks = sp_layout_round_ranks(&plan->layout);
    const sp_pack_list *forward = &plan->packing->forward;
    const sp_pack_list *backward = sp_packing_backward(plan->packing);
    size_t packs = forward->count > backward->count ? forward->count : backward->count;
    orders o = {.plan = plan};
    sp_status status = SP_OK;
    if (ranks == 1) {
        return SP_OK;
    }
    sp_rounds_make(&plan->layout, forward, ranks, &o.rounds[0]);
    sp_rounds_make(&plan->layout, backward, ranks, &o.rounds[1]);
    o.of_first = sp_calloc(2 * packs + 1, sizeof *o.of_first);
    o.of_other = sp_calloc(2 * packs + 1, sizeof *o.of_other);
    for (int dp = 0; status == SP_OK && dp < plan->layout.dp; dp++) {
        for (int pp = 0; status == SP_OK && pp < plan->layout.pp; pp++) {
            status = compare(&o, dp / ranks * ranks, dp, pp, source, err);
        }
    }
    sp_free(o.of_first);
    sp_free(o.of_other);
    sp_rounds_free(&o.rounds[0]);
    sp_rounds_free(&o.rounds[1]);
    return status;
}
