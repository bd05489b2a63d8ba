#include "sim/model/inventory.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static const sp_stack ours; // all switches off

static const sp_layout single = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};

static sp_inventory layer(const sp_model *model, const sp_layout *layout, sp_attention attention,
                          sp_pass pass)
{
    sp_inventory inventory;
    sp_inventory_build(model, layout, &ours, attention, SP_RECOMPUTE_NONE, SP_PART_LAYER, pass,
                       &inventory);
    return inventory;
}

// Sum of `bytes` of one kind of operator for S local tokens, full pairs on this rank.
static double bytes_of(const sp_inventory *inventory, sp_op_kind kind, double tokens, double pairs,
                       int *count)
{
    double total = 0.0;
    *count = 0;
    for (int i = 0; i < inventory->count; i++) {
        const sp_op *op = &inventory->ops[i];
        if (op->kind == kind) {
            (*count)++;
            total += op->bytes_per_token * tokens + op->bytes_per_pair * pairs + op->bytes_fixed;
        }
    }
    return total;
}

static const sp_op *find(const sp_inventory *inventory, const char *name)
{
    for (int i = 0; i < inventory->count; i++) {
        if (strcmp(inventory->ops[i].name, name) == 0) {
            return &inventory->ops[i];
        }
    }
    fail_msg("no operator '%s'", name);
    return NULL;
}

// Korthikanti et al., arXiv 2205.05198, appendix A: a GPT layer's forward is 24*s*h^2 + 4*s^2*h.
TEST(gpt_layer_flops_follow_the_closed_form)
{
    const char *const names[] = {"gpt-3.6b", "gpt-18.4b", "gpt-39.1b", "gpt-175b"};
    for (int i = 0; i < 4; i++) {
        sp_model model = builtin_model(names[i]);
        double h = (double)model.hidden;
        for (double s = 1024.0; s <= 8192.0; s *= 2.0) {
            sp_inventory f = layer(&model, &single, SP_ATTENTION_UNFUSED, SP_PASS_F);
            double flops = sp_inventory_flops(&f, &model, &single, SP_PASS_F, s, 2.0 * s * s);
            assert_close(flops, 24.0 * s * h * h + 4.0 * s * s * h, 1e-12);
        }
    }
}

// The same total from two sides: operators of layers and head, and weights of the whole model,
// which leaves out routers as Megatron-LM's formula does.
TEST(layers_and_head_sum_to_the_model)
{
    for (int i = 0; i < sp_model_builtin_count(); i++) {
        sp_model model = builtin_model(sp_model_builtin_name(i));
        sp_inventory head;
        sp_inventory_build(&model, &single, &ours, SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE,
                           SP_PART_HEAD, SP_PASS_F, &head);
        double tokens = 3000.0;
        double pairs2 = tokens * tokens;
        double sum = sp_inventory_flops(&head, &model, &single, SP_PASS_F, tokens, 0.0);
        int layers[SP_LAYER_KINDS];
        sp_model_count_kinds(&model, 0, model.layers, layers);
        for (int k = 0; k < sp_model_kinds(&model); k++) {
            sp_model space;
            const sp_model *alike = sp_model_of_kind(&model, k, &space);
            sp_inventory f = layer(alike, &single, SP_ATTENTION_FLASH, SP_PASS_F);
            double router = 2.0 * (double)(alike->experts * alike->hidden) * tokens;
            sum += layers[k] *
                   (sp_inventory_flops(&f, alike, &single, SP_PASS_F, tokens, pairs2) - router);
        }
        assert_close(sum, sp_model_forward_flops(&model, tokens, pairs2), 1e-12);
    }
}

// Of a document that states no layers yet.
TEST(no_layers_have_no_parameters)
{
    const sp_model none = {.hidden = 64, .heads = 4, .kv_heads = 4, .head_dim = 16, .ffn = 128};
    assert_int_equal(sp_model_layer_parameters(&none), 0);
}

TEST(tensor_parallelism_divides_flops)
{
    for (int i = 0; i < sp_model_builtin_count(); i++) {
        sp_model model = builtin_model(sp_model_builtin_name(i));
        for (int tp = 2; tp <= 8 && tp <= model.kv_heads; tp *= 2) {
            sp_layout split = single;
            split.tp = tp;
            split.sequence_parallel = true;
            if (sp_layout_check(&split, &model, "x", NULL) != SP_OK) {
                continue;
            }
            for (int p = SP_PASS_F; p <= SP_PASS_W; p++) {
                sp_inventory one = layer(&model, &single, SP_ATTENTION_FLASH, (sp_pass)p);
                sp_inventory part = layer(&model, &split, SP_ATTENTION_FLASH, (sp_pass)p);
                double pairs2 = p == SP_PASS_W ? 0.0 : 1e7;
                double whole =
                    sp_inventory_flops(&one, &model, &single, (sp_pass)p, 4096.0, pairs2);
                assert_close(
                    tp * sp_inventory_flops(&part, &model, &split, (sp_pass)p, 4096.0, pairs2),
                    whole, 1e-12);
            }
        }
    }
}

// Each linear layer costs the same forward, for its inputs' and for its weights' gradient. The
// attention's backward is 2.5 times its forward with flash attention (5 matmuls to 2; Dao, arXiv
// 2307.08691, section 4.1) and twice without rebuilding the scores.
TEST(passes_cost_alike)
{
    for (int i = 0; i < sp_model_builtin_count(); i++) {
        sp_model model = builtin_model(sp_model_builtin_name(i));
        for (int a = SP_ATTENTION_FLASH; a <= SP_ATTENTION_UNFUSED; a++) {
            sp_inventory f = layer(&model, &single, (sp_attention)a, SP_PASS_F);
            sp_inventory in = layer(&model, &single, (sp_attention)a, SP_PASS_I);
            sp_inventory w = layer(&model, &single, (sp_attention)a, SP_PASS_W);
            double linear = sp_inventory_flops(&f, &model, &single, SP_PASS_F, 777.0, 0.0);
            assert_close(sp_inventory_flops(&in, &model, &single, SP_PASS_I, 777.0, 0.0), linear,
                         1e-12);
            assert_close(sp_inventory_flops(&w, &model, &single, SP_PASS_W, 777.0, 0.0), linear,
                         1e-12);
            double forward = sp_inventory_flops(&f, &model, &single, SP_PASS_F, 0.0, 1e8);
            double backward = sp_inventory_flops(&in, &model, &single, SP_PASS_I, 0.0, 1e8);
            assert_close(backward, (a == SP_ATTENTION_FLASH ? 2.5 : 2.0) * forward, 1e-12);
            assert_close(forward, 0.5e8 * sp_model_attention_flops_per_pair(&model), 1e-12);
        }
    }
}

// A sample of s tokens cut anywhere: sum of 2*l*o + l*l over its slices is s*s, so the slices'
// FLOPs sum to the sample's.
TEST_ROUNDS(slices_sum_to_the_sample, 21, 200)
{
    sp_model model = builtin_model("llama-13b");
    sp_inventory f = layer(&model, &single, SP_ATTENTION_FLASH, SP_PASS_F);
    int64_t s = 1 + (int64_t)sp_prng_below(prng, 100000);
    double sum = 0.0;
    for (int64_t o = 0; o < s;) {
        int64_t l = 1 + (int64_t)sp_prng_below(prng, (uint64_t)(s - o));
        sum += sp_inventory_flops(&f, &model, &single, SP_PASS_F, (double)l,
                                  (double)(2 * l * o + l * l));
        o += l;
    }
    assert_close(
        sum, sp_inventory_flops(&f, &model, &single, SP_PASS_F, (double)s, (double)(s * s)), 1e-12);
}

// Korthikanti et al., section 4.2.2: four all-reduces of 2*s*h bytes in forward and backward, or
// with sequence parallelism four all-gathers and four reduce-scatters, and gathers of the inputs
// that the backward repeats for the weights.
TEST(tensor_parallel_communication)
{
    sp_model model = builtin_model("gpt-18.4b");
    double s = 2048.0;
    double full = 2.0 * s * 6144.0;
    sp_layout plain = single;
    plain.tp = 8;
    sp_layout sequence = plain;
    sequence.sequence_parallel = true;
    const struct {
        sp_pass pass;
        int gathers, scatters, reduces;
    } expected[] = {{SP_PASS_F, 2, 2, 2}, {SP_PASS_I, 2, 2, 2}, {SP_PASS_W, 2, 0, 0}};
    for (int i = 0; i < 3; i++) {
        int count;
        sp_inventory with = layer(&model, &sequence, SP_ATTENTION_FLASH, expected[i].pass);
        double bytes = bytes_of(&with, SP_OP_ALL_GATHER, s, 0.0, &count);
        assert_int_equal(count, expected[i].gathers);
        assert_close(bytes, count * full, 1e-12);
        bytes = bytes_of(&with, SP_OP_REDUCE_SCATTER, s, 0.0, &count);
        assert_int_equal(count, expected[i].scatters);
        assert_close(bytes, count * full, 1e-12);
        bytes_of(&with, SP_OP_ALL_REDUCE, s, 0.0, &count);
        assert_int_equal(count, 0);

        sp_inventory without = layer(&model, &plain, SP_ATTENTION_FLASH, expected[i].pass);
        bytes = bytes_of(&without, SP_OP_ALL_REDUCE, s, 0.0, &count);
        assert_int_equal(count, expected[i].reduces);
        assert_close(bytes, count * full, 1e-12);
        bytes_of(&without, SP_OP_ALL_GATHER, s, 0.0, &count);
        assert_int_equal(count, 0);

        sp_inventory alone = layer(&model, &single, SP_ATTENTION_FLASH, expected[i].pass);
        bytes_of(&alone, SP_OP_ALL_REDUCE, s, 0.0, &count);
        assert_int_equal(count, 0);
    }
}

// Keys and values of the whole sequence, bf16: 2 tensors * 2 B * kv width / tp * tokens; 64 query
// heads share 8 of 128 in Llama-2 70B.
TEST(context_parallel_communication)
{
    sp_model model = builtin_model("llama-70b");
    sp_layout layout = single;
    layout.tp = 2;
    layout.cp = 4;
    double tokens = 65536.0;
    int count;
    sp_inventory f = layer(&model, &layout, SP_ATTENTION_FLASH, SP_PASS_F);
    double bytes = bytes_of(&f, SP_OP_CP_KV, tokens / 4.0, 0.0, &count);
    assert_int_equal(count, 1);
    assert_close(bytes, 2.0 * 2.0 * (8.0 * 128.0 / 2.0) * tokens, 1e-12);
    sp_inventory in = layer(&model, &layout, SP_ATTENTION_FLASH, SP_PASS_I);
    assert_close(bytes_of(&in, SP_OP_CP_KV, tokens / 4.0, 0.0, &count), 2.0 * bytes, 1e-12);
    layout.cp = 1;
    f = layer(&model, &layout, SP_ATTENTION_FLASH, SP_PASS_F);
    bytes_of(&f, SP_OP_CP_KV, tokens, 0.0, &count);
    assert_int_equal(count, 0);
}

// What passes between any two ranks is the same by whatever kinds of exchange: a rank keeps 1/a of
// its queries, keys, values and results, and gets p - 1 more blocks of as many bytes of keys and
// values as it had.
TEST(hierarchical_communication)
{
    sp_model model = builtin_model("llama-70b");
    sp_stack stack = {.cp_overlap = SP_CP_A2A_P2P};
    sp_layout layout = single;
    const double local = 8192.0;
    const double q = 64.0 * 128.0;
    const double kv = 8.0 * 128.0;
    layout.cp = 8;
    for (int a = 1; a <= 8; a *= 2) {
        int count;
        layout.cp_a2a = a;
        for (int backward = 0; backward < 2; backward++) {
            sp_inventory of;
            sp_inventory_build(&model, &layout, &stack, SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE,
                               SP_PART_LAYER, backward == 1 ? SP_PASS_I : SP_PASS_F, &of);
            double heads = bytes_of(&of, SP_OP_CP_HEADS, local, 0.0, &count);
            assert_int_equal(count, a > 1);
            assert_close(heads, a > 1 ? 2.0 * (q + 2.0 * kv + q) * local : 0.0, 1e-12);
            double keys = bytes_of(&of, SP_OP_CP_KV, local, 0.0, &count);
            assert_int_equal(count, a < 8);
            double block = 2.0 * 2.0 * kv * local;
            assert_close(keys, a < 8 ? (1 + backward) * (8.0 / a) * block : 0.0, 1e-12);
        }
    }
}

static double memory_bytes(const sp_model *model, sp_pass pass)
{
    sp_inventory inventory;
    double bytes = 0.0;
    sp_inventory_build(model, &single, &ours, SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE, SP_PART_LAYER,
                       pass, &inventory);
    for (int i = 0; i < inventory.count; i++) {
        bytes += inventory.ops[i].bytes_per_token;
    }
    return bytes;
}

// Two norms more, each of 2 tensors forward and 3 backward.
TEST(norms_behind_blocks_move_their_bytes)
{
    sp_model model = builtin_model("llama-13b");
    double forward = memory_bytes(&model, SP_PASS_F);
    double backward = memory_bytes(&model, SP_PASS_I);
    model.post_norms = true;
    assert_true(memory_bytes(&model, SP_PASS_F) == forward + 2 * 2 * 2.0 * 5120);
    assert_true(memory_bytes(&model, SP_PASS_I) == backward + 2 * 3 * 2.0 * 5120);
    // Behind blocks alone they move what those before them do, and products are the same.
    sp_inventory all = layer(&model, &single, SP_ATTENTION_FLASH, SP_PASS_F);
    model.post_norms_alone = true;
    sp_inventory alone = layer(&model, &single, SP_ATTENTION_FLASH, SP_PASS_F);
    assert_true(memory_bytes(&model, SP_PASS_F) == forward);
    assert_true(memory_bytes(&model, SP_PASS_I) == backward);
    assert_int_equal(alone.count, all.count - 2);
    assert_true(sp_inventory_flops(&alone, &model, &single, SP_PASS_F, 4096, 4096.0 * 4096) ==
                sp_inventory_flops(&all, &model, &single, SP_PASS_F, 4096, 4096.0 * 4096));
}

// Blocks side by side: the same products (a layer of Llama-2 13B has 2 s (4 h^2 + 3 h f) FLOPs and
// 2 h s^2 of a causal core), one norm or two, as many sums, and one collective of their outputs
// over TP 2: forward two gathers and a scatter, backward a gather and two scatters.
TEST(blocks_side_by_side)
{
    const sp_layout split = {
        .tp = 2, .cp = 1, .pp = 1, .dp = 1, .chunks = 1, .sequence_parallel = true};
    sp_model model = builtin_model("llama-13b");
    double forward = memory_bytes(&model, SP_PASS_F);
    double backward = memory_bytes(&model, SP_PASS_I);
    double s = 4096.0;
    double h = 5120.0;
    for (int norms = 1; norms <= 2; norms++) {
        model.blocks = norms == 1 ? SP_BLOCKS_ONE_NORM : SP_BLOCKS_TWO_NORMS;
        int fewer = 2 - norms;
        assert_true(memory_bytes(&model, SP_PASS_F) == forward - fewer * 2 * 2.0 * h);
        assert_true(memory_bytes(&model, SP_PASS_I) == backward - fewer * 3 * 2.0 * h);
        sp_inventory all = layer(&model, &single, SP_ATTENTION_FLASH, SP_PASS_F);
        assert_close(sp_inventory_flops(&all, &model, &single, SP_PASS_F, s, s * s),
                     2.0 * s * (4.0 * h * h + 3.0 * h * 13824.0) + 2.0 * h * s * s, 1e-12);
        for (int back = 0; back < 2; back++) {
            sp_inventory of =
                layer(&model, &split, SP_ATTENTION_FLASH, back ? SP_PASS_I : SP_PASS_F);
            int gathers = 0;
            int scatters = 0;
            for (int i = 0; i < of.count; i++) {
                gathers += of.ops[i].kind == SP_OP_ALL_GATHER;
                scatters += of.ops[i].kind == SP_OP_REDUCE_SCATTER;
            }
            assert_int_equal(gathers, back ? 1 : 2);
            assert_int_equal(scatters, back ? 2 : 1);
        }
    }
}

static sp_inventory recomputed(const sp_model *model, sp_recompute mode, sp_part part)
{
    sp_inventory inventory;
    sp_inventory_build(model, &single, &ours, SP_ATTENTION_FLASH, mode, part, SP_PASS_RECOMPUTE,
                       &inventory);
    return inventory;
}

static double recomputed_flops(const sp_model *model, sp_recompute mode, double s, double pairs2)
{
    sp_inventory inventory = recomputed(model, mode, SP_PART_LAYER);
    return sp_inventory_flops(&inventory, model, &single, SP_PASS_RECOMPUTE, s, pairs2);
}

// Llama-2 13B: h 5120, f 13824, 40 heads of 128.
TEST(recomputation_repeats_its_share)
{
    sp_model model = builtin_model("llama-13b");
    double s = 4096.0;
    double pairs2 = s * s;
    sp_inventory f = layer(&model, &single, SP_ATTENTION_FLASH, SP_PASS_F);
    double forward = sp_inventory_flops(&f, &model, &single, SP_PASS_F, s, pairs2);
    assert_int_equal(recomputed(&model, SP_RECOMPUTE_NONE, SP_PART_LAYER).count, 0);
    assert_int_equal(recomputed(&model, SP_RECOMPUTE_FULL, SP_PART_HEAD).count, 0);
    assert_close(recomputed_flops(&model, SP_RECOMPUTE_FULL, s, pairs2), forward, 1e-12);
    assert_close(recomputed_flops(&model, SP_RECOMPUTE_ATTENTION, s, pairs2),
                 4.0 * 5120.0 * pairs2 / 2.0, 1e-12);
    assert_true(recomputed_flops(&model, SP_RECOMPUTE_ACTIVATION, s, pairs2) == 0.0);
    assert_close(recomputed_flops(&model, SP_RECOMPUTE_PARTIAL_FC1, s, pairs2),
                 2.0 * s * 5120.0 * 2.0 * 13824.0, 1e-12);
    // Two norms (read and write h) and SwiGLU as SiLU (read f, write f) and a product (read 2f,
    // write f), bf16.
    sp_inventory activation = recomputed(&model, SP_RECOMPUTE_ACTIVATION, SP_PART_LAYER);
    int count;
    assert_close(bytes_of(&activation, SP_OP_MEMORY, s, 0.0, &count),
                 s * (2.0 * 4.0 * 5120.0 + 10.0 * 13824.0), 1e-12);
}

// Each of 8 experts runs 2/8 of the tokens; TP splits inside the experts.
TEST(experts_share_the_tokens)
{
    sp_model model = builtin_model("mixtral-8x7b");
    sp_inventory f = layer(&model, &single, SP_ATTENTION_FLASH, SP_PASS_F);
    const sp_op *fc1 = find(&f, "first MLP projection");
    assert_int_equal(fc1->repeat, 8);
    assert_true(fc1->token_share == 0.25);
    assert_int_equal(fc1->n, 2 * 14336);
    assert_int_equal(find(&f, "router")->n, 8);
    sp_inventory w = layer(&model, &single, SP_ATTENTION_FLASH, SP_PASS_W);
    // The gradient of every expert's weights is kept: all parameters but the two norms.
    assert_close(find(&w, "gradient accumulation")->bytes_fixed,
                 6.0 * (double)(sp_model_layer_parameters(&model) - 2 * 4096), 1e-12);
}

static sp_inventory routed_layer(const sp_layout *layout, const sp_stack *stack, sp_pass pass)
{
    const sp_model model = builtin_model("mixtral-8x7b");
    sp_inventory inventory;
    sp_inventory_build(&model, layout, stack, SP_ATTENTION_FLASH, SP_RECOMPUTE_FULL, SP_PART_LAYER,
                       pass, &inventory);
    return inventory;
}

// Megatron-LM's own counts: 72 kernels, 31 fused, 17 with a flex dispatcher besides, whose rows are
// not counted apart. Half of the kernels read and write fp32 of each expert for each token of the
// rank's, and a quarter of them has a backward: both are assumed (sim/model/inventory.c). A forward
// that runs again has them again, a weight gradient and a dense layer none.
TEST(a_router_runs_the_kernels_of_its_stack)
{
    static const struct {
        int64_t stated;
        sp_dispatcher by;
        int kernels;
        double top_ks;
    } cases[] = {{72, SP_DISPATCH_ALLTOALL, 72, 2.0},
                 {72, SP_DISPATCH_HYBRIDEP, 58, 2.0},
                 {40, SP_DISPATCH_HYBRIDEP, 26, 2.0},
                 {31, SP_DISPATCH_ALLGATHER, 31, 0.0},
                 {31, SP_DISPATCH_DEEPEP, 17, 0.0}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        for (int tp = 1; tp <= 4; tp *= 4) {
            const sp_layout layout = {LAYOUT(tp, 1, 1, 8, 1), .sequence_parallel = tp > 1, .ep = 8,
                                      .etp = 1};
            const sp_stack stack = {.router_kernels = cases[i].stated, .dispatcher = cases[i].by};
            for (int again = 0; again < 2; again++) {
                sp_inventory f =
                    routed_layer(&layout, &stack, again != 0 ? SP_PASS_RECOMPUTE : SP_PASS_F);
                const sp_op *op = find(&f, "choice of experts");
                assert_int_equal(op->kernels, cases[i].kernels);
                assert_close(op->bytes_per_token, 0.5 * cases[i].kernels * 8.0 * 8.0 / tp, 1e-12);
                assert_close(op->top_ks_per_token + 1.0, cases[i].top_ks / tp + 1.0, 1e-12);
            }
            sp_inventory i_pass = routed_layer(&layout, &stack, SP_PASS_I);
            assert_int_equal(find(&i_pass, "choice of experts")->kernels, cases[i].kernels / 4);
            sp_inventory w = routed_layer(&layout, &stack, SP_PASS_W);
            for (int o = 0; o < w.count; o++) {
                assert_string_not_equal(w.ops[o].name, "choice of experts");
            }
        }
    }
    const sp_stack stack = {.router_kernels = 72};
    const sp_model dense = builtin_model("llama-7b");
    sp_inventory f;
    sp_inventory_build(&dense, &single, &stack, SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE,
                       SP_PART_LAYER, SP_PASS_F, &f);
    for (int o = 0; o < f.count; o++) {
        assert_string_not_equal(f.ops[o].name, "choice of experts");
    }
}

// A gather reads and writes each row; a sum of PyTorch reads a row and its result, and writes that.
TEST(sums_of_unfused_permutation_move_a_row_more)
{
    static const sp_dispatcher by[] = {SP_DISPATCH_ALLTOALL, SP_DISPATCH_HYBRIDEP};
    for (int d = 0; d < COUNT_OF(by); d++) {
        for (int pass = 0; pass < 2; pass++) {
            double bytes[2] = {0.0, 0.0};
            for (int unfused = 0; unfused < 2; unfused++) {
                const sp_layout layout = {LAYOUT(1, 1, 1, 8, 1), .ep = 8, .etp = 1};
                const sp_stack stack = {.dispatcher = by[d], .unfused_permutation = unfused};
                sp_inventory ops = routed_layer(&layout, &stack, pass == 0 ? SP_PASS_F : SP_PASS_I);
                for (int o = 0; o < ops.count; o++) {
                    bool is = strcmp(ops.ops[o].name, "expert permutation") == 0;
                    bytes[unfused] += is ? ops.ops[o].bytes_per_token : 0.0;
                }
            }
            assert_true((bytes[0] > 0.0) == (by[d] == SP_DISPATCH_ALLTOALL));
            assert_close(bytes[1] + 1.0, bytes[0] / (2.0 + 2.0) * (2.0 + 3.0) + 1.0, 1e-12);
        }
    }
}

// fp16 traffic of Megatron-LM's fused scale, mask and softmax and its dropout, per score: 9 B
// forward, 11 B backward.
TEST(unfused_attention_moves_the_scores)
{
    sp_model model = builtin_model("gpt-18.4b");
    sp_layout layout = single;
    layout.tp = 4;
    sp_inventory f = layer(&model, &layout, SP_ATTENTION_UNFUSED, SP_PASS_F);
    assert_true(find(&f, "softmax")->bytes_per_pair == 9.0 * 12.0); // 48 heads / 4
    sp_inventory in = layer(&model, &layout, SP_ATTENTION_UNFUSED, SP_PASS_I);
    assert_true(find(&in, "softmax")->bytes_per_pair == 11.0 * 12.0);
    sp_inventory w = layer(&model, &layout, SP_ATTENTION_UNFUSED, SP_PASS_W);
    assert_close(find(&w, "gradient accumulation")->bytes_fixed, 6.0 * 12.0 * 6144.0 * 6144.0 / 4,
                 1e-12);
}

TEST(vocabulary_is_split)
{
    sp_model model = builtin_model("llama-3-8b");
    sp_layout layout = single;
    layout.tp = 4;
    layout.pp = 8;
    for (int v = 0; v < 2; v++) {
        layout.vocab_parallel = v == 1;
        sp_inventory head;
        sp_inventory_build(&model, &layout, &ours, SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE,
                           SP_PART_HEAD, SP_PASS_F, &head);
        assert_int_equal(find(&head, "logits")->n, 128256 / 4 / (v == 1 ? 8 : 1));
    }
}

// Logits that are gathered: 2 bytes of each of the vocabulary to every rank in the forward, which
// nothing hides; each rank then computes the loss of all of them and has no sums to exchange. In
// the backward it takes its columns of the gradient, which are there.
TEST(gathered_logits_are_whole)
{
    sp_model model = builtin_model("llama-3-8b");
    sp_stack gathering = ours;
    gathering.gathered_logits = true;
    for (int tp = 1; tp <= 8; tp *= 2) {
        sp_layout layout = single;
        layout.tp = tp;
        sp_inventory split, whole;
        for (int pass = 0; pass < 3; pass++) {
            sp_inventory_build(&model, &layout, &ours, SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE,
                               SP_PART_HEAD, (sp_pass)pass, &split);
            sp_inventory_build(&model, &layout, &gathering, SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE,
                               SP_PART_HEAD, (sp_pass)pass, &whole);
            assert_int_equal(find(&whole, "logits")->n, find(&split, "logits")->n);
            assert_int_equal(find(&whole, "logits")->k, find(&split, "logits")->k);
            if (pass == SP_PASS_W) {
                assert_int_equal(whole.count, split.count);
                continue;
            }
            const sp_op *loss = find(&whole, "loss");
            assert_close(loss->bytes_per_token, tp * find(&split, "loss")->bytes_per_token, 1e-12);
            assert_close(loss->logits_per_token, 128256.0, 1e-12);
            if (tp > 1) {
                const sp_op *op = pass == SP_PASS_F ? find(&whole, "gather of the logits")
                                                    : find(&whole, "share of the logits' gradient");
                assert_int_equal(op->kind, pass == SP_PASS_F ? SP_OP_ALL_GATHER : SP_OP_MEMORY);
                assert_close(op->bytes_per_token,
                             pass == SP_PASS_F ? 2.0 * 128256 : 4.0 * 128256 / tp, 1e-12);
                assert_true(op->blocks || pass != SP_PASS_F);
            }
            for (int k = 0; k < whole.count && tp > 1; k++) {
                assert_true(strcmp(whole.ops[k].name, "reduction of the loss") != 0);
            }
        }
    }
}

// A loss in the place of the bf16 logits reads them for maximum and sum, reads them again and
// writes its gradient, and scales that in the backward: five passes over 2 bytes, 3 kernels, where
// eager kernels pass fp32 copies and launch 8 (nine reads and writes of 4 bytes, four of 2, by
// hand).
TEST(losses_move_logits_by_their_kind)
{
    sp_model model = builtin_model("llama-3-8b");
    sp_stack stacks[2] = {ours, ours};
    double bytes[2] = {0.0, 0.0};
    int kernels[2] = {0, 0};
    stacks[0].fused_cross_entropy = false;
    stacks[1].fused_cross_entropy = true;
    for (int s = 0; s < 2; s++) {
        for (int pass = SP_PASS_F; pass <= SP_PASS_I; pass++) {
            sp_inventory head;
            sp_inventory_build(&model, &single, &stacks[s], SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE,
                               SP_PART_HEAD, (sp_pass)pass, &head);
            const sp_op *loss = find(&head, "loss");
            assert_true(loss->loss_in_place == (s == 1));
            bytes[s] += loss->bytes_per_token / 128256.0;
            kernels[s] += loss->kernels;
        }
    }
    assert_close(bytes[1], 5 * 2.0, 1e-12);
    assert_int_equal(kernels[1], 3);
    assert_close(bytes[0], 12 * 4.0 + 2 * 2.0, 1e-12);
    assert_int_equal(kernels[0], 8);
}

// A loss by chunks computes what a whole one does, each product once (Liger makes both gradients of
// a chunk beside its logits; torchtitan runs a chunk's backward at once), but in the forward, and
// by n runs of 1/n of the tokens. The weight's gradient is added to a sum n times: to the fp32
// buffer, 6 bytes beyond what the product counts, or to a bf16 tensor that the product then reads,
// 2 bytes, and that the backward adds to the buffer once.
TEST(loss_by_chunks_makes_its_gradients_in_the_forward)
{
    sp_model model = builtin_model("llama-3-8b");
    double weights = 128256.0 / 2 * 4096.0;
    for (int unfused = 0; unfused < 2; unfused++) {
        sp_layout layout = single;
        layout.tp = 2;
        sp_stack stacks[2] = {ours, ours};
        stacks[0].unfused_weight_gradient = stacks[1].unfused_weight_gradient = unfused == 1;
        stacks[1].loss_chunks = 8;
        double flops[2] = {0}, bytes[2] = {0}, sums = 0.0;
        for (int s = 0; s < 2; s++) {
            for (int pass = 0; pass < 3; pass++) {
                sp_inventory head;
                sp_inventory_build(&model, &layout, &stacks[s], SP_ATTENTION_FLASH,
                                   SP_RECOMPUTE_NONE, SP_PART_HEAD, (sp_pass)pass, &head);
                double of_pass =
                    sp_inventory_flops(&head, &model, &layout, (sp_pass)pass, 4096.0, 0.0);
                assert_true(s == 0 || (of_pass > 0.0) == (pass == SP_PASS_F));
                flops[s] += of_pass;
                for (int i = 0; i < head.count; i++) {
                    const sp_op *op = &head.ops[i];
                    bool loss = op->logits_per_token > 0.0;
                    bytes[s] += loss ? op->repeat * op->bytes_per_token : 0.0;
                    sums += s == 1 ? op->repeat * op->bytes_fixed : 0.0;
                    assert_true(!loss || op->repeat == (s == 0 ? 1 : 8));
                    assert_true(op->kind != SP_OP_GEMM || (op->repeat == (s == 0 ? 1 : 8) &&
                                                           op->token_share * op->repeat == 1.0));
                }
            }
        }
        assert_close(flops[1], flops[0], 1e-12);
        assert_close(flops[0], 3.0 * 2.0 * 4096.0 * weights, 1e-12);
        assert_close(bytes[1], bytes[0], 1e-12);
        assert_close(sums, (unfused == 1 ? 8 * 2.0 + 10.0 : 8 * 6.0) * weights, 1e-12);
    }
}

// A chunk that runs again (activation checkpointing of it): the forward has the logits and the loss
// of all chunks, 2 T V h FLOPs and 38 bytes a logit, the backward both again and the gradients, 14
// bytes a logit and 4 T V h FLOPs; a frozen head has no weight gradient. Sequence-parallel ranks
// gather the head's input for either. Cut Cross-Entropy (arXiv 2411.09009, algorithms 2 and 3) has
// the same products in one piece, and moves no logits.
TEST(chunks_that_run_again_compute_logits_twice)
{
    sp_model model = builtin_model("llama-3-8b");
    const double product = 2.0 * 4096.0 * 128256.0 / 2 * 4096.0;
    const double logits = 128256.0 / 2;
    for (int kind = 0; kind < 4; kind++) {
        int frozen = kind % 2;
        bool cut = kind / 2 == 1;
        int chunks = cut ? 1 : 8;
        sp_layout layout = single;
        layout.tp = 2;
        layout.sequence_parallel = true;
        sp_stack stack = ours;
        stack.cut_cross_entropy = cut;
        stack.loss_chunks = cut ? 0 : chunks;
        stack.loss_recompute = !cut;
        model.lora_rank = frozen == 1 ? 16 : 0;
        const double flops[3] = {product, (frozen == 1 ? 2.0 : 3.0) * product, 0.0};
        const double moved = cut ? 0.0 : logits;
        const double bytes[3] = {38.0 * moved, (38.0 + 14.0) * moved, 0.0};
        const int gathers[3] = {1, 1, 0};
        for (int pass = 0; pass < 3; pass++) {
            sp_inventory head;
            double loss = 0.0;
            double sums = 0.0;
            int gathered = 0;
            sp_inventory_build(&model, &layout, &stack, SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE,
                               SP_PART_HEAD, (sp_pass)pass, &head);
            for (int i = 0; i < head.count; i++) {
                const sp_op *op = &head.ops[i];
                loss += op->logits_per_token > 0.0 ? op->repeat * op->bytes_per_token : 0.0;
                sums += op->repeat * op->bytes_fixed;
                gathered += strcmp(op->name, "gather of the head input") == 0;
                assert_true(op->kind != SP_OP_GEMM || op->repeat == chunks);
            }
            assert_near(sp_inventory_flops(&head, &model, &layout, (sp_pass)pass, 4096.0, 0.0),
                        flops[pass], 1e-12, 0.5);
            assert_near(loss, bytes[pass], 1e-12, 0.5);
            assert_near(sums,
                        pass == SP_PASS_I && frozen == 0 ? chunks * 6.0 * logits * 4096.0 : 0.0,
                        1e-12, 0.5);
            assert_int_equal(gathered, gathers[pass]);
        }
    }
}

// What a user of the inventory relies on, for every model, layout and pass.
TEST_ROUNDS(operators_are_well_formed, 8, 2000)
{
    sp_model model = builtin_model(
        sp_model_builtin_name((int)sp_prng_below(prng, (uint64_t)sp_model_builtin_count())));
    model.qk_norm = sp_prng_below(prng, 2) == 1;
    sp_layout layout = {.tp = 1 << sp_prng_below(prng, 4),
                        .cp = 1 << sp_prng_below(prng, 3),
                        .pp = 2,
                        .dp = 1,
                        .chunks = 1};
    layout.sequence_parallel = sp_prng_below(prng, 2) == 1;
    layout.vocab_parallel = sp_prng_below(prng, 2) == 1;
    sp_inventory inventory;
    sp_inventory_build(&model, &layout, &ours, (sp_attention)sp_prng_below(prng, 2),
                       (sp_recompute)sp_prng_below(prng, SP_RECOMPUTE_MODES),
                       (sp_part)sp_prng_below(prng, 3), (sp_pass)sp_prng_below(prng, 4),
                       &inventory);
    for (int k = 0; k < inventory.count; k++) {
        const sp_op *op = &inventory.ops[k];
        assert_non_null(op->name);
        assert_true(op->repeat >= 1 && op->token_share > 0.0 && op->token_share <= 1.0);
        assert_true(op->bytes_per_token >= 0.0 && op->bytes_per_pair >= 0.0);
        bool is_gemm = op->kind == SP_OP_GEMM;
        assert_int_equal((op->m == 0) + (op->n == 0) + (op->k == 0), is_gemm ? 1
                                                                     : op->kind == SP_OP_ATTENTION
                                                                         ? 2
                                                                         : 3);
        assert_true(op->kind <= SP_OP_MEMORY || op->kernels == 0);
    }
}
