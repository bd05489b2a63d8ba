// The ways of data-parallel ranks' exchanges: for each pipeline rank those of every collective and
// algorithm that its costs name.
#include <math.h>

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

const sp_i_passage *sp_i_passage_of(const sp_i_reduction *reduction,
                                    sp_collective_algorithm algorithm, sp_collective kind)
{
    find_key(&algorithm, &kind);
    const sp_i_passage *passage = reduction->passages;
    while (passage != NULL && (passage->algorithm != algorithm || passage->kind != kind)) {
        passage = passage->next;
    }
    return passage;
}

static sp_status add(sp_i_traffic *t, sp_i_reduction *r, sp_collective_algorithm algorithm,
                     sp_collective kind, const int64_t *gpus, sp_error *err)
{
    const sp_layout *layout = &t->plan->layout;
    if (sp_i_passage_of(r, algorithm, kind) != NULL) {
        return SP_OK;
    }
    sp_i_passage *passage = sp_arena_take(&t->work, 1, sizeof *passage);
    if (passage == NULL) {
        return sp_error_no_memory(err, "the traffic of a step");
    }
    find_key(&algorithm, &kind);
    passage->algorithm = algorithm;
    passage->kind = kind;
    sp_status status = sp_passage_make(t->topology, algorithm, kind, gpus, layout->tp,
                                       layout->dp * layout->cp, &passage->of, err);
    for (int i = 0; status == SP_OK && i < passage->of.count; i++) {
        sp_i_way *way = &passage->ways[i];
        way->route = passage->of.legs[i].route;
        sp_i_use_way(t, way);
        way->owner = r->passages != NULL ? r->passages->ways[0].owner : passage->ways[0].owner;
    }
    if (status == SP_OK) {
        passage->next = r->passages;
        r->passages = passage;
    }
    return status;
}

static sp_status make_of(sp_i_traffic *t, int pp_rank, const int64_t *gpus, sp_error *err)
{
    const sp_epilogue_cost *epilogue = &t->costs->epilogue[pp_rank];
    sp_i_reduction *r = &t->reductions[pp_rank];
    sp_collective reduces = t->plan->layout.zero == 0 ? SP_ALL_REDUCE : SP_REDUCE_SCATTER;
    int chunks = t->costs->buckets != NULL ? t->plan->layout.chunks : 0;
    sp_status status = SP_OK;
    for (int c = 0; status == SP_OK && c < chunks; c++) {
        const sp_bucket_cost *bucket = &t->costs->buckets[pp_rank * chunks + c];
        if (bucket->total_ns > 0) {
            status = add(t, r, bucket->reduces_by, reduces, gpus, err);
        }
    }
    if (status == SP_OK && epilogue->grad_reduce_ns > epilogue->tied_reduce_ns) {
        status = add(t, r, epilogue->reduces_by, reduces, gpus, err);
    }
    if (status == SP_OK && epilogue->param_gather_ns > 0) {
        status = add(t, r, epilogue->gathers_by, SP_ALL_GATHER, gpus, err);
    }
    return status;
}

sp_status sp_i_passages_make(sp_i_traffic *t, int64_t *gpus, sp_error *err)
{
    sp_status status = SP_OK;
    for (int p = 0; status == SP_OK && p < t->plan->layout.pp; p++) {
        if (t->reductions[p].exchanges) {
            sp_i_list_joint(t, 0, t->plan->layout.dp, p, gpus);
            status = make_of(t, p, gpus, err);
        }
    }
    return status;
}

int64_t sp_i_leg_end_ns(const sp_i_passage *passage, const sp_i_part *part, int leg)
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
