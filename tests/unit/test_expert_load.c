// Experts that tokens choose unevenly: shares against closed forms and drawn tokens, the overload
// of the fullest rank against published figures, and what a step makes of it.
#include "sim/cost/expert_load.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

OWNS(sp_expert_load)

// ---- shares ----

// One of two experts: the difference of two logits is N(b0 - b1, 2).
TEST(one_of_two)
{
    static const double apart[] = {0.0, 0.1, 0.7, 2.0, 6.0};
    for (int i = 0; i < COUNT_OF(apart); i++) {
        double share[2];
        sp_expert_shares((const double[]){apart[i], 0.0}, 2, 1, share);
        assert_close(share[0], 0.5 * erfc(-apart[i] / 2.0), 1e-6);
        assert_close(share[0] + share[1], 1.0, 1e-12);
    }
}

// The share p that one of two experts gets is erfc(-d / 2) / 2 for biases that are d apart, and d
// is N(0, 2 std^2): what lies beyond the room of both, integrated over d. Draws scatter by 1.2 %.
TEST(rows_beyond_the_room_of_two_experts_are_dropped)
{
    static const double factors[] = {0.8, 1.0, 1.25};
    for (int f = 0; f < COUNT_OF(factors); f++) {
        sp_model model = {.layers = 3,
                          .experts = 2,
                          .experts_per_token = 1,
                          .forced_routing = true,
                          .expert_imbalance = 0.5,
                          .expert_imbalance_seed = 1,
                          .expert_capacity_factor = factors[f]};
        double expected = 0.0;
        for (double z = -8.0; z < 8.0; z += 1e-3) {
            const double density = exp(-z * z / 2.0) / sqrt(8.0 * atan(1.0)) * 1e-3;
            const double p = 0.5 * erfc(-0.5 * sqrt(2.0) * z / 2.0);
            expected +=
                density * (fmax(0.0, p - factors[f] / 2.0) + fmax(0.0, 1.0 - p - factors[f] / 2.0));
        }
        assert_close(sp_expert_dropped_share(&model), expected, 0.05);
        model.expert_imbalance = 0.0;
        assert_close(1.0 + sp_expert_dropped_share(&model), 1.0 + fmax(0.0, 1.0 - factors[f]),
                     1e-12);
        model.expert_capacity_factor = 0.0;
        assert_true(sp_expert_dropped_share(&model) == 0.0);
    }
}

TEST(equal_biases_and_all_experts)
{
    double bias[64];
    double share[64];
    for (int e = 0; e < 64; e++) {
        bias[e] = -1.3;
    }
    for (int active = 1; active <= 64; active *= 4) {
        sp_expert_shares(bias, 64, active, share);
        for (int e = 0; e < 64; e++) {
            assert_close(share[e], active / 64.0, 1e-9);
        }
    }
    for (int e = 0; e < 64; e++) {
        bias[e] = e / 16.0;
    }
    sp_expert_shares(bias, 64, 64, share);
    for (int e = 0; e < 64; e++) {
        assert_close(share[e], 1.0, 1e-6);
    }
}

static double normal(sp_prng *prng)
{
    double radius = sqrt(-2.0 * log(1.0 - sp_prng_uniform(prng)));
    return radius * cos(6.283185307179586 * sp_prng_uniform(prng));
}

// Tokens drawn one by one.
TEST_ROUNDS(drawn_tokens_choose_alike, 17, 6)
{
    enum { MOST = 16, TOKENS = 40000 };
    double bias[MOST];
    double share[MOST];
    int64_t chosen[MOST] = {0};
    int experts = 4 + (int)prng_below(prng, MOST - 3);
    int active = 1 + (int)prng_below(prng, 4);
    for (int e = 0; e < experts; e++) {
        bias[e] = 0.5 * normal(prng);
    }
    for (int t = 0; t < TOKENS; t++) {
        double logit[MOST];
        for (int e = 0; e < experts; e++) {
            logit[e] = bias[e] + normal(prng);
        }
        for (int k = 0; k < active; k++) {
            int best = 0;
            for (int e = 1; e < experts; e++) {
                best = logit[e] > logit[best] ? e : best;
            }
            chosen[best]++;
            logit[best] = -HUGE_VAL;
        }
    }
    sp_expert_shares(bias, experts, active, share);
    for (int e = 0; e < experts; e++) {
        double chance = 4.0 * sqrt(share[e] * (1.0 - fmin(share[e], 0.99)) / TOKENS);
        assert_true(fabs((double)chosen[e] / TOKENS - share[e]) < chance + 0.006);
    }
}

// ---- ranks ----

typedef struct forced {
    sp_model model;
    sp_layout layout;
    sp_stage stage;
} forced;

static sp_expert_load *load_of(forced *f, int experts, int active, int ranks, double std)
{
    f->model = (sp_model){.layers = 1,
                          .experts = experts,
                          .experts_per_token = active,
                          .forced_routing = true,
                          .expert_imbalance = std,
                          .expert_imbalance_seed = 1};
    f->layout = (sp_layout){LAYOUT(1, 1, 1, ranks, 1), .ep = ranks, .etp = 1};
    f->stage = (sp_stage){.layers = 1};
    return sp_expert_load_new(&f->model, &f->layout, &f->stage);
}

// Rows of the fullest rank over the mean, of one call in which every token is drawn.
static double overload_of_tokens(sp_prng *prng, int experts, int active, int ranks, int tokens,
                                 double std)
{
    enum { MOST = 64 };
    double bias[MOST];
    int rows[MOST] = {0};
    int most = 0;
    for (int e = 0; e < experts; e++) {
        bias[e] = std * normal(prng);
    }
    for (int t = 0; t < tokens; t++) {
        double logit[MOST];
        for (int e = 0; e < experts; e++) {
            logit[e] = bias[e] + normal(prng);
        }
        for (int k = 0; k < active; k++) {
            int best = 0;
            for (int e = 1; e < experts; e++) {
                best = logit[e] > logit[best] ? e : best;
            }
            rows[best * ranks / experts]++;
            logit[best] = -HUGE_VAL;
        }
    }
    for (int r = 0; r < ranks; r++) {
        most = rows[r] > most ? rows[r] : most;
    }
    return (double)most * ranks / ((double)tokens * active);
}

// Megatron-LM's definition, run token by token over many calls: the bar is 2 %, the mean of the
// calls errs by 0.6 % at most. Few tokens, so that their scatter counts as well as the biases.
TEST(as_full_as_drawn_tokens_make_it)
{
    static const struct {
        int experts, active, ranks, calls;
        double std;
    } cases[] = {{8, 2, 8, 4000, 0.0},  {8, 2, 8, 8000, 0.25},  {16, 2, 4, 4000, 0.5},
                 {64, 6, 8, 600, 0.25}, {64, 6, 16, 1000, 0.5}, {32, 4, 8, 3000, 1.0}};
    enum { TOKENS = 256 };
    sp_prng prng = prng_seeded(23);
    for (int i = 0; i < COUNT_OF(cases); i++) {
        forced f;
        OWNED(sp_expert_load) load =
            load_of(&f, cases[i].experts, cases[i].active, cases[i].ranks, cases[i].std);
        double sum = 0.0;
        double squares = 0.0;
        for (int c = 0; c < cases[i].calls; c++) {
            double overload = overload_of_tokens(&prng, cases[i].experts, cases[i].active,
                                                 cases[i].ranks, TOKENS, cases[i].std);
            sum += overload / cases[i].calls;
            squares += overload * overload / cases[i].calls;
        }
        double expected = sp_expert_load_expected(load, TOKENS);
        double error = sqrt((squares - sum * sum) / cases[i].calls) / sum;
        print_message("%d of %d experts on %d ranks, std %.2f: %.4f, drawn %.4f +- %.2f %%\n",
                      cases[i].active, cases[i].experts, cases[i].ranks, cases[i].std, expected,
                      sum, 100.0 * error);
        assert_true(error < 0.006);
        assert_close(expected, sum, 0.02);
    }
}

// Megatron-LM's forced routing run over whole batches of tokens: overload of the fullest rank, for
// a std above 0 the mean of four seeds, whose mean has half the deviation of one call: 1.2 to 12 %
// of it. Of a table made in the same way with four other seeds 11 of the 25 rows lie within 2 % of
// this one in the mean, 7 to 15 nine times in ten (NumPy, 80 to 400 calls for each row), and of
// what is expected here 14. The table ("megatron_forced_routing_imbalance", computed with
// Megatron-LM's definition) has one bias vector for each seed and number of experts, scaled by the
// std, so that its rows of one model err together: within three deviations of a mean of four.
TEST(the_fullest_rank_is_as_full_as_megatron_makes_it)
{
    static const struct {
        int experts, active, ranks;
        double tokens, overload[5]; // of std 0, 0.1, 0.25, 0.5, 1
    } rows[] = {{8, 2, 8, 32768, {1.015, 1.174, 1.458, 1.948, 2.733}},
                {64, 6, 8, 32768, {1.010, 1.078, 1.183, 1.346, 1.621}},
                {128, 8, 8, 32768, {1.008, 1.065, 1.177, 1.400, 1.773}},
                {128, 8, 32, 65536, {1.014, 1.234, 1.634, 2.385, 3.917}},
                {256, 8, 64, 65536, {1.024, 1.317, 1.895, 3.111, 5.669}}};
    static const double stds[] = {0.0, 0.1, 0.25, 0.5, 1.0};
    enum { CALLS = 2000 };
    for (int i = 0; i < COUNT_OF(rows); i++) {
        for (int s = 0; s < COUNT_OF(stds); s++) {
            forced f;
            OWNED(sp_expert_load) load =
                load_of(&f, rows[i].experts, rows[i].active, rows[i].ranks, stds[s]);
            double sum = 0.0;
            double squares = 0.0;
            for (int c = 0; c < CALLS; c++) {
                double mean = sp_expert_load_of(load, c, rows[i].tokens).mean;
                sum += mean / CALLS;
                squares += mean * mean / CALLS;
            }
            double deviation = sqrt(squares - sum * sum);
            double published = rows[i].overload[s];
            if (s == 0) {
                assert_close(sum, published, 0.005);
            }
            assert_true(fabs(published - sum) < 3.0 * deviation / (s > 0 ? 2.0 : 1.0) + 0.001);
            assert_close(sp_expert_load_expected(load, rows[i].tokens), sum, 0.03);
        }
    }
}

// What a seed draws, it draws again; another one draws something else. Below 0 calls are alike,
// above they are not.
TEST(draws_repeat)
{
    forced f;
    OWNED(sp_expert_load) anew = load_of(&f, 16, 2, 4, 0.3);
    OWNED(sp_expert_load) again = load_of(&f, 16, 2, 4, 0.3);
    forced g;
    OWNED(sp_expert_load) kept = load_of(&g, 16, 2, 4, -0.3);
    f.model.expert_imbalance_seed = 2;
    OWNED(sp_expert_load) other = sp_expert_load_new(&f.model, &f.layout, &f.stage);
    int alike = 0;
    int alike_kept = 0;
    int alike_other = 0;
    for (int c = 0; c < 50; c++) {
        double mean = sp_expert_load_of(anew, c, 8192).mean;
        assert_true(mean >= 1.0 && mean <= 4.0);
        assert_true(mean == sp_expert_load_of(again, c, 8192).mean);
        alike += mean == sp_expert_load_of(anew, c + 1, 8192).mean;
        alike_other += mean == sp_expert_load_of(other, c, 8192).mean;
        alike_kept +=
            sp_expert_load_of(kept, c, 8192).mean == sp_expert_load_of(kept, 0, 8192).mean;
    }
    assert_int_equal(alike_kept, 50);
    assert_true(alike < 5 && alike_other < 5);
}

// What several layers hold together differs less between ranks than what one does, and is no less
// than the mean; one layer holds what it has.
TEST(layers_level_each_other)
{
    forced f;
    OWNED(sp_expert_load) load = load_of(&f, 16, 2, 8, 0.5);
    sp_overload one = sp_expert_load_of(load, 3, 8192);
    assert_true(one.mean == one.most && one.most == one.held);
    sp_expert_load_free(load);
    f.model.layers = f.stage.layers = 24;
    load = sp_expert_load_new(&f.model, &f.layout, &f.stage);
    for (int c = 0; c < 10; c++) {
        sp_overload all = sp_expert_load_of(load, c, 8192);
        assert_true(all.most > all.mean && all.mean > all.held && all.held >= 1.0);
    }
}

TEST(even_routing_has_no_load)
{
    forced f;
    sp_expert_load *load = load_of(&f, 8, 2, 1, 0.5);
    assert_null(load); // one rank has all experts
    f.layout.ep = 4;
    f.model.forced_routing = false;
    assert_null(sp_expert_load_new(&f.model, &f.layout, &f.stage));
}

// ---- steps ----

#define FORCED_RUN                                                                                 \
    "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000, 'experts': "   \
    "16, 'experts_per_token': 2, 'expert_imbalance': %s, 'expert_imbalance_seed': %d}, 'cluster':" \
    " 'h100-8', 'profile': 'h100-burst', 'strategy': {'kind': 'packed'}, 'workload': {'uniform': " \
    "4096, "                                                                                       \
    "'samples_per_batch': 32}, 'parallel': {'tp': %d, 'dp': 4, 'ep': 4, 'etp': 1, "                \
    "'sequence_parallel': %s}}"

static scenario_run forced_run(const char *imbalance, int seed, int tp)
{
    scenario_run r;
    run_good(json_text(FORCED_RUN, imbalance, seed, tp, tp > 1 ? "true" : "false"), &run_verified,
             &r);
    return r;
}

// The mean rank works as with even routing and waits for the fullest, whose rows memory holds: more
// with more imbalance, and also where the ranks that share experts are of one tensor-parallel
// group.
TEST(the_fullest_rank_sets_the_pace)
{
    static const char *const stds[] = {"0", "0.1", "1"};
    for (int tp = 1; tp <= 4; tp *= 4) {
        AUTO(scenario_run) even = forced_run("'exact'", 1, tp);
        assert_true(even.result.sum.overload.mean == 0.0);
        int64_t least_bytes = even.result.peak_bytes;
        double least_ns = even.result.iteration_ns;
        for (int i = 0; i < COUNT_OF(stds); i++) {
            AUTO(scenario_run) r = forced_run(stds[i], 1, tp);
            double wait_ms = sp_result_expert_wait_ms(&r.result);
            assert_true(r.result.iteration_ns > least_ns);
            assert_true(r.result.peak_bytes > least_bytes);
            assert_true(r.result.busy_ns - r.result.ep_wait_ns == even.result.busy_ns);
            // All wait for the same rows.
            assert_close(wait_ms + even.result.iteration_ns / 1e6, r.result.iteration_ns / 1e6,
                         1e-4);
            least_ns = r.result.iteration_ns;
            least_bytes = r.result.peak_bytes;
        }
    }
}

TEST(seeds)
{
    AUTO(scenario_run) first = forced_run("0.25", 1, 1);
    AUTO(scenario_run) again = forced_run("0.25", 1, 1);
    AUTO(scenario_run) other = forced_run("0.25", 2, 1);
    assert_true(first.result.iteration_ns == again.result.iteration_ns);
    assert_true(first.result.iteration_ns != other.result.iteration_ns);
}

static void refuses(const char *value, const char *message)
{
    AUTO(sp_scenario) scenario;
    must_fail_with(run_read(json_text(FORCED_RUN, value, 1, 1, "false"), &scenario, ERR),
                   SP_ERR_CONTENT, "model.expert_imbalance: ");
    assert_non_null(strstr(ERR->message[0], message));
    sp_error_clear(ERR);
}

TEST(bad_values_are_refused)
{
    refuses("'even'", "expected \"exact\" or a number from -4 to 4, got \"even\"");
    refuses("true", "expected \"exact\" or a number from -4 to 4");
    refuses("4.5", "4.5");
}
