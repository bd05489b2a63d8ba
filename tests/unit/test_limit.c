// The limit of a step and what adds to it: closed forms with a profile of constant rates, and what
// the parts are where their cause is absent.
#include "solver/evaluate/evaluate.h"
#include "tests/support/flat_profile.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

enum { LAYERS = 4, HIDDEN = 512, FFN = 1024, VOCAB = 1000 };

#define MODEL "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, "
#define ON_ONE_NODE MODEL "'cluster': 'h100-8', "
#define EQUAL "'workload': {'lengths': [1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024]}}"
#define UNEQUAL "'workload': {'lengths': [100, 700, 1024, 300, 64, 900, 512, 450]}}"

// A scenario with the flat profile in the place of its own.
static void run_flat(const char *text, const char *const *overrides, scenario_run *r)
{
    static const sp_evaluate_options plain = {.no_causes = true};
    *r = (scenario_run){0};
    read_good(text, &r->scenario);
    sp_profile_fini(&r->scenario.profile);
    flat_profile_load(overrides, &r->scenario.profile);
    must_succeed(sp_evaluate_batches(&r->scenario, &r->batches, ERR));
    must_succeed_for(text, sp_evaluate(&r->scenario, &r->batches, &plain, &r->result, ERR));
}

static void parts_of(const scenario_run *r, double ms[SP_LIMIT_PARTS])
{
    limit_holds("", &r->result);
    assert_true(sp_result_limit_parts(&r->result, ms));
}

// GPU milliseconds of samples: three times the products of a forward, each of two FLOPs a weight;
// attention is 4 FLOPs a pair and element forward and 10 backward, over half of the square.
static double closed_form_ms(const int *lengths, int count)
{
    double weights = LAYERS * (4.0 * HIDDEN * HIDDEN + 3.0 * HIDDEN * FFN) + HIDDEN * VOCAB;
    double ms = 0.0;
    for (int i = 0; i < count; i++) {
        double n = lengths[i];
        ms += 1e3 * (6.0 * weights * n / FLAT_GEMM_FLOPS_PER_S +
                     LAYERS * HIDDEN * n * n / 2.0 *
                         (4.0 / FLAT_FORWARD_FLOPS_PER_S + 10.0 / FLAT_BACKWARD_FLOPS_PER_S));
    }
    return ms;
}

// The same whatever the layout, the strategy or recomputation is.
TEST(limit_is_a_closed_form)
{
    static const int lengths[] = {100, 700, 1024, 300, 64, 900, 512, 450};
    static const struct {
        const char *settings;
        int gpus;
    } cases[] = {
        {"'strategy': {'kind': 'packed'}, ", 1},
        {"'parallel': {'tp': 4}, 'strategy': {'kind': 'padded'}, ", 4},
        {"'parallel': {'tp': 2, 'cp': 2, 'pp': 2}, 'memory': {'recompute': 'full'}, ", 8},
        {"'parallel': {'pp': 4, 'dp': 2, 'zero': 1}, 'strategy': {'kind': 'slimpack-zb'}, ", 8},
        {"'parallel': {'dp': 4, 'zero': 3}, 'strategy': {'kind': 'ffd'}, ", 4},
        {"'parallel': {'pp': 4, 'vocab_parallel': true}, ", 4},
    };
    for (int c = 0; c < COUNT_OF(cases); c++) {
        AUTO(scenario_run) r;
        double ms[SP_LIMIT_PARTS];
        run_flat(json_text(ON_ONE_NODE "%s" UNEQUAL, cases[c].settings), NULL, &r);
        parts_of(&r, ms);
        double expected_ms = closed_form_ms(lengths, COUNT_OF(lengths)) / cases[c].gpus;
        assert_within(sp_result_limit_ms(&r.result) / expected_ms, 1.0, 1e-9);
    }
}

// Rows of the longest sample: the padding is work, too.
TEST(padding_is_work_of_packs)
{
    static const int lengths[] = {100, 700, 1024, 300, 64, 900, 512, 450};
    static const int padded[] = {1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024};
    AUTO(scenario_run) r;
    double ms[SP_LIMIT_PARTS];
    run_flat(json_text(ON_ONE_NODE "'strategy': {'kind': 'padded'}, " UNEQUAL), NULL, &r);
    parts_of(&r, ms);
    double expected_ms = closed_form_ms(padded, 8) - closed_form_ms(lengths, 8);
    assert_within(ms[SP_LIMIT_PACKS] / expected_ms, 1.0, 1e-9);
    scenario_run_fini(&r);
    run_flat(json_text(ON_ONE_NODE "'strategy': {'kind': 'padded'}, " EQUAL), NULL, &r);
    parts_of(&r, ms);
    assert_true(ms[SP_LIMIT_PACKS] == 0.0);
}

// On one GPU there is nobody to wait for.
TEST(one_rank_has_no_exchange)
{
    static const int absent[] = {SP_LIMIT_TP, SP_LIMIT_CP,       SP_LIMIT_EP,       SP_LIMIT_DP,
                                 SP_LIMIT_PP, SP_LIMIT_PIPELINE, SP_LIMIT_IMBALANCE};
    AUTO(scenario_run) r;
    double ms[SP_LIMIT_PARTS];
    run_flat(json_text(ON_ONE_NODE UNEQUAL), NULL, &r);
    parts_of(&r, ms);
    for (int i = 0; i < COUNT_OF(absent); i++) {
        assert_true(ms[absent[i]] == 0.0);
    }
    assert_true(ms[SP_LIMIT_RECOMPUTE] == 0.0 && ms[SP_LIMIT_KERNELS] > 0.0);
}

// Without a pipeline ranks with less work wait for others, and no pipeline is to blame.
TEST(without_a_pipeline_ranks_are_uneven)
{
    AUTO(scenario_run) r;
    double ms[SP_LIMIT_PARTS];
    run_flat(json_text(ON_ONE_NODE "'parallel': {'dp': 4}, 'strategy': {'kind': 'packed'}, "
                                   "'workload': {'lengths': [1024, 64, 64, 64]}}"),
             NULL, &r);
    parts_of(&r, ms);
    assert_true(ms[SP_LIMIT_PIPELINE] == 0.0 && ms[SP_LIMIT_PP] == 0.0);
    assert_true(ms[SP_LIMIT_IMBALANCE] > 0.1 * sp_result_iteration_ms(&r.result));
}

// Exchanges of a network without latency and of endless rate are less than a nanosecond each.
TEST(endless_network_adds_nothing)
{
    static const char *const endless[] = {"links.nvlink_gb_per_s=1e9", "links.nvlink_latency_us=0",
                                          "links.nic_latency_us=0", NULL};
    static const char *const settings[] = {
        "'parallel': {'tp': 2, 'cp': 2, 'dp': 2}, ", "'parallel': {'pp': 4, 'dp': 2}, ",
        "'parallel': {'dp': 8, 'zero': 3}, ", "'parallel': {'tp': 2, 'dp': 4, 'zero': 2}, "};
    static const int exchanges[] = {SP_LIMIT_TP, SP_LIMIT_CP, SP_LIMIT_EP, SP_LIMIT_DP,
                                    SP_LIMIT_PP};
    for (int c = 0; c < COUNT_OF(settings); c++) {
        AUTO(scenario_run) r;
        double ms[SP_LIMIT_PARTS];
        double slow_ms = 0.0;
        run_flat(json_text(ON_ONE_NODE "%s" UNEQUAL, settings[c]), NULL, &r);
        parts_of(&r, ms);
        for (int i = 0; i < COUNT_OF(exchanges); i++) {
            slow_ms += ms[exchanges[i]];
        }
        assert_true(slow_ms > 0.0);
        scenario_run_fini(&r);
        run_flat(json_text(MODEL
                           "'cluster': {'name': 'h100-8', 'nvlink_gb_per_s': 1e9}, %s" UNEQUAL,
                           settings[c]),
                 endless, &r);
        parts_of(&r, ms);
        for (int i = 0; i < COUNT_OF(exchanges); i++) {
            assert_within(ms[exchanges[i]], 0.0, 1e-4);
        }
    }
}

// Layers run again as they ran: a forward's products at the same rate, its attention, and kernels
// that memory bounds, so that the part is their whole time and other parts stay.
TEST(recomputation_is_a_forward_again)
{
    AUTO(scenario_run) plain;
    AUTO(scenario_run) again;
    double ms[2][SP_LIMIT_PARTS];
    run_flat(json_text(ON_ONE_NODE EQUAL), NULL, &plain);
    run_flat(json_text(ON_ONE_NODE "'memory': {'recompute': 'full'}, " EQUAL), NULL, &again);
    parts_of(&plain, ms[0]);
    parts_of(&again, ms[1]);
    double more_ms = sp_result_iteration_ms(&again.result) - sp_result_iteration_ms(&plain.result);
    assert_within(ms[1][SP_LIMIT_RECOMPUTE] / more_ms, 1.0, 1e-6);
    for (int i = 0; i < SP_LIMIT_PARTS; i++) {
        assert_true(i == SP_LIMIT_RECOMPUTE || fabs(ms[1][i] - ms[0][i]) < 1e-5);
    }
}

// 1F1B of M equal micro-batches on p ranks takes M + p - 1 of them (arXiv 2104.04473, section 2.2).
TEST(uniform_costs_have_the_bubble_alone)
{
    static const int ranks[] = {1, 2, 4, 8};
    for (int c = 0; c < COUNT_OF(ranks); c++) {
        double ms[SP_LIMIT_PARTS];
        SCENARIO_RUN(
            r,
            json_text("{'uniform_costs': {'f_ms': 10, 'b_ms': 12, 'w_ms': 8, 'p2p_ms': 0}, "
                      "'parallel': {'pp': %d}, 'schedule': {'microbatches': 16}}",
                      ranks[c]),
            &run_verified);
        assert_true(sp_result_limit_parts(&r.result, ms));
        assert_within(sp_result_limit_ms(&r.result), 16.0 * 30.0, 1e-9);
        for (int i = 0; i < SP_LIMIT_PARTS; i++) {
            double expected_ms = i == SP_LIMIT_PIPELINE ? 30.0 * (ranks[c] - 1) : 0.0;
            assert_within(ms[i], expected_ms, 1e-9);
        }
    }
}

// GPUs that differ have no common best rate.
TEST(jitter_has_no_limit)
{
    double ms[SP_LIMIT_PARTS];
    SCENARIO_RUN(r,
                 json_text(ON_ONE_NODE "'parallel': {'dp': 2}, 'jitter': {'gpu_cv': 0.02}, " EQUAL),
                 &(sp_evaluate_options){.no_causes = true});
    assert_false(sp_result_limit_parts(&r.result, ms));
    assert_true(isnan(sp_result_limit_share(&r.result)));
    json_auto_t *json = sp_result_json(&r.result, false);
    assert_true(json_is_null(json_object_get(json, "limit")));
}
