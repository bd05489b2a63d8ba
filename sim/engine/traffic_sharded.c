// What ZeRO 2 and 3 exchange inside actions (cost/data_parallel.c), as flows.
#include <math.h>

#include "sim/base/units.h"
#include "sim/engine/traffic_private.h"

void sp_i_sharded_make(sp_i_traffic *t)
{
    const sp_layout *layout = &t->plan->layout;
    size_t ranks = (size_t)layout->dp * (size_t)layout->pp;
    if (t->costs->shards && layout->dp * layout->cp > 1) {
        t->sharded = sp_arena_take(&t->work, ranks, sizeof *t->sharded);
        t->shards = sp_arena_take(&t->work, (size_t)layout->pp, sizeof *t->shards);
    }
}

// What the data-parallel ranks gather and scatter in an action each.
typedef struct exchanged {
    sp_exchanged gather, scatter;
} exchanged;

static exchanged exchanged_in(const sp_i_traffic *t, const sp_walk_action *action)
{
    const sp_sharded_stage *stage = &t->costs->stages[action->vstage].sharded;
    bool regrouped = t->plan->packing->backward.count > 0;
    sp_exchanged back = stage->gather;
    back.bare_s = stage->backward_bare_s;
    switch ((sp_action_kind)action->place.action.kind) {
    case SP_ACTION_F:
        return (exchanged){.gather = stage->gather};
    case SP_ACTION_I:
        return (exchanged){.gather = back};
    case SP_ACTION_B:
        return (exchanged){back, stage->scatter};
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
    of->bare_s -= of->s > 0.0 ? saved_s * (of->bare_s / of->s) : 0.0;
    of->s -= saved_s;
    return saved_s;
}

// Of dp_ns, how much longer work takes that hides a share of an exchange. The rest has nothing
// beside it or does not fit behind work: dp = bare + beyond + share * (whole - bare - beyond).
static int64_t slowed_ns(double share, const exchanged *of, int64_t dp_ns)
{
    double beside_s = of->gather.s + of->scatter.s - of->gather.bare_s - of->scatter.bare_s;
    double added_s = (double)dp_ns / SP_NS_PER_S - of->gather.bare_s - of->scatter.bare_s;
    double beyond_s = share < 1.0 ? (added_s - share * beside_s) / (1.0 - share) : 0.0;
    double slowed_s = fmin(added_s, share * (beside_s - fmax(0.0, beyond_s)));
    return sp_ns_from_s(fmax(0.0, slowed_s));
}

static double hidden_s(const exchanged *of, int64_t shown_ns)
{
    return fmax(0.0, of->gather.s + of->scatter.s - (double)shown_ns / SP_NS_PER_S);
}

// An exchange that is shorter alone is hidden more, but for its bare part. Returns what nothing
// hides of it; *slows_ns is how much longer the work takes.
static int64_t shorten_all(const sp_i_sharded *s, const sp_sharded_stage *stage, exchanged *of,
                           int64_t dp_ns, int64_t *slows_ns)
{
    *slows_ns = slowed_ns(stage->overlap_share, of, dp_ns);
    int64_t closed_ns = dp_ns - *slows_ns;
    double closed_hidden_s = hidden_s(of, closed_ns);
    double saved_s = shorten(s, stage->gathers_by, SP_ALL_GATHER, &of->gather) +
                     shorten(s, stage->scatters_by, SP_REDUCE_SCATTER, &of->scatter);
    int64_t bare_ns = sp_ns_from_s(of->gather.bare_s + of->scatter.bare_s);
    int64_t shown_ns = sp_larger(bare_ns, closed_ns - sp_ns_from_s(saved_s));
    shown_ns = shown_ns < closed_ns ? shown_ns : closed_ns;
    if (closed_hidden_s > 0.0) {
        double left = hidden_s(of, shown_ns) / closed_hidden_s;
        *slows_ns = llround((double)*slows_ns * fmin(1.0, left));
    }
    return shown_ns;
}

// Gathers and scatters have equal shares of what is shown, and of what is hidden.
void sp_i_sharded_set(sp_i_traffic *t, const sp_walk_action *action, int64_t dp_ns,
                      int64_t turn_ns[SP_I_TURNS])
{
    turn_ns[SP_I_BEFORE_WORK] = turn_ns[SP_I_BESIDE_WORK] = 0;
    turn_ns[SP_I_BEHIND_WORK] = dp_ns;
    if (t->sharded == NULL) {
        return;
    }
    const sp_plan_place *place = &action->place;
    const sp_sharded_stage *stage = &t->costs->stages[action->vstage].sharded;
    sp_i_sharded *s = &t->sharded[sp_i_rank_of(t, place->dp, place->pp)];
    exchanged of = exchanged_in(t, action);
    int64_t shown_ns = shorten_all(s, stage, &of, dp_ns, &turn_ns[SP_I_BESIDE_WORK]);
    double whole_s = of.gather.s + of.scatter.s;
    double shown = sp_i_shown_share(shown_ns, whole_s);
    s->first_rank = sp_i_rank_of(t, sp_i_together(t, place).first, place->pp);
    s->gather_share = whole_s > 0.0 ? of.gather.s / whole_s : 0.0;
    int64_t before_ns = llround(s->gather_share * (double)shown_ns);
    turn_ns[SP_I_BEFORE_WORK] = before_ns;
    turn_ns[SP_I_BEHIND_WORK] = shown_ns - before_ns;
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
