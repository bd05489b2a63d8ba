// The cost model of a scenario: classes of stages, the price of a pack on each of them, and the
// tables of a whole packing.
#include "sim/cost/cost_model.h"
#include "sim/memory/saved_tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/cost/cost_private.h"
#include "sim/cost/op_time.h"
#include "sim/plan/depends.h"
#include "sim/plan/packing.h"

#define BYTES_BF16 2.0

// Layers of the same kinds in the same order, and the same ends?
static bool is_alike_stage(const sp_model *model, const sp_stage *a, const sp_stage *b)
{
    bool alike = a->layers == b->layers && a->embedding == b->embedding && a->head == b->head;
    for (int i = 0; alike && model->runs > 0 && i < a->layers; i++) {
        alike = sp_model_kind_of(model, a->first + i) == sp_model_kind_of(model, b->first + i);
    }
    return alike;
}

// The class of such a stage among those from `first` on, a new one where there is none.
static int class_of(sp_cost_model *cost, int first, const sp_stage *stage)
{
    int c = first;
    while (c < cost->classes && !is_alike_stage(cost->model, &cost->class_stage[c], stage)) {
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
        sp_stage alone = cost->stages[s];
        alone.embedding = s == 0;
        alone.head = s + 1 == vstages;
        cost->memory_class_of_vstage[s] = class_of(cost, cost->stage_classes + 2, &alone);
    }
}

static void find_expert_exchanges(sp_cost_model *cost)
{
    static const sp_pass passes[SP_EXPERT_PASSES] = {SP_PASS_F, SP_PASS_I, SP_PASS_RECOMPUTE};
    const sp_op_timer timer = sp_i_timer_of(cost);
    if (!sp_layout_dispatches(cost->layout)) {
        return;
    }
    int count = sp_layout_vstages(cost->layout) * SP_EXPERT_PASSES;
    cost->experts = sp_calloc((size_t)count, sizeof *cost->experts);
    for (int i = 0; i < count; i++) {
        cost->experts[i] = sp_i_expert_exchange_of(
            cost->packs, &timer, &cost->stages[i / SP_EXPERT_PASSES], passes[i % SP_EXPERT_PASSES]);
    }
}

// With delayed scaling TP ranks and replicas agree on the largest number of each tensor whenever a
// chunk's forward or backward ends (Transformer Engine, fp8.py, reduce_and_update_fp8_tensors): of
// input, weight and output's gradient of some four products a layer.
static double maxima_s(sp_cost_model *cost)
{
    const sp_layout *layout = cost->layout;
    const sp_step_precision *precision = &cost->memory.stack.precision;
    if (!sp_precision_is_fp8(precision) || precision->recipe != SP_FP8_DELAYED) {
        return 0.0;
    }
    sp_op_timer timer = sp_i_timer_of(cost);
    timer.uncalibrated = NULL; // a few bytes: nothing but latency
    double bytes =
        3.0 * 4.0 * sizeof(float) * sp_model_all_layers(cost->model) / sp_layout_vstages(layout);
    return sp_time_collective(&timer, SP_ALL_REDUCE,
                              sp_cluster_group(cost->cluster, layout, SP_DIM_TP), bytes) +
           sp_time_collective(&timer, SP_ALL_REDUCE,
                              sp_cluster_group(cost->cluster, layout, SP_DIM_DP_CP), bytes);
}

// Finds what the number of nodes does to computation and launches.
static void find_reach(sp_cost_model *cost)
{
    const sp_layout *layout = cost->layout;
    double nodes = (double)sp_ceil_div(sp_layout_ranks(layout), cost->cluster->gpus_per_node);
    cost->slowest_rank = 1.0 + cost->profile->interference.doubling_share * log2(nodes);
    for (int r = 0; r + 1 < layout->pp; r++) {
        cost->pipeline_crosses_nodes = cost->pipeline_crosses_nodes ||
                                       sp_cluster_pp_crosses_node(cost->cluster, layout, r) != 0;
    }
    cost->maxima_s = maxima_s(cost);
}

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
    cost->least = sp_calloc(most * (SP_LEAST_SLOPES + 1), sizeof *cost->least);
    cost->sizes = sp_calloc(most * SP_LEAST_SIZES, sizeof *cost->sizes);
    cost->tried = sp_malloc(sizeof *cost->tried);
    cost->tried->count = 0;
    sp_status status = sp_layout_stages(layout, model, source, cost->stages, err);
    if (status == SP_OK) {
        cost->load = sp_expert_load_new(model, layout, cost->stages);
        cost->packs = sp_i_pack_timer_new(model, layout, cluster, &cost->memory, cost->load);
        status = sp_i_find_spine_lines(cost, err);
    }
    if (status != SP_OK) {
        sp_cost_model_fini(cost);
        return status;
    }
    find_classes(cost);
    find_expert_exchanges(cost);
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
    sp_expert_load_free(cost->load);
    sp_free(cost->spine);
    sp_free(cost->experts);
    sp_free(cost->stages);
    sp_free(cost->class_stage);
    sp_free(cost->class_of_vstage);
    sp_free(cost->memory_class_of_vstage);
    sp_free(cost->least);
    sp_free(cost->sizes);
    sp_free(cost->tried);
    *cost = (sp_cost_model){0};
}

void sp_cost_model_interpolate(sp_cost_model *cost)
{
    cost->approximate = sp_layout_zero_in_step(cost->layout) < 2;
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
    SP_TRY(cost->searching == NULL ? add_searching(cost, err) : SP_OK);
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
    sp_sample_sums sums = {0};
    sp_sample_sums_add(&sums, cost->model, tokens);
    return sp_least_work_s(&cost->work, &sums);
}

double sp_cost_model_held_rows(const sp_cost_model *cost, int64_t call, int64_t tokens)
{
    const sp_pack pack = {.dp_count = 1};
    return cost->load == NULL
               ? 1.0
               : sp_expert_load_of(cost->load, call,
                                   sp_i_group_tokens(cost->model, cost->layout, &pack, tokens))
                     .held;
}

// ---- the actions of one pack on one virtual stage ----

static sp_i_time sum(sp_i_time a, double times, sp_i_time b)
{
    return (sp_i_time){a.compute_s + times * b.compute_s,
                       a.tp_s + times * b.tp_s,
                       a.cp_s + times * b.cp_s,
                       a.ep_s + times * b.ep_s,
                       a.ep_wait_s + times * b.ep_wait_s,
                       a.ep_beside_s + times * b.ep_beside_s,
                       a.attention_s + times * b.attention_s};
}

static inline sp_i_time stage_time(const sp_cost_model *cost, const sp_i_pack_time *time,
                                   const sp_stage *stage, sp_pass pass)
{
    sp_i_time total = {0};
    total = sum(total, sp_stage_count(stage, cost->model, 0), time->of[SP_PART_LAYER][pass]);
    for (int k = 1; k < sp_model_kinds(cost->model); k++) {
        total = sum(total, stage->count[k], time->of[sp_i_part_of_kind(k)][pass]);
    }
    total = sum(total, stage->embedding, time->of[SP_PART_EMBEDDING][pass]);
    total = sum(total, stage->head, time->of[SP_PART_HEAD][pass]);
    total.compute_s *= cost->slowest_rank;
    total.attention_s *= cost->slowest_rank;
    return total;
}

static double gpu_s_of(const sp_cost_model *cost, const sp_i_pack_time *time, const sp_stage *stage,
                       unsigned passes)
{
    double gpu_s = 0.0;
    for (int pass = 0; pass < SP_I_PASSES; pass++) {
        if ((passes >> pass & 1u) != 0) {
            sp_i_time part = stage_time(cost, time, stage, (sp_pass)pass);
            gpu_s += part.compute_s + part.tp_s + part.cp_s + part.ep_s;
        }
    }
    return gpu_s;
}

static int expert_layers(const sp_cost_model *cost, const sp_stage *stage)
{
    const sp_model *model = cost->model;
    int layers = model->runs == 0 && model->experts > 0 ? stage->layers : 0;
    for (int k = 0; k < (model->runs > 0 ? model->kinds : 0); k++) {
        layers += model->kind[k].experts > 0 ? stage->count[k] : 0;
    }
    return layers;
}

static double launch_wait_behind_s(const sp_cost_model *cost, const sp_i_pack_time *time,
                                   const sp_stage *stage, unsigned passes, double gpu_s)
{
    const sp_host_model *host = &cost->profile->host;
    const int routed = host->expert_layer_s > 0.0 ? expert_layers(cost, stage) : 0;
    double host_s = 0.0;
    double unit_s = 0.0;
    for (int pass = 0; pass < SP_I_PASSES; pass++) {
        if ((passes >> pass & 1u) != 0) {
            host_s += sp_i_exec_s(host, time, stage, (sp_pass)pass, cost->pipeline_crosses_nodes) +
                      sp_i_experts_exec_s(host, time, routed, (sp_pass)pass);
            unit_s += sp_i_unit_share[pass] * host->unit_s;
            unit_s += pass == SP_PASS_F || pass == SP_PASS_I ? cost->maxima_s : 0.0;
        }
    }
    if (cost->memory.stack.blocking_launches) {
        return host_s + unit_s;
    }
    return sp_i_launch_wait_s(host, gpu_s, host_s) + unit_s;
}

// How much longer an action of these passes (bits 1 << pass) takes than the GPU works, because it
// waits for launches and, after it, for maxima of FP8, and the unit's fixed time.
static double launch_wait_s(const sp_cost_model *cost, const sp_i_pack_time *time,
                            const sp_stage *stage, unsigned passes)
{
    return launch_wait_behind_s(cost, time, stage, passes, gpu_s_of(cost, time, stage, passes));
}

static double price_passes_s(const sp_cost_model *cost, const sp_i_pack_time *time,
                             const sp_stage *stage, unsigned passes)
{
    double gpu_s = gpu_s_of(cost, time, stage, passes);
    return gpu_s + launch_wait_behind_s(cost, time, stage, passes, gpu_s);
}

static void add_launch_wait(const sp_cost_model *cost, const sp_i_pack_time *time,
                            const sp_stage *stage, unsigned passes, sp_action_cost *action)
{
    action->launch_ns = sp_i_cut_ns(launch_wait_s(cost, time, stage, passes));
    action->compute_ns += action->launch_ns;
}

static sp_action_cost rounded(sp_i_time time)
{
    int64_t wait_ns = sp_i_cut_ns(time.ep_wait_s);
    return (sp_action_cost){.compute_ns = sp_i_cut_ns(time.compute_s),
                            .tp_ns = sp_i_cut_ns(time.tp_s),
                            .cp_ns = sp_i_cut_ns(time.cp_s),
                            .ep_ns = sp_i_cut_ns(time.ep_s - time.ep_wait_s) + wait_ns,
                            .ep_wait_ns = wait_ns,
                            .ep_beside_ns = sp_i_cut_ns(time.ep_beside_s),
                            .attention_ns = sp_i_cut_ns(time.attention_s)};
}

// With the vocabulary spread over the pipeline ranks every one of them needs the last hidden
// states, and gives back its part of their gradient: once over the pipeline and pack, each way.
// Counted with the TP communication, which blocks, too.
static double vocabulary_exchange_s(const sp_cost_model *cost, const sp_op_timer *timer,
                                    const sp_pack *pack, const sp_layout *layout,
                                    const sp_stage *stage, sp_collective kind)
{
    if (!layout->vocab_parallel || !stage->head) {
        return 0.0;
    }
    double bytes =
        (double)pack->computed / layout->cp / layout->tp * (double)cost->model->hidden * BYTES_BF16;
    return sp_time_collective(timer, kind, sp_cluster_group(cost->cluster, cost->layout, SP_DIM_PP),
                              bytes);
}

// Its nanoseconds with the exchanges of a spread vocabulary, parts not rounded apart.
static int64_t price_passes_ns(const sp_cost_model *cost, const sp_op_timer *timer,
                               const sp_pack *pack, const sp_i_pack_time *time,
                               const sp_stage *stage, unsigned passes)
{
    double time_s = price_passes_s(cost, time, stage, passes);
    if ((passes & SP_I_FORWARD) != 0) {
        time_s += vocabulary_exchange_s(cost, timer, pack, time->layout, stage, SP_ALL_GATHER);
    }
    if ((passes & SP_I_INPUTS) != 0) {
        time_s += vocabulary_exchange_s(cost, timer, pack, time->layout, stage, SP_REDUCE_SCATTER);
    }
    return sp_i_cut_ns(time_s);
}

sp_action_cost sp_i_price_forward(const sp_cost_model *cost, const sp_op_timer *timer,
                                  const sp_pack *pack, const sp_i_pack_time *time,
                                  const sp_stage *stage)
{
    sp_action_cost f = rounded(stage_time(cost, time, stage, SP_PASS_F));
    f.tp_ns +=
        sp_i_cut_ns(vocabulary_exchange_s(cost, timer, pack, time->layout, stage, SP_ALL_GATHER));
    add_launch_wait(cost, time, stage, 1u << SP_PASS_F, &f);
    sp_i_zero_forward(cost, timer, stage, time, &f);
    return f;
}

// The sum of the rounded halves, so that a split backward does exactly the work of the whole one.
static sp_action_cost sum_of(sp_action_cost a, sp_action_cost b)
{
    return (sp_action_cost){.compute_ns = a.compute_ns + b.compute_ns,
                            .tp_ns = a.tp_ns + b.tp_ns,
                            .cp_ns = a.cp_ns + b.cp_ns,
                            .dp_ns = a.dp_ns + b.dp_ns,
                            .ep_ns = a.ep_ns + b.ep_ns,
                            .ep_wait_ns = a.ep_wait_ns + b.ep_wait_ns,
                            .ep_beside_ns = a.ep_beside_ns + b.ep_beside_ns,
                            .attention_ns = a.attention_ns + b.attention_ns,
                            .launch_ns = a.launch_ns + b.launch_ns,
                            .again_ns = a.again_ns + b.again_ns};
}

// Without what waiting for launches and sharded parameters add.
static void price_work(const sp_cost_model *cost, const sp_op_timer *timer, const sp_pack *pack,
                       const sp_i_pack_time *time, const sp_stage *stage,
                       sp_action_cost of[SP_ACTION_O])
{
    sp_action_cost *r = &of[SP_ACTION_R];
    sp_action_cost *i = &of[SP_ACTION_I];
    *r = rounded(stage_time(cost, time, stage, SP_PASS_RECOMPUTE));
    r->again_ns = r->compute_ns;
    *i = sum_of(rounded(stage_time(cost, time, stage, SP_PASS_I)), *r);
    i->tp_ns += sp_i_cut_ns(
        vocabulary_exchange_s(cost, timer, pack, time->layout, stage, SP_REDUCE_SCATTER));
    of[SP_ACTION_W] = rounded(stage_time(cost, time, stage, SP_PASS_W));
    of[SP_ACTION_B] = sum_of(*i, of[SP_ACTION_W]);
}

static const unsigned passes_of[SP_ACTION_O] = {
    [SP_ACTION_B] = SP_I_AGAIN | SP_I_INPUTS | SP_I_WEIGHTS,
    [SP_ACTION_I] = SP_I_AGAIN | SP_I_INPUTS,
    [SP_ACTION_W] = SP_I_WEIGHTS,
    [SP_ACTION_R] = SP_I_AGAIN,
};

// The backward of a pack by kind of action.
static void price_backward(const sp_cost_model *cost, const sp_op_timer *timer, const sp_pack *pack,
                           const sp_i_pack_time *time, const sp_stage *stage,
                           sp_action_cost of[SP_ACTION_O])
{
    price_work(cost, timer, pack, time, stage, of);
    for (int kind = SP_ACTION_B; kind <= SP_ACTION_R; kind++) {
        add_launch_wait(cost, time, stage, passes_of[kind], &of[kind]);
    }
    sp_i_zero_backward(cost, timer, stage, time, of);
}

// The time of its whole backward (w_ns: 0) alone or, `split`, of both gradients.
static void price_backward_ns(const sp_cost_model *cost, const sp_op_timer *timer,
                              const sp_pack *pack, const sp_i_pack_time *time,
                              const sp_stage *stage, bool split, int64_t *b_ns, int64_t *w_ns)
{
    int first = split ? SP_ACTION_I : SP_ACTION_B;
    int last = split ? SP_ACTION_W : SP_ACTION_B;
    sp_action_cost of[SP_ACTION_O];
    price_work(cost, timer, pack, time, stage, of);
    for (int kind = first; kind <= last; kind++) {
        add_launch_wait(cost, time, stage, passes_of[kind], &of[kind]);
    }
    sp_i_zero_backward(cost, timer, stage, time, of);
    *b_ns = sp_action_cost_ns(&of[first]);
    *w_ns = split ? sp_action_cost_ns(&of[SP_ACTION_W]) : 0;
}

static double growth_of(const sp_host_model *host, const sp_i_pack_time *time)
{
    return 1.0 + host->tp_growth * log2((double)time->layout->tp);
}

static double layer_s(const sp_host_model *host, const sp_i_pack_time *time, sp_pass pass,
                      bool pipeline_crosses_nodes)
{
    if (!(host->layer_s + host->tp_rank_s + host->softmax_s + host->cp_step_s > 0.0)) {
        return 0.0;
    }
    int tp = time->layout->tp;
    double growth = growth_of(host, time);
    double launches = 0.25 * host->layer_s * growth;
    if (tp > 1 && pipeline_crosses_nodes) {
        launches += 0.25 * host->tp_rank_s * tp;
    }
    double softmax = host->softmax_s * growth * time->unfused_softmax;
    double ring = 0.5 * host->cp_step_s * time->ring_steps;
    switch (pass) {
    case SP_PASS_F:
        return launches + softmax + ring;
    case SP_PASS_I:
        return launches + 0.5 * softmax + ring;
    case SP_PASS_W:
        return launches;
    case SP_PASS_RECOMPUTE:
        return launches * time->recompute_share +
               (time->recomputes_attention ? softmax + ring : 0.0);
    }
    SP_UNREACHABLE("a pass");
}

double sp_i_exec_s(const sp_host_model *host, const sp_i_pack_time *time, const sp_stage *stage,
                   sp_pass pass, bool pipeline_crosses_nodes)
{
    double embedding_and_head = 0.0;
    if (pass == SP_PASS_F) {
        embedding_and_head = (stage->embedding ? 0.2 : 0.0) + (stage->head ? 0.4 : 0.0);
    } else if (pass == SP_PASS_I) {
        embedding_and_head = stage->head ? 0.4 : 0.0;
    }
    return stage->layers * layer_s(host, time, pass, pipeline_crosses_nodes) +
           embedding_and_head * host->head_s;
}

double sp_i_experts_exec_s(const sp_host_model *host, const sp_i_pack_time *time, int layers,
                           sp_pass pass)
{
    const double share = pass == SP_PASS_RECOMPUTE ? time->recompute_share : 1.0;
    return 0.25 * layers * host->expert_layer_s * growth_of(host, time) * share;
}

double sp_i_launch_wait_s(const sp_host_model *host, double gpu_s, double host_s)
{
    double longer = fmax(gpu_s, host_s);
    double shorter = fmin(gpu_s, host_s);
    if (!(shorter > 0.0)) {
        return longer - gpu_s;
    }
    double q = host->overlap_power;
    double norm = q > 0.0 ? longer * pow(1.0 + pow(shorter / longer, q), 1.0 / q) : longer;
    return norm - gpu_s;
}

// ---- packs that are tried ----

// On the slowest class of stages.
static double slowest_s(sp_cost_model *cost, const sp_pack_list *list, const sp_pack *pack,
                        bool backward)
{
    sp_op_timer timer = sp_i_timer_of(cost);
    sp_i_pack_time time;
    double most_s = 0.0;
    sp_i_pack_time_of(cost->packs, &timer, list, pack, true, backward, &time);
    for (int c = 0; c < cost->stage_classes; c++) {
        const sp_stage *stage = &cost->class_stage[c];
        double forward_s = price_passes_s(cost, &time, stage, SP_I_FORWARD);
        double backward_s =
            backward ? price_passes_s(cost, &time, stage, SP_I_AGAIN | SP_I_INPUTS | SP_I_WEIGHTS)
                     : 0.0;
        most_s = fmax(most_s, forward_s + backward_s);
    }
    return fmin(most_s, SP_I_MOST_S);
}

double sp_cost_model_forward_s(sp_cost_model *cost, const sp_pack_list *list, const sp_pack *pack)
{
    return slowest_s(cost, list, pack, false);
}

double sp_cost_model_pack_s(sp_cost_model *cost, const sp_pack_list *list, const sp_pack *pack)
{
    return slowest_s(cost, list, pack, true);
}

static void forward_ns(const sp_cost_model *cost, const sp_op_timer *timer, const sp_pack *pack,
                       const sp_i_pack_time *time, int64_t *f_ns)
{
    for (int c = 0; c < cost->stage_classes; c++) {
        const sp_stage *stage = &cost->class_stage[c];
        if (cost->approximate) {
            f_ns[c] = price_passes_ns(cost, timer, pack, time, stage, SP_I_FORWARD);
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
            b_ns[c] = price_passes_ns(cost, timer, pack, time, stage, first);
            w_ns[c] = split ? price_passes_ns(cost, timer, pack, time, stage, SP_I_WEIGHTS) : 0;
        } else {
            price_backward_ns(cost, timer, pack, time, stage, split, &b_ns[c], &w_ns[c]);
        }
    }
}

void sp_cost_model_pack_ns(sp_cost_model *cost, const sp_pack_list *list, const sp_pack *pack,
                           bool split, int64_t *f_ns, int64_t *b_ns, int64_t *w_ns)
{
    sp_op_timer timer = sp_i_timer_of(cost);
    sp_i_pack_time time;
    sp_i_pack_time_of(cost->packs, &timer, list, pack, f_ns != NULL, b_ns != NULL, &time);
    if (f_ns != NULL) {
        forward_ns(cost, &timer, pack, &time, f_ns);
    }
    if (b_ns != NULL) {
        backward_ns(cost, &timer, pack, &time, split, b_ns, w_ns);
    }
}

// ---- what a pipeline rank has apart from its packs ----

// Beyond the last position of any slice.
static int64_t positions_of(const sp_pack_list *list)
{
    int64_t positions = 0;
    for (size_t s = 0; s < list->slice_count; s++) {
        int64_t end = list->slices[s].begin + list->slices[s].computed_tokens;
        positions = end > positions ? end : positions;
    }
    return positions;
}

static void fill_ranks(sp_cost_model *cost, const sp_packing *packing, sp_step_costs *costs)
{
    const sp_layout *layout = cost->layout;
    sp_op_timer timer = sp_i_timer_of(cost);
    sp_stage *held = sp_calloc((size_t)layout->chunks, sizeof *held);
    int64_t rotary =
        sp_footprint_rotary(cost->model, &cost->memory.stack, positions_of(&packing->forward));
    for (int r = 0; r < layout->pp; r++) {
        for (int c = 0; c < layout->chunks; c++) {
            held[c] = cost->stages[sp_layout_vstage(layout, r, c)];
        }
        sp_footprint_states(cost->model, layout, &cost->memory.stack, held, layout->chunks,
                            &costs->ranks[r].states);
        costs->ranks[r].states.of[SP_MEM_WORKSPACE] += rotary;
        costs->crosses_nodes[r] = sp_cluster_pp_crosses_node(cost->cluster, layout, r) != 0;
    }
    for (int s = 0; s < sp_layout_vstages(layout); s++) {
        costs->stages[s].cost_class = cost->class_of_vstage[s];
        costs->stages[s].layers = cost->stages[s].layers;
    }
    sp_free(held);
    costs->lone_times = cost->spine != NULL;
    sp_i_fill_epilogues(cost, &timer, costs);
    sp_i_zero_fill_sharded(cost, &timer, costs);
}

// ---- Tasks of pairs whose exchanges of experts hide behind each other ----

static void begin_overlap(const sp_cost_model *cost, const sp_op_timer *timer, sp_step_costs *costs)
{
    const sp_model *model = cost->model;
    sp_expert_overlap *overlap = &costs->overlap;
    size_t vstages = (size_t)sp_layout_vstages(cost->layout);
    int kinds = sp_model_kinds(model);
    overlap->kinds = kinds;
    overlap->rates =
        (sp_overlap_rates){.compute_slows = sp_i_dispatcher_slows(timer, &cost->memory.stack),
                           .exchange_slows = SP_I_EXCHANGE_SLOWS,
                           .delays_weights = cost->memory.stack.delay_wgrad};
    for (int side = 0; side < 2; side++) {
        overlap->tasks[side] =
            sp_calloc(costs->side[side].count * (size_t)kinds + 1, sizeof(sp_layer_tasks));
    }
    overlap->first = sp_calloc(vstages + 1, sizeof *overlap->first);
    for (size_t s = 0; s < vstages; s++) {
        overlap->first[s + 1] = overlap->first[s] + cost->stages[s].layers;
    }
    overlap->kind = sp_calloc((size_t)overlap->first[vstages] + 1, sizeof *overlap->kind);
    for (size_t s = 0; s < vstages; s++) {
        for (int i = 0; model->runs > 0 && i < cost->stages[s].layers; i++) {
            overlap->kind[overlap->first[s] + i] =
                (uint8_t)sp_model_kind_of(model, cost->stages[s].first + i);
        }
    }
}

// Adds up what a layer computes in a pass, with the exchanges of other kinds that it waits for: all
// but its experts' (0), and theirs (1).
static void add_computed(const sp_cost_model *cost, const sp_i_pack_time *time, int kind,
                         sp_pass pass, double computed_s[2])
{
    int part = sp_i_part_of_kind(kind);
    const sp_i_time *of = &time->of[part][pass];
    double all_s = cost->slowest_rank * of->compute_s + of->tp_s + of->cp_s;
    double mlp_s = fmin(all_s, cost->slowest_rank * time->experts[part][pass].mlp_s);
    computed_s[0] += all_s - mlp_s;
    computed_s[1] += mlp_s;
}

// The wait for the fullest rank is none: nothing hides it.
static void set_exchanges(const sp_i_pack_time *time, int kind, sp_pass pass, sp_layer_tasks *tasks)
{
    int part = sp_i_part_of_kind(kind);
    double returns_s = time->experts[part][pass].returns_s;
    const sp_i_time *of = &time->of[part][pass];
    tasks->first_ns = sp_i_cut_ns(of->ep_s - of->ep_wait_s - returns_s);
    tasks->return_ns = sp_i_cut_ns(returns_s);
}

// Recomputation runs just before the gradients of its inputs.
static void fill_tasks(const sp_cost_model *cost, const sp_i_pack_time *time, int side, size_t k,
                       const sp_expert_overlap *overlap)
{
    const sp_pass pass = side == 0 ? SP_PASS_F : SP_PASS_I;
    for (int kind = 0; overlap->tasks[side] != NULL && kind < overlap->kinds; kind++) {
        sp_layer_tasks *tasks = &overlap->tasks[side][k * (size_t)overlap->kinds + (size_t)kind];
        double computed_s[2] = {0.0, 0.0};
        double weights_s[2] = {0.0, 0.0};
        if (side == 1) {
            add_computed(cost, time, kind, SP_PASS_RECOMPUTE, computed_s);
            add_computed(cost, time, kind, SP_PASS_W, weights_s);
        }
        add_computed(cost, time, kind, pass, computed_s);
        tasks->attention_ns = sp_i_cut_ns(computed_s[0]);
        tasks->mlp_ns = sp_i_cut_ns(computed_s[1]);
        tasks->attention_weights_ns = sp_i_cut_ns(weights_s[0]);
        tasks->mlp_weights_ns = sp_i_cut_ns(weights_s[1]);
        set_exchanges(time, kind, pass, tasks);
    }
}

// ---- Bytes of every pack on every stage class, and copies to the host ----

// Bytes of a category that the packs of a rank hold, so that sums over categories and of what an
// action needs besides stay below 2^63.
#define MOST_HELD 0x1p57

typedef struct filler {
    const sp_cost_model *cost;
    const sp_i_rounds *rounds; // of both sides; NULL: each rank has experts for itself
    const sp_packing *packing;
    sp_slice_sums *sums; // of backward packs
    int32_t *same;       // forward packs of backward packs of their own; NULL: not asked
    int64_t *end;        // [samples], zeros between packs; NULL: seen tokens are not asked
    bool counts_pairs;   // something that is held grows with pairs
    sp_step_costs *costs;
} filler;

static const sp_pack_list *list_of(const filler *f, int side)
{
    return side == 0 ? &f->packing->forward : &f->packing->backward;
}

static int64_t seen_tokens(const filler *f, const sp_pack_list *list, const sp_pack *pack)
{
    int64_t seen = 0;
    for (size_t s = 0; f->end != NULL && s < pack->slice_count; s++) {
        const sp_slice *slice = &list->slices[pack->first_slice + s];
        int64_t *end = &f->end[slice->sample];
        int64_t beyond = slice->begin + slice->computed_tokens - *end;
        seen += beyond > 0 ? beyond : 0;
        *end += beyond > 0 ? beyond : 0;
    }
    for (size_t s = 0; f->end != NULL && s < pack->slice_count; s++) {
        f->end[list->slices[pack->first_slice + s].sample] = 0;
    }
    return seen;
}

static sp_unit_load load_of(const filler *f, int side, size_t k, bool backward)
{
    const sp_pack_list *list = list_of(f, side);
    const sp_pack *pack = &list->packs[k];
    sp_unit_load load = {.tokens = pack->computed,
                         .kv_tokens = pack->kv_tokens,
                         .pairs = f->counts_pairs ? pack->full_pairs : 0,
                         .seen_tokens = seen_tokens(f, list, pack),
                         .slices = f->end != NULL ? (int64_t)pack->slice_count : 0};
    if (f->rounds != NULL) {
        load.expert_tokens = f->rounds[side].held[k];
    }
    if (backward) {
        load.begun_tokens = f->sums[k].begun_tokens;
        load.found_tokens = f->sums[k].found_tokens;
        load.collects = f->same != NULL && f->same[k] < 0;
    }
    return load;
}

// Packs of different loads, each with a row, to be found by their load.
typedef struct known_load {
    sp_unit_load load;
    int32_t dp_count;
    int64_t largest; // bytes of a category, over all classes
} known_load;

typedef struct known_loads {
    known_load *items;
    size_t count, capacity;
    int32_t *slots; // [slot_count]: an item, which is a row, or -1
    size_t slot_count;
} known_loads;

static void make_slots(known_loads *known, size_t packs)
{
    known->slot_count = 16;
    while (known->slot_count < 2 * packs) {
        known->slot_count *= 2;
    }
    known->slots = sp_malloc(known->slot_count * sizeof *known->slots);
    for (size_t i = 0; i < known->slot_count; i++) {
        known->slots[i] = -1;
    }
}

static bool is_alike(const sp_unit_load *a, const sp_unit_load *b)
{
    return a->tokens == b->tokens && a->kv_tokens == b->kv_tokens && a->pairs == b->pairs &&
           a->begun_tokens == b->begun_tokens && a->found_tokens == b->found_tokens &&
           a->seen_tokens == b->seen_tokens && a->slices == b->slices &&
           a->collects == b->collects && a->expert_tokens == b->expert_tokens;
}

// FNV-1a over the words of a load; the high bits go into the low ones, by which slots are chosen.
static size_t hash_load(const sp_unit_load *load, int32_t dp_count)
{
    const int64_t words[] = {
        load->tokens,       load->kv_tokens,    load->pairs,    load->seen_tokens,   load->slices,
        load->begun_tokens, load->found_tokens, load->collects, load->expert_tokens, dp_count};
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        hash = (hash ^ (uint64_t)words[i]) * 0x100000001b3u;
    }
    return (size_t)(hash ^ hash >> 32);
}

// The row of the load, a new one behind all others where it is not known.
static int32_t find_row(known_loads *known, const sp_unit_load *load, int32_t dp_count)
{
    size_t slot = hash_load(load, dp_count) & (known->slot_count - 1);
    while (known->slots[slot] >= 0) {
        const known_load *item = &known->items[known->slots[slot]];
        if (item->dp_count == dp_count && is_alike(&item->load, load)) {
            return known->slots[slot];
        }
        slot = (slot + 1) & (known->slot_count - 1);
    }
    SP_RESERVE(known->items, known->capacity, known->count + 1);
    known->slots[slot] = (int32_t)known->count;
    known->items[known->count] = (known_load){*load, dp_count, 0};
    return (int32_t)known->count++;
}

// The largest number of bytes of a category that a unit takes or gives back.
static int64_t largest_of(const sp_unit_bytes *unit)
{
    const sp_bytes *const parts[] = {&unit->held,           &unit->weights, &unit->repeated,
                                     &unit->forward,        &unit->repeat,  &unit->backward,
                                     &unit->input_gradient, &unit->first,   &unit->loaded_backward};
    int64_t largest = sp_larger(unit->gradients_begun, unit->gradients_found);
    for (size_t i = 0; i < sizeof parts / sizeof(*parts); i++) {
        for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
            largest = sp_larger(largest, llabs(parts[i]->of[c]));
        }
    }
    return largest;
}

// The packs of a data-parallel rank may hold as much as int64_t has room for. `steps` [dp + 1] are
// the differences between what those of neighbouring ranks hold.
static sp_status check_ranks(const filler *f, const double *steps, sp_error *err)
{
    double all = 0.0;
    for (int d = 0; d < f->cost->layout->dp; d++) {
        all += steps[d];
        if (all * f->cost->layout->chunks >= MOST_HELD) {
            return sp_error_set(err, SP_ERR_LIMIT,
                                "the packs of data-parallel rank %d hold more bytes than are "
                                "counted; use shorter samples, or fewer of them a batch",
                                d);
        }
    }
    return SP_OK;
}

// Packs of one load share a row, which has some hundred bytes for each class.
static sp_status fill_list(const filler *f, int side, bool backward, size_t *rows, sp_error *err)
{
    const sp_cost_model *cost = f->cost;
    const sp_pack_list *list = list_of(f, side);
    sp_side_costs *to = &f->costs->side[side];
    int32_t *row_of = to->unit_row;
    size_t classes = (size_t)cost->classes;
    size_t capacity = 0;
    double *steps = sp_calloc((size_t)cost->layout->dp + 1, sizeof *steps);
    known_loads known = {0};
    sp_saved_parts parts; // of a pack on so many ranks
    int64_t parts_ranks = 0;
    sp_status status = SP_OK;
    make_slots(&known, list->count);
    *rows = 0;
    for (size_t k = 0; status == SP_OK && k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        sp_unit_load load = load_of(f, side, k, backward);
        row_of[k] = find_row(&known, &load, pack->dp_count);
        if (known.count > *rows) {
            SP_RESERVE(to->unit, capacity, known.count * classes);
            // A merged pack is sharded over its data-parallel ranks like context parallelism.
            sp_layout layout = *cost->layout;
            layout.cp *= pack->dp_count;
            layout.dp /= pack->dp_count;
            sp_unit_bytes *row = to->unit + *rows * classes;
            if (pack->dp_count != parts_ranks) {
                sp_saved_parts_find(cost->model, &layout, &cost->memory, &parts);
                parts_ranks = pack->dp_count;
            }
            sp_footprint_units(&parts, cost->model, &layout, cost->class_stage, cost->classes,
                               &cost->memory, &load, row);
            for (size_t c = 0; c < classes; c++) {
                known.items[*rows].largest =
                    sp_larger(known.items[*rows].largest, largest_of(&row[c]));
            }
            *rows = known.count;
        }
        // Products of bytes stop at SP_MOST_BYTES, or at what is left of that for each layer: a
        // unit that comes close holds an unknown number, and what it takes others would not give
        // back.
        const int64_t largest = known.items[row_of[k]].largest;
        status = largest < SP_MOST_BYTES / 2 ? SP_OK : sp_i_beyond_limit(pack, err);
        steps[pack->dp_first] += (double)largest;
        steps[pack->dp_first + pack->dp_count] -= (double)largest;
    }
    status = status == SP_OK ? check_ranks(f, steps, err) : status;
    sp_free(steps);
    sp_free(known.items);
    sp_free(known.slots);
    return status;
}

// The tables hold units as they are on the GPU; a copy between it and its host runs at the link's
// rate.
static int64_t copy_ns(const sp_cluster *cluster, int64_t bytes)
{
    return bytes > 0 ? sp_i_cut_ns(cluster->host_link_latency_s +
                                   (double)bytes / cluster->host_link_bytes_per_s)
                     : 0;
}

static void fill_copies(const filler *f, size_t rows)
{
    sp_step_costs *costs = f->costs;
    size_t classes = (size_t)costs->classes;
    costs->offloaded_bytes = sp_malloc(rows * classes * sizeof *costs->offloaded_bytes + 1);
    for (size_t at = 0; at < rows * classes; at++) {
        sp_bytes *held = &costs->side[0].unit[at].held;
        costs->offloaded_bytes[at] = held->of[SP_MEM_OFFLOADED];
        held->of[SP_MEM_ACTIVATIONS] += held->of[SP_MEM_OFFLOADED];
        held->of[SP_MEM_OFFLOADED] = 0;
    }
    for (size_t k = 0; k < costs->side[0].count; k++) {
        const int64_t *bytes = &costs->offloaded_bytes[sp_step_costs_units(costs, 0, k)];
        for (size_t c = 0; c < classes; c++) {
            costs->o_ns[k * classes + c] = copy_ns(f->cost->cluster, bytes[c]);
            costs->l_ns[k * classes + c] = costs->o_ns[k * classes + c];
        }
    }
}

// Without tensor parallelism nobody gathers the gradient of the lookup: all that is left of a share
// of an input gradient is the table's gradient, which is a weight gradient. Explicit tensors have
// it in the input gradient, like the executors.
static bool has_no_input_gradient(const filler *f, int side, size_t pack)
{
    const sp_step_costs *costs = f->costs;
    bool backward = costs->side[1].unit == NULL || side == 1;
    size_t share = pack * (size_t)costs->classes + (size_t)costs->share_class;
    return backward && f->cost->memory.stack.tensors == SP_TENSORS_AUTOGRAD &&
           sp_action_cost_ns(&costs->action[SP_ACTION_I][share]) == 0;
}

// A share of the embedding leaves nothing: what it looks up goes into a message, and the mask of a
// dropout is on the first stage's rank. Whoever shares a
// head that runs again keeps nothing until then: the hidden states come a second time.
static void move_shares(const filler *f, int side)
{
    static const sp_bytes nothing;
    const sp_step_costs *costs = f->costs;
    const sp_side_costs *of = &costs->side[side];
    size_t rows = 0;
    for (size_t k = 0; costs->share_class > 0 && k < of->count; k++) {
        if ((size_t)of->unit_row[k] != rows) {
            continue;
        }
        sp_unit_bytes *embedding =
            &of->unit[rows * (size_t)costs->classes + (size_t)costs->share_class];
        rows++;
        embedding->forward.of[SP_MEM_WORKSPACE] +=
            embedding->forward.of[SP_MEM_ACTIVATIONS] + embedding->held.of[SP_MEM_ACTIVATIONS];
        embedding->forward.of[SP_MEM_ACTIVATIONS] = 0;
        embedding->first = embedding->forward;
        embedding->repeat = embedding->forward;
        if (has_no_input_gradient(f, side, k)) {
            embedding->input_gradient = nothing;
        }
        embedding->backward.of[SP_MEM_ACTIVATIONS] = 0;
        embedding->input_gradient.of[SP_MEM_ACTIVATIONS] = 0;
        embedding->held = nothing;
        embedding->weights = nothing;
        embedding[1].repeated = nothing;
    }
}

// Fills the units of both sides, offloaded_bytes, o_ns and l_ns. O(slices + packs * classes).
static sp_status fill_unit_costs(const sp_cost_model *cost, const sp_packing *packing,
                                 const sp_i_rounds *rounds, sp_step_costs *costs, sp_error *err)
{
    filler f = {.cost = cost,
                .rounds = rounds,
                .packing = packing,
                .counts_pairs = cost->memory.attention == SP_ATTENTION_UNFUSED ||
                                cost->memory.stack.attention_mask,
                .costs = costs};
    const bool regrouped = costs->side[1].unit_row != NULL;
    sp_status status = SP_OK;
    sp_slice_sums_make(packing, cost->layout->cp, &f.sums);
    if (regrouped && cost->memory.stack.tensors == SP_TENSORS_EXPLICIT) {
        sp_same_packs(packing, &f.same);
    }
    if (packing->batch != NULL && sp_stack_counts_device(&cost->memory.stack)) {
        f.end = sp_calloc(packing->batch->count, sizeof *f.end);
    }
    for (int side = 0; status == SP_OK && side <= regrouped; side++) {
        size_t rows;
        status = fill_list(&f, side, side == 1 || !regrouped, &rows, err);
        if (status == SP_OK && side == 0) {
            fill_copies(&f, rows);
        }
    }
    for (int side = 0; status == SP_OK && side <= regrouped; side++) {
        move_shares(&f, side);
    }
    sp_free(f.sums);
    sp_free(f.same);
    sp_free(f.end);
    return status;
}

// ---- the costs of a packing ----

// Packs up to this size keep every product of tokens and bytes within int64_t.
#define MOST_TOKENS ((int64_t)1 << 40)

static bool is_countable(const sp_pack *pack)
{
    return pack->computed <= MOST_TOKENS && pack->pairs2 < INT64_MAX &&
           pack->full_pairs < INT64_MAX;
}

// Was a time cut at SP_I_MOST_S?
static bool is_cut(const sp_action_cost *costs, size_t k, int classes)
{
    const int64_t most_ns = sp_i_cut_ns(SP_I_MOST_S);
    for (int c = 0; c < classes; c++) {
        const sp_action_cost *cost = &costs[k * (size_t)classes + (size_t)c];
        if (cost->compute_ns >= most_ns || cost->tp_ns >= most_ns || cost->cp_ns >= most_ns ||
            cost->dp_ns >= most_ns || cost->ep_ns >= most_ns) {
            return true;
        }
    }
    return false;
}

// Samples of one length make equal packs one after the other, whose costs need no second reckoning:
// has pack k the shape of the one before it?
static bool repeats(const sp_pack_list *list, size_t k)
{
    if (k == 0) {
        return false;
    }
    const sp_pack *a = &list->packs[k - 1];
    const sp_pack *b = &list->packs[k];
    if (a->dp_count != b->dp_count || a->slice_count != b->slice_count ||
        a->computed != b->computed || a->kv_tokens != b->kv_tokens || a->pairs2 != b->pairs2 ||
        a->full_pairs != b->full_pairs || a->gathers != b->gathers) {
        return false;
    }
    for (size_t i = 0; i < a->slice_count; i++) {
        const sp_slice *x = &list->slices[a->first_slice + i];
        const sp_slice *y = &list->slices[b->first_slice + i];
        bool same_sample = i == 0 || (x->sample == x[-1].sample) == (y->sample == y[-1].sample);
        if (x->begin != y->begin || x->computed_tokens != y->computed_tokens ||
            x->zone != y->zone || !same_sample) {
            return false;
        }
    }
    return true;
}

static void wait_for_parameters(const sp_cost_model *cost, const sp_packing *packing,
                                sp_step_costs *costs)
{
    const sp_pack_list *lists[2] = {&packing->forward, sp_packing_backward(packing)};
    int ranks = sp_layout_parameter_ranks(cost->layout);
    for (int side = 0; ranks > 1 && side < 2; side++) {
        sp_rounds rounds;
        sp_rounds_make(cost->layout, lists[side], ranks, &rounds);
        sp_i_wait_in_rounds(&rounds, SP_I_WAIT_PARAMETERS, side, costs);
        sp_rounds_free(&rounds);
    }
}

static void fill_share_classes(const sp_cost_model *cost, sp_step_costs *costs)
{
    if (cost->memory_class_of_vstage == NULL) {
        return;
    }
    costs->stage_classes = cost->stage_classes;
    costs->share_class = cost->stage_classes;
    for (int s = 0; s < sp_layout_vstages(cost->layout); s++) {
        costs->stages[s].memory_class = cost->memory_class_of_vstage[s];
    }
}

// Gives a pack the costs of the one before it, which is alike.
static void repeat_costs(sp_step_costs *costs, int side, size_t k)
{
    sp_side_costs *to = &costs->side[side];
    sp_layer_tasks *tasks = costs->overlap.tasks[side];
    size_t n = (size_t)costs->classes;
    size_t kinds = (size_t)costs->overlap.kinds;
    for (int kind = sp_first_kind(side); kind <= sp_last_kind(side); kind++) {
        sp_action_cost *table = costs->action[kind];
        memcpy(table + k * n, table + (k - 1) * n, n * sizeof *table);
    }
    if (tasks != NULL) {
        memcpy(tasks + k * kinds, tasks + (k - 1) * kinds, kinds * sizeof *tasks);
    }
    to->p2p[k] = to->p2p[k - 1];
    to->pack[k] = to->pack[k - 1];
}

// Launches that the GPU waits for, and what ZeRO exchanges, stay with the stage's action.
static void take_overhead(const sp_cost_model *cost, int class, sp_action_cost *action)
{
    if (class >= cost->stage_classes) {
        action->compute_ns -= action->launch_ns;
        action->launch_ns = 0;
        action->dp_ns = 0;
    }
}

static void fill_actions(const sp_cost_model *cost, const sp_op_timer *timer, const sp_pack *pack,
                         const sp_i_pack_time *time, int side, size_t k, sp_step_costs *costs)
{
    for (int c = 0; c < cost->classes; c++) {
        size_t at = k * (size_t)cost->classes + (size_t)c;
        const sp_stage *stage = &cost->class_stage[c];
        sp_action_cost of[SP_ACTION_O];
        if (side == 0) {
            of[SP_ACTION_F] = sp_i_price_forward(cost, timer, pack, time, stage);
        } else {
            price_backward(cost, timer, pack, time, stage, of);
        }
        for (int kind = sp_first_kind(side); kind <= sp_last_kind(side); kind++) {
            take_overhead(cost, c, &of[kind]);
            costs->action[kind][at] = of[kind];
        }
    }
}

// Hidden states of the pack. Each TP rank sends its share, with sequence parallelism because it
// holds no more, without it by Megatron-LM's scatter-gather (arXiv 2104.04473, section 4.1) unless
// the stack sends them whole.
static void fill_transfer(const sp_op_timer *timer, const sp_cost_model *cost, const sp_pack *pack,
                          const sp_layout *layout, sp_pack_costs *costs, sp_p2p_times *times)
{
    bool whole = cost->memory.stack.whole_transfers && !layout->sequence_parallel;
    costs->p2p_bytes = (double)pack->computed / layout->cp / (whole ? 1 : layout->tp) *
                       (double)cost->model->hidden * BYTES_BF16;
    times->ns = sp_i_cut_ns(sp_time_p2p(timer, costs->p2p_bytes, 0));
    times->internode_ns = sp_i_cut_ns(sp_time_p2p(timer, costs->p2p_bytes, 1));
}

// A rank keeps nothing of others for the backward (sp_i_tasks_moved), in which twice as much moves.
static void fill_pool(const sp_op_timer *timer, const sp_cost_model *cost, const sp_pack_list *list,
                      const sp_pack *pack, const sp_layout *layout, bool backward,
                      sp_pack_costs *costs)
{
    if (cost->memory.stack.cp_overlap != SP_CP_TASKS || layout->pp == 1) {
        return;
    }
    sp_shard shard = sp_shard_of(cost->model, layout);
    double bytes = (backward ? 2.0 : 1.0) * BYTES_BF16;
    int crosses = cost->pipeline_crosses_nodes;
    for (size_t s = 0; s < pack->slice_count; s++) {
        const sp_slice *slice = &list->slices[pack->first_slice + s];
        costs->longest_tokens =
            sp_larger(costs->longest_tokens, slice->begin + slice->computed_tokens);
    }
    double tokens = (double)pack->computed / layout->cp;
    costs->pool_queries_s =
        sp_time_p2p(timer, bytes * tokens * (double)(shard.q + shard.context), crosses);
    costs->pool_keys_s = sp_time_p2p(
        timer, bytes * (double)costs->longest_tokens * (double)(shard.k + shard.v), crosses);
}

// `row`: the packs whose keys and values its context-parallel ranks have.
static sp_status fill_pack(const sp_cost_model *cost, const sp_op_timer *timer,
                           const sp_pack_list *list, sp_i_cp_row row, const sp_i_rounds *rounds,
                           int side, size_t k, sp_step_costs *costs, sp_error *err)
{
    const sp_pack *pack = &list->packs[k];
    sp_pack_costs *to = &costs->side[side].pack[k];
    sp_i_pack_time time;
    if (!is_countable(pack)) {
        return sp_i_beyond_limit(pack, err);
    }
    sp_i_pack_time_in_round(cost->packs, timer, row.list, row.pack, side == 0, side == 1,
                            rounds != NULL ? rounds->of.tokens[k] : pack->computed,
                            rounds != NULL ? rounds->overload[k].mean : 1.0, &time);
    fill_actions(cost, timer, pack, &time, side, k, costs);
    fill_tasks(cost, &time, side, k, &costs->overlap);
    *to = (sp_pack_costs){.cp = time.cp[side == 0 ? SP_PASS_F : SP_PASS_I],
                          .cp_again = time.cp[SP_PASS_RECOMPUTE],
                          .zones = sp_i_pack_zones_of(costs, &time, side == 1),
                          .expert_tokens = rounds != NULL ? rounds->held[k] : 0};
    fill_transfer(timer, cost, pack, time.layout, to, &costs->side[side].p2p[k]);
    fill_pool(timer, cost, list, pack, time.layout, side == 1, to);
    return is_cut(costs->action[sp_first_kind(side)], k, cost->classes)
               ? sp_i_beyond_limit(pack, err)
               : SP_OK;
}

sp_status sp_cost_model_build(sp_cost_model *cost, const sp_packing *packing, sp_step_costs *costs,
                              sp_error *err)
{
    sp_op_timer timer = sp_i_timer_of(cost);
    const sp_pack_list *lists[2] = {&packing->forward, sp_packing_backward(packing)};
    int32_t *forward_pack = NULL;
    sp_i_rounds made[2];
    const int behind = lists[1] != lists[0]; // the backward's among them
    const bool in_rounds = sp_layout_expert_ranks(cost->layout) > 1 || cost->load != NULL;
    for (int i = 0; in_rounds && i <= behind; i++) {
        sp_i_rounds_make(cost, lists[i], &made[i]);
    }
    sp_i_step_costs_take(costs, cost->layout, packing, cost->classes);
    fill_share_classes(cost, costs);
    if (cost->experts != NULL) {
        size_t bytes =
            (size_t)sp_layout_vstages(cost->layout) * SP_EXPERT_PASSES * sizeof *costs->experts;
        costs->experts = memcpy(sp_malloc(bytes), cost->experts, bytes);
    }
    if (cost->memory.stack.expert_overlap && sp_layout_dispatches(cost->layout)) {
        begin_overlap(cost, &timer, costs);
    }
    sp_status status = sp_i_cp_regroup(cost->layout, packing, cost->source, &forward_pack, err);
    for (int side = 0; side < 2; side++) {
        const sp_i_rounds *rounds = in_rounds ? &made[side * behind] : NULL;
        for (size_t k = 0; status == SP_OK && k < lists[side]->count; k++) {
            const sp_pack *pack = &lists[side]->packs[k];
            sp_i_cp_row row = {lists[side], pack};
            if (side == 1) {
                row = sp_i_cp_row_of(cost->layout, packing, forward_pack, pack);
            }
            if (repeats(lists[side], k) && row.pack == pack &&
                (rounds == NULL || sp_i_rounds_repeat(rounds, k))) {
                repeat_costs(costs, side, k);
                continue;
            }
            status = fill_pack(cost, &timer, lists[side], row, rounds, side, k, costs, err);
        }
    }
    sp_free(forward_pack);
    if (status == SP_OK) {
        costs->blocking_transfers = cost->memory.stack.blocking_transfers;
        status = fill_unit_costs(cost, packing, in_rounds ? made : NULL, costs, err);
    }
    for (int side = 0; in_rounds && status == SP_OK && side < 2; side++) {
        sp_i_wait_in_rounds(&made[side * behind].of, SP_I_WAIT_EXPERTS, side, costs);
    }
    if (status == SP_OK && cost->load != NULL) {
        sp_i_rounds_report(&made[0], lists[0]->count, &costs->overload);
    }
    for (int i = 0; in_rounds && i <= behind; i++) {
        sp_i_rounds_free(&made[i]);
    }
    if (status == SP_OK) {
        wait_for_parameters(cost, packing, costs);
        fill_ranks(cost, packing, costs);
    } else {
        sp_step_costs_fini(costs);
    }
    return status;
}
