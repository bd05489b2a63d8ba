// Experts of latents (LatentMoE): what a layer has, computes, sends and keeps with the projections
// before and behind its experts, against sums written out here.
#include "sim/memory/saved_tensors.h"
#include "sim/model/inventory.h"
#include "sim/model/parameter_list.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

enum { H = 2048, L = 512, F = 1408, E = 64, K = 6, A = 16, G = 8, D = 128, LAYERS = 2 };

static sp_model with_latent(int64_t latent)
{
    return (sp_model){.name = "m",
                      LLAMA_SHAPE(LAYERS, H, F, A, G, 32000),
                      .experts = E,
                      .experts_per_token = K,
                      .expert_latent = latent};
}

static sp_layout layout_of(int tp, int dp, int ep, int etp)
{
    return (sp_layout){LAYOUT(tp, 1, 1, dp, 1), .ep = ep, .etp = etp, .sequence_parallel = tp > 1};
}

static const int degrees[][4] = {{1, 1, 1, 0}, {4, 1, 1, 0}, {1, 8, 8, 0},
                                 {2, 8, 8, 1}, {2, 8, 4, 2}, {4, 2, 2, 4}};

// A TP rank holds the two projections whole.
TEST(parameters_by_hand)
{
    const sp_stage all = {.layers = LAYERS, .embedding = true, .head = true};
    const sp_model without = with_latent(0);
    for (int i = 0; i < COUNT_OF(degrees); i++) {
        const int *d = degrees[i];
        sp_layout layout = layout_of(d[0], d[1], d[2], d[3]);
        int64_t etp = d[1] > 1 ? sp_layout_etp(&layout) : d[0];
        int64_t held = E / d[2];
        for (int64_t latent = L; latent <= H; latent += H - L) {
            sp_model model = with_latent(latent);
            assert_int_equal(sp_model_check(&model, "test", "", ERR), SP_OK);
            AUTO(sp_parameter_list) list = {0};
            int64_t sum = 0;
            sp_parameter_list_add(&model, &layout, &all, true, &list);
            for (size_t p = 0; p < list.count; p++) {
                sum += list.items[p].elements;
            }
            assert_int_equal(sum, sp_footprint_parameters(&model, &layout, &all, 1));
            assert_int_equal(sum - sp_footprint_parameters(&without, &layout, &all, 1),
                             LAYERS * (2 * H * latent - held * 3 * F / etp * (H - latent)));
        }
    }
}

// The shape of nvidia/NVIDIA-Nemotron-3-Super-120B-A12B, whose name says about how many parameters
// there are: its matrices one by one.
TEST(nemotron_3_super_by_hand)
{
    static const char text[] =
        "{'model_type':'nemotron_h','hidden_size':4096,'num_hidden_layers':88,"
        "'num_attention_heads':32,'num_key_value_heads':2,'head_dim':128,'intermediate_size':2688,"
        "'vocab_size':131072,'mamba_num_heads':128,'mamba_head_dim':64,'n_groups':8,"
        "'ssm_state_size':128,'conv_kernel':4,'expand':2,'mlp_hidden_act':'relu2',"
        "'use_conv_bias':true,'tie_word_embeddings':false,'n_routed_experts':512,"
        "'n_shared_experts':1,'num_experts_per_tok':22,'moe_intermediate_size':2688,"
        "'moe_latent_size':%s,'moe_shared_expert_intermediate_size':5376,'n_group':1,"
        "'topk_group':1,'hybrid_override_pattern':'MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*"
        "EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME'}";
    int64_t mamba = 4096 * (2 * 8192 + 2 * 8 * 128 + 128) + 5 * (8192 + 2 * 8 * 128) + 3 * 128 +
                    8192 + 8192 * 4096 + 4096;
    int64_t attention = 2 * 4096 * 4096 + 2 * 4096 * 2 * 128 + 4096;
    int64_t beside = 4096 * 512 + 2 * 4096 * 5376 + 4096;
    int64_t tables = 2 * INT64_C(131072) * 4096 + 4096;
    int64_t latents = 2 * 4096 * 1024;
    int64_t expert = 2 * 1024 * 2688;
    int64_t all = 40 * (mamba + beside + latents + 512 * expert) + 8 * attention + tables;
    int64_t of_token = all - 40 * (512 - 22) * expert;
    sp_model model;
    char config[1024];
    snprintf(config, sizeof config, text, "1024");
    json_auto_t *root = json_document(config);
    must_succeed(sp_model_from_hf(root, "config.json", &model, ERR));
    assert_int_equal(model.expert_latent, 1024);
    assert_int_equal(sp_model_parameters(&model), all);
    assert_int_equal(all / 100000000, 1206);
    assert_int_equal(of_token / 100000000, 127);
    snprintf(config, sizeof config, text, "null");
    json_auto_t *plain = json_document(config);
    must_succeed(sp_model_from_hf(plain, "config.json", &model, ERR));
    assert_int_equal(model.expert_latent, 0);
    assert_int_equal(sp_model_parameters(&model),
                     all + 40 * (512 * (INT64_C(2) * 2688 * 4096 - expert) - latents));
    snprintf(config, sizeof config, text, "'some'");
    json_auto_t *wrong = json_document(config);
    must_fail_with(sp_model_from_hf(wrong, "config.json", &model, ERR), SP_ERR_CONTENT,
                   "config.json: moe_latent_size: ");
}

// 2 FLOPs for each weight that a token passes.
TEST(flops_by_hand)
{
    const double tokens = 4096.0;
    const sp_model without = with_latent(0);
    for (int64_t latent = L; latent <= H; latent += H - L) {
        const sp_model model = with_latent(latent);
        double more = 2.0 * H * (double)latent - 3.0 * K * F * (double)(H - latent);
        assert_close(sp_model_forward_flops(&model, tokens, 0.0) -
                         sp_model_forward_flops(&without, tokens, 0.0),
                     LAYERS * 2.0 * tokens * more, 1e-9);
    }
}

static sp_inventory operators(const sp_model *model, const sp_layout *layout, const sp_stack *stack,
                              sp_pass pass)
{
    sp_inventory inventory;
    sp_inventory_build(model, layout, stack, SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE, SP_PART_LAYER,
                       pass, &inventory);
    return inventory;
}

static bool is_exchange(const sp_op *op)
{
    return op->kind == SP_OP_EXPERT_ALL_TO_ALL || op->kind == SP_OP_EXPERT_GATHER ||
           op->kind == SP_OP_EXPERT_SCATTER || op->kind == SP_OP_TOKENS_GATHER ||
           op->kind == SP_OP_TOKENS_SCATTER || op->kind == SP_OP_ROUTED_TOKENS;
}

// Bytes of a token of what is sent to experts and back, but for probabilities, and of copies of
// rows on the way.
static void moved_of(const sp_inventory *ops, double probabilities, double *sent, double *copied)
{
    *sent = *copied = 0.0;
    for (int i = 0; i < ops->count; i++) {
        const sp_op *op = &ops->ops[i];
        *sent += is_exchange(op) ? op->bytes_per_token : 0.0;
        bool copies = strcmp(op->name, "expert permutation") == 0 ||
                      strcmp(op->name, "sorting by expert") == 0;
        *copied += copies ? op->bytes_per_token : 0.0;
    }
    *sent -= *sent > 0.0 ? probabilities : 0.0;
}

// Rows on their way are narrower by latent / hidden, whoever sends them, and so are copies of them.
TEST(narrower_rows_are_sent_and_copied)
{
    const sp_model without = with_latent(0);
    const sp_model model = with_latent(L);
    const double share = (double)L / H;
    int sending = 0;
    for (int i = 0; i < COUNT_OF(degrees); i++) {
        const int *d = degrees[i];
        sp_layout layout = layout_of(d[0], d[1], d[2], d[3]);
        double ranks = sp_layout_etp(&layout) * sp_layout_ep(&layout);
        for (int s = 0; sp_dispatcher_names[s] != NULL; s++) {
            const sp_stack stack = {.dispatcher = (sp_dispatcher)s};
            double numbers = s == SP_DISPATCH_ALLGATHER                                ? E * ranks
                             : s == SP_DISPATCH_ALLTOALL && sp_layout_ep(&layout) == 1 ? 0.0
                                                                                       : K;
            for (int p = SP_PASS_F; p <= SP_PASS_I; p++) {
                double sent[2];
                double copied[2];
                sp_inventory of[2] = {operators(&without, &layout, &stack, (sp_pass)p),
                                      operators(&model, &layout, &stack, (sp_pass)p)};
                for (int m = 0; m < 2; m++) {
                    moved_of(&of[m], 4.0 * numbers / layout.tp, &sent[m], &copied[m]);
                }
                assert_close(sent[1], share * sent[0], 1e-9);
                assert_close(copied[1], share * copied[0], 1e-9);
                assert_true(copied[1] > 0.0);
                sending += sent[1] > 0.0;
            }
        }
    }
    assert_true(sending > 0);
}

static bool is_projection(const sp_op *op)
{
    return strstr(op->name, "-projection to experts") != NULL ||
           strstr(op->name, "-projection from experts") != NULL;
}

// With a latent of the hidden width a layer has two products more, each of the rank's own tokens,
// and else the same operators; what TP ranks gather and reduce is narrower with a narrow one.
TEST(a_latent_of_the_hidden_width_adds_two_products)
{
    const sp_model without = with_latent(0);
    const sp_model model = with_latent(H);
    for (int i = 0; i < COUNT_OF(degrees); i++) {
        const int *d = degrees[i];
        sp_layout layout = layout_of(d[0], d[1], d[2], d[3]);
        for (int p = SP_PASS_F; p <= SP_PASS_W; p++) {
            const sp_stack stack = {.fused_swiglu = true};
            sp_inventory one = operators(&without, &layout, &stack, (sp_pass)p);
            sp_inventory two = operators(&model, &layout, &stack, (sp_pass)p);
            int at = 0;
            int products = 0;
            for (int o = 0; o < two.count; o++) {
                const sp_op *op = &two.ops[o];
                if (is_projection(op)) {
                    products++;
                    assert_close(op->token_share, 1.0 / layout.tp, 1e-12);
                    assert_true(!op->of_experts && !op->of_mlp && !op->routed);
                    continue;
                }
                sp_op same = one.ops[at++];
                if (strcmp(op->name, "gradient accumulation") == 0) {
                    same.bytes_fixed += 6.0 * 2 * H * H;
                }
                assert_memory_equal(op, &same, sizeof same);
            }
            assert_int_equal(products, 2);
            assert_int_equal(at, one.count);
        }
    }
}

static int64_t kept_of(const sp_model *model, const sp_layout *layout,
                       const sp_memory_options *options, int64_t tokens)
{
    const sp_stage stage = {.layers = 1};
    const sp_unit_load load = {.tokens = tokens};
    sp_unit_tensor tensors[SP_UNIT_TENSORS];
    int count = sp_unit_tensors(model, layout, &stage, options, &load, tensors);
    int64_t sum = 0;
    for (int i = 0; i < count; i++) {
        sum += tensors[i].count * tensors[i].bytes;
    }
    return sum;
}

// The input of every row of an expert is narrower, and so is its output where it is kept; the sum
// that the up-projection reads is kept too, of the rank's own tokens. What runs again with the
// experts keeps none of it.
TEST(kept_by_hand)
{
    enum { TOKENS = 8192 };
    const sp_model without = with_latent(0);
    const sp_model model = with_latent(L);
    for (int i = 0; i < COUNT_OF(degrees); i++) {
        const int *d = degrees[i];
        sp_layout layout = layout_of(d[0], d[1], d[2], d[3]);
        int64_t etp = sp_layout_dispatches(&layout) ? sp_layout_etp(&layout) : d[0];
        int64_t own = TOKENS / d[0];
        for (int efficient = 0; efficient < 2; efficient++) {
            sp_memory_options options = {
                .stack = {.fused_swiglu = true, .memory_efficient_permutation = efficient == 1}};
            int64_t rows = K * own * etp * (efficient == 1 ? 1 : 2);
            assert_int_equal(kept_of(&model, &layout, &options, TOKENS) -
                                 kept_of(&without, &layout, &options, TOKENS),
                             2 * L * own - rows * 2 * (H - L));
            options.recompute = (sp_recompute)SP_MODULE_MOE;
            assert_int_equal(kept_of(&model, &layout, &options, TOKENS),
                             kept_of(&without, &layout, &options, TOKENS));
        }
    }
}

// In FP8 both projections cast what they read: the norm's output, which the router keeps in BF16,
// and the sum of a token's experts.
TEST(kept_in_fp8)
{
    enum { TOKENS = 4096 };
    const sp_layout layout = layout_of(2, 8, 8, 1);
    sp_memory_options options = {.stack = {.fused_swiglu = true,
                                           .memory_efficient_permutation = true,
                                           .precision = {.compute = SP_COMPUTE_FP8}}};
    const sp_step_precision *fp8 = &options.stack.precision;
    const sp_model without = with_latent(0);
    const sp_model model = with_latent(L);
    int64_t own = TOKENS / 2;
    assert_int_equal(kept_of(&model, &layout, &options, TOKENS) -
                         kept_of(&without, &layout, &options, TOKENS),
                     own * (sp_fp8_tensor_bytes(fp8, H) + sp_fp8_tensor_bytes(fp8, L) +
                            sp_fp8_tensor_bytes(fp8, K * L) - sp_fp8_tensor_bytes(fp8, K * H)));
}

// What of it is refused.
static void refused(const char *experts, const char *rest, const char *told)
{
    run_refused(json_text("{'model': {'layers': 4, 'hidden': 64, 'ffn': 96, 'heads': 4, 'vocab': "
                          "100, 'expert_latent': 32%s}, %s}",
                          experts, rest),
                told);
}

TEST(scenarios_that_are_refused)
{
#define EXPERTS ", 'experts': 4, 'experts_per_token': 2, 'shared_ffn': 32"
    refused("", "'parallel': {'tp': 1}",
            "model.expert_latent: is of experts, and there are none (experts)");
    refused(EXPERTS, "'stack': 'reference'",
            "model.expert_latent: is not simulated with passes written by hand");
    refused(EXPERTS, "'stack': {'shared_expert_overlap': true}, 'parallel': {'dp': 2, 'ep': 2}",
            "model.expert_latent: is not simulated with shared experts beside");
}
