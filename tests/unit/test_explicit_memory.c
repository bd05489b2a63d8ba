// Passes with explicit tensors: moments worked out by hand for a layer of a few bytes, and the
// bytes that are left when a pass ends, which the saved-tensor table says in another way.
#include "sim/memory/explicit_unit.h"
#include "tests/support/initializers.h"
#include "tests/support/test_main.h"
#include "tests/support/unit_draw.h"

enum { TOKEN = 1 };

// One token of this model takes 8 bytes as a hidden state, as queries, as keys and values, as
// output of the attention and as its log-sum-exp; 16 as output of QKV and as input of fc2, 32 as
// output of fc1. Statistics of a norm are 8 bytes, logits 40.
static const sp_model small = {LLAMA_SHAPE(1, 4, 8, 2, 1, 10)};
static const sp_layout alone = {.tp = 1, .cp = 1, .pp = 3, .dp = 1, .chunks = 1};

static sp_memory_options explicit_in(sp_recompute mode)
{
    return (sp_memory_options){.recompute = mode, .stack = {.tensors = SP_TENSORS_EXPLICIT}};
}

static sp_unit_bytes small_unit(const sp_stage *stage, sp_recompute mode, const sp_unit_load *load)
{
    sp_memory_options options = explicit_in(mode);
    sp_unit_bytes unit;
    sp_footprint_unit(&small, &alone, stage, &options, load, &unit);
    return unit;
}

static void equals(const sp_bytes *bytes, sp_memory_category category, int64_t expected)
{
    assert_int_equal(bytes->of[category], expected);
    assert_int_equal(sp_bytes_total(bytes), expected);
}

// All that is kept is more than what QKV adds while its output is there. The backward's fullest
// moment has the gradients of the layer's output, of fc2's input and of fc1's output.
TEST(layer_that_keeps_all)
{
    const sp_stage stage = {.layers = 1};
    sp_unit_bytes unit = small_unit(&stage, SP_RECOMPUTE_NONE, &(sp_unit_load){.tokens = TOKEN});
    assert_int_equal(unit.held.of[SP_MEM_ACTIVATIONS], 8 * 8 + 32 + 16);
    assert_int_equal(unit.held.of[SP_MEM_WORKSPACE], 2 * 8);
    equals(&unit.forward, SP_MEM_WORKSPACE, 0);
    equals(&unit.backward, SP_MEM_WORKSPACE, 8 + 16 + 32);
}

// Under full recomputation the forward's fullest moment is the activation function: statistics of
// both norms, keys and values, residual, fc1's output and fc2's input. Without a copy for later it
// has its own input too. In the backward all eleven tensors but the input are made again, then come
// the same gradients.
TEST(layer_that_keeps_its_input)
{
    const sp_stage stage = {.layers = 1};
    sp_unit_bytes unit = small_unit(&stage, SP_RECOMPUTE_FULL, &(sp_unit_load){.tokens = TOKEN});
    equals(&unit.held, SP_MEM_ACTIVATIONS, 8);
    equals(&unit.forward, SP_MEM_WORKSPACE, 8 + 8 + 8 + 8 + 32 + 16);
    equals(&unit.repeated, SP_MEM_RECOMPUTE, 8);
    equals(&unit.first, SP_MEM_WORKSPACE, 8 + 80);
    assert_int_equal(unit.backward.of[SP_MEM_RECOMPUTE], 9 * 8 + 32 + 16);
    assert_int_equal(unit.backward.of[SP_MEM_WORKSPACE], 8 + 16 + 32);
}

// A repeat has the copied input and an output that nobody reads beside what it keeps.
TEST(repeated_forward)
{
    const sp_stage stage = {.layers = 1};
    sp_unit_bytes unit = small_unit(&stage, SP_RECOMPUTE_NONE, &(sp_unit_load){.tokens = TOKEN});
    assert_int_equal(unit.repeat.of[SP_MEM_RECOMPUTE], 8);
    assert_int_equal(unit.repeat.of[SP_MEM_WORKSPACE], 8);
    assert_int_equal(sp_bytes_total(&unit.repeat), 16);
}

// The head begins with the gradients of its norm's output and input; rows of several forward packs
// are copied tensor by tensor, logits as the largest.
TEST(head)
{
    const sp_stage stage = {.head = true};
    sp_unit_load load = {.tokens = TOKEN};
    sp_unit_bytes unit = small_unit(&stage, SP_RECOMPUTE_NONE, &load);
    assert_int_equal(unit.held.of[SP_MEM_WORKSPACE], 8 + 4);
    equals(&unit.forward, SP_MEM_WORKSPACE, 0);
    equals(&unit.backward, SP_MEM_WORKSPACE, 16);
    load.collects = true;
    unit = small_unit(&stage, SP_RECOMPUTE_NONE, &load);
    assert_int_equal(unit.backward.of[SP_MEM_LOGITS], 40);
    assert_int_equal(unit.backward.of[SP_MEM_WORKSPACE], 16);
}

// On a GPU logits take 20 bytes and their gradient as much; the sums of another slice's keys and
// values 16 where they take 8 elsewhere, and so do rotary tables of two positions.
TEST(device_has_its_own_widths)
{
    sp_memory_options options = explicit_in(SP_RECOMPUTE_NONE);
    options.stack.device_bytes = true;
    const sp_stage head = {.head = true};
    const sp_unit_load load = {.tokens = TOKEN, .begun_tokens = TOKEN, .collects = true};
    sp_unit_bytes unit;
    sp_footprint_unit(&small, &alone, &head, &options, &load, &unit);
    assert_int_equal(unit.held.of[SP_MEM_LOGITS], 20);
    assert_int_equal(unit.backward.of[SP_MEM_LOGITS], 20);
    const sp_stage layer = {.layers = 1};
    sp_footprint_unit(&small, &alone, &layer, &options, &load, &unit);
    assert_int_equal(unit.gradients_begun, 16);
    assert_int_equal(sp_footprint_rotary(&small, &options.stack, 2), 16);
}

// Attention beside its tensors, of 200 tokens: a number for each query and head. On two ranks 100
// of them, and the keys and values that all see, 300 of 8 bytes, with gradients of 16. By cuDNN:
// the keys and values of what is seen in one matrix and the gradients in another, of 208 rows, the
// next sixteenth of 256, the gradients of queries in fp32 and a number for each head, and of 320 of
// the keys and values of both query heads. A whole sample alone is no copy. On two ranks, of 200
// tokens behind 100, the first has those up to 150 and up to 300.
TEST(device_attention_has_work_spaces)
{
    sp_model model = small;
    sp_layout layout = alone;
    const sp_stage stage = {.layers = 1};
    sp_memory_options options = explicit_in(SP_RECOMPUTE_NONE);
    sp_unit_load load = {.tokens = 200, .seen_tokens = 300, .slices = 2};
    sp_i_explicit x;
    sp_i_explicit_measure(&model, &layout, &stage, &options, &load, &x);
    assert_int_equal(x.attend, 0);
    assert_int_equal(x.attend_backward, 0);
    options.stack.device_bytes = true;
    sp_i_explicit_measure(&model, &layout, &stage, &options, &load, &x);
    assert_int_equal(x.attend, 0);
    assert_int_equal(x.attend_backward, 200 * 2 * 4);
    layout.cp = 2;
    sp_i_explicit_measure(&model, &layout, &stage, &options, &load, &x);
    assert_int_equal(x.attend, 300 * 8);
    assert_int_equal(x.attend_backward, 100 * 2 * 4 + 300 * (8 + 16));
    layout.cp = 1;
    model.head_dim = 16;
    options.stack.cudnn_attention = true;
    sp_i_explicit_measure(&model, &layout, &stage, &options, &load, &x);
    int64_t kv = 2 * 16 * 2;
    int64_t sums = 208 * 4 * (32 + 2);
    assert_int_equal(x.attend, 300 * kv);
    assert_int_equal(x.attend_backward, 200 * 2 * 4 + 2 * 300 * kv + sums + 320 * 4 * 2 * 32);
    load.slices = 1;
    load.seen_tokens = 200;
    sp_i_explicit_measure(&model, &layout, &stage, &options, &load, &x);
    assert_int_equal(x.attend, 0);
    assert_int_equal(x.attend_backward, 200 * 2 * 4 + 200 * kv + sums + 208 * 4 * 2 * 32);
    layout.cp = 2;
    load.seen_tokens = 300;
    sp_i_explicit_measure(&model, &layout, &stage, &options, &load, &x);
    assert_int_equal(x.attend, 2 * 300 * kv);
    assert_int_equal(x.attend_backward, 100 * 2 * 4 + 300 * (kv + 2 * kv) + 300 * kv +
                                            (150 + 300) * kv + 128 * 4 * (32 + 2) +
                                            480 * 4 * 2 * 32);
    layout.cp = 1;
    load.slices = 0;
    sp_i_explicit_measure(&model, &layout, &stage, &options, &load, &x);
    assert_int_equal(x.attend_backward, 200 * 2 * 4);
}

TEST(tables_and_spaces)
{
    const sp_stack stack = explicit_in(SP_RECOMPUTE_NONE).stack;
    const sp_stack autograd = {.name = "ours"};
    const sp_stage stage = {.layers = 1};
    sp_bytes bytes;
    sp_footprint_states(&small, &alone, &stack, &stage, 1, &bytes);
    assert_int_equal(bytes.of[SP_MEM_WORKSPACE], 0);
    // cos and sin of one pair of columns, 2 bytes each.
    assert_int_equal(sp_footprint_rotary(&small, &stack, 100), 400);
    assert_int_equal(sp_footprint_rotary(&small, &autograd, 100), 0);
    sp_model learned = small;
    learned.positional = SP_LEARNED;
    assert_int_equal(sp_footprint_rotary(&learned, &stack, 100), 0);
}

// Sums of gradients are of whole rows of each rank.
static unit_draw explicit_draw(sp_prng *prng)
{
    unit_draw d = draw_unit(prng);
    make_usual(&d);
    d.model.blocks = SP_BLOCKS_IN_TURN;
    d.options.stack = explicit_in(SP_RECOMPUTE_NONE).stack;
    d.load = (sp_unit_load){.tokens = 8 * (1 + prng_below(prng, 500)),
                            .begun_tokens = 8 * prng_below(prng, 1000),
                            .collects = prng_below(prng, 2) == 0};
    d.load.kv_tokens = 8 * prng_below(prng, (int)d.load.tokens / 8 + 1);
    d.load.found_tokens = 8 * prng_below(prng, (int)d.load.kv_tokens / 8 + 1);
    d.load.pairs = d.load.tokens * (1 + prng_below(prng, 5000));
    return d;
}

static void is_there(const sp_i_explicit *x, const sp_bytes *expected)
{
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        assert_int_equal(x->gauge.now.of[c], expected->of[c]);
    }
    assert_true(sp_bytes_total(&x->gauge.high) >= sp_bytes_total(expected));
    assert_int_equal(x->gauge.total, sp_bytes_total(expected));
}

// A forward leaves what the table keeps; one that runs again leaves what its repeat needs; and a
// backward leaves of all that only the sums that it began, and what its weight gradients need.
TEST_ROUNDS(passes_end_with_what_is_held, 77, 2000)
{
    static const sp_bytes nothing;
    unit_draw d = explicit_draw(prng);
    sp_unit_bytes unit;
    sp_i_explicit x;
    sp_footprint_unit(&d.model, &d.layout, &d.stage, &d.options, &d.load, &unit);
    sp_i_explicit_measure(&d.model, &d.layout, &d.stage, &d.options, &d.load, &x);

    sp_i_explicit_begin(&x, &nothing);
    x.keeps = true;
    sp_i_explicit_forward(&x);
    is_there(&x, &unit.held);

    sp_i_explicit_begin(&x, &nothing);
    x.keeps = false;
    sp_i_explicit_forward(&x);
    sp_bytes cache = {{0}};
    cache.of[SP_MEM_KV_CACHE] = unit.repeated.of[SP_MEM_KV_CACHE];
    is_there(&x, &cache);

    sp_i_explicit_begin(&x, &cache);
    x.keeps = true;
    x.cached = true;
    sp_i_explicit_forward(&x);
    is_there(&x, &unit.held);

    sp_bytes before = unit.held;
    sp_bytes after = {{0}};
    before.of[SP_MEM_KV_GRADIENTS] = unit.gradients_found;
    after.of[SP_MEM_KV_GRADIENTS] = unit.gradients_begun;
    sp_i_explicit_begin(&x, &before);
    sp_i_explicit_backward(&x);
    is_there(&x, &after);

    // The weight gradient reads its own share of hidden states, gathered again where they are
    // split.
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        after.of[c] += unit.weights.of[c];
    }
    sp_i_explicit_begin(&x, &before);
    x.splits = true;
    sp_i_explicit_backward(&x);
    is_there(&x, &after);
}
