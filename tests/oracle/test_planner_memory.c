// The memory columns of the SlimPipe authors' planner (configurations of the SC'25 artefact,
// Cuiym715/Megatron-LM, examples/sc25slimpipe; arXiv 2504.14519).
#include "sim/base/units.h"
#include "sim/memory/planner_memory.h"
#include "tests/support/test_main.h"

static sp_bytes predict(const sp_model *model, const sp_layout *layout,
                        const sp_planner_options *options)
{
    sp_bytes bytes;
    must_succeed(sp_planner_memory(model, layout, options, "test", &bytes, ERR));
    return bytes;
}

static void near_gib(int64_t bytes, double gib)
{
    must_hold(fabs(sp_gib_from_bytes(bytes) - gib) <= 0.02, "%.4f GiB, published %.2f",
              sp_gib_from_bytes(bytes), gib);
}

// Llama 13B, 256K tokens, t1 c8 p8 d2 v5, no recomputation, vocabulary of 128256.
TEST(published_rows)
{
    static const struct {
        int slices;
        double states, optimizer, activations, logits, kv_gradients, peak; // GiB
    } rows[] = {
        {16, 12.53, 1.57, 29.56, 1.96, 2.42, 48.04},
        // The row with 32 slices is printed with these two columns; the peak is their sum with the
        // columns that the number of slices does not change.
        {32, 12.53, 1.57, 27.36, 1.96, 3.09, 12.53 + 1.57 + 27.36 + 1.96 + 3.09},
    };
    sp_model model;
    assert_int_equal(sp_model_builtin("llama-13b", &model, NULL), SP_OK);
    model.vocab = 128256;
    const sp_layout layout = {.tp = 1, .cp = 8, .pp = 8, .dp = 2, .chunks = 5, .zero = 1};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sp_planner_options options = {
            .order = SP_PLANNER_SLIMPIPE, .sequence_tokens = 256 * 1024, .slices = rows[i].slices};
        sp_bytes bytes = predict(&model, &layout, &options);
        near_gib(bytes.of[SP_MEM_PARAMETERS] + bytes.of[SP_MEM_GRADIENTS], rows[i].states);
        near_gib(bytes.of[SP_MEM_OPTIMIZER], rows[i].optimizer);
        near_gib(bytes.of[SP_MEM_ACTIVATIONS], rows[i].activations);
        near_gib(bytes.of[SP_MEM_LOGITS], rows[i].logits);
        near_gib(bytes.of[SP_MEM_KV_GRADIENTS], rows[i].kv_gradients);
        near_gib(sp_bytes_total(&bytes), rows[i].peak);
        assert_int_equal(bytes.of[SP_MEM_KV_CACHE], 0);
        assert_int_equal(bytes.of[SP_MEM_RECOMPUTE], 0);
        assert_int_equal(bytes.of[SP_MEM_OFFLOADED], 0);
    }
}

// A model and a layout in which every term of the formulas is a whole number that was worked out by
// hand: k = 8, s/(tc) = 16 tokens and L/p = 4 layers a rank, nv + 2(p-1) = 10 units in flight.
static const sp_model small = {.name = "small",
                               .layers = 8,
                               .hidden = 16,
                               .ffn = 32,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 4,
                               .vocab = 64};
static const sp_layout small_layout = {.tp = 2, .cp = 2, .pp = 2, .dp = 3, .chunks = 2, .zero = 1};
static const sp_planner_options small_options = {
    .order = SP_PLANNER_SLIMPIPE, .sequence_tokens = 64, .slices = 4};

static void expect(const sp_bytes *bytes, const int64_t expected[SP_MEM_CATEGORIES])
{
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        must_hold(bytes->of[c] == expected[c], "%s: %lld, by hand %lld",
                  sp_memory_category_names[c], (long long)bytes->of[c], (long long)expected[c]);
    }
}

// A layer has 2*256 + 2*16*8 + 3*16*32 = 2304 parameters, the table 1024: (4*2304 + 1024)/2 = 5120
// a rank. A token keeps 12*16 + 4*8 + 6*32 = 416 B a layer, a unit 16*4*416/8 = 3328 B.
// KV gradients: 4*16*16*4 * (1*2 + 2*3)/8.
TEST(every_term_without_recomputation)
{
    int64_t expected[SP_MEM_CATEGORIES] = {
        [SP_MEM_PARAMETERS] = 10240,  [SP_MEM_GRADIENTS] = 20480,   [SP_MEM_OPTIMIZER] = 10240,
        [SP_MEM_ACTIVATIONS] = 33280, [SP_MEM_KV_GRADIENTS] = 4096, [SP_MEM_LOGITS] = 2048,
    };
    sp_bytes bytes = predict(&small, &small_layout, &small_options);
    expect(&bytes, expected);
    assert_int_equal(sp_bytes_total(&bytes), 10240 + 20480 + 10240 + 33280 + 4096 + 2048);

    // Vocabulary parallelism: (4*2304 + 512)/2 = 4864 parameters; the logits were divided before.
    sp_layout layout = small_layout;
    layout.vocab_parallel = true;
    expected[SP_MEM_PARAMETERS] = 9728;
    expected[SP_MEM_GRADIENTS] = 19456;
    expected[SP_MEM_OPTIMIZER] = 9728;
    bytes = predict(&small, &layout, &small_options);
    expect(&bytes, expected);
}

// A token keeps 8*16 + 4*8 = 160 B a layer, a unit 1280 B: of 10 units half of 6 leave the GPU, and
// the keys and values of 8 of 8 units stay, 4*8*16*4 B. A slice rebuilds 6*32*16/4 B.
TEST(every_term_with_offload_and_partial_recomputation)
{
    const int64_t expected[SP_MEM_CATEGORIES] = {
        [SP_MEM_PARAMETERS] = 10240, [SP_MEM_GRADIENTS] = 20480, [SP_MEM_OPTIMIZER] = 10240,
        [SP_MEM_ACTIVATIONS] = 8960, [SP_MEM_KV_CACHE] = 2048,   [SP_MEM_KV_GRADIENTS] = 4096,
        [SP_MEM_LOGITS] = 2048,      [SP_MEM_RECOMPUTE] = 768,   [SP_MEM_OFFLOADED] = 3840,
    };
    sp_planner_options options = small_options;
    options.memory = (sp_memory_options){.recompute = SP_RECOMPUTE_PARTIAL_FC1,
                                         .attention = SP_ATTENTION_FLASH,
                                         .offload_ratio = 0.5};
    sp_bytes bytes = predict(&small, &small_layout, &options);
    expect(&bytes, expected);
    assert_int_equal(sp_bytes_total(&bytes),
                     10240 + 20480 + 10240 + 8960 + 2048 + 4096 + 2048 + 768);
}

// A token keeps 2*16 B a layer, a unit 256 B; a layer of the sequence rebuilds 16*416 B.
TEST(every_term_with_full_recomputation)
{
    const int64_t expected[SP_MEM_CATEGORIES] = {
        [SP_MEM_PARAMETERS] = 10240, [SP_MEM_GRADIENTS] = 20480,   [SP_MEM_OPTIMIZER] = 10240,
        [SP_MEM_ACTIVATIONS] = 2560, [SP_MEM_KV_GRADIENTS] = 4096, [SP_MEM_LOGITS] = 2048,
        [SP_MEM_RECOMPUTE] = 6656,
    };
    sp_planner_options options = small_options;
    options.memory.recompute = SP_RECOMPUTE_FULL;
    sp_bytes bytes = predict(&small, &small_layout, &options);
    expect(&bytes, expected);
}

// The whole model keeps 16*8*416 = 53248 B of a sequence: 1F1B holds that, interleaving 1 + 1/4 of
// it (arXiv 2205.05198, section 4.2.3: 1 + (p-1)/(pv)).
TEST(unsliced_orders)
{
    sp_planner_options options = small_options;
    options.order = SP_PLANNER_INTERLEAVED;
    sp_bytes bytes = predict(&small, &small_layout, &options);
    assert_int_equal(bytes.of[SP_MEM_ACTIVATIONS], 66560);
    assert_int_equal(bytes.of[SP_MEM_KV_GRADIENTS], 0);
    options.order = SP_PLANNER_1F1B;
    sp_layout layout = small_layout;
    layout.chunks = 1;
    bytes = predict(&small, &layout, &options);
    assert_int_equal(bytes.of[SP_MEM_ACTIVATIONS], 53248);
    options.memory.recompute = SP_RECOMPUTE_PARTIAL_FC1;
    bytes = predict(&small, &layout, &options);
    assert_int_equal(bytes.of[SP_MEM_RECOMPUTE], 6 * 32 * 16);
}

static sp_layout random_layout(sp_prng *prng)
{
    return (sp_layout){.tp = 1 << sp_prng_below(prng, 4),
                       .cp = 1 << sp_prng_below(prng, 4),
                       .pp = 1 << sp_prng_below(prng, 5),
                       .dp = 1 << sp_prng_below(prng, 3),
                       .chunks = 1 + prng_below(prng, 5),
                       .zero = 1};
}

// Whatever is offloaded, held and offloaded activations together stay the same; nothing is
// negative; more slices never hold more activations.
TEST_ROUNDS(random_options, 7, 2000)
{
    sp_model model;
    int index = prng_below(prng, 5);
    assert_int_equal(sp_model_builtin(sp_model_builtin_name(index), &model, NULL), SP_OK);
    sp_layout layout = random_layout(prng);
    static const sp_recompute modes[] = {SP_RECOMPUTE_NONE, SP_RECOMPUTE_PARTIAL_FC1,
                                         SP_RECOMPUTE_FULL};
    sp_planner_options options = {
        .order = SP_PLANNER_SLIMPIPE,
        .sequence_tokens = 1 + (int64_t)sp_prng_below(prng, 1 << 22),
        .slices = 1 + prng_below(prng, 64),
        .memory = {.recompute = modes[sp_prng_below(prng, 3)]},
    };
    sp_bytes whole = predict(&model, &layout, &options);
    options.memory.offload_ratio = sp_prng_uniform(prng);
    sp_bytes bytes = predict(&model, &layout, &options);
    int64_t sum = bytes.of[SP_MEM_ACTIVATIONS] + bytes.of[SP_MEM_OFFLOADED];
    assert_in_range(sum + 1 - whole.of[SP_MEM_ACTIVATIONS], 0, 2);
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        assert_true(bytes.of[c] >= 0);
    }
    options.memory.offload_ratio = 0.0;
    options.slices *= 2;
    sp_bytes finer = predict(&model, &layout, &options);
    assert_true(finer.of[SP_MEM_ACTIVATIONS] <= whole.of[SP_MEM_ACTIVATIONS]);
}

static void refuse(const sp_model *model, const sp_planner_options *options, const char *path)
{
    sp_bytes bytes;
    must_fail_with(sp_planner_memory(model, &small_layout, options, "test", &bytes, ERR),
                   SP_ERR_CONTENT, path);
}

TEST(refusals)
{
    sp_model experts = small;
    experts.experts = 8;
    experts.experts_per_token = 2;
    refuse(&experts, &small_options, "test: memory.model: ");
    sp_model gelu = small;
    gelu.activation = SP_GELU;
    refuse(&gelu, &small_options, "test: memory.model: ");
    sp_planner_options options = small_options;
    options.memory.recompute = SP_RECOMPUTE_ATTENTION;
    refuse(&small, &options, "test: memory.recompute: ");
    options = small_options;
    options.memory.attention = SP_ATTENTION_UNFUSED;
    refuse(&small, &options, "test: memory.attention: ");
    options = small_options;
    options.order = SP_PLANNER_INTERLEAVED;
    options.memory.offload_ratio = 0.5;
    refuse(&small, &options, "test: memory.offload_ratio: ");
}
