#include "sim/cost/cost_private.h"

#include <math.h>

#include "sim/cost/op_time.h"
#include "sim/cost/time_private.h"

#define BYTES_BF16 2.0

static sp_i_time sum(sp_i_time a, double times, sp_i_time b)
{
    return (sp_i_time){a.compute_s + times * b.compute_s, a.tp_s + times * b.tp_s,
                       a.cp_s + times * b.cp_s, a.attention_s + times * b.attention_s};
}

static sp_i_time stage_time(const sp_cost_model *cost, const sp_i_pack_time *time,
                            const sp_stage *stage, sp_pass pass)
{
    sp_i_time total = {0};
    total = sum(total, stage->layers, time->of[SP_PART_LAYER][pass]);
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
            gpu_s += part.compute_s + part.tp_s + part.cp_s;
        }
    }
    return gpu_s;
}

static double launch_wait_behind_s(const sp_cost_model *cost, const sp_i_pack_time *time,
                                   const sp_stage *stage, unsigned passes, double gpu_s)
{
    const sp_host_model *host = &cost->profile->host;
    double host_s = 0.0;
    double unit_s = 0.0;
    for (int pass = 0; pass < SP_I_PASSES; pass++) {
        if ((passes >> pass & 1u) != 0) {
            host_s += sp_i_exec_s(host, time, stage, (sp_pass)pass, cost->pipeline_crosses_nodes);
            unit_s += sp_i_unit_share[pass] * host->unit_s;
        }
    }
    return sp_i_launch_wait_s(host, gpu_s, host_s) + unit_s;
}

// How much longer an action of these passes (bits 1 << pass) takes than the GPU works, because it
// waits for launches, and the unit's fixed time.
static double launch_wait_s(const sp_cost_model *cost, const sp_i_pack_time *time,
                            const sp_stage *stage, unsigned passes)
{
    return launch_wait_behind_s(cost, time, stage, passes, gpu_s_of(cost, time, stage, passes));
}

double sp_i_price_passes_s(const sp_cost_model *cost, const sp_i_pack_time *time,
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
    return (sp_action_cost){.compute_ns = sp_i_cut_ns(time.compute_s),
                            .tp_ns = sp_i_cut_ns(time.tp_s),
                            .cp_ns = sp_i_cut_ns(time.cp_s),
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

int64_t sp_i_price_passes_ns(const sp_cost_model *cost, const sp_op_timer *timer,
                             const sp_pack *pack, const sp_i_pack_time *time, const sp_stage *stage,
                             unsigned passes)
{
    double time_s = sp_i_price_passes_s(cost, time, stage, passes);
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
                            .attention_ns = a.attention_ns + b.attention_ns,
                            .launch_ns = a.launch_ns + b.launch_ns};
}

// Without what waiting for launches and sharded parameters add.
static sp_i_backward_price price_work(const sp_cost_model *cost, const sp_op_timer *timer,
                                      const sp_pack *pack, const sp_i_pack_time *time,
                                      const sp_stage *stage)
{
    sp_i_backward_price p;
    p.r = rounded(stage_time(cost, time, stage, SP_PASS_RECOMPUTE));
    p.i = sum_of(rounded(stage_time(cost, time, stage, SP_PASS_I)), p.r);
    p.i.tp_ns += sp_i_cut_ns(
        vocabulary_exchange_s(cost, timer, pack, time->layout, stage, SP_REDUCE_SCATTER));
    p.w = rounded(stage_time(cost, time, stage, SP_PASS_W));
    p.b = sum_of(p.i, p.w);
    return p;
}

sp_i_backward_price sp_i_price_backward(const sp_cost_model *cost, const sp_op_timer *timer,
                                        const sp_pack *pack, const sp_i_pack_time *time,
                                        const sp_stage *stage)
{
    sp_i_backward_price p = price_work(cost, timer, pack, time, stage);
    add_launch_wait(cost, time, stage, SP_I_AGAIN, &p.r);
    add_launch_wait(cost, time, stage, SP_I_AGAIN | SP_I_INPUTS, &p.i);
    add_launch_wait(cost, time, stage, SP_I_WEIGHTS, &p.w);
    add_launch_wait(cost, time, stage, SP_I_AGAIN | SP_I_INPUTS | SP_I_WEIGHTS, &p.b);
    sp_i_zero_backward(cost, timer, stage, time, &p.b, &p.i, &p.w, &p.r);
    return p;
}

void sp_i_price_backward_ns(const sp_cost_model *cost, const sp_op_timer *timer,
                            const sp_pack *pack, const sp_i_pack_time *time, const sp_stage *stage,
                            bool split, int64_t *b_ns, int64_t *w_ns)
{
    sp_i_backward_price p = price_work(cost, timer, pack, time, stage);
    if (split) {
        add_launch_wait(cost, time, stage, SP_I_AGAIN | SP_I_INPUTS, &p.i);
        add_launch_wait(cost, time, stage, SP_I_WEIGHTS, &p.w);
    } else {
        add_launch_wait(cost, time, stage, SP_I_AGAIN | SP_I_INPUTS | SP_I_WEIGHTS, &p.b);
    }
    sp_i_zero_backward(cost, timer, stage, time, &p.b, &p.i, &p.w, &p.r);
    *b_ns = sp_action_cost_ns(split ? &p.i : &p.b);
    *w_ns = split ? sp_action_cost_ns(&p.w) : 0;
}

static double layer_s(const sp_host_model *host, const sp_i_pack_time *time, sp_pass pass,
                      bool pipeline_crosses_nodes)
{
    if (!(host->layer_s + host->tp_rank_s + host->softmax_s + host->cp_step_s > 0.0)) {
        return 0.0;
    }
    int tp = time->layout->tp;
    double growth = 1.0 + host->tp_growth * log2((double)tp);
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
