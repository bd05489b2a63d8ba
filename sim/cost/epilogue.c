#include "sim/cost/cost_private.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/cost/op_time.h"
#include "sim/cost/time_private.h"

#define BYTES_BF16 2.0
#define BYTES_FP32 4.0

static int64_t bucket_count(const sp_cost_model *cost, const sp_stage *stage, double parameters);
static sp_epilogue_cost epilogue_of(const sp_cost_model *cost, const sp_op_timer *timer,
                                    sp_group replicas, double parameters, int64_t buckets);
static sp_bucket_cost buckets_of(const sp_cost_model *cost, const sp_op_timer *timer,
                                 sp_group replicas, const sp_stage *stage, double parameters);
static int64_t hideable_gather_ns(const sp_cost_model *cost, const sp_op_timer *timer,
                                  sp_group replicas, const sp_stage *first_chunk,
                                  int64_t gather_ns);
static void add_tied_reduction(const sp_cost_model *cost, const sp_op_timer *timer,
                               sp_step_costs *costs);

// From ZeRO 2 on gradients are scattered inside the actions (zero.c).
static bool hides_reduction(const sp_cost_model *cost)
{
    const sp_stack *stack = &cost->memory.stack;
    int zero = cost->layout->zero;
    return (stack->hide_gradient_reduce && zero < 2) ||
           (stack->hide_gradient_all_reduce && zero == 0);
}

void sp_i_fill_epilogues(const sp_cost_model *cost, const sp_op_timer *timer, sp_step_costs *costs)
{
    const sp_layout *layout = cost->layout;
    int chunks = layout->chunks;
    sp_group replicas = sp_cluster_group(cost->cluster, layout, SP_DIM_DP_CP);
    const sp_op_timer of_replicas = sp_i_replica_timer(cost, timer);
    sp_stage *held = sp_calloc((size_t)chunks, sizeof *held);
    if (hides_reduction(cost)) {
        costs->buckets = sp_calloc((size_t)sp_layout_vstages(layout), sizeof *costs->buckets);
    }
    for (int r = 0; r < layout->pp; r++) {
        double parameters = 0.0;
        int64_t buckets = 0;
        for (int c = 0; c < chunks; c++) {
            held[c] = cost->stages[sp_layout_vstage(layout, r, c)];
            // A tied table that two chunks of the rank share is the first one's.
            double with_chunk = (double)sp_footprint_parameters(cost->model, layout, held, c + 1);
            if (costs->buckets != NULL) {
                costs->buckets[r * chunks + c] =
                    buckets_of(cost, &of_replicas, replicas, &held[c], with_chunk - parameters);
            }
            buckets += cost->memory.stack.bucketed_epilogue
                           ? bucket_count(cost, &held[c], with_chunk - parameters)
                           : 0;
            parameters = with_chunk;
        }
        costs->epilogue[r] = epilogue_of(cost, &of_replicas, replicas, parameters, buckets);
        if (costs->buckets != NULL) {
            costs->epilogue[r].grad_reduce_ns = 0;
            costs->epilogue[r].reduce_bytes = 0.0;
        }
        if (cost->memory.stack.hide_parameter_gather) {
            costs->epilogue[r].hideable_gather_ns = hideable_gather_ns(
                cost, &of_replicas, replicas, &held[0], costs->epilogue[r].param_gather_ns);
        }
    }
    add_tied_reduction(cost, timer, costs);
    sp_free(held);
}

// Bucket after bucket, each with its latency; 0 buckets: at once.
static int64_t bucketed_ns(const sp_op_timer *timer, sp_collective kind, sp_group replicas,
                           double bytes, int64_t buckets, sp_collective_algorithm *by)
{
    double count = fmax(1.0, (double)buckets);
    *by = sp_collective_choice(timer, kind, replicas, bytes / count);
    return sp_i_cut_ns(count * sp_time_collective(timer, kind, replicas, bytes / count));
}

static sp_epilogue_cost epilogue_of(const sp_cost_model *cost, const sp_op_timer *timer,
                                    sp_group replicas, double parameters, int64_t buckets)
{
    const sp_profile *profile = timer->profile;
    int zero = cost->layout->zero;
    double gradient_bytes = sp_stack_gradient_bytes(&cost->memory.stack);
    bool sharded = zero > 0 || cost->memory.stack.sharded_step;
    double shards = sharded ? replicas.size : 1.0;
    double optimizer_s =
        sp_time_memory(timer, parameters / shards * profile->optimizer_bytes_per_parameter, 0);
    sp_epilogue_cost epilogue = {.optimizer_ns =
                                     sp_i_cut_ns(optimizer_s + profile->host.iteration_s)};
    if (zero <= 1) {
        sp_collective kind = zero == 0 ? SP_ALL_REDUCE : SP_REDUCE_SCATTER;
        epilogue.reduce_bytes = parameters * gradient_bytes;
        epilogue.grad_reduce_ns = bucketed_ns(timer, kind, replicas, parameters * gradient_bytes,
                                              buckets, &epilogue.reduces_by);
    }
    if (zero == 1 || zero == 2) {
        epilogue.gather_bytes = parameters * BYTES_BF16;
        epilogue.param_gather_ns = bucketed_ns(
            timer, SP_ALL_GATHER, replicas, parameters * BYTES_BF16, buckets, &epilogue.gathers_by);
    }
    return epilogue;
}

static int64_t bucket_count(const sp_cost_model *cost, const sp_stage *stage, double parameters)
{
    double limit_bytes = cost->memory.stack.bucket_bytes;
    double count = stage->layers;
    if (limit_bytes > 0.0) {
        // No bucket is smaller than one gradient.
        count = fmin(ceil(parameters * BYTES_FP32 / limit_bytes), parameters);
    }
    return (int64_t)fmax(1.0, count);
}

static sp_bucket_cost buckets_of(const sp_cost_model *cost, const sp_op_timer *timer,
                                 sp_group replicas, const sp_stage *stage, double parameters)
{
    sp_collective kind = cost->layout->zero == 0 ? SP_ALL_REDUCE : SP_REDUCE_SCATTER;
    int64_t count = bucket_count(cost, stage, parameters);
    double bytes = parameters * sp_stack_gradient_bytes(&cost->memory.stack);
    double bucket_s = sp_time_collective(timer, kind, replicas, bytes / (double)count);
    return (sp_bucket_cost){.count = count,
                            .bytes = bytes,
                            .reduces_by =
                                sp_collective_choice(timer, kind, replicas, bytes / (double)count),
                            .bucket_ns = sp_i_cut_ns(bucket_s),
                            .total_ns = sp_i_cut_ns((double)count * bucket_s)};
}

// The first forward waits for its first bucket and may hide the rest.
static int64_t hideable_gather_ns(const sp_cost_model *cost, const sp_op_timer *timer,
                                  sp_group replicas, const sp_stage *first_chunk, int64_t gather_ns)
{
    double parameters = (double)sp_footprint_parameters(cost->model, cost->layout, first_chunk, 1);
    double count = (double)bucket_count(cost, first_chunk, parameters);
    int64_t first_ns = sp_i_cut_ns(
        sp_time_collective(timer, SP_ALL_GATHER, replicas, parameters * BYTES_BF16 / count));
    return gather_ns > first_ns ? gather_ns - first_ns : 0;
}

// A tied table whose two uses lie on the first and the last pipeline rank is held twice:
// Megatron-LM adds up its two fp32 gradients (core/distributed/finalize_model_grads.py), TP rank by
// TP rank, after the reduction over replicas.
static void add_tied_reduction(const sp_cost_model *cost, const sp_op_timer *timer,
                               sp_step_costs *costs)
{
    const sp_layout *layout = cost->layout;
    int last_rank;
    int chunk;
    sp_layout_locate(layout, sp_layout_vstages(layout) - 1, &last_rank, &chunk);
    // With vocabulary parallelism every rank has one share of the table for both uses.
    if (!cost->model->tied_embeddings || layout->vocab_parallel || last_rank == 0) {
        return;
    }
    // The last pipeline rank's neighbour up the ring is the first.
    int nodes = costs->crosses_nodes[layout->pp - 1] ? 2 : 1;
    sp_group first_and_last = {
        .size = 2, .nodes = nodes, .least_per_node = 2 / nodes, .most_per_node = 2 / nodes};
    double rows = (double)sp_ceil_div(cost->model->vocab, layout->tp);
    int64_t ns = sp_i_cut_ns(sp_time_collective(timer, SP_ALL_REDUCE, first_and_last,
                                                rows * (double)cost->model->hidden * BYTES_FP32));
    costs->epilogue[0].grad_reduce_ns += ns;
    costs->epilogue[0].tied_reduce_ns = ns;
    costs->epilogue[last_rank].grad_reduce_ns += ns;
    costs->epilogue[last_rank].tied_reduce_ns = ns;
}
