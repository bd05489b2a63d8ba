// The ways of data-parallel ranks' exchanges: for each pipeline rank those of every collective and
// algorithm that its costs name, all ranks together, or each by itself in actions.
#include <math.h>

#include "sim/base/units.h"
#include "sim/engine/traffic_private.h"

// One ring serves both halves of an all-reduce.
static void find_key(sp_collective_algorithm *algorithm, sp_collective *kind)
{
    if (*algorithm == SP_ALGORITHM_PROFILE) {
        *algorithm = SP_ALGORITHM_RING;
    }
    if (*algorithm == SP_ALGORITHM_RING && *kind == SP_ALL_GATHER) {
        *kind = SP_REDUCE_SCATTER;
    }
}

const sp_i_passage *sp_i_passage_of(const sp_i_passage *passages, sp_collective_algorithm algorithm,
                                    sp_collective kind)
{
    const sp_i_passage *passage = passages;
    find_key(&algorithm, &kind);
    while (passage != NULL && (passage->algorithm != algorithm || passage->kind != kind)) {
        passage = passage->next;
    }
    return passage;
}

// Uses the ways of a passage that has been made; all of a list follow each other.
static void use(sp_i_traffic *t, sp_i_passage *passage, sp_i_passage **list)
{
    for (int i = 0; i < passage->of.count; i++) {
        sp_i_way *way = &passage->ways[i];
        if (t->costs->lone_times) {
            sp_route_settle(&passage->of.legs[i].route);
        }
        way->route = passage->of.legs[i].route;
        sp_i_use_way(t, way);
        way->owner = *list != NULL ? (*list)->ways[0].owner : passage->ways[0].owner;
    }
    passage->next = *list;
    *list = passage;
}

// What all data-parallel ranks of a pipeline rank pass on together, into the list of its reduction,
// or what each of them gets by itself, into its own. Those all have what the first one has.
static void add(sp_i_traffic *t, int pp_rank, bool by_parts, sp_collective_algorithm algorithm,
                sp_collective kind, const int64_t *gpus)
{
    const sp_layout *layout = &t->plan->layout;
    const sp_route_parts split = {sp_layout_stride(layout, SP_AXIS_DP), by_parts ? layout->dp : 1};
    sp_i_passage **first =
        by_parts ? &t->sharded[pp_rank].passages : &t->reductions[pp_rank].passages;
    if (sp_i_passage_of(*first, algorithm, kind) != NULL) {
        return;
    }
    sp_i_passage *made = sp_arena_take(&t->work, (size_t)split.count, sizeof *made);
    sp_passage *parts = sp_malloc((size_t)split.count * sizeof *parts);
    find_key(&algorithm, &kind);
    sp_passage_make_parts(t->topology, algorithm, kind, gpus, layout->tp, layout->dp * layout->cp,
                          split, parts);
    for (int d = 0; d < split.count; d++) {
        made[d] = (sp_i_passage){.algorithm = algorithm, .kind = kind, .of = parts[d]};
        use(t, &made[d], by_parts ? &t->sharded[sp_i_rank_of(t, d, pp_rank)].passages : first);
    }
    sp_free(parts);
}

static void make_of(sp_i_traffic *t, int pp_rank, const int64_t *gpus)
{
    const sp_epilogue_cost *epilogue = &t->costs->ranks[pp_rank].epilogue;
    sp_collective reduces = t->plan->layout.zero == 0 ? SP_ALL_REDUCE : SP_REDUCE_SCATTER;
    int chunks = t->costs->buckets != NULL ? t->plan->layout.chunks : 0;
    for (int c = 0; c < chunks; c++) {
        const sp_bucket_cost *bucket = &t->costs->buckets[pp_rank * chunks + c];
        if (bucket->total_ns > 0) {
            add(t, pp_rank, false, bucket->reduces_by, reduces, gpus);
        }
    }
    if (epilogue->grad_reduce_ns > epilogue->tied_reduce_ns) {
        add(t, pp_rank, false, epilogue->reduces_by, reduces, gpus);
    }
    if (epilogue->param_gather_ns > 0) {
        add(t, pp_rank, false, epilogue->gathers_by, SP_ALL_GATHER, gpus);
    }
}

// Of what ZeRO exchanges in actions.
static void make_sharded(sp_i_traffic *t, int pp_rank, const int64_t *gpus)
{
    const sp_layout *layout = &t->plan->layout;
    for (int c = 0; c < layout->chunks; c++) {
        const sp_sharded_stage *stage =
            &t->costs->stages[sp_layout_vstage(layout, pp_rank, c)].sharded;
        if (stage->gather.bytes > 0.0) {
            add(t, pp_rank, true, stage->gathers_by, SP_ALL_GATHER, gpus);
        }
        if (stage->scatter.bytes > 0.0) {
            add(t, pp_rank, true, stage->scatters_by, SP_REDUCE_SCATTER, gpus);
        }
    }
}

void sp_i_passages_make(sp_i_traffic *t, int64_t *gpus)
{
    for (int p = 0; p < t->plan->layout.pp; p++) {
        if (t->reductions[p].exchanges || t->sharded != NULL) {
            sp_layout_list_joint(&t->plan->layout, 0, t->plan->layout.dp, p, gpus);
        }
        if (t->reductions[p].exchanges) {
            make_of(t, p, gpus);
        }
        if (t->sharded != NULL) {
            make_sharded(t, p, gpus);
        }
    }
}

double sp_i_passage_saved_s(const sp_i_passage *passage, double bytes, double closed_s)
{
    return passage != NULL ? closed_s - sp_passage_lone_s(&passage->of, bytes, closed_s) : 0.0;
}

// Where a leg ends of a collective that takes alone_ns in all.
static int64_t leg_end_ns(const sp_i_passage *passage, const sp_i_part *part, int leg)
{
    double before_s = 0.0;
    double whole_s = 0.0;
    if (leg < 0 || leg + 1 == passage->of.count) {
        return leg < 0 ? 0 : part->alone_ns;
    }
    for (int i = 0; i < passage->of.count; i++) {
        double s = sp_leg_s(&passage->of.legs[i], part->bytes);
        before_s += i <= leg ? s : 0.0;
        whole_s += s;
    }
    return llround((double)part->alone_ns * (before_s / whole_s));
}

sp_status sp_i_pass_on(sp_i_traffic *t, sp_i_passing *passing, int64_t at_ns, int64_t tag,
                       bool *is_under_way, int64_t *end_ns, sp_error *err)
{
    const sp_i_passage *passage = passing->passage;
    const sp_i_part *part = &passing->part;
    for (; passing->leg < passage->of.count; passing->leg++) {
        const sp_leg *leg = &passage->of.legs[passing->leg];
        const sp_i_way *way = &passage->ways[passing->leg];
        int64_t leg_ns =
            leg_end_ns(passage, part, passing->leg) - leg_end_ns(passage, part, passing->leg - 1);
        if (way->is_flow && leg_ns > 0) {
            sp_flow flow = sp_route_flow_of(&way->route, at_ns, leg->share * part->bytes,
                                            leg->rounds, (double)leg_ns / SP_NS_PER_S);
            flow.tag = tag;
            *is_under_way = true;
            return sp_i_traffic_start(t, &flow, NULL, err);
        }
        at_ns += leg_ns;
    }
    *is_under_way = false;
    *end_ns = at_ns;
    return SP_OK;
}
