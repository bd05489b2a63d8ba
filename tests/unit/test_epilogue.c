// The end of a step: reductions, optimizer and gathers, and what of them other work hides.
#include "tests/support/priced_step.h"
#include "tests/support/random_step.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

#define BYTES_BF16 2.0
#define BYTES_FP32 4.0

// ---- costs ----

static priced_case replicated(int zero)
{
    priced_case c = priced_default();
    c.layout.dp = 4;
    c.layout.zero = zero;
    return c;
}

// ZeRO 0: all-reduce of fp32 gradients. 1: reduce-scatter and gather of bf16 parameters. 2: the
// gradients are scattered in the step. 3: the parameters are gathered there too. From 1 on a rank
// updates its share; a step's fixed host time stands with the optimizer.
TEST(formulas)
{
    for (int zero = 0; zero <= 3; zero++) {
        AUTO(priced_step) step;
        priced_case c = replicated(zero);
        priced_step_run(&c, &step);
        double parameters = (double)sp_model_parameters(&c.model);
        double reduce_ns =
            1e9 * priced_collective_s(&step, zero == 0 ? SP_ALL_REDUCE : SP_REDUCE_SCATTER,
                                      parameters * BYTES_FP32);
        double gather_ns = 1e9 * priced_collective_s(&step, SP_ALL_GATHER, parameters * BYTES_BF16);
        double optimizer_ns = 1e9 * parameters / (zero > 0 ? 4.0 : 1.0) *
                              step.profile.optimizer_bytes_per_parameter /
                              step.profile.memory_bytes_per_s;
        const sp_epilogue_cost *epilogue = &step.costs.ranks[0].epilogue;
        assert_within((double)epilogue->grad_reduce_ns, zero <= 1 ? reduce_ns : 0.0, 1.0);
        assert_within((double)epilogue->param_gather_ns, zero == 1 || zero == 2 ? gather_ns : 0.0,
                      1.0);
        assert_within((double)epilogue->optimizer_ns, optimizer_ns, 1.0);
        assert_int_equal(epilogue->hideable_gather_ns, 0);
        assert_null(step.costs.buckets);
        assert_int_equal(step.metrics.iteration_ns - step.metrics.makespan_ns,
                         epilogue->grad_reduce_ns + epilogue->optimizer_ns +
                             epilogue->param_gather_ns);
    }
}

// A share of the weights is stepped by the host, its GPUs' CPUs together: gradients go there (4
// bytes), Adam moves 30 bytes of each, and 2 bytes come back. The GPU steps the others meanwhile.
TEST(host_steps_a_share)
{
    for (int zero = 0; zero <= 3; zero++) {
        for (int i = 0; i <= 4; i++) {
            AUTO(priced_step) step;
            priced_case c = replicated(zero);
            c.memory.stack.offload_states = i / 4.0;
            priced_step_run(&c, &step);
            double stepped =
                (double)sp_model_parameters(&c.model) / (zero > 0 ? 4.0 : 1.0); // 4 of 8 GPUs
            double away = stepped * i / 4.0;
            double gpu_s = (stepped - away) * step.profile.optimizer_bytes_per_parameter /
                           step.profile.memory_bytes_per_s;
            double host_s = away * (BYTES_FP32 + BYTES_BF16) / step.cluster.host_link_bytes_per_s +
                            away * 30.0 / (120e9 / 4.0);
            assert_within((double)step.costs.ranks[0].epilogue.optimizer_ns,
                          1e9 * (gpu_s > host_s ? gpu_s : host_s), 1.0);
            assert_true(i < 2 || host_s > gpu_s);
        }
    }
}

// Pieces of one size through three machines, each of which has one at a time: gradients to the
// host, the CPUs, weights back.
static double flow_shop_s(const double of_piece_s[3], int pieces)
{
    double free_s[3] = {0.0, 0.0, 0.0};
    for (int p = 0; p < pieces; p++) {
        double done_s = 0.0;
        for (int m = 0; m < 3; m++) {
            done_s = (done_s > free_s[m] ? done_s : free_s[m]) + of_piece_s[m];
            free_s[m] = done_s;
        }
    }
    return free_s[2];
}

// With host_overlap matrices pass copies, CPUs and copies in turn: four of each layer, the
// embedding and the head, of which the host has a share and a rank of ZeRO its part.
TEST(host_steps_overlap_by_matrices)
{
    static const double links[] = {1e15, 25e9, 2e9, 5e8}; // CPUs or gradients are the slowest
    for (int zero = 0; zero <= 3; zero += 3) {
        for (int i = 1; i <= 4; i++) {
            for (size_t l = 0; l < sizeof links / sizeof links[0]; l++) {
                AUTO(priced_step) step;
                priced_case c = replicated(zero);
                c.memory.stack.offload_states = i / 4.0;
                c.memory.stack.host_overlap = true;
                c.host_link_bytes_per_s = links[l];
                priced_step_run(&c, &step);
                double ranks = zero > 0 ? 4.0 : 1.0;
                double away = (double)sp_model_parameters(&c.model) / ranks * i / 4.0;
                int pieces = (int)(i / 4.0 * (4 * c.model.layers + 2) / ranks);
                const double of_piece_s[3] = {away * BYTES_FP32 / links[l] / pieces,
                                              away * 30.0 / (120e9 / 4.0) / pieces,
                                              away * BYTES_BF16 / links[l] / pieces};
                double gpu_s = (1.0 - i / 4.0) * (double)sp_model_parameters(&c.model) / ranks *
                               step.profile.optimizer_bytes_per_parameter /
                               step.profile.memory_bytes_per_s;
                double host_s = flow_shop_s(of_piece_s, pieces);
                assert_within((double)step.costs.ranks[0].epilogue.optimizer_ns,
                              1e9 * (gpu_s > host_s ? gpu_s : host_s), 1.0);
            }
        }
    }
}

// A tied table is one matrix of a rank that has embedding and head, and one of each of two ranks
// that have one of them.
TEST(a_tied_table_is_a_matrix_of_each_rank_that_holds_it)
{
    for (int tied = 0; tied <= 1; tied++) {
        for (int pp = 1; pp <= 2; pp++) {
            AUTO(priced_step) step;
            priced_case c = replicated(0);
            c.model.tied_embeddings = tied != 0;
            c.layout.pp = pp;
            c.memory.stack.offload_states = 1.0;
            c.memory.stack.host_overlap = true;
            c.host_link_bytes_per_s = 5e8;
            priced_step_run(&c, &step);
            double layers = c.model.layers / (double)pp;
            double table = (double)(c.model.vocab * c.model.hidden);
            double all = (double)sp_model_parameters(&c.model);
            // Of the last norm there is one, which the last rank has.
            double norm = (double)sp_model_norm_parameters(&c.model);
            double of_layers = (all - norm - (tied != 0 ? 1.0 : 2.0) * table) / pp;
            double tables = pp > 1 || tied != 0 ? 1.0 : 2.0;
            for (int r = 0; r < pp; r++) {
                double weights = of_layers + tables * table + (r == pp - 1 ? norm : 0.0);
                int pieces = (int)(4.0 * layers + tables);
                const double of_piece_s[3] = {
                    weights * BYTES_FP32 / c.host_link_bytes_per_s / pieces,
                    weights * 30.0 / (120e9 / (4.0 * pp)) / pieces,
                    weights * BYTES_BF16 / c.host_link_bytes_per_s / pieces};
                assert_within((double)step.costs.ranks[r].epilogue.optimizer_ns,
                              1e9 * flow_shop_s(of_piece_s, pieces), 2.0);
            }
        }
    }
}

// States split over two neighbours of four ranks: their shares are added up over the other pair,
// and nothing is gathered beyond the two. A group of all is no group.
TEST(groups_of_shards)
{
    const sp_group pair = {.size = 2, .nodes = 1, .least_per_node = 2, .most_per_node = 2};
    for (int zero = 0; zero <= 3; zero++) {
        AUTO(priced_step) split, whole, all;
        priced_case c = replicated(zero);
        priced_step_run(&c, &whole);
        c.layout.zero_group = 4;
        priced_step_run(&c, &all);
        c.layout.zero_group = 2;
        priced_step_run(&c, &split);
        const sp_epilogue_cost *epilogue = &split.costs.ranks[0].epilogue;
        const sp_epilogue_cost *of_whole = &whole.costs.ranks[0].epilogue;
        assert_int_equal(all.metrics.iteration_ns, whole.metrics.iteration_ns);
        assert_within((double)epilogue->optimizer_ns,
                      (zero > 0 ? 2.0 : 1.0) * (double)of_whole->optimizer_ns, 2.0);
        if (zero == 1) {
            sp_op_timer timer = {.cluster = &split.cluster, .profile = &split.profile};
            double parameters = (double)sp_model_parameters(&c.model);
            double bytes = parameters * BYTES_FP32;
            double reduce_s = sp_time_collective(&timer, SP_REDUCE_SCATTER, pair, bytes) +
                              sp_time_collective(&timer, SP_ALL_REDUCE, pair, bytes / 2.0);
            assert_within((double)epilogue->grad_reduce_ns, 1e9 * reduce_s, 1.0);
            double gather_s =
                sp_time_collective(&timer, SP_ALL_GATHER, pair, parameters * BYTES_BF16);
            assert_within((double)epilogue->param_gather_ns, 1e9 * gather_s, 1.0);
        }
        if (zero == 0) {
            assert_int_equal(split.metrics.iteration_ns, whole.metrics.iteration_ns);
        }
    }
}

// Whole tensors of ZeRO 1 and 2 go to their owner and from it: n - 1 steps and all bytes, each way.
TEST(rooted_shares)
{
    for (int zero = 0; zero <= 3; zero++) {
        AUTO(priced_step) step, plain;
        priced_case c = replicated(zero);
        c.overrides[0] = "links.nvlink_latency_us=700";
        priced_step_run(&c, &plain);
        c.memory.stack.rooted_shares = true;
        priced_step_run(&c, &step);
        const sp_epilogue_cost *epilogue = &step.costs.ranks[0].epilogue;
        double bytes = (double)sp_model_parameters(&c.model) * BYTES_BF16;
        assert_close(step.profile.nvlink_latency_s, 7e-4, 1e-12);
        double s = 3.0 * step.profile.nvlink_latency_s + bytes / step.profile.nvlink_bytes_per_s;
        if (zero == 1 || zero == 2) {
            assert_within((double)epilogue->param_gather_ns, 1e9 * s, 1.0);
        } else {
            assert_int_equal(step.metrics.iteration_ns, plain.metrics.iteration_ns);
        }
        if (zero == 1) {
            double more_s = bytes / step.profile.nvlink_bytes_per_s; // fp32
            assert_within((double)epilogue->grad_reduce_ns, 1e9 * (s + more_s), 1.0);
        }
    }
}

// Buckets of a chunk are equal, one a layer or as many as the limit asks for; without latency they
// take as long as one reduction together, over all chunks of a rank. From ZeRO 2 on there are none.
TEST(buckets)
{
    for (int zero = 0; zero <= 3; zero++) {
        for (int limited = 0; limited < 2; limited++) {
            AUTO(priced_step) plain, step;
            priced_case c = replicated(zero);
            c.layout.pp = 2;
            c.layout.chunks = 2;
            c.microbatches = 2;
            c.schedule.kind = SP_SCHEDULE_INTERLEAVED;
            priced_step_run(&c, &plain);
            c.memory.stack.hide_gradient_reduce = true;
            c.memory.stack.bucket_bytes = limited ? 40e6 : 0.0;
            priced_step_run(&c, &step);
            for (int r = 0; r < 2 && zero < 2; r++) {
                int64_t total_ns = 0;
                for (int v = 0; v < 2; v++) {
                    const sp_bucket_cost *bucket = &step.costs.buckets[2 * r + v];
                    double bytes =
                        BYTES_FP32 *
                        priced_parameters(
                            &step, step.cost.stages[sp_layout_vstage(&step.of.layout, r, v)]);
                    assert_int_equal(bucket->count, limited ? (int64_t)ceil(bytes / 40e6) : 2);
                    assert_within((double)bucket->bucket_ns,
                                  (double)bucket->total_ns / (double)bucket->count, 1.0);
                    total_ns += bucket->total_ns;
                }
                assert_within((double)total_ns,
                              (double)plain.costs.ranks[r].epilogue.grad_reduce_ns, 2.0);
                assert_int_equal(step.costs.ranks[r].epilogue.grad_reduce_ns, 0);
            }
            assert_true((step.costs.buckets == NULL) == (zero >= 2));
            assert_true(step.metrics.iteration_ns <= plain.metrics.iteration_ns + 4);
        }
    }
}

// Of each the fastest for its own bytes: that of a bucket where there are buckets. Over three nodes
// of 8, with 2 us a step inside them and 30 us between.
TEST(every_exchange_names_its_algorithm)
{
    int named[SP_ALGORITHMS] = {0};
    for (int i = 0; i < 16; i++) {
        priced_case c = replicated(i % 2);
        c.layout.dp = 24;
        c.algorithm = SP_ALGORITHM_AUTO;
        c.overrides[0] = "links.nic_latency_us=30";
        c.overrides[1] = "links.nvlink_latency_us=2";
        c.memory.stack.hide_gradient_reduce = i / 2 % 2 != 0;
        c.memory.stack.bucketed_epilogue = i / 4 % 2 != 0;
        c.memory.stack.bucket_bytes = i / 8 != 0 ? 3e5 : 0.0;
        PRICED_STEP(step, &c);
        sp_op_timer timer = {.cluster = &step.cluster, .profile = &step.profile};
        sp_group group = sp_cluster_group(&step.cluster, &step.of.layout, SP_DIM_DP_CP);
        sp_collective kind = i % 2 == 0 ? SP_ALL_REDUCE : SP_REDUCE_SCATTER;
        double parameters = (double)sp_model_parameters(&c.model);
        double grad_bytes = parameters * BYTES_FP32;
        double count = i / 8 != 0 ? ceil(grad_bytes / 3e5) : c.model.layers;
        double parts = c.memory.stack.bucketed_epilogue ? count : 1.0;
        const sp_epilogue_cost *epilogue = &step.costs.ranks[0].epilogue;
        assert_int_equal(epilogue->reduces_by,
                         sp_collective_choice(&timer, kind, group, grad_bytes / parts));
        named[epilogue->reduces_by]++;
        if (i % 2 == 1) {
            assert_int_equal(epilogue->gathers_by,
                             sp_collective_choice(&timer, SP_ALL_GATHER, group,
                                                  parameters * BYTES_BF16 / parts));
            named[epilogue->gathers_by]++;
        }
        if (step.costs.buckets != NULL) {
            const sp_bucket_cost *bucket = &step.costs.buckets[0];
            assert_int_equal(bucket->reduces_by,
                             sp_collective_choice(&timer, kind, group, grad_bytes / count));
            step.profile.algorithm = bucket->reduces_by;
            assert_within((double)bucket->bucket_ns,
                          1e9 * sp_time_collective(&timer, kind, group, grad_bytes / count), 1.0);
        }
    }
    assert_true(named[SP_ALGORITHM_TREE] > 0 && named[SP_ALGORITHM_HIERARCHICAL] > 0);
}

// One after the other each bucket pays its latency; bf16 gradients are half the bytes; what ZeRO 0
// hides with `hide_gradient_all_reduce` ZeRO 1 does not.
TEST(switches_of_the_reduction)
{
    for (int zero = 0; zero <= 1; zero++) {
        AUTO(priced_step) step;
        priced_case c = replicated(zero);
        sp_collective kind = zero == 0 ? SP_ALL_REDUCE : SP_REDUCE_SCATTER;
        c.overrides[0] = "links.nvlink_latency_us=20";
        c.memory.stack.bucketed_epilogue = true;
        for (int bf16 = 0; bf16 < 2; bf16++) {
            c.memory.stack.gradient_reduce_dtype = bf16 ? SP_REDUCE_BF16 : SP_REDUCE_FP32;
            priced_step_run(&c, &step);
            double buckets = c.model.layers;
            double bucket = (double)sp_model_parameters(&c.model) / buckets;
            double bytes = bucket * (bf16 ? BYTES_BF16 : BYTES_FP32);
            assert_within((double)step.costs.ranks[0].epilogue.grad_reduce_ns,
                          1e9 * buckets * priced_collective_s(&step, kind, bytes), 1.0);
            double gather_s = priced_collective_s(&step, SP_ALL_GATHER, bucket * BYTES_BF16);
            assert_within((double)step.costs.ranks[0].epilogue.param_gather_ns,
                          zero == 1 ? 1e9 * buckets * gather_s : 0.0, 1.0);
            priced_step_fini(&step);
        }
        c.memory.stack.hide_gradient_all_reduce = true;
        priced_step_run(&c, &step);
        assert_true((step.costs.buckets != NULL) == (zero == 0));
        assert_true((step.costs.ranks[0].epilogue.grad_reduce_ns == 0) == (zero == 0));
    }
}

// A tied table on two pipeline ranks is added up when the replicas' reduction is over, hidden or
// not; on one rank it belongs to the first chunk alone.
TEST(tied_tables)
{
    priced_step hidden, plain;
    priced_case c = replicated(0);
    c.model.tied_embeddings = true;
    c.layout.pp = 2;
    c.microbatches = 2;
    double table_ns = 1e9 * 32000.0 * 1024.0 * BYTES_FP32 / 200e9; // 2(n-1)/n = 1 for two ranks
    priced_step_run(&c, &plain);
    c.memory.stack.hide_gradient_reduce = true;
    priced_step_run(&c, &hidden);
    for (int r = 0; r < 2; r++) {
        assert_within((double)hidden.costs.ranks[r].epilogue.grad_reduce_ns, table_ns, 1.0);
        assert_within((double)hidden.costs.buckets[r].total_ns + table_ns,
                      (double)plain.costs.ranks[r].epilogue.grad_reduce_ns, 2.0);
    }
    priced_step_fini(&hidden);
    priced_step_fini(&plain);
    c.layout.pp = 1;
    c.layout.chunks = 2;
    c.layout.placement = SP_PLACE_V;
    c.schedule.kind = SP_SCHEDULE_ZB_V;
    priced_step_run(&c, &hidden);
    double first = priced_parameters(&hidden, (sp_stage){.layers = 4, .embedding = true});
    double rest = (double)sp_model_parameters(&c.model) - first;
    assert_int_equal(hidden.costs.ranks[0].epilogue.grad_reduce_ns, 0);
    assert_within((double)hidden.costs.buckets[0].total_ns,
                  1e9 * priced_collective_s(&hidden, SP_ALL_REDUCE, first * BYTES_FP32), 1.0);
    assert_within((double)hidden.costs.buckets[1].total_ns,
                  1e9 * priced_collective_s(&hidden, SP_ALL_REDUCE, rest * BYTES_FP32), 1.0);
    priced_step_fini(&hidden);
}

// ---- overlap on one chunk ----

// n buckets of G/n behind a last backward of C: the first is ready after C/n, the last at the end,
// so that the step waits for max(G - C(n-1)/n, G/n). Without a limit on the buckets' size it is the
// whole reduction, as without overlap.
TEST(reduction_behind_the_last_backward)
{
    static const double rates_gb_per_s[] = {1.0, 30.0, 100.0, 300.0, 3000.0};
    for (size_t i = 0; i < sizeof rates_gb_per_s / sizeof rates_gb_per_s[0]; i++) {
        for (int whole = 0; whole < 2; whole++) {
            AUTO(priced_step) step;
            priced_case c = replicated(1);
            c.microbatches = 3;
            c.nvlink_gb_per_s = rates_gb_per_s[i];
            c.memory.stack.hide_gradient_reduce = true;
            c.memory.stack.bucket_bytes = whole ? 1e15 : 0.0;
            priced_step_run(&c, &step);
            double n = whole ? 1.0 : 8.0;
            double all_ns = (double)step.costs.buckets[0].total_ns;
            double backward_ns = (double)sp_action_cost_ns(&step.costs.action[SP_ACTION_B][0]);
            const sp_rank_timeline *rank = &step.timeline.ranks[0];
            assert_int_equal(rank->reduce_start_ns, step.metrics.makespan_ns);
            assert_within((double)(rank->reduce_end_ns - rank->reduce_start_ns),
                          fmax(all_ns - backward_ns * (n - 1.0) / n, all_ns / n), 2.0);
            // What the iteration waits for is counted, no more.
            assert_int_equal(step.metrics.reduce_ns,
                             rank->reduce_end_ns - rank->reduce_start_ns +
                                 step.costs.ranks[0].epilogue.param_gather_ns);
        }
    }
}

// The gather of ZeRO 1 behind the next step's first forward: at least the first bucket is waited
// for, and what is longer than that forward's computation.
TEST(gather_behind_the_first_forward)
{
    static const double rates_gb_per_s[] = {0.1, 3.0, 10.0, 30.0, 300.0};
    for (size_t i = 0; i < sizeof rates_gb_per_s / sizeof rates_gb_per_s[0]; i++) {
        AUTO(priced_step) step;
        priced_case c = replicated(1);
        c.microbatches = 2;
        c.nvlink_gb_per_s = rates_gb_per_s[i];
        c.memory.stack.hide_parameter_gather = true;
        priced_step_run(&c, &step);
        double gather_ns = (double)step.costs.ranks[0].epilogue.param_gather_ns;
        double forward_ns = (double)step.costs.action[SP_ACTION_F][0].compute_ns;
        const sp_rank_timeline *rank = &step.timeline.ranks[0];
        assert_within((double)(rank->gather_end_ns - rank->optimizer_end_ns),
                      fmax(gather_ns / 8.0, gather_ns - forward_ns), 2.0);
    }
}

// ---- overlap of several chunks and data-parallel ranks ----

typedef struct random_case {
    sp_layout layout;
    sp_packing packing;
    sp_plan plan;
    sp_step_costs costs;
} random_case;

static void random_case_make(random_case *c, sp_prng *prng)
{
    static const sp_schedule_kind kinds[] = {SP_SCHEDULE_1F1B, SP_SCHEDULE_INTERLEAVED,
                                             SP_SCHEDULE_ZB_H1, SP_SCHEDULE_GPIPE};
    sp_schedule_spec spec = {.kind = kinds[sp_prng_below(prng, sizeof kinds / sizeof kinds[0])]};
    *c = (random_case){.layout = {.tp = 1, .cp = 1}};
    c->layout.pp = 2 + prng_below(prng, 3);
    c->layout.dp = 1 + prng_below(prng, 3);
    c->layout.chunks = spec.kind == SP_SCHEDULE_INTERLEAVED ? 1 + prng_below(prng, 3) : 1;
    int m = c->layout.pp * (1 + prng_below(prng, 3));
    uniform_packing(&c->packing, c->layout.dp, m);
    sp_plan_init(&c->plan, &c->layout, &c->packing);
    must_succeed(sp_schedule_generate(&spec, NULL, "test", &c->plan, ERR));
    random_costs(prng, &c->layout, &c->packing, 0, &c->costs);
}

static void random_case_fini(random_case *c)
{
    sp_step_costs_fini(&c->costs);
    sp_plan_fini(&c->plan);
    sp_packing_fini(&c->packing);
}

static void draw_buckets(random_case *c, sp_prng *prng, int64_t most_ns)
{
    size_t count = (size_t)sp_layout_vstages(&c->layout);
    sp_free(c->costs.buckets);
    c->costs.buckets = sp_calloc(count, sizeof *c->costs.buckets);
    for (size_t i = 0; i < count; i++) {
        int64_t n = 1 + (int64_t)sp_prng_below(prng, 9);
        int64_t ns = (int64_t)sp_prng_below(prng, (uint64_t)most_ns + 1);
        c->costs.buckets[i] = (sp_bucket_cost){.count = n, .bucket_ns = ns, .total_ns = n * ns};
    }
}

static void simulate(const random_case *c, sp_timeline *timeline)
{
    sp_engine_options options = {.verify = true, .unfold = true};
    AUTO(sp_memory_timeline) memory;
    sp_engine_counts counts;
    must_succeed(sp_simulate(&c->plan, &c->costs, &options, timeline, &memory, &counts, ERR));
}

// When bucket j of a chunk is ready: (j+1)/n of the last action that makes its gradients, on every
// data-parallel rank.
static double ready_ns(const sp_timeline *timeline, int pp_rank, int chunk, int64_t j, int64_t n)
{
    double latest_ns = 0.0;
    for (size_t i = 0; i < timeline->rank_count; i++) {
        const sp_rank_timeline *rank = &timeline->ranks[i];
        for (size_t s = rank->count; s-- > 0 && rank->pp == pp_rank;) {
            const sp_span *span = &rank->spans[s];
            bool gradients = span->action.kind == SP_ACTION_B || span->action.kind == SP_ACTION_W;
            if (gradients && span->action.chunk == chunk) {
                double took_ns = (double)(span->end_ns - span->start_ns);
                latest_ns =
                    fmax(latest_ns, (double)span->start_ns + took_ns * (double)(j + 1) / (double)n);
                break;
            }
        }
    }
    return latest_ns;
}

// Buckets one by one, the chunks in the order in which their gradients are complete.
static double one_by_one_ns(const random_case *c, const sp_timeline *timeline, int pp_rank)
{
    bool done[8] = {false};
    double now_ns = 0.0;
    for (int left = c->layout.chunks; left > 0; left--) {
        int next = -1;
        for (int v = 0; v < c->layout.chunks; v++) {
            if (!done[v] && (next < 0 || ready_ns(timeline, pp_rank, v, 0, 1) <
                                             ready_ns(timeline, pp_rank, next, 0, 1))) {
                next = v;
            }
        }
        const sp_bucket_cost *bucket = &c->costs.buckets[pp_rank * c->layout.chunks + next];
        for (int64_t j = 0; j < bucket->count; j++) {
            now_ns = fmax(now_ns, ready_ns(timeline, pp_rank, next, j, bucket->count)) +
                     (double)bucket->bucket_ns;
        }
        done[next] = true;
    }
    return now_ns;
}

// Against buckets simulated one by one; the exposed part is never negative, and is at most the
// whole reduction.
TEST_ROUNDS(random_buckets, 29, 200)
{
    AUTO(random_case) c;
    random_case_make(&c, prng);
    draw_buckets(&c, prng, round % 2 == 0 ? 500 : 5000);
    AUTO(sp_timeline) timeline;
    simulate(&c, &timeline);
    for (size_t i = 0; i < timeline.rank_count; i++) {
        const sp_rank_timeline *rank = &timeline.ranks[i];
        int64_t all_ns = 0;
        for (int v = 0; v < c.layout.chunks; v++) {
            all_ns += c.costs.buckets[rank->pp * c.layout.chunks + v].total_ns;
        }
        int64_t after_ns = c.costs.ranks[rank->pp].epilogue.grad_reduce_ns;
        int64_t exposed_ns = rank->reduce_end_ns - after_ns - rank->reduce_start_ns;
        assert_true(exposed_ns >= 0 && exposed_ns <= all_ns);
        assert_true(rank->reduce_start_ns >= rank->spans[rank->count - 1].end_ns);
        double expected_ns =
            fmax(one_by_one_ns(&c, &timeline, rank->pp), (double)rank->reduce_start_ns);
        assert_within((double)(rank->reduce_end_ns - after_ns), expected_ns, 1.0);
    }
}

// Buckets of no time change nothing; the same reductions cost no less without overlap; folding
// alike ranks changes no end.
TEST_ROUNDS(overlap_never_costs, 31, 100)
{
    AUTO(random_case) c;
    AUTO(sp_timeline) apart, timeline;
    random_case_make(&c, prng);
    simulate(&c, &apart);
    draw_buckets(&c, prng, 0);
    simulate(&c, &timeline);
    assert_int_equal(timeline.iteration_ns, apart.iteration_ns);
    sp_timeline_fini(&timeline);
    sp_timeline_fini(&apart);
    draw_buckets(&c, prng, 3000);
    simulate(&c, &timeline);
    AUTO_FREE sp_bucket_cost *drawn = c.costs.buckets;
    c.costs.buckets = NULL;
    for (int r = 0; r < c.layout.pp; r++) {
        for (int v = 0; v < c.layout.chunks; v++) {
            c.costs.ranks[r].epilogue.grad_reduce_ns += drawn[r * c.layout.chunks + v].total_ns;
        }
    }
    simulate(&c, &apart);
    assert_true(timeline.iteration_ns <= apart.iteration_ns);
    assert_int_equal(timeline.makespan_ns, apart.makespan_ns);
}
