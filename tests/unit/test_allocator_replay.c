// The allocator's view of a step: where blocks cannot differ from tensors it is the plain sum of
// the tensors, counted here a second time.
#include "sim/base/units.h"
#include "sim/memory/saved_tensors.h"
#include "sim/memory/tensor_program.h"
#include "sim/schedule/schedule.h"
#include "sim/simulate/allocator_replay.h"
#include "sim/simulate/allocator_units.h"
#include "solver/evaluate/evaluate.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_fixture.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

#define MIB INT64_C(1048576)

// Every tensor is a multiple of 2 MiB or a small one of whole 512 B: 4096 tokens of 1024 bf16
// numbers are 8 MiB. Then blocks are split to the byte and count as their tensors.
static sp_model even_model(int layers)
{
    return (sp_model){LLAMA_SHAPE(layers, 1024, 4096, 8, 8, 4096)};
}

enum { EVEN_TOKENS = 4096 };

// GPipe on one data-parallel rank, `count` equal packs.
typedef struct step {
    sp_layout layout;
    sp_model model;
    sp_memory_options options;
    sp_packing packing;
    sp_plan plan;
    sp_step_costs costs;
    sp_unit_bytes unit;
    sp_pack_costs forward[32];
    sp_timeline timeline;
    sp_rank_timeline ranks[8];
    sp_rank_memory memories[8];
    sp_memory_timeline memory;
} step;

static void gpipe(step *s, int pp, int count, sp_recompute recompute)
{
    static const int first[] = {0};
    *s = (step){.layout = {.tp = 1, .cp = 1, .pp = pp, .dp = 1, .chunks = 1},
                .model = even_model(2 * pp),
                .options = {.recompute = recompute}};
    sp_packing_init(&s->packing, NULL, 1);
    for (int k = 0; k < count; k++) {
        pack_sample(&s->packing.forward, 0, 1, k, EVEN_TOKENS);
    }
    sp_plan_init(&s->plan, &s->layout, &s->packing);
    sp_schedule_spec spec = {.kind = SP_SCHEDULE_GPIPE};
    must_succeed(sp_schedule_generate(&spec, NULL, "test", &s->plan, ERR));
    assert_true(count <= COUNT_OF(s->forward));
    s->costs.side[0].unit = &s->unit;
    s->costs.side[0].pack = s->forward;
    s->timeline = (sp_timeline){.plan = &s->plan, .ranks = s->ranks, .rank_count = (size_t)pp};
    s->memory = (sp_memory_timeline){.ranks = s->memories, .rank_count = (size_t)pp};
    for (int r = 0; r < pp; r++) {
        s->ranks[r] = (sp_rank_timeline){.pp = r, .alike = 1, .dp_alike = first};
        // All are replayed.
        s->memories[r].peak.of[SP_MEM_ACTIVATIONS] = INT64_C(1) << 40;
    }
}

static void step_fini(step *s)
{
    sp_plan_fini(&s->plan);
    sp_packing_fini(&s->packing);
}

// The reserved bytes alone are those of the whole view, and more than enough where those are.
static void check_reserved(const step *s, const sp_step_costs *costs, const sp_allocator_peak *peak)
{
    const int64_t enough[] = {INT64_MAX, peak->reserved_bytes, peak->reserved_bytes - 1, 0};
    for (int i = 0; i < COUNT_OF(enough); i++) {
        int64_t reserved_bytes = -1;
        const char *obstacle;
        must_succeed(sp_allocator_reserved(&s->timeline, costs, &s->memory, &s->model, &s->options,
                                           enough[i], &reserved_bytes, &obstacle, ERR));
        assert_true(reserved_bytes <= peak->reserved_bytes);
        assert_int_equal(reserved_bytes > enough[i], peak->reserved_bytes > enough[i]);
        if (i < 2) {
            assert_int_equal(reserved_bytes, peak->reserved_bytes);
        }
    }
}

static int64_t replay(const step *s, const sp_step_costs *costs, const char **obstacle)
{
    sp_allocator_peak peak = {-1, -1, -1};
    must_succeed(sp_allocator_replay(&s->timeline, costs, &s->memory, &s->model, &s->options,
                                     SP_NO_RANK, &peak, obstacle, ERR));
    assert_true(peak.reserved_bytes >= peak.allocated_bytes);
    check_reserved(s, costs, &peak);
    return peak.allocated_bytes;
}

static int64_t replayed(const step *s)
{
    const char *obstacle = "";
    int64_t bytes = replay(s, &s->costs, &obstacle);
    assert_null(obstacle);
    return bytes;
}

// Bytes that the passes of one unit add, and the most in between.
static void walk(const sp_tensor_program *program, sp_program_pass pass, int64_t *now,
                 int64_t *peak, int *holders)
{
    const sp_tensor_events *events = &program->pass[pass];
    *peak = *now;
    for (size_t e = 0; e < events->count; e++) {
        int32_t storage = program->tensors[events->items[e].tensor].storage;
        int before = holders[storage];
        holders[storage] += events->items[e].gone ? -1 : 1;
        *now += (holders[storage] > 0) == (before > 0) ? 0
                : before > 0                           ? -program->tensors[storage].bytes
                                                       : program->tensors[storage].bytes;
        *peak = *now > *peak ? *now : *peak;
    }
}

static int64_t bytes_of(const sp_tensor_program *program, int32_t tensor)
{
    return tensor == SP_NO_TENSOR ? 0 : program->tensors[tensor].bytes;
}

// Peak of a rank under GPipe, by hand: all forwards, then all backwards. Beside the units there are
// the input of the next forward and the output of the last one, and then the gradients of the same.
static int64_t gpipe_peak(const step *s, int rank, int count)
{
    AUTO(sp_tensor_program) program;
    sp_stage stage = {.layers = 2, .embedding = rank == 0, .head = rank == s->layout.pp - 1};
    sp_tensor_program_build(&s->model, &s->layout, &stage, &s->options,
                            &(sp_unit_load){.tokens = EVEN_TOKENS}, &program);
    AUTO_FREE int *holders = sp_calloc(program.tensor_count, sizeof *holders);
    int64_t input = bytes_of(&program, program.input);
    int64_t output = bytes_of(&program, program.output);
    int64_t output_gradient = bytes_of(&program, program.output_gradient);
    int64_t input_gradient = bytes_of(&program, program.input_gradient[0]);
    if (program.input != SP_NO_TENSOR) {
        holders[program.input] = 1;
    }
    int64_t after_forward = input;
    int64_t forward_peak;
    walk(&program, SP_PROGRAM_FORWARD, &after_forward, &forward_peak, holders);
    int64_t unit = after_forward - output;
    if (program.output != SP_NO_TENSOR) {
        holders[program.output] = 0;
    }
    if (program.output_gradient != SP_NO_TENSOR) {
        holders[program.output_gradient] = 1;
    }
    int64_t after_backward = unit + output_gradient;
    int64_t backward_peak;
    walk(&program, SP_PROGRAM_BACKWARD, &after_backward, &backward_peak, holders);
    assert_int_equal(after_backward, input_gradient);
    int64_t peak = 0;
    for (int k = 0; k < count; k++) {
        int64_t others = k * unit + (k > 0 ? output : 0) + (k == count - 1 ? output_gradient : 0);
        peak = sp_larger(peak, others + forward_peak);
        others = (count - 1 - k) * unit + (k == 0 ? output : 0) + (k > 0 ? input_gradient : 0);
        peak = sp_larger(peak, others + backward_peak);
    }
    return peak;
}

// States without sharding: 18 bytes a parameter, three work spaces of 32 MiB, a table of angles.
static int64_t state_bytes(const step *s, int rank)
{
    sp_stage stage = {.layers = 2, .embedding = rank == 0, .head = rank == s->layout.pp - 1};
    sp_bytes states;
    sp_footprint_states(&s->model, &s->layout, &s->options.stack, &stage, 1, &states);
    return 9 * states.of[SP_MEM_PARAMETERS] + 3 * 32 * MIB + (int64_t)EVEN_TOKENS * 4 * 128;
}

TEST(blocks_without_rounding)
{
    static const sp_recompute modes[] = {SP_RECOMPUTE_NONE, SP_RECOMPUTE_ACTIVATION,
                                         SP_RECOMPUTE_FULL};
    for (int pp = 1; pp <= 3; pp++) {
        for (int count = 1; count <= 4; count++) {
            for (int m = 0; m < 3; m++) {
                AUTO(step) s;
                gpipe(&s, pp, count, modes[m]);
                int64_t expected = 0;
                for (int r = 0; r < pp; r++) {
                    expected = sp_larger(expected, state_bytes(&s, r) + gpipe_peak(&s, r, count));
                }
                assert_int_equal(replayed(&s), expected);
                assert_int_equal(replayed(&s), expected);
            }
        }
    }
}

// With a split limit blocks are at least their tensors.
TEST(blocks_that_are_not_split)
{
    for (int limit_mib = 2; limit_mib <= 64; limit_mib *= 2) {
        AUTO(step) s;
        gpipe(&s, 2, 4, SP_RECOMPUTE_NONE);
        int64_t plain = replayed(&s);
        s.options.stack.split_limit_bytes = limit_mib * MIB;
        assert_true(replayed(&s) >= plain);
    }
}

// No bytes; a backward pack that is half a forward pack; backward packs in another order are fine.
TEST(obstacles)
{
    static int64_t ids[] = {0, 1};
    static int64_t tokens[] = {EVEN_TOKENS, EVEN_TOKENS};
    sp_batch batch = {.ids = ids, .tokens = tokens, .count = 2, .total_tokens = 2 * EVEN_TOKENS};
    const char *obstacle = NULL;
    AUTO(step) s;
    gpipe(&s, 1, 2, SP_RECOMPUTE_NONE);
    s.packing.batch = &batch;
    sp_step_costs uniform = {0};
    assert_int_equal(replay(&s, &uniform, &obstacle), 0);
    assert_non_null(obstacle);
    int64_t plain = replayed(&s);
    for (int k = 1; k >= 0; k--) {
        sp_pack_list_begin(&s.packing.backward, 0, 1);
        sp_pack_list_add(&s.packing.backward, s.packing.forward.slices[k], true);
    }
    assert_int_equal(replayed(&s), plain);
    s.packing.backward.slices[0].tokens = EVEN_TOKENS / 2;
    sp_slice half = {
        .sample = 1, .begin = 0, .tokens = EVEN_TOKENS / 2, .computed_tokens = EVEN_TOKENS / 2};
    sp_pack_list_add(&s.packing.backward, half, true);
    assert_int_equal(replay(&s, &s.costs, &obstacle), 0);
    assert_non_null(obstacle);
}

// Of one pipeline rank the first and the last are all there is; of several none holds more than the
// largest, and one alone gives what it gives among the others.
TEST(one_rank)
{
    for (int i = 0; i < 8; i++) {
        int pp = 1 + i / 2;
        sp_world_rank which = i % 2 == 0 ? SP_FIRST_RANK : SP_LAST_RANK;
        int kept = which == SP_FIRST_RANK ? 0 : pp - 1;
        AUTO(step) s;
        gpipe(&s, pp, 3, SP_RECOMPUTE_NONE);
        const char *obstacle = "";
        sp_allocator_peak one = {0};
        must_succeed(sp_allocator_replay(&s.timeline, &s.costs, &s.memory, &s.model, &s.options,
                                         which, &one, &obstacle, ERR));
        assert_null(obstacle);
        assert_true(one.allocated_bytes > 0 && one.allocated_bytes <= replayed(&s));
        assert_true(one.reserved_bytes >= one.allocated_bytes);
        for (int r = 0; r < pp; r++) {
            s.memories[r].peak.of[SP_MEM_ACTIVATIONS] *= r == kept;
        }
        s.timeline.ranks += kept;
        s.memory.ranks += kept;
        s.timeline.rank_count = s.memory.rank_count = 1;
        assert_int_equal(replayed(&s), one.allocated_bytes);
    }
}

// A step of two actions on a rank is replayed with up to half as many layers as it may pass.
TEST(long_replays_are_not_begun)
{
    const char *obstacle = NULL;
    AUTO(step) s;
    gpipe(&s, 1, 1, SP_RECOMPUTE_NONE);
    s.ranks[0].count = s.plan.stages[0].count;
    s.model.layers = 1 << 19;
    assert_int_equal(sp_layer_passes(&s.timeline, &s.model), 1 << 20);
    s.model.layers++;
    assert_int_equal(replay(&s, &s.costs, &obstacle), 0);
    assert_ptr_equal(obstacle, SP_REPLAY_TOO_LONG);
}

// ---- the optimizer's pieces ----

// The shares of all ranks put together are all parameters; no share is larger than another's but
// for the padding.
TEST(pieces_cover_the_parameters)
{
    sp_model model = even_model(8);
    for (int ranks = 1; ranks <= 24; ranks++) {
        sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = ranks, .chunks = 2, .zero = 1};
        sp_stage stages[] = {{.layers = 4, .embedding = true}, {.layers = 4, .head = true}};
        int64_t total = 0, largest = 0;
        for (int r = 0; r < ranks; r++) {
            sp_i_pieces pieces = {0};
            sp_i_optimizer_pieces(&model, &layout, stages, r, &pieces);
            int64_t share = 0;
            for (size_t i = 0; i < pieces.count; i++) {
                assert_true(pieces.elements[i] > 0);
                share += pieces.elements[i];
            }
            total += share;
            largest = sp_larger(largest, share);
            free(pieces.elements);
        }
        assert_int_equal(total, sp_model_parameters(&model));
        assert_true(largest * ranks < total + 2 * (int64_t)ranks);
    }
}

// The border between two shares cuts the parameter on it: of two layers in two shares each rank has
// what a layer has.
TEST(pieces_at_a_border)
{
    sp_model model = even_model(2);
    sp_layout layout = {.tp = 1, .cp = 2, .pp = 1, .dp = 1, .chunks = 1, .zero = 1};
    sp_stage stage = {.layers = 2};
    // Last first; vectors after the matrices: fc2, fc1, projection, QKV, two norms.
    static const int64_t expected[] = {4 << 20, 8 << 20, 1 << 20, 3 << 20, 1024, 1024};
    for (int r = 0; r < 2; r++) {
        sp_i_pieces pieces = {0};
        sp_i_optimizer_pieces(&model, &layout, &stage, r, &pieces);
        assert_int_equal(pieces.count, 6);
        assert_memory_equal(pieces.elements, expected, sizeof expected);
        free(pieces.elements);
    }
}

// The host steps the first of them, up to its share of all elements.
TEST(pieces_that_the_host_steps)
{
    static const int64_t all[] = {4 << 20, 8 << 20, 1 << 20, 3 << 20, 1024, 1024};
    static const int64_t half[] = {(4 << 20) - 1024, 1 << 20, 3 << 20, 1024, 1024};
    for (int i = 0; i < 3; i++) {
        int64_t elements[6];
        memcpy(elements, all, sizeof all);
        sp_i_pieces pieces = {.elements = elements, .count = 6};
        sp_i_pieces_leave(&pieces, i / 2.0);
        assert_int_equal(pieces.count, i == 0 ? 6 : i == 1 ? 5 : 0);
        assert_memory_equal(elements, i == 0 ? all : half,
                            i == 0   ? sizeof all
                            : i == 1 ? sizeof half
                                     : 0);
    }
}

// ---- what an offload takes ----

static void shape_of(sp_i_unit_shape *shape, sp_recompute recompute, double ratio)
{
    sp_model model;
    sp_layout layout = {.tp = 2, .cp = 2, .pp = 8, .dp = 8, .chunks = 5, .sequence_parallel = true};
    sp_stage stage = {.layers = 2};
    sp_memory_options options = {.recompute = recompute};
    assert_int_equal(sp_model_builtin("llama-65b", &model, NULL), SP_OK);
    sp_tensor_program_build(&model, &layout, &stage, &options,
                            &(sp_unit_load){.tokens = 8192, .pairs = INT64_C(8192) * 8192},
                            &shape->program);
    sp_i_unit_shape_init(shape, ratio);
}

static int64_t away(const sp_i_unit_shape *shape)
{
    int64_t bytes = shape->cut.split_bytes;
    for (size_t i = 0; i < shape->cut.whole; i++) {
        int32_t item = shape->cut.order[i];
        bytes += shape->program.tensors[shape->program.saved[item].tensor].bytes;
    }
    return bytes;
}

// The plain view counts the same bytes away.
TEST(offload_agrees_with_the_footprint)
{
    sp_model model;
    assert_int_equal(sp_model_builtin("llama-65b", &model, NULL), SP_OK);
    sp_layout layout = {.tp = 2, .cp = 2, .pp = 8, .dp = 8, .chunks = 5, .sequence_parallel = true};
    sp_stage stage = {.layers = 2};
    for (int recompute = 0; recompute < SP_RECOMPUTE_MODES; recompute++) {
        for (int percent = 1; percent <= 100; percent++) {
            sp_memory_options options = {.recompute = (sp_recompute)recompute};
            AUTO(sp_i_unit_shape) shape;
            shape_of(&shape, options.recompute, percent / 100.0);
            int64_t bytes = away(&shape);
            sp_unit_tensor tensors[SP_UNIT_TENSORS];
            const sp_unit_load load = {.tokens = 8192, .pairs = INT64_C(8192) * 8192};
            int count = sp_unit_tensors(&model, &layout, &stage, &options, &load, tensors);
            // The runtime rounds the product up, in double precision.
            int64_t plain = sp_unit_offload_bytes(tensors, count, percent / 100.0);
            assert_true(bytes == plain || bytes == plain + MIB);
        }
    }
}

// Out and back through every step: a unit that was away is freed like one that stayed.
TEST(units_come_back_whole)
{
    for (int recompute = 0; recompute < SP_RECOMPUTE_MODES; recompute++) {
        for (int percent = 5; percent <= 100; percent += 5) {
            AUTO(sp_i_unit_shape) shape;
            sp_block_allocator *blocks = sp_block_allocator_new(0);
            shape_of(&shape, (sp_recompute)recompute, percent / 100.0);
            sp_i_unit_memory memory = {.blocks = blocks};
            int64_t buffer = -1;
            for (int round = 0; round < 3; round++) {
                sp_i_unit unit;
                int32_t block = SP_NO_BLOCK;
                sp_i_unit_begin(&unit, &shape);
                assert_int_equal(sp_block_allocate(blocks, 32 * MIB, &block, NULL), SP_OK);
                sp_i_unit_adopt(&unit, shape.program.input, block);
                sp_i_unit_run(&memory, &unit, SP_PROGRAM_FORWARD);
                sp_block_release(blocks, sp_i_unit_hand_over(&unit, shape.program.output));
                int64_t whole = sp_block_allocator_allocated(blocks);
                sp_i_offload_begin(&memory, &unit);
                sp_i_offload_end(&memory, &unit);
                // But for 1 MiB at the end of a segment.
                int64_t left = whole - sp_block_allocator_allocated(blocks);
                assert_true(llabs(left - away(&shape)) <= 2 * MIB);
                sp_i_load_begin(&memory, &unit);
                sp_i_load_end(&memory, &unit);
                assert_int_equal(sp_block_allocate(blocks, 32 * MIB, &block, NULL), SP_OK);
                sp_i_unit_adopt(&unit, shape.program.output_gradient, block);
                sp_i_unit_run(&memory, &unit, SP_PROGRAM_BACKWARD);
                sp_block_release(blocks,
                                 sp_i_unit_hand_over(&unit, shape.program.input_gradient[0]));
                sp_i_unit_end(&unit);
                assert_int_equal(memory.status, SP_OK);
                // One buffer serves all rounds.
                assert_int_equal(memory.buffers[0].views, 0);
                int64_t rest = sp_block_allocator_allocated(blocks);
                assert_true(round == 0 || rest == buffer);
                buffer = rest;
                assert_int_equal(memory.buffers[1].bytes, 0);
            }
            sp_block_allocator_free(blocks);
        }
    }
}

// Copies anywhere between a unit's forward and its backward, any number under way: whatever the
// plan says, a step drains (else the replay reports a defect), and it holds at most what it holds
// without copies and once more as much in load buffers.
TEST_ROUNDS(copies_anywhere, 77, test_rounds(200))
{
    enum { UNITS = 6, SLOTS = 2 * UNITS };
    AUTO(step) s;
    gpipe(&s, 1 + round % 2, UNITS, (sp_recompute)(round % SP_RECOMPUTE_MODES));
    int64_t without = replayed(&s);
    s.options.offload_ratio = 0.05 * (double)(1 + sp_prng_below(prng, 20));
    for (int r = 0; r < s.layout.pp; r++) {
        sp_stage_plan *stage = sp_plan_stage(&s.plan, 0, r);
        sp_stage_plan to = {0};
        int out[UNITS], back[UNITS];
        for (int k = 0; k < UNITS; k++) {
            // Slot i lies behind action i; the backward of unit k is action SLOTS - 1 - k.
            int slots = SLOTS - 1 - 2 * k;
            out[k] = k + prng_below(prng, slots);
            back[k] = out[k] + prng_below(prng, slots - (out[k] - k));
            out[k] = sp_prng_below(prng, 4) == 0 ? -1 : out[k];
        }
        for (int a = 0; a < SLOTS; a++) {
            sp_action action = stage->actions[a];
            bool backward = action.kind == SP_ACTION_B;
            int pack = backward ? SLOTS - 1 - a : a;
            sp_stage_plan_add(&to, (sp_action_kind)action.kind, 0, pack);
            for (int k = 0; k < UNITS; k++) {
                if (out[k] == a) {
                    sp_stage_plan_add(&to, SP_ACTION_O, 0, k);
                }
            }
            for (int k = 0; k < UNITS; k++) {
                if (out[k] >= 0 && back[k] == a) {
                    sp_stage_plan_add(&to, SP_ACTION_L, 0, k);
                }
            }
        }
        sp_free(stage->actions);
        *stage = to;
    }
    assert_true(replayed(&s) <= 2 * without);
}

// ---- whole scenarios ----

static void evaluate(const char *text, sp_result *result)
{
    AUTO(sp_scenario) scenario;
    AUTO(sp_batches) batches;
    must_succeed(fixture_read(text, &scenario, ERR));
    must_succeed(sp_evaluate_batches(&scenario, &batches, ERR));
    sp_evaluate_options options = {.allocator_peak = true};
    must_succeed(sp_evaluate(&scenario, &batches, &options, result, ERR));
}

// Every schedule drains (else the replay reports a defect), with and without copies; a second run
// gives the same.
TEST(schedules)
{
    static const char *const cases[] = {
        "'schedule': {'kind': 'gpipe'}",
        "'schedule': {'kind': '1f1b'}",
        "'parallel': {'pp': 2, 'dp': 2, 'cp': 2, 'chunks_per_rank': 2}",
        "'schedule': {'kind': 'zb-h1'}",
        "'schedule': {'kind': 'zb-v'}",
        "'schedule': {'kind': 'terapipe', 'slices': 4}",
        "'schedule': {'kind': 'seq1f1b', 'slices': 4}",
        "'schedule': {'kind': '1f1b'}, 'parallel': {'pp': 2, 'dp': 2, 'tp': 2, 'zero': 3}"};
    static const char *const memories[] = {
        "", ", 'memory': {'offload_ratio': 0.4}",
        ", 'memory': {'recompute': 'activation', 'offload_ratio': 0.8}",
        ", 'memory': {'recompute': 'full'}", ", 'memory': {'attention': 'unfused'}"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t m = 0; m < sizeof memories / sizeof memories[0]; m++) {
            char text[1000];
            bool laid_out = strstr(cases[i], "parallel") != NULL;
            snprintf(text, sizeof text,
                     "{'model': 'llama-7b', %s%s%s, 'workload': {'uniform': 4096, 'context': "
                     "8192, 'samples_per_batch': 24}}",
                     laid_out ? "" : "'parallel': {'pp': 2, 'dp': 2}, ", cases[i], memories[m]);
            AUTO(sp_result) first, second;
            evaluate(text, &first);
            evaluate(text, &second);
            assert_true(first.allocator_peak_bytes > 0);
            assert_int_equal(first.allocator_peak_bytes, second.allocator_peak_bytes);
            // Both views of one memory: far apart only by mistake.
            double ratio = (double)first.allocator_peak_bytes / (double)first.peak_bytes;
            assert_true(ratio > 0.85 && ratio < 1.3);
        }
    }
}

TEST(results_that_say_why_not)
{
    AUTO(sp_result) result;
    // With room, so that no other warning stands beside this one.
    evaluate("{'model': 'llama-7b', 'parallel': {'pp': 2}, 'cluster': {'name': 'h800-8', "
             "'memory_gib': 1000}, 'memory': {'model': 'slimpipe-planner'}, 'workload': "
             "{'uniform': 4096, 'samples_per_batch': 4}}",
             &result);
    assert_int_equal(result.allocator_peak_bytes, 0);
    assert_int_equal(result.warnings.count, 1);
    assert_non_null(strstr(result.warnings.text[0], "no peak_memory_allocator_gib: "));
    sp_result_fini(&result);
    evaluate("{'uniform_costs': {'f_ms': 1, 'b_ms': 1, 'w_ms': 1}, 'parallel': {'pp': 2}, "
             "'schedule': {'kind': '1f1b', 'microbatches': 4}}",
             &result);
    assert_int_equal(result.allocator_peak_bytes, 0);
    assert_int_equal(result.warnings.count, 0);
    json_auto_t *json = sp_result_json(&result, false);
    assert_true(json_is_null(json_object_get(json, "peak_memory_allocator_gib")));
}

static int64_t blocks_of(int64_t bytes)
{
    return sp_ceil_div(bytes, 512) * 512;
}

static int64_t allocated_states(const sp_model *model, const sp_layout *layout)
{
    const sp_stage all = {.layers = model->layers, .embedding = true, .head = true};
    const sp_i_pieces none = {0};
    const sp_i_largest largest = {.tokens = 128, .pairs = 0};
    const sp_stack stack = {.name = "ours"};
    sp_i_unit_memory memory = {.blocks = sp_block_allocator_new(0), .err = ERR};
    sp_i_allocate_states(&memory, model, layout, &all, &none, &stack, &largest);
    must_succeed(memory.status);
    int64_t bytes = sp_block_allocator_allocated(memory.blocks);
    sp_block_allocator_free(memory.blocks);
    return bytes;
}

// Queries, keys, values, gate and up are modules of their own, each packed with scales of its own
// (and scales of those), which every rank has whole; in bf16 they lie as two weights. Blocks are
// of whole 512 B, and all of these too small to be left whole.
TEST(frozen_weights_are_packed_by_module)
{
    enum { H = 136, KV = 68, F = 200, LAYERS_HERE = 3 };
    static const int64_t modules[] = {H * H, H * KV, H * KV, H * H, H * F, H * F, H * F};
    static const int64_t fused[] = {H * (H + 2 * KV), H * H, H * 2 * F, H * F};
    for (int zero = 0; zero <= 3; zero += 3) {
        const sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 4, .chunks = 1, .zero = zero};
        int64_t ranks = zero == 3 ? 4 : 1;
        sp_model model = {LLAMA_SHAPE(LAYERS_HERE, H, F, 4, 2, 512)};
        model.lora_rank = 8;
        model.lora_targets = SP_LORA_ALL_LINEAR;
        int64_t in_bf16 = allocated_states(&model, &layout);
        for (size_t m = 0; m < COUNT_OF(fused); m++) {
            in_bf16 -= LAYERS_HERE * blocks_of(sp_ceil_div(2 * fused[m], ranks));
        }
        for (int twice = 0; twice <= 1; twice++) {
            int64_t packed = 0;
            for (size_t m = 0; m < COUNT_OF(modules); m++) {
                int64_t scales = sp_ceil_div(modules[m], 64);
                packed += blocks_of(sp_ceil_div(modules[m] / 2, ranks)) +
                          blocks_of(twice != 0 ? scales : 4 * scales) +
                          (twice != 0 ? blocks_of(4 * sp_ceil_div(scales, 256)) : 0);
            }
            model.frozen_weights = twice != 0 ? SP_FROZEN_4BIT_DOUBLE : SP_FROZEN_4BIT;
            assert_int_equal(allocated_states(&model, &layout), in_bf16 + LAYERS_HERE * packed);
        }
    }
}
