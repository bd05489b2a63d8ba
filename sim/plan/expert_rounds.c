#include "sim/plan/expert_rounds.h"

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

void sp_expert_rounds_make(const sp_layout *layout, const sp_pack_list *list,
                           sp_expert_rounds *rounds)
{
    slots s = {.ranks = sp_layout_expert_ranks(layout)};
    *rounds = (sp_expert_rounds){.round = sp_calloc(list->count + 1, sizeof *rounds->round),
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

void sp_expert_rounds_free(sp_expert_rounds *rounds)
{
    sp_free(rounds->round);
    sp_free(rounds->together);
    sp_free(rounds->tokens);
    *rounds = (sp_expert_rounds){0};
}

// ---- orders ----

static bool runs_alike(const sp_action *a, const sp_action *b, const sp_expert_rounds rounds[2])
{
    const int32_t *round = rounds[sp_action_is_backward(*a)].round;
    return a->kind == b->kind && a->chunk == b->chunk && round[a->pack] == round[b->pack];
}

static sp_status differ(const sp_plan *plan, const sp_plan_place *place, int other,
                        const sp_action *others, const char *source, sp_error *err)
{
    char name[32];
    char others_name[32];
    sp_action_name(place->action, plan->layout.chunks, name);
    sp_action_name(*others, plan->layout.chunks, others_name);
    return sp_error_set(
        err, SP_ERR_CONTENT,
        "%s: data-parallel ranks %d and %d share experts (parallel.ep) and must run "
        "their micro-batches in one order, but pipeline rank %d runs %s on the one "
        "where it runs %s on the other",
        source, place->dp, other, place->pp, name, others_name);
}

sp_status sp_expert_rounds_check(const sp_plan *plan, const char *source, sp_error *err)
{
    int ranks = sp_layout_expert_ranks(&plan->layout);
    sp_expert_rounds rounds[2];
    sp_status status = SP_OK;
    if (ranks == 1) {
        return SP_OK;
    }
    sp_expert_rounds_make(&plan->layout, &plan->packing->forward, &rounds[0]);
    sp_expert_rounds_make(&plan->layout, sp_packing_backward(plan->packing), &rounds[1]);
    for (int dp = 0; status == SP_OK && dp < plan->layout.dp; dp++) {
        int first = dp / ranks * ranks;
        for (int pp = 0; status == SP_OK && pp < plan->layout.pp; pp++) {
            const sp_stage_plan *a = sp_plan_stage(plan, first, pp);
            const sp_stage_plan *b = sp_plan_stage(plan, dp, pp);
            size_t at = 0;
            while (at < a->count && a->count == b->count &&
                   runs_alike(&a->actions[at], &b->actions[at], rounds)) {
                at++;
            }
            if (at < a->count && a->count == b->count) {
                const sp_plan_place place = {first, pp, a->actions[at]};
                status = differ(plan, &place, dp, &b->actions[at], source, err);
            }
        }
    }
    sp_expert_rounds_free(&rounds[0]);
    sp_expert_rounds_free(&rounds[1]);
    return status;
}
