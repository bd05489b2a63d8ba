// Copies to host memory: hand-computed timelines, closed forms, and random steps against igraph's
// longest path (--verify).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/cost/cost_model.h"
#include "sim/metrics/export.h"
#include "sim/schedule/offload.h"
#include "sim/schedule/plan_json.h"
#include "tests/support/flat_profile.h"
#include "tests/support/random_step.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_step.h"

typedef struct step {
    sp_layout layout;
    sp_batch batch;
    sp_packing packing;
    sp_plan plan;
    sp_step_costs costs;
    sp_timeline timeline;
    sp_memory_timeline memory;
    sp_engine_counts counts;
    sp_step_metrics metrics;
} step;

static void succeed(sp_status status, const sp_error *err)
{
    if (status != SP_OK) {
        fail_msg("%s", err->count > 0 ? err->message[0] : sp_status_text(status));
    }
}

static void outcome_fini(step *s)
{
    sp_step_metrics_fini(&s->metrics);
    sp_memory_timeline_fini(&s->memory);
    sp_timeline_fini(&s->timeline);
}

static void step_fini(step *s)
{
    outcome_fini(s);
    sp_plan_fini(&s->plan);
    sp_step_costs_fini(&s->costs);
    sp_packing_fini(&s->packing);
    sp_batch_fini(&s->batch);
}

static void simulate(step *s, bool unfold)
{
    sp_error err = {0};
    sp_engine_options options = {.unfold = unfold, .verify = true, .memory_points = true};
    succeed(sp_simulate(&s->plan, &s->costs, &options, &s->timeline, &s->memory, &s->counts, &err),
            &err);
    succeed(sp_step_metrics_compute(&s->timeline, &s->memory, &s->metrics, &err), &err);
}

static void offload(step *s)
{
    sp_error err = {0};
    succeed(sp_schedule_add_offload(&s->plan, &err), &err);
    succeed(sp_plan_check(&s->plan, "test", &err), &err);
}

static void assert_actions(const step *s, int pp_rank, const char *expected)
{
    const sp_stage_plan *stage = sp_plan_stage(&s->plan, 0, pp_rank);
    char text[400] = "";
    size_t used = 0;
    for (size_t a = 0; a < stage->count; a++) {
        char name[32];
        sp_action_name(stage->actions[a], s->layout.chunks, name);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", a > 0 ? " " : "", name);
    }
    assert_string_equal(text, expected);
}

static size_t count_kind(const step *s, sp_action_kind kind)
{
    size_t count = 0;
    for (int i = 0; i < s->layout.dp * s->layout.pp; i++) {
        for (size_t a = 0; a < s->plan.stages[i].count; a++) {
            count += s->plan.stages[i].actions[a].kind == kind;
        }
    }
    return count;
}

// ---- one rank: m forwards, then the backwards in reverse ----

typedef struct times {
    int64_t f_ns, b_ns, o_ns, l_ns;
} times;

enum { HELD = 100, OTHER = 10, FORWARD = 7, BACKWARD = 5 };

// Each unit holds 100 bytes of activations, of which `leaving` can be offloaded, and 10 of keys and
// values.
static void stack(step *s, int m, times t, int64_t leaving)
{
    sp_error err = {0};
    *s = (step){.layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1}};
    succeed(sp_packing_uniform(&s->packing, 1, m, &err), &err);
    succeed(sp_plan_init(&s->plan, &s->layout, &s->packing, &err), &err);
    succeed(sp_i_step_costs_init(&s->costs, &s->layout, &s->packing, 1, true, &err), &err);
    sp_stage_plan *stage = sp_plan_stage(&s->plan, 0, 0);
    for (int k = 0; k < m; k++) {
        assert_true(sp_stage_plan_add(stage, SP_ACTION_F, 0, k));
        s->costs.f[k].compute_ns = t.f_ns;
        s->costs.b[k].compute_ns = t.b_ns;
        s->costs.o_ns[k] = t.o_ns;
        s->costs.l_ns[k] = t.l_ns;
        s->costs.unit[k].held.of[SP_MEM_ACTIVATIONS] = HELD;
        s->costs.unit[k].held.of[SP_MEM_KV_CACHE] = OTHER;
        s->costs.unit[k].forward.of[SP_MEM_WORKSPACE] = FORWARD;
        s->costs.unit[k].backward.of[SP_MEM_WORKSPACE] = BACKWARD;
        s->costs.offloaded_bytes[k] = leaving;
    }
    for (int k = m - 1; k >= 0; k--) {
        assert_true(sp_stage_plan_add(stage, SP_ACTION_B, 0, k));
    }
}

static const sp_span *copy_of(const step *s, sp_action_kind kind, int32_t pack)
{
    const sp_rank_timeline *rank = &s->timeline.ranks[0];
    for (size_t i = 0; i < rank->copy_count; i++) {
        if (rank->copies[i].action.kind == kind && rank->copies[i].action.pack == pack) {
            return &rank->copies[i];
        }
    }
    fail_msg("no copy of pack %d", (int)pack);
    return NULL;
}

static void assert_copy(const step *s, sp_action_kind kind, int32_t pack, int64_t start_ns,
                        int64_t end_ns)
{
    const sp_span *span = copy_of(s, kind, pack);
    assert_int_equal(span->start_ns, start_ns);
    assert_int_equal(span->end_ns, end_ns);
}

// Bytes on the GPU from `time_ns` on.
static int64_t held_at(const step *s, int64_t time_ns)
{
    const sp_rank_memory *memory = &s->memory.ranks[0];
    int64_t bytes = 0;
    for (size_t i = 0; i < memory->point_count && memory->points[i].time_ns <= time_ns; i++) {
        bytes = sp_bytes_total(&memory->points[i].bytes);
    }
    return bytes;
}

// Each copy fits into the action beside it: forwards at 0, 10, 20, 30, backwards at 40, 60, 80,
// 100, and not more than two units on the GPU at a time.
static void copies_that_hide(void **state)
{
    (void)state;
    step s;
    stack(&s, 4, (times){10, 20, 8, 15}, HELD);
    simulate(&s, false);
    assert_int_equal(s.metrics.makespan_ns, 120);
    assert_int_equal(s.metrics.peak_bytes, 4 * (HELD + OTHER) + FORWARD);
    outcome_fini(&s);
    offload(&s);
    assert_actions(&s, 0, "F0 O0 F1 O1 F2 O2 F3 L2 B3 L1 B2 L0 B1 B0");
    simulate(&s, false);
    assert_int_equal(s.metrics.makespan_ns, 120);
    assert_int_equal(s.metrics.busy_ns, 120);
    assert_int_equal(s.timeline.ranks[0].count, 8);
    assert_int_equal(s.timeline.ranks[0].copy_count, 6);
    assert_copy(&s, SP_ACTION_O, 0, 10, 18);
    assert_copy(&s, SP_ACTION_O, 1, 20, 28);
    assert_copy(&s, SP_ACTION_O, 2, 30, 38);
    assert_copy(&s, SP_ACTION_L, 2, 40, 55);
    assert_copy(&s, SP_ACTION_L, 1, 60, 75);
    assert_copy(&s, SP_ACTION_L, 0, 80, 95);
    assert_int_equal(s.metrics.peak_bytes, 2 * HELD + 4 * OTHER + FORWARD);
    assert_int_equal(s.metrics.peak.of[SP_MEM_OFFLOADED], 2 * HELD);
    static const int64_t expected[][2] = {{0, HELD + OTHER + FORWARD},
                                          {10, 2 * HELD + 2 * OTHER + FORWARD},
                                          {18, HELD + 2 * OTHER + FORWARD},
                                          {20, 2 * HELD + 3 * OTHER + FORWARD},
                                          {28, HELD + 3 * OTHER + FORWARD},
                                          {30, 2 * HELD + 4 * OTHER + FORWARD},
                                          {38, HELD + 4 * OTHER + FORWARD},
                                          {40, 2 * HELD + 4 * OTHER + BACKWARD},
                                          {59, 2 * HELD + 4 * OTHER + BACKWARD},
                                          {60, 2 * HELD + 3 * OTHER + BACKWARD},
                                          {80, 2 * HELD + 2 * OTHER + BACKWARD},
                                          {100, HELD + OTHER + BACKWARD},
                                          {120, 0}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_int_equal(held_at(&s, expected[i][0]), expected[i][1]);
    }
    step_fini(&s);
}

// A quarter leaves: of the units away only that part is missing.
static void part_of_a_unit(void **state)
{
    (void)state;
    step s;
    stack(&s, 4, (times){10, 20, 8, 15}, HELD / 4);
    offload(&s);
    simulate(&s, false);
    assert_int_equal(held_at(&s, 38), 4 * OTHER + 4 * HELD - 3 * (HELD / 4) + FORWARD);
    assert_int_equal(s.metrics.peak_bytes, 4 * OTHER + 4 * HELD - 2 * (HELD / 4) + FORWARD);
    step_fini(&s);
}

// A slow link: with o >= f and l >= b the copies follow one another without a gap. The last of the
// m - 1 copies out ends at f + (m-1) o, then come m - 1 copies back, then the last backward.
static void copies_that_do_not_hide(void **state)
{
    (void)state;
    sp_prng prng;
    sp_prng_seed(&prng, 7);
    for (int round = 0; round < 50; round++) {
        int m = 2 + (int)sp_prng_below(&prng, 9);
        times t = {.f_ns = 1 + (int64_t)sp_prng_below(&prng, 50),
                   .b_ns = 1 + (int64_t)sp_prng_below(&prng, 90)};
        t.o_ns = t.f_ns + (int64_t)sp_prng_below(&prng, 100);
        t.l_ns = t.b_ns + (int64_t)sp_prng_below(&prng, 100);
        step s;
        stack(&s, m, t, HELD);
        offload(&s);
        simulate(&s, false);
        assert_int_equal(s.metrics.makespan_ns, t.f_ns + (m - 1) * (t.o_ns + t.l_ns) + t.b_ns);
        assert_int_equal(s.metrics.busy_ns, m * (t.f_ns + t.b_ns));
        assert_int_equal(s.metrics.wait_p2p_ns, 0);
        step_fini(&s);
    }
}

// Two 10 ns forwards and a 100 ns copy: O0 ends at 110, its L0 at 210, before which B0 cannot
// start. Until 110 both units are on the GPU, and from then on only the second, which goes at 40.
static void slow_copy_keeps_memory(void **state)
{
    (void)state;
    step s;
    stack(&s, 2, (times){10, 20, 100, 100}, HELD);
    offload(&s);
    assert_actions(&s, 0, "F0 O0 F1 L0 B1 B0");
    simulate(&s, false);
    assert_copy(&s, SP_ACTION_O, 0, 10, 110);
    assert_copy(&s, SP_ACTION_L, 0, 110, 210);
    assert_int_equal(s.metrics.makespan_ns, 230);
    assert_int_equal(held_at(&s, 30), 2 * HELD + 2 * OTHER + BACKWARD);
    assert_int_equal(held_at(&s, 40), HELD + OTHER);
    assert_int_equal(held_at(&s, 109), HELD + OTHER);
    // Away at 110, and back in the same moment.
    assert_int_equal(held_at(&s, 110), HELD + OTHER);
    assert_int_equal(held_at(&s, 230), 0);
    step_fini(&s);
}

// ---- plans ----

static void prepare(step *s, sp_schedule_spec spec, int pp, int dp, int chunks, int64_t m,
                    int slices)
{
    sp_error err = {0};
    sp_schedule_traits traits = sp_schedule_traits_of(spec.kind);
    *s = (step){
        .layout = {
            .tp = 1, .cp = 1, .pp = pp, .dp = dp, .chunks = chunks, .placement = traits.placement}};
    spec.slices = slices;
    succeed(sp_packing_uniform_sliced(&s->packing, &s->batch, dp, m, slices, &err), &err);
    succeed(sp_plan_init(&s->plan, &s->layout, &s->packing, &err), &err);
    succeed(sp_schedule_generate(&spec, NULL, "test", &s->plan, &err), &err);
}

// 1F1B on two ranks: on the last one every backward follows its forward at once.
static void where_copies_stand(void **state)
{
    (void)state;
    step s;
    prepare(&s, (sp_schedule_spec){.kind = SP_SCHEDULE_1F1B}, 2, 1, 1, 4, 1);
    offload(&s);
    assert_actions(&s, 0, "F0 O0 L0 F1 O1 B0 L1 F2 O2 B1 L2 F3 O3 L3 B2 B3");
    assert_actions(&s, 1, "F0 B0 F1 B1 F2 B2 F3 B3");
    // Copies of its own: left alone.
    sp_stage_plan before = *sp_plan_stage(&s.plan, 0, 0);
    offload(&s);
    assert_ptr_equal(sp_plan_stage(&s.plan, 0, 0)->actions, before.actions);
    assert_int_equal(sp_plan_stage(&s.plan, 0, 0)->count, before.count);
    step_fini(&s);
}

// Forward pack 0 holds the first half of sample 0 and sample 1; its slices go to both backward
// packs, of which the first reads forward pack 1, just made, and it. Pack 1 stays.
static void regrouped_slices(void **state)
{
    (void)state;
    static int64_t ids[] = {0, 1};
    static int64_t tokens[] = {8, 3};
    sp_error err = {0};
    sp_prng prng;
    sp_prng_seed(&prng, 9);
    sp_batch batch = {.ids = ids, .tokens = tokens, .count = 2, .total_tokens = 11};
    step s = {.layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1}};
    sp_slice first = {.sample = 0, .begin = 0, .tokens = 4, .computed_tokens = 4};
    sp_slice second = {.sample = 0, .begin = 4, .tokens = 4, .computed_tokens = 4};
    sp_slice whole = {.sample = 1, .begin = 0, .tokens = 3, .computed_tokens = 3};
    sp_packing_init(&s.packing, &batch, 1);
    assert_true(sp_pack_list_begin(&s.packing.forward, 0, 1));
    assert_true(sp_pack_list_add(&s.packing.forward, first, false));
    assert_true(sp_pack_list_add(&s.packing.forward, whole, true));
    assert_true(sp_pack_list_begin(&s.packing.forward, 0, 1));
    assert_true(sp_pack_list_add(&s.packing.forward, second, true));
    assert_true(sp_pack_list_begin(&s.packing.backward, 0, 1));
    assert_true(sp_pack_list_add(&s.packing.backward, second, true));
    assert_true(sp_pack_list_add(&s.packing.backward, whole, true));
    assert_true(sp_pack_list_begin(&s.packing.backward, 0, 1));
    assert_true(sp_pack_list_add(&s.packing.backward, first, false));
    succeed(sp_plan_init(&s.plan, &s.layout, &s.packing, &err), &err);
    sp_stage_plan *stage = sp_plan_stage(&s.plan, 0, 0);
    for (int k = 0; k < 4; k++) {
        assert_true(sp_stage_plan_add(stage, k < 2 ? SP_ACTION_F : SP_ACTION_B, 0, k % 2));
    }
    succeed(sp_i_step_costs_init(&s.costs, &s.layout, &s.packing, 1, true, &err), &err);
    for (int k = 0; k < 2; k++) {
        s.costs.f[k].compute_ns = 10;
        s.costs.b[k].compute_ns = 20;
        s.costs.o_ns[k] = 5;
        s.costs.l_ns[k] = 17;
        s.costs.unit[k].held.of[SP_MEM_ACTIVATIONS] = 70;
        s.costs.offloaded_bytes[k] = 35;
    }
    offload(&s);
    assert_actions(&s, 0, "F0 O0 L0 F1 B0 B1");
    simulate(&s, false);
    // L0 from the end of its O at 15 to 32; F1 is done at 20.
    assert_int_equal(s.metrics.makespan_ns, 32 + 20 + 20);
    assert_int_equal(s.metrics.peak_bytes, 140);
    // Backward pack 0 frees pack 1 and three of the seven tokens of pack 0.
    assert_int_equal(held_at(&s, 52), 40);
    step_fini(&s);
}

// Random copies beside random costs; with `kinds` rows that repeat as in random_costs.
static void random_step(sp_prng *prng, int kinds, int64_t most_ns, step *s)
{
    random_costs(prng, &s->layout, &s->packing, kinds, &s->costs);
    sp_step_costs *costs = &s->costs;
    size_t n = (size_t)costs->classes;
    size_t cells = costs->forward_packs * n;
    costs->o_ns = sp_i_calloc(cells, sizeof *costs->o_ns);
    costs->l_ns = sp_i_calloc(cells, sizeof *costs->l_ns);
    costs->offloaded_bytes = sp_i_calloc(cells, sizeof *costs->offloaded_bytes);
    assert_true(costs->o_ns != NULL && costs->l_ns != NULL && costs->offloaded_bytes != NULL);
    size_t dp = (size_t)s->layout.dp;
    for (size_t at = 0; at < cells; at++) {
        size_t pack = at / n;
        size_t same = kinds > 0 ? pack / dp % (size_t)kinds * dp : pack;
        size_t from = same * n + at % n;
        int64_t held = costs->unit[at].held.of[SP_MEM_ACTIVATIONS];
        bool copy = from < at;
        costs->o_ns[at] =
            copy ? costs->o_ns[from] : (int64_t)sp_prng_below(prng, (uint64_t)most_ns);
        costs->l_ns[at] =
            copy ? costs->l_ns[from] : (int64_t)sp_prng_below(prng, (uint64_t)most_ns);
        costs->offloaded_bytes[at] =
            copy ? costs->offloaded_bytes[from] : (int64_t)sp_prng_below(prng, (uint64_t)held + 1);
    }
}

static void random_plan(sp_prng *prng, int dp, step *s)
{
    static const sp_schedule_kind kinds[] = {
        SP_SCHEDULE_GPIPE,    SP_SCHEDULE_1F1B,    SP_SCHEDULE_INTERLEAVED, SP_SCHEDULE_ZB_H1,
        SP_SCHEDULE_TERAPIPE, SP_SCHEDULE_SEQ1F1B, SP_SCHEDULE_SLIMPIPE,    SP_SCHEDULE_CHUNKFLOW};
    sp_schedule_spec spec = {.kind = kinds[sp_prng_below(prng, sizeof kinds / sizeof kinds[0])]};
    sp_schedule_traits traits = sp_schedule_traits_of(spec.kind);
    int pp = 1 + (int)sp_prng_below(prng, 4);
    pp = spec.kind == SP_SCHEDULE_INTERLEAVED && pp == 1 ? 2 : pp;
    bool many = traits.chunks == 0;
    int chunks = many ? 1 + (int)sp_prng_below(prng, 3) : traits.chunks;
    int slices = traits.sliced ? pp * (1 + (int)sp_prng_below(prng, 3)) : 1;
    int64_t m = pp * (1 + (int64_t)sp_prng_below(prng, 3));
    spec.retained = 1 + (int)sp_prng_below(prng, 3);
    prepare(s, spec, pp, dp, chunks, m, slices);
}

// The run itself checks the longest path, that memory drains, and every rule of the plan. Copies
// never make a step shorter; those of no time never longer, and moving bytes away and back never
// holds more than leaving them.
static void random_steps_verify(void **state)
{
    (void)state;
    sp_prng prng;
    sp_prng_seed(&prng, 31);
    size_t copies = 0;
    for (int round = 0; round < 150; round++) {
        step s;
        random_plan(&prng, 1 + (int)sp_prng_below(&prng, 2), &s);
        random_step(&prng, 0, round % 3 == 0 ? 1 : round % 3 == 1 ? 2000 : 30000, &s);
        simulate(&s, false);
        int64_t makespan_ns = s.metrics.makespan_ns;
        int64_t busy_ns = s.metrics.busy_ns;
        int64_t peak_bytes = s.metrics.peak_bytes;
        outcome_fini(&s);
        offload(&s);
        simulate(&s, false);
        assert_true(s.metrics.makespan_ns >= makespan_ns);
        assert_int_equal(s.metrics.busy_ns, busy_ns);
        if (round % 3 == 0) {
            assert_int_equal(s.metrics.makespan_ns, makespan_ns);
            assert_true(s.metrics.peak_bytes <= peak_bytes);
        }
        assert_int_equal(count_kind(&s, SP_ACTION_O), count_kind(&s, SP_ACTION_L));
        copies += count_kind(&s, SP_ACTION_O);
        for (size_t r = 0; r < s.timeline.rank_count; r++) {
            const sp_rank_timeline *rank = &s.timeline.ranks[r];
            int64_t end_ns[SP_ACTION_KINDS] = {0};
            for (size_t i = 0; i < rank->copy_count; i++) {
                const sp_span *span = &rank->copies[i];
                assert_true(span->start_ns >= end_ns[span->action.kind]);
                end_ns[span->action.kind] = span->end_ns;
            }
            for (size_t i = 0; i < s.memory.ranks[r].point_count; i++) {
                const sp_bytes *bytes = &s.memory.ranks[r].points[i].bytes;
                assert_true(bytes->of[SP_MEM_ACTIVATIONS] >= 0);
                assert_true(bytes->of[SP_MEM_OFFLOADED] >= 0);
            }
        }
        step_fini(&s);
    }
    assert_true(copies > 1000);
}

// With the same random rows on all data-parallel ranks one is simulated for all; with one byte or
// one nanosecond of another copy it is not.
static void folding_counts_copies(void **state)
{
    (void)state;
    sp_prng prng;
    sp_prng_seed(&prng, 12);
    for (int round = 0; round < 6; round++) {
        step s;
        int slices = round % 2 == 0 ? 1 : 6;
        sp_schedule_kind kind = round % 2 == 0 ? SP_SCHEDULE_1F1B : SP_SCHEDULE_SLIMPIPE;
        prepare(&s, (sp_schedule_spec){.kind = kind}, 3, 4, 1, 6, slices);
        random_step(&prng, slices == 1 ? 3 : 1, 20000, &s);
        // random_costs draws these for every pack.
        size_t rows = s.costs.backward_packs * (size_t)s.costs.classes;
        for (size_t at = 1; slices > 1 && at < rows; at++) {
            s.costs.backward_unit[at] = s.costs.backward_unit[0];
        }
        offload(&s);
        simulate(&s, true);
        int64_t makespan_ns = s.metrics.makespan_ns;
        int64_t peak_bytes = s.metrics.peak_bytes;
        int64_t iteration_ns = s.metrics.iteration_ns;
        assert_int_equal(s.timeline.rank_count, 12);
        outcome_fini(&s);
        if (slices == 1) {
            simulate(&s, false);
            assert_int_equal(s.timeline.rank_count, 3);
            assert_int_equal(s.metrics.makespan_ns, makespan_ns);
            assert_int_equal(s.metrics.iteration_ns, iteration_ns);
            assert_int_equal(s.metrics.peak_bytes, peak_bytes);
            outcome_fini(&s);
            // Pack 1 runs on data-parallel rank 1 alone.
            int64_t *tables[] = {s.costs.o_ns, s.costs.l_ns, s.costs.offloaded_bytes};
            size_t at = (size_t)s.costs.classes;
            tables[round / 2][at] += tables[round / 2][at] > 0 ? -1 : 1;
        }
        simulate(&s, false);
        assert_int_equal(s.timeline.rank_count, slices == 1 ? 6 : 3);
        if (slices > 1) {
            assert_int_equal(s.metrics.makespan_ns, makespan_ns);
            assert_int_equal(s.metrics.peak_bytes, peak_bytes);
        }
        step_fini(&s);
    }
}

// Packs that run on two ranks together wait for the copies of both.
static void merged_packs(void **state)
{
    (void)state;
    sp_prng prng;
    sp_prng_seed(&prng, 41);
    for (int round = 0; round < 40; round++) {
        sp_error err = {0};
        step s = {.layout = {.tp = 1, .cp = 1, .pp = 1 + round % 3, .dp = 2, .chunks = 1}};
        sp_packing_init(&s.packing, NULL, 2);
        for (int k = 0; k < 9; k++) {
            int where = (int)sp_prng_below(&prng, 3);
            assert_true(sp_pack_list_begin(&s.packing.forward, where % 2, where == 2 ? 2 : 1));
        }
        succeed(sp_plan_init(&s.plan, &s.layout, &s.packing, &err), &err);
        sp_schedule_spec spec = {.kind = SP_SCHEDULE_GPIPE};
        succeed(sp_schedule_generate(&spec, NULL, "test", &s.plan, &err), &err);
        random_step(&prng, 0, 20000, &s);
        offload(&s);
        simulate(&s, false);
        int64_t start_ns[9][2] = {{0}};
        for (size_t r = 0; r < s.timeline.rank_count; r++) {
            const sp_rank_timeline *rank = &s.timeline.ranks[r];
            for (size_t i = 0; rank->pp == 0 && i < rank->count; i++) {
                if (rank->spans[i].action.kind == SP_ACTION_B) {
                    start_ns[rank->spans[i].action.pack][rank->dp] = rank->spans[i].start_ns;
                }
            }
        }
        for (int k = 0; k < 9; k++) {
            if (s.packing.forward.packs[k].dp_count == 2) {
                assert_int_equal(start_ns[k][0], start_ns[k][1]);
            }
        }
        step_fini(&s);
    }
}

// ---- around it ----

static void uniform_costs_have_no_copies(void **state)
{
    (void)state;
    step s;
    sp_error err = {0};
    sp_uniform_costs uniform = {.f_ms = 1.0, .b_ms = 1.0, .w_ms = 1.0};
    prepare(&s, (sp_schedule_spec){.kind = SP_SCHEDULE_GPIPE}, 2, 1, 1, 3, 1);
    succeed(sp_step_costs_uniform(&uniform, &s.layout, &s.packing, &s.costs, &err), &err);
    offload(&s);
    sp_engine_options options = {.verify = true};
    assert_int_equal(
        sp_simulate(&s.plan, &s.costs, &options, &s.timeline, &s.memory, &s.counts, &err),
        SP_ERR_CONTENT);
    assert_non_null(strstr(err.message[0], "action O0: "));
    step_fini(&s);
}

static void plans_round_trip(void **state)
{
    (void)state;
    sp_error err = {0};
    step s;
    prepare(&s, (sp_schedule_spec){.kind = SP_SCHEDULE_SLIMPIPE}, 2, 2, 2, 3, 4);
    offload(&s);
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    json_t *scenario = json_object();
    sp_plan_predictions predictions = {.lower_bound_ms = -1.0, .predicted_ms = -1.0};
    assert_non_null(file);
    assert_non_null(scenario);
    succeed(sp_plan_json_begin(file, scenario, &err), &err);
    succeed(sp_plan_json_batch(file, 0, &s.plan, predictions, &err), &err);
    succeed(sp_plan_json_end(file, &err), &err);
    assert_int_equal(fclose(file), 0);
    json_t *root = NULL;
    sp_plan_file read;
    succeed(sp_json_read_text(text, bytes, "plan.json", &root, &err), &err);
    succeed(sp_plan_json_read(root, "plan.json", &s.layout, &read, &err), &err);
    succeed(sp_plan_check(&read.plans[0], "plan.json", &err), &err);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(read.plans[0].stages[i].count, s.plan.stages[i].count);
        assert_memory_equal(read.plans[0].stages[i].actions, s.plan.stages[i].actions,
                            s.plan.stages[i].count * sizeof(sp_action));
    }
    sp_plan_file_fini(&read);
    json_decref(root);
    json_decref(scenario);
    free(text);
    step_fini(&s);
}

// A copy waits only for what stands before it on its rank and closes no circle by itself; beside
// copies a circle is named as without them. Rank 0 runs B0 before F1, rank 1 F1 before B0.
static void circles_beside_copies(void **state)
{
    (void)state;
    sp_error err = {0};
    step s = {.layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 1, .chunks = 1}};
    succeed(sp_packing_uniform(&s.packing, 1, 2, &err), &err);
    succeed(sp_plan_init(&s.plan, &s.layout, &s.packing, &err), &err);
    succeed(sp_i_step_costs_init(&s.costs, &s.layout, &s.packing, 1, true, &err), &err);
    static const sp_action first[] = {{.kind = SP_ACTION_F},
                                      {.kind = SP_ACTION_B},
                                      {.kind = SP_ACTION_F, .pack = 1},
                                      {.kind = SP_ACTION_B, .pack = 1}};
    static const sp_action second[] = {
        {.kind = SP_ACTION_F}, {.kind = SP_ACTION_O}, {.kind = SP_ACTION_F, .pack = 1},
        {.kind = SP_ACTION_L}, {.kind = SP_ACTION_B}, {.kind = SP_ACTION_B, .pack = 1}};
    for (size_t i = 0; i < 4; i++) {
        assert_true(
            sp_stage_plan_add(&s.plan.stages[0], (sp_action_kind)first[i].kind, 0, first[i].pack));
    }
    for (size_t i = 0; i < 6; i++) {
        assert_true(sp_stage_plan_add(&s.plan.stages[1], (sp_action_kind)second[i].kind, 0,
                                      second[i].pack));
    }
    succeed(sp_plan_check(&s.plan, "test", &err), &err);
    sp_engine_options options = {.source = "plan"};
    assert_int_equal(
        sp_simulate(&s.plan, &s.costs, &options, &s.timeline, &s.memory, &s.counts, &err),
        SP_ERR_DEADLOCK);
    assert_non_null(strstr(err.message[0], "plan: the plan cannot finish"));
    assert_non_null(strstr(err.message[0], "F1 on dp 0 pp 1"));
    step_fini(&s);
}

// The traced threads: both directions have one, and the count beforehand is exact.
static void trace_has_copy_threads(void **state)
{
    (void)state;
    step s;
    sp_error err = {0};
    stack(&s, 4, (times){10, 20, 8, 15}, HELD);
    offload(&s);
    simulate(&s, false);
    sp_export_window window = {0};
    char *text = NULL;
    size_t bytes = 0;
    int64_t events = 0;
    FILE *file = open_memstream(&text, &bytes);
    assert_non_null(file);
    succeed(sp_export_trace(file, &s.timeline, NULL, &window, &events, &err), &err);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(sp_export_trace_events(&s.timeline, &window, false), events);
    assert_true(sp_export_trace_events(&s.timeline, &window, true) > events);
    json_t *root = NULL;
    succeed(sp_json_read_text(text, bytes, "trace.json", &root, &err), &err);
    json_t *list = json_object_get(root, "traceEvents");
    assert_int_equal(json_array_size(list), events);
    int on_thread[5] = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *event = json_array_get(list, i);
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") == 0) {
            on_thread[json_integer_value(json_object_get(event, "tid"))]++;
        }
    }
    assert_int_equal(on_thread[1], 8);
    assert_int_equal(on_thread[3], 3);
    assert_int_equal(on_thread[4], 3);
    json_decref(root);
    free(text);
    step_fini(&s);
}

// What the cost model tells the engine: a unit whole on the GPU, the share that leaves, and the
// time it takes on the host link, 50 GB/s for an H800.
static void costs_of_copies(void **state)
{
    (void)state;
    sp_error err = {0};
    sp_model model;
    sp_cluster cluster;
    sp_profile profile;
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 1, .chunks = 1};
    succeed(sp_model_builtin("llama-13b", &model, &err), &err);
    succeed(sp_cluster_builtin("h800-8", &cluster, &err), &err);
    succeed(flat_profile(NULL, &profile, &err), &err);
    assert_true(cluster.host_link_bytes_per_s == 50e9);
    sp_packing packing;
    sp_packing_init(&packing, NULL, 1);
    for (int k = 0; k < 2; k++) {
        assert_true(sp_pack_list_begin(&packing.forward, 0, 1));
        sp_slice slice = {.tokens = 1000, .computed_tokens = 1000};
        assert_true(sp_pack_list_add(&packing.forward, slice, true));
    }
    int64_t whole = 0;
    for (int quarters = 0; quarters <= 4; quarters++) {
        sp_cost_model cost;
        sp_step_costs costs;
        sp_memory_options memory = {.offload_ratio = 0.25 * quarters};
        succeed(
            sp_cost_model_init(&cost, &model, &layout, &cluster, &profile, memory, "test", &err),
            &err);
        succeed(sp_cost_model_build(&cost, &packing, &costs, &err), &err);
        whole = quarters == 0 ? costs.unit[0].held.of[SP_MEM_ACTIVATIONS] : whole;
        int64_t leaves = whole * quarters / 4;
        size_t classes = (size_t)costs.classes;
        for (size_t at = 0; at < 2 * classes; at += classes) {
            assert_int_equal(costs.unit[at].held.of[SP_MEM_ACTIVATIONS], whole);
            assert_int_equal(costs.unit[at].held.of[SP_MEM_OFFLOADED], 0);
            assert_int_equal(costs.offloaded_bytes[at], leaves);
            assert_true(llabs(costs.o_ns[at] * 50 - leaves) <= 50);
            assert_int_equal(costs.l_ns[at], costs.o_ns[at]);
        }
        sp_step_costs_fini(&costs);
        sp_cost_model_fini(&cost);
    }
    assert_true(whole > 0);
    sp_packing_fini(&packing);
    sp_profile_fini(&profile);
}

static void host_link_of_a_cluster(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double rate;
    } cases[] = {{"{'name': 'a100-8'}", 25e9},
                 {"{'name': 'h100-8', 'host_link_gb_per_s': 12.5}", 12.5e9},
                 {"{'gpu': 'X', 'peak_tflops': 1, 'memory_gib': 1, 'hbm_gb_per_s': 1, "
                  "'nvlink_gb_per_s': 1, 'nic_gbit_per_s': 1}",
                  25e9}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_error err = {0};
        char text[200];
        snprintf(text, sizeof text, "%s", cases[i].text);
        for (char *c = text; *c != '\0'; c++) {
            *c = *c == '\'' ? '"' : *c;
        }
        json_t *json = NULL;
        sp_object object;
        sp_cluster cluster;
        succeed(sp_json_read_text(text, strlen(text), "s.json", &json, &err), &err);
        sp_object_begin(&object, json, "s.json", "cluster", &err);
        sp_cluster_from_object(&object, &cluster);
        assert_int_equal(err.count, 0);
        assert_true(cluster.host_link_bytes_per_s == cases[i].rate);
        json_decref(json);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(copies_that_hide),
    cmocka_unit_test(part_of_a_unit),
    cmocka_unit_test(copies_that_do_not_hide),
    cmocka_unit_test(slow_copy_keeps_memory),
    cmocka_unit_test(where_copies_stand),
    cmocka_unit_test(regrouped_slices),
    cmocka_unit_test(random_steps_verify),
    cmocka_unit_test(folding_counts_copies),
    cmocka_unit_test(merged_packs),
    cmocka_unit_test(uniform_costs_have_no_copies),
    cmocka_unit_test(plans_round_trip),
    cmocka_unit_test(circles_beside_copies),
    cmocka_unit_test(trace_has_copy_threads),
    cmocka_unit_test(costs_of_copies),
    cmocka_unit_test(host_link_of_a_cluster),
};

SP_TEST_MAIN(tests)
