// Lower bounds against many simulated packings.
#include "sim/schedule/packflow.h"
#include "tests/support/bound_costs.h"
#include "tests/support/test_main.h"

enum { RANDOM_SAMPLES = 24, RANDOM_PACKS = 400 };

// Costs in whole nanoseconds, so that the simulation adds nothing by rounding.
typedef struct drawn {
    sp_bound_costs costs;
    int64_t tokens[RANDOM_SAMPLES];
    int count;
} drawn;

static int64_t between(sp_prng *prng, int64_t least, int64_t most)
{
    return least + (int64_t)sp_prng_below(prng, (uint64_t)(most - least + 1));
}

static drawn draw(sp_prng *prng)
{
    drawn d = {.count = (int)between(prng, 1, RANDOM_SAMPLES)};
    sp_bound_costs *c = &d.costs;
    c->stages = (int)between(prng, 1, 8);
    c->split = sp_prng_below(prng, 2) == 0;
    c->f_token_s = (double)between(prng, 100, 500);
    c->f_square_s = (double)between(prng, 0, 1);
    c->i_token_s = c->f_token_s * (double)between(prng, 1, 2);
    c->i_square_s = c->f_square_s * (double)between(prng, 1, 4);
    c->b_token_s = c->i_token_s + (c->split ? c->f_token_s : 0.0);
    c->b_square_s = c->i_square_s;
    c->f_pack_s = (double)between(prng, 0, 20000);
    c->i_pack_s = (double)between(prng, 0, 40000);
    c->b_pack_s = c->i_pack_s + (c->split ? (double)between(prng, 0, 20000) : 0.0);
    c->p2p_s = (double)between(prng, 0, 5000);
    c->f_last_token_s = (double)between(prng, 0, 1) * 50.0;
    c->b_last_token_s = 2.0 * c->f_last_token_s;
    for (int i = 0; i < d.count; i++) {
        d.tokens[i] = (int64_t)exp(4.0 + 4.5 * sp_prng_uniform(prng));
    }
    c->sizes = (int)between(prng, 0, 3);
    for (int i = 0; i < c->sizes; i++) {
        double beyond = (double)between(prng, 0, 10000) * (c->sizes - i);
        double above = i > 0 ? c->size[i - 1].f_pack_s - c->f_pack_s : HUGE_VAL;
        beyond = fmin(beyond, above);
        c->size[i] =
            (sp_bound_size){(double)(100 << 2 * i), c->f_pack_s + beyond, c->b_pack_s + beyond};
    }
    return d;
}

// Packs of growing, then falling sizes; the backward runs blocks of packs that cut samples tie
// together in reverse.
typedef struct packs {
    int count;
    double f_s[RANDOM_PACKS], b_s[RANDOM_PACKS], i_s[RANDOM_PACKS];
    int64_t tokens[RANDOM_PACKS];
    bool tied[RANDOM_PACKS]; // to the next
    int32_t order[RANDOM_PACKS], need[RANDOM_PACKS];
} packs;

static double span_s(double token_s, double square_s, int64_t from, int64_t to)
{
    double a = (double)from;
    double b = (double)to;
    return token_s * (b - a) + square_s * (b * b - a * a);
}

static void fill_packs(const drawn *d, sp_prng *prng, packs *p)
{
    int64_t total = 0;
    int order[RANDOM_SAMPLES];
    for (int i = 0; i < d->count; i++) {
        int at = (int)sp_prng_below(prng, (uint64_t)i + 1);
        order[i] = order[at];
        order[at] = i;
        total += d->tokens[i];
    }
    double size = (double)total / (double)between(prng, 1, 60);
    double first = 0.05 + sp_prng_uniform(prng);
    double growth = 1.0 + 0.5 * sp_prng_uniform(prng);
    double decay = 1.0 + 0.3 * sp_prng_uniform(prng);
    *p = (packs){.count = 1};
    int64_t done = 0;
    for (int i = 0; i < d->count; i++) {
        int64_t n = d->tokens[order[i]];
        for (int64_t from = 0; from < n;) {
            int k = p->count - 1;
            double left = 0.05 + (decay - 1.0) * (double)(total - done) / size;
            double most = size * fmin(fmin(1.0, first * pow(growth, k)), left);
            if (p->tokens[k] > 0 && (double)p->tokens[k] >= most && p->count < RANDOM_PACKS) {
                p->tied[k] = from > 0;
                p->count++;
                continue;
            }
            int64_t room = (int64_t)fmax(most - (double)p->tokens[k], 1.0);
            int64_t to = p->count == RANDOM_PACKS || room > n - from ? n : from + room;
            const sp_bound_costs *c = &d->costs;
            p->f_s[k] += span_s(c->f_token_s, c->f_square_s, from, to);
            p->b_s[k] += span_s(c->b_token_s, c->b_square_s, from, to);
            p->i_s[k] += span_s(c->i_token_s, c->i_square_s, from, to);
            p->tokens[k] += to - from;
            done += to - from;
            from = to;
        }
    }
    for (int k = 0; k < p->count;) {
        int end = k;
        while (p->tied[end]) {
            end++;
        }
        for (int j = k; j <= end; j++) {
            p->order[j] = k + end - j;
            p->need[j] = end;
        }
        k = end + 1;
    }
}

static double simulated_s(const drawn *d, const packs *p)
{
    const sp_bound_costs *c = &d->costs;
    size_t stages = (size_t)c->stages;
    size_t count = (size_t)p->count;
    AUTO_FREE int64_t *times = sp_calloc((3 * stages + 1) * count, sizeof *times);
    AUTO_FREE int64_t *freed = sp_calloc(count, sizeof *freed);
    assert_true(times != NULL && freed != NULL);
    int64_t *f_ns = times;
    int64_t *b_ns = times + count * stages;
    int64_t *w_ns = b_ns + count * stages;
    int64_t *p2p_ns = w_ns + count * stages;
    for (size_t j = 0; j < count; j++) {
        size_t k = (size_t)p->order[j];
        p2p_ns[j] = (int64_t)c->p2p_s;
        for (size_t s = 0; s < stages; s++) {
            double last = s == stages - 1;
            double f_tokens = (double)p->tokens[j];
            double b_tokens = (double)p->tokens[k];
            double f_s = bound_fixed_s(c, f_tokens, false) + p->f_s[j];
            double b_s = bound_fixed_s(c, b_tokens, true) + p->b_s[k];
            f_s += last * c->f_last_token_s * f_tokens;
            b_s += last * c->b_last_token_s * b_tokens;
            double i_s = c->split ? c->i_pack_s + p->i_s[k] : b_s;
            f_ns[j * stages + s] = (int64_t)f_s;
            b_ns[j * stages + s] = (int64_t)i_s;
            w_ns[j * stages + s] = (int64_t)(b_s - i_s);
        }
        freed[j] = p->tokens[k];
    }
    const sp_layout layout = {.tp = 1, .cp = 1, .pp = c->stages, .dp = 1, .chunks = 1};
    sp_packflow_job job = {.layout = &layout,
                           .forward = count,
                           .backward = count,
                           .f_ns = f_ns,
                           .b_ns = b_ns,
                           .w_ns = c->split ? w_ns : NULL,
                           .p2p_f_ns = p2p_ns,
                           .p2p_b_ns = p2p_ns,
                           .need = p->need,
                           .tokens = p->tokens,
                           .freed = freed};
    sp_packflow_outcome result;
    must_succeed(sp_packflow_run(&job, NULL, &result, ERR));
    return (double)result.makespan_ns;
}

TEST(no_simulated_packing_is_faster)
{
    sp_prng prng = prng_seeded(11);
    double share[2] = {0.0, 0.0};
    double best_share[2] = {0.0, 0.0};
    int cases[2] = {0, 0};
    for (int round = 0; round < test_rounds(150); round++) {
        drawn d = draw(&prng);
        sp_bound_batch batch = {.tokens = d.tokens, .count = (size_t)d.count, .ranks = 1};
        double bound_s =
            fmax(sp_bound_growth_s(&d.costs, &batch), sp_bound_flow_shop_s(&d.costs, &batch));
        double best_s = HUGE_VAL;
        for (int trial = 0; trial < 60; trial++) {
            packs p;
            fill_packs(&d, &prng, &p);
            best_s = fmin(best_s, simulated_s(&d, &p));
        }
        must_hold(best_s >= bound_s * (1.0 - 1e-12) && bound_s >= sp_bound_work_s(&d.costs, &batch),
                  "round %d: %.0f ns below the bound %.0f ns", round, best_s, bound_s);
        share[d.costs.split] += bound_s / best_s;
        best_share[d.costs.split] = fmax(best_share[d.costs.split], bound_s / best_s);
        cases[d.costs.split]++;
    }
    for (int split = 0; split < 2; split++) {
        print_message("%s backward: bound over the best of 60 packings: mean %.3f, most %.3f\n",
                      split ? "split" : "whole", share[split] / cases[split], best_share[split]);
    }
}
