// What a calibration times of the kernels bound by memory: bytes and launches are those that the
// cost model counts, and each kernel runs, on the CPU that emulates a device, in the memory laid
// out for it.
#include "backends/cuda/calibration.h"
#include "kernels/cuda_kernels.h"
#include "sim/model/inventory.h"
#include "tests/support/initializers.h"
#include "tests/support/test_main.h"

enum { TOKENS = 48, MOST_TOKENS = 64 };

static const sp_model llama = {.name = "small", LLAMA_SHAPE(2, 64, 160, 4, 2, 96)};

static sp_model other(void)
{
    sp_model model = llama;
    model.norm = SP_LAYERNORM;
    model.positional = SP_LEARNED;
    return model;
}

// ---- counts ----

typedef struct counted {
    double bytes;
    int kernels;
} counted;

static counted count_layer(const sp_model *model, const sp_stack *stack)
{
    static const sp_pass passes[] = {SP_PASS_F, SP_PASS_I};
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    counted sum = {0};
    for (int p = 0; p < 2; p++) {
        sp_inventory inventory;
        sp_inventory_build(model, &layout, stack, SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE,
                           SP_PART_LAYER, passes[p], &inventory);
        for (int i = 0; i < inventory.count; i++) {
            const sp_op *op = &inventory.ops[i];
            if (op->kind == SP_OP_MEMORY) {
                sum.bytes += TOKENS * op->bytes_per_token + op->bytes_fixed;
                sum.kernels += op->kernels;
            }
        }
    }
    return sum;
}

TEST(a_layer_counts_as_the_inventory_does)
{
    const sp_stack stack = {.fused_swiglu = true};
    const sp_model models[] = {llama, other()};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        const sp_i_cuda_element_shape shape =
            sp_i_cuda_element_shape_of(&models[m], TOKENS, MOST_TOKENS);
        counted expected = count_layer(&models[m], &stack);
        counted found = {0};
        for (int e = 0; e < SP_I_CUDA_ELEMENTS; e++) {
            int times = sp_i_cuda_element_in_layer((sp_i_cuda_element)e, &models[m]);
            sp_i_cuda_element_cost cost = sp_i_cuda_element_cost_of((sp_i_cuda_element)e, &shape);
            found.bytes += times * cost.counted_bytes;
            found.kernels += times * cost.counted_kernels;
        }
        assert_true(expected.bytes > 0.0 && found.bytes == expected.bytes);
        assert_int_equal(found.kernels, expected.kernels);
    }
}

// GELU stands in layers with dropout, whose bytes are in one operator with the residual's.
TEST(gelu_counts_as_the_inventory_does)
{
    sp_model gpt = other();
    gpt.activation = SP_GELU;
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    const sp_stack stack = {.fused_swiglu = true};
    const sp_i_cuda_element_shape shape = sp_i_cuda_element_shape_of(&gpt, TOKENS, MOST_TOKENS);
    for (int pass = 0; pass < 2; pass++) {
        sp_inventory inventory;
        int found = 0;
        sp_inventory_build(&gpt, &layout, &stack, SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE,
                           SP_PART_LAYER, pass == 0 ? SP_PASS_F : SP_PASS_I, &inventory);
        for (int i = 0; i < inventory.count; i++) {
            if (strcmp(inventory.ops[i].name, "activation function") == 0) {
                sp_i_cuda_element_cost cost = sp_i_cuda_element_cost_of(
                    pass == 0 ? SP_I_CUDA_GELU : SP_I_CUDA_GELU_BACKWARD, &shape);
                assert_true(cost.counted_bytes == TOKENS * inventory.ops[i].bytes_per_token);
                found++;
            }
        }
        assert_int_equal(found, 1);
    }
    assert_int_equal(sp_i_cuda_element_in_layer(SP_I_CUDA_GELU, &gpt), 1);
    assert_int_equal(sp_i_cuda_element_in_layer(SP_I_CUDA_SWIGLU, &gpt), 0);
}

TEST(logits_fit_into_the_activations)
{
    sp_model model = llama;
    model.vocab = 5000;
    // Five tensors of 64 tokens, of which the first MLP's 160 columns are the widest.
    sp_i_cuda_element_shape s = sp_i_cuda_element_shape_of(&model, TOKENS, MOST_TOKENS);
    assert_int_equal(s.vocab, 5000);
    assert_int_equal(s.loss_tokens, 5 * 64 * 160 / 5000);
    s = sp_i_cuda_element_shape_of(&llama, TOKENS, MOST_TOKENS);
    assert_int_equal(s.loss_tokens, TOKENS);
}

// ---- kernels ----

typedef struct room {
    unsigned char *memory, *before;
    int64_t bytes;
    sp_i_cuda_element_data data;
    sp_i_cuda_element_shape shape;
} room;

enum { MARGIN = 4096 };

// Normal numbers everywhere, in both sizes of element.
static void make_room(const sp_model *model, room *r)
{
    const sp_i_cuda_element_shape most =
        sp_i_cuda_element_shape_of(model, MOST_TOKENS, MOST_TOKENS);
    int64_t scratch[TOKENS];
    r->bytes = sp_i_cuda_element_bytes(&most);
    assert_true(sp_i_cuda_element_drawn(&most) < r->bytes);
    r->memory = aligned_alloc(256, (size_t)r->bytes + MARGIN);
    r->before = sp_malloc((size_t)r->bytes + MARGIN);
    for (int64_t i = 0; i < (r->bytes + MARGIN) / 2; i++) {
        sp_bf16 bits = sp_bf16_from_float((float)sin(1.0 + (double)i));
        memcpy(r->memory + 2 * i, &bits, sizeof bits);
    }
    sp_i_cuda_element_place(&most, r->memory, &r->data);
    r->shape = sp_i_cuda_element_shape_of(model, TOKENS, MOST_TOKENS);
    for (int64_t t = 0; t < TOKENS; t++) {
        r->data.index[t] = t * t % TOKENS;
    }
    sp_cuda_embedding_order(TOKENS, r->data.index, r->data.order, scratch);
    memset(r->data.wide[3], 0, sizeof(float) * TOKENS * (size_t)model->hidden);
}

static int64_t changed(const room *r, int64_t from, int64_t to)
{
    int64_t count = 0;
    for (int64_t i = from; i < to; i++) {
        count += r->memory[i] != r->before[i];
    }
    return count;
}

TEST(every_kernel_runs_in_its_memory)
{
    const sp_model models[] = {llama, other()};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        for (int e = 0; e < SP_I_CUDA_ELEMENTS; e++) {
            room r;
            make_room(&models[m], &r);
            memcpy(r.before, r.memory, (size_t)r.bytes + MARGIN);
            int code = sp_i_cuda_launch_element((sp_i_cuda_element)e, &r.shape, &r.data, NULL);
            must_hold(code == 0, "%s: %d", sp_i_cuda_element_name((sp_i_cuda_element)e), code);
            // Statistics and partial sums come on top of what is counted.
            sp_i_cuda_element_cost cost = sp_i_cuda_element_cost_of((sp_i_cuda_element)e, &r.shape);
            int64_t written = changed(&r, 0, r.bytes);
            must_hold(written != 0 && (double)written <= cost.moved_bytes + 4096.0,
                      "%s wrote %d bytes, moves %g", sp_i_cuda_element_name((sp_i_cuda_element)e),
                      (int)written, cost.moved_bytes);
            assert_int_equal(changed(&r, r.bytes, r.bytes + MARGIN), 0);
            sp_free(r.memory);
            sp_free(r.before);
        }
    }
}

// y += x for 48 tokens of 64, and nothing behind them.
TEST(an_addition_adds)
{
    room r;
    make_room(&llama, &r);
    float x = sp_bf16_to_float(r.data.x[0][77]);
    float y = sp_bf16_to_float(r.data.x[1][77]);
    sp_bf16 behind = r.data.x[1][TOKENS * 64];
    assert_int_equal(sp_i_cuda_launch_element(SP_I_CUDA_RESIDUAL_ADD, &r.shape, &r.data, NULL), 0);
    assert_int_equal(r.data.x[1][77], sp_bf16_from_float(x + y));
    assert_int_equal(r.data.x[1][TOKENS * 64], behind);
    sp_free(r.memory);
    sp_free(r.before);
}
