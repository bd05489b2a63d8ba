// What packs hold and the room that leaves: tables against the costs that they come from, and plans
// that were found to fit against the simulated memory.
#include "sim/base/alloc.h"
#include "solver/pack_memory.h"
#include "solver/slimpack_search.h"
#include "tests/support/drawn_packs.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

#define SMALL_MODEL \
    "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, "

typedef struct memory_case {
    sp_scenario scenario;
    sp_cost_model cost;
} memory_case;

static void case_init(const char *more, memory_case *c)
{
    sp_error err = {0};
    char text[RUN_TEXT] = "";
    put_json(text,
             "%s'cluster': 'h800-8', 'workload': {'uniform': 64}, 'schedule': {'kind': "
             "'packflow'}, 'strategy': {'kind': 'slimpack'}, %s}",
             SMALL_MODEL, more);
    must_succeed(text, run_read(text, &c->scenario, &err), &err);
    must_succeed("cost model",
                 sp_cost_model_init(&c->cost, &c->scenario.model, &c->scenario.layout,
                                    &c->scenario.cluster, &c->scenario.profile, c->scenario.memory,
                                    c->scenario.source, &err),
                 &err);
}

static void case_fini(memory_case *c)
{
    sp_cost_model_fini(&c->cost);
    sp_scenario_fini(&c->scenario);
}

static void add_pack(sp_packing *packing, int32_t sample, int64_t tokens, int dp_first,
                     int dp_count)
{
    sp_slice slice = {.sample = sample, .tokens = tokens, .computed_tokens = tokens};
    assert_true(sp_pack_list_begin(&packing->forward, dp_first, dp_count));
    assert_true(sp_pack_list_add(&packing->forward, slice, true));
}

// Every pack is within the tables: so many bytes for each of its tokens, and for each token of the
// largest pack while it runs. Some pack needs all of it.
static void tables_cover_every_pack(void **state)
{
    (void)state;
    static memory_case c;
    sp_prng prng;
    sp_prng_seed(&prng, 149);
    for (int chunks = 1; chunks <= 2; chunks++) {
        case_init(chunks == 1 ? "'parallel': {'pp': 2}"
                              : "'parallel': {'pp': 2, 'chunks_per_rank': 2}",
                  &c);
        for (int round = 0; round < 50; round++) {
            int64_t tokens[20];
            size_t count = 1 + (size_t)sp_prng_below(&prng, 20);
            sp_batch batch = {.ids = tokens, .tokens = tokens, .count = count};
            sp_packing packing;
            sp_error err = {0};
            sp_step_costs costs;
            sp_i_pack_memory memory;
            int64_t longest = 0;
            sp_packing_init(&packing, &batch, 1);
            for (size_t k = 0; k < count; k++) {
                tokens[k] = 1 + (int64_t)sp_prng_below(&prng, 30000);
                longest = tokens[k] > longest ? tokens[k] : longest;
                add_pack(&packing, (int32_t)k, tokens[k], 0, 1);
            }
            must_succeed("costs", sp_cost_model_build(&c.cost, &packing, &costs, &err), &err);
            must_succeed(
                "memory",
                sp_i_pack_memory_measure(&costs, &packing, &c.scenario.layout, &memory, &err),
                &err);
            assert_true(memory.known);
            assert_int_equal(memory.largest, longest);
            for (int v = 0; v < sp_layout_vstages(&c.scenario.layout); v++) {
                double least_gap = 1.0;
                for (size_t k = 0; k < count; k++) {
                    const sp_unit_bytes *unit =
                        &costs.unit[k * (size_t)costs.classes + (size_t)costs.class_of_vstage[v]];
                    double held = (double)sp_bytes_total(&unit->held);
                    double most = memory.whole[v] * (double)tokens[k];
                    assert_true(held <= most * (1.0 + 1e-12));
                    least_gap = most - held < least_gap * most ? (most - held) / most : least_gap;
                    assert_true(memory.split[v] >= memory.whole[v]);
                    double running = memory.running[v] * (double)longest * (1.0 + 1e-12);
                    assert_true((double)sp_bytes_total(&unit->forward) <= running);
                    assert_true((double)sp_bytes_total(&unit->backward) <= running);
                }
                assert_true(least_gap < 1e-9);
            }
            sp_i_pack_memory_fini(&memory);
            sp_step_costs_fini(&costs);
            sp_packing_fini(&packing);
        }
        case_fini(&c);
    }
}

// Two merged ranks with a pack of twice the tokens hold as much as one alone.
static void merged_ranks_share_their_tokens(void **state)
{
    (void)state;
    static memory_case c;
    sp_error err = {0};
    case_init("'parallel': {'pp': 2, 'dp': 3}", &c);
    int64_t tokens[2] = {8192, 4096};
    sp_batch batch = {.ids = tokens, .tokens = tokens, .count = 2};
    double whole[3];
    for (int which = 0; which < 3; which++) {
        sp_packing packing;
        sp_step_costs costs;
        sp_i_pack_memory memory;
        sp_packing_init(&packing, &batch, 3);
        for (int32_t k = 0; k < 2; k++) {
            if (which == 2 || which == k) {
                add_pack(&packing, k, tokens[k], k == 0 ? 0 : 2, k == 0 ? 2 : 1);
            }
        }
        must_succeed("costs", sp_cost_model_build(&c.cost, &packing, &costs, &err), &err);
        must_succeed("memory",
                     sp_i_pack_memory_measure(&costs, &packing, &c.scenario.layout, &memory, &err),
                     &err);
        assert_int_equal(memory.largest, 4096);
        whole[which] = memory.whole[0];
        sp_i_pack_memory_fini(&memory);
        sp_step_costs_fini(&costs);
        sp_packing_fini(&packing);
    }
    assert_true(whole[0] < 1.1 * whole[1] && whole[0] > 0.9 * whole[1]);
    assert_true(whole[2] == (whole[0] > whole[1] ? whole[0] : whole[1]));
    case_fini(&c);
}

// limit = states + what the largest pack needs as it runs + room, and never less than nothing.
static void room_is_what_the_rest_leaves(void **state)
{
    (void)state;
    double whole[4] = {10.0, 20.5, 30.0, 40.0};
    double split[4] = {11.0, 21.0, 31.0, 41.0};
    double running[4] = {1.0, 2.0, 3.0, 4.0};
    double states[2] = {1000.0, 2000.0};
    const sp_i_pack_memory memory = {.known = true,
                                     .whole = whole,
                                     .split = split,
                                     .running = running,
                                     .states = states,
                                     .largest = 7};
    // A V: rank 0 has virtual stages 0 and 3, rank 1 has 1 and 2.
    const sp_layout layout = {
        .tp = 1, .cp = 1, .pp = 2, .dp = 1, .chunks = 2, .placement = SP_PLACE_V};
    int64_t token_bytes[4];
    int64_t room_bytes[2];
    sp_i_pack_memory_room(&memory, &layout, false, 5000, 100, token_bytes, room_bytes);
    assert_int_equal(token_bytes[0], 10);
    assert_int_equal(token_bytes[1], 21);
    assert_int_equal(room_bytes[0], 5000 - 1000 - 4 * 100);
    assert_int_equal(room_bytes[1], 5000 - 2000 - 3 * 100);
    sp_i_pack_memory_room(&memory, &layout, true, 2100, 100, token_bytes, room_bytes);
    assert_int_equal(token_bytes[3], 41);
    assert_int_equal(room_bytes[0], 700);
    assert_int_equal(room_bytes[1], 0);
}

static sp_status note_fit(void *context, const sp_step_view *view, sp_error *err)
{
    (void)err;
    int64_t *peak = context;
    for (size_t r = 0; r < view->memory->rank_count; r++) {
        int64_t bytes = sp_bytes_total(&view->memory->ranks[r].peak);
        *peak = bytes > *peak ? bytes : *peak;
    }
    return SP_OK;
}

// Limits from nothing to plenty: what the search says fits is within the limit when it is run.
static void what_fits_stays_within_the_limit(void **state)
{
    (void)state;
    static const struct {
        const char *kind, *parallel;
        bool asymmetric, split;
    } cases[] = {
        {"slimpack-symmetric", "'pp': 4", false, false},
        {"slimpack", "'pp': 4, 'dp': 2", true, false},
        {"slimpack-zb", "'pp': 4, 'chunks_per_rank': 1", true, true},
        {"slimpack-zb", "'pp': 4, 'chunks_per_rank': 2", true, true},
    };
    sp_prng prng;
    sp_prng_seed(&prng, 151);
    int fitting = 0;
    int lacking = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int round = 0; round < 7; round++) {
            char text[RUN_TEXT] = "";
            double limit_gib = 4.5 + 2.5 * round;
            put_json(text,
                     "{'model': {'layers': 8, 'hidden': 2048, 'ffn': 5504, 'heads': 16, 'vocab': "
                     "32000}, 'cluster': 'h800-8', 'profile': 'h800-burst', 'parallel': {%s}, "
                     "'memory': {'limit_gib': %g}, "
                     "'strategy': {'kind': '%s'}, 'workload': {'order': 'file', 'lengths': [",
                     cases[i].parallel, limit_gib, cases[i].kind);
            int count = 4 + (int)sp_prng_below(&prng, 40);
            for (int k = 0; k < count; k++) {
                uint64_t most = sp_prng_below(&prng, 6) == 0 ? 40000 : 4000;
                put_json(text, "%s%d", k > 0 ? ", " : "", 1 + (int)sp_prng_below(&prng, most));
            }
            put_json(text, "]}}");
            int64_t peak = 0;
            const sp_evaluate_options options = {.observer = note_fit, .observer_context = &peak};
            scenario_run r;
            run_good(text, &options, &r);
            sp_error err = {0};
            sp_scenario settled;
            must_succeed("scenario", run_read(text, &settled, &err), &err);
            must_succeed("settle", sp_strategy_settle(&settled, false, &err), &err);
            sp_cost_model cost;
            must_succeed("cost model",
                         sp_cost_model_init(&cost, &settled.model, &settled.layout,
                                            &settled.cluster, &settled.profile, settled.memory,
                                            settled.source, &err),
                         &err);
            const sp_strategy_input input = {.scenario = &settled,
                                             .batch = &r.batches.batch[0],
                                             .context = r.batches.context,
                                             .cost = &cost};
            const sp_i_slimpack_options search =
                sp_i_slimpack_options_of(&settled.strategy, cases[i].asymmetric, cases[i].split);
            sp_i_packflow_outcome outcome;
            must_succeed("search", sp_i_slimpack_search(&input, &search, NULL, &outcome, &err),
                         &err);
            bool fits = peak <= settled.memory_limit_bytes;
            fitting += outcome.fits;
            lacking += !outcome.fits;
            if (outcome.fits && !fits) {
                fail_msg("%s: %lld bytes", text, (long long)peak);
            }
            sp_cost_model_fini(&cost);
            sp_scenario_fini(&settled);
            run_fini(&r);
        }
    }
    assert_true(fitting > 5 && lacking > 5);
}

// Uniform costs have no memory.
static void unknown_memory(void **state)
{
    (void)state;
    sp_error err = {0};
    sp_packing packing;
    sp_step_costs costs;
    sp_i_pack_memory memory;
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 1, .chunks = 1, .zero = 1};
    const sp_uniform_costs uniform = {.f_ms = 1.0, .b_ms = 2.0};
    must_succeed("packing", uniform_packing(&packing, 1, 4, &err), &err);
    must_succeed("costs", sp_step_costs_uniform(&uniform, &layout, &packing, &costs, &err), &err);
    must_succeed("memory", sp_i_pack_memory_measure(&costs, &packing, &layout, &memory, &err),
                 &err);
    assert_false(memory.known);
    sp_i_pack_memory_fini(&memory);
    sp_step_costs_fini(&costs);
    sp_packing_fini(&packing);
}

static void allocation_failures(void **state)
{
    (void)state;
    static memory_case c;
    sp_error err = {0};
    case_init("'parallel': {'pp': 2}", &c);
    int64_t tokens[1] = {1000};
    sp_batch batch = {.ids = tokens, .tokens = tokens, .count = 1};
    sp_packing packing;
    sp_step_costs costs;
    sp_packing_init(&packing, &batch, 1);
    add_pack(&packing, 0, 1000, 0, 1);
    must_succeed("costs", sp_cost_model_build(&c.cost, &packing, &costs, &err), &err);
    sp_status status = SP_ERR_NO_MEMORY;
    for (long n = 0; status != SP_OK; n++) {
        assert_true(n < 10);
        sp_i_pack_memory memory;
        sp_error_clear(&err);
        sp_i_alloc_fail_after(n);
        status = sp_i_pack_memory_measure(&costs, &packing, &c.scenario.layout, &memory, &err);
        sp_i_alloc_fail_after(-1);
        assert_true(status == SP_OK || (status == SP_ERR_NO_MEMORY && err.status == status));
        sp_i_pack_memory_fini(&memory);
    }
    sp_step_costs_fini(&costs);
    sp_packing_fini(&packing);
    case_fini(&c);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(tables_cover_every_pack),
    cmocka_unit_test(merged_ranks_share_their_tokens),
    cmocka_unit_test(room_is_what_the_rest_leaves),
    cmocka_unit_test(what_fits_stays_within_the_limit),
    cmocka_unit_test(unknown_memory),
    cmocka_unit_test(allocation_failures),
};

SP_TEST_MAIN(tests)
