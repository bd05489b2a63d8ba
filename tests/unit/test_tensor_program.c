// The tensors of a unit against the footprint, which adds up the same memory in another way, and
// against figures of kwai/Megatron-Kwai (branch atc24ae).
#include "sim/memory/tensor_program.h"
#include "sim/model/parameter_list.h"
#include "tests/support/initializers.h"
#include "tests/support/test_main.h"
#include "tests/support/unit_draw.h"

#define MIB INT64_C(1048576)

static void build(const unit_draw *d, sp_tensor_program *program)
{
    sp_tensor_program_build(&d->model, &d->layout, &d->stage, &d->options, &d->load, program);
}

// What a run of passes holds: bytes of the storages that anybody holds.
typedef struct ledger {
    const sp_tensor_program *program;
    int *holders;
    uint8_t *alive; // by tensor: 0 not yet made, 1 there, 2 gone
    int64_t bytes, peak;
} ledger;

static void hold(ledger *l, int32_t tensor)
{
    int32_t storage = l->program->tensors[tensor].storage;
    assert_int_equal(l->alive[tensor], 0);
    assert_true(storage == tensor || l->holders[storage] > 0);
    l->alive[tensor] = 1;
    if (l->holders[storage]++ == 0) {
        l->bytes += l->program->tensors[storage].bytes;
        l->peak = l->bytes > l->peak ? l->bytes : l->peak;
    }
}

static void let_go(ledger *l, int32_t tensor)
{
    int32_t storage = l->program->tensors[tensor].storage;
    assert_int_equal(l->alive[tensor], 1);
    l->alive[tensor] = 2;
    if (--l->holders[storage] == 0) {
        l->bytes -= l->program->tensors[storage].bytes;
    }
}

static ledger open_ledger(const sp_tensor_program *program)
{
    ledger l = {.program = program,
                .holders = sp_calloc(program->tensor_count, sizeof *l.holders),
                .alive = sp_calloc(program->tensor_count, sizeof *l.alive)};
    if (program->input != SP_NO_TENSOR) {
        hold(&l, program->input);
    }
    return l;
}

static void ledger_fini(ledger *l)
{
    free(l->holders);
    free(l->alive);
}

static void run(ledger *l, sp_program_pass pass)
{
    const sp_tensor_events *events = &l->program->pass[pass];
    l->peak = l->bytes;
    for (size_t e = 0; e < events->count; e++) {
        if (events->items[e].gone) {
            let_go(l, events->items[e].tensor);
        } else {
            hold(l, events->items[e].tensor);
        }
    }
}

static int64_t saved_bytes(const sp_tensor_program *program)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < program->saved_count; i++) {
        bytes += program->tensors[program->saved[i].tensor].bytes;
    }
    return bytes;
}

static void forward(ledger *l)
{
    run(l, SP_PROGRAM_FORWARD);
    if (l->program->output != SP_NO_TENSOR) {
        let_go(l, l->program->output);
    }
    if (l->program->output_gradient != SP_NO_TENSOR) {
        hold(l, l->program->output_gradient);
    }
}

static void take_input_gradient(ledger *l, int split)
{
    if (l->program->input_gradient[split] != SP_NO_TENSOR) {
        let_go(l, l->program->input_gradient[split]);
    }
}

// For any model, layout and mode the tensors that a forward leaves add up to what the footprint
// holds, and a whole or a split backward frees them all.
// Half of the units compute in FP8, by any recipe.
static void draw_precision(sp_prng *prng, unit_draw *d)
{
    if (sp_model_has_state(&d->model) || d->model.attention_gate || sp_model_is_frozen(&d->model)) {
        return; // which scenarios refuse in FP8
    }
    d->options.stack.precision = (sp_step_precision){
        .compute = (sp_compute)prng_below(prng, 2),
        .recipe = (sp_fp8_recipe)prng_below(prng, 4),
        .transposes = prng_below(prng, 2) == 0,
    };
}

TEST_ROUNDS(saved_tensors_add_up, 20240710, 2000)
{
    unit_draw d = draw_unit(prng);
    draw_precision(prng, &d);
    AUTO(sp_tensor_program) program;
    sp_unit_bytes unit;
    build(&d, &program);
    sp_footprint_unit(&d.model, &d.layout, &d.stage, &d.options, &d.load, &unit);
    assert_int_equal(saved_bytes(&program), sp_bytes_total(&unit.held));
    for (int split = 0; split < 2; split++) {
        AUTO(ledger) l = open_ledger(&program);
        forward(&l);
        int64_t gradient = program.output_gradient == SP_NO_TENSOR
                               ? 0
                               : program.tensors[program.output_gradient].bytes;
        assert_int_equal(l.bytes - gradient, saved_bytes(&program));
        run(&l, split == 0 ? SP_PROGRAM_BACKWARD : SP_PROGRAM_INPUT_GRADIENT);
        take_input_gradient(&l, split);
        if (split == 1) {
            run(&l, SP_PROGRAM_WEIGHT_GRADIENT);
        }
        assert_int_equal(l.bytes, 0);
    }
}

// Between input and weight gradient a unit of a dense model holds the inputs of its GEMMs and the
// gradients of their outputs, as the footprint says.
TEST_ROUNDS(split_backward_keeps_what_weights_need, 11, 500)
{
    unit_draw d = draw_unit(prng);
    draw_precision(prng, &d);
    make_dense(&d);
    AUTO(sp_tensor_program) program;
    sp_unit_bytes unit;
    build(&d, &program);
    sp_footprint_unit(&d.model, &d.layout, &d.stage, &d.options, &d.load, &unit);
    AUTO(ledger) l = open_ledger(&program);
    forward(&l);
    run(&l, SP_PROGRAM_INPUT_GRADIENT);
    take_input_gradient(&l, 1);
    assert_int_equal(l.bytes, sp_bytes_total(&unit.weights));
}

// Llama-65B in units of two layers on TP 2, CP 2: 8192 tokens, heads / TP = 32, vocabulary 32256.
static unit_draw h800_draw(sp_recompute recompute, bool embedding, bool head)
{
    unit_draw d = {
        .layout = {.tp = 2, .cp = 2, .pp = 8, .dp = 8, .chunks = 5, .sequence_parallel = true},
        .stage = {.layers = 2, .embedding = embedding, .head = head},
        .options = {.recompute = recompute},
        .load = {.tokens = 8192, .pairs = INT64_C(8192) * 8192}};
    assert_int_equal(sp_model_builtin("llama-65b", &d.model, NULL), SP_OK);
    assert_true(sp_stack_builtin("megatron-core-2024", &d.options.stack));
    d.model.vocab = 32256;
    return d;
}

// Peaks beyond the unit's saved tensors, from that runtime's source. Forward without recomputation:
// block output 32, gathered keys and values 128, MLP output 32, layer output 32. With the
// activation function rebuilt: 128, 32, product 86, projection 64 and its reduction 32, less the
// rank's own keys and values 64 not yet saved. Backward of that: 128 and six tensors of 86 or twice
// 86. At the end of the last chunk: logits 126, in fp32 252.
TEST(h800_transients)
{
    static const struct {
        sp_recompute recompute;
        bool head;
        int64_t forward_mib, backward_mib;
    } cases[] = {{SP_RECOMPUTE_NONE, false, 224, 0},
                 {SP_RECOMPUTE_ACTIVATION, false, 278, 644},
                 {SP_RECOMPUTE_NONE, true, 126 + 252, 0},
                 {SP_RECOMPUTE_ACTIVATION, true, 126 + 252, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unit_draw d = h800_draw(cases[i].recompute, false, cases[i].head);
        AUTO(sp_tensor_program) program;
        build(&d, &program);
        AUTO(ledger) l = open_ledger(&program);
        forward(&l);
        assert_int_equal(l.peak - saved_bytes(&program), cases[i].forward_mib * MIB);
        int64_t before = l.bytes;
        run(&l, SP_PROGRAM_BACKWARD);
        if (cases[i].backward_mib > 0) {
            assert_int_equal(l.peak - before, cases[i].backward_mib * MIB);
        }
    }
}

// A loss by chunks that run again has one chunk's logits in the forward (bf16, an fp32 copy and the
// softmax: 10 bytes a logit), and in the backward the same beside the gradients of the head's input
// and, as a tensor of its own, of its weight. With gradients at once these are in the forward.
TEST(chunks_that_run_again_have_gradients_in_the_backward)
{
    const int64_t h = 512;
    const int64_t vocab = 64000;
    const int64_t tokens = 4096;
    for (int again = 0; again < 2; again++) {
        unit_draw d = {.model = {LLAMA_SHAPE(1, h, 1024, 8, 8, vocab)},
                       .layout = {LAYOUT(1, 1, 1, 1, 1)},
                       .stage = {.head = true},
                       .options = {.stack = {.copied_logits = true,
                                             .unfused_weight_gradient = true,
                                             .loss_chunks = 8,
                                             .loss_recompute = again == 1}},
                       .load = {.tokens = tokens, .pairs = tokens * tokens}};
        AUTO(sp_tensor_program) program;
        build(&d, &program);
        AUTO(ledger) l = open_ledger(&program);
        forward(&l);
        int64_t saved = saved_bytes(&program);
        int64_t chunk = 10 * tokens / 8 * vocab;
        int64_t gradients = 2 * tokens * h + 2 * vocab * h;
        assert_int_equal(l.peak, saved + chunk + (again == 1 ? 0 : gradients));
        int64_t before = l.bytes;
        l.peak = 0;
        run(&l, SP_PROGRAM_BACKWARD);
        if (again == 1) {
            assert_int_equal(l.peak, before + chunk + gradients);
        } else {
            assert_true(l.peak < before + chunk);
        }
    }
}

// Cut Cross-Entropy: no logits, in the forward nothing beside what is saved, in the backward the
// gradients of the head's input and weight. Of Gemma 2 (2B), with 8,192 tokens, 256,000 words and
// 2,304 features, they take 1 GB where the classifier took 28 (arXiv 2411.09009, abstract).
TEST(cut_cross_entropy_has_no_logits)
{
    const int64_t h = 2304;
    const int64_t vocab = 256000;
    const int64_t tokens = 8192;
    unit_draw d = {
        .model = {LLAMA_SHAPE(1, h, 9216, 8, 4, vocab)},
        .layout = {LAYOUT(1, 1, 1, 1, 1)},
        .stage = {.head = true},
        .options = {.stack = {.unfused_weight_gradient = true, .cut_cross_entropy = true}},
        .load = {.tokens = tokens, .pairs = tokens * tokens}};
    AUTO(sp_tensor_program) program;
    build(&d, &program);
    AUTO(ledger) l = open_ledger(&program);
    forward(&l);
    assert_int_equal(l.peak, saved_bytes(&program));
    int64_t before = l.bytes;
    l.peak = 0;
    run(&l, SP_PROGRAM_BACKWARD);
    assert_int_equal(l.peak, before + 2 * tokens * h + 2 * vocab * h);
    assert_int_equal(lround((double)(l.peak - before) / 1e9), 1);
}

// The order in which that runtime saves the tensors of a layer, in MiB (0: log-sum-exp, half one).
TEST(h800_saving_order)
{
    static const int64_t none[] = {32, 32, 32, 32, 0, 32, 32, 86, 86, 86, 86, 64};
    static const int64_t ours[] = {32, 32, 32, 0, 32, 172, 64};
    for (int mode = 0; mode < 2; mode++) {
        const int64_t *expected = mode == 0 ? none : ours;
        size_t count = mode == 0 ? sizeof none / sizeof none[0] : sizeof ours / sizeof ours[0];
        unit_draw d =
            h800_draw(mode == 0 ? SP_RECOMPUTE_NONE : SP_RECOMPUTE_ACTIVATION, false, false);
        AUTO(sp_tensor_program) program;
        build(&d, &program);
        assert_int_equal(program.saved_count, 2 * count);
        for (size_t i = 0; i < program.saved_count; i++) {
            int64_t bytes = program.tensors[program.saved[i].tensor].bytes;
            assert_int_equal(bytes / MIB, expected[i % count]);
            assert_int_equal(program.saved[i].contiguous,
                             mode == 1 || bytes != 86 * MIB || i % count == 9 || i % count == 10);
        }
    }
}

// ZeRO 3 gathers a layer's parameters while the layer before it runs: of one layer they are there
// at its peak, of more those of two, as in the footprint.
TEST(gathered_parameters)
{
    for (int layers = 1; layers <= 3; layers++) {
        int64_t peaks[2][2];
        const sp_stage gathered = {.layers = layers > 1 ? 2 : 1};
        unit_draw d = h800_draw(SP_RECOMPUTE_NONE, false, false);
        d.stage.layers = layers;
        int64_t parameters = 2 * sp_footprint_parameters(&d.model, &d.layout, &gathered, 1);
        for (int zero = 2; zero <= 3; zero++) {
            AUTO(sp_tensor_program) program;
            d.layout.zero = zero;
            build(&d, &program);
            AUTO(ledger) l = open_ledger(&program);
            forward(&l);
            peaks[zero - 2][0] = l.peak;
            run(&l, SP_PROGRAM_BACKWARD);
            peaks[zero - 2][1] = l.peak;
        }
        assert_in_range(peaks[1][0] - peaks[0][0], parameters / 2, parameters);
        assert_int_equal(peaks[1][1] - peaks[0][1], parameters);
    }
}

// The first chunk's backward makes the gradient of the lookup as a dense table of
// 16128 x 8192 bf16 numbers.
TEST(gradient_of_the_lookup)
{
    unit_draw d = h800_draw(SP_RECOMPUTE_NONE, true, false);
    AUTO(sp_tensor_program) program;
    build(&d, &program);
    assert_int_equal(program.input, SP_NO_TENSOR);
    int found = 0;
    for (size_t e = 0; e < program.pass[SP_PROGRAM_BACKWARD].count; e++) {
        sp_tensor_event event = program.pass[SP_PROGRAM_BACKWARD].items[e];
        found += !event.gone && program.tensors[event.tensor].bytes == 252 * MIB;
    }
    assert_int_equal(found, 1);
}

// Tensor by tensor the parameters are those that the footprint counts, 2 bytes each.
TEST_ROUNDS(parameters_add_up, 5, 500)
{
    unit_draw d = draw_unit(prng);
    d.layout.zero = 0;
    sp_bytes states;
    sp_footprint_states(&d.model, &d.layout, &d.options.stack, &d.stage, 1, &states);
    AUTO(sp_parameter_list) list = {0};
    sp_parameter_list_add(&d.model, &d.layout, &d.stage, d.stage.embedding, &list);
    sp_frozen_weights frozen = d.model.frozen_weights;
    int64_t bytes = 0;
    for (size_t i = 0; i < list.count; i++) {
        int64_t n = list.items[i].elements;
        bool packed = frozen != SP_FROZEN_BF16 && sp_layer_is_product_weight(list.items[i].kind);
        bytes += packed ? sp_4bit_packed_bytes(n) + sp_4bit_scale_bytes(frozen, n) +
                              sp_4bit_nested_bytes(frozen, n)
                        : 2 * n;
    }
    // The list has one tensor of queries, keys and values, and one of gate and up: of three
    // tensors less in a layer the last scale of scales may be shared.
    int64_t more = states.of[SP_MEM_PARAMETERS] - bytes;
    assert_true(more >= 0);
    assert_true(more <= (frozen == SP_FROZEN_4BIT_DOUBLE ? 3 * 4 * d.stage.layers : 0));
}
