// Plans with copies to host memory: where the copies stand, random steps against igraph's longest
// path (--verify), and what refuses or reads such plans.
#include "sim/base/json.h"
#include "sim/plan/plan_json.h"
#include "tests/support/offload_step.h"
#include "tests/support/random_step.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

// ---- where copies stand ----

static void prepare(offload_step *s, sp_schedule_spec spec, int pp, int dp, int chunks, int64_t m,
                    int slices)
{
    sp_schedule_traits traits = sp_schedule_traits_of(spec.kind);
    *s = (offload_step){
        .layout = {
            .tp = 1, .cp = 1, .pp = pp, .dp = dp, .chunks = chunks, .placement = traits.placement}};
    spec.slices = slices;
    must_succeed(sp_packing_uniform_sliced(&s->packing, &s->batch, dp, m, slices, ERR));
    sp_plan_init(&s->plan, &s->layout, &s->packing);
    must_succeed(sp_schedule_generate(&spec, NULL, "test", &s->plan, ERR));
}

// 1F1B on two ranks: on the last one every backward follows its forward at once.
TEST(where_copies_stand)
{
    AUTO(offload_step) s;
    prepare(&s, (sp_schedule_spec){.kind = SP_SCHEDULE_1F1B}, 2, 1, 1, 4, 1);
    step_offload(&s);
    step_assert_actions(&s, 0, "F0 O0 L0 F1 O1 B0 L1 F2 O2 B1 L2 F3 O3 L3 B2 B3");
    step_assert_actions(&s, 1, "F0 B0 F1 B1 F2 B2 F3 B3");
    // Copies of its own: left alone.
    sp_stage_plan before = *sp_plan_stage(&s.plan, 0, 0);
    step_offload(&s);
    assert_ptr_equal(sp_plan_stage(&s.plan, 0, 0)->actions, before.actions);
    assert_int_equal(sp_plan_stage(&s.plan, 0, 0)->count, before.count);
}

// Interleaved 1F1B on two ranks with two chunks, by hand from kwai/Megatron-Kwai, branch atc24ae
// (megatron/core/pipeline_parallel/schedules.py): a unit goes out behind its forward and starts to
// come back with the backward before its own; the first comes back beside the first forward after
// the warm-up. The last rank's last chunk, whose backward follows at once, stays.
TEST(copies_of_the_interleaved_schedule)
{
    AUTO(offload_step) s;
    prepare(&s, (sp_schedule_spec){.kind = SP_SCHEDULE_INTERLEAVED}, 2, 1, 2, 4, 1);
    step_offload(&s);
    step_assert_actions(&s, 0,
                        "F0.0 O0.0 F1.0 O1.0 F0.1 O0.1 F1.1 O1.1 L0.1 F2.0 O2.0 L1.1 B0.1 "
                        "F3.0 O3.0 L0.0 B1.1 F2.1 O2.1 L1.0 B0.0 F3.1 O3.1 L2.1 B1.0 "
                        "L3.1 B2.1 L2.0 B3.1 L3.0 B2.0 B3.0");
    step_assert_actions(&s, 1,
                        "F0.0 O0.0 F1.0 O1.0 F0.1 B0.1 F1.1 L0.0 B1.1 F2.0 O2.0 L1.0 B0.0 "
                        "F3.0 O3.0 B1.0 F2.1 B2.1 F3.1 L2.0 B3.1 L3.0 B2.0 B3.0");
}

// Forward pack 0 holds the first half of sample 0 and sample 1; its slices go to both backward
// packs, of which the first reads forward pack 1, just made, and it. Pack 1 stays.
TEST(regrouped_slices)
{
    static int64_t ids[] = {0, 1};
    static int64_t tokens[] = {8, 3};
    sp_batch batch = {.ids = ids, .tokens = tokens, .count = 2, .total_tokens = 11};
    AUTO(offload_step) s = {.layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1}};
    sp_slice first = {.sample = 0, .begin = 0, .tokens = 4, .computed_tokens = 4};
    sp_slice second = {.sample = 0, .begin = 4, .tokens = 4, .computed_tokens = 4};
    sp_slice whole = {.sample = 1, .begin = 0, .tokens = 3, .computed_tokens = 3};
    sp_packing_init(&s.packing, &batch, 1);
    sp_pack_list_begin(&s.packing.forward, 0, 1);
    sp_pack_list_add(&s.packing.forward, first, false);
    sp_pack_list_add(&s.packing.forward, whole, true);
    sp_pack_list_begin(&s.packing.forward, 0, 1);
    sp_pack_list_add(&s.packing.forward, second, true);
    sp_pack_list_begin(&s.packing.backward, 0, 1);
    sp_pack_list_add(&s.packing.backward, second, true);
    sp_pack_list_add(&s.packing.backward, whole, true);
    sp_pack_list_begin(&s.packing.backward, 0, 1);
    sp_pack_list_add(&s.packing.backward, first, false);
    sp_plan_init(&s.plan, &s.layout, &s.packing);
    plan_add_actions(&s.plan, 0, 0, "F0 F1 B0 B1");
    sp_i_step_costs_init(&s.costs, &s.layout, &s.packing, 1, true);
    for (int k = 0; k < 2; k++) {
        s.costs.action[SP_ACTION_F][k].compute_ns = 10;
        s.costs.action[SP_ACTION_B][k].compute_ns = 20;
        s.costs.o_ns[k] = 5;
        s.costs.l_ns[k] = 17;
        s.costs.side[0].unit[k].held.of[SP_MEM_ACTIVATIONS] = 70;
        s.costs.offloaded_bytes[k] = 35;
    }
    step_offload(&s);
    step_assert_actions(&s, 0, "F0 O0 L0 F1 B0 B1");
    step_simulate(&s, false);
    // L0 from the end of its O at 15 to 32; F1 is done at 20.
    assert_int_equal(s.metrics.makespan_ns, 32 + 20 + 20);
    assert_int_equal(s.metrics.peak_bytes, 140);
    // Backward pack 0 frees pack 1 and three of the seven tokens of what stayed of pack 0; the
    // buffer is not freed.
    assert_int_equal(step_held_at(&s, 52), 35 * 4 / 7 + 35);
}

// ---- random steps ----

static size_t count_kind(const offload_step *s, sp_action_kind kind)
{
    size_t count = 0;
    for (int i = 0; i < s->layout.dp * s->layout.pp; i++) {
        for (size_t a = 0; a < s->plan.stages[i].count; a++) {
            count += s->plan.stages[i].actions[a].kind == kind;
        }
    }
    return count;
}

// Random copies beside random costs; with `kinds` rows that repeat as in random_costs.
static void random_step(sp_prng *prng, int kinds, int64_t most_ns, offload_step *s)
{
    random_costs(prng, &s->layout, &s->packing, kinds, &s->costs);
    sp_step_costs *costs = &s->costs;
    costs->blocking_transfers = sp_prng_below(prng, 2) == 1;
    size_t n = (size_t)costs->classes;
    size_t cells = costs->side[0].count * n;
    costs->o_ns = sp_calloc(cells, sizeof *costs->o_ns);
    costs->l_ns = sp_calloc(cells, sizeof *costs->l_ns);
    costs->offloaded_bytes = sp_calloc(cells, sizeof *costs->offloaded_bytes);
    assert_true(costs->o_ns != NULL && costs->l_ns != NULL && costs->offloaded_bytes != NULL);
    size_t dp = (size_t)s->layout.dp;
    for (size_t at = 0; at < cells; at++) {
        size_t pack = at / n;
        size_t same = kinds > 0 ? pack / dp % (size_t)kinds * dp : pack;
        size_t from = same * n + at % n;
        int64_t held = costs->side[0].unit[at].held.of[SP_MEM_ACTIVATIONS];
        bool copy = from < at;
        costs->o_ns[at] =
            copy ? costs->o_ns[from] : (int64_t)sp_prng_below(prng, (uint64_t)most_ns);
        costs->l_ns[at] =
            copy ? costs->l_ns[from] : (int64_t)sp_prng_below(prng, (uint64_t)most_ns);
        costs->offloaded_bytes[at] =
            copy ? costs->offloaded_bytes[from] : (int64_t)sp_prng_below(prng, (uint64_t)held + 1);
        // Not where copies take no time: there the peak has a bound without it.
        costs->side[0].unit[at].rebuilt = most_ns > 1 ? costs->offloaded_bytes[at] / 3 : 0;
    }
}

static void random_plan(sp_prng *prng, int dp, offload_step *s)
{
    static const sp_schedule_kind kinds[] = {
        SP_SCHEDULE_GPIPE,    SP_SCHEDULE_1F1B,    SP_SCHEDULE_INTERLEAVED, SP_SCHEDULE_ZB_H1,
        SP_SCHEDULE_TERAPIPE, SP_SCHEDULE_SEQ1F1B, SP_SCHEDULE_SLIMPIPE,    SP_SCHEDULE_CHUNKFLOW};
    sp_schedule_spec spec = {.kind = kinds[sp_prng_below(prng, sizeof kinds / sizeof kinds[0])]};
    sp_schedule_traits traits = sp_schedule_traits_of(spec.kind);
    int pp = 1 + prng_below(prng, 4);
    pp = spec.kind == SP_SCHEDULE_INTERLEAVED && pp == 1 ? 2 : pp;
    bool many = traits.chunks == 0;
    int chunks = many ? 1 + prng_below(prng, 3) : traits.chunks;
    int slices = traits.sliced ? pp * (1 + prng_below(prng, 3)) : 1;
    int64_t m = pp * (1 + (int64_t)sp_prng_below(prng, 3));
    spec.retained = 1 + prng_below(prng, 3);
    prepare(s, spec, pp, dp, chunks, m, slices);
}

// The run itself checks the longest path, that memory drains, and every rule of the plan. Copies
// never make a step shorter; those of no time never longer, and moving bytes away and back never
// holds more than leaving them, but for two buffers.
TEST(random_steps_verify)
{
    sp_prng prng = prng_seeded(31);
    size_t copies = 0;
    for (int round = 0; round < 150; round++) {
        AUTO(offload_step) s;
        random_plan(&prng, 1 + prng_below(&prng, 2), &s);
        random_step(&prng, 0, round % 3 == 0 ? 1 : round % 3 == 1 ? 2000 : 30000, &s);
        step_simulate(&s, false);
        int64_t makespan_ns = s.metrics.makespan_ns;
        int64_t busy_ns = s.metrics.busy_ns;
        int64_t peak_bytes = s.metrics.peak_bytes;
        step_outcome_fini(&s);
        step_offload(&s);
        step_simulate(&s, false);
        assert_true(s.metrics.makespan_ns >= makespan_ns);
        assert_int_equal(s.metrics.busy_ns, busy_ns);
        if (round % 3 == 0) {
            assert_int_equal(s.metrics.makespan_ns, makespan_ns);
            int64_t buffer_bytes = 0;
            size_t cells = s.costs.side[0].count * (size_t)s.costs.classes;
            for (size_t at = 0; at < cells; at++) {
                int64_t bytes = s.costs.offloaded_bytes[at];
                buffer_bytes = bytes > buffer_bytes ? bytes : buffer_bytes;
            }
            assert_true(s.metrics.peak_bytes <= peak_bytes + 2 * buffer_bytes);
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
    }
    assert_true(copies > 1000);
}

// With the same random rows on all data-parallel ranks one is simulated for all; with one byte or
// one nanosecond of another copy it is not.
TEST_ROUNDS(folding_counts_copies, 12, 6)
{
    AUTO(offload_step) s;
    int slices = round % 2 == 0 ? 1 : 6;
    sp_schedule_kind kind = round % 2 == 0 ? SP_SCHEDULE_1F1B : SP_SCHEDULE_SLIMPIPE;
    prepare(&s, (sp_schedule_spec){.kind = kind}, 3, 4, 1, 6, slices);
    random_step(prng, slices == 1 ? 3 : 1, 20000, &s);
    // random_costs draws these for every pack.
    size_t rows = s.costs.side[1].count * (size_t)s.costs.classes;
    for (size_t at = 1; slices > 1 && at < rows; at++) {
        s.costs.side[1].unit[at] = s.costs.side[1].unit[0];
    }
    step_offload(&s);
    step_simulate(&s, true);
    int64_t makespan_ns = s.metrics.makespan_ns;
    int64_t peak_bytes = s.metrics.peak_bytes;
    int64_t iteration_ns = s.metrics.iteration_ns;
    assert_int_equal(s.timeline.rank_count, 12);
    step_outcome_fini(&s);
    if (slices == 1) {
        step_simulate(&s, false);
        assert_int_equal(s.timeline.rank_count, 3);
        assert_int_equal(s.metrics.makespan_ns, makespan_ns);
        assert_int_equal(s.metrics.iteration_ns, iteration_ns);
        assert_int_equal(s.metrics.peak_bytes, peak_bytes);
        step_outcome_fini(&s);
        // Pack 1 runs on data-parallel rank 1 alone.
        int64_t *tables[] = {s.costs.o_ns, s.costs.l_ns, s.costs.offloaded_bytes};
        size_t at = (size_t)s.costs.classes;
        tables[round / 2][at] += tables[round / 2][at] > 0 ? -1 : 1;
    }
    step_simulate(&s, false);
    assert_int_equal(s.timeline.rank_count, slices == 1 ? 6 : 3);
    if (slices > 1) {
        assert_int_equal(s.metrics.makespan_ns, makespan_ns);
        assert_int_equal(s.metrics.peak_bytes, peak_bytes);
    }
}

// Packs that run on two ranks together wait for the copies of both.
TEST_ROUNDS(merged_packs, 41, 40)
{
    AUTO(offload_step) s = {
        .layout = {.tp = 1, .cp = 1, .pp = 1 + round % 3, .dp = 2, .chunks = 1}};
    sp_packing_init(&s.packing, NULL, 2);
    for (int k = 0; k < 9; k++) {
        int where = prng_below(prng, 3);
        sp_pack_list_begin(&s.packing.forward, where % 2, where == 2 ? 2 : 1);
    }
    sp_plan_init(&s.plan, &s.layout, &s.packing);
    sp_schedule_spec spec = {.kind = SP_SCHEDULE_GPIPE};
    must_succeed(sp_schedule_generate(&spec, NULL, "test", &s.plan, ERR));
    random_step(prng, 0, 20000, &s);
    step_offload(&s);
    step_simulate(&s, false);
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
}

// ---- around it ----

TEST(uniform_costs_have_no_copies)
{
    AUTO(offload_step) s;
    sp_uniform_costs uniform = {.f_ms = 1.0, .b_ms = 1.0, .w_ms = 1.0};
    prepare(&s, (sp_schedule_spec){.kind = SP_SCHEDULE_GPIPE}, 2, 1, 1, 3, 1);
    sp_step_costs_uniform(&uniform, &s.layout, &s.packing, &s.costs);
    step_offload(&s);
    sp_engine_options options = {.verify = true};
    must_fail_with(sp_simulate(&s.plan, &s.costs, &options, &s.timeline, &s.memory, &s.counts, ERR),
                   SP_ERR_CONTENT, "action O0: ");
}

TEST(plans_round_trip)
{
    AUTO(offload_step) s;
    prepare(&s, (sp_schedule_spec){.kind = SP_SCHEDULE_SLIMPIPE}, 2, 2, 2, 3, 4);
    step_offload(&s);
    AUTO_FREE char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    json_auto_t *scenario = json_object();
    sp_plan_predictions predictions = {.lower_bound_ms = -1.0, .predicted_ms = -1.0};
    assert_non_null(file);
    assert_non_null(scenario);
    must_succeed(sp_plan_json_begin(file, scenario, ERR));
    must_succeed(sp_plan_json_batch(file, 0, &s.plan, predictions, ERR));
    must_succeed(sp_plan_json_end(file, NULL, NULL, ERR));
    assert_int_equal(fclose(file), 0);
    json_auto_t *root = NULL;
    AUTO(sp_plan_file) read;
    must_succeed(sp_json_read_text(text, bytes, "plan.json", &root, ERR));
    must_succeed(sp_plan_json_read(root, "plan.json", &s.layout, &read, ERR));
    must_succeed(sp_plan_check(&read.plans[0], "plan.json", ERR));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(read.plans[0].stages[i].count, s.plan.stages[i].count);
        assert_memory_equal(read.plans[0].stages[i].actions, s.plan.stages[i].actions,
                            s.plan.stages[i].count * sizeof(sp_action));
    }
}

// A copy waits only for what stands before it on its rank and closes no circle by itself; beside
// copies a circle is named as without them. Rank 0 runs B0 before F1, rank 1 F1 before B0.
TEST(circles_beside_copies)
{
    AUTO(offload_step) s = {.layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 1, .chunks = 1}};
    uniform_packing(&s.packing, 1, 2);
    sp_plan_init(&s.plan, &s.layout, &s.packing);
    sp_i_step_costs_init(&s.costs, &s.layout, &s.packing, 1, true);
    plan_add_actions(&s.plan, 0, 0, "F0 B0 F1 B1");
    plan_add_actions(&s.plan, 0, 1, "F0 O0 F1 L0 B0 B1");
    must_succeed(sp_plan_check(&s.plan, "test", ERR));
    sp_engine_options options = {.source = "plan"};
    must_fail_with(sp_simulate(&s.plan, &s.costs, &options, &s.timeline, &s.memory, &s.counts, ERR),
                   SP_ERR_DEADLOCK, "plan: the plan cannot finish");
    assert_non_null(strstr(ERR->message[0], "F1 on dp 0 pp 1"));
}
