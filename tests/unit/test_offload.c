// Copies to host memory on one rank: hand-computed timelines and memory, closed forms, and what the
// copies cost.
#include "sim/base/json.h"
#include "sim/cost/cost_model.h"
#include "sim/metrics/export.h"
#include "sim/simulate/memory.h"
#include "tests/support/flat_profile.h"
#include "tests/support/offload_step.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

// ---- one rank: m forwards, then the backwards in reverse ----

typedef struct times {
    int64_t f_ns, b_ns, o_ns, l_ns;
} times;

enum { HELD = 100, OTHER = 10, FORWARD = 7, BACKWARD = 5 };

// Each unit holds 100 bytes of activations, of which `leaving` can be offloaded, and 10 of keys and
// values.
static void stack(offload_step *s, int m, times t, int64_t leaving)
{
    *s = (offload_step){.layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1}};
    uniform_packing(&s->packing, 1, m);
    sp_plan_init(&s->plan, &s->layout, &s->packing);
    sp_i_step_costs_init(&s->costs, &s->layout, &s->packing, 1, true);
    sp_stage_plan *stage = sp_plan_stage(&s->plan, 0, 0);
    for (int k = 0; k < m; k++) {
        sp_stage_plan_add(stage, SP_ACTION_F, 0, k);
        s->costs.action[SP_ACTION_F][k].compute_ns = t.f_ns;
        s->costs.action[SP_ACTION_B][k].compute_ns = t.b_ns;
        s->costs.o_ns[k] = t.o_ns;
        s->costs.l_ns[k] = t.l_ns;
        s->costs.side[0].unit[k].held.of[SP_MEM_ACTIVATIONS] = HELD;
        s->costs.side[0].unit[k].held.of[SP_MEM_KV_CACHE] = OTHER;
        s->costs.side[0].unit[k].forward.of[SP_MEM_WORKSPACE] = FORWARD;
        s->costs.side[0].unit[k].backward.of[SP_MEM_WORKSPACE] = BACKWARD;
        s->costs.side[0].unit[k].loaded_backward.of[SP_MEM_WORKSPACE] = BACKWARD;
        s->costs.offloaded_bytes[k] = leaving;
    }
    for (int k = m - 1; k >= 0; k--) {
        sp_stage_plan_add(stage, SP_ACTION_B, 0, k);
    }
}

static const sp_span *copy_of(const offload_step *s, sp_action_kind kind, int32_t pack)
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

static void assert_copy(const offload_step *s, sp_action_kind kind, int32_t pack, int64_t start_ns,
                        int64_t end_ns)
{
    const sp_span *span = copy_of(s, kind, pack);
    assert_int_equal(span->start_ns, start_ns);
    assert_int_equal(span->end_ns, end_ns);
}

// Each copy fits into the action beside it: forwards at 0, 10, 20, 30, backwards at 40, 60, 80,
// 100, and not more than two units on the GPU at a time. What is copied out goes when the next
// forward ends; what comes back at 40, 60 and 80 goes into the buffers made at 40 and 60, which
// stay.
TEST(copies_that_hide)
{
    AUTO(offload_step) s;
    stack(&s, 4, (times){10, 20, 8, 15}, HELD);
    step_simulate(&s, false);
    assert_int_equal(s.metrics.makespan_ns, 120);
    assert_int_equal(s.metrics.peak_bytes, 4 * (HELD + OTHER) + FORWARD);
    step_outcome_fini(&s);
    step_offload(&s);
    step_assert_actions(&s, 0, "F0 O0 F1 O1 F2 O2 F3 L2 B3 L1 B2 L0 B1 B0");
    step_simulate(&s, false);
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
                                          {18, 2 * HELD + 2 * OTHER + FORWARD},
                                          {20, 2 * HELD + 3 * OTHER + FORWARD},
                                          {28, 2 * HELD + 3 * OTHER + FORWARD},
                                          {30, 2 * HELD + 4 * OTHER + FORWARD},
                                          {38, 2 * HELD + 4 * OTHER + FORWARD},
                                          {40, 2 * HELD + 4 * OTHER + BACKWARD},
                                          {59, 2 * HELD + 4 * OTHER + BACKWARD},
                                          {60, 2 * HELD + 3 * OTHER + BACKWARD},
                                          {80, 2 * HELD + 2 * OTHER + BACKWARD},
                                          {100, 2 * HELD + OTHER + BACKWARD},
                                          {120, 2 * HELD}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_int_equal(step_held_at(&s, expected[i][0]), expected[i][1]);
    }
}

// A quarter leaves: of the units away only that part is missing. Before the first backward three
// are away and one buffer is made.
TEST(part_of_a_unit)
{
    AUTO(offload_step) s;
    stack(&s, 4, (times){10, 20, 8, 15}, HELD / 4);
    step_offload(&s);
    step_simulate(&s, false);
    assert_int_equal(step_held_at(&s, 38), 4 * OTHER + 4 * HELD - 2 * (HELD / 4) + FORWARD);
    assert_int_equal(step_held_at(&s, 40), 4 * OTHER + 4 * HELD - 2 * (HELD / 4) + BACKWARD);
    assert_int_equal(s.metrics.peak_bytes, 4 * OTHER + 4 * HELD - 2 * (HELD / 4) + FORWARD);
}

// A slow link: with o >= f and l >= b the copies follow one another without a gap. The last of the
// m - 1 copies out ends at f + (m-1) o, then come m - 1 copies back, then the last backward.
TEST_ROUNDS(copies_that_do_not_hide, 7, 50)
{
    int m = 2 + prng_below(prng, 9);
    times t = {.f_ns = 1 + (int64_t)sp_prng_below(prng, 50),
               .b_ns = 1 + (int64_t)sp_prng_below(prng, 90)};
    t.o_ns = t.f_ns + (int64_t)sp_prng_below(prng, 100);
    t.l_ns = t.b_ns + (int64_t)sp_prng_below(prng, 100);
    AUTO(offload_step) s;
    stack(&s, m, t, HELD);
    step_offload(&s);
    step_simulate(&s, false);
    assert_int_equal(s.metrics.makespan_ns, t.f_ns + (m - 1) * (t.o_ns + t.l_ns) + t.b_ns);
    assert_int_equal(s.metrics.busy_ns, m * (t.f_ns + t.b_ns));
    assert_int_equal(s.metrics.wait_p2p_ns, 0);
}

// Of the quarter that leaves ten bytes are part of a tensor, which is rebuilt beside the buffer
// from the start of the copy back: of pack 2 from 40 to 80, of pack 1 from 60 to 100.
TEST(tensor_that_leaves_in_part)
{
    AUTO(offload_step) s;
    stack(&s, 4, (times){10, 20, 8, 15}, HELD / 4);
    for (int k = 0; k < 4; k++) {
        s.costs.side[0].unit[k].rebuilt = 10;
    }
    step_offload(&s);
    step_simulate(&s, false);
    static const int64_t rebuilt[][2] = {{38, 0},  {40, 10},  {60, 20},
                                         {80, 20}, {100, 10}, {120, 0}};
    static const int64_t plain[] = {
        4 * (HELD + OTHER) - 2 * (HELD / 4) + FORWARD,
        4 * (HELD + OTHER) - 3 * (HELD / 4) + HELD / 4 + BACKWARD,
        3 * (HELD + OTHER) - 3 * (HELD / 4) + 2 * (HELD / 4) + BACKWARD,
        2 * (HELD + OTHER) - 2 * (HELD / 4) + 2 * (HELD / 4) + BACKWARD,
        HELD + OTHER - HELD / 4 + 2 * (HELD / 4) + BACKWARD,
        2 * (HELD / 4),
    };
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        assert_int_equal(step_held_at(&s, rebuilt[i][0]), plain[i] + rebuilt[i][1]);
    }
}

// The action at the peak, and what units hold then: at 30, when F3 starts, two are away and two
// whole.
TEST(state_at_the_peak)
{
    AUTO(offload_step) s;
    stack(&s, 4, (times){10, 20, 8, 15}, HELD);
    step_offload(&s);
    step_simulate(&s, false);
    const sp_rank_memory *memory = &s.memory.ranks[0];
    assert_int_equal(memory->peak_ns, 30);
    assert_true(memory->has_peak_action);
    assert_int_equal(memory->peak_action.kind, SP_ACTION_F);
    assert_int_equal(memory->peak_action.pack, 3);
    AUTO(sp_peak_state) peak;
    must_succeed(sp_memory_at_peak(&s.timeline, &s.costs, &s.memory, 0, &peak, ERR));
    static const sp_unit_holds expected[] = {SP_HOLDS_RESIDENT, SP_HOLDS_RESIDENT, SP_HOLDS_ALL,
                                             SP_HOLDS_ALL};
    for (int k = 0; k < 4; k++) {
        assert_int_equal(peak.units[k].holds, expected[k]);
    }
    assert_int_equal(peak.buffers, 0);
    assert_true(sp_bytes_total(&peak.running) > 0);
}

// Two 10 ns forwards and a 100 ns copy: O0 ends at 110, its L0 at 210, before which B0 cannot
// start; B1 waits for O0, so that with it no more than two units are on the GPU.
TEST(slow_copy_keeps_memory)
{
    AUTO(offload_step) s;
    stack(&s, 2, (times){10, 20, 100, 100}, HELD);
    step_offload(&s);
    step_assert_actions(&s, 0, "F0 O0 F1 L0 B1 B0");
    step_simulate(&s, false);
    assert_copy(&s, SP_ACTION_O, 0, 10, 110);
    assert_copy(&s, SP_ACTION_L, 0, 110, 210);
    assert_int_equal(s.metrics.makespan_ns, 230);
    assert_int_equal(step_held_at(&s, 30), 2 * HELD + 2 * OTHER);
    assert_int_equal(step_held_at(&s, 109), 2 * HELD + 2 * OTHER);
    // Away at 110, and in the same moment the buffer is made.
    assert_int_equal(step_held_at(&s, 110), 2 * HELD + 2 * OTHER + BACKWARD);
    assert_int_equal(step_held_at(&s, 130), HELD + OTHER);
    assert_int_equal(step_held_at(&s, 230), HELD);
}

// ---- around it ----

// The traced threads: both directions have one, and the count beforehand is exact.
TEST(trace_has_copy_threads)
{
    AUTO(offload_step) s;
    stack(&s, 4, (times){10, 20, 8, 15}, HELD);
    step_offload(&s);
    step_simulate(&s, false);
    sp_export_window window = {0};
    AUTO_FREE char *text = NULL;
    size_t bytes = 0;
    int64_t events = 0;
    FILE *file = open_memstream(&text, &bytes);
    assert_non_null(file);
    must_succeed(sp_export_trace(file, &s.timeline, NULL, &window, NULL, false, &events, ERR));
    assert_int_equal(fclose(file), 0);
    assert_int_equal(sp_export_trace_events(&s.timeline, &window, false), events);
    assert_true(sp_export_trace_events(&s.timeline, &window, true) > events);
    json_auto_t *root = NULL;
    must_succeed(sp_json_read_text(text, bytes, "trace.json", &root, ERR));
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
}

// What the cost model tells the engine: a unit whole on the GPU, the share that leaves, and the
// time it takes on the host link, 50 GB/s for an H800.
TEST(costs_of_copies)
{
    sp_model model;
    sp_cluster cluster;
    AUTO(sp_profile) profile;
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 1, .chunks = 1};
    must_succeed(sp_model_builtin("llama-13b", &model, ERR));
    must_succeed(sp_cluster_builtin("h800-8", &cluster, ERR));
    must_succeed(flat_profile(NULL, &profile, ERR));
    assert_true(cluster.host_link_bytes_per_s == 50e9);
    AUTO(sp_packing) packing;
    sp_packing_init(&packing, NULL, 1);
    for (int k = 0; k < 2; k++) {
        pack_sample(&packing.forward, 0, 1, 0, 1000);
    }
    int64_t whole = 0;
    for (int quarters = 0; quarters <= 4; quarters++) {
        int64_t latency_ns = 1000 * quarters;
        cluster.host_link_latency_s = 1e-9 * (double)latency_ns;
        AUTO(sp_cost_model) cost;
        AUTO(sp_step_costs) costs;
        sp_memory_options memory = {.offload_ratio = 0.25 * quarters};
        must_succeed(
            sp_cost_model_init(&cost, &model, &layout, &cluster, &profile, memory, "test", ERR));
        must_succeed(sp_cost_model_build(&cost, &packing, &costs, ERR));
        whole = quarters == 0 ? costs.side[0].unit[0].held.of[SP_MEM_ACTIVATIONS] : whole;
        // All but the softmax statistics of a layer, 40 heads * 4 B * 1000 tokens, in whole MiB.
        int64_t large = whole - INT64_C(20) * 40 * 4 * 1000;
        int64_t leaves = (large * quarters / 4 + 1048575) / 1048576 * 1048576;
        leaves = leaves < large ? leaves : large;
        size_t classes = (size_t)costs.classes;
        for (size_t k = 0; k < 2; k++) {
            size_t at = k * classes;
            const sp_unit_bytes *unit = &costs.side[0].unit[sp_step_costs_units(&costs, 0, k)];
            assert_int_equal(unit->held.of[SP_MEM_ACTIVATIONS], whole);
            assert_int_equal(unit->held.of[SP_MEM_OFFLOADED], 0);
            assert_int_equal(costs.offloaded_bytes[sp_step_costs_units(&costs, 0, k)], leaves);
            assert_true(llabs((costs.o_ns[at] - latency_ns) * 50 - leaves) <= 50);
            assert_int_equal(costs.l_ns[at], costs.o_ns[at]);
        }
    }
    assert_true(whole > 0);
}

TEST(host_link_of_a_cluster)
{
    static const struct {
        const char *text;
        double rate;
    } cases[] = {{"{'name': 'a100-8'}", 25e9},
                 {"{'name': 'h100-8', 'host_link_gb_per_s': 12.5}", 12.5e9},
                 {"{'gpu': 'X', 'peak_tflops': 1, 'memory_gib': 1, 'hbm_gb_per_s': 1, "
                  "'nvlink_gb_per_s': 1, 'nic_gbit_per_s': 1}",
                  25e9}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_auto_t *json = json_document(cases[i].text);
        sp_object object;
        sp_cluster cluster;
        sp_object_begin(&object, json, "s.json", "cluster", ERR);
        sp_cluster_from_object(&object, &cluster);
        assert_int_equal(ERR->count, 0);
        assert_true(cluster.host_link_bytes_per_s == cases[i].rate);
    }
}
