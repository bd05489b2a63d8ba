#include "sim/cost/cost_model.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/cost/cost_private.h"
#include "sim/cost/op_time.h"
#include "sim/cost/pack_time.h"
#include "sim/cost/time_private.h"
#include "sim/plan/depends.h"

static void find_classes(sp_cost_model *cost);
static void find_reach(sp_cost_model *cost);

sp_status sp_cost_model_init(sp_cost_model *cost, const sp_model *model, const sp_layout *layout,
                             const sp_cluster *cluster, const sp_profile *profile,
                             sp_memory_options memory, const char *source, sp_error *err)
{
    *cost = (sp_cost_model){.model = model,
                            .layout = layout,
                            .cluster = cluster,
                            .profile = profile,
                            .memory = memory,
                            .source = source};
    size_t vstages = (size_t)sp_layout_vstages(layout);
    cost->stages = sp_calloc(vstages, sizeof *cost->stages);
    size_t most = sp_shares_are(layout) ? 2 * vstages + 2 : vstages;
    cost->class_stage = sp_calloc(most, sizeof *cost->class_stage);
    cost->class_of_vstage = sp_calloc(vstages, sizeof *cost->class_of_vstage);
    if (sp_shares_are(layout)) {
        cost->memory_class_of_vstage = sp_calloc(vstages, sizeof(int));
    }
    cost->least = sp_calloc(most * SP_LEAST_SLOPES, sizeof *cost->least);
    cost->sizes = sp_calloc(most * SP_LEAST_SIZES, sizeof *cost->sizes);
    cost->tried = sp_malloc(sizeof *cost->tried);
    cost->tried->count = 0;
    sp_status status = sp_layout_stages(layout, model->layers, source, cost->stages, err);
    if (status == SP_OK) {
        cost->packs = sp_i_pack_timer_new(model, layout, cluster, &cost->memory);
        status = sp_i_lone_lines_find(cost, err);
    }
    if (status != SP_OK) {
        sp_cost_model_fini(cost);
        return status;
    }
    find_classes(cost);
    find_reach(cost);
    sp_i_least_work_find(cost);
    return SP_OK;
}

void sp_cost_model_fini(sp_cost_model *cost)
{
    if (cost->searching != NULL) {
        sp_cost_model_fini(cost->searching);
        sp_free(cost->searching);
    }
    sp_i_pack_timer_free(cost->packs);
    sp_free(cost->lone);
    sp_free(cost->stages);
    sp_free(cost->class_stage);
    sp_free(cost->class_of_vstage);
    sp_free(cost->memory_class_of_vstage);
    sp_free(cost->least);
    sp_free(cost->sizes);
    sp_free(cost->tried);
    *cost = (sp_cost_model){0};
}

// The class of such a stage among those from `first` on, a new one where there is none.
static int class_of(sp_cost_model *cost, int first, const sp_stage *stage)
{
    int c = first;
    while (c < cost->classes && (cost->class_stage[c].layers != stage->layers ||
                                 cost->class_stage[c].embedding != stage->embedding ||
                                 cost->class_stage[c].head != stage->head)) {
        c++;
    }
    if (c == cost->classes) {
        cost->class_stage[cost->classes++] = *stage;
    }
    return c;
}

static void find_classes(sp_cost_model *cost)
{
    int vstages = sp_layout_vstages(cost->layout);
    for (int s = 0; s < vstages; s++) {
        cost->class_of_vstage[s] = class_of(cost, 0, &cost->stages[s]);
    }
    cost->stage_classes = cost->classes;
    if (!sp_shares_are(cost->layout)) {
        return;
    }
    cost->class_stage[cost->classes++] = (sp_stage){.embedding = true};
    cost->class_stage[cost->classes++] = (sp_stage){.head = true};
    for (int s = 0; s < vstages; s++) {
        sp_stage alone = {
            .layers = cost->stages[s].layers, .embedding = s == 0, .head = s + 1 == vstages};
        cost->memory_class_of_vstage[s] = class_of(cost, cost->stage_classes + 2, &alone);
    }
}

// What the number of nodes does to computation and launches.
static void find_reach(sp_cost_model *cost)
{
    const sp_layout *layout = cost->layout;
    double nodes = (double)sp_ceil_div(sp_layout_ranks(layout), cost->cluster->gpus_per_node);
    cost->slowest_rank = 1.0 + cost->profile->interference.doubling_share * log2(nodes);
    for (int r = 0; r + 1 < layout->pp; r++) {
        cost->pipeline_crosses_nodes = cost->pipeline_crosses_nodes ||
                                       sp_cluster_pp_crosses_node(cost->cluster, layout, r) != 0;
    }
}

void sp_cost_model_interpolate(sp_cost_model *cost)
{
    cost->approximate = cost->layout->zero < 2;
    sp_i_pack_timer_interpolate(cost->packs);
}

static sp_status add_searching(sp_cost_model *cost, sp_error *err)
{
    sp_cost_model *own = sp_malloc(sizeof *own);
    sp_status status = sp_cost_model_init(own, cost->model, cost->layout, cost->cluster,
                                          cost->profile, cost->memory, cost->source, err);
    if (status != SP_OK) {
        sp_free(own);
        return status;
    }
    sp_cost_model_interpolate(own);
    cost->searching = own;
    return SP_OK;
}

sp_status sp_cost_model_searching(sp_cost_model *cost, int index, sp_cost_model **searching,
                                  sp_error *err)
{
    sp_status status = cost->searching == NULL ? add_searching(cost, err) : SP_OK;
    if (status != SP_OK) {
        return status;
    }
    *searching = cost->searching;
    return index > 0 ? sp_cost_model_searching(*searching, index - 1, searching, err) : SP_OK;
}

double sp_cost_model_least_p2p_s(sp_cost_model *cost)
{
    sp_op_timer timer = sp_i_timer_of(cost);
    return fmin(sp_time_p2p(&timer, 0.0, 0), sp_time_p2p(&timer, 0.0, 1));
}

double sp_cost_model_sample_work_s(sp_cost_model *cost, int64_t tokens)
{
    double n = (double)tokens;
    return n * cost->work_per_token_s + n * n * cost->work_per_square_s;
}

double sp_cost_model_forward_s(sp_cost_model *cost, const sp_pack_list *list, const sp_pack *pack)
{
    sp_op_timer timer = sp_i_timer_of(cost);
    sp_i_pack_time time;
    double most_s = 0.0;
    sp_i_pack_time_of(cost->packs, &timer, list, pack, false, &time, NULL);
    for (int c = 0; c < cost->stage_classes; c++) {
        most_s =
            fmax(most_s, sp_i_price_passes_s(cost, &time, &cost->class_stage[c], 1u << SP_PASS_F));
    }
    return fmin(most_s, SP_I_MOST_S);
}

double sp_cost_model_pack_s(sp_cost_model *cost, const sp_pack_list *list, const sp_pack *pack)
{
    const unsigned back = 1u << SP_PASS_RECOMPUTE | 1u << SP_PASS_I | 1u << SP_PASS_W;
    sp_op_timer timer = sp_i_timer_of(cost);
    sp_i_pack_time time;
    double most_s = 0.0;
    sp_i_pack_times_of(cost->packs, &timer, list, pack, &time);
    for (int c = 0; c < cost->stage_classes; c++) {
        const sp_stage *stage = &cost->class_stage[c];
        most_s = fmax(most_s, sp_i_price_passes_s(cost, &time, stage, 1u << SP_PASS_F) +
                                  sp_i_price_passes_s(cost, &time, stage, back));
    }
    return fmin(most_s, SP_I_MOST_S);
}

static void forward_ns(const sp_cost_model *cost, const sp_op_timer *timer, const sp_pack *pack,
                       const sp_i_pack_time *time, int64_t *f_ns)
{
    for (int c = 0; c < cost->stage_classes; c++) {
        const sp_stage *stage = &cost->class_stage[c];
        if (cost->approximate) {
            f_ns[c] = sp_i_price_passes_ns(cost, timer, pack, time, stage, SP_I_FORWARD);
        } else {
            sp_action_cost f = sp_i_price_forward(cost, timer, pack, time, stage);
            f_ns[c] = sp_action_cost_ns(&f);
        }
    }
}

static void backward_ns(const sp_cost_model *cost, const sp_op_timer *timer, const sp_pack *pack,
                        const sp_i_pack_time *time, bool split, int64_t *b_ns, int64_t *w_ns)
{
    for (int c = 0; c < cost->stage_classes; c++) {
        const sp_stage *stage = &cost->class_stage[c];
        if (cost->approximate) {
            unsigned first = SP_I_AGAIN | SP_I_INPUTS | (split ? 0 : SP_I_WEIGHTS);
            b_ns[c] = sp_i_price_passes_ns(cost, timer, pack, time, stage, first);
            w_ns[c] =
                split ? sp_i_price_passes_ns(cost, timer, pack, time, stage, SP_I_WEIGHTS) : 0;
        } else {
            sp_i_price_backward_ns(cost, timer, pack, time, stage, split, &b_ns[c], &w_ns[c]);
        }
    }
}

sp_status sp_cost_model_forward_ns(sp_cost_model *cost, const sp_pack_list *list,
                                   const sp_pack *pack, int64_t *f_ns, sp_error *err)
{
    sp_op_timer timer = sp_i_timer_of(cost);
    sp_i_pack_time time;
    sp_i_pack_time_of(cost->packs, &timer, list, pack, false, &time, err);
    forward_ns(cost, &timer, pack, &time, f_ns);
    return SP_OK;
}

sp_status sp_cost_model_backward_ns(sp_cost_model *cost, const sp_pack_list *list,
                                    const sp_pack *pack, bool split, int64_t *b_ns, int64_t *w_ns,
                                    sp_error *err)
{
    sp_op_timer timer = sp_i_timer_of(cost);
    sp_i_pack_time time;
    sp_i_pack_time_of(cost->packs, &timer, list, pack, true, &time, err);
    backward_ns(cost, &timer, pack, &time, split, b_ns, w_ns);
    return SP_OK;
}

sp_status sp_cost_model_both_ns(sp_cost_model *cost, const sp_pack_list *list, const sp_pack *pack,
                                bool split, int64_t *f_ns, int64_t *b_ns, int64_t *w_ns,
                                sp_error *err)
{
    sp_op_timer timer = sp_i_timer_of(cost);
    sp_i_pack_time time;
    sp_i_pack_times_of(cost->packs, &timer, list, pack, &time);
    forward_ns(cost, &timer, pack, &time, f_ns);
    backward_ns(cost, &timer, pack, &time, split, b_ns, w_ns);
    (void)err;
    return SP_OK;
}
