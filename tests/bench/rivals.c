// SlimPack against every lossless strategy on the same layout, with any schedule and budget: rivals
// [SCENARIOS SEED | grid CASES]. Inputs on which it once lost, then random models, layouts (pp 1 to
// 16, cp 1 to 8), lengths and batches of 4 to 8192 samples; or the cases of
// experiments/grid_slimpack.sh, also against the strategies that bring an exchange of their own.
// Prints those on which the better of slimpack and slimpack-zb is slower than a rival or does not
// fit where one does, and a summary. A rival that fits tightly (sp_result_fits) counts only where
// SlimPack does, too: such logged steps ran several times slower. The summary says how often one
// would have been faster.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/prng.h"
#include "tests/bench/step_ms.h"

enum { TEXT = 1024, RIVALS = 128 };

typedef struct rival {
    char settings[6][48];
    int count;
} rival;

static rival rivals[RIVALS];
static int rival_count;

static void add(const char *strategy, const char *schedule, int chunks, const char *budget,
                int tokens)
{
    rival *r = &rivals[rival_count++];
    snprintf(r->settings[r->count++], sizeof r->settings[0], "strategy.kind=%s", strategy);
    if (schedule != NULL) {
        snprintf(r->settings[r->count++], sizeof r->settings[0], "schedule.kind=%s", schedule);
    }
    if (chunks > 0) {
        snprintf(r->settings[r->count++], sizeof r->settings[0], "parallel.chunks_per_rank=%d",
                 chunks);
    }
    if (budget != NULL) {
        snprintf(r->settings[r->count++], sizeof r->settings[0], "%s=%d", budget, tokens);
    }
}

static void list_rivals(bool grid)
{
    static const char *const zones[] = {"zeppelin", "hybrid-dp", "te-cp", "llama-cp"};
    static const char *const rows[] = {"packed",   "packed-tuned", "ffd",
                                       "dynapipe", "hybrid-cp",    "bytescale"};
    static const struct {
        const char *kind;
        int chunks;
    } schedules[] = {{"1f1b", 0},        {"zb-h1", 0},       {"zb-v", 2},
                     {"interleaved", 2}, {"interleaved", 4}, {"interleaved", 5},
                     {"interleaved", 8}, {"interleaved", 16}};
    for (size_t s = 0; s < sizeof schedules / sizeof schedules[0]; s++) {
        for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
            add(rows[k], schedules[s].kind, schedules[s].chunks, NULL, 0);
        }
        for (size_t k = 0; grid && k < sizeof zones / sizeof zones[0]; k++) {
            add(zones[k], schedules[s].kind, schedules[s].chunks, NULL, 0);
        }
    }
    for (int tokens = 2048; tokens <= 131072; tokens *= 2) {
        add("hybrid-cp", "1f1b", 0, "strategy.rank_tokens", tokens);
        add("hybrid-cp", "zb-h1", 0, "strategy.rank_tokens", tokens);
        add("bytescale", "1f1b", 0, "strategy.rank_tokens", tokens);
        add("bytescale", "zb-h1", 0, "strategy.rank_tokens", tokens);
        add("chunkflow", NULL, 0, "strategy.chunk_tokens", tokens);
    }
    for (int slices = 1; slices <= 16; slices *= 2) {
        add("slimpipe", NULL, 0, "schedule.slices", slices);
        add("slimpipe", NULL, 5, "schedule.slices", slices);
    }
}

// Few samples, one long one, large context parallelism, and few long ones on slow networks.
static const struct {
    const char *model, *cluster, *rest;
} once_lost[] = {
    {"llama-13b", "h800-8",
     "'parallel': {'tp': 8, 'pp': 8}, 'workload': {'order': 'file', 'lengths': [4096, 4096, "
     "4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096]}"},
    {"llama-13b", "h800-8",
     "'parallel': {'tp': 8, 'pp': 8}, 'workload': {'order': 'file', 'lengths': [200000, "
     "1000, 64000, 3000, 8000, 512, 32000, 100]}"},
    {"llama-13b", "h800-8",
     "'parallel': {'tp': 8, 'pp': 2, 'dp': 4}, 'workload': {'lengths': [262144]}"},
    {"llama-13b", "h800-8",
     "'parallel': {'tp': 4, 'cp': 8, 'pp': 2, 'dp': 2}, 'workload': {'lengths': 'wikipedia',"
     " 'context': 262144, 'samples_per_batch': 512, 'seed': 1}"},
    {"llama-13b", "h800-8",
     "'parallel': {'tp': 8, 'pp': 8}, 'workload': {'order': 'file', 'lengths': [65536, "
     "65536, 65536, 65536, 65536, 65536, 65536, 65536]}"},
    {"llama-13b", "h100-8",
     "'parallel': {'tp': 8, 'pp': 2, 'dp': 8}, 'workload': {'lengths': [262144]}"},
    {"llama-13b", "h100-8",
     "'parallel': {'tp': 8, 'pp': 2, 'dp': 4}, 'workload': {'lengths': [262144]}"},
    {"llama-13b", "a100-8",
     "'parallel': {'tp': 8, 'pp': 2, 'dp': 8}, 'workload': {'lengths': [262144]}"},
    {"llama-13b", "a100-8",
     "'parallel': {'tp': 8, 'pp': 2, 'dp': 4}, 'workload': {'lengths': [262144]}"},
    {"llama-13b", "h100-8",
     "'parallel': {'tp': 8, 'cp': 2, 'pp': 2, 'dp': 4}, 'workload': {'order': 'file', "
     "'lengths': [65536, 65536, 131072, 500, 8000]}"},
    {"llama-13b", "h800-8",
     "'parallel': {'tp': 8, 'cp': 2, 'pp': 2, 'dp': 16}, 'workload': {'order': 'file', "
     "'lengths': [131072, 500, 500, 8000, 8000, 8000, 8000, 500, 2000]}"},
    {"llama-13b", "a100-8",
     "'memory': {'recompute': 'activation'}, 'parallel': {'tp': 4, 'cp': 2, 'pp': 8, 'dp': "
     "4}, 'workload': {'lengths': 'wikipedia', 'context': 8192, 'over_length': 'truncate', "
     "'samples_per_batch': 14, 'seed': 259}"},
    {"llama-7b", "a100-8",
     "'parallel': {'tp': 4, 'pp': 2, 'dp': 16}, 'workload': {'order': 'file', 'lengths': "
     "[262144, 1000]}"},
    {"llama-7b", "h100-8",
     "'stack': 'megatron-core-2025', 'memory': {'recompute': 'full'}, 'parallel': {'tp': 2, "
     "'pp': 2, 'dp': 16}, 'workload': {'order': 'file', 'lengths': [262144, 485, 182, 151, "
     "4067, 1188, 1101, 1666]}"},
    {"llama-7b", "h800-8",
     "'memory': {'recompute': 'none'}, 'parallel': {'tp': 1, 'cp': 2, 'pp': 8, 'dp': 16}, "
     "'workload': {'order': 'file', 'lengths': [67964, 36109, 2697, 2784, 17771, 2688, 3059,"
     " 5073, 56524, 1267, 8499, 73677, 10120, 464, 14366, 7762, 1426, 3729, 448, 6509]}"},
    {"llama-70b", "h800-8",
     "'stack': 'megatron-core-2024', 'memory': {'recompute': 'full'}, 'parallel': {'tp': 2, "
     "'cp': 4, 'pp': 5}, 'workload': {'order': 'file', 'lengths': [16789, 16789, 16789, 16789, "
     "16789, 16789, 16789, 16789, 16789, 16789, 16789, 16789, 16789, 16789]}"},
    {"llama-7b", "h800-8",
     "'stack': 'megatron-core-2025', 'memory': {'recompute': 'full'}, 'parallel': {'tp': 1, "
     "'cp': 8, 'pp': 4}, 'workload': {'lengths': 'wikipedia', 'context': 65536, 'over_length': "
     "'split', 'samples_per_batch': 651, 'seed': 317}"},
    {"llama-70b", "h800-8",
     "'stack': 'ours', 'memory': {'recompute': 'activation'}, 'parallel': {'tp': 8, 'cp': 2, "
     "'dp': 4}, 'workload': {'order': 'file', 'lengths': [29773, 29773, 29773]}"},
};

enum { ONCE_LOST = sizeof once_lost / sizeof once_lost[0] };

static int drawn(sp_prng *prng, const int *values, int count)
{
    return values[sp_prng_below(prng, (uint64_t)count)];
}

static void draw(sp_prng *prng, char text[TEXT])
{
    static const struct {
        const char *name;
        int layers;
    } models[] = {{"llama-7b", 32}, {"llama-13b", 40}, {"llama-3-8b", 32}, {"llama-70b", 80}};
    static const char *const lengths[] = {"wikipedia", "prolong", "longmix"};
    static const char *const recompute[] = {"none", "attention", "full"};
    static const int pps[] = {1, 1, 2, 4, 8, 16};
    static const int cps[] = {1, 1, 2, 4, 8};
    static const int degrees[] = {1, 2, 4, 8, 16};
    static const int contexts[] = {8192, 32768, 65536, 131072, 262144};
    size_t model = 0;
    int tp = 1, cp = 1, pp = 1, dp = 1;
    do {
        model = sp_prng_below(prng, 4);
        pp = drawn(prng, pps, 6);
        cp = drawn(prng, cps, 5);
        tp = drawn(prng, degrees, 4);
        dp = drawn(prng, degrees, 5);
    } while (models[model].layers % pp != 0 || tp * cp * pp * dp > 256 || tp * cp * pp * dp % 8);
    snprintf(text, TEXT,
             "{'model': '%s', 'cluster': '%s-8', 'stack': '%s', 'memory': {'recompute': '%s'}, "
             "'parallel': {'tp': %d, 'cp': %d, 'pp': %d, 'dp': %d}, 'workload': {'lengths': '%s', "
             "'context': %d, 'over_length': 'truncate', 'samples_per_batch': %d, 'seed': %d}}",
             models[model].name, sp_prng_below(prng, 2) == 0 ? "h800" : "h100",
             sp_prng_below(prng, 2) == 0 ? "ours" : "megatron-core-2025",
             recompute[sp_prng_below(prng, 3)], tp, cp, pp, dp, lengths[sp_prng_below(prng, 3)],
             drawn(prng, contexts, 5), (int)exp2(2.0 + 11.0 * sp_prng_uniform(prng)),
             1 + (int)sp_prng_below(prng, 99));
}

enum { GRID = 108 };

static void grid_case(int i, char text[TEXT])
{
    static const char *const models[] = {"llama-13b", "llama-70b"};
    static const int layouts[][2] = {{4, 4}, {8, 2}, {8, 4}};
    const int *layout = layouts[i / 36];
    snprintf(text, TEXT,
             "{'model': '%s', 'cluster': 'h800-8', 'profile': 'h800-burst', "
             "'memory': {'limit_gib': 80}, 'parallel': {'tp': %d, 'pp': 8, 'dp': %d}, "
             "'workload': {'lengths': 'wikipedia', 'context': %d, 'samples_per_batch': %d, "
             "'batches': 1, 'seed': %d}}",
             models[i % 2], layout[0], layout[1], 65536 << i / 2 % 3, 512 << i / 6 % 3,
             1 + i / 18 % 2);
}

typedef struct summary {
    int compared, alone, slower, much_slower, no_room, tight_faster;
    double log_gain, worst;
} summary;

static void compare(const char *text, summary *all)
{
    static const char *const ours[][1] = {{"strategy.kind=slimpack"},
                                          {"strategy.kind=slimpack-zb"}};
    json_error_t at;
    json_t *root = json_loads(text, 0, &at);
    double own = HUGE_VAL;
    double best = HUGE_VAL;
    double best_tight = HUGE_VAL;
    bool own_tight = false;
    int by = 0;
    for (int i = 0; i < 2; i++) {
        bool tight;
        double ms = step_ms(root, ours[i], 1, &tight);
        if (!isfinite(own) || tight < own_tight || (tight == own_tight && ms < own)) {
            own = ms;
            own_tight = tight;
        }
    }
    for (int i = 0; i < rival_count; i++) {
        const char *settings[6];
        for (int s = 0; s < rivals[i].count; s++) {
            settings[s] = rivals[i].settings[s];
        }
        bool tight;
        double ms = step_ms(root, settings, rivals[i].count, &tight);
        if (tight && isfinite(own) && !own_tight) {
            best_tight = fmin(best_tight, ms);
        } else if (ms < best) {
            best = ms;
            by = i;
        }
    }
    json_decref(root);
    all->tight_faster += own > 1.01 * best_tight && best > 1.01 * best_tight;
    all->compared += isfinite(own) && isfinite(best);
    all->alone += isfinite(own) && !isfinite(best);
    all->no_room += !isfinite(own) && isfinite(best);
    if (isfinite(own) && isfinite(best)) {
        all->log_gain += log(best / own);
        all->worst = fmax(all->worst, own / best);
        all->slower += own > best;
        all->much_slower += own > 1.01 * best;
    }
    if (own > 1.0001 * best) {
        printf("%.4f  %.3f ms, %.3f by", own / best, own, best);
        for (int s = 0; s < rivals[by].count; s++) {
            printf(" %s", rivals[by].settings[s]);
        }
        printf(": %s\n", text);
    }
}

int main(int argc, char **argv)
{
    bool grid = argc > 1 && strcmp(argv[1], "grid") == 0;
    int cases = grid && argc > 2 ? atoi(argv[2]) : GRID;
    int scenarios = cases < GRID ? cases : GRID;
    if (!grid) {
        scenarios = ONCE_LOST + (argc > 1 ? atoi(argv[1]) : 100);
    }
    sp_prng prng;
    summary all = {0};
    char text[TEXT];
    sp_prng_seed(&prng, !grid && argc > 2 ? (uint64_t)atoll(argv[2]) : 1);
    list_rivals(grid);
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    for (int i = 0; i < scenarios; i++) {
        if (grid) {
            grid_case(i, text);
        } else if (i < ONCE_LOST) {
            snprintf(text, sizeof text, "{'model': '%s', 'cluster': '%s', %s}", once_lost[i].model,
                     once_lost[i].cluster, once_lost[i].rest);
        } else {
            draw(&prng, text);
        }
        double_quotes(text);
        compare(text, &all);
    }
    printf("scenarios                            %6d\n", scenarios);
    printf("a rival and SlimPack fit             %6d\n", all.compared);
    printf("only SlimPack fits                   %6d\n", all.alone);
    printf("only a rival fits                    %6d\n", all.no_room);
    printf("SlimPack slower                      %6d\n", all.slower);
    printf("by more than 1 %%                     %6d\n", all.much_slower);
    printf("tight rivals faster by more than 1 %% %5d\n", all.tight_faster);
    printf("slowest, of the best rival's time    %8.3f\n", all.worst);
    printf("mean gain (geometric)                %8.3f\n", exp(all.log_gain / all.compared));
    return 0;
}
