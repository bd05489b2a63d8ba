// Properties of every schedule, strategy and layout together, on scenarios drawn at random.
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static bool one_in(sp_prng *prng, int count)
{
    return sp_prng_below(prng, (uint64_t)count) == 0;
}

static void put_model(sp_prng *prng, char *text)
{
    static const int layers[] = {8, 16}, hidden[] = {256, 512, 1024, 4096}, kv_heads[] = {1, 2, 8};
    static const int vocab[] = {1000, 32000, 50304, 200000};
    static const char *const seen[] = {"", "", ", 'window_tokens': 200", ", 'chunk_tokens': 1000"};
    bool llama = one_in(prng, 2);
    put_json(text,
             "{'model': {'layers': %d, 'hidden': %d, 'ffn': %d, 'heads': 8, 'kv_heads': %d, "
             "'vocab': %d, 'tied_embeddings': %s, 'activation': '%s', 'norm': '%s', "
             "'positional': '%s'%s}, ",
             ONE_OF(prng, layers), ONE_OF(prng, hidden), one_in(prng, 2) ? 512 : 4096,
             ONE_OF(prng, kv_heads), ONE_OF(prng, vocab), one_in(prng, 2) ? "true" : "false",
             llama ? "swiglu" : "gelu", llama ? "rmsnorm" : "layernorm", llama ? "rope" : "learned",
             ONE_OF(prng, seen));
}

static void put_lengths(sp_prng *prng, char *text)
{
    static const double most[] = {8.0, 11.0, 14.0};
    double longest = ONE_OF(prng, most);
    int samples = 1 + prng_below(prng, 20);
    put_json(text, "'workload': {'lengths': [");
    for (int i = 0; i < samples; i++) {
        put_json(text, "%s%d", i > 0 ? ", " : "", (int)exp2(longest * sp_prng_uniform(prng)) + 1);
    }
    put_json(text, "], 'context': 16384, 'order': 'file', 'samples_per_batch': %d}, ", samples);
}

static void put_memory(sp_prng *prng, char *text)
{
    static const char *const recompute[] = {"none", "activation", "partial-fc1", "attention",
                                            "full"};
    static const double ratios[] = {0.0, 0.0, 0.0, 0.2, 0.5, 0.7, 1.0};
    put_json(text,
             "'memory': {'limit_gib': 5000, 'recompute': '%s', 'attention': '%s', "
             "'offload_ratio': %g}, 'stack': {'name': 'ours', 'tensors': '%s'}, ",
             ONE_OF(prng, recompute), one_in(prng, 3) ? "unfused" : "flash", ONE_OF(prng, ratios),
             one_in(prng, 2) ? "explicit" : "autograd");
}

// A schedule of its own, or the strategy that brings one. Returns the chunks of a rank.
static int put_order(sp_prng *prng, char *text, int pp)
{
    static const char *const brought[] = {"slimpack",    "slimpack-symmetric", "slimpack-zb",
                                          "slimpack-zb", "chunkflow",          "slimpipe"};
    static const char *const packed[] = {"padded", "packed", "sorted",  "ffd",
                                         "bfd",    "lpfhp",  "balanced"};
    // Ranks may share their samples, which stay whole.
    static const char *const shared[] = {"hybrid-cp", "bytescale", "flexsp",  "te-cp",
                                         "llama-cp",  "hybrid-dp", "zeppelin"};
    static const char *const schedules[] = {"gpipe",   "1f1b",     "interleaved", "zb-h1",
                                            "zb-h2",   "zb-v",     "v-half",      "v-min",
                                            "seq1f1b", "terapipe", "chunkflow",   "dualpipe-v"};
    static const int tokens[] = {64, 256, 1000};
    if (one_in(prng, 2)) {
        const char *kind = ONE_OF(prng, brought);
        bool zb = strcmp(kind, "slimpack-zb") == 0;
        put_json(text, "'strategy': {'kind': '%s'", kind);
        if (strcmp(kind, "slimpipe") == 0) {
            put_json(text, "}, 'schedule': {'slices': %d}", pp * (one_in(prng, 2) ? 2 : 1));
        } else if (one_in(prng, 2)) {
            put_json(text, ", '%s': %d}",
                     strcmp(kind, "chunkflow") == 0 ? "chunk_tokens" : "slice_tokens",
                     ONE_OF(prng, tokens));
        } else {
            put_json(text, "}");
        }
        return zb && one_in(prng, 3) ? 2 : 1;
    }
    if (one_in(prng, 4)) {
        put_json(text, "'strategy': {'kind': '%s', 'rank_tokens': %d}", ONE_OF(prng, shared),
                 4 * ONE_OF(prng, tokens));
        return 0;
    }
    const char *kind = ONE_OF(prng, schedules);
    bool sliced = strcmp(kind, "seq1f1b") == 0 || strcmp(kind, "terapipe") == 0 ||
                  strcmp(kind, "chunkflow") == 0;
    put_json(text, "'strategy': {'kind': '%s'}, 'schedule': {'kind': '%s'%s}", ONE_OF(prng, packed),
             kind,
             !sliced           ? ", 'group': 'even'"
             : one_in(prng, 2) ? ", 'slices': 2"
                               : ", 'slices': 4");
    return strcmp(kind, "interleaved") == 0 ? 2 : 0;
}

static void draw_text(sp_prng *prng, char text[RUN_TEXT])
{
    static const int pipelines[] = {1, 2, 2, 4, 4}, degrees[] = {1, 1, 2, 4}, dp[] = {1, 1, 2, 3};
    int pp = ONE_OF(prng, pipelines);
    text[0] = '\0';
    put_model(prng, text);
    put_lengths(prng, text);
    put_memory(prng, text);
    int chunks = put_order(prng, text, pp);
    bool fitted = one_in(prng, 2);
    put_json(text, ", 'cluster': '%s', 'profile': '%s', ", fitted ? "h100-8" : "h800-8",
             fitted ? "h100" : "linear");
    put_json(text,
             "'parallel': {'pp': %d, 'tp': %d, 'cp': %d, 'dp': %d, 'zero': %d, "
             "'vocab_parallel': %s",
             pp, ONE_OF(prng, degrees), ONE_OF(prng, degrees), ONE_OF(prng, dp),
             prng_below(prng, 4), one_in(prng, 3) ? "false" : "true");
    if (chunks > 0) {
        put_json(text, ", 'chunks_per_rank': %d", chunks);
    }
    put_json(text, "}}");
}

// A scenario that cannot be (too few micro-batches, a layout that a schedule does not have) is no
// finding; whatever else goes wrong is.
static bool evaluates(const char *text, const sp_evaluate_options *options, scenario_run *r)
{
    sp_error_clear(ERR);
    sp_status status = run_read(text, &r->scenario, ERR);
    status = status == SP_OK ? sp_evaluate_batches(&r->scenario, &r->batches, ERR) : status;
    status =
        status == SP_OK ? sp_evaluate(&r->scenario, &r->batches, options, &r->result, ERR) : status;
    must_hold(status == SP_OK || status == SP_ERR_CONTENT || status == SP_ERR_INFEASIBLE, "%s: %s",
              text, ERR->message[0]);
    return status == SP_OK;
}

static void bounds_hold(const char *text, const scenario_run *r)
{
    limit_holds(text, &r->result);
    for (size_t b = 0; b < r->result.batch_count; b++) {
        const sp_batch_result *batch = &r->result.batches[b];
        double bound_ns = batch->facts.lower_bound_ns;
        must_hold(bound_ns > 0.0 && bound_ns <= (double)batch->iteration_ns,
                  "bound %.3f above %lld ns: %s", bound_ns, (long long)batch->iteration_ns, text);
    }
}

// No step is faster than its lower bound, and no rank holds less than nothing, which is a defect of
// the memory timeline (sim/simulate/memory.h).
TEST(any_scenario)
{
    enum { ROUNDS = 60 };
    sp_prng prng = prng_seeded(29);
    int ran = 0;
    for (int round = 0; round < test_draws(ROUNDS); round++) {
        char text[RUN_TEXT];
        AUTO(scenario_run) r = {0};
        draw_text(&prng, text);
        if (evaluates(text, &run_verified, &r)) {
            bounds_hold(text, &r);
            ran++;
        }
    }
    assert_true(ran > test_draws(ROUNDS) / 2);
}

// Data-parallel ranks that share samples too long for one of them, by any strategy, schedule and
// ZeRO level, over links that transfers share.
static void draw_shared_text(sp_prng *prng, char text[RUN_TEXT])
{
    static const char *const strategies[] = {"hybrid-cp", "bytescale", "flexsp",
                                             "te-cp",     "llama-cp",  "hybrid-dp",
                                             "zeppelin",  "packed",    "slimpack"};
    static const char *const schedules[] = {"gpipe",   "1f1b",    "interleaved", "zb-h1",
                                            "zb-h2",   "zb-v",    "v-half",      "v-min",
                                            "zb-auto", "seq1f1b", "dualpipe-v"};
    static const char *const orders[] = {"tp-cp-dp-pp", "pp-tp-cp-dp", "tp-dp-cp-pp"};
    static const char *const details[] = {"closed", "auto", "flows"};
    static const int pipelines[] = {1, 2, 2, 2, 4}, degrees[] = {1, 1, 2}, most[] = {32, 400, 4000};
    const char *strategy = ONE_OF(prng, strategies);
    bool brings = strcmp(strategy, "slimpack") == 0;
    int longest = ONE_OF(prng, most);
    bool even = one_in(prng, 2);
    int samples = 2 + prng_below(prng, 40);
    int dp = 2 + prng_below(prng, 3);
    text[0] = '\0';
    put_model(prng, text);
    put_json(text, "'workload': {'lengths': [%d", longest);
    for (int i = 1; i < samples; i++) {
        double share = sp_prng_uniform(prng);
        put_json(text, ", %d", 1 + (int)(even ? longest * share : pow(longest, share)));
    }
    put_json(text,
             "], 'context': 4001, 'order': 'file', 'samples_per_batch': %d}, 'memory': "
             "{'limit_gib': 5000}, 'cluster': {'name': '%s', 'nic_gbit_per_s': %g, "
             "'gpus_per_node': %d, 'nics_per_node': %d}, 'strategy': {'kind': '%s'",
             samples, one_in(prng, 2) ? "h100-8" : "a100-8",
             exp2(3.0 + 9.0 * sp_prng_uniform(prng)), 2 << prng_below(prng, 3),
             1 << prng_below(prng, 4), strategy);
    if (!brings && strcmp(strategy, "packed") != 0) {
        put_json(text, ", 'rank_tokens': %d", longest / (one_in(prng, 2) ? 2 : dp) + 1);
    }
    put_json(text, brings ? "}, " : "}, 'schedule': {'kind': '%s'}, ", ONE_OF(prng, schedules));
    put_json(text,
             "'network': {'detail': '%s'}, 'parallel': {'pp': %d, 'tp': %d, 'cp': %d, 'dp': %d, "
             "'zero': %d, 'order': '%s'}}",
             ONE_OF(prng, details), ONE_OF(prng, pipelines), ONE_OF(prng, degrees),
             ONE_OF(prng, degrees), dp, prng_below(prng, 4), ONE_OF(prng, orders));
}

// Whatever meets on the links, the step is the longest path through what ran.
TEST(any_scenario_over_shared_links)
{
    enum { ROUNDS = 400 };
    sp_prng prng = prng_seeded(37);
    int ran = 0;
    for (int round = 0; round < test_draws(ROUNDS); round++) {
        char text[RUN_TEXT];
        AUTO(scenario_run) r = {0};
        draw_shared_text(&prng, text);
        if (evaluates(text, &run_verified, &r)) {
            bounds_hold(text, &r);
            ran++;
        }
    }
    assert_true(ran > test_draws(ROUNDS) / 2);
}

// Packs that do not depend on links, in ranks that share cards and lie over nodes in several ways.
// In general a faster link may slow a step: where a second transfer waits for one over that link
// and then shares another link with a third that the step waits for, the third ends later. With a
// link of its own for the first, 10 bytes at 1 a nanosecond for the third, 5 for the second and
// 20 ns for the first, the third ends at 10 ns; with 0 ns for the first it ends at 15 ns. Packs
// over several ranks do not go with ZeRO 3 here: what its ranks wait for in their layers is that of
// closed times, which a faster link shortens elsewhere than where flows meet.
TEST(no_faster_card_slows_these_plans)
{
    static const char *const cases[] = {
        "'parallel': {'pp': 4, 'dp': 3, 'cp': 2}, 'strategy': {'kind': 'bytescale', 'rank_tokens': "
        "2048}",
        "'parallel': {'pp': 4, 'dp': 3, 'cp': 2, 'zero': 3}, 'strategy': {'kind': 'te-cp'}",
        "'parallel': {'pp': 2, 'dp': 6, 'cp': 2}, 'strategy': {'kind': 'hybrid-cp', 'rank_tokens': "
        "1024}, 'schedule': {'kind': 'zb-h1'}",
        "'parallel': {'pp': 2, 'tp': 2, 'dp': 3, 'zero': 2, 'order': 'pp-tp-cp-dp'}, 'strategy': "
        "{'kind': 'hybrid-dp'}",
        "'parallel': {'pp': 4, 'dp': 3, 'zero': 3}, 'strategy': {'kind': 'packed'}, 'schedule': "
        "{'kind': 'zb-h1'}",
    };
    for (int c = 0; c < COUNT_OF(cases); c++) {
        int64_t last_ns = INT64_MAX;
        for (double gbit_per_s = 100.0; gbit_per_s < 1e4; gbit_per_s *= 1.5) {
            AUTO(scenario_run) r;
            const char *text = json_text(
                "{'model': {'layers': 16, 'hidden': 1024, 'ffn': 2816, 'heads': 16, 'vocab': "
                "8000}, 'cluster': {'name': 'a100-8', 'nic_gbit_per_s': %g}, 'profile': "
                "'a100-burst', 'workload': "
                "{'lengths': [4000, 500, 2000, 3000, 100, 3500, 2500, 4096, 800, 1700, 3900, "
                "64], 'context': 4096, 'order': 'file', 'samples_per_batch': 12}, 'memory': "
                "{'limit_gib': 5000}, 'network': {'detail': 'flows'}, %s}",
                gbit_per_s, cases[c]);
            run_good(text, &run_verified, &r);
            int64_t ns = r.result.batches[0].iteration_ns;
            must_hold(ns - last_ns <= last_ns / 1000, "%lld ns after %lld: %s", (long long)ns,
                      (long long)last_ns, text);
            last_ns = ns;
        }
    }
}

// Many samples, of which memory holds few at a time.
static void draw_busy_text(sp_prng *prng, char text[RUN_TEXT])
{
    static const int pipelines[] = {2, 4, 8}, most[] = {10, 12, 14}, degrees[] = {1, 2};
    static const char *const recompute[] = {"none", "none", "attention", "full"};
    int pp = ONE_OF(prng, pipelines);
    int longest = ONE_OF(prng, most);
    text[0] = '\0';
    put_json(text, "{'model': {'layers': 16, 'hidden': 2048, 'ffn': 5632, 'heads': 16, 'vocab': "
                   "32000}, 'cluster': 'h800-8', 'profile': 'h800', 'workload': {'lengths': [");
    for (int i = 0; i < 60; i++) {
        put_json(text, "%s%d", i > 0 ? ", " : "", (int)exp2(longest * sp_prng_uniform(prng)) + 1);
    }
    put_json(text,
             "], 'context': 16384, 'order': 'file', 'samples_per_batch': 60}, 'memory': "
             "{'limit_gib': 5000, 'recompute': '%s', 'offload_ratio': %s}, ",
             ONE_OF(prng, recompute), one_in(prng, 4) ? "0.5" : "0");
    int chunks = put_order(prng, text, pp);
    put_json(text, ", 'parallel': {'pp': %d, 'tp': %d, 'cp': %d, 'dp': %d", pp,
             ONE_OF(prng, degrees), ONE_OF(prng, degrees), ONE_OF(prng, degrees));
    if (chunks > 0) {
        put_json(text, ", 'chunks_per_rank': %d", chunks);
    }
    put_json(text, "}}");
}

// Bytes beside the states on the rank that has most of them.
static double room_bytes(const sp_result *result)
{
    const int64_t *of = result->peak.of;
    return (double)(sp_bytes_total(&result->peak) - of[SP_MEM_PARAMETERS] - of[SP_MEM_GRADIENTS] -
                    of[SP_MEM_OPTIMIZER]);
}

// Neither is a step that fits into little memory, whatever strategies do to make it fit. A limit
// that no plan notices adds nothing.
TEST(any_scenario_in_little_memory)
{
    enum { ROUNDS = 20 };
    static const sp_evaluate_options plain = {.no_causes = true};
    static const double shares[] = {1.0, 0.5, 0.3};
    sp_prng prng = prng_seeded(31);
    int fitted = 0;
    int bounded = 0;
    for (int round = 0; round < test_draws(ROUNDS); round++) {
        char text[RUN_TEXT];
        AUTO(scenario_run) free = {0};
        draw_busy_text(&prng, text);
        bool ran = evaluates(text, &plain, &free);
        assert_true(!ran || free.result.sum.bound_memory_ns == 0.0);
        for (int i = 0; ran && i < COUNT_OF(shares); i++) {
            AUTO(scenario_run) r = {0};
            must_succeed(run_read(text, &r.scenario, ERR));
            r.scenario.memory_limit_bytes =
                free.result.peak_bytes - (int64_t)((1.0 - shares[i]) * room_bytes(&free.result));
            must_succeed(sp_evaluate_batches(&r.scenario, &r.batches, ERR));
            if (sp_evaluate(&r.scenario, &r.batches, &plain, &r.result, ERR) == SP_OK) {
                bool fits = !sp_result_is_oom(&r.result);
                bounds_hold(text, &r);
                fitted += fits;
                bounded += r.result.sum.bound_memory_ns > 0.0;
                assert_true(fits || r.result.sum.bound_memory_ns == 0.0);
            }
            sp_error_clear(ERR);
        }
    }
    print_message("%d steps fit, of %d memory moves the bound\n", fitted, bounded);
    assert_true(bounded > 0);
}

// With one long sample the way through the pipeline is the step. The ranks do their shares of the
// head beside each other, so that the way has them once and not for every rank.
TEST(shares_of_a_head_bound_the_way_once)
{
    static const int pipelines[] = {2, 4, 8}, vocab[] = {32000, 128256};
    for (int p = 0; p < COUNT_OF(pipelines); p++) {
        for (int v = 0; v < COUNT_OF(vocab); v++) {
            AUTO(scenario_run) r;
            const char *text = json_text(
                "{'model': {'layers': 32, 'hidden': 4096, 'ffn': 11008, 'heads': 32, 'vocab': "
                "%d}, 'cluster': 'h800-8', 'profile': 'linear', 'parallel': {'tp': 8, 'pp': "
                "%d, 'vocab_parallel': true}, 'workload': {'lengths': [16384]}, 'strategy': "
                "{'kind': 'packed'}}",
                vocab[v], pipelines[p]);
            run_good(text, &run_verified, &r);
            bounds_hold(text, &r);
        }
    }
}

// Backward packs whose rows are rounded apart from those of the forward packs that they give back;
// tensors that came back into the buffer of a copy, which stays; masks that a share of the
// embedding does not have.
TEST(no_rank_holds_less_than_nothing)
{
    static const char *const cases[] = {
        "{'model': 'llama-7b', 'parallel': {'tp': 4, 'pp': 4, 'cp': 2, 'vocab_parallel': true}, "
        "'memory': {'limit_gib': 500}, 'workload': {'lengths': [4639, 3135, 3607, 1363, 1354, 265, "
        "3294, 594, 3735, 1554, 2897, 1769, 1367, 424, 1479, 4423, 3703, 3424, 3683]}, 'strategy': "
        "{'kind': 'slimpack'}, ",
        "{'model': 'llama-7b', 'parallel': {'pp': 2}, 'memory': {'limit_gib': 5000, 'recompute': "
        "'full', 'offload_ratio': 1.0}, 'workload': {'lengths': [16384, 16384]}, 'strategy': "
        "{'kind': 'slimpack-symmetric'}, "
        "'stack': {'name': 'ours', 'tensors': 'explicit'}, ",
        "{'model': {'layers': 16, 'hidden': 1536, 'ffn': 6144, 'heads': 16, 'vocab': 50304, "
        "'activation': 'gelu', 'norm': 'layernorm', 'tied_embeddings': true, 'positional': "
        "'learned'}, 'parallel': {'pp': 2}, 'memory': {'limit_gib': 5000, 'offload_ratio': 1.0}, "
        "'workload': {'lengths': [1000]}, 'schedule': {'kind': 'v-min'}, 'stack': {'name': 'ours', "
        "'tensors': 'explicit'}, ",
        "{'model': {'layers': 16, 'hidden': 1536, 'ffn': 6144, 'heads': 16, 'vocab': 50304, "
        "'activation': 'gelu', 'norm': 'layernorm', 'tied_embeddings': true}, 'parallel': {'tp': "
        "2, 'pp': 4, 'vocab_parallel': true}, 'workload': {'lengths': [1000]}, 'schedule': "
        "{'kind': 'chunkflow', 'slices': 2, 'retained_chunks': 1}, 'stack': {'name': 'ours', "
        "'tensors': 'explicit'}, "};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        AUTO(scenario_run) r;
        const char *text = json_text("%s'cluster': 'h800-8', 'profile': 'linear'}", cases[i]);
        run_good(text, &run_verified, &r);
    }
}
