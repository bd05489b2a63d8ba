// The SlimPack strategies on whole scenarios: no slower than what they grow out of, the same plan
// every time, merged ranks for outliers, and the edges of workloads and layouts.
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static const char *const kinds[] = {"slimpack-symmetric", "slimpack", "slimpack-zb"};

enum { KINDS = 3, PLAN_BYTES = 1 << 20 };

// What the observer finds in the plan of the last batch.
typedef struct finding {
    size_t merged; // forward packs on several ranks
    size_t cut;    // slices that are not whole samples
    char *text;    // every slice and action; NULL: not wanted
    size_t text_used;
} finding;

static void note(finding *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int more = vsnprintf(f->text + f->text_used, PLAN_BYTES - f->text_used, format, args);
    va_end(args);
    assert_true(more >= 0 && (size_t)more < PLAN_BYTES - f->text_used);
    f->text_used += (size_t)more;
}

static void write_list(finding *f, const sp_pack_list *list)
{
    for (size_t k = 0; k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        note(f, "%d+%d:", pack->dp_first, pack->dp_count);
        for (size_t i = 0; i < pack->slice_count; i++) {
            const sp_slice *slice = &list->slices[pack->first_slice + i];
            note(f, " %d@%ld+%ld", (int)slice->sample, (long)slice->begin, (long)slice->tokens);
        }
        note(f, "\n");
    }
}

static sp_status look(void *context, const sp_step_view *view, sp_error *err)
{
    finding *f = context;
    const sp_packing *packing = view->plan->packing;
    for (size_t k = 0; k < packing->forward.count; k++) {
        const sp_pack *pack = &packing->forward.packs[k];
        f->merged += pack->dp_count > 1;
        for (size_t i = 0; i < pack->slice_count; i++) {
            const sp_slice *slice = &packing->forward.slices[pack->first_slice + i];
            f->cut += slice->tokens < packing->batch->tokens[slice->sample];
        }
    }
    if (f->text != NULL) {
        write_list(f, &packing->forward);
        write_list(f, &packing->backward);
        int stages = view->plan->layout.dp * view->plan->layout.pp;
        for (int s = 0; s < stages; s++) {
            for (size_t a = 0; a < view->plan->stages[s].count; a++) {
                sp_action action = view->plan->stages[s].actions[a];
                note(f, "%d/%d ", (int)action.kind, (int)action.pack);
            }
            note(f, "\n");
        }
    }
    return sp_plan_check(view->plan, "test", err);
}

// With a part of a search's effort.
static double part_ms(int percent, const char *kind, const char *scenario, finding *found)
{
    finding own = {0};
    finding *f = found != NULL ? found : &own;
    const sp_evaluate_options options = {.engine = {.verify = true},
                                         .effort_percent = percent,
                                         .observer = look,
                                         .observer_context = f};
    const char *text = json_text("%s, 'strategy': {'kind': '%s'}}", scenario, kind);
    SCENARIO_RUN(r, text, &options);
    double ms = sp_result_iteration_ms(&r.result);
    assert_true(ms > 0.0);
    if (strncmp(kind, "slimpack", 8) == 0) {
        assert_true(r.result.lossless);
        assert_string_equal(r.result.schedule, "packflow");
        const sp_batch_facts *facts = &r.result.batches[0].facts;
        assert_int_equal(facts->tokens, r.batches.batch[0].total_tokens);
        assert_int_equal(facts->computed_tokens, facts->tokens + facts->padding_tokens);
    }
    return ms;
}

static double iteration_ms(const char *kind, const char *scenario, finding *found)
{
    return part_ms(100, kind, scenario, found);
}

static void no_slower(int context, int dp, int seed)
{
    const char *text = json_text(
        "{'model': 'llama-13b', 'cluster': 'h800-8', 'parallel': {'tp': 8, 'pp': 8, 'dp': "
        "%d}, 'memory': {'recompute': 'full'}, 'workload': {'lengths': 'wikipedia', "
        "'context': %d, 'samples_per_batch': 128, 'seed': %d}",
        dp, context, seed);
    double packed_ms = iteration_ms("packed", text, NULL);
    double slimpipe_ms = iteration_ms("slimpipe", text, NULL);
    double ms[KINDS];
    for (int i = 0; i < KINDS; i++) {
        ms[i] = iteration_ms(kinds[i], text, NULL);
    }
    must_hold(ms[0] <= packed_ms && ms[0] <= slimpipe_ms && ms[1] <= ms[0] && ms[2] <= ms[1],
              "%s: packed %.2f, slimpipe %.2f, symmetric %.2f, slimpack %.2f, zb %.2f", text,
              packed_ms, slimpipe_ms, ms[0], ms[1], ms[2]);
}

// Each of the three has what the one before it has, and more.
static void no_slower_than(int context)
{
    for (int i = 0; i < test_draws(6); i++) {
        no_slower(context, 1 + i % 2, 1 + i % 3);
    }
}

TEST_CALL(wikipedia_at_64k, no_slower_than(65536))
TEST_CALL(wikipedia_at_256k, no_slower_than(262144))

#define TINY(dp, pp, lengths, more)                                          \
    TINY_MODEL "'cluster': 'h800-8', 'parallel': {'dp': " #dp ", 'pp': " #pp \
               "}, 'workload': {'lengths': [" lengths "], 'order': 'file'" more "}"

#define EIGHT(x) x ", " x ", " x ", " x ", " x ", " x ", " x ", " x

TEST_OF_VALUES(equal_input_equal_plan)
{
    static char text[2][PLAN_BYTES];
    const char *scenario =
        TINY(2, 2, "60000, 3000, 200, 900, 40, 7000, 512, 100, 90, 2048, 1, 15000", "");
    for (int i = 0; i < KINDS; i++) {
        double ms[2];
        for (int again = 0; again < 2; again++) {
            finding f = {.text = text[again]};
            ms[again] = part_ms(20, kinds[i], scenario, &f);
        }
        assert_true(text[0][0] != '\0');
        assert_string_equal(text[0], text[1]);
        assert_true(ms[0] == ms[1]);
    }
}

// A sample beyond a rank's share of the work is run by several, and no other is.
TEST_OF_VALUES(an_outlier_merges_ranks)
{
    for (int i = 0; i < KINDS; i++) {
        finding f = {0};
        part_ms(20, kinds[i], TINY(4, 2, "200000, " EIGHT("500") ", " EIGHT("500"), ""), &f);
        assert_true(f.merged > 0);
        f = (finding){0};
        part_ms(20, kinds[i], TINY(4, 2, EIGHT("5000") ", " EIGHT("5000"), ""), &f);
        assert_int_equal(f.merged, 0);
        f = (finding){0};
        part_ms(20, kinds[i], TINY(1, 2, "200000, " EIGHT("500"), ""), &f);
        assert_int_equal(f.merged, 0);
        assert_true(f.cut > 1);
    }
}

TEST(edges)
{
    static const char *const scenarios[] = {
        TINY(1, 1, "1", ""),
        TINY(1, 1, "40000", ""),
        TINY(1, 2, "40000", ""),
        TINY(4, 1, "40000", ""),
        TINY(4, 2, "40000", ""),
        TINY(3, 2, "700, 30", ""), // ranks without a sample
        TINY(2, 2, EIGHT("1000"), ""),
        TINY(2, 2, EIGHT("1") ", " EIGHT("1"), ""),
        TINY(1, 2, EIGHT("16") ", 20000", ""),
        TINY(5, 2, "90000, 80000, 70000, " EIGHT("300"), ""),
    };
    for (size_t s = 0; s < sizeof scenarios / sizeof scenarios[0]; s++) {
        for (int i = 0; i < KINDS; i++) {
            part_ms(10, kinds[i], scenarios[s], NULL);
        }
    }
}

// One stage has nothing to wait for: the fewest packs, and the time of their work.
TEST(one_stage_has_no_bubbles)
{
    SCENARIO_RUN(r, TINY(1, 1, EIGHT("1000"), "") ", 'strategy': {'kind': 'slimpack'}}",
                 &run_verified);
    assert_true(sp_result_bubble_ratio(&r.result) < 1e-9);
}

// More activations than any packing can hold: the fastest of what was tried, and the step says that
// it is out of memory. Within too little memory a search takes longest.
TEST(what_fits_nowhere_is_out_of_memory)
{
    const sp_evaluate_options options = {.engine = {.verify = true}, .effort_percent = 3};
    for (int i = 0; i < KINDS; i++) {
        const char *text =
            json_text("{'model': 'llama-7b', 'cluster': 'h800-8', 'parallel': {'tp': 4, 'pp': 2}, "
                      "'workload': {'lengths': [1000000, 100]}, 'strategy': {'kind': '%s'}}",
                      kinds[i]);
        SCENARIO_RUN(r, text, &options);
        assert_true(sp_result_is_oom(&r.result));
    }
}

// ---- what the search chooses for itself ----

static void put_drawn_lengths(sp_prng *prng, char *text)
{
    int count = 4 + (int)sp_prng_below(prng, 30);
    put_json(text, "'workload': {'order': 'file', 'lengths': [");
    for (int k = 0; k < count; k++) {
        uint64_t most = sp_prng_below(prng, 8) == 0 ? 60000 : 6000;
        put_json(text, "%s%d", k > 0 ? ", " : "", 1 + (int)sp_prng_below(prng, most));
    }
    put_json(text, "]}");
}

// Chunks and layers that it chooses are no slower than any number of chunks that is stated: up to
// what its short searches cannot tell apart.
TEST_OF_VALUES(chosen_chunks_are_no_slower)
{
    sp_prng prng = prng_seeded(163);
    double sum = 0.0;
    enum { MOST = 4 };
    int rounds = test_is_full() ? 2 * KINDS : KINDS;
    for (int round = 0; round < rounds; round++) {
        char lengths[RUN_TEXT] = "";
        put_drawn_lengths(&prng, lengths);
        const char *kind = kinds[round % KINDS];
        double ms[MOST + 1];
        for (int chunks = 0; chunks <= MOST; chunks++) {
            char stated[64] = "";
            if (chunks > 0) {
                snprintf(stated, sizeof stated, ", 'chunks_per_rank': %d", chunks);
            }
            const char *text = json_text(
                "{'model': {'layers': 24, 'hidden': 2048, 'ffn': 5504, 'heads': 16, 'vocab': "
                "32000}, 'cluster': 'h800-8', 'parallel': {'pp': 2, 'dp': 2%s}, %s",
                stated, lengths);
            ms[chunks] = part_ms(30, kind, text, NULL);
        }
        for (int chunks = 1; chunks <= MOST; chunks++) {
            must_hold(ms[0] <= 1.06 * ms[chunks], "%s: %s: chosen %.3f, %d chunks %.3f", kind,
                      lengths, ms[0], chunks, ms[chunks]);
        }
        sum += ms[0] / ms[1];
    }
    assert_true(sum < rounds);
}

// Where ranks share samples, every slice has the keys and values before it exchanged once more: the
// switch that leaves all samples whole is not much faster than the search, which may cut them.
TEST(samples_stay_whole_where_slices_cost)
{
    static const char *const lengths[] = {"'wikipedia', 'samples_per_batch': 651, 'seed': 317",
                                          "'longmix', 'samples_per_batch': 120, 'seed': 5",
                                          "'prolong', 'samples_per_batch': 60, 'seed': 7"};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const char *text = json_text(
            "{'model': 'llama-7b', 'cluster': 'h800-8', 'memory': {'recompute': 'full'}, "
            "'parallel': {'cp': 8, 'pp': 4, 'chunks_per_rank': 2}, 'workload': {'context': "
            "65536, 'over_length': 'split', 'lengths': %s}",
            lengths[i]);
        double ms = iteration_ms("slimpack-zb", text, NULL);
        double whole_ms =
            iteration_ms("slimpack-zb', 'slices': false, 'cp_sharding': 'even", text, NULL);
        assert_true(ms < 1.03 * whole_ms);
    }
}

// Without a pipeline, long samples take several ranks and short ones one each, as ByteScale has it.
TEST_OF_VALUES(without_a_pipeline_no_slower_than_bytescale)
{
    sp_prng prng = prng_seeded(167);
    for (int round = 0; round < test_draws(8); round++) {
        char text[RUN_TEXT] = "";
        put_json(&text[0],
                 "{'model': {'layers': 8, 'hidden': 2048, 'ffn': 5504, 'heads': 16, 'vocab': "
                 "32000}, 'cluster': 'h800-8', 'parallel': {'dp': %d}, ",
                 2 << sp_prng_below(&prng, 4));
        put_drawn_lengths(&prng, text);
        double bytescale_ms = iteration_ms("bytescale", text, NULL);
        for (int i = 0; i < KINDS; i++) {
            double ms = iteration_ms(kinds[i], text, NULL);
            must_hold(ms <= 1.0001 * bytescale_ms, "%s: %s: %.3f, bytescale %.3f", text, kinds[i],
                      ms, bytescale_ms);
        }
    }
}

static double peak_gib(const char *kind, const char *scenario, double limit_gib)
{
    const char *text = json_text("%s, 'memory': {'limit_gib': %.6f}, 'strategy': {'kind': '%s'}}",
                                 scenario, limit_gib, kind);
    SCENARIO_RUN(r, text, (&(sp_evaluate_options){.no_bounds = true, .effort_percent = 20}));
    return (double)r.result.peak_bytes / (double)((int64_t)1 << 30);
}

static void no_slower_than_zeppelin(const char *text)
{
    double zeppelin_ms = iteration_ms("zeppelin", text, NULL);
    double ms = iteration_ms("slimpack", text, NULL);
    must_hold(ms <= 1.01 * zeppelin_ms, "%s: %.3f, zeppelin %.3f", text, ms, zeppelin_ms);
}

static const char *few_samples(int cp, int dp, int samples, int seed)
{
    return json_text("{'model': {'layers': 8, 'hidden': 2048, 'ffn': 5504, 'heads': 16, 'vocab': "
                     "32000}, 'cluster': 'h800-8', 'parallel': {'cp': %d, 'dp': %d}, 'workload': "
                     "{'lengths': 'prolong', 'context': 65536, 'over_length': 'truncate', "
                     "'samples_per_batch': %d, 'seed': %d}",
                     cp, dp, samples, seed);
}

// Few samples leave ranks uneven that run packs of their own: all ranks run a pack together, each
// attends to its own samples, as Zeppelin has it; and the exchange is chosen by whole plans. On the
// first input packs of their own take 3.4 % longer.
TEST_OF_VALUES(few_samples_no_slower_than_zeppelin)
{
    no_slower_than_zeppelin(
        "{'model': 'llama-7b', 'cluster': 'h800-8', 'stack': 'megatron-core-2025', 'memory': "
        "{'recompute': 'attention'}, 'parallel': {'tp': 4, 'cp': 2, 'dp': 4}, 'workload': "
        "{'lengths': 'prolong', 'context': 65536, 'over_length': 'truncate', "
        "'samples_per_batch': 7, 'seed': 99}");
    // Ranks are 1.3 % uneven, and level where they share a sample in a ring.
    no_slower_than_zeppelin(few_samples(1, 2, 7, 7));
    sp_prng prng = prng_seeded(169);
    for (int round = 0; round < test_draws(48); round++) {
        const int cp = 1 << sp_prng_below(&prng, 2);
        const int dp = 2 << sp_prng_below(&prng, 3);
        no_slower_than_zeppelin(few_samples(cp, dp, 4 + (int)sp_prng_below(&prng, 12), round));
    }
}

// With little memory, forwards that run again come near the time that recomputation of all layers
// takes, which needs least.
TEST_OF_VALUES(repeats_come_near_full_recompute)
{
    static const char *const limits[] = {"20", "16", "24"};
    for (int i = 0; i < test_draws(COUNT_OF(limits)); i++) {
        double ms[2];
        for (int full = 0; full < 2; full++) {
            const char *text = json_text(
                "{'model': 'llama-13b', 'cluster': 'h800-8', 'memory': {'limit_gib': %s, "
                "'recompute': '%s'}, 'parallel': {'tp': 4, 'cp': 2, 'pp': 4}, 'workload': "
                "{'lengths': 'longmix', 'context': 131072, 'over_length': 'truncate', "
                "'samples_per_batch': 128, 'seed': 2}",
                limits[i], full ? "full" : "none");
            ms[full] = iteration_ms("slimpack", text, NULL);
        }
        assert_true(ms[0] < 1.1 * ms[1]);
    }
}

// Where a lossless strategy fits, slimpack fits: the limit is what that one needs.
TEST_OF_VALUES(fits_where_others_fit)
{
    static const char *const others[] = {"packed", "slimpipe", "bytescale", "chunkflow"};
    sp_prng prng = prng_seeded(173);
    for (int round = 0; round < test_draws(16); round++) {
        char text[RUN_TEXT] = "";
        put_json(text,
                 "{'model': {'layers': 8, 'hidden': 2048, 'ffn': 5504, 'heads': 16, 'vocab': "
                 "32000}, 'cluster': 'h800-8', 'parallel': {'pp': %d, 'dp': %d}, ",
                 1 << sp_prng_below(&prng, 3), 1 << sp_prng_below(&prng, 2));
        put_drawn_lengths(&prng, text);
        double limit = 1.0001 * peak_gib(others[round % 4], text, 4000.0);
        for (int i = 0; i < KINDS; i++) {
            double peak = peak_gib(kinds[i], text, limit);
            must_hold(peak <= limit, "%s: %s: %.4f GiB of %.4f, where %s fits", text, kinds[i],
                      peak, limit, others[round % 4]);
        }
    }
}

// The plans of slimpack are among those of slimpack-zb, which fits where slimpack does, however
// little memory there is.
TEST_OF_VALUES(gradients_apart_fit_where_whole_ones_fit)
{
    static const double shares[] = {0.7, 0.49};
    sp_prng prng = prng_seeded(181);
    for (int round = 0; round < test_draws(8); round++) {
        char text[RUN_TEXT] = "";
        put_json(text,
                 "{'model': {'layers': 8, 'hidden': 2048, 'ffn': 5504, 'heads': 16, 'vocab': "
                 "32000}, 'cluster': 'h800-8', 'parallel': {'pp': %d, 'dp': %d, 'cp': %d, "
                 "'chunks_per_rank': 1}, ",
                 2 << sp_prng_below(&prng, 3), 1 << sp_prng_below(&prng, 2),
                 1 << sp_prng_below(&prng, 2));
        put_drawn_lengths(&prng, text);
        double peak = peak_gib("slimpack", text, 4000.0);
        for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
            double limit = shares[i] * peak;
            bool fits = peak_gib("slimpack", text, limit) <= limit;
            double need = fits ? peak_gib("slimpack-zb", text, limit) : 0.0;
            must_hold(need <= limit, "%s: %.4f GiB of %.4f, where slimpack fits", text, need,
                      limit);
        }
    }
}
