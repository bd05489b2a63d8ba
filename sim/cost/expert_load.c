#include "sim/cost/expert_load.h"

#include <math.h>
#include <pthread.h>

#include "sim/base/alloc.h"
#include "sim/base/prng.h"

// Draws of biases: the more experts there are, the longer one takes and the less the fullest of
// many ranks differs between draws. Each is dealt out to the ranks several times, since experts are
// alike.
enum { DRAWS_OF_EXPERTS = 1 << 15, LEAST_DRAWS = 256, MOST_DRAWS = 4096, DEALS = 4 };
// Counts of tokens for which the expected overload is tabulated, each twice the one before.
enum { TOKEN_COUNTS = 28 };
enum { DRAWN_KEPT = 16 };

// What draws depend on.
typedef struct drawn_of {
    int experts, active, ranks;
    double std;
    uint64_t seed;
} drawn_of;

// Draws for layers of one kind. Of rank r in draw d: rows per token, [d * ranks + r], and how far
// the rows of T tokens lie from T times that, [d * ranks + r], times sqrt(T).
typedef struct drawn {
    drawn_of of;
    int users;
    int count;
    double mean; // rows per token of a rank
    double *rows, *off;
    double expected[TOKEN_COUNTS]; // overload with 1 << i tokens
} drawn;

struct sp_expert_load {
    const sp_model *model;
    const sp_stage *stages;
    int vstages, ranks;
    bool kept; // from call to call
    uint64_t seed;
    drawn *of_kind[SP_LAYER_KINDS]; // NULL: no experts
    int layers[SP_LAYER_KINDS];
};

// Box and Muller.
static double normal(sp_prng *prng)
{
    double radius = sqrt(-2.0 * log(1.0 - sp_prng_uniform(prng)));
    return radius * cos(6.283185307179586 * sp_prng_uniform(prng));
}

// ---- shares ----

// Between neighbouring points of the integral. The integrand is smooth on the scale of 1 and, with
// many experts, of the spread of the last logit that is chosen, above 0.1 up to 1024 experts: the
// trapezoidal rule errs by less than 1e-6.
#define STEP 0.125

static double above(double x)
{
    return 0.5 * erfc(x * 0.70710678118654752);
}

// below[m]: the probability that m of the experts counted so far are above x, m < active.
static void count_expert(double *below, int active, double p)
{
    for (int m = active - 1; m > 0; m--) {
        below[m] += p * (below[m - 1] - below[m]);
    }
    below[0] -= p * below[0];
}

// Adds a point of the integral: of each expert the density at x times the probability that fewer
// than `active` of those before and those behind it are above x. Returns what all got.
static double add_point(const double *bias, int experts, int active, double x, double *behind,
                        double *share)
{
    double before[SP_I_MAX_EXPERTS] = {1.0};
    double chance[SP_I_MAX_EXPERTS];
    size_t row = (size_t)active;
    double added = 0.0;
    for (int m = 0; m < active; m++) {
        behind[(size_t)experts * row + (size_t)m] = m == 0;
    }
    for (int e = experts; e-- > 0;) {
        double *own = &behind[(size_t)e * row];
        chance[e] = above(x - bias[e]);
        for (int m = 0; m < active; m++) {
            own[m] = own[row + (size_t)m];
        }
        count_expert(own, active, chance[e]);
    }
    for (int e = 0; e < experts; e++) {
        const double *rest = &behind[((size_t)e + 1) * row];
        double at_most = 0.0; // of those behind, up to active - 1 - m
        double fewer = 0.0;
        for (int m = active - 1; m >= 0; m--) {
            at_most += rest[active - 1 - m];
            fewer += before[m] * at_most;
        }
        double off = x - bias[e];
        double part = STEP * 0.3989422804014327 * exp(-0.5 * off * off) * fewer;
        share[e] += part;
        added += part;
        count_expert(before, active, chance[e]);
    }
    return added;
}

// From where so few experts are above that all of them are chosen, down until nothing is added.
void sp_expert_shares(const double *bias, int experts, int active, double *share)
{
    double *behind = sp_malloc(((size_t)experts + 1) * (size_t)active * sizeof *behind);
    double x = bias[0];
    double sum = 0.0;
    for (int e = 0; e < experts; e++) {
        x = fmax(x, bias[e]);
        share[e] = 0.0;
    }
    x += 6.0;
    for (double added = 1.0; added > 1e-9 || sum < 0.5 * active; x -= STEP) {
        added = add_point(bias, experts, active, x, behind, share);
        sum += added;
    }
    for (int e = 0; e < experts; e++) {
        share[e] *= active / sum;
    }
    sp_free(behind);
}

// ---- draws ----

static void deal(sp_prng *prng, double *share, int experts)
{
    for (int e = experts - 1; e > 0; e--) {
        int other = (int)sp_prng_below(prng, (uint64_t)e + 1);
        double kept = share[e];
        share[e] = share[other];
        share[other] = kept;
    }
}

// The rows of a rank with a share q of `active` are distributed about as hypergeometric numbers, of
// which even routing makes them. The ranks' sum is fixed: what all are off together is taken away.
static void fill_ranks(sp_prng *prng, const double *share, const drawn_of *of, double *rows,
                       double *off)
{
    int ranks = of->ranks;
    int held = of->experts / ranks;
    double active = of->active;
    double left = of->experts > 1 ? (of->experts - active) / (of->experts - 1) : 0.0;
    double mean = 0.0;
    for (int r = 0; r < ranks; r++) {
        rows[r] = 0.0;
        for (int e = 0; e < held; e++) {
            rows[r] += share[r * held + e];
        }
        off[r] = normal(prng);
        mean += off[r] / ranks;
    }
    for (int r = 0; r < ranks; r++) {
        double variance = fmax(0.0, rows[r] * (1.0 - rows[r] / active) * left);
        off[r] = (off[r] - mean) * sqrt(variance * ranks / (ranks - 1.0));
    }
}

static double rows_over_mean(const drawn *d, int at, int rank, double root)
{
    size_t i = (size_t)at * (size_t)d->of.ranks + (size_t)rank;
    return fmax(0.0, d->rows[i] + d->off[i] / root) / d->mean;
}

static double fullest(const drawn *d, int at, double root)
{
    double most = 1.0;
    for (int r = 0; r < d->of.ranks; r++) {
        most = fmax(most, rows_over_mean(d, at, r, root));
    }
    return most;
}

static int biases_of(int experts)
{
    int biases = DRAWS_OF_EXPERTS / experts;
    return biases < LEAST_DRAWS ? LEAST_DRAWS : biases > MOST_DRAWS ? MOST_DRAWS : biases;
}

// The share of the tokens that choose each expert, with biases that are drawn.
static void draw_shares(sp_prng *prng, const drawn_of *of, double *bias, double *share)
{
    for (int e = 0; e < of->experts; e++) {
        bias[e] = of->std * normal(prng);
        share[e] = (double)of->active / of->experts;
    }
    if (of->std > 0.0) {
        sp_expert_shares(bias, of->experts, of->active, share);
    }
}

static drawn *draw(const drawn_of *of)
{
    sp_prng prng;
    drawn *d = sp_calloc(1, sizeof *d);
    int experts = of->experts;
    size_t ranks = (size_t)of->ranks;
    const int biases = biases_of(experts);
    double *bias = sp_malloc((size_t)experts * sizeof *bias);
    double *share = sp_malloc((size_t)experts * sizeof *share);
    d->of = *of;
    d->count = biases * DEALS;
    d->mean = (double)of->active / of->ranks;
    d->rows = sp_malloc((size_t)d->count * ranks * sizeof *d->rows);
    d->off = sp_malloc((size_t)d->count * ranks * sizeof *d->off);
    sp_prng_seed(&prng, of->seed);
    for (int b = 0; b < biases; b++) {
        draw_shares(&prng, of, bias, share);
        for (int i = 0; i < DEALS; i++) {
            size_t at = ((size_t)b * DEALS + (size_t)i) * ranks;
            deal(&prng, share, experts);
            fill_ranks(&prng, share, of, &d->rows[at], &d->off[at]);
        }
    }
    for (int i = 0; i < TOKEN_COUNTS; i++) {
        for (int at = 0; at < d->count; at++) {
            d->expected[i] += fullest(d, at, sqrt(ldexp(1.0, i))) / d->count;
        }
    }
    sp_free(bias);
    sp_free(share);
    return d;
}

// ---- draws that are kept ----

// A search makes a cost model for each layout, and there are few ways to spread a model's experts.
static struct {
    pthread_mutex_t mutex;
    drawn *items[DRAWN_KEPT];
    size_t count; // in all; the latest DRAWN_KEPT are held
} kept = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void drop(drawn *d)
{
    if (d != NULL && --d->users == 0) {
        sp_free(d->rows);
        sp_free(d->off);
        sp_free(d);
    }
}

static drawn *find_kept(const drawn_of *of)
{
    for (size_t i = 0; i < kept.count && i < DRAWN_KEPT; i++) {
        const drawn_of *a = &kept.items[i]->of;
        if (a->experts == of->experts && a->active == of->active && a->ranks == of->ranks &&
            a->std == of->std && a->seed == of->seed) {
            return kept.items[i];
        }
    }
    return NULL;
}

// Others wait meanwhile, mostly for the same. To be given back by give_drawn.
static drawn *take_drawn(const drawn_of *of)
{
    pthread_mutex_lock(&kept.mutex);
    drawn *d = find_kept(of);
    if (d == NULL) {
        drawn **item = &kept.items[kept.count++ % DRAWN_KEPT];
        d = draw(of);
        d->users = 1;
        drop(*item);
        *item = d;
    }
    d->users++;
    pthread_mutex_unlock(&kept.mutex);
    return d;
}

static void give_drawn(drawn *d)
{
    pthread_mutex_lock(&kept.mutex);
    drop(d);
    pthread_mutex_unlock(&kept.mutex);
}

static sp_layer_mlp mlp_of(const sp_model *model, int kind)
{
    const sp_layer_mlp all = {.experts = model->experts,
                              .experts_per_token = model->experts_per_token};
    return model->runs > 0 ? model->kind[kind] : all;
}

static drawn_of drawn_of_kind(const sp_model *model, int kind, int ranks)
{
    const sp_layer_mlp mlp = mlp_of(model, kind);
    return (drawn_of){.experts = mlp.experts,
                      .active = mlp.experts_per_token,
                      .ranks = ranks,
                      .std = fabs(model->expert_imbalance),
                      .seed = (uint64_t)model->expert_imbalance_seed + (uint64_t)kind};
}

sp_expert_load *sp_expert_load_new(const sp_model *model, const sp_layout *layout,
                                   const sp_stage *stages)
{
    int ranks = sp_layout_ep(layout);
    bool padded = model->expert_capacity_factor > 0.0;
    if (!model->forced_routing || padded || ranks == 1 || sp_model_most_experts(model) == 0) {
        return NULL;
    }
    sp_expert_load *load = sp_calloc(1, sizeof *load);
    *load = (sp_expert_load){.model = model,
                             .stages = stages,
                             .vstages = sp_layout_vstages(layout),
                             .ranks = ranks,
                             .kept = model->expert_imbalance < 0.0,
                             .seed = (uint64_t)model->expert_imbalance_seed};
    int layers[SP_LAYER_KINDS] = {0};
    sp_model_count_kinds(model, 0, model->layers, layers);
    for (int k = 0; k < sp_model_kinds(model); k++) {
        const sp_layer_mlp mlp = mlp_of(model, k);
        load->layers[k] = mlp.experts == 0 ? 0 : model->runs > 0 ? layers[k] : model->layers;
        if (load->layers[k] > 0) {
            const drawn_of of = drawn_of_kind(model, k, ranks);
            load->of_kind[k] = take_drawn(&of);
        }
    }
    return load;
}

void sp_expert_load_free(sp_expert_load *load)
{
    for (int k = 0; load != NULL && k < SP_LAYER_KINDS; k++) {
        give_drawn(load->of_kind[k]);
    }
    sp_free(load);
}

// The draw of a layer in a call.
static int draw_of(const sp_expert_load *load, const drawn *d, int layer, int64_t call)
{
    sp_prng prng;
    uint64_t number = load->kept ? 0 : (uint64_t)call + 1;
    sp_prng_seed(&prng, load->seed ^ number << 20 ^ (uint64_t)layer << 44);
    return (int)sp_prng_below(&prng, (uint64_t)d->count);
}

static int kind_of(const sp_expert_load *load, int layer)
{
    return load->model->runs > 0 ? sp_model_kind_of(load->model, layer) : 0;
}

sp_overload sp_expert_load_of(const sp_expert_load *load, int64_t call, double tokens)
{
    sp_overload overload = {.most = 1.0, .held = 1.0};
    double *held = sp_calloc((size_t)load->ranks, sizeof *held);
    double root = sqrt(fmax(1.0, tokens));
    int all = 0;
    for (int s = 0; s < load->vstages; s++) {
        int layers = 0;
        for (int r = 0; r < load->ranks; r++) {
            held[r] = 0.0;
        }
        for (int i = 0; i < load->stages[s].layers; i++) {
            int layer = load->stages[s].first + i;
            int kind = kind_of(load, layer);
            const drawn *d = load->of_kind[kind];
            if (d == NULL) {
                continue;
            }
            int at = draw_of(load, d, layer, call);
            double most = 1.0;
            for (int r = 0; r < load->ranks; r++) {
                double rows = rows_over_mean(d, at, r, root);
                most = fmax(most, rows);
                held[r] += rows;
            }
            overload.mean += most;
            overload.most = fmax(overload.most, most);
            layers++;
        }
        for (int r = 0; layers > 0 && r < load->ranks; r++) {
            overload.held = fmax(overload.held, held[r] / layers);
        }
        all += layers;
    }
    overload.mean = all > 0 ? overload.mean / all : 1.0;
    sp_free(held);
    return overload;
}

double sp_expert_load_expected(const sp_expert_load *load, double tokens)
{
    double at = fmin(fmax(log2(fmax(1.0, tokens)), 0.0), TOKEN_COUNTS - 1.0);
    int first = (int)fmin(at, TOKEN_COUNTS - 2.0);
    double sum = 0.0;
    int layers = 0;
    for (int k = 0; k < SP_LAYER_KINDS; k++) {
        if (load->of_kind[k] != NULL) {
            const double *expected = load->of_kind[k]->expected;
            double mean = expected[first] + (at - first) * (expected[first + 1] - expected[first]);
            sum += load->layers[k] * mean;
            layers += load->layers[k];
        }
    }
    return layers > 0 ? sum / layers : 1.0;
}

static double dropped_of(const drawn_of *of, double factor)
{
    sp_prng prng;
    const int biases = biases_of(of->experts);
    const double room = factor * of->active / of->experts;
    double dropped = 0.0;
    if (of->std == 0.0) {
        return fmax(0.0, 1.0 - factor);
    }
    double *bias = sp_malloc((size_t)of->experts * sizeof *bias);
    double *share = sp_malloc((size_t)of->experts * sizeof *share);
    sp_prng_seed(&prng, of->seed);
    for (int b = 0; b < biases; b++) {
        draw_shares(&prng, of, bias, share);
        for (int e = 0; e < of->experts; e++) {
            dropped += fmax(0.0, share[e] - room) / of->active / biases;
        }
    }
    sp_free(bias);
    sp_free(share);
    return dropped;
}

double sp_expert_dropped_share(const sp_model *model)
{
    int layers[SP_LAYER_KINDS] = {0};
    double rows = 0.0;
    double dropped = 0.0;
    sp_model_count_kinds(model, 0, model->layers, layers);
    for (int k = 0; model->expert_capacity_factor > 0.0 && k < sp_model_kinds(model); k++) {
        const drawn_of of = drawn_of_kind(model, k, 0);
        if (of.experts > 0) {
            const double own = (double)layers[k] * of.active;
            rows += own;
            dropped += own * dropped_of(&of, model->expert_capacity_factor);
        }
    }
    return rows > 0.0 ? dropped / rows : 0.0;
}
