// slimpack-zones against slimpack and zeppelin, the two that it combines: zones [SETTINGS SEED].
// Random clusters, layouts (pp 1 to 4, dp 4 to 16), lengths and batches of 4 to 64 samples; in
// half of them rings behind the attention are stated for all three, in the others each has the
// exchange that it brings or chooses. Prints by stages and exchange how often zeppelin is faster
// than slimpack and slimpack-zones slower than either, what it gains, and in which setting most.
// Settings that do not fit well for all three are left out, and counted.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/prng.h"
#include "tests/bench/step_ms.h"

enum { TEXT = 1024, STAGES = 3 };

enum { SLIMPACK, ZEPPELIN, ZONES, KINDS };

// Steps of one number of stages and way to exchange.
typedef struct group {
    int settings, left_out;
    int zeppelin_faster;   // than slimpack
    int slower;            // slimpack-zones than the better of the two
    int gains, gains_more; // over 0.1 % and over 1 % to slimpack
    int over_both;         // over 0.1 % to both
    double log_gain, log_over_both, most;
    double best_ms[KINDS]; // where it gains most
    char best[TEXT];
} group;

static const char *const lengths[] = {"wikipedia", "longmix", "prolong", "wlb-llm"};
static const char *const clusters[] = {"a800-8", "h800-8", "h800-8x100g", "h100-8"};

static void draw(sp_prng *prng, bool stated, int pp, char text[TEXT])
{
    int tp = 1 << sp_prng_below(prng, 2);
    int dp = 4 << sp_prng_below(prng, 3);
    dp = tp * pp * dp < 8 ? 8 : dp; // whole nodes
    snprintf(
        text, TEXT,
        "{'model': '%s', 'cluster': '%s', 'stack': {'name': 'ours'%s}, 'memory': {'recompute': "
        "'full'}, 'parallel': {'tp': %d, 'pp': %d, 'dp': %d}, 'workload': {'lengths': '%s', "
        "'context': %d, 'over_length': 'truncate', 'samples_per_batch': %d, 'seed': %d}}",
        sp_prng_below(prng, 2) == 0 ? "llama-7b" : "llama-3-8b", clusters[sp_prng_below(prng, 4)],
        stated ? ", 'cp_overlap': 'attention'" : "", tp, pp, dp, lengths[sp_prng_below(prng, 4)],
        32768 << sp_prng_below(prng, 4), 4 << sp_prng_below(prng, 5),
        1 + (int)sp_prng_below(prng, 99));
    double_quotes(text);
}

static void compare(const char *text, group *g)
{
    static const char *const settings[KINDS][1] = {
        {"strategy.kind=slimpack"}, {"strategy.kind=zeppelin"}, {"strategy.kind=slimpack-zones"}};
    json_error_t at;
    json_t *root = json_loads(text, 0, &at);
    double ms[KINDS];
    bool all = true;
    for (int k = 0; k < KINDS; k++) {
        const step made = step_of(root, settings[k], 1, false);
        ms[k] = made.ms;
        all = all && isfinite(made.ms) && !made.tight;
    }
    json_decref(root);
    if (!all) {
        g->left_out++;
        return;
    }
    double gain = ms[SLIMPACK] / ms[ZONES];
    double over_both = fmin(ms[SLIMPACK], ms[ZEPPELIN]) / ms[ZONES];
    g->settings++;
    g->zeppelin_faster += ms[ZEPPELIN] < ms[SLIMPACK];
    g->slower += over_both < 1.0 - 1e-9;
    g->gains += gain > 1.001;
    g->gains_more += gain > 1.01;
    g->over_both += over_both > 1.001;
    g->log_gain += log(gain);
    g->log_over_both += log(over_both);
    if (gain > g->most) {
        g->most = gain;
        memcpy(g->best_ms, ms, sizeof ms);
        snprintf(g->best, sizeof g->best, "%s", text);
    }
}

static void print_group(int pp, const char *exchange, const group *g)
{
    printf("%2d  %-8s %8d %8d %8d %8d %8d %6d %8.3f %8.2f %8d %8.3f\n", pp, exchange, g->settings,
           g->left_out, g->zeppelin_faster, g->slower, g->gains, g->gains_more,
           exp(g->log_gain / g->settings), g->most, g->over_both,
           exp(g->log_over_both / g->settings));
}

static void print_most(const group *g)
{
    if (g->most > 1.001) {
        printf("slimpack-zones %.1f ms, slimpack %.1f, zeppelin %.1f: %s\n", g->best_ms[ZONES],
               g->best_ms[SLIMPACK], g->best_ms[ZEPPELIN], g->best);
    }
}

int main(int argc, char **argv)
{
    int settings = argc > 1 ? atoi(argv[1]) : 120;
    sp_prng prng;
    static group groups[2 * STAGES];
    sp_prng_seed(&prng, argc > 2 ? (uint64_t)atoll(argv[2]) : 1);
    for (int i = 0; i < settings; i++) {
        char text[TEXT];
        int at = i % (2 * STAGES);
        draw(&prng, at % 2 != 0, 1 << at / 2, text);
        compare(text, &groups[at]);
    }
    printf("%s\n%s\n",
           "                               zeppelin    zones  --- zones faster than slimpack ---  "
           "than both",
           "pp  exchange settings left out   faster   slower    0.1 %    1 %     mean     most    "
           "0.1 %     mean");
    for (int at = 0; at < 2 * STAGES; at++) {
        print_group(1 << at / 2, at % 2 != 0 ? "rings" : "own", &groups[at]);
    }
    printf("\nwhere it gains most:\n");
    for (int at = 0; at < 2 * STAGES; at++) {
        print_most(&groups[at]);
    }
    return 0;
}
