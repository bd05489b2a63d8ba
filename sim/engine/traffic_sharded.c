// What ZeRO 2 and 3 exchange inside actions (cost/zero.c), as flows.
#include <math.h>

#include "sim/base/units.h"
#include "sim/engine/traffic_private.h"

bool sp_i_sharded_make(sp_i_traffic *t)
{
    const sp_layout *layout = &t->plan->layout;
    size_t ranks = (size_t)layout->dp * (size_t)layout->pp;
    if (t->costs->sharded == NULL || layout->dp * layout->cp == 1) {
        return true;
    }
    t->sharded = sp_arena_take(&t->work, ranks, sizeof *t->sharded);
    t->shards = sp_arena_take(&t->work, (size_t)layout->pp, sizeof *t->shards);
    return !t->work.failed;
}

// What the data-parallel ranks gather and scatter in an action each.
typedef struct exchanged {
    sp_exchanged gather, scatter;
} exchanged;

static exchanged exchanged_in(const sp_i_traffic *t, const sp_walk_action *action)
{
    const sp_sharded_stage *stage = &t->costs->sharded[action->vstage];
    bool regrouped = t->plan->packing->backward.count > 0;
    switch ((sp_action_kind)action->place.action.kind) {
    case SP_ACTION_F:
    case SP_ACTION_I:
        return (exchanged){.gather = stage->gather};
    case SP_ACTION_B:
        return (exchanged){stage->gather, stage->scatter};
    case SP_ACTION_W:
        return (exchanged){.scatter = stage->scatter};
    case SP_ACTION_R:
        return (exchanged){.gather = regrouped ? stage->gather : stage->layers_gather};
    default:
        return (exchanged){.gather = {0}};
    }
}

bool sp_i_sharded_are(const sp_i_traffic *t, const sp_walk_action *action)
{
    if (t->sharded == NULL || !t->shards[action->place.pp]) {
        return false;
    }
    exchanged of = exchanged_in(t, action);
    return of.gather.s + of.scatter.s > 0.0;
}

static void carry(sp_i_traffic *t, const sp_i_sharded *s, sp_collective_algorithm by,
                  sp_collective kind, double bytes)
{
    const sp_i_passage *passage = sp_i_passage_of(s->passages, by, kind);
    if (passage != NULL) {
        sp_i_traffic_carry_passage(t, &passage->of, bytes);
    }
}

// Makes it as long as alone, and returns by how much shorter that is.
static double shorten(const sp_i_sharded *s, sp_collective_algorithm by, sp_collective kind,
                      sp_exchanged *of)
{
    double saved_s = sp_i_passage_saved_s(sp_i_passage_of(s->passages, by, kind), of->bytes, of->s);
    of->s -= saved_s;
    return saved_s;
}

// Gathers and scatters have equal shares of what is shown, and of what is hidden.
int64_t sp_i_sharded_set(sp_i_traffic *t, const sp_walk_action *action, int64_t *of_shown_ns)
{
    if (t->sharded == NULL) {
        return 0;
    }
    const sp_plan_place *place = &action->place;
    const sp_sharded_stage *stage = &t->costs->sharded[action->vstage];
    sp_i_sharded *s = &t->sharded[sp_i_rank_of(t, place->dp, place->pp)];
    exchanged of = exchanged_in(t, action);
    double saved_s = shorten(s, stage->gathers_by, SP_ALL_GATHER, &of.gather) +
                     shorten(s, stage->scatters_by, SP_REDUCE_SCATTER, &of.scatter);
    double whole_s = of.gather.s + of.scatter.s;
    int64_t shown_ns = sp_larger(0, *of_shown_ns - sp_ns_from_s(saved_s));
    double shown = sp_i_shown_share(shown_ns, whole_s);
    s->first_rank = sp_i_rank_of(t, sp_i_together(t, place).first, place->pp);
    *of_shown_ns = shown_ns;
    s->gather_share = whole_s > 0.0 ? of.gather.s / whole_s : 0.0;
    int64_t before_ns = llround(s->gather_share * (double)shown_ns);
    const sp_i_part gather = {.kind = SP_ALL_GATHER, .by = stage->gathers_by};
    const sp_i_part scatter = {.kind = SP_REDUCE_SCATTER, .by = stage->scatters_by};
    s->parts[SP_I_SHOWN_GATHER] = s->parts[SP_I_HIDDEN_GATHER] = gather;
    s->parts[SP_I_SHOWN_SCATTER] = s->parts[SP_I_HIDDEN_SCATTER] = scatter;
    s->parts[SP_I_SHOWN_GATHER].alone_ns = before_ns;
    s->parts[SP_I_SHOWN_GATHER].bytes = shown * of.gather.bytes;
    s->parts[SP_I_HIDDEN_GATHER].bytes = (1.0 - shown) * of.gather.bytes;
    s->parts[SP_I_SHOWN_SCATTER].alone_ns = shown_ns - before_ns;
    s->parts[SP_I_SHOWN_SCATTER].bytes = shown * of.scatter.bytes;
    s->parts[SP_I_HIDDEN_SCATTER].bytes = (1.0 - shown) * of.scatter.bytes;
    carry(t, s, gather.by, gather.kind, of.gather.bytes);
    carry(t, s, scatter.by, scatter.kind, of.scatter.bytes);
    return before_ns;
}

// ---- one after another ----

// The parts of the turn from the one under way on, which begins at_ns, up to one that is a flow.
static sp_status go_on(sp_i_traffic *t, int rank, int64_t at_ns, bool *is_under_way,
                       int64_t *end_ns, sp_error *err)
{
    sp_i_sharded *s = &t->sharded[rank];
    sp_status status = SP_OK;
    *is_under_way = false;
    *end_ns = at_ns;
    for (; status == SP_OK && s->phase < s->end_phase; s->phase++) {
        const sp_i_part *part = &s->parts[s->phase];
        if (part->alone_ns == 0 || !(part->bytes > 0.0)) {
            *end_ns += part->alone_ns;
            continue;
        }
        s->passing = (sp_i_passing){.passage = sp_i_passage_of(s->passages, part->by, part->kind),
                                    .part = *part};
        status = sp_i_pass_on(t, &s->passing, *end_ns, sp_i_tag(SP_I_SHARDED_OF, rank),
                              is_under_way, end_ns, err);
        if (*is_under_way) {
            break;
        }
    }
    return status;
}

sp_status sp_i_sharded_begin(sp_i_traffic *t, int rank, sp_i_turn turn, int64_t at_ns,
                             int64_t turn_ns, bool *is_under_way, int64_t *end_ns, sp_error *err)
{
    static const int first_phase[] = {SP_I_SHOWN_GATHER, SP_I_HIDDEN_GATHER, SP_I_SHOWN_SCATTER,
                                      SP_I_SHARDED_PHASES};
    sp_i_sharded *s = &t->sharded[rank];
    s->phase = first_phase[turn];
    s->end_phase = first_phase[turn + 1];
    if (turn == SP_I_BESIDE_WORK) {
        int64_t gather_ns = llround(s->gather_share * (double)turn_ns);
        s->parts[SP_I_HIDDEN_GATHER].alone_ns = gather_ns;
        s->parts[SP_I_HIDDEN_SCATTER].alone_ns = turn_ns - gather_ns;
    }
    return go_on(t, rank, at_ns, is_under_way, end_ns, err);
}

sp_status sp_i_sharded_ended(sp_i_traffic *t, int rank, int64_t now_ns, bool *is_under_way,
                             int64_t *end_ns, sp_error *err)
{
    sp_i_sharded *s = &t->sharded[rank];
    s->passing.leg++;
    sp_status status = sp_i_pass_on(t, &s->passing, now_ns, sp_i_tag(SP_I_SHARDED_OF, rank),
                                    is_under_way, end_ns, err);
    if (status == SP_OK && !*is_under_way) {
        s->phase++;
        status = go_on(t, rank, *end_ns, is_under_way, end_ns, err);
    }
    return status;
}
