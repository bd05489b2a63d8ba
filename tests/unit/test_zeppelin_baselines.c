// The bar of zeppelin: over a job it is never slower than te-cp, llama-cp and hybrid-dp, whatever
// the scenario states of the exchange of keys and values, the network and the cut of packs.
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static const char *const baselines[] = {"te-cp", "llama-cp", "hybrid-dp"};

static double job_ms(const char *kind, const char *options, const char *more)
{
    SCENARIO_RUN(r, json_text("%s, 'strategy': {%s'kind': '%s'}}", more, options, kind),
                 &run_verified);
    return sp_result_iteration_ms(&r.result);
}

// Holds the bar; returns how many times as long as zeppelin the best baseline takes.
static double lead_of(const char *options, const char *more)
{
    double best = HUGE_VAL;
    double ms = job_ms("zeppelin", options, more);
    for (int i = 0; i < COUNT_OF(baselines); i++) {
        double of_baseline = job_ms(baselines[i], options, more);
        must_hold(ms <= of_baseline * (1.0 + 1e-9), "zeppelin %.6f ms, %s %.6f ms, {%s}: %s}", ms,
                  baselines[i], of_baseline, options, more);
        best = fmin(best, of_baseline);
    }
    return best / ms;
}

TEST(no_slower_than_its_baselines)
{
    static const int layouts[][3] = {{1, 1, 16}, {2, 1, 8}, {1, 2, 16}, {1, 1, 6}};
    for (int l = 0; l < COUNT_OF(layouts); l++) {
        for (int k = 0; k < 2; k++) {
            lead_of("",
                    json_text("{'model': 'llama-7b', 'cluster': '%s', 'parallel': {'tp': %d, 'pp': "
                              "%d, 'dp': %d}, 'memory': {'recompute': 'full'}, 'workload': "
                              "{'lengths': 'wikipedia', 'context': 32768, 'tokens_per_batch': "
                              "100000, 'seed': %d}",
                              k == 0 ? "a800-8" : "h800-8", layouts[l][0], layouts[l][1],
                              layouts[l][2], k + 1));
        }
    }
}

// Mostly short, one in five long.
static void put_lengths(sp_prng *prng, char text[RUN_TEXT])
{
    int count = 1 + prng_below(prng, 40);
    int batches = 1 + prng_below(prng, 3);
    put_json(text, "'workload': {'context': 65536, 'samples_per_batch': %d, 'batches': %d",
             (count + batches - 1) / batches, batches);
    for (int i = 0; i < count; i++) {
        int most = prng_below(prng, 5) == 0 ? 60000 : 3000;
        put_json(text, "%s%d", i > 0 ? ", " : ", 'lengths': [", 1 + prng_below(prng, most));
    }
    put_json(text, "]}");
}

// A model, a layout and lengths; `cp`: with context-parallel ranks beside the merged ones.
static void put_job(sp_prng *prng, bool cp, char text[RUN_TEXT])
{
    static const char *const clusters[] = {"a800-8", "h800-8", "h100-8", "a100-selene"};
    static const int ranks[] = {2, 4, 6, 8, 16, 32};
    put_json(text,
             "{'model': {'layers': 8, 'hidden': %d, 'ffn': 8192, 'heads': 16, 'kv_heads': %d, "
             "'vocab': 1000}, 'cluster': {'name': '%s'%s}, 'parallel': {'tp': %d, 'cp': %d, 'pp': "
             "%d, 'dp': %d}, 'memory': {'recompute': '%s'}, ",
             prng_below(prng, 2) == 0 ? 1024 : 4096, prng_below(prng, 2) == 0 ? 16 : 4,
             ONE_OF(prng, clusters),
             prng_below(prng, 4) == 0 ? ", 'fabric': {'nodes_per_leaf': 1, 'oversubscription': 4}"
                                      : "",
             1 + prng_below(prng, 2), cp ? 1 << prng_below(prng, 3) : 1, 1 << prng_below(prng, 2),
             ONE_OF(prng, ranks), prng_below(prng, 2) == 0 ? "full" : "none");
    put_lengths(prng, text);
}

// What a scenario may state beside, each as often as not: how keys and values come together and
// over how many NICs, and how the network is priced.
static void put_stack(sp_prng *prng, char text[RUN_TEXT])
{
    static const char *const overlaps[] = {"attention", "attention", "qkv", "blocking", "gathered"};
    static const char *const stacks[] = {"ours", "megatron-core-2024", "megatron-core-2025"};
    static const int nics[] = {0, 1, 1, 2, 4, 64};
    static const char *const collectives[] = {"profile", "ring", "tree", "hierarchical", "auto"};
    put_json(text, ", 'stack': {'name': '%s'", ONE_OF(prng, stacks));
    if (prng_below(prng, 2) == 0) {
        put_json(text, ", 'cp_overlap': '%s'", ONE_OF(prng, overlaps));
    }
    if (prng_below(prng, 2) == 0) {
        put_json(text, ", 'cp_ring_nics': %d", ONE_OF(prng, nics));
    }
    put_json(text, "}, 'network': {'detail': '%s', 'collectives': '%s'}",
             prng_below(prng, 2) == 0 ? "flows" : "closed",
             prng_below(prng, 2) == 0 ? "profile" : ONE_OF(prng, collectives));
}

TEST(no_slower_where_groups_start)
{
    static const int starts_ms[] = {0, 0, 3, 30, 1000};
    sp_prng prng = prng_seeded(29);
    int faster = 0;
    for (int round = 0; round < test_rounds(96); round++) {
        char text[RUN_TEXT] = "";
        char options[64] = "";
        put_json(options, "'group_start_ms': %d, ", ONE_OF(&prng, starts_ms));
        put_job(&prng, false, text);
        faster += lead_of(options, text) > 1.0 / 0.98;
    }
    assert_true(faster > 0);
}

TEST(no_slower_with_any_stack)
{
    static const char *const cuts[] = {"", "", "'cp_sharding': 'document', ",
                                       "'cp_sharding': 'adaptive', 'cp_ring_steps': true, "};
    sp_prng prng = prng_seeded(31);
    int faster = 0;
    for (int round = 0; round < test_rounds(96); round++) {
        char text[RUN_TEXT] = "";
        put_job(&prng, prng_below(&prng, 3) == 0, text);
        put_stack(&prng, text);
        faster += lead_of(ONE_OF(&prng, cuts), text) > 1.0 / 0.98;
    }
    assert_true(faster > 0);
}
