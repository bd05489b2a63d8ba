// Exchanges of data-parallel ranks: ZeRO 2 and 3 inside actions, and gradients and parameters
// after the last backward.
#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/cost/cost_private.h"
#include "sim/cost/op_time.h"

#define BYTES_BF16 2.0

// A unit's exchanges and what an action on it takes without them, waits for launches among it, in
// seconds.
typedef struct unit {
    double gather_s, scatter_s;
    double work_s, waits_s; // of it
} unit;

// The units of a stage in the order of the action.
typedef struct chain {
    const sp_model *model;
    unit of[SP_I_PARTS];
    sp_stage stage;
    int count;
    bool forward;
    bool hides_none;      // each kernel is waited for
    bool waits;           // for each reduction of gradients: DeepSpeed without overlap_comm
    double overlap_share; // of what is hidden: how much longer the work takes that hides it
} chain;

// Parameters by the group of ranks that hold the same ones: those of experts on several ranks have
// a group of their own.
typedef struct held {
    double common, experts;
    double products, expert_products; // of them weights of FP8 products, or in 4 bits
} held;

typedef struct replicas {
    sp_nested_groups common, experts; // the second with held.experts alone
} replicas;

// What is gathered of a stage's parameters, and of what gradients are reduced.
typedef struct exchanged {
    held all, trained;
} exchanged;

static const sp_group alone = {.size = 1, .nodes = 1, .least_per_node = 1, .most_per_node = 1};

// How many buckets parameters go in, each with its latency; at least 1.
typedef struct bucket_counts {
    double common, experts;
} bucket_counts;

static const bucket_counts at_once = {1.0, 1.0};

// Exchanges beside a unit take this much beyond it, and hiding them adds to it.
typedef struct added {
    double beyond_s, hidden_s;
} added;

static held less(held a, held b)
{
    return (held){a.common - b.common, a.experts - b.experts, a.products - b.products,
                  a.expert_products - b.expert_products};
}

static held all_parameters(const sp_cost_model *cost, const sp_model *model, const sp_stage *stages,
                           int n)
{
    double all = (double)sp_footprint_parameters(model, cost->layout, stages, n);
    double experts = 0.0;
    if (sp_layout_dispatches(cost->layout)) {
        experts = (double)sp_footprint_expert_parameters(model, cost->layout, stages, n);
    }
    held of = {all - experts, experts, 0.0, 0.0};
    if (sp_precision_is_fp8(&cost->memory.stack.precision) ||
        model->frozen_weights != SP_FROZEN_BF16) {
        bool dispatches = sp_layout_dispatches(cost->layout);
        double products =
            (double)sp_footprint_product_weights(model, cost->layout, stages, n, false);
        of.expert_products =
            dispatches ? (double)sp_footprint_product_weights(model, cost->layout, stages, n, true)
                       : 0.0;
        of.products = products - of.expert_products;
    }
    return of;
}

// Those that have gradients. Models with experts have no adapters.
static held trained_parameters(const sp_cost_model *cost, const sp_model *model,
                               const sp_stage *stages, int n)
{
    if (!sp_model_is_frozen(model)) {
        return all_parameters(cost, model, stages, n);
    }
    return (held){(double)sp_footprint_trained_parameters(model, cost->layout, stages, n), 0.0, 0.0,
                  0.0};
}

static exchanged parameters_of(const sp_cost_model *cost, const sp_model *model,
                               const sp_stage *stage)
{
    return (exchanged){all_parameters(cost, model, stage, 1),
                       trained_parameters(cost, model, stage, 1)};
}

static exchanged layer_parameters(const sp_cost_model *cost, int kind)
{
    const sp_stage layer = {.layers = 1};
    sp_model space;
    return parameters_of(cost, sp_model_of_kind(cost->model, kind, &space), &layer);
}

// The ranks that split states (inner) and those that hold equal shares (outer); without ZeRO none
// split.
static replicas replicas_of(const sp_cost_model *cost)
{
    const sp_layout *layout = cost->layout;
    replicas of = {{sp_cluster_group(cost->cluster, layout, SP_DIM_DP_CP), alone}, {alone, alone}};
    if (sp_layout_zero_ranks(layout) < layout->dp * layout->cp && layout->zero > 0) {
        of.common = sp_cluster_nested_groups(cost->cluster, layout, layout->dp,
                                             sp_layout_zero_ranks(layout));
    }
    if (sp_layout_dispatches(layout)) {
        of.experts.inner = sp_cluster_group(cost->cluster, layout, SP_DIM_EDP);
    }
    return of;
}

static double all_of(held parameters)
{
    return parameters.common + parameters.experts;
}

// Bytes in which parameters, `products` of them weights of FP8 products or in 4 bits, go between
// ranks.
static double gathered_bytes(const sp_cost_model *cost, double parameters, double products)
{
    double gathered = cost->model->frozen_weights != SP_FROZEN_BF16
                          ? 1.0 / SP_4BIT_WEIGHTS_OF_BYTE
                          : sp_fp8_gathered_bytes(&cost->memory.stack.precision);
    double saved = BYTES_BF16 - gathered;
    return parameters * BYTES_BF16 - products * saved;
}

static double all_gathered(const sp_cost_model *cost, held parameters)
{
    return gathered_bytes(cost, all_of(parameters),
                          parameters.products + parameters.expert_products);
}

static bool has_rooted_shares(const sp_cost_model *cost)
{
    return cost->memory.stack.rooted_shares && cost->layout->zero >= 1 && cost->layout->zero <= 2;
}

// Seconds in which gradients of `bytes` are scattered over those that split them, and each share is
// added up over its holders; or, without ZeRO, added up over all replicas.
static double group_reduction_s(const sp_cost_model *cost, const sp_op_timer *timer,
                                const sp_nested_groups *group, double bytes)
{
    sp_collective kind =
        sp_layout_zero_in_step(cost->layout) == 0 ? SP_ALL_REDUCE : SP_REDUCE_SCATTER;
    double inner_s = has_rooted_shares(cost) ? sp_time_rooted(timer, group->inner, bytes)
                                             : sp_time_collective(timer, kind, group->inner, bytes);
    return inner_s +
           sp_time_collective(timer, SP_ALL_REDUCE, group->outer, bytes / group->inner.size);
}

// Of those of experts alone.
static double expert_reduction_s(const sp_cost_model *cost, const sp_op_timer *timer,
                                 const replicas *of, held parameters, bucket_counts counts)
{
    double bytes = parameters.experts * sp_stack_gradient_bytes(&cost->memory.stack);
    return parameters.experts > 0.0 ? counts.experts * group_reduction_s(cost, timer, &of->experts,
                                                                         bytes / counts.experts)
                                    : 0.0;
}

// Of all buckets together, one group's after the other's.
static double reduction_s(const sp_cost_model *cost, const sp_op_timer *timer, const replicas *of,
                          held parameters, bucket_counts counts)
{
    double bytes = sp_stack_gradient_bytes(&cost->memory.stack);
    double all_s = counts.common * group_reduction_s(cost, timer, &of->common,
                                                     parameters.common * bytes / counts.common);
    return all_s + expert_reduction_s(cost, timer, of, parameters, counts);
}

// Seconds in which those that split the states get parameters of `bytes` from each other.
static double group_gather_s(const sp_cost_model *cost, const sp_op_timer *timer, sp_group shards,
                             double bytes)
{
    return has_rooted_shares(cost) ? sp_time_rooted(timer, shards, bytes)
                                   : sp_time_collective(timer, SP_ALL_GATHER, shards, bytes);
}

static double expert_gather_s(const sp_cost_model *cost, const sp_op_timer *timer,
                              const replicas *of, held parameters, bucket_counts counts)
{
    double bytes = gathered_bytes(cost, parameters.experts, parameters.expert_products);
    return parameters.experts > 0.0
               ? counts.experts *
                     group_gather_s(cost, timer, of->experts.inner, bytes / counts.experts)
               : 0.0;
}

static double gather_s(const sp_cost_model *cost, const sp_op_timer *timer, const replicas *of,
                       held parameters, bucket_counts counts)
{
    double common = gathered_bytes(cost, parameters.common, parameters.products);
    return counts.common * group_gather_s(cost, timer, of->common.inner, common / counts.common) +
           expert_gather_s(cost, timer, of, parameters, counts);
}

// Is there nothing to exchange, because all is frozen?
static bool has_none(const sp_cost_model *cost, held trained)
{
    return sp_model_is_frozen(cost->model) && all_of(trained) < 1.0;
}

// Seconds in which each rank reads what others hold of a tensor, or adds to it, without their
// taking part (stack.one_sided): inside a node as fast as a collective (arXiv 2601.19362 measures
// that), and beside that over nodes, where no ring hands on what one GPU of the node has got: every
// GPU gets all that other nodes hold by its share of the NICs.
static double one_sided_s(const sp_op_timer *timer, sp_collective kind, sp_group group,
                          double bytes)
{
    sp_group inside = {.size = group.least_per_node,
                       .nodes = 1,
                       .least_per_node = group.least_per_node,
                       .most_per_node = group.least_per_node};
    double share = (double)inside.size / group.size;
    if (group.nodes <= 1) {
        return sp_time_collective(timer, kind, group, bytes);
    }
    return fmax(sp_time_collective(timer, kind, inside, bytes * share),
                sp_time_p2p(timer, bytes * (1.0 - share), 1));
}

static unit unit_of(const sp_cost_model *cost, const sp_op_timer *timer, const replicas *group,
                    exchanged parameters)
{
    const sp_op_timer of = sp_i_replica_timer(cost, timer);
    const sp_stack *stack = &cost->memory.stack;
    bool reduces = !has_none(cost, parameters.trained);
    if (stack->one_sided) {
        double gradients = all_of(parameters.trained) * sp_stack_gradient_bytes(stack);
        sp_group shards = group->common.inner;
        return (unit){
            .gather_s = one_sided_s(&of, SP_ALL_GATHER, shards, all_gathered(cost, parameters.all)),
            .scatter_s = reduces ? one_sided_s(&of, SP_REDUCE_SCATTER, shards, gradients) : 0.0};
    }
    return (unit){.gather_s = gather_s(cost, &of, group, parameters.all, at_once),
                  .scatter_s =
                      reduces ? reduction_s(cost, &of, group, parameters.trained, at_once) : 0.0};
}

static chain chain_of(const sp_cost_model *cost, const sp_op_timer *timer, const sp_stage *stage,
                      bool forward)
{
    const replicas of = replicas_of(cost);
    const sp_stage embedding = {.embedding = true};
    // A table that embedding and head of a stage share is the embedding's.
    const sp_stage embedding_and_head = {.embedding = stage->embedding, .head = true};
    exchanged before = {{0.0, 0.0, 0.0, 0.0}, {0.0, 0.0, 0.0, 0.0}};
    if (stage->embedding) {
        before = parameters_of(cost, cost->model, &embedding);
    }
    chain c = {.model = cost->model,
               .stage = *stage,
               .count = stage->embedding + stage->layers + stage->head,
               .forward = forward,
               .hides_none = cost->memory.stack.blocking_launches,
               .waits = sp_stack_is_deepspeed(&cost->memory.stack) &&
                        !cost->memory.stack.hide_gradient_reduce,
               .overlap_share = timer->profile->interference.overlap_share};
    for (int k = 0; k < sp_model_kinds(cost->model); k++) {
        c.of[sp_i_part_of_kind(k)] = unit_of(cost, timer, &of, layer_parameters(cost, k));
    }
    c.of[SP_PART_EMBEDDING] = unit_of(cost, timer, &of, before);
    exchanged head = parameters_of(cost, cost->model, &embedding_and_head);
    head = (exchanged){less(head.all, before.all), less(head.trained, before.trained)};
    c.of[SP_PART_HEAD] = unit_of(cost, timer, &of, head);
    return c;
}

// Exchanges run while the GPU waits for launches, too, which nearly all are of layers.
static void set_work(chain *c, const sp_i_pack_time *time, unsigned passes, int64_t launch_ns)
{
    double waits_s = (double)launch_ns / SP_NS_PER_S / fmax(1.0, c->stage.layers);
    for (int part = 0; part < sp_i_parts(c->model); part++) {
        bool is_layer = part != SP_PART_EMBEDDING && part != SP_PART_HEAD;
        c->of[part].waits_s = is_layer ? waits_s : 0.0;
        c->of[part].work_s = c->of[part].waits_s;
        for (int pass = 0; pass < SP_I_PASSES; pass++) {
            if ((passes >> pass & 1u) != 0) {
                const sp_i_time *of = &time->of[part][pass];
                c->of[part].work_s += of->compute_s + of->tp_s + of->cp_s + of->ep_s;
            }
        }
    }
}

static const unit *unit_at(const chain *c, int index)
{
    int at = c->forward ? index : c->count - 1 - index;
    if (at == 0 && c->stage.embedding) {
        return &c->of[SP_PART_EMBEDDING];
    }
    if (at == c->count - 1 && c->stage.head) {
        return &c->of[SP_PART_HEAD];
    }
    int layer = c->stage.first + at - c->stage.embedding;
    return &c->of[sp_i_part_of_kind(sp_model_kind_of(c->model, layer))];
}

static added beside(const chain *c, int index, bool gathers, bool scatters)
{
    unit of = c->hides_none ? (unit){0} : *unit_at(c, index);
    double beside_s = 0.0;
    if (gathers) {
        beside_s += index + 1 < c->count ? unit_at(c, index + 1)->gather_s : 0.0;
    }
    if (scatters && !c->waits) {
        beside_s += index > 0 ? unit_at(c, index - 1)->scatter_s : 0.0;
    }
    return (added){fmax(0.0, beside_s - of.work_s),
                   c->overlap_share * fmax(0.0, fmin(beside_s, of.work_s) - of.waits_s)};
}

static int64_t exposed_ns(const chain *c, bool gathers, bool scatters)
{
    double exposed_s = gathers ? unit_at(c, 0)->gather_s : 0.0;
    added of = {0.0, 0.0};
    for (int u = 0; u < c->count; u++) {
        // Units with a layer on either side are alike where all layers are.
        if (u <= 2 || u + 2 >= c->count || c->model->runs > 0) {
            of = beside(c, u, gathers, scatters);
        }
        if (scatters && (c->waits || u + 1 == c->count)) {
            exposed_s += unit_at(c, u)->scatter_s;
        }
        exposed_s += of.beyond_s;
        exposed_s += of.hidden_s;
    }
    return sp_i_cut_ns(exposed_s);
}

void sp_i_zero_forward(const sp_cost_model *cost, const sp_op_timer *timer, const sp_stage *stage,
                       const sp_i_pack_time *time, sp_action_cost *f)
{
    if (sp_layout_zero_in_step(cost->layout) < 3) {
        return;
    }
    chain c = chain_of(cost, timer, stage, true);
    set_work(&c, time, SP_I_FORWARD, f->launch_ns);
    f->dp_ns = exposed_ns(&c, true, false);
}

// A recomputation is forward, over the layers alone.
static chain layers_of(const chain *whole)
{
    chain c = *whole;
    c.stage = sp_stage_layers(&whole->stage);
    c.count = whole->stage.layers;
    c.forward = true;
    return c;
}

void sp_i_zero_backward(const sp_cost_model *cost, const sp_op_timer *timer, const sp_stage *stage,
                        const sp_i_pack_time *time, sp_action_cost of[SP_ACTION_O])
{
    sp_action_cost *b = &of[SP_ACTION_B];
    sp_action_cost *i = &of[SP_ACTION_I];
    sp_action_cost *w = &of[SP_ACTION_W];
    sp_action_cost *r = &of[SP_ACTION_R];
    if (sp_layout_zero_in_step(cost->layout) < 2) {
        return;
    }
    bool gathers = sp_layout_zero_in_step(cost->layout) >= 3;
    chain c = chain_of(cost, timer, stage, false);
    set_work(&c, time, SP_I_AGAIN | SP_I_INPUTS | SP_I_WEIGHTS, b->launch_ns);
    b->dp_ns = exposed_ns(&c, gathers, true);
    set_work(&c, time, SP_I_AGAIN | SP_I_INPUTS, i->launch_ns);
    i->dp_ns = exposed_ns(&c, gathers, false);
    set_work(&c, time, SP_I_WEIGHTS, w->launch_ns);
    w->dp_ns = exposed_ns(&c, false, true);
    if (gathers && r->compute_ns > 0) {
        c = layers_of(&c);
        set_work(&c, time, SP_I_AGAIN, r->launch_ns);
        r->dp_ns = exposed_ns(&c, true, false);
    }
}

// ---- for links ----

// The exchange in which all units gather or scatter, whose parameters or gradients are of so many
// bytes; of gradients those of the first unit come last.
static sp_exchanged all_units(const chain *c, bool gathers, double bytes)
{
    sp_exchanged sum = {.bytes = bytes};
    if (bytes > 0.0 && c->count > 0) {
        sum.bare_s = gathers ? unit_at(c, 0)->gather_s : unit_at(c, 0)->scatter_s;
    }
    for (int u = 0; bytes > 0.0 && u < c->count; u++) {
        sum.s += gathers ? unit_at(c, u)->gather_s : unit_at(c, u)->scatter_s;
    }
    return sum;
}

static sp_sharded_stage sharded_of(const sp_cost_model *cost, const sp_op_timer *timer,
                                   const sp_stage *stage)
{
    sp_group shards = replicas_of(cost).common.inner; // links know no others
    const sp_stage layers = sp_stage_layers(stage);
    const sp_op_timer of_replicas = sp_i_replica_timer(cost, timer);
    chain whole = chain_of(cost, timer, stage, true);
    chain of_layers = layers_of(&whole);
    const unit *last = unit_at(&whole, whole.count - 1);
    bool gathers = sp_layout_zero_in_step(cost->layout) >= 3;
    double scatter_bytes = sp_stack_gradient_bytes(&cost->memory.stack);
    exchanged in_layer = layer_parameters(cost, sp_model_kind_of(cost->model, stage->first));
    exchanged in_stage = parameters_of(cost, cost->model, stage);
    exchanged in_layers = parameters_of(cost, cost->model, &layers);
    return (sp_sharded_stage){
        .gather = all_units(&whole, true, gathers ? all_gathered(cost, in_stage.all) : 0.0),
        .layers_gather =
            all_units(&of_layers, true, gathers ? all_gathered(cost, in_layers.all) : 0.0),
        .scatter = all_units(&whole, false, all_of(in_stage.trained) * scatter_bytes),
        .backward_bare_s = gathers && whole.count > 0 ? last->gather_s : 0.0,
        .overlap_share = whole.overlap_share,
        .gathers_by = sp_collective_choice(&of_replicas, SP_ALL_GATHER, shards,
                                           all_gathered(cost, in_layer.all)),
        .scatters_by = sp_collective_choice(&of_replicas, SP_REDUCE_SCATTER, shards,
                                            all_of(in_layer.trained) * scatter_bytes)};
}

void sp_i_zero_fill_sharded(const sp_cost_model *cost, const sp_op_timer *timer,
                            sp_step_costs *costs)
{
    int vstages = sp_layout_vstages(cost->layout);
    if (sp_layout_zero_in_step(cost->layout) < 2) {
        return;
    }
    costs->shards = true;
    for (int s = 0; s < vstages; s++) {
        costs->sharded[s] = sharded_of(cost, timer, &cost->stages[s]);
    }
}

// ---- the epilogue ----

#define BYTES_FP32 4.0

// From ZeRO 2 on gradients are scattered inside the actions (sp_i_zero_fill_sharded).
static bool hides_reduction(const sp_cost_model *cost)
{
    const sp_stack *stack = &cost->memory.stack;
    int zero = sp_layout_zero_in_step(cost->layout);
    return (stack->hide_gradient_reduce && zero < 2) ||
           (stack->hide_gradient_all_reduce && zero == 0);
}

// The matrices of a rank that are stepped.
static double count_matrices(const sp_cost_model *cost, const sp_stage *stages, int n)
{
    double count = 0.0;
    for (int k = 0; k < sp_model_kinds(cost->model); k++) {
        sp_model space;
        const sp_model *alike = sp_model_of_kind(cost->model, k, &space);
        const sp_shard shard = sp_shard_of(alike, cost->layout);
        int64_t of_layer = 0;
        for (int s = 0; s < SP_LAYER_STEPS; s++) {
            sp_layer_linear linear;
            bool is = sp_layer_linear_of(alike, &shard, (sp_layer_place)s, &linear);
            of_layer += sp_model_is_frozen(alike)
                            ? 2 * sp_layer_adapters_of(alike, &shard, (sp_layer_place)s).count
                        : is ? linear.weights
                             : 0;
        }
        for (int i = 0; i < n; i++) {
            count += (double)(sp_stage_count(&stages[i], cost->model, k) * of_layer);
        }
    }
    bool embedding = false;
    bool head = false;
    for (int i = 0; i < n; i++) {
        embedding = embedding || stages[i].embedding;
        head = head || stages[i].head;
    }
    if (!sp_model_is_frozen(cost->model)) {
        // A tied table is there once where a rank has both, as in sp_footprint_parameters.
        count += embedding;
        count += head && !(cost->model->tied_embeddings && embedding);
    }
    return count;
}

// The host's share of a step: gradients to the host (a seconds), Adam on its CPUs (b), weights in
// bf16 back (c); one after the other a + b + c. With host_overlap these are three machines that n
// equal pieces, the matrices, pass in turn: (a + b + c) / n for the first, and the slowest
// machine's max(a, b, c) / n for each of the others. Assumed: of the copies of pieces only the
// first has its latency, the others wait behind one another.
static double host_step_s(const sp_cost_model *cost, double stepped, double bytes, double matrices)
{
    const sp_cluster *cluster = cost->cluster;
    const sp_stack *stack = &cost->memory.stack;
    double weights = stack->offload_states * stepped;
    if (!(weights > 0.0)) {
        return 0.0;
    }
    double latency_s = 2.0 * cluster->host_link_latency_s;
    double copied = (sp_stack_gradient_bytes(stack) + 2.0) * weights;
    double copies_s = copied / cluster->host_link_bytes_per_s;
    double adam_s =
        weights * bytes / sp_cluster_host_adam_share(cluster, sp_layout_ranks(cost->layout));
    if (!stack->host_overlap) {
        return latency_s + copies_s + adam_s;
    }
    double pieces = fmax(1.0, floor(stack->offload_states * matrices));
    double gradients_s = sp_stack_gradient_bytes(stack) * weights / cluster->host_link_bytes_per_s;
    double back_s = BYTES_BF16 * weights / cluster->host_link_bytes_per_s;
    double slowest_s = fmax(adam_s, fmax(gradients_s, back_s));
    return latency_s + (copies_s + adam_s) / pieces + slowest_s * (pieces - 1.0) / pieces;
}

// FP8 copies of a rank's weights are made once a step.
static double fp8_step_s(const sp_cost_model *cost, const sp_op_timer *timer, held parameters)
{
    const sp_step_precision *precision = &cost->memory.stack.precision;
    if (!sp_precision_is_fp8(precision)) {
        return 0.0;
    }
    double weights = parameters.products + parameters.expert_products;
    return sp_time_memory(timer, weights * sp_fp8_weight_cast_bytes(precision), 0);
}

static sp_epilogue_cost epilogue_of(const sp_cost_model *cost, const sp_op_timer *timer,
                                    const replicas *group, held parameters, bucket_counts counts,
                                    double matrices)
{
    const sp_profile *profile = timer->profile;
    const sp_group shards = group->common.inner;
    int zero = sp_layout_zero_in_step(cost->layout);
    bool sharded = zero > 0 || cost->memory.stack.sharded_step;
    double stepped =
        sharded ? parameters.common / shards.size + parameters.experts / group->experts.inner.size
                : all_of(parameters);
    // One after the other, each with its latency.
    counts = (bucket_counts){fmax(1.0, counts.common), fmax(1.0, counts.experts)};
    // The profile's bytes are of fp32 weights and moments: 30 by count, of which a step reads and
    // writes each byte of weights and moments once (profiles/README.md, optimizer).
    const sp_stack *stack = &cost->memory.stack;
    int64_t less_bytes = 12 - sp_stack_master_bytes(stack) - 2 * sp_stack_moment_bytes(stack);
    double counted = (30.0 - 2.0 * (double)less_bytes) / 30.0;
    double on_gpu = (1.0 - stack->offload_states) * stepped;
    double optimizer_s =
        sp_time_memory(timer, on_gpu * profile->optimizer_bytes_per_parameter * counted, 0);
    // The GPU and the host step their shares at once.
    optimizer_s =
        fmax(optimizer_s, host_step_s(cost, stepped, 30.0 * counted,
                                      matrices * stepped / fmax(1.0, all_of(parameters))));
    optimizer_s += fp8_step_s(cost, timer, parameters);
    sp_epilogue_cost epilogue = {.optimizer_ns =
                                     sp_i_cut_ns(optimizer_s + profile->host.iteration_s)};
    if (has_none(cost, parameters)) {
        return epilogue;
    }
    if (zero <= 1) {
        sp_collective kind = zero == 0 ? SP_ALL_REDUCE : SP_REDUCE_SCATTER;
        epilogue.reduce_bytes = all_of(parameters) * sp_stack_gradient_bytes(stack);
        epilogue.grad_reduce_ns = sp_i_cut_ns(reduction_s(cost, timer, group, parameters, counts));
        epilogue.expert_reduce_bytes = parameters.experts * sp_stack_gradient_bytes(stack);
        epilogue.expert_reduce_ns =
            sp_i_cut_ns(expert_reduction_s(cost, timer, group, parameters, counts));
        epilogue.reduces_by =
            sp_collective_choice(timer, kind, shards, epilogue.reduce_bytes / counts.common);
    }
    if (zero == 1 || zero == 2) {
        epilogue.gather_bytes = all_gathered(cost, parameters);
        epilogue.param_gather_ns = sp_i_cut_ns(gather_s(cost, timer, group, parameters, counts));
        epilogue.expert_gather_bytes =
            gathered_bytes(cost, parameters.experts, parameters.expert_products);
        epilogue.expert_gather_ns =
            sp_i_cut_ns(expert_gather_s(cost, timer, group, parameters, counts));
        epilogue.gathers_by = sp_collective_choice(timer, SP_ALL_GATHER, shards,
                                                   epilogue.gather_bytes / counts.common);
    }
    return epilogue;
}

static double bucket_count(const sp_cost_model *cost, const sp_stage *stage, double parameters)
{
    double limit_bytes = cost->memory.stack.bucket_bytes;
    double count = stage->layers;
    if (limit_bytes > 0.0) {
        // No bucket is smaller than one gradient.
        count = fmin(ceil(parameters * BYTES_FP32 / limit_bytes), parameters);
    }
    return floor(fmax(1.0, count));
}

static bucket_counts count_buckets(const sp_cost_model *cost, const sp_stage *stage,
                                   held parameters)
{
    return (bucket_counts){bucket_count(cost, stage, parameters.common),
                           bucket_count(cost, stage, parameters.experts)};
}

// Those of experts are taken to come among the others, as long as the mean of all.
static sp_bucket_cost buckets_of(const sp_cost_model *cost, const sp_op_timer *timer,
                                 const replicas *group, const sp_stage *stage, held parameters)
{
    sp_collective kind =
        sp_layout_zero_in_step(cost->layout) == 0 ? SP_ALL_REDUCE : SP_REDUCE_SCATTER;
    bucket_counts counts = count_buckets(cost, stage, parameters);
    counts.experts = parameters.experts > 0.0 ? counts.experts : 0.0;
    double count = counts.common + counts.experts;
    double bytes = all_of(parameters) * sp_stack_gradient_bytes(&cost->memory.stack);
    double all_s = reduction_s(cost, timer, group, parameters, counts);
    double bucket_s = parameters.experts > 0.0
                          ? all_s / count
                          : group_reduction_s(cost, timer, &group->common, bytes / count);
    return (sp_bucket_cost){
        .count = (int64_t)count,
        .bytes = bytes,
        .expert_bytes = parameters.experts * sp_stack_gradient_bytes(&cost->memory.stack),
        .expert_ns = sp_i_cut_ns(expert_reduction_s(cost, timer, group, parameters, counts)),
        .reduces_by = sp_collective_choice(timer, kind, group->common.inner, bytes / count),
        .bucket_ns = sp_i_cut_ns(bucket_s),
        .total_ns = sp_i_cut_ns(all_s)};
}

// The first forward waits for its first bucket and may hide the rest.
static int64_t hideable_gather_ns(const sp_cost_model *cost, const sp_op_timer *timer,
                                  const replicas *group, const sp_stage *first_chunk,
                                  int64_t gather_ns)
{
    held parameters = trained_parameters(cost, cost->model, first_chunk, 1);
    bucket_counts counts = count_buckets(cost, first_chunk, parameters);
    held bucket = {parameters.common / counts.common, parameters.experts / counts.experts,
                   parameters.products / counts.common,
                   parameters.expert_products / counts.experts};
    int64_t first_ns = sp_i_cut_ns(gather_s(cost, timer, group, bucket, at_once));
    return gather_ns > first_ns ? gather_ns - first_ns : 0;
}

// A table whose two uses lie on the first and the last pipeline rank, of a tied model or of one
// that looks further tokens up on the last, is held twice: Megatron-LM adds up its two fp32
// gradients (core/distributed/finalize_model_grads.py), TP rank by TP rank, after the reduction
// over replicas.
static void add_tied_reduction(const sp_cost_model *cost, const sp_op_timer *timer,
                               sp_step_costs *costs)
{
    const sp_layout *layout = cost->layout;
    int last_rank;
    int chunk;
    sp_layout_locate(layout, sp_layout_vstages(layout) - 1, &last_rank, &chunk);
    // With vocabulary parallelism every rank has one share of the table for both uses.
    bool shares = cost->model->tied_embeddings || cost->model->mtp_layers > 0;
    if (!shares || layout->vocab_parallel || last_rank == 0 || sp_model_is_frozen(cost->model)) {
        return;
    }
    // The last pipeline rank's neighbour up the ring is the first.
    int nodes = costs->crosses_nodes[layout->pp - 1] ? 2 : 1;
    sp_group first_and_last = {
        .size = 2, .nodes = nodes, .least_per_node = 2 / nodes, .most_per_node = 2 / nodes};
    double rows = (double)sp_ceil_div(cost->model->vocab, layout->tp);
    int64_t ns = sp_i_cut_ns(sp_time_collective(timer, SP_ALL_REDUCE, first_and_last,
                                                rows * (double)cost->model->hidden * BYTES_FP32));
    costs->ranks[0].epilogue.grad_reduce_ns += ns;
    costs->ranks[0].epilogue.tied_reduce_ns = ns;
    costs->ranks[last_rank].epilogue.grad_reduce_ns += ns;
    costs->ranks[last_rank].epilogue.tied_reduce_ns = ns;
}

void sp_i_fill_epilogues(const sp_cost_model *cost, const sp_op_timer *timer, sp_step_costs *costs)
{
    const sp_stack *stack = &cost->memory.stack;
    const sp_layout *layout = cost->layout;
    int chunks = layout->chunks;
    const replicas of = replicas_of(cost);
    const sp_op_timer of_replicas = sp_i_replica_timer(cost, timer);
    sp_stage *stages = sp_calloc((size_t)chunks, sizeof *stages);
    if (hides_reduction(cost)) {
        costs->buckets = sp_calloc((size_t)sp_layout_vstages(layout), sizeof *costs->buckets);
    }
    for (int r = 0; r < layout->pp; r++) {
        held parameters = {0.0, 0.0, 0.0, 0.0};
        bucket_counts counts = {0.0, 0.0};
        for (int c = 0; c < chunks; c++) {
            stages[c] = cost->stages[sp_layout_vstage(layout, r, c)];
            // A tied table that two chunks of the rank share is the first one's.
            held with_chunk = trained_parameters(cost, cost->model, stages, c + 1);
            held of_chunk = less(with_chunk, parameters);
            if (costs->buckets != NULL) {
                costs->buckets[r * chunks + c] =
                    buckets_of(cost, &of_replicas, &of, &stages[c], of_chunk);
            }
            if (cost->memory.stack.bucketed_epilogue) {
                bucket_counts more = count_buckets(cost, &stages[c], of_chunk);
                counts.common += more.common;
                counts.experts += more.experts;
            }
            parameters = with_chunk;
        }
        double matrices = stack->host_overlap && stack->offload_states > 0.0
                              ? count_matrices(cost, stages, chunks)
                              : 0.0;
        costs->ranks[r].epilogue =
            epilogue_of(cost, &of_replicas, &of, parameters, counts, matrices);
        if (costs->buckets != NULL) {
            costs->ranks[r].epilogue.grad_reduce_ns = 0;
            costs->ranks[r].epilogue.reduce_bytes = 0.0;
            costs->ranks[r].epilogue.expert_reduce_ns = 0;
            costs->ranks[r].epilogue.expert_reduce_bytes = 0.0;
        }
        if (cost->memory.stack.hide_parameter_gather || layout->whole_in_step) {
            costs->ranks[r].epilogue.hideable_gather_ns = hideable_gather_ns(
                cost, &of_replicas, &of, &stages[0], costs->ranks[r].epilogue.param_gather_ns);
        }
    }
    add_tied_reduction(cost, timer, costs);
    sp_free(stages);
}
