// SlimPack against every lossless strategy on the same layout, with any schedule and budget: rivals
// [SCENARIOS SEED | grid CASES [STRATEGY,...] | --random N --seed S [OPTION VALUE]...], with these
// rivals alone. Inputs on which it once lost, then random models, layouts (pp 1 to 16, cp 1 to 8),
// lengths and batches of 4 to 8192 samples; or the cases of experiments/grid_slimpack.sh; or the
// hunt (below). Prints those on which the better of slimpack and slimpack-zb is slower than a rival
// or does not fit where one does, and a summary. No scenario states how keys and values are
// exchanged: each strategy has the way that it brings or chooses, else the stack's; rivals that
// bring none also run in rings and in all-to-alls with rings. A rival that fits tightly
// (sp_result_fits) counts only where SlimPack does, too, and no more surely: such logged steps ran
// several times slower. The summary says how often one would have been faster. So it does of
// concat, which trains every token, but not the same step: what it cuts off a document no longer
// sees the beginning. The mean gain leaves slimpack-zones out, whose packs are SlimPack's.
//
// The hunt (--random) draws scenarios of all kinds: 1B to 405B, 8 to 1,024 GPUs, all clusters and
// stacks, 12 to 2,040 samples. It asks only where SlimPack loses more than 1 %, so that rivals are
// left out whose least time is more than that allows (LEAST_GAIN): all of them where SlimPack is
// that near to the pure work, whole samples where the longest takes that long through the model,
// and those that come to the same step as another. Cheap rivals go first, and none is begun when
// the scenario's seconds are over. Says what was left out and what was left untried. Losses are of
// three kinds: the better of the two to any rival; slimpack to a rival that does not split
// backwards either; slimpack-zb to slimpack. fcp and distca bring the exchange of their own
// systems, which no strategy chooses, and zeppelin, slimpack-zones, te-cp, llama-cp and hybrid-dp
// rings of so many NICs, which are priced otherwise than the stack's: where one is faster, SlimPack
// runs in its exchange, too. Options:
// --losses FOLDER writes each as a scenario; --rivals STRATEGY,... these alone; --seconds S of CPU
// time for a scenario, from its first plan on (20); --samples-most N of a batch (2040); --skip N
// draws the first N scenarios and leaves them out; --pp N leaves all out but those of N pipeline
// ranks.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim/base/prng.h"
#include "solver/strategy.h"
#include "tests/bench/step_ms.h"

enum { TEXT = 1024, WIDE_TEXT = 1 << 15, RIVALS = 512, SETTINGS = 6 };

// Of its own time a rival has to gain so much to count as faster.
#define LEAST_GAIN 0.01

enum { BLOCKS = 1, TASKS, ONE_NIC, ALL_NICS, OWN_EXCHANGES };

static const char *const own_exchanges[OWN_EXCHANGES] = {
    NULL, "stack.cp_overlap=blocks", "stack.cp_overlap=tasks", "stack.cp_ring_nics=1",
    "stack.cp_ring_nics=64"};

typedef struct rival {
    char settings[SETTINGS][48];
    int count;
    bool cuts_documents, packs_alike;
    bool splits;    // backwards into the gradients of inputs and of weights
    bool whole;     // it cuts no sample
    bool shares;    // data-parallel ranks may share a sample
    bool plain;     // runs in 1F1B or an order of its own, in one chunk, and states no exchange
    bool exchanges; // states how keys and values are exchanged
    int exchange;   // of a system of its own that it brings, which slimpack does not; 0: none
    int seconds;    // how long it takes, beside others
    int number;     // in the order in which all are listed
} rival;

static rival rivals[RIVALS];
static int rival_count;

// Is a strategy one of those that are asked for, separated by commas? NULL: all are.
static bool is_asked(const char *strategy, const char *asked)
{
    size_t length = strlen(strategy);
    for (const char *at = asked; at != NULL; at = strchr(at, ','), at += at != NULL) {
        if (strncmp(at, strategy, length) == 0 && (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
    }
    return asked == NULL;
}

// A setting of the rival that was added last; NULL or a value of 0: none.
static void set_text(const char *key, const char *value)
{
    rival *r = &rivals[rival_count - 1];
    if (value != NULL) {
        snprintf(r->settings[r->count++], sizeof r->settings[0], "%s=%s", key, value);
    }
}

static void set_number(const char *key, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    set_text(key, value > 0 ? text : NULL);
}

static void set_exchange(const char *way)
{
    set_text("stack.cp_overlap", way);
    rivals[rival_count - 1].exchanges = true;
}

static void add(const char *strategy, const char *schedule)
{
    SP_ASSERT(rival_count < RIVALS);
    const sp_strategy *traits = sp_strategy_find(strategy);
    const bool splits = schedule != NULL && strncmp(schedule, "zb-", 3) == 0;
    const bool zones = strcmp(strategy, "slimpack-zones") == 0;
    rivals[rival_count] = (rival){.cuts_documents = strcmp(strategy, "concat") == 0,
                                  .packs_alike = zones,
                                  .splits = splits,
                                  .whole = !traits->sliced,
                                  .shares = traits->shares_ranks,
                                  .plain = schedule == NULL || strcmp(schedule, "1f1b") == 0,
                                  .seconds = zones                                ? 3
                                             : traits->kind == SP_STRATEGY_SEARCH ? 2
                                                                                  : 1,
                                  .exchange = strcmp(strategy, "fcp") == 0      ? BLOCKS
                                              : strcmp(strategy, "distca") == 0 ? TASKS
                                              : traits->zones                   ? ALL_NICS
                                              : traits->cp_ring_nics == 1       ? ONE_NIC
                                                                                : 0,
                                  .number = rival_count};
    rival_count++;
    set_text("strategy.kind", strategy);
    set_text("schedule.kind", schedule);
    if (strcmp(strategy, "balanced") == 0) {
        set_text("strategy.outlier_queues", "0"); // with queues it delays samples
    }
}

// In every order.
static void add_orders(const char *strategy)
{
    static const struct {
        const char *kind;
        int chunks;
    } schedules[] = {{"1f1b", 0},        {"zb-h1", 0},       {"zb-v", 2},
                     {"interleaved", 2}, {"interleaved", 4}, {"interleaved", 5},
                     {"interleaved", 8}, {"interleaved", 16}};
    for (size_t s = 0; s < sizeof schedules / sizeof schedules[0]; s++) {
        add(strategy, schedules[s].kind);
        set_number("parallel.chunks_per_rank", schedules[s].chunks);
        if (strcmp(schedules[s].kind, "interleaved") == 0) {
            set_text("schedule.group", "even"); // for any number of micro-batches
        }
    }
}

static void add_budgets(const char *strategy, const char *budget)
{
    static const char *const schedules[] = {"1f1b", "zb-h1"};
    bool brings_order = sp_strategy_find(strategy)->brings_order;
    for (int tokens = 2048; tokens <= 131072; tokens *= 2) {
        for (int s = 0; s < (brings_order ? 1 : 2); s++) {
            add(strategy, brings_order ? NULL : schedules[s]);
            set_number(budget, tokens);
        }
    }
}

static void add_exchanges(const char *strategy)
{
    static const char *const ways[] = {"attention", "a2a+p2p", "a2a"};
    for (int w = 0; w < 3; w++) {
        add(strategy, "1f1b");
        set_exchange(ways[w]);
        add(strategy, "zb-h1");
        set_exchange(ways[w]);
    }
}

// Some budgets where ranks exchange heads.
static void add_budgets_by_heads(const char *strategy)
{
    for (int tokens = 2048; tokens <= 32768; tokens *= 4) {
        add(strategy, "zb-h1");
        set_number("strategy.rank_tokens", tokens);
        set_exchange("a2a");
    }
}

static void list_rivals(const char *asked, bool hunts)
{
    static const char *const in_every_order[] = {
        "packed",    "packed-tuned", "sorted",   "ffd",       "bfd",       "lpfhp", "balanced",
        "dynapipe",  "dp-balanced",  "kk-flops", "hybrid-cp", "bytescale", "te-cp", "llama-cp",
        "hybrid-dp", "zeppelin",     "concat",   "fcp",       "distca"};
    enum { OF_OWN_SYSTEMS = 2 }; // the last, for the hunt alone
    static const char *const with_exchanges[] = {"packed-tuned", "dynapipe", "hybrid-cp",
                                                 "bytescale"};
    static const struct {
        const char *kind, *key;
    } budgets[] = {{"hybrid-cp", "strategy.rank_tokens"},   {"bytescale", "strategy.rank_tokens"},
                   {"dp-balanced", "strategy.rank_tokens"}, {"hybrid-dp", "strategy.rank_tokens"},
                   {"te-cp", "strategy.rank_tokens"},       {"llama-cp", "strategy.rank_tokens"},
                   {"chunkflow", "strategy.chunk_tokens"}};
    const size_t kinds = sizeof in_every_order / sizeof in_every_order[0];
    for (size_t k = 0; k < kinds - (hunts ? 0 : OF_OWN_SYSTEMS); k++) {
        if (is_asked(in_every_order[k], asked)) {
            add_orders(in_every_order[k]);
        }
    }
    for (size_t k = 0; k < sizeof with_exchanges / sizeof with_exchanges[0]; k++) {
        if (is_asked(with_exchanges[k], asked)) {
            add_exchanges(with_exchanges[k]);
        }
    }
    if (is_asked("bytescale", asked)) {
        add_budgets_by_heads("bytescale");
    }
    for (size_t k = 0; k < sizeof budgets / sizeof budgets[0]; k++) {
        if (is_asked(budgets[k].kind, asked)) {
            add_budgets(budgets[k].kind, budgets[k].key);
        }
    }
    for (int slices = 1; is_asked("slimpipe", asked) && slices <= 16; slices *= 2) {
        for (int chunks = 0; chunks <= 5; chunks += 5) {
            add("slimpipe", NULL);
            set_number("parallel.chunks_per_rank", chunks);
            set_number("schedule.slices", slices);
        }
    }
    if (is_asked("slimpack-zones", asked)) {
        add("slimpack-zones", NULL);
    }
    if (is_asked("flexsp", asked)) {
        add("flexsp", "1f1b"); // with GLPK it takes longest
    }
}

static int compare_seconds(const void *a, const void *b)
{
    const rival *x = a;
    const rival *y = b;
    return x->seconds != y->seconds ? x->seconds - y->seconds : x->number - y->number;
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
    {"llama-13b", "h800-8",
     "'stack': 'megatron-core-2025', 'memory': {'recompute': 'none'}, 'parallel': {'dp': 8}, "
     "'workload': {'lengths': 'wikipedia', 'context': 262144, 'over_length': 'truncate', "
     "'samples_per_batch': 12, 'seed': 58}"},
    {"llama-13b", "h100-8",
     "'stack': 'megatron-core-2025', 'memory': {'recompute': 'none'}, 'parallel': {'tp': 2, "
     "'dp': 4}, 'workload': {'lengths': 'wikipedia', 'context': 65536, 'over_length': "
     "'truncate', 'samples_per_batch': 3623, 'seed': 34}"},
    {"llama-7b", "h800-8",
     "'stack': 'megatron-core-2025', 'memory': {'recompute': 'attention'}, 'parallel': {'tp': 4, "
     "'cp': 2, 'dp': 4}, 'workload': {'lengths': 'prolong', 'context': 65536, 'over_length': "
     "'truncate', 'samples_per_batch': 7, 'seed': 99}"},
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

// A sample's length: short ones, long ones, or some few very long ones among short ones.
static int draw_length(sp_prng *prng, int kind, int context)
{
    double u = sp_prng_uniform(prng);
    double most = kind == 0 ? fmin(4096.0, context) : context;
    double least = kind == 2 ? 0.25 * context : 64.0;
    double power = kind == 3 && sp_prng_below(prng, 20) != 0 ? 3.0 : 1.0;
    return (int)(least * pow(most / least, pow(u, power)));
}

// Anything that is trained: dense models, layouts that fill whole nodes, lengths of four kinds.
static void draw_wide(sp_prng *prng, int most_samples, char *text)
{
    static const struct {
        const char *text;
        int layers, heads, least_tp;
    } models[] = {
        {"{'layers': 16, 'hidden': 2048, 'ffn': 8192, 'heads': 32, 'kv_heads': 8, 'vocab': 128256, "
         "'tied_embeddings': true}",
         16, 32, 1},
        {"{'layers': 28, 'hidden': 3072, 'ffn': 8192, 'heads': 24, 'kv_heads': 8, 'vocab': 128256, "
         "'tied_embeddings': true}",
         28, 24, 1},
        {"'llama-7b'", 32, 32, 1},
        {"'llama-3-8b'", 32, 32, 1},
        {"'llama-13b'", 40, 40, 1},
        {"{'layers': 64, 'hidden': 5120, 'ffn': 27648, 'heads': 40, 'kv_heads': 8, 'vocab': "
         "152064, "
         "'qkv_bias': true}",
         64, 40, 2},
        {"'llama-3-70b'", 80, 64, 4},
        {"{'layers': 126, 'hidden': 16384, 'ffn': 53248, 'heads': 128, 'kv_heads': 8, 'vocab': "
         "128256}",
         126, 128, 8}};
    static const char *const clusters[] = {"h800-8", "h800-8x100g", "h100-8",
                                           "a100-8", "a800-8",      "b200-8"};
    static const char *const stacks[] = {"ours", "megatron-core-2025", "megatron-core-2024",
                                         "nanotron-2025"};
    static const char *const recompute[] = {"none", "none", "attention", "activation", "full"};
    static const int pps[] = {1, 1, 2, 4, 8, 16};
    static const int cps[] = {1, 1, 2, 4, 8};
    static const int degrees[] = {1, 2, 4, 8, 16, 32, 64};
    static const int contexts[] = {8192, 16384, 32768, 65536, 131072, 262144};
    size_t m;
    int tp, cp, pp, dp, ranks;
    do {
        m = sp_prng_below(prng, sizeof models / sizeof models[0]);
        pp = drawn(prng, pps, 6);
        cp = drawn(prng, cps, 5);
        tp = drawn(prng, degrees, 4);
        dp = drawn(prng, degrees, 7);
        ranks = tp * cp * pp * dp;
    } while (models[m].layers % pp != 0 || ranks > 1024 || ranks % 8 != 0 ||
             tp < models[m].least_tp || models[m].heads % tp != 0);
    int context = drawn(prng, contexts, 6);
    int samples = (int)(12.0 * pow(most_samples / 12.0, sp_prng_uniform(prng)));
    int kind = (int)sp_prng_below(prng, 4);
    int at =
        snprintf(text, WIDE_TEXT,
                 "{'model': %s, 'cluster': '%s', 'stack': '%s', 'memory': {'recompute': '%s'}, "
                 "'parallel': {'tp': %d, 'cp': %d, 'pp': %d, 'dp': %d, 'zero': 1}, 'workload': "
                 "{'context': %d, "
                 "'order': 'file', 'lengths': [",
                 models[m].text, clusters[sp_prng_below(prng, 6)], stacks[sp_prng_below(prng, 4)],
                 recompute[sp_prng_below(prng, 5)], tp, cp, pp, dp, context);
    for (int i = 0; i < samples; i++) {
        at += snprintf(text + at, WIDE_TEXT - (size_t)at, "%s%d", i > 0 ? ", " : "",
                       draw_length(prng, kind, context));
    }
    snprintf(text + at, WIDE_TEXT - (size_t)at, "]}}");
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

static step step_by(const json_t *root, const rival *r, bool blocks)
{
    const char *settings[SETTINGS];
    for (int s = 0; s < r->count; s++) {
        settings[s] = r->settings[s];
    }
    return step_of(root, settings, r->count, blocks);
}

// Steps that fit well go before steps that fit tightly.
static step better_of(step a, step b)
{
    bool first =
        !isfinite(b.ms) || (isfinite(a.ms) && (a.tight != b.tight ? b.tight : a.ms < b.ms));
    return first ? a : b;
}

// A rival that fits tightly counts where ours does, too, and no more surely, or does not fit.
static bool counts_against(step own, step theirs)
{
    return isfinite(theirs.ms) &&
           (!theirs.tight || !isfinite(own.ms) || (own.tight && theirs.chance >= own.chance));
}

typedef struct summary {
    int compared, gains, alone, slower, much_slower, no_room, tight_faster, cut_faster;
    double log_gain, worst;
} summary;

static void compare(const char *text, summary *all)
{
    static const char *const ours[][1] = {{"strategy.kind=slimpack"},
                                          {"strategy.kind=slimpack-zb"}};
    json_error_t at;
    json_t *root = json_loads(text, 0, &at);
    const step own = better_of(step_of(root, ours[0], 1, false), step_of(root, ours[1], 1, false));
    double best = HUGE_VAL;
    double best_unlike = HUGE_VAL;
    double best_tight = HUGE_VAL;
    double best_cut = HUGE_VAL;
    int by = 0;
    for (int i = 0; i < rival_count; i++) {
        const rival *r = &rivals[i];
        const step theirs = step_by(root, r, false);
        const bool counts = counts_against(own, theirs);
        if (r->cuts_documents) {
            best_cut = counts ? fmin(best_cut, theirs.ms) : best_cut;
        } else if (!counts) {
            best_tight = fmin(best_tight, theirs.ms);
        } else if (theirs.ms < best) {
            best = theirs.ms;
            by = i;
        }
        if (counts && !r->cuts_documents && !r->packs_alike) {
            best_unlike = fmin(best_unlike, theirs.ms);
        }
    }
    json_decref(root);
    all->tight_faster += own.ms > 1.01 * best_tight && best > 1.01 * best_tight;
    all->cut_faster += own.ms > 1.01 * best_cut;
    all->compared += isfinite(own.ms) && isfinite(best);
    all->alone += isfinite(own.ms) && !isfinite(best);
    all->no_room += !isfinite(own.ms) && isfinite(best);
    if (isfinite(own.ms) && isfinite(best)) {
        all->worst = fmax(all->worst, own.ms / best);
        all->slower += own.ms > best;
        all->much_slower += own.ms > 1.01 * best;
    }
    if (isfinite(own.ms) && isfinite(best_unlike)) {
        all->log_gain += log(best_unlike / own.ms);
        all->gains++;
    }
    if (own.ms > 1.0001 * best) {
        printf("%.4f  %.3f ms, %.3f by", own.ms / best, own.ms, best);
        for (int s = 0; s < rivals[by].count; s++) {
            printf(" %s", rivals[by].settings[s]);
        }
        printf(": %s\n", text);
    }
}

static void write_loss(const char *folder, uint64_t seed, int number, const char *text)
{
    char name[512];
    snprintf(name, sizeof name, "%s/loss-%llu-%d.json", folder, (unsigned long long)seed, number);
    FILE *file = fopen(name, "w");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0) {
        fprintf(stderr, "%s: cannot be written\n", name);
        exit(1);
    }
}

// ---- the hunt ----

enum { BEATEN, BEATEN_WHOLE, BELOW_SLIMPACK, LOSSES };

static const char *const loss_names[LOSSES] = {"slower than a rival", "slimpack alone",
                                               "slimpack-zb than slimpack"};

typedef struct hunted {
    int scenarios, near_work;              // near the pure work: no rival was tried
    int tried, alike, bounded, untried;    // rivals
    int unfinished;                        // scenarios that left rivals untried
    int lost[LOSSES], no_room[LOSSES];     // by more than LEAST_GAIN; where another one fits
    double worst[LOSSES], own_s, rivals_s; // times, and what the plans took
    int by_exchange; // scenarios in which SlimPack is slower until it states a rival's exchange
    double worst_by_exchange;
} hunted;

// Of this process: others may keep it waiting.
static double cpu_s(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static double over(step own, step theirs)
{
    return counts_against(own, theirs) ? own.ms / theirs.ms : 0.0;
}

// The least times of any step with these samples: their pure work over all ranks, and that of the
// longest on one rank; 0: not known.
typedef struct least_times {
    double work_ms, longest_ms;
    int pp, dp, cp;
    size_t samples;
} least_times;

static least_times least_times_of(json_t *root)
{
    sp_error err = {0};
    sp_scenario scenario;
    sp_batches batches = {0};
    least_times least = {0};
    double all_s = 0.0;
    double one_s = 0.0;
    if (sp_scenario_from_json(root, "benchmark", NULL, 0, &scenario, &err) != SP_OK) {
        return least;
    }
    sp_status status = sp_evaluate_batches(&scenario, &batches, &err);
    if (status == SP_OK && batches.count == 1 && batches.batch[0].count > 0) {
        int64_t longest = sp_batch_longest(&batches.batch[0]);
        sp_batch alone = {.tokens = &longest, .count = 1, .total_tokens = longest};
        const sp_batches one = {.batch = &alone, .count = 1};
        status = sp_evaluate_work_bound(&scenario, &batches, &all_s, &err);
        if (status == SP_OK) {
            status = sp_evaluate_work_bound(&scenario, &one, &one_s, &err);
        }
        const sp_layout *layout = &scenario.layout;
        least = (least_times){1e3 * all_s, 1e3 * one_s * layout->dp, layout->pp, layout->dp,
                              layout->cp,  batches.batch[0].count};
    }
    sp_batches_fini(&batches);
    sp_scenario_fini(&scenario);
    return status == SP_OK ? least : (least_times){0};
}

// A whole sample goes forward and backward through all stages one after the other; where backwards
// are split, forward and the gradient of the input, which are 0.6 of its work at least (linear
// layers: 2 of 3 parts, attention: 3.5 of 3.5; the head: 2 of 3).
static double least_ms_of(const rival *r, const least_times *least)
{
    double longest_ms = least->longest_ms / (r->shares ? least->dp : 1);
    double chain_ms = r->whole ? longest_ms * least->pp * (r->splits ? 0.6 : 1.0) : longest_ms;
    return fmax(least->work_ms, chain_ms);
}

// Without a pipeline there is one order, and ranks that share nothing exchange nothing.
static bool is_alike(const rival *r, const least_times *least)
{
    bool alone = least->cp == 1 && (least->dp == 1 || !r->shares);
    return (least->pp == 1 && !r->plain) || (r->exchanges && alone);
}

// Steps of slimpack, and of the better of it and slimpack-zb.
typedef struct ours {
    step whole, best;
    bool known;
} ours;

// In an exchange that the scenario states, or where that is slower as without.
static ours ours_with(const json_t *root, const char *exchange, const ours *without)
{
    rival with = {.settings = {"strategy.kind=slimpack"}, .count = 2};
    snprintf(with.settings[1], sizeof with.settings[1], "%s", exchange);
    const step whole = step_by(root, &with, true);
    snprintf(with.settings[0], sizeof with.settings[0], "strategy.kind=slimpack-zb");
    const step split = step_by(root, &with, true);
    return (ours){better_of(whole, without->whole),
                  better_of(better_of(whole, split), without->best), true};
}

static void note_loss(hunted *h, int kind, double times, step own, const char *by,
                      const char *folder, uint64_t seed, int number, const char *text)
{
    if (times <= 1.0 + LEAST_GAIN) {
        return;
    }
    h->lost[kind] += isfinite(own.ms);
    h->no_room[kind] += !isfinite(own.ms);
    h->worst[kind] = fmax(h->worst[kind], isfinite(own.ms) ? times : 0.0);
    if (isfinite(own.ms)) {
        printf("%d %s: %.4f, %.3f ms by %s\n", number, loss_names[kind], times, own.ms / times, by);
    } else {
        printf("%d %s: fits by %s\n", number, loss_names[kind], by);
    }
    if (folder != NULL) {
        write_loss(folder, seed, number, text);
    }
}

static const char *text_of(const rival *r, char text[TEXT])
{
    int at = 0;
    for (int s = 0; s < r->count; s++) {
        at += snprintf(text + at, TEXT - (size_t)at, "%s%s", s > 0 ? " " : "", r->settings[s]);
    }
    return text;
}

static void hunt(const char *text, int pp, double seconds, const char *folder, uint64_t seed,
                 int number, hunted *h)
{
    static const rival settings[] = {{.settings = {"strategy.kind=slimpack"}, .count = 1},
                                     {.settings = {"strategy.kind=slimpack-zb"}, .count = 1}};
    const double begun_s = cpu_s();
    char by[TEXT], by_whole[TEXT];
    json_error_t at;
    json_t *root = json_loads(text, 0, &at);
    const least_times least = least_times_of(root);
    if (pp > 0 && least.pp != pp) {
        json_decref(root);
        return;
    }
    const step whole = step_by(root, &settings[0], true);
    const double whole_s = cpu_s() - begun_s;
    const step split = step_by(root, &settings[1], true);
    const step own = better_of(whole, split);
    double most = 0.0;
    double most_whole = 0.0;
    double by_exchange = 0.0;
    int untried = 0;
    ours in[OWN_EXCHANGES] = {{whole, own, true}};
    const double planned_s = cpu_s();
    h->scenarios++;
    h->own_s += planned_s - begun_s;
    printf("%d: pp %d, dp %d, %zu samples: slimpack %.3f ms%s in %.2f s, slimpack-zb %.3f ms%s in "
           "%.2f s\n",
           number, least.pp, least.dp, least.samples, whole.ms, whole.tight ? " tight" : "",
           whole_s, split.ms, split.tight ? " tight" : "", planned_s - begun_s - whole_s);
    const bool near = isfinite(whole.ms) && whole.ms <= (1.0 + LEAST_GAIN) * least.work_ms;
    h->near_work += near;
    for (int i = 0; !near && i < rival_count; i++) {
        const rival *r = &rivals[i];
        const double slower_ms = r->splits ? own.ms : fmax(own.ms, whole.ms);
        if (is_alike(r, &least)) {
            h->alike++;
        } else if (isfinite(slower_ms) &&
                   slower_ms <= (1.0 + LEAST_GAIN) * least_ms_of(r, &least)) {
            h->bounded++;
        } else if (r->cuts_documents || cpu_s() - begun_s > seconds) {
            untried += !r->cuts_documents;
        } else {
            const ours *mine = &in[0];
            step theirs = step_by(root, r, false);
            if (fmax(over(own, theirs), over(whole, theirs)) > 1.0 + LEAST_GAIN) {
                theirs = step_by(root, r, true);
            }
            h->tried++;
            const double times = fmax(over(own, theirs), r->splits ? 0.0 : over(whole, theirs));
            if (r->exchange > 0 && times > 1.0 + LEAST_GAIN) {
                by_exchange = fmax(by_exchange, times);
                mine = &in[r->exchange];
                if (!mine->known) {
                    in[r->exchange] = ours_with(root, own_exchanges[r->exchange], &in[0]);
                }
            }
            if (over(mine->best, theirs) > most) {
                most = over(mine->best, theirs);
                text_of(r, by);
            }
            if (!r->splits && over(mine->whole, theirs) > most_whole) {
                most_whole = over(mine->whole, theirs);
                text_of(r, by_whole);
            }
        }
    }
    h->by_exchange += by_exchange > 0.0;
    h->worst_by_exchange = fmax(h->worst_by_exchange, by_exchange);
    h->untried += untried;
    h->unfinished += untried > 0;
    h->rivals_s += cpu_s() - planned_s;
    note_loss(h, BEATEN, most, own, by, folder, seed, number, text);
    note_loss(h, BEATEN_WHOLE, most_whole, whole, by_whole, folder, seed, number, text);
    note_loss(h, BELOW_SLIMPACK, over(split, whole), split, "slimpack", folder, seed, number, text);
    json_decref(root);
}

static void print_hunt(const hunted *h)
{
    printf("scenarios %d, of which %d within %.0f %% of their pure work: no rival was tried\n",
           h->scenarios, h->near_work, 100.0 * LEAST_GAIN);
    printf("rivals: %d tried, %d left out by their bounds, %d as they are like others; untried for "
           "want of time: %d, in %d scenarios\n",
           h->tried, h->bounded, h->alike, h->untried, h->unfinished);
    for (int k = 0; k < LOSSES; k++) {
        printf("%-26s by more than %.0f %%: %d, %.3f at most; does not fit: %d\n", loss_names[k],
               100.0 * LEAST_GAIN, h->lost[k], h->worst[k], h->no_room[k]);
    }
    printf("slower, unless it exchanges as its rival: %d, %.3f at most\n", h->by_exchange,
           h->worst_by_exchange);
    printf("seconds: %.1f for slimpack and slimpack-zb, %.1f for rivals\n", h->own_s, h->rivals_s);
}

int main(int argc, char **argv)
{
    bool grid = argc > 1 && strcmp(argv[1], "grid") == 0;
    bool wide = argc > 1 && strncmp(argv[1], "--", 2) == 0;
    const char *asked = argc > 3 && !wide ? argv[3] : NULL;
    const char *folder = NULL;
    int scenarios = grid ? GRID : ONCE_LOST + 100;
    int most_samples = 2040;
    int skipped = 0;
    int pp = 0;
    double seconds = 20.0;
    uint64_t seed = !grid && !wide && argc > 2 ? (uint64_t)atoll(argv[2]) : 1;
    if (argc > 1 && !wide) {
        int cases = grid && argc > 2 ? atoi(argv[2]) : GRID;
        scenarios = grid ? (cases < GRID ? cases : GRID) : ONCE_LOST + atoi(argv[1]);
    }
    for (int i = 1; wide && i + 1 < argc; i += 2) {
        scenarios = strcmp(argv[i], "--random") == 0 ? atoi(argv[i + 1]) : scenarios;
        seed = strcmp(argv[i], "--seed") == 0 ? (uint64_t)atoll(argv[i + 1]) : seed;
        folder = strcmp(argv[i], "--losses") == 0 ? argv[i + 1] : folder;
        asked = strcmp(argv[i], "--rivals") == 0 ? argv[i + 1] : asked;
        seconds = strcmp(argv[i], "--seconds") == 0 ? atof(argv[i + 1]) : seconds;
        pp = strcmp(argv[i], "--pp") == 0 ? atoi(argv[i + 1]) : pp;
        skipped = strcmp(argv[i], "--skip") == 0 ? atoi(argv[i + 1]) : skipped;
        most_samples = strcmp(argv[i], "--samples-most") == 0 ? atoi(argv[i + 1]) : most_samples;
    }
    most_samples = most_samples < 12 ? 12 : most_samples > 2040 ? 2040 : most_samples;
    sp_prng prng;
    summary all = {0};
    hunted h = {0};
    static char text[WIDE_TEXT];
    sp_prng_seed(&prng, seed);
    list_rivals(asked, wide);
    if (wide) {
        qsort(rivals, (size_t)rival_count, sizeof *rivals, compare_seconds);
    }
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    for (int i = 0; i < scenarios; i++) {
        if (grid) {
            grid_case(i, text);
        } else if (wide) {
            draw_wide(&prng, most_samples, text);
        } else if (i < ONCE_LOST) {
            snprintf(text, sizeof text, "{'model': '%s', 'cluster': '%s', %s}", once_lost[i].model,
                     once_lost[i].cluster, once_lost[i].rest);
        } else {
            draw(&prng, text);
        }
        double_quotes(text);
        if (!wide) {
            compare(text, &all);
        } else if (i >= skipped) {
            hunt(text, pp, seconds, folder, seed, i, &h);
        }
    }
    if (wide) {
        print_hunt(&h);
        return 0;
    }
    printf("scenarios                            %6d\n", scenarios);
    printf("a rival and SlimPack fit             %6d\n", all.compared);
    printf("only SlimPack fits                   %6d\n", all.alone);
    printf("only a rival fits                    %6d\n", all.no_room);
    printf("SlimPack slower                      %6d\n", all.slower);
    printf("by more than 1 %%                     %6d\n", all.much_slower);
    printf("tight rivals faster by more than 1 %% %5d\n", all.tight_faster);
    printf("cut documents faster by more than 1 %% %4d\n", all.cut_faster);
    printf("slowest, of the best rival's time    %8.3f\n", all.worst);
    printf("mean gain (geometric)                %8.3f\n", exp(all.log_gain / all.gains));
    return 0;
}
