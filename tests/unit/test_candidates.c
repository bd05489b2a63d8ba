// A strategy that has another's packing among its candidates returns no worse plan: one that fits
// where the other fits, and then one that takes no longer, over random scenarios with what an
// estimate may leave out.
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static int drawn(sp_prng *prng, const int *from, uint64_t count)
{
    return from[sp_prng_below(prng, count)];
}

static void put_scenario(sp_prng *prng, char *text)
{
    static const char *const models[] = {
        "'llama-7b'", "{'layers': 8, 'hidden': 1024, 'ffn': 2816, 'heads': 16, 'vocab': 64000}"};
    static const int widths[] = {1, 2, 8};
    static const int limits_gib[] = {3, 30, 2000};
    static const char *const recomputes[] = {"none", "attention", "full"};
    int count = 5 + prng_below(prng, 30);
    int longest = 300 << sp_prng_below(prng, 5);
    put_json(text,
             "{'model': %s, 'cluster': 'h800-8', 'parallel': {'tp': %d, 'pp': %d, 'dp': %d, 'cp': "
             "%d, 'zero': %d, 'vocab_parallel': %s}, 'memory': {'limit_gib': %d, 'recompute': '%s',"
             " 'offload_ratio': %s}, 'workload': {'order': 'file', 'context': %d, 'lengths': [",
             models[sp_prng_below(prng, 2)], drawn(prng, widths, 3), 2 << sp_prng_below(prng, 2),
             1 + prng_below(prng, 2), 1 + prng_below(prng, 2), sp_prng_below(prng, 2) == 0 ? 3 : 1,
             sp_prng_below(prng, 2) == 0 ? "true" : "false", drawn(prng, limits_gib, 3),
             recomputes[sp_prng_below(prng, 3)], sp_prng_below(prng, 3) == 0 ? "0.3" : "0",
             8192 << sp_prng_below(prng, 3));
    for (int i = 0; i < count; i++) {
        put_json(text, "%s%d", i > 0 ? ", " : "", 1 + prng_below(prng, longest));
    }
    put_json(text, "]}, ");
}

// False: neither strategy has a plan.
static bool is_no_worse(const char *scenario, const char *candidate, const char *chooser,
                        int effort_percent)
{
    scenario_run r[2] = {0};
    bool planned[2];
    const char *const kinds[] = {candidate, chooser};
    char text[2][RUN_TEXT] = {"", ""};
    for (int i = 0; i < 2; i++) {
        sp_error_clear(ERR);
        put_json(text[i], "%s'strategy': {'kind': '%s'}}", scenario, kinds[i]);
        planned[i] =
            run_text(text[i],
                     &(sp_evaluate_options){.no_bounds = true, .effort_percent = effort_percent},
                     &r[i], ERR) == SP_OK;
    }
    bool oom[2] = {false, false};
    for (int i = 0; i < 2 && planned[i]; i++) {
        oom[i] = sp_result_is_oom(&r[i].result);
    }
    must_hold(!planned[0] || planned[1], "no plan: %s", text[1]);
    must_hold(!planned[0] || oom[0] || !oom[1], "out of memory: %s", text[1]);
    // Of plans that do not fit, the one that lacks least is taken.
    must_hold(!planned[0] || !oom[0] || !oom[1] || r[1].result.peak_bytes <= r[0].result.peak_bytes,
              "lacks more: %s", text[1]);
    // Not to fit tightly may cost a twentieth (packflow.h).
    bool spares = planned[0] && sp_result_fits(&r[0].result) == SP_FITS_TIGHT &&
                  sp_result_fits(&r[1].result) == SP_FITS_YES;
    must_hold(!planned[0] || oom[0] || oom[1] ||
                  sp_result_iteration_ms(&r[1].result) <=
                      (spares ? 1.05 : 1.0) * sp_result_iteration_ms(&r[0].result),
              "%.3f ms, %s %.3f: %s", sp_result_iteration_ms(&r[1].result), candidate,
              sp_result_iteration_ms(&r[0].result), text[1]);
    scenario_run_fini(&r[0]);
    scenario_run_fini(&r[1]);
    return planned[0];
}

TEST(tuned_rows)
{
    sp_prng prng = prng_seeded(97);
    int planned = 0;
    for (int round = 0; round < test_draws(150); round++) {
        char text[RUN_TEXT] = "";
        put_scenario(&prng, text);
        put_json(text, "'schedule': {'kind': '%s', 'slices': 4}, ",
                 sp_schedule_names[sp_prng_below(&prng, SP_SCHEDULE_KINDS)]);
        planned += is_no_worse(text, "packed", "packed-tuned", 100);
    }
    assert_in_range(planned, test_draws(50), test_draws(150));
}

TEST_OF_VALUES(asymmetric_packs)
{
    sp_prng prng = prng_seeded(101);
    int planned = 0;
    for (int round = 0; round < test_draws(40); round++) {
        char text[RUN_TEXT] = "";
        put_scenario(&prng, text);
        planned += is_no_worse(text, "slimpack-symmetric", "slimpack", 10);
    }
    assert_in_range(planned, test_draws(20), test_draws(40));
}
