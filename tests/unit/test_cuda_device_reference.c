// The fp64 attention that the GPU's is measured by (tests/gpu/attention_reference.h): gradients
// against central differences of sum(O dO), outputs where they are known.
#include "tests/gpu/attention_reference.h"
#include "tests/support/test_main.h"

enum { QUERIES = 3, KEYS = 5, HEADS = 4, KV_HEADS = 2, WIDTH = 3 };
enum { WIDE = QUERIES * HEADS * WIDTH, NARROW = KEYS * KV_HEADS * WIDTH };

static double q[WIDE], k[NARROW], v[NARROW], d_out[WIDE];

static attention_reference problem(bool causal)
{
    return (attention_reference){.queries = QUERIES,
                                 .keys = KEYS,
                                 .heads = HEADS,
                                 .kv_heads = KV_HEADS,
                                 .head_dim = WIDTH,
                                 .causal = causal,
                                 .q = q,
                                 .k = k,
                                 .v = v,
                                 .d_out = d_out};
}

static void draw(uint64_t seed, double *values, int count)
{
    sp_prng prng = prng_seeded(seed);
    for (int i = 0; i < count; i++) {
        values[i] = 2.0 * sp_prng_uniform(&prng) - 1.0;
    }
}

static void draw_all(void)
{
    draw(1, q, WIDE);
    draw(2, k, NARROW);
    draw(3, v, NARROW);
    draw(4, d_out, WIDE);
}

static double loss(bool causal)
{
    attention_reference r = problem(causal);
    double sum = 0.0;
    assert_true(attention_reference_compute(&r));
    for (int i = 0; i < WIDE; i++) {
        sum += r.out[i] * d_out[i];
    }
    attention_reference_free(&r);
    return sum;
}

static void check_gradient(bool causal, double *at, const double *gradient, int count)
{
    const double step = 1e-5;
    for (int i = 0; i < count; i++) {
        double kept = at[i];
        at[i] = kept + step;
        double above = loss(causal);
        at[i] = kept - step;
        double below = loss(causal);
        at[i] = kept;
        assert_within((above - below) / (2.0 * step), gradient[i], 1e-8);
    }
}

TEST(gradients_are_differences_of_outputs)
{
    for (int causal = 0; causal < 2; causal++) {
        draw_all();
        attention_reference r = problem(causal == 1);
        assert_true(attention_reference_compute(&r));
        check_gradient(causal == 1, q, r.dq, WIDE);
        check_gradient(causal == 1, k, r.dk, NARROW);
        check_gradient(causal == 1, v, r.dv, NARROW);
        attention_reference_free(&r);
    }
}

// With equal keys every key that is seen weighs the same: the first of 3 queries sees 3 of 5 keys,
// the last all of them.
TEST(the_last_query_sees_all_keys)
{
    draw_all();
    for (int i = 0; i < NARROW; i++) {
        k[i] = 0.0;
        v[i] = i / (KV_HEADS * WIDTH); // the key's number
    }
    attention_reference r = problem(true);
    assert_true(attention_reference_compute(&r));
    for (int query = 0; query < QUERIES; query++) {
        int seen = query + KEYS - QUERIES + 1;
        for (int i = 0; i < HEADS * WIDTH; i++) {
            assert_true(fabs(r.out[query * HEADS * WIDTH + i] - 0.5 * (seen - 1)) < 1e-12);
        }
        assert_within(r.stats[query * HEADS], log((double)seen), 1e-12);
    }
    attention_reference_free(&r);
}
