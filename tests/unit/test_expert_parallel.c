// Experts over several ranks: groups, states, saved tensors and bytes sent, against arithmetic by
// hand, and ranks that wait for each other.
#include "sim/cost/cost_private.h"
#include "sim/memory/footprint.h"
#include "sim/memory/saved_tensors.h"
#include "sim/model/cluster.h"
#include "sim/model/inventory.h"
#include "sim/plan/rounds.h"
#include "tests/support/flat_profile.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

// Sizes of a model that divide in many ways.
enum { HIDDEN = 512, WIDTH = 768, HEADS = 8, KV_HEADS = 4, VOCAB = 1024, EXPERTS = 16, TOP = 4 };

static const sp_model routed = {.name = "routed",
                                LLAMA_SHAPE(4, HIDDEN, WIDTH, HEADS, KV_HEADS, VOCAB),
                                .experts = EXPERTS,
                                .experts_per_token = TOP};

static sp_layout layout_of(int tp, int cp, int dp, int ep, int etp)
{
    return (sp_layout){LAYOUT(tp, cp, 1, dp, 1), .ep = ep, .etp = etp, .sequence_parallel = tp > 1,
                       .zero = 1};
}

// ---- ranks ----

// The worst group of one coordinate of the expert grid, by going through all ranks:
// rank = etp + ETP*(ep + EP*(edp + EDP*pp)) (Megatron-LM, core/parallel_state.py).
static sp_group listed_group(const sp_layout *layout, int per_node, sp_dimension dimension)
{
    int64_t etp = sp_layout_etp(layout);
    int64_t ep = sp_layout_ep(layout);
    int64_t edp = (int64_t)layout->tp * layout->cp * layout->dp / (etp * ep);
    int64_t size = dimension == SP_DIM_EP    ? ep
                   : dimension == SP_DIM_ETP ? etp
                   : dimension == SP_DIM_EDP ? edp
                                             : etp * ep;
    sp_group worst = {.size = (int)size, .nodes = 1, .least_per_node = (int)size};
    for (int64_t first = 0; first < sp_layout_ranks(layout); first++) {
        int in_node[64] = {0};
        for (int64_t rank = 0; rank < sp_layout_ranks(layout); rank++) {
            bool same_etp =
                rank % etp == first % etp || dimension == SP_DIM_ETP || dimension == SP_DIM_ETP_EP;
            bool same_ep = rank / etp % ep == first / etp % ep || dimension == SP_DIM_EP ||
                           dimension == SP_DIM_ETP_EP;
            bool same_edp =
                rank / etp / ep % edp == first / etp / ep % edp || dimension == SP_DIM_EDP;
            bool same_pp = rank / etp / ep / edp == first / etp / ep / edp;
            in_node[rank / per_node] += same_etp && same_ep && same_edp && same_pp;
        }
        int nodes = 0;
        int least = (int)size;
        for (int n = 0; n < 64; n++) {
            nodes += in_node[n] > 0;
            least = in_node[n] > 0 && in_node[n] < least ? in_node[n] : least;
        }
        worst.nodes = nodes > worst.nodes ? nodes : worst.nodes;
        worst.least_per_node = least < worst.least_per_node ? least : worst.least_per_node;
    }
    return worst;
}

TEST(groups_lie_where_the_grid_says)
{
    static const sp_dimension dimensions[] = {SP_DIM_EP, SP_DIM_ETP, SP_DIM_ETP_EP, SP_DIM_EDP};
    sp_prng prng = prng_seeded(331);
    int drawn = 0;
    while (drawn < 200) {
        sp_layout layout = layout_of(1 << prng_below(&prng, 3), 1 << prng_below(&prng, 2),
                                     1 << prng_below(&prng, 4), 1 << prng_below(&prng, 5),
                                     1 << prng_below(&prng, 3));
        layout.pp = 1 << prng_below(&prng, 2);
        sp_cluster cluster = {.gpus_per_node = 2 << prng_below(&prng, 3)};
        int64_t ranks = (int64_t)layout.tp * layout.cp * layout.dp;
        if (!sp_layout_dispatches(&layout) || ranks % ((int64_t)layout.ep * layout.etp) != 0 ||
            sp_layout_ranks(&layout) > 64 * cluster.gpus_per_node) {
            continue;
        }
        drawn++;
        assert_int_equal(sp_layout_expert_replicas(&layout), ranks / layout.ep / layout.etp);
        for (int d = 0; d < COUNT_OF(dimensions); d++) {
            sp_group group = sp_cluster_group(&cluster, &layout, dimensions[d]);
            sp_group listed = listed_group(&layout, cluster.gpus_per_node, dimensions[d]);
            assert_int_equal(group.size, listed.size);
            assert_int_equal(group.nodes, listed.nodes);
            assert_int_equal(group.least_per_node, listed.least_per_node);
        }
    }
}

// Expert groups of 8 over data-parallel ranks of 2, of 4 and of 8 GPUs; of 6 over some of 4, which
// meet by threes.
TEST(ranks_that_meet)
{
    static const struct {
        int tp, cp, dp, ep, etp, ranks;
    } cases[] = {{2, 1, 8, 8, 1, 4}, {2, 2, 8, 8, 1, 2}, {2, 2, 8, 4, 2, 2}, {8, 1, 2, 8, 1, 1},
                 {2, 1, 8, 2, 1, 1}, {4, 1, 6, 3, 2, 3}, {2, 1, 4, 1, 2, 1}, {2, 1, 4, 0, 0, 1}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        sp_layout layout =
            layout_of(cases[i].tp, cases[i].cp, cases[i].dp, cases[i].ep, cases[i].etp);
        assert_int_equal(sp_layout_expert_ranks(&layout), cases[i].ranks);
    }
}

TEST(what_does_not_divide_is_refused)
{
    static const struct {
        sp_layout layout;
        const char *message;
    } cases[] = {
        {{LAYOUT(1, 1, 1, 8, 1), .ep = 3}, "m: parallel.ep: 16 experts cannot be spread"},
        {{LAYOUT(1, 1, 1, 6, 1), .ep = 4}, "m: parallel.ep: etp x ep, 1 x 4, does not divide"},
        {{LAYOUT(1, 1, 1, 5, 1), .etp = 5}, "m: parallel.etp: an ffn of 768 cannot be split"},
        {{LAYOUT(2, 1, 1, 4, 1), .ep = 2, .etp = 1}, "m: parallel.sequence_parallel: tokens are"},
        {{LAYOUT(1, 1, 2, 4, 1), .ep = 2,
          .order = {true, {SP_AXIS_TP, SP_AXIS_CP, SP_AXIS_PP, SP_AXIS_DP}}},
         "m: parallel.order: experts over several ranks need"},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        must_fail_with(sp_layout_check(&cases[i].layout, &routed, "m", ERR), SP_ERR_CONTENT,
                       cases[i].message);
    }
    sp_model dense = routed;
    dense.experts = dense.experts_per_token = 0;
    sp_layout layout = layout_of(1, 1, 4, 2, 0);
    must_fail(sp_layout_check(&layout, &dense, "m", ERR), SP_ERR_CONTENT,
              "m: parallel.ep: the model has no experts (model.experts)");
}

// ---- states ----

// Of one layer on one rank by hand: experts of three matrices, E/ep of them, 1/etp of each; the
// rest over TP, router and norms whole.
static double expert_parameters(const sp_layout *layout)
{
    return 3.0 * HIDDEN * WIDTH * EXPERTS / sp_layout_ep(layout) / sp_layout_etp(layout);
}

static double other_parameters(const sp_layout *layout)
{
    double head = (double)HIDDEN / HEADS;
    double attention = 2.0 * HIDDEN * HIDDEN + 2.0 * HIDDEN * KV_HEADS * head;
    return attention / layout->tp + HIDDEN * EXPERTS + 2.0 * HIDDEN;
}

// Adam in bf16 with fp32 gradients: 6 + 12/(dp*cp) bytes a parameter, of experts 6 + 12/EDP
// (Megatron-LM, training/theoretical_memory_usage.py).
TEST(states_are_split_by_their_own_ranks)
{
    static const int degrees[][5] = {{1, 1, 8, 8, 0}, {2, 1, 8, 8, 1}, {2, 2, 4, 4, 2},
                                     {4, 1, 2, 1, 1}, {1, 1, 8, 2, 0}, {2, 1, 8, 1, 0}};
    const sp_stack stack = {.work_spaces = 1, .work_space_bytes = 1};
    const sp_stage stage = {.layers = 4};
    for (int i = 0; i < COUNT_OF(degrees); i++) {
        const int *d = degrees[i];
        sp_layout layout = layout_of(d[0], d[1], d[2], d[3], d[4]);
        double experts = 4.0 * expert_parameters(&layout);
        double others = 4.0 * other_parameters(&layout);
        double all = (double)layout.dp * layout.cp;
        double replicas = all * layout.tp / sp_layout_etp(&layout) / sp_layout_ep(&layout);
        for (int zero = 0; zero <= 3; zero++) {
            sp_bytes bytes;
            layout.zero = zero;
            sp_footprint_states(&routed, &layout, &stack, &stage, 1, &bytes);
            assert_within((double)bytes.of[SP_MEM_PARAMETERS],
                          2.0 * experts / (zero >= 3 ? replicas : 1.0) +
                              2.0 * others / (zero >= 3 ? all : 1.0),
                          2.0);
            assert_within((double)bytes.of[SP_MEM_GRADIENTS],
                          4.0 * experts / (zero >= 2 ? replicas : 1.0) +
                              4.0 * others / (zero >= 2 ? all : 1.0),
                          2.0);
            assert_within((double)bytes.of[SP_MEM_OPTIMIZER],
                          12.0 * experts / (zero >= 1 ? replicas : 1.0) +
                              12.0 * others / (zero >= 1 ? all : 1.0),
                          2.0);
        }
    }
}

// A Mixtral 8x7B, tp 2, ep 8 of width f on 8 data-parallel ranks: one expert of 3*4096*14336 in
// each of 32 layers, that no other rank has, and half of 41,943,040 of attention.
TEST(mixtral_by_hand)
{
    sp_model model;
    must_succeed(sp_model_builtin("mixtral-8x7b", &model, ERR));
    const sp_stack stack = {.work_spaces = 1, .work_space_bytes = 1};
    const sp_stage stage = {.layers = 32};
    sp_layout layout = layout_of(2, 1, 4, 8, 1);
    sp_bytes bytes;
    sp_footprint_states(&model, &layout, &stack, &stage, 1, &bytes);
    int64_t expert = INT64_C(32) * 3 * 4096 * 14336;
    int64_t others = INT64_C(32) * (41943040 / 2 + 4096 * 8 + 2 * 4096);
    assert_int_equal(bytes.of[SP_MEM_PARAMETERS], 2 * (expert + others));
    assert_int_equal(bytes.of[SP_MEM_OPTIMIZER], 12 * expert + 12 * others / 4);
}

TEST(more_expert_ranks_hold_less)
{
    const sp_stack stack = {.work_spaces = 1, .work_space_bytes = 1};
    const sp_stage stage = {.layers = 4};
    int64_t before = INT64_MAX;
    for (int ep = 1; ep <= EXPERTS; ep *= 2) {
        sp_layout layout = layout_of(1, 1, 16, ep, 0);
        sp_bytes bytes;
        sp_footprint_states(&routed, &layout, &stack, &stage, 1, &bytes);
        assert_true(bytes.of[SP_MEM_PARAMETERS] < before);
        before = bytes.of[SP_MEM_PARAMETERS];
    }
}

// ---- activations ----

static int64_t saved(const sp_layout *layout, sp_layer_tensor_id id, int64_t tokens)
{
    const sp_memory_options options = {
        .recompute = SP_RECOMPUTE_NONE,
        .stack = {.fused_swiglu = true, .keep_gathered_inputs = true}};
    sp_saved_tensor rows[SP_SAVED_TENSORS];
    int count = sp_saved_part(&routed, layout, &options, SP_PART_LAYER, rows);
    for (int i = 0; i < count; i++) {
        if (rows[i].id == id) {
            return sp_saved_bytes(&rows[i], layout, tokens, 0);
        }
    }
    return 0;
}

// M = k*tokens*ETP/(TP*CP) rows, whatever EP: 2h bytes of input, 4f/ETP of the first projection,
// 2f/ETP of the activation; the router's input is the sequence shard, though inputs of other
// projections are kept as gathered.
TEST(saved_rows)
{
    static const int degrees[][5] = {
        {1, 1, 8, 8, 0}, {2, 1, 8, 8, 1}, {2, 2, 4, 4, 2}, {4, 1, 2, 1, 1}, {2, 1, 8, 2, 4}};
    enum { TOKENS = 8192 };
    for (int i = 0; i < COUNT_OF(degrees); i++) {
        const int *d = degrees[i];
        sp_layout layout = layout_of(d[0], d[1], d[2], d[3], d[4]);
        int64_t etp = sp_layout_etp(&layout);
        int64_t shard = TOKENS / (layout.tp * layout.cp);
        int64_t rows = TOP * shard * etp;
        assert_int_equal(saved(&layout, SP_TENSOR_EXPERT_INPUT, TOKENS), rows * 2 * HIDDEN);
        assert_int_equal(saved(&layout, SP_TENSOR_FC1, TOKENS), rows * 4 * WIDTH / etp);
        assert_int_equal(saved(&layout, SP_TENSOR_FC2_INPUT, TOKENS), rows * 2 * WIDTH / etp);
        assert_int_equal(saved(&layout, SP_TENSOR_ROUTER, TOKENS), shard * 4 * EXPERTS);
        assert_int_equal(saved(&layout, SP_TENSOR_NORM2, TOKENS), shard * 2 * HIDDEN);
    }
}

// ---- what is sent ----

typedef struct sent {
    double all_to_all, gather, scatter, tokens_gather, tokens_scatter, counts;
    double flops, tp_bytes;
    int exchanges;
} sent;

// Bytes of full tensors for S tokens that a rank has within attention.
static sent sent_of(const sp_layout *layout, sp_dispatcher dispatcher, sp_recompute mode,
                    sp_pass pass, double tokens)
{
    const sp_stack stack = {.dispatcher = dispatcher};
    sp_inventory ops;
    sent s = {0};
    sp_inventory_build(&routed, layout, &stack, SP_ATTENTION_FLASH, mode, SP_PART_LAYER, pass,
                       &ops);
    for (int i = 0; i < ops.count; i++) {
        const sp_op *op = &ops.ops[i];
        double bytes = op->bytes_per_token * tokens + op->bytes_fixed;
        s.all_to_all += op->kind == SP_OP_EXPERT_ALL_TO_ALL ? bytes : 0.0;
        s.gather += op->kind == SP_OP_EXPERT_GATHER ? bytes : 0.0;
        s.scatter += op->kind == SP_OP_EXPERT_SCATTER ? bytes : 0.0;
        s.tokens_gather += op->kind == SP_OP_TOKENS_GATHER ? bytes : 0.0;
        s.tokens_scatter += op->kind == SP_OP_TOKENS_SCATTER ? bytes : 0.0;
        s.counts += op->kind == SP_OP_EXPERT_COUNTS ? bytes : 0.0;
        s.exchanges += op->kind == SP_OP_EXPERT_ALL_TO_ALL;
        bool tp = op->kind == SP_OP_ALL_GATHER || op->kind == SP_OP_REDUCE_SCATTER;
        s.tp_bytes += tp ? bytes : 0.0;
        s.flops += op->of_experts && op->kind == SP_OP_GEMM
                       ? 2.0 * op->token_share * tokens * op->repeat *
                             (double)((op->m > 0 ? op->m : 1) * (op->n > 0 ? op->n : 1) *
                                      (op->k > 0 ? op->k : 1))
                       : 0.0;
    }
    return s;
}

// T = S/TP tokens of the sequence shard, M = T*k rows. Forward: M rows of 2h bytes and 4 of the
// probability there, M rows of 2h back; over ETP ranks the rows of all of them each way; E counts
// of 4 bytes from every rank. Backward: the reverse, without counts. The TP ranks gather and reduce
// for attention alone.
TEST(all_to_all_by_hand)
{
    static const int degrees[][5] = {
        {2, 1, 8, 8, 1}, {2, 1, 8, 4, 2}, {1, 2, 8, 8, 0}, {4, 1, 4, 1, 1}};
    const double tokens = 4096.0;
    for (int i = 0; i < COUNT_OF(degrees); i++) {
        const int *d = degrees[i];
        sp_layout layout = layout_of(d[0], d[1], d[2], d[3], d[4]);
        double etp = sp_layout_etp(&layout);
        double ep = sp_layout_ep(&layout);
        double rows = tokens / layout.tp * TOP;
        double ways = ep > 1.0 ? rows * (2.0 * 2.0 * HIDDEN + 4.0) : 0.0;
        double over_etp = etp > 1.0 ? rows * etp * 2.0 * HIDDEN : 0.0;
        double of_tp = layout.tp > 1 ? 2.0 * tokens * 2.0 * HIDDEN : 0.0;
        sent f = sent_of(&layout, SP_DISPATCH_ALLTOALL, SP_RECOMPUTE_NONE, SP_PASS_F, tokens);
        sent b = sent_of(&layout, SP_DISPATCH_ALLTOALL, SP_RECOMPUTE_NONE, SP_PASS_I, tokens);
        sent w = sent_of(&layout, SP_DISPATCH_ALLTOALL, SP_RECOMPUTE_NONE, SP_PASS_W, tokens);
        sent again =
            sent_of(&layout, SP_DISPATCH_ALLTOALL, SP_RECOMPUTE_FULL, SP_PASS_RECOMPUTE, tokens);
        sent partly = sent_of(&layout, SP_DISPATCH_ALLTOALL, SP_RECOMPUTE_PARTIAL_FC1,
                              SP_PASS_RECOMPUTE, tokens);
        assert_close(f.all_to_all, ways, 1e-12);
        assert_close(b.all_to_all, ways, 1e-12);
        assert_close(again.all_to_all, ways, 1e-12);
        assert_int_equal(f.exchanges, ep > 1.0 ? 2 : 0);
        assert_int_equal(b.exchanges, ep > 1.0 ? 2 : 0);
        assert_true(partly.all_to_all == 0.0 && w.all_to_all == 0.0 && w.gather == 0.0);
        assert_close(f.gather, over_etp, 1e-12);
        assert_close(f.scatter, over_etp, 1e-12);
        assert_close(b.gather, over_etp, 1e-12);
        assert_close(b.scatter, over_etp, 1e-12);
        assert_close(f.counts, etp * ep > 1.0 ? 4.0 * EXPERTS * etp * ep : 0.0, 1e-12);
        assert_true(b.counts == 0.0);
        assert_close(f.tp_bytes, of_tp, 1e-12);
        // A weight gradient gathers its input again, that of experts is kept as it came.
        assert_close(w.tp_bytes, layout.tp > 1 ? tokens * 2.0 * HIDDEN : 0.0, 1e-12);
        // 6hf for each row of a token of the TP group, over TP: whatever ETP and EP.
        assert_close(f.flops, 6.0 * HIDDEN * WIDTH * TOP * tokens / layout.tp, 1e-12);
        assert_close(w.flops, f.flops, 1e-12);
    }
}

// T tokens with E probabilities of each of n = ETP*EP ranks, and T tokens of each back.
TEST(all_gather_by_hand)
{
    sp_layout layout = layout_of(2, 1, 8, 4, 2);
    const double tokens = 4096.0;
    double all = tokens / 2.0 * 8.0;
    sent f = sent_of(&layout, SP_DISPATCH_ALLGATHER, SP_RECOMPUTE_NONE, SP_PASS_F, tokens);
    sent b = sent_of(&layout, SP_DISPATCH_ALLGATHER, SP_RECOMPUTE_NONE, SP_PASS_I, tokens);
    assert_close(f.tokens_gather, all * (2.0 * HIDDEN + 4.0 * EXPERTS), 1e-12);
    assert_close(f.tokens_scatter, all * 2.0 * HIDDEN, 1e-12);
    assert_close(b.tokens_gather, f.tokens_scatter, 1e-12);
    assert_close(b.tokens_scatter, f.tokens_gather, 1e-12);
    assert_true(f.all_to_all == 0.0 && f.gather == 0.0 && f.counts == 0.0);
    assert_close(f.flops, 6.0 * HIDDEN * WIDTH * TOP * tokens / 2.0, 1e-12);
}

// On one node at the flat profile's rates: (n-1)/n of the bytes over NVLink and n-1 latencies, the
// host's wait beside the counts, once for each of the forward's layers.
TEST(exchanges_take_their_time)
{
    AUTO(sp_profile) profile = flat_profile_of(NULL);
    const sp_cluster cluster = {.gpus_per_node = 8, .nics_per_node = 8, .nic_bytes_per_s = 50e9};
    const sp_op_timer timer = {.cluster = &cluster, .profile = &profile};
    sp_layout layout = layout_of(1, 1, 8, 8, 0);
    const sp_stack stack = {.name = "ours"};
    sp_i_block_groups groups = sp_i_block_groups_of(&cluster, &layout);
    assert_int_equal(groups.ranks, 8);
    sp_inventory ops;
    sp_inventory_build(&routed, &layout, &stack, SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE,
                       SP_PART_LAYER, SP_PASS_F, &ops);
    sp_i_timed_collectives timed = {.op = {NULL}};
    sp_i_token_times times;
    sp_i_token_time(&timer, &stack, &groups, &ops, SP_PASS_F, 4096.0, 4096.0, 1.0, &timed, &times);
    double rows = 4096.0 * TOP;
    double bytes = rows * (4.0 * HIDDEN + 4.0) + 8.0 * 4.0 * EXPERTS;
    double expected_s =
        3.0 * 7.0 * FLAT_NVLINK_LATENCY_S + 7.0 / 8.0 * bytes / FLAT_NVLINK_BYTES_PER_S + 20e-6;
    assert_close(times.ep_s, expected_s, 1e-9);
    // Experts that get half of the rows take less, but send as much.
    sp_i_token_times fewer;
    sp_i_token_time(&timer, &stack, &groups, &ops, SP_PASS_F, 4096.0, 2048.0, 1.0, &timed, &fewer);
    assert_close(fewer.ep_s, times.ep_s, 1e-12);
    double flops = 6.0 * HIDDEN * WIDTH * TOP * 2048.0;
    double moved = TOP * 2048.0 * (10.0 * WIDTH + 8.0 * HIDDEN); // activation and sorting
    assert_close(times.compute_s - fewer.compute_s,
                 flops / FLAT_GEMM_FLOPS_PER_S + moved / FLAT_MEMORY_BYTES_PER_S, 1e-9);
}

// The few rows of each of a rank's two experts cost what 100 more would, in three products of h*f.
TEST(few_rows_of_an_expert_cost_more)
{
    AUTO(sp_profile) profile = flat_profile_of((const char *[]){
        "gemm_model={\"tflops\":500,\"level\":\"fitted\",\"source\":\"s\"}", NULL});
    const sp_cluster cluster = {.gpus_per_node = 8, .nics_per_node = 8, .nic_bytes_per_s = 50e9};
    const sp_op_timer timer = {.cluster = &cluster, .profile = &profile};
    sp_layout layout = layout_of(1, 1, 8, 8, 0);
    const sp_stack stack = {.name = "ours"};
    sp_i_block_groups groups = sp_i_block_groups_of(&cluster, &layout);
    static const sp_pass passes[] = {SP_PASS_F, SP_PASS_I, SP_PASS_W};
    for (size_t p = 0; p < sizeof passes / sizeof passes[0]; p++) {
        sp_inventory ops;
        sp_inventory_build(&routed, &layout, &stack, SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE,
                           SP_PART_LAYER, passes[p], &ops);
        sp_i_timed_collectives timed = {.op = {NULL}};
        sp_i_token_times times[2];
        for (int grouped = 0; grouped < 2; grouped++) {
            profile.grouped.half_rows = grouped * 100.0;
            sp_i_token_time(&timer, &stack, &groups, &ops, passes[p], 4096.0, 4096.0, 1.0, &timed,
                            &times[grouped]);
        }
        assert_close(times[1].compute_s - times[0].compute_s,
                     2.0 * 3.0 * HIDDEN * WIDTH * (EXPERTS / 8.0) * 100.0 / 500e12, 1e-6);
    }
}

// ---- ranks that wait for each other ----

static void add_pack(sp_pack_list *list, int first, int count, int64_t tokens)
{
    sp_pack_list_begin(list, first, count);
    sp_pack_list_add(list, (sp_slice){0, 0, 0, tokens, tokens}, true);
}

// Four ranks by twos. Rank 0 has 100 and 60 tokens, rank 1 300 and a pack of 400 that it shares
// with ranks 2 and 3, which comes in the round after that of rank 1's first.
TEST(rounds)
{
    sp_layout layout = layout_of(1, 1, 4, 2, 0);
    sp_pack_list list = {0};
    sp_rounds rounds;
    add_pack(&list, 0, 1, 100);
    add_pack(&list, 1, 1, 300);
    add_pack(&list, 0, 1, 60);
    add_pack(&list, 1, 3, 600);
    add_pack(&list, 3, 1, 50);
    sp_rounds_make(&layout, &list, sp_layout_expert_ranks(&layout), &rounds);
    static const int round[] = {0, 0, 1, 1, 2};
    for (int k = 0; k < 5; k++) {
        assert_int_equal(rounds.round[k], round[k]);
    }
    assert_int_equal(rounds.together[0], rounds.together[1]);
    assert_int_equal(rounds.together[2], rounds.together[3]); // by rank 1's share of the pack
    assert_true(rounds.together[0] != rounds.together[2] &&
                rounds.together[4] != rounds.together[3]);
    assert_int_equal(rounds.tokens[0], 200); // (100 + 300) / 2
    assert_int_equal(rounds.tokens[1], 200);
    assert_int_equal(rounds.tokens[2], 130); // (60 + 200) / 2
    assert_int_equal(rounds.tokens[3], 600); // three times that of ranks 2 and 3, (200 + 200) / 2
    assert_int_equal(rounds.tokens[4], 25);  // (0 + 50) / 2
    sp_rounds_free(&rounds);
    sp_free(list.packs);
    sp_free(list.slices);
}

#define ROUTED_RUN                                                                                \
    "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000, 'experts': "  \
    "8, 'experts_per_token': 2}, 'cluster': 'h100-8', 'strategy': {'kind': 'packed'}, "           \
    "'workload': {'lengths': %s, 'context': 4096, 'order': 'file'}, 'parallel': {'dp': 2, 'ep': " \
    "%d, 'pp': %d}}"

// Two ranks of which one has the longer sample each time: both take as long, and what the other one
// waits is told. Equal samples wait for nobody.
TEST(the_longer_pack_sets_the_pace)
{
    SCENARIO_RUN(r, json_text(ROUTED_RUN, "[4096, 4096, 4096, 4096]", 2, 2), &run_verified);
    assert_true(sp_result_expert_wait_ms(&r.result) == 0.0);
    scenario_run_fini(&r);
    run_good(json_text(ROUTED_RUN, "[4096, 2048, 4096, 2500]", 2, 2), &run_verified, &r);
    double wait_ms = sp_result_expert_wait_ms(&r.result);
    assert_true(wait_ms > 0.0);
    assert_true(r.result.dp_busiest_ns == r.result.dp_mean_ns);
    assert_int_equal(r.result.ranks[0].busy_ns, r.result.ranks[2].busy_ns);
    scenario_run_fini(&r);
    // Each by itself: the rank with less to do is done earlier.
    run_good(json_text(ROUTED_RUN, "[4096, 2048, 4096, 2500]", 1, 2), &run_verified, &r);
    assert_true(isnan(sp_result_expert_wait_ms(&r.result)));
    assert_true(r.result.dp_busiest_ns > r.result.dp_mean_ns);
}

// ep 1 and etp tp are what they are where nobody states them.
TEST(one_expert_rank_is_none)
{
    static const char *const beside[] = {"'tp': 2, 'dp': 2", "'tp': 2, 'dp': 2, 'ep': 1",
                                         "'tp': 2, 'dp': 2, 'etp': 2",
                                         "'tp': 2, 'dp': 2, 'etp': 0"};
    scenario_run first;
    for (int i = 0; i < COUNT_OF(beside); i++) {
        scenario_run r;
        run_good(json_text("{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, "
                           "'vocab': 1000, 'experts': 8, 'experts_per_token': 2}, 'cluster': "
                           "'h100-8', 'workload': {'uniform': 2048}, 'parallel': {%s}}",
                           beside[i]),
                 &run_verified, &r);
        if (i == 0) {
            first = r;
            continue;
        }
        assert_true(r.result.iteration_ns == first.result.iteration_ns);
        assert_int_equal(r.result.peak_bytes, first.result.peak_bytes);
        assert_true(r.result.ep_ns == 0.0);
        scenario_run_fini(&r);
    }
    scenario_run_fini(&first);
}

// Whatever the layout: the walk agrees with the longest path, no bound is above the step, and a
// rank waits no longer than its step.
TEST(random_steps)
{
    static const char *const strategies[] = {"packed",   "ffd",      "hybrid-cp",   "bytescale",
                                             "slimpack", "zeppelin", "dp-balanced", "te-cp"};
    static const char *const schedules[] = {"1f1b", "gpipe", "zb-h1"};
    static const char *const dispatchers[] = {"alltoall", "allgather", "deepep", "hybridep"};
    static const char *const modes[] = {"none", "full", "partial-fc1"};
    static const char *const imbalances[] = {"'exact'", "0.2", "-0.5"};
    sp_prng prng = prng_seeded(33);
    int runs = test_draws(64);
    while (runs > 0) {
        int tp = 1 << prng_below(&prng, 2);
        int cp = 1 << prng_below(&prng, 2);
        int dp = 1 << prng_below(&prng, 4);
        int ep = 1 << prng_below(&prng, 4);
        int etp = 1 << prng_below(&prng, 2);
        if (tp * cp * dp % (ep * etp) != 0 || (ep == 1 && etp == tp)) {
            continue;
        }
        runs--;
        char text[RUN_TEXT] = "";
        put_json(text,
                 "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000, "
                 "'experts': 8, 'experts_per_token': 2, 'expert_imbalance': %s}, 'cluster': "
                 "'h100-8', 'parallel': {'tp': %d, 'cp': %d, 'dp': %d, 'ep': %d, 'etp': %d, 'pp': "
                 "%d, 'zero': %d}, ",
                 ONE_OF(&prng, imbalances), tp, cp, dp, ep, etp, 1 << prng_below(&prng, 3),
                 prng_below(&prng, 4));
        bool sliced = false;
        const char *strategy = ONE_OF(&prng, strategies);
        sliced = strcmp(strategy, "slimpack") == 0;
        if (!sliced) {
            put_json(text, "'schedule': {'kind': '%s'}, ", ONE_OF(&prng, schedules));
        }
        put_json(text,
                 "'stack': {'name': 'megatron-core-2025', 'dispatcher': '%s'}, 'memory': "
                 "{'recompute': '%s'}, 'strategy': {'kind': '%s'}, 'workload': {'lengths': "
                 "'wikipedia', 'context': 8192, 'samples_per_batch': %d, 'seed': %d}}",
                 ONE_OF(&prng, dispatchers), ONE_OF(&prng, modes), strategy,
                 4 + prng_below(&prng, 60), 1 + prng_below(&prng, 1000));
        SCENARIO_RUN(r, text, &run_verified);
        for (size_t b = 0; b < r.result.batch_count; b++) {
            const sp_batch_result *batch = &r.result.batches[b];
            must_hold(batch->facts.lower_bound_ns <= (double)batch->iteration_ns,
                      "bound %.3f above %lld ns: %s", batch->facts.lower_bound_ns,
                      (long long)batch->iteration_ns, text);
        }
        double wait_ms = sp_result_expert_wait_ms(&r.result);
        assert_true(isnan(wait_ms) ||
                    (wait_ms >= 0.0 && wait_ms < sp_result_iteration_ms(&r.result)));
        assert_true(r.result.ep_ns >= r.result.ep_wait_ns);
    }
}
